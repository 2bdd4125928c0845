//! Common part of `--metrics` and `--dashboard`: a listener with access control.
//!
//! One thread accepts connections. Each request has two seconds and is read by a thread of its own,
//! so a silent connection delays nobody. One more thread answers authorised requests, one after the
//! other. All threads have a lower priority than the measurement.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use report::io_reason;

use crate::exit::Failure;
use crate::live::http::{self, Head};
use crate::live::own_address;

/// Environment variable with the token that other machines must send.
pub(crate) const TOKEN_VARIABLE: &str = "STREAMGAUGE_TOKEN";

/// Length of a token that the user chose.
const TOKEN_LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;

/// Nice value of its threads, so that the measurement has priority (nice(2)).
pub(crate) const NICE: i32 = 10;

/// Maximum number of connections whose request is being read. A further one replaces the oldest.
const READING_MAX: usize = 64;

/// Maximum number of requests that wait for their answer.
const WAITING_MAX: usize = 16;

/// Maximum duration of a request. Tests have more time, so that a busy machine does not fail them.
const READ_TIMEOUT: Duration = if cfg!(test) {
    Duration::from_secs(600)
} else {
    http::REQUEST_TIMEOUT
};

/// Stack of a thread that reads a request, in bytes.
const READER_STACK: usize = 128 << 10;

/// Headers that keep an answer from being cached, framed, or taken for another content type.
pub(crate) const HEADERS: &str = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
                                  Referrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n";

/// The name of the service in messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceName {
    /// Subject of messages.
    pub(crate) what: &'static str,
    /// Option with which another address is given.
    pub(crate) option: &'static str,
    /// Name of its threads.
    pub(crate) thread: &'static str,
}

/// Server that listens until it is dropped.
pub(crate) struct ViewServer {
    address: SocketAddr,
    access: Access,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Token that other machines must send: the user's or a generated one. It is the same for all
/// services of the process.
#[derive(Default)]
pub(crate) struct Token(OnceCell<String>);

impl Token {
    /// Returns the generated token, which is generated when it is needed first.
    fn generated(&self) -> io::Result<String> {
        if let Some(token) = self.0.get() {
            return Ok(token.clone());
        }
        let token = random_token()?;
        Ok(self.0.get_or_init(|| token).clone())
    }
}

/// Access control.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Access {
    /// Clients on this machine, the only ones that reach the address.
    Here,
    /// Clients that know the token.
    Token {
        token: String,
        /// True if the user chose the token.
        is_users: bool,
    },
}

/// Parses `127.0.0.1:9105`, `[::1]:9105`, or a port alone, which means 127.0.0.1.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text
        .parse()
        .map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|_| text.parse()).map_err(|_| {
        "write an address of this machine and a port, such as 127.0.0.1:9105, or a port alone"
            .to_owned()
    })
}

impl ViewServer {
    /// Starts listening. Calls `answer` for each authorised request with its connection, one after
    /// the other.
    pub(crate) fn start(
        address: SocketAddr,
        service: ServiceName,
        token: &Token,
        answer: impl FnMut(TcpStream, &Head) -> io::Result<()> + Send + 'static,
    ) -> Result<ViewServer, Failure> {
        let access = Access::of(address, token)?;
        let failed = |error: io::Error| {
            Failure::bad(format_args!(
                "cannot serve {} at {address}: {}; name another address with `{}`",
                service.what,
                io_reason(&error),
                service.option
            ))
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let over = Arc::new(AtomicBool::new(false));
        let (theirs, admitted) = (over.clone(), access.clone());
        let serve = move || serve(&listener, &theirs, &admitted, answer);
        let thread = thread::Builder::new().name(service.thread.to_owned());
        let thread = Some(thread.spawn(serve).map_err(failed)?);
        Ok(ViewServer {
            address,
            access,
            over,
            thread,
        })
    }

    /// Returns the URL of this path, for people: if the server listens on all addresses, with one
    /// that other machines can open. A generated token is shown, the user's is not.
    pub(crate) fn url(&self, path: &str) -> String {
        let url = format!("http://{}{path}", own_address::for_others(self.address));
        match &self.access {
            Access::Here => url,
            Access::Token {
                token,
                is_users: false,
            } => format!("{url}?token={token}"),
            Access::Token { .. } => {
                format!("{url}, with the token that {TOKEN_VARIABLE} holds")
            }
        }
    }
}

impl Drop for ViewServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let woken = http::wake(self.address);
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

impl Access {
    /// Returns the access to an address. An address that other machines reach needs a token: the
    /// user's or a generated one.
    fn of(address: SocketAddr, token: &Token) -> Result<Access, Failure> {
        if address.ip().is_loopback() {
            return Ok(Access::Here);
        }
        match std::env::var_os(TOKEN_VARIABLE) {
            Some(token) => Access::with(token.to_str().unwrap_or_default()),
            None => {
                let drawn = token.generated().map_err(|error| {
                    Failure::bad(format_args!(
                        "cannot generate a token: {}",
                        io_reason(&error)
                    ))
                })?;
                Ok(Access::Token {
                    token: drawn,
                    is_users: false,
                })
            }
        }
    }

