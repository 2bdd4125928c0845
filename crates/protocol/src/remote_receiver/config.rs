//! The keys of a scenario.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Secret;

/// Where the media of a population goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MediaConfig {
    /// The address of this machine that media is to be sent to. Default: the one from which the
    /// server is reached.
    pub address: Option<IpAddr>,
    /// The ports at which media is received, one pair after the other, such as `40000..` or
    /// `40000..41999`; the first is even. Default: ports that no other run on this machine uses.
    pub ports: Option<Ports>,
    /// Where `streamgauge receive` listens on another machine, which then takes the media, counts
    /// it and reports back: an address and a port. Instead of `address`: media goes to the address
    /// at which the receiver is reached. Default: none.
    #[schemars(with = "Option<String>")]
    pub receiver: Option<SocketAddr>,
    /// The secret that the receiver was started with or has printed. Best set by the environment
    /// (`STREAMGAUGE_CLIENTS__VIEWERS__MEDIA__SECRET`). It is in no report. Without it a run with a
    /// `receiver` does not begin.
    pub secret: Option<Secret>,
    /// Where the receiver hears the clients of this population, as it said when the run began. Set
    /// by whoever runs them.
    #[serde(skip)]
    pub clients_at: Option<SocketAddr>,
}

impl MediaConfig {
    /// Whether these values make sense together; if not, why.
    pub fn check(&self) -> Result<(), String> {
        if let Some(address) = self.address
            && (address.is_unspecified() || address.is_multicast())
        {
            return Err(format!(
                "`media.address`: {address} is no address that one machine has"
            ));
        }
        match (self.receiver, &self.secret) {
            (Some(_), _) if self.address.is_some() => Err(
                "`media`: a `receiver` takes media at its own address; take `address` out"
                    .to_owned(),
            ),
            (None, Some(_)) => Err("`media.secret` is for a `receiver`".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Ports one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    /// Where an end is named.
    last: Option<u16>,
}

impl Ports {
    /// The first of them: even.
    pub fn first(&self) -> u16 {
        self.first
    }

    /// All of them, as many as there may be where no end is named.
    pub fn range(&self) -> Range<u16> {
        // One more than the last cannot be written for the very last port, which is odd and so
        // never a media port.
        self.first..self.last.unwrap_or(u16::MAX - 1).saturating_add(1)
    }

    /// Whether an end is named.
    pub fn ends(&self) -> bool {
        self.last.is_some()
    }
}

/// The lowest port that may be named: those below are the system's.
const LOWEST: u16 = 1024;

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Ports, String> {
        let wrong = || {
            format!(
                "`{}` names no ports; write `40000..` or `40000..41999`",
                text.escape_debug().take(40).collect::<String>()
            )
        };
        let (first, last) = text.split_once("..").ok_or_else(wrong)?;
        let first: u16 = first.trim().parse().map_err(|_| wrong())?;
        let last: Option<u16> = match last.trim() {
            "" => None,
            last => Some(last.parse().map_err(|_| wrong())?),
        };
        if first < LOWEST || !first.is_multiple_of(2) {
            return Err(format!(
                "ports begin with an even one from {LOWEST}, because RTP takes that and RTCP the next; not with {first}"
            ));
        }
        if last.is_some_and(|last| last <= first) {
            return Err(format!(
                "`{text}` has no pair of ports; write the last one behind the first"
            ));
        }
        Ok(Ports { first, last })
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.first)?;
        match self.last {
            Some(last) => write!(f, "{last}"),
            None => Ok(()),
        }
    }
}

impl Serialize for Ports {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ports, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Ports {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Ports".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "string", "pattern": r"^\d{4,5}\.\.(\d{4,5})?$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_and_written() {
        let open: Ports = "40000..".parse().expect("good");
        assert_eq!((open.range(), open.ends()), (40_000..65_535, false));
        let named: Ports = "40000..40099".parse().expect("good");
        assert_eq!((named.range(), named.ends()), (40_000..40_100, true));
        assert_eq!(named.first(), 40_000);
        for ports in [open, named] {
            assert_eq!(ports.to_string().parse(), Ok(ports));
        }
        for wrong in [
            "",
            "40000",
            "40001..",
            "80..",
            "40000..40000",
            "40000..70000",
            "a..b",
            "-1..2",
        ] {
            assert!(wrong.parse::<Ports>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_address_must_be_one_machines() {
        let with = |address: &str| MediaConfig {
            address: Some(address.parse().expect("an address")),
            ..MediaConfig::default()
        };
        assert!(with("127.0.0.2").check().is_ok());
        for wrong in ["0.0.0.0", "::", "239.1.1.1", "ff02::1"] {
            assert!(with(wrong).check().is_err(), "{wrong}");
        }
    }
}
