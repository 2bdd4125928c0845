//! Candidates of the other side: which ones are checked, and why others are not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::sdp::{Candidate, CandidateAddress};

/// Maximum number of remote candidates that are checked.
pub(super) const REMOTE_CANDIDATES_MAX: usize = 32;

/// Maximum number of them at one IP address. Without it, a server could make the clients of a run
/// send checks to many ports of a third party. Servers have one or two.
const PER_ADDRESS_MAX: usize = 8;

/// Addresses of cloud metadata services, which give secrets to any process of a machine.
const METADATA: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Candidates of the other side.
#[derive(Debug, Default)]
pub(super) struct RemoteCandidates {
    /// Addresses that are checked.
    used: Vec<SocketAddr>,
    names: IgnoredCandidates,
    tcp: IgnoredCandidates,
    addresses: IgnoredCandidates,
    others: u32,
}

/// Candidates that are not checked for one reason.
#[derive(Debug, Default)]
struct IgnoredCandidates {
    count: u32,
    /// Text of the first one.
    first: Option<Box<str>>,
}

impl IgnoredCandidates {
    fn add(&mut self, what: impl FnOnce() -> String) {
        self.count = self.count.saturating_add(1);
        self.first.get_or_insert_with(|| what().into());
    }

    fn reason(&self, what: &str) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(format!("{} {what} (`{first}`)", self.count))
    }
}

impl RemoteCandidates {
    /// Adds a candidate. Returns its address, or `None` if it is not to be checked. `locals` are
    /// this side's addresses.
    pub(super) fn add(
        &mut self,
        candidate: &Candidate,
        locals: &[SocketAddr],
    ) -> Option<SocketAddr> {
        if candidate.transport != "udp" {
            self.tcp
                .add(|| format!("{} {}", candidate.transport, address_text(candidate)));
            return None;
        }
        let ip = match &candidate.address {
            CandidateAddress::Ip(ip) => ip.to_canonical(),
            // `localhost` needs no lookup (RFC 6761, 6.3).
            CandidateAddress::Name(name) if name.eq_ignore_ascii_case("localhost") => {
                match locals.first() {
                    Some(SocketAddr::V6(_)) => Ipv6Addr::LOCALHOST.into(),
                    _ => Ipv4Addr::LOCALHOST.into(),
                }
            }
            CandidateAddress::Name(_) => {
                self.names.add(|| address_text(candidate));
                return None;
            }
        };
        if !may_be_checked(ip, locals) {
            self.addresses.add(|| address_text(candidate));
            return None;
        }
        let address = SocketAddr::new(ip, candidate.port);
        let at_address = self.used.iter().filter(|used| used.ip() == ip).count();
        let is_bounded = self.used.len() < REMOTE_CANDIDATES_MAX && at_address < PER_ADDRESS_MAX;
        let known = self.used.contains(&address);
        if candidate.component != 1 || candidate.port == 0 || !(is_bounded || known) {
            self.others = self.others.saturating_add(1);
            return None;
        }
        if !known {
            self.used.push(address);
        }
        Some(address)
    }

    /// Reason why no candidate is checked; `None` if one is.
    pub(super) fn no_remote_reason(&self) -> Option<String> {
        if !self.used.is_empty() {
            return None;
        }
        let is_local = |name: &str| name.contains(".local ");
        let names = match self.names.first.as_deref().is_some_and(is_local) {
            true => "with a `.local` name (mDNS), which this machine cannot resolve",
            false => "with a host name, which is not resolved",
        };
        let others = format!("{} without a media port", self.others);
        let reasons = [
            self.tcp.reason("over TCP, which is not supported"),
            self.names.reason(names),
            self.addresses.reason("at addresses that are never checked"),
            Some(others).filter(|_| self.others > 0),
        ];
        let reasons: Vec<_> = reasons.into_iter().flatten().collect();
        Some(match reasons.is_empty() {
            true => "the server gave no candidates".to_owned(),
            false => format!(
                "the server gave no usable candidate: {}",
                reasons.join(", ")
            ),
        })
    }
}

fn address_text(candidate: &Candidate) -> String {
    let port = candidate.port;
    match &candidate.address {
        CandidateAddress::Ip(IpAddr::V6(ip)) => format!("[{ip}] port {port}"),
        CandidateAddress::Ip(ip) => format!("{ip} port {port}"),
        CandidateAddress::Name(name) => format!("{} port {port}", name.escape_debug()),
    }
}