    fn with(token: &str) -> Result<Access, Failure> {
        let may_be_in_a_url = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        if !TOKEN_LENGTHS.contains(&token.len()) || !token.chars().all(may_be_in_a_url) {
            return Err(Failure::bad(format_args!(
                "{TOKEN_VARIABLE} is not a valid token: use {} to {} letters, digits and -._~",
                TOKEN_LENGTHS.start(),
                TOKEN_LENGTHS.end()
            )));
        }
        Ok(Access::Token {
            token: token.to_owned(),
            is_users: true,
        })
    }

    /// Returns `true` if the request is authorised.
    ///
    /// Without a token, only this machine reaches the address. A page of another site could still
    /// send requests through a name of its own that resolves to the address, so only hosts that are
    /// addresses or `localhost` are accepted.
    fn admits(&self, head: &Head) -> bool {
        if let Access::Token { token, .. } = self {
            let in_query = head.query.split('&');
            let in_query = in_query.filter_map(|part| part.strip_prefix("token="));
            let given = in_query.chain(head.bearer.as_deref());
            return given.fold(false, |any, given| {
                any | same(given.as_bytes(), token.as_bytes())
            });
        }
        let Some(host) = &head.host else {
            return false;
        };
        let socket = host.parse::<SocketAddr>().is_ok();
        let name = host
            .rsplit_once(':')
            .map_or(host.as_str(), |(name, _)| name);
        socket
            || name == "localhost"
            || host.parse::<IpAddr>().is_ok()
            || name.parse::<Ipv4Addr>().is_ok()
    }
}

/// Compares in a time that does not reveal where they differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && differences == 0
}

/// Generates a secret of 128 bits.
fn random_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// An authenticated request, and its connection.
type AuthorizedRequest = (TcpStream, Head);

fn serve(
    listener: &TcpListener,
    over: &AtomicBool,
    access: &Access,
    mut answer: impl FnMut(TcpStream, &Head) -> io::Result<()> + Send,
) {
    // Threads started from here inherit the nice value.
    let _ = rustix::process::nice(NICE);
    let (admitted, requests) = sync_channel::<AuthorizedRequest>(WAITING_MAX);
    let reading = AtomicUsize::new(0);
    let open = Open::default();
    thread::scope(|scope| {
        scope.spawn(move || {
            for (stream, head) in requests {
                // A client that has left or is too slow does not affect the run.
                let _ = answer(stream, &head);
            }
        });
        for (number, stream) in listener.incoming().enumerate() {
            if over.load(Ordering::Acquire) {
                break;
            }
            let second = stream.and_then(|stream| Ok((stream.try_clone()?, stream)));
            let Ok((second, mut stream)) = second else {
                // No descriptor is free: drops all open requests.
                close_oldest(&open, 0);
                thread::park_timeout(Duration::from_millis(100));
                continue;
            };
            close_oldest(&open, READING_MAX - 1);
            // Readers that were given up may not have ended yet.
            if reading.load(Ordering::Acquire) >= 2 * READING_MAX {
                continue;
            }
            locked(&open).insert(number, second);
            reading.fetch_add(1, Ordering::AcqRel);
            let (admitted, reading, open) = (admitted.clone(), &reading, &open);
            let reader = thread::Builder::new().stack_size(READER_STACK);
            let started = reader.spawn_scoped(scope, move || {
                let head = http::read_request_head(&mut stream, READ_TIMEOUT);
                locked(open).remove(&number);
                let _ = head.and_then(|head| authorize(stream, head, access, &admitted));
                reading.fetch_sub(1, Ordering::AcqRel);
            });
            if started.is_err() {
                locked(open).remove(&number);
                reading.fetch_sub(1, Ordering::AcqRel);
            }
        }
        close_oldest(&open, 0);
        drop(admitted);
    });
}

/// Connections whose request is being read, by number.
type Open = Mutex<BTreeMap<usize, TcpStream>>;

fn locked(open: &Open) -> MutexGuard<'_, BTreeMap<usize, TcpStream>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops reading all requests except the newest `kept`.
fn close_oldest(open: &Open, kept: usize) {
    let mut open = locked(open);
    while open.len() > kept {
        if let Some((_, oldest)) = open.pop_first() {
            let _ = oldest.shutdown(Shutdown::Both);
        }
    }
}

