//! Address of this machine for other machines.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Addresses reserved for documents (RFC 5737, RFC 3849). They are routed like any other address of
/// the Internet, and nothing is sent to them.
const FAR_AWAY: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
];

/// Returns the address that other machines use for a service that listens at `listening`: if that
/// is any address (`0.0.0.0`, `[::]`), one of an interface.
pub(crate) fn for_others(listening: SocketAddr) -> SocketAddr {
    if !listening.ip().is_unspecified() {
        return listening;
    }
    let routed = FAR_AWAY.into_iter().filter_map(source_towards);
    // A machine whose interfaces cannot be listed still has its routes.
    let own = net::multicast::interface_addresses().unwrap_or_default();
    let own = own.into_iter().map(|(_, address)| address);
    let ip = choose(listening.is_ipv6(), routed.chain(own));
    SocketAddr::new(ip, listening.port())
}

/// Returns the address from which this machine sends to `to`. Nothing is sent.
fn source_towards(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((to, 9)).ok()?;
    socket.local_addr().ok().map(|own| own.ip())
}

/// Chooses the first address that other machines can reach. A service that listens on `[::]`
/// accepts IPv4 as well, but one on `0.0.0.0` has no IPv6. Returns the loopback address if there is
/// none.
fn choose(has_ipv6: bool, own: impl Iterator<Item = IpAddr>) -> IpAddr {
    let mut own = own.filter(|address| {
        let is_of_use = match address {
            IpAddr::V4(address) => !address.is_link_local(),
            // A link-local address needs the name of an interface of the other machine.
            IpAddr::V6(address) => has_ipv6 && !address.is_unicast_link_local(),
        };
        is_of_use && !address.is_loopback() && !address.is_unspecified()
    });
    own.next().unwrap_or(match has_ipv6 {
        true => Ipv6Addr::LOCALHOST.into(),
        false => Ipv4Addr::LOCALHOST.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(has_ipv6: bool, own: &[&str]) -> String {
        let own = own.iter().map(|text| text.parse().expect("an address"));
        choose(has_ipv6, own).to_string()
    }

    #[test]
    fn address_of_an_interface_is_chosen() {
        let own = ["127.0.0.1", "::1", "fe80::1", "169.254.1.1", "10.0.0.5"];
        assert_eq!(chosen(false, &own), "10.0.0.5");
        assert_eq!(chosen(true, &own), "10.0.0.5");
        let both = ["2001:db8::5", "10.0.0.5"];
        assert_eq!(chosen(false, &both), "10.0.0.5");
        assert_eq!(chosen(true, &both), "2001:db8::5");
        assert_eq!(chosen(false, &["127.0.0.1"]), "127.0.0.1");
        assert_eq!(chosen(true, &[]), "::1");
    }

    #[test]
    fn named_addresses_are_kept() {
        for text in ["127.0.0.1:9106", "[::1]:9106", "192.0.2.7:80"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(for_others(address), address);
        }
        let any: SocketAddr = "0.0.0.0:9106".parse().expect("an address");
        let found = for_others(any);
        assert!(
            !found.ip().is_unspecified() && found.port() == 9106,
            "{found}"
        );
    }
}
