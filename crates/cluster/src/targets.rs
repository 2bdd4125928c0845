//! Targets that a runner may send to: its owner decides, not the coordinator.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use engine::{TargetFilter, TargetPolicy};

/// Targets that a runner may send to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets(Vec<Target>);

/// One kind of target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Any address.
    Any,
    /// Addresses whose first bits are those of an address.
    Prefix(IpAddr, u8),
    /// A host name as it stands in URLs, at whatever address.
    Name(String),
}

impl Default for Targets {
    /// Only this machine: 127.0.0.0/8 and ::1.
    fn default() -> Targets {
        Targets(vec![
            Target::Prefix(Ipv4Addr::LOCALHOST.into(), 8),
            Target::Prefix(Ipv6Addr::LOCALHOST.into(), 128),
        ])
    }
}

impl Targets {
    /// These targets, or the default if there are none.
    pub fn new(targets: Vec<Target>) -> Targets {
        match targets.is_empty() {
            true => Targets::default(),
            false => Targets(targets),
        }
    }

    /// Returns `true` if clients may send to a host that has these addresses. All of them must be
    /// allowed, because a client may use any.
    pub fn allow(&self, host: &str, addresses: &[IpAddr]) -> bool {
        let mut each = addresses.iter();
        let all = each.all(|address| self.permits_address(*address));
        self.permits_name(host) || (!addresses.is_empty() && all)
    }

    /// Returns `true` if clients may send anywhere.
    pub(crate) fn are_any(&self) -> bool {
        self.0.contains(&Target::Any)
    }

    /// Returns the filter of the engine, which permits the same.
    pub(crate) fn filter(&self) -> TargetFilter {
        match self.are_any() {
            true => TargetFilter::default(),
            false => TargetFilter::new(self.clone()),
        }
    }
}

impl TargetPolicy for Targets {
    fn permits_name(&self, host: &str) -> bool {
        self.0.iter().any(|target| match target {
            Target::Any => true,
            Target::Name(name) => name.eq_ignore_ascii_case(host),
            Target::Prefix(..) => false,
        })
    }

    fn permits_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|target| match target {
            Target::Any => true,
            Target::Prefix(network, bits) => is_within(address, *network, *bits),
            Target::Name(_) => false,
        })
    }
}

impl fmt::Display for Targets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(Target::to_string).collect();
        out.write_str(&all.join(", "))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Any => out.write_str("any"),
            Target::Prefix(address, bits) => write!(out, "{address}/{bits}"),
            Target::Name(name) => out.write_str(name),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let wrong = |why: &str| {
            format!("{why}: write an address, a prefix such as 10.0.0.0/8, a host name, or `any`")
        };
        if text == "any" {
            return Ok(Target::Any);
        }
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address
                .parse()
                .map_err(|_| wrong("no address before `/`"))?;
            let bits = bits.parse().ok().filter(|bits| *bits <= width(address));
            let bits = bits.ok_or_else(|| wrong("no length of a prefix after `/`"))?;
            return Ok(Target::Prefix(address, bits));
        }
        if let Ok(address) = text.trim_matches(['[', ']']).parse() {
            return Ok(Target::Prefix(address, width(address)));
        }
        let of_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
        match !text.is_empty() && text.chars().all(of_name) {
            true => Ok(Target::Name(text.to_owned())),
            false => Err(wrong("this is no target")),
        }
    }
}

/// Number of bits of an address.
fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let same = |one: u128, two: u128, width: u8| {
        let rest = u32::from(width - bits.min(width));
        one.checked_shr(rest).unwrap_or(0) == two.checked_shr(rest).unwrap_or(0)
    };
    match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(two)) => same(one.to_bits().into(), two.to_bits().into(), 32),
        (IpAddr::V6(one), IpAddr::V6(two)) => same(one.to_bits(), two.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(texts: &[&str]) -> Targets {
        Targets::new(texts.iter().map(|text| text.parse().expect(text)).collect())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn only_this_machine_is_allowed_by_default() {
        let own = targets(&[]);
        assert_eq!(own.to_string(), "127.0.0.1/8, ::1/128");
        assert!(own.allow("a", &[ip("127.3.2.1"), ip("::1")]));
        assert!(own.permits_address(ip("::ffff:127.0.0.1")));
        assert!(!own.allow("a", &[ip("127.0.0.1"), ip("192.0.2.1")]));
        assert!(!own.allow("localhost", &[]));
        assert!(!own.permits_address(ip("128.0.0.1")));
    }

    #[test]
    fn prefixes_names_and_any_are_read() {
        let own = targets(&["10.0.0.0/8", "2001:db8::/32", "Media.example", "192.0.2.7"]);
        for address in ["10.255.0.1", "2001:db8:1::", "192.0.2.7"] {
            assert!(own.permits_address(ip(address)), "{address}");
        }
        for address in ["11.0.0.1", "2001:db9::", "192.0.2.8", "127.0.0.1"] {
            assert!(!own.permits_address(ip(address)), "{address}");
        }
        assert!(own.allow("media.EXAMPLE", &[ip("198.51.100.1")]));
        assert!(targets(&["any"]).allow("whatever", &[]));
        assert!(targets(&["0.0.0.0/0"]).permits_address(ip("198.51.100.1")));
        for text in ["", "10.0.0.0/33", "10.0.0/8", "a b", "x/8", "::/129"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
