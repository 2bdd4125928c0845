//! Configuration of a TURN server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum length of a user name, in bytes (RFC 8489, 14.3).
const USER_NAME_MAX: usize = 508;

/// A TURN server that relays all media.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnConfig {
    /// Address of the server: `turn:HOST:PORT?transport=udp` (default),
    /// `turn:HOST:PORT?transport=tcp`, or `turns:HOST:PORT` (TLS over TCP). The default port is
    /// 3478, or 5349 with TLS.
    pub url: String,
    /// User name.
    pub user: String,
    /// Password. It is a secret and is masked in everything that a run writes.
    pub password: String,
}

impl TurnConfig {
    /// Returns the parsed URL if the settings are valid.
    ///
    /// # Errors
    /// User name or password is empty, the user name is too long, or the URL is invalid.
    pub fn check(&self) -> Result<TurnUrl, String> {
        if self.user.is_empty() || self.password.is_empty() {
            return Err("`turn` needs a `user` and a `password`".to_owned());
        }
        if self.user.len() > USER_NAME_MAX {
            return Err(format!(
                "`turn.user` must have at most {USER_NAME_MAX} bytes"
            ));
        }
        TurnUrl::parse(&self.url).ok_or_else(|| {
            "`turn.url` must be like `turn:host:3478?transport=udp`, with `transport=tcp`, or \
             `turns:host:5349`"
                .to_owned()
        })
    }
}

/// Transport between this side and a TURN server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnTransport {
    Udp,
    Tcp,
    /// TLS over TCP.
    Tls,
}

/// Address of a TURN server (RFC 7065).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnUrl {
    /// Name or IP address. An IPv6 address is in brackets.
    pub host: String,
    pub port: u16,
    pub transport: TurnTransport,
}

impl TurnUrl {
    /// Parses a URL. Returns `None` if it is malformed (RFC 7065, 3.1) or requests DTLS.
    pub fn parse(text: &str) -> Option<TurnUrl> {
        let (scheme, rest) = text.split_once(':')?;
        let secure = match &*scheme.to_ascii_lowercase() {
            "turn" => false,
            "turns" => true,
            _ => return None,
        };
        let (at, transport) = match rest.split_once("?transport=") {
            Some((at, transport)) => (at, Some(transport)),
            None => (rest, None),
        };
        let transport = match (secure, transport) {
            (false, None | Some("udp")) => TurnTransport::Udp,
            (false, Some("tcp")) => TurnTransport::Tcp,
            (true, None | Some("tcp")) => TurnTransport::Tls,
            _ => return None,
        };
        // Colons of an IPv6 address are in brackets.
        let (host, port) = match at.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (at, None),
        };
        let port = match port {
            None if secure => 5349,
            None => 3478,
            Some(port) => port.parse().ok().filter(|port| *port > 0)?,
        };
        let bare = match host.strip_prefix('[') {
            Some(address) => {
                let address = address.strip_suffix(']')?;
                address.parse::<std::net::Ipv6Addr>().ok()?;
                ""
            }
            None => host,
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        (!host.is_empty() && host.len() <= 255 && bare.bytes().all(plain)).then(|| TurnUrl {
            host: host.to_owned(),
            port,
            transport,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_urls_are_parsed() {
        for (text, host, port, transport) in [
            ("turn:h", "h", 3478, TurnTransport::Udp),
            ("turn:h:1?transport=udp", "h", 1, TurnTransport::Udp),
            ("TURN:a.b:9?transport=tcp", "a.b", 9, TurnTransport::Tcp),
            ("turns:a-b", "a-b", 5349, TurnTransport::Tls),
            ("turn:[::1]", "[::1]", 3478, TurnTransport::Udp),
            ("turn:[::1]:7", "[::1]", 7, TurnTransport::Udp),
        ] {
            let expected = TurnUrl {
                host: host.to_owned(),
                port,
                transport,
            };
            assert_eq!(TurnUrl::parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn invalid_turn_urls_are_refused() {
        for text in [
            "",
            "turn",
            "turn:",
            "stun:h",
            "turn://h",
            "turn:h:0",
            "turn:h:70000",
            "turn:h:",
            "turn:h?transport=sctp",
            "turns:h?transport=udp",
            "turn:u@h",
            "turn:[::1",
            "turn:[x]:1",
            "turn:::1",
            "turn:h h",
        ] {
            assert_eq!(TurnUrl::parse(text), None, "{text}");
        }
    }
}
