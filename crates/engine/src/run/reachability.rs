//! Reachability check: connects to the servers of a scenario before anything is played.

use std::collections::BTreeSet;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use kit::descriptor::Transport;
use scenario::Scenario;

use crate::run::ownership::endpoint;

/// Timeout of one connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Time limit for all connections.
const ALL_WITHIN: Duration = Duration::from_secs(10);

/// Address that clients would connect to, and the result of a connection attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reachability {
    /// Host and port, or the path of a Unix socket.
    pub address: String,
    /// Reason why the connection failed. `None` if it succeeded or the time limit was reached
    /// before it was tried.
    pub error: Option<String>,
}

/// Connects once to every address that a scenario's URLs name and closes the connection. One
/// attempt may take 2 s, all of them 10 s. UDP servers are skipped: only a client of the protocol
/// can interpret an answer.
pub fn check_reachability(scenario: &Scenario) -> Vec<Reachability> {
    let mut addresses = BTreeSet::new();
    for population in &scenario.populations {
        let protocol = population.config.protocol();
        if protocol.transport == Transport::Udp {
            continue;
        }
        let address = |url: &String| match url.split_once("://") {
            Some((scheme, path)) if scheme.eq_ignore_ascii_case("unix") => {
                Some(Address::Path(path.to_owned()))
            }
            _ => {
                let (host, port) = endpoint(url, protocol.default_port_of(url))?;
                Some(Address::Host(host, port))
            }
        };
        addresses.extend(population.urls.iter().filter_map(address));
    }
    let deadline = Instant::now() + ALL_WITHIN;
    addresses
        .into_iter()
        .map(|address| Reachability {
            error: match Instant::now() < deadline {
                true => address.connect().err().map(|error| in_words(&error)),
                false => None,
            },
            address: address.to_string(),
        })
        .collect()
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Address {
    Host(String, u16),
    Path(String),
}

impl Address {
    fn connect(&self) -> std::io::Result<()> {
        let (host, port) = match self {
            Address::Host(host, port) => (host, *port),
            Address::Path(path) => return UnixStream::connect(path).map(|_| ()),
        };
        let mut last = std::io::Error::new(
            std::io::ErrorKind::NotFound,
            "the host's name has no address",
        );
        for address in (host.as_str(), port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Host(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Host(host, port) => write!(f, "{host}:{port}"),
            Address::Path(path) => f.write_str(path),
        }
    }
}

/// Error text in the wording that client failures use.
fn in_words(error: &std::io::Error) -> String {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    match error.kind() {
        ConnectionRefused => "connection refused".to_owned(),
        HostUnreachable | NetworkUnreachable => "no route to the host".to_owned(),
        TimedOut => format!("no connection within {} s", CONNECT_WITHIN.as_secs()),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn each_address_is_tried_once_and_its_result_reported() {
        protocols::install();
        let there = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let gone = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
        let (there_port, gone_port) = (port(&there), port(&gone));
        drop(gone);
        let text = format!(
            "clients: {{viewers: {{urls: ['rtsp://127.0.0.1:{there_port}/a', \
             'rtsp://127.0.0.1:{there_port}/b', 'rtsp://127.0.0.1:{gone_port}/a'], \
             load: {{clients: 2}}}}}}\n"
        );
        let scenario = Scenario::parse("test", &text, &scenario::Overrides::default())
            .unwrap_or_else(|error| panic!("{error:?}"));
        let found = check_reachability(&scenario);
        assert_eq!(found.len(), 2);
        for reached in found {
            match reached.error {
                None => assert!(reached.address.ends_with(&there_port.to_string())),
                Some(error) => {
                    assert!(reached.address.ends_with(&gone_port.to_string()));
                    assert_eq!(error, "connection refused");
                }
            }
        }
    }
}