/// Returns true if checks may be sent to the address. The server chooses it, so it must not be a
/// multicast group, or a service of this machine or its host. Loopback is allowed if this side's
/// address is loopback too.
fn may_be_checked(ip: IpAddr, locals: &[SocketAddr]) -> bool {
    let is_special = match ip {
        // 0.0.0.0/8 is this network, 240.0.0.0/4 is reserved, with the broadcast address.
        IpAddr::V4(ip) => ip.octets()[0] == 0 || ip.octets()[0] >= 240,
        IpAddr::V6(ip) => ip.is_unspecified(),
    };
    let here = locals.is_empty() || locals.iter().any(|local| local.ip().is_loopback());
    let is_foreign_loopback = ip.is_loopback() && !here;
    !is_special && !ip.is_multicast() && !METADATA.contains(&ip) && !is_foreign_loopback
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(text: &str) -> Candidate {
        text.parse().expect("it is one")
    }

    fn udp(address: &str) -> Candidate {
        candidate(&format!("1 1 udp 5 {address} 5000 typ host"))
    }

    #[test]
    fn multicast_and_host_services_are_never_checked() {
        let lan = ["192.0.2.1:4000".parse().expect("an address")];
        for (address, is_checked) in [
            ("192.0.2.9", true),
            ("10.0.0.1", true),
            ("169.254.1.1", true),
            ("2001:db8::1", true),
            ("fe80::1", true),
            ("224.0.0.1", false),
            ("239.1.2.3", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("169.254.169.254", false),
            ("127.0.0.1", false),
            ("127.9.9.9", false),
            ("localhost", false),
            ("::1", false),
            ("::", false),
            ("ff02::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:239.1.2.3", false),
            ("fd00:ec2::254", false),
        ] {
            let found = RemoteCandidates::default().add(&udp(address), &lan);
            assert_eq!(found.is_some(), is_checked, "{address}");
        }
    }

    #[test]
    fn loopback_is_checked_from_loopback() {
        for (local, address, expected) in [
            ("127.0.0.1:4000", "127.0.0.1", "127.0.0.1:5000"),
            ("127.0.0.1:4000", "LocalHost", "127.0.0.1:5000"),
            ("[::1]:4000", "localhost", "[::1]:5000"),
        ] {
            let locals = [local.parse().expect("an address")];
            let checked = RemoteCandidates::default().add(&udp(address), &locals);
            assert_eq!(checked, Some(expected.parse().expect("an address")));
        }
    }

    #[test]
    fn candidates_are_bounded_per_address_and_in_total() {
        let mut remotes = RemoteCandidates::default();
        let mut checked = 0;
        for host in 1..=9 {
            for port in 1..=100 {
                let one = candidate(&format!("1 1 udp 5 192.0.2.{host} {port} typ host"));
                checked += usize::from(remotes.add(&one, &[]).is_some());
            }
            assert_eq!(checked, (host * PER_ADDRESS_MAX).min(REMOTE_CANDIDATES_MAX));
        }
    }

    #[test]
    fn reasons_list_the_unusable_candidates() {
        for (given, expected) in [
            (&[][..], "the server gave no candidates"),
            (
                &["1 1 tcp 5 192.0.2.1 9 typ host tcptype passive"][..],
                "1 over TCP, which is not supported (`tcp 192.0.2.1 port 9`)",
            ),
            (
                &["1 1 udp 5 a-b.local 5000 typ host"][..],
                "1 with a `.local` name (mDNS), which this machine cannot resolve (`a-b.local port",
            ),
            (
                &[
                    "1 1 udp 5 media.example 5000 typ host",
                    "1 1 udp 5 other.example 5000 typ host",
                    "1 1 udp 5 239.0.0.1 5000 typ host",
                    "1 1 udp 5 192.0.2.1 0 typ host",
                ][..],
                "2 with a host name, which is not resolved (`media.example port 5000`), 1 at addresses \
                 that are never checked (`239.0.0.1 port 5000`), 1 without a media port",
            ),
        ] {
            let mut remotes = RemoteCandidates::default();
            for text in given {
                assert_eq!(remotes.add(&candidate(text), &[]), None);
            }
            let why = remotes.no_remote_reason().expect("none is checked");
            assert!(why.contains(expected), "{why}");
        }
        let mut remotes = RemoteCandidates::default();
        remotes.add(&udp("192.0.2.1"), &[]);
        assert_eq!(remotes.no_remote_reason(), None);
    }
}
