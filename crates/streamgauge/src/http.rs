//! What `--metrics` and `--dashboard` know of HTTP/1: how a request begins.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a request may take.
pub(crate) const REQUEST_MAX: Duration = Duration::from_secs(2);
/// How many bytes of a request are read.
const HEAD_MAX: usize = 8 << 10;

/// The head of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) path: String,
    /// What stands behind the path's question mark.
    pub(crate) query: String,
    /// The host that was asked, with its port where one was named.
    pub(crate) host: Option<String>,
}

/// Reads the head of a request (RFC 9112, 2 and 3); none where it is malformed.
pub(crate) fn head(stream: &mut TcpStream) -> io::Result<Option<Head>> {
    let deadline = Instant::now() + REQUEST_MAX;
    let mut bytes = Vec::new();
    loop {
        match parse(&bytes) {
            Parsed::Head(head) => return Ok(Some(head)),
            Parsed::Partial if bytes.len() < HEAD_MAX => {}
            _ => return Ok(None),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut room = [0; 1024];
        match stream.read(&mut room)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&room[..count]),
        }
    }
}

enum Parsed {
    Head(Head),
    Partial,
    Malformed,
}

fn parse(bytes: &[u8]) -> Parsed {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Parsed::Partial,
        Err(_) => return Parsed::Malformed,
    }
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let host = request
        .headers
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("host"));
    let host = host.and_then(|field| std::str::from_utf8(field.value).ok());
    Parsed::Head(Head {
        method: request.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        host: host.map(str::to_owned),
    })
}

/// Makes whoever waits for connections at that address go on, and says whether it does.
pub(crate) fn wake(mut address: SocketAddr) -> bool {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    TcpStream::connect_timeout(&address, REQUEST_MAX).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read() {
        let Parsed::Head(head) = parse(b"GET /events?token=x HTTP/1.1\r\nHOST: a:1\r\n\r\n") else {
            panic!("it is whole");
        };
        let wanted = ["GET", "/events", "token=x"].map(str::to_owned);
        assert_eq!([head.method, head.path, head.query], wanted);
        assert_eq!(head.host.as_deref(), Some("a:1"));
        assert!(matches!(parse(b"GET / HT"), Parsed::Partial));
        assert!(matches!(parse(b"\x01\r\n\r\n"), Parsed::Malformed));
    }
}
