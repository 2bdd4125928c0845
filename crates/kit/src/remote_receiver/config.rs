//! Keys of a scenario.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Secret;

/// Destination of a population's media.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MediaConfig {
    /// Address of this machine that media is sent to. Default: the address from which the server is
    /// reached.
    pub address: Option<IpAddr>,
    /// Ports that receive media, in consecutive pairs, such as `40000..` or `40000..41999`. The
    /// first must be even. Default: ports that no other run on this machine uses.
    pub ports: Option<ReceiverPorts>,
    /// Address and port of `streamgauge receive` on another machine, which receives the media,
    /// counts it and reports back. Excludes `address`: media goes to the address at which the
    /// receiver is reached. Default: none.
    #[schemars(with = "Option<String>")]
    pub receiver: Option<SocketAddr>,
    /// Secret that the receiver was started with or has printed. Best set by the environment
    /// (`STREAMGAUGE_CLIENTS__VIEWERS__MEDIA__SECRET`). It appears in no report. A run with a
    /// `receiver` requires it.
    pub secret: Option<Secret>,
    /// Address at which the receiver accepts the clients of this population, announced by it when
    /// the run begins. Set by the engine.
    #[serde(skip)]
    pub clients_at: Option<SocketAddr>,
}

impl MediaConfig {
    /// Checks that the values are consistent. The error says why not.
    pub fn check(&self) -> Result<(), String> {
        if let Some(address) = self.address
            && (address.is_unspecified() || address.is_multicast())
        {
            return Err(format!(
                "`media.address`: {address} is not the address of a single machine"
            ));
        }
        match (self.receiver, &self.secret) {
            (Some(_), _) if self.address.is_some() => Err(
                "`media`: a `receiver` receives media at its own address; remove `address`"
                    .to_owned(),
            ),
            (None, Some(_)) => Err("`media.secret` requires a `receiver`".to_owned()),
            _ => Ok(()),
        }
    }
}

/// A range of consecutive ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverPorts {
    first: u16,
    /// Last port; `None` if the range is open.
    last: Option<u16>,
}

impl ReceiverPorts {
    /// The first port, which is even.
    pub fn first(&self) -> u16 {
        self.first
    }

    /// All ports; an open range extends to the highest possible pair.
    pub fn range(&self) -> Range<u16> {
        // `last + 1` does not exist for port 65535, but that port is odd and so never a media port.
        self.first..self.last.unwrap_or(u16::MAX - 1).saturating_add(1)
    }

    /// Returns `true` if the range has a last port.
    pub fn has_last(&self) -> bool {
        self.last.is_some()
    }
}

/// Lowest valid port. Ports below are reserved for the system.
const PORT_MIN: u16 = 1024;

impl FromStr for ReceiverPorts {
    type Err = String;

    fn from_str(text: &str) -> Result<ReceiverPorts, String> {
        let wrong = || {
            format!(
                "`{}` is not a range of ports; write `40000..` or `40000..41999`",
                text.escape_debug().take(40).collect::<String>()
            )
        };
        let (first, last) = text.split_once("..").ok_or_else(wrong)?;
        let first: u16 = first.trim().parse().map_err(|_| wrong())?;
        let last: Option<u16> = match last.trim() {
            "" => None,
            last => Some(last.parse().map_err(|_| wrong())?),
        };
        if first < PORT_MIN || !first.is_multiple_of(2) {
            return Err(format!(
                "the first port must be even and at least {PORT_MIN}, because RTP uses it and RTCP the next one; it is {first}"
            ));
        }
        if last.is_some_and(|last| last <= first) {
            return Err(format!(
                "`{text}` contains no pair of ports; the last port must be greater than the first"
            ));
        }
        Ok(ReceiverPorts { first, last })
    }
}

impl fmt::Display for ReceiverPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.first)?;
        self.last.map_or(Ok(()), |last| write!(f, "{last}"))
    }
}

impl Serialize for ReceiverPorts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ReceiverPorts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ReceiverPorts, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for ReceiverPorts {
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
    fn port_ranges_are_parsed_and_displayed() {
        let open: ReceiverPorts = "40000..".parse().expect("good");
        assert_eq!((open.range(), open.has_last()), (40_000..65_535, false));
        let named: ReceiverPorts = "40000..40099".parse().expect("good");
        assert_eq!((named.range(), named.has_last()), (40_000..40_100, true));
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
            assert!(wrong.parse::<ReceiverPorts>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn address_must_be_that_of_a_single_machine() {
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
