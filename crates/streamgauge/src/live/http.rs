//! Connections and HTTP/1 for `--metrics`, `--dashboard` and `--otlp`: heads of requests, and
//! writing with a deadline.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use kit::http1::{FieldRules, Headers, RequestLine};

/// Time limit of a request.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of the head of a request, in bytes.
const HEAD_MAX: usize = 8 << 10;
/// Maximum number of fields of a request.
const FIELDS_MAX: usize = 64;

/// The head of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Part of the target after the question mark.
    pub(crate) query: String,
    /// Requested host, with its port if it was given.
    pub(crate) host: Option<String>,
    /// The bearer token (RFC 6750, 2.1).
    pub(crate) bearer: Option<String>,
}

/// Reads the head of a request (RFC 9112, 2 and 3). `None` if it is malformed, which is known as
/// soon as its first line shows it.
pub(crate) fn read_request_head(
    stream: &mut TcpStream,
    within: Duration,
) -> io::Result<Option<Head>> {
    let deadline = Instant::now() + within;
    let mut bytes = Vec::new();
    loop {
        match parse(&bytes) {
            Parsed::Head(head) => return Ok(Some(head)),
            Parsed::Partial if bytes.len() < HEAD_MAX => {}
            Parsed::Partial | Parsed::Malformed => return Ok(None),
        }
        stream.set_read_timeout(Some(remaining(deadline)?))?;
        let mut buffer = [0; 1024];
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    Head(Head),
    Partial,
    Malformed,
}

/// Parses the beginning of a connection. Lines may end with LF alone, and empty ones may come
/// first.
fn parse(bytes: &[u8]) -> Parsed {
    let mut rest = bytes;
    while let [b'\r' | b'\n', after @ ..] = rest {
        rest = after;
    }
    let mut all = Vec::new();
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        if line.is_empty() {
            return read(&all).map_or(Parsed::Malformed, Parsed::Head);
        }
        all.push(line);
        rest = &rest[end + 1..];
    }
    let is_request = match all.first() {
        Some(line) => RequestLine::parse(line).is_some(),
        None => rest.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\r')),
    };
    match is_request {
        true => Parsed::Partial,
        false => Parsed::Malformed,
    }
}

/// Reads the lines of a head.
fn read(lines: &[&[u8]]) -> Option<Head> {
    let (first, fields) = lines.split_first()?;
    let request = RequestLine::parse(first)?;
    let (path, query) = request
        .target
        .split_once('?')
        .unwrap_or((request.target, ""));
    let fields = Headers::parse(fields.iter().copied(), FieldRules::Strict, FIELDS_MAX).ok()?;
    let bearer = fields.get("authorization").and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    Some(Head {
        method: request.method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        host: fields.get("host").map(str::to_owned),
        bearer: bearer.map(str::to_owned),
    })
}

/// Writes all bytes, or fails at `until`. The time-out of a socket alone would restart with each
/// byte that it takes.
pub(crate) fn write_until(
    stream: &mut TcpStream,
    mut bytes: &[u8],
    until: Instant,
) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(remaining(until)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the time left until `until`, or an error if it has passed.
pub(crate) fn remaining(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// Wakes a thread that waits for connections at this address. Returns `true` if it accepted one.
pub(crate) fn wake(mut address: SocketAddr) -> bool {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    TcpStream::connect_timeout(&address, REQUEST_TIMEOUT).is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn heads_of_requests_are_parsed() {
        let parsed = |bytes: &[u8]| match parse(bytes) {
            Parsed::Head(head) => head,
            other => panic!("{other:?}"),
        };
        let head = parsed(b"\r\nGET /events?token=x HTTP/1.1\r\nHOST: a:1\r\n\r\n");
        let wanted = ["GET", "/events", "token=x"].map(str::to_owned);
        assert_eq!([head.method, head.path, head.query], wanted);
        assert_eq!(head.host.as_deref(), Some("a:1"));
        assert_eq!(head.bearer, None);
        let head = parsed(b"GET / HTTP/1.1\nAuthorization: bearer ab\n\n");
        assert_eq!(head.bearer.as_deref(), Some("ab"));
        for partial in ["", "\r\n", "GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n"] {
            assert_eq!(parse(partial.as_bytes()), Parsed::Partial, "{partial}");
        }
        // The beginning of TLS, and a request of something else, are known before they are whole.
        for malformed in [
            &b"\x16\x03\x01"[..],
            b"SSH-2.0-x\r\n",
            b"GET / HTTP/1.1\r\nno field\r\n\r\n",
        ] {
            assert_eq!(parse(malformed), Parsed::Malformed);
        }
    }

    /// A browser that reads a little now and then is disconnected in time and delays nobody else.
    #[test]
    fn writing_to_a_slow_browser_ends_at_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it is bound");
        let mut slow = TcpStream::connect(address).expect("it listens");
        let (mut stream, _) = listener.accept().expect("it was asked");
        let over = Arc::new(AtomicBool::new(false));
        let theirs = over.clone();
        let reading = thread::spawn(move || {
            let mut some = [0; 4096];
            while !theirs.load(Ordering::Acquire) {
                match slow.read(&mut some) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => thread::park_timeout(Duration::from_millis(20)),
                }
            }
        });
        let much = vec![b'a'; 64 << 20];
        let begun = Instant::now();
        let until = begun + Duration::from_millis(300);
        assert!(write_until(&mut stream, &much, until).is_err());
        assert!(begun.elapsed() < Duration::from_secs(10));
        over.store(true, Ordering::Release);
        drop(stream);
        reading.join().expect("it ends");
    }
}
