//! To which hosts a server may direct a client.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// To which hosts a server may direct a client, by a redirect or otherwise. A server that could
/// name any host could aim the clients of a whole run at somebody who knows nothing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Follow {
    /// To the host of the URL, at any port.
    #[default]
    SameHost,
    /// To any host.
    Any,
    /// Nowhere: a redirect is a failure.
    None,
}

impl Follow {
    /// Whether a client may be sent on to `host`. `own` is the host of its URL, and `reached` the
    /// address at which that was reached. An IPv6 address stands without brackets.
    ///
    /// # Errors
    /// Why not, in words that name the host.
    pub(crate) fn check(
        self,
        own: &str,
        reached: Option<IpAddr>,
        host: &str,
    ) -> Result<(), String> {
        let is_own =
            own.eq_ignore_ascii_case(host) || reached.is_some_and(|own| host.parse() == Ok(own));
        match self {
            Follow::Any => Ok(()),
            Follow::SameHost if is_own => Ok(()),
            Follow::SameHost => Err(format!(
                "{host} is another host than {own}: `follow: any` would go there"
            )),
            Follow::None => Err(format!("to {host}, and `follow: none` goes nowhere")),
        }
    }

    /// Whether a client may send datagrams to that address, other than the one at which its server
    /// was reached.
    pub(crate) fn lets_send_elsewhere(self) -> bool {
        self == Follow::Any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_host_is_the_same_name_or_the_address_behind_it() {
        let reached = "10.0.0.1".parse().ok();
        for (follow, host, allowed) in [
            (Follow::SameHost, "cam.example", true),
            (Follow::SameHost, "CAM.example", true),
            (Follow::SameHost, "10.0.0.1", true),
            (Follow::SameHost, "10.0.0.2", false),
            (Follow::SameHost, "cam.example.com", false),
            (Follow::SameHost, "xcam.example", false),
            (Follow::Any, "10.0.0.2", true),
            (Follow::None, "cam.example", false),
        ] {
            let checked = follow.check("cam.example", reached, host);
            assert_eq!(checked.is_ok(), allowed, "{follow:?} {host}");
            if let Err(why) = checked {
                assert!(why.contains(host), "{why}");
            }
        }
        let nowhere = Follow::SameHost.check("cam.example", None, "10.0.0.1");
        assert!(nowhere.is_err());
    }
}
