//! Hosts to which a server may redirect a client.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Hosts to which a server may direct a client, by a redirect or otherwise. Without a limit, a
/// server could direct all clients of a run at an uninvolved host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RedirectPolicy {
    /// Only the host of the URL, at any port.
    #[default]
    SameHost,
    /// Any host.
    Any,
    /// No host: a redirect is a failure.
    None,
}

impl RedirectPolicy {
    /// Checks whether a client may be directed to `host`. `own` is the host of its URL, `reached`
    /// the address of its connection. IPv6 addresses have no brackets.
    ///
    /// # Errors
    /// The reason, with the host.
    pub fn check(self, own: &str, reached: Option<IpAddr>, host: &str) -> Result<(), String> {
        let is_own =
            own.eq_ignore_ascii_case(host) || reached.is_some_and(|own| host.parse() == Ok(own));
        match self {
            RedirectPolicy::Any => Ok(()),
            RedirectPolicy::SameHost if is_own => Ok(()),
            RedirectPolicy::SameHost => Err(format!(
                "{host} is not the host of the URL ({own}); `follow: any` allows other hosts"
            )),
            RedirectPolicy::None => Err(format!("`follow: none` forbids the redirect to {host}")),
        }
    }

    /// Returns `true` if a client may send datagrams to an address other than that of its server.
    pub fn allows_other_addresses(self) -> bool {
        self == RedirectPolicy::Any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_host_matches_the_name_or_its_address() {
        let reached = "10.0.0.1".parse().ok();
        for (follow, host, allowed) in [
            (RedirectPolicy::SameHost, "cam.example", true),
            (RedirectPolicy::SameHost, "CAM.example", true),
            (RedirectPolicy::SameHost, "10.0.0.1", true),
            (RedirectPolicy::SameHost, "10.0.0.2", false),
            (RedirectPolicy::SameHost, "cam.example.com", false),
            (RedirectPolicy::SameHost, "xcam.example", false),
            (RedirectPolicy::Any, "10.0.0.2", true),
            (RedirectPolicy::None, "cam.example", false),
        ] {
            let checked = follow.check("cam.example", reached, host);
            assert_eq!(checked.is_ok(), allowed, "{follow:?} {host}");
            if let Err(why) = checked {
                assert!(why.contains(host), "{why}");
            }
        }
        let nowhere = RedirectPolicy::SameHost.check("cam.example", None, "10.0.0.1");
        assert!(nowhere.is_err());
    }
}