/// Passes a request on if its client is authorised.
fn authorize(
    mut stream: TcpStream,
    head: Option<Head>,
    access: &Access,
    admitted: &SyncSender<AuthorizedRequest>,
) -> io::Result<()> {
    stream.set_write_timeout(Some(http::REQUEST_TIMEOUT))?;
    let (status, text) = match head {
        None => ("400 Bad Request", "this is not an HTTP/1 request"),
        Some(head) if head.method != "GET" => ("405 Method Not Allowed", "only GET is supported"),
        Some(head) if !access.admits(&head) => match access {
            Access::Here => ("403 Forbidden", "use the address that streamgauge printed"),
            Access::Token { .. } => (
                "401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"streamgauge\"",
                "use the address that streamgauge printed, or send its token as a bearer token",
            ),
        },
        Some(head) => {
            let sent = admitted.try_send((stream, head));
            // The queue is full: authorised clients ask faster than they can be answered.
            return sent.map_err(|_| io::ErrorKind::WouldBlock.into());
        }
    };
    refuse(&mut stream, status, text)
}

/// Answers with a line of text.
pub(crate) fn refuse(stream: &mut TcpStream, status: &str, text: &str) -> io::Result<()> {
    let kind = "text/plain; charset=utf-8";
    respond(stream, status, kind, format!("{text}\n").as_bytes())
}

/// Sends an answer.
pub(crate) fn respond(
    stream: &mut TcpStream,
    status: &str,
    kind: &str,
    body: &[u8],
) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{HEADERS}\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(host: &str, query: &str) -> Head {
        Head {
            host: Some(host.to_owned()),
            query: query.to_owned(),
            ..Head::default()
        }
    }

    #[test]
    fn addresses_are_parsed() {
        assert_eq!(
            address("9105"),
            Ok(SocketAddr::from(([127, 0, 0, 1], 9105)))
        );
        assert_eq!(
            address("0.0.0.0:1"),
            Ok(SocketAddr::from(([0, 0, 0, 0], 1)))
        );
        assert!(address("[::1]:9105").is_ok_and(|address| address.is_ipv6()));
        for wrong in ["", ":9105", "localhost:1", "127.0.0.1", "70000"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn local_access_requires_a_host_that_is_an_address() {
        for host in [
            "127.0.0.1:9106",
            "localhost:9106",
            "[::1]:9106",
            "127.0.0.1",
        ] {
            assert!(Access::Here.admits(&asked(host, "")), "{host}");
        }
        for host in ["evil.example:9106", "evil.example", ""] {
            assert!(!Access::Here.admits(&asked(host, "")), "{host}");
        }
    }

    #[test]
    fn remote_access_requires_the_token() {
        let access = Access::with("abcdefghijklmnop").unwrap_or(Access::Here);
        assert!(access.admits(&asked("host:1", "token=abcdefghijklmnop")));
        for query in ["", "token=", "token=abcdefghijklmno", "abcdefghijklmnop"] {
            assert!(!access.admits(&asked("127.0.0.1:1", query)), "{query}");
        }
        for (bearer, admitted) in [("abcdefghijklmnop", true), ("abcdefghijklmnoq", false)] {
            let head = Head {
                bearer: Some(bearer.to_owned()),
                ..asked("host", "")
            };
            assert_eq!(access.admits(&head), admitted, "{bearer}");
        }
        for wrong in ["", "short", "with a blank in it", "abcdefghijklmn&op"] {
            assert!(Access::with(wrong).is_err(), "{wrong}");
        }
        let tokens = [Token::default(), Token::default()];
        let drawn = tokens.each_ref().map(|token| {
            let drawn = token.generated().expect("there is a source of chance");
            assert_eq!(token.generated().expect("it is known"), drawn);
            drawn
        });
        assert_eq!(drawn[0].len(), 32);
        assert_ne!(drawn[0], drawn[1]);
    }

    #[test]
    fn silent_connections_delay_nobody() {
        let service = ServiceName {
            what: "figures",
            option: "--metrics",
            thread: "metrics",
        };
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let token = Token::default();
        let server = ViewServer::start(any, service, &token, |mut stream, head| {
            respond(&mut stream, "200 OK", "text/plain", head.path.as_bytes())
        });
        let Ok(server) = server else {
            panic!("it cannot listen");
        };
        let connect = || TcpStream::connect(server.address).expect("it listens");
        let silent: Vec<TcpStream> = (0..READING_MAX + 8).map(|_| connect()).collect();
        // The silent connections exist before this request is answered.
        let ask = |path: &str| {
            let mut stream = connect();
            let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("it is there");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("it answers");
            answer
        };
        for path in ["/one", "/two"] {
            assert!(ask(path).ends_with(path));
        }
        // The last silent connection still has time left, so nothing waited for it.
        let last = silent.last().expect("there are some");
        last.set_nonblocking(true).expect("it is a socket");
        let nothing = last.peek(&mut [0]).expect_err("it was closed");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
}
