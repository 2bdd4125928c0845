//! The connection to NATS.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, ServerAddr};

use crate::error::ClusterError;

/// Interval between checks of the connection. The default of 60 s would notice a lost server too
/// late.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// Time limit of one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest pause between two attempts to connect again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// How NATS is reached.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// `nats://HOST:PORT` or `tls://HOST:PORT`.
    pub url: String,
    pub user: Option<(String, String)>,
    /// File with a certificate, its key and those that sign others (PEM).
    pub credentials: Option<PathBuf>,
    /// Permits a connection to another machine without TLS or without credentials.
    pub insecure: bool,
}

/// Without the password.
impl std::fmt::Debug for Access {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.url)
    }
}

/// State of a connection, which outlives interruptions.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    connected: AtomicBool,
    /// Messages that a subscription dropped because they were not taken in time.
    pub(crate) dropped: AtomicU64,
    /// True after the server has denied a subject to this client.
    denied: AtomicBool,
}

impl ConnectionState {
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Returns `true` if the server has denied a subject to this client.
    pub(crate) fn is_denied(&self) -> bool {
        self.denied.load(Ordering::Relaxed)
    }

    fn note(&self, event: &Event) {
        match event {
            Event::Connected => self.connected.store(true, Ordering::Relaxed),
            Event::Disconnected | Event::Closed => self.connected.store(false, Ordering::Relaxed),
            Event::SlowConsumer(_) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            Event::ServerError(error) => {
                let error = error.to_string().to_lowercase();
                let denied = error.contains("permissions violation");
                self.denied.fetch_or(denied, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

impl Access {
    /// Access to the server at `url`, which may contain `USER:PASSWORD@`.
    ///
    /// # Errors
    /// The URL is none of NATS.
    pub fn new(url: &str) -> Result<Access, ClusterError> {
        let wrong = || ClusterError::Url {
            url: match url.contains("://") {
                true => scenario::mask_text(url),
                false => url.rsplit('@').next().unwrap_or_default().to_owned(),
            },
        };
        let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
        // Without a scheme nobody would recognise the password in a command line.
        let is_open = rest.contains('@') && !url.contains("://");
        if !matches!(scheme, "nats" | "tls") || is_open {
            return Err(wrong());
        }
        let (user, host) = match rest.rsplit_once('@') {
            None => (None, rest),
            Some((user, host)) => {
                let (user, password) = user.split_once(':').ok_or_else(wrong)?;
                let decode = kit::url::percent_decode;
                (Some((decode(user), decode(password))), host)
            }
        };
        let access = Access {
            url: format!("{scheme}://{host}"),
            user,
            ..Access::default()
        };
        access.address().map(|_| access)
    }

    fn address(&self) -> Result<ServerAddr, ClusterError> {
        let wrong = || ClusterError::Url {
            url: self.url.clone(),
        };
        let address = self.url.parse::<ServerAddr>();
        let address = address.ok().filter(|address| !address.host().is_empty());
        address.ok_or_else(wrong)
    }

    /// Checks that a connection off this machine is protected.
    fn check(&self) -> Result<ServerAddr, ClusterError> {
        let address = self.address()?;
        let host = address.host().trim_matches(['[', ']']);
        let here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        let lacks = match (address.tls_required(), self.is_known()) {
            (false, _) => "readable for everybody on the way",
            (true, false) => "open to everybody",
            (true, true) => return Ok(address),
        };
        if here || self.insecure {
            return Ok(address);
        }
        Err(ClusterError::Insecure {
            url: self.url.clone(),
            lacks,
        })
    }

    /// Returns `true` if the server can know who connects.
    fn is_known(&self) -> bool {
        self.user.is_some() || self.credentials.is_some()
    }

    /// Connects under a name, which is shown by the server and marks the answers to this client.
    pub(crate) async fn connect(
        &self,
        name: &str,
    ) -> Result<(Client, Arc<ConnectionState>), ClusterError> {
        let address = self.check()?;
        let state = Arc::new(ConnectionState::default());
        let noted = state.clone();
        let mut options = ConnectOptions::new()
            .name(name)
            // One client must not read the answers to another.
            .custom_inbox_prefix(format!("_INBOX_{name}"))
            .ping_interval(PING_INTERVAL)
            .connection_timeout(CONNECT_TIMEOUT)
            .max_reconnects(None)
            .reconnect_delay_callback(|attempts| {
                let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
                RECONNECT_PAUSE.min(Duration::from_millis(50).saturating_mul(attempts))
            })
            // The user names the server; what it says of others is not followed.
            .ignore_discovered_servers()
            .event_callback(move |event| {
                noted.note(&event);
                async {}
            });
        if let Some((user, password)) = &self.user {
            options = options.user_and_password(user.clone(), password.clone());
        }
        if let Some(path) = &self.credentials {
            options = options.tls_client_config(crate::credentials::client_config(path)?);
        }
        let client = options.connect(address).await.map_err(|error| {
            let (why, help) = in_words(&error.to_string());
            ClusterError::Connect {
                url: self.url.clone(),
                why,
                help,
            }
        })?;
        state.connected.store(true, Ordering::Relaxed);
        Ok((client, state))
    }
}

/// Reason and help of a failed attempt to connect.
fn in_words(error: &str) -> (String, &'static str) {
    let lower = error.to_lowercase();
    let help = if lower.contains("authorization") || lower.contains("authentication") {
        "the server refused the user and password, or the certificate: check `--creds` or the URL"
    } else if lower.contains("refused") {
        "no process listens there: start nats-server with JetStream (`nats-server -js`), or check the address"
    } else if lower.contains("tls") || lower.contains("certificate") {
        "TLS failed: check the certificates of both sides"
    } else {
        "check the address, and that nats-server runs there with JetStream"
    };
    (error.to_owned(), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_read_and_its_password_is_not_shown() {
        let access = Access::new("nats://me:p%40ss@127.0.0.1:4222").expect("a URL");
        assert_eq!(access.url, "nats://127.0.0.1:4222");
        assert_eq!(access.user, Some(("me".to_owned(), "p@ss".to_owned())));
        assert_eq!(format!("{access:?}"), "nats://127.0.0.1:4222");
        assert!(Access::new("127.0.0.1:4222").is_ok());
        for url in [
            "http://a",
            "nats://a@b",
            "nats://",
            "nats://a:x",
            "me:hidden@a",
        ] {
            let error = Access::new(url).expect_err(url).to_string();
            assert!(error.contains("is not a NATS address"), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn connection_to_another_machine_needs_tls_and_credentials() {
        let allowed = |url: &str, insecure| {
            let access = Access::new(url).expect("a URL");
            let access = Access { insecure, ..access };
            access.check().is_ok()
        };
        assert!(allowed("nats://127.0.0.1:4222", false));
        assert!(allowed("nats://[::1]:4222", false));
        assert!(allowed("nats://localhost:4222", false));
        assert!(!allowed("nats://192.0.2.1:4222", false));
        assert!(!allowed("nats://a:b@192.0.2.1:4222", false));
        assert!(!allowed("tls://192.0.2.1:4222", false));
        assert!(allowed("tls://a:b@192.0.2.1:4222", false));
        assert!(allowed("nats://192.0.2.1:4222", true));
    }
}
