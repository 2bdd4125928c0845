//! Multicast groups: membership, and sending to them (RFC 1112, RFC 3678).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::{options, ports};

/// Interface through which a group is joined or sent to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// Interface with this local address: the one used to reach a peer from that address.
    WithAddress(IpAddr),
    /// Interface with this name.
    Named(String),
}

impl Interface {
    /// Index of the interface, from 1 (netdevice(7)).
    ///
    /// # Errors
    /// `NotFound` if this machine has no such interface; otherwise the operating system's error.
    pub fn index(&self) -> io::Result<u32> {
        let found = match self {
            Interface::Named(name) => index_of_name(name),
            Interface::WithAddress(address) => {
                let address = address.to_canonical();
                match index_where(|own| own == address)? {
                    // All of 127.0.0.0/8 is local, but an interface has only one of these
                    // addresses.
                    None if address.is_loopback() => index_where(|own| own.is_loopback())?,
                    found => found,
                }
            }
        };
        found.ok_or_else(|| {
            let which = match self {
                Interface::Named(name) => format!("no interface is called {name}"),
                Interface::WithAddress(address) => {
                    format!("no interface has the address {address}")
                }
            };
            io::Error::new(io::ErrorKind::NotFound, which)
        })
    }
}

fn index_of_name(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: `name` ends with a zero byte and lives for the duration of the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index > 0).then_some(index)
}

/// Returns the index of the first interface with a matching address.
fn index_where(is_wanted: impl Fn(IpAddr) -> bool) -> io::Result<Option<u32>> {
    let mut all = interface_addresses()?.into_iter();
    let found = all.find(|(_, address)| is_wanted(*address));
    Ok(found.and_then(|(name, _)| index_of_name(&name)))
}

/// Returns the names of this machine's interfaces with their IP addresses, in the order of the
/// operating system. An interface with several addresses occurs several times.
pub fn interface_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` is valid for the write of a pointer.
    options::check(unsafe { libc::getifaddrs(&raw mut first) })?;
    let (mut found, mut next) = (Vec::new(), first);
    while !next.is_null() {
        // SAFETY: the list that getifaddrs returned is intact until it is freed, and each entry is
        // valid.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        if entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: a pointer that is not null points to an address with at least a family.
        let family = libc::c_int::from(unsafe { (*entry.ifa_addr).sa_family });
        let address = match family {
            libc::AF_INET => {
                // SAFETY: an address of this family is a `sockaddr_in`; no alignment is assumed.
                let address: libc::sockaddr_in =
                    unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
                IpAddr::V4(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)))
            }
            libc::AF_INET6 => {
                // SAFETY: an address of this family is a `sockaddr_in6`; no alignment is assumed.
                let address: libc::sockaddr_in6 =
                    unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
                IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr))
            }
            _ => continue,
        };
        if !entry.ifa_name.is_null() {
            // SAFETY: a name in the list ends with a zero byte and lives until the list is freed.
            let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
            found.push((name.to_string_lossy().into_owned(), address));
        }
    }
    // SAFETY: the list came from getifaddrs, is freed once, and is no longer referenced.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// Opens a non-blocking UDP socket with kernel timestamps that receives what is sent to `group` at
/// `port` and arrives on `interface`: from any sender, or only from `sources` if there are any
/// (source-specific membership; RFC 4607). Other sockets may receive the same datagrams. A receive
/// buffer of 0 keeps the system's default.
///
/// The membership ends when the socket is closed.
///
/// # Errors
/// `InvalidInput` if `group` is not a multicast group, or if a source is not of its family;
/// otherwise the operating system's error: ENOBUFS if it grants no more memberships
/// (net.ipv4.igmp_max_memberships) or sources (net.ipv4.igmp_max_msf, net.ipv6.mld_max_msf).
pub fn join(
    group: IpAddr,
    port: u16,
    sources: &[IpAddr],
    interface: u32,
    receive_buffer: usize,
) -> io::Result<std::net::UdpSocket> {
    if !group.is_multicast() || sources.iter().any(|s| s.is_ipv4() != group.is_ipv4()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let address = match group {
        IpAddr::V4(group) => SocketAddr::new(group.into(), port),
        // Link-local groups need the interface's index.
        IpAddr::V6(group) => SocketAddrV6::new(group, port, 0, interface).into(),
    };
    let socket = ports::new_socket(address)?;
    ports::prepare(&socket, receive_buffer)?;
    socket.set_reuse_address(true)?;
    // Without this, groups joined by other sockets of this machine would be received too, from
    // other interfaces and other sources.
    match group {
        IpAddr::V4(_) => socket.set_multicast_all_v4(false)?,
        IpAddr::V6(_) => socket.set_multicast_all_v6(false)?,
    }
    socket.bind(&address.into())?;
    match (group, sources) {
        (IpAddr::V4(group), []) => {
            let interface = socket2::InterfaceIndexOrAddress::Index(interface);
            socket.join_multicast_v4_n(&group, &interface)?;
        }
        (IpAddr::V6(group), []) => socket.join_multicast_v6(&group, interface)?,
        (_, sources) => {
            for &source in sources {
                join_source(&socket, group, source, interface)?;
            }
        }
    }
    Ok(socket.into())
}

/// Joins a group with `MCAST_JOIN_SOURCE_GROUP` (RFC 3678, 5.1.2), which serves both versions of
/// IP.
fn join_source(
    socket: &impl AsRawFd,
    group: IpAddr,
    source: IpAddr,
    interface: u32,
) -> io::Result<()> {
    let request = libc::group_source_req {
        gsr_interface: interface,
        gsr_group: to_sockaddr_storage(group),
        gsr_source: to_sockaddr_storage(source),
    };
    let level = match group {
        IpAddr::V4(_) => libc::IPPROTO_IP,
        IpAddr::V6(_) => libc::IPPROTO_IPV6,
    };
    let fd = socket.as_raw_fd();
    options::set(fd, level, libc::MCAST_JOIN_SOURCE_GROUP, &request)
}

/// Converts an address to the kernel's format for addresses of any family.
fn to_sockaddr_storage(address: IpAddr) -> libc::sockaddr_storage {
    let address = SockAddr::from(SocketAddr::new(address, 0));
    // SAFETY: an all-zero storage is valid: it has no family.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let length =
        usize::try_from(address.len()).map_or(0, |length| length.min(size_of_val(&storage)));
    // SAFETY: `address` is valid for reads of its length, the storage is at least as long, and they
    // do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(
            address.as_ptr().cast::<u8>(),
            (&raw mut storage).cast::<u8>(),
            length,
        );
    }
    storage
}

/// Sets the interface and the hop limit of multicast that this socket sends, for the IP version of
/// `from` (`IP_MULTICAST_IF`, `IP_MULTICAST_TTL`; ip(7)). Default: the interface that the routes
/// select, and one hop. If the socket is not bound to a local address, IPv4 packets have the source
/// address `from`; if that is unspecified, an address of the interface, of which loopback has no
/// suitable one.
///
/// # Errors
/// The operating system's error.
pub fn set_outgoing_interface(
    socket: &impl AsFd,
    from: IpAddr,
    interface: u32,
    ttl: u8,
) -> io::Result<()> {
    let reference = SockRef::from(socket);
    let IpAddr::V4(from) = from else {
        reference.set_multicast_if_v6(interface)?;
        return reference.set_multicast_hops_v6(ttl.into());
    };
    let request = libc::ip_mreqn {
        imr_multiaddr: libc::in_addr { s_addr: 0 },
        imr_address: libc::in_addr {
            s_addr: u32::from(from).to_be(),
        },
        imr_ifindex: libc::c_int::try_from(interface).map_err(|_| io::ErrorKind::InvalidInput)?,
    };
    let fd = socket.as_fd().as_raw_fd();
    options::set(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)?;
    reference.set_multicast_ttl_v4(ttl.into())
}

/// Returns the unspecified address of the same IP version.
pub(crate) fn unspecified(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Returns the local source address of datagrams to `to` through `interface`, or through the
/// interface that the routes select. On the loopback interface this is 127.0.0.1 for IPv4 groups,
/// for which the kernel has no address there. A link-local address, which needs an interface too
/// (RFC 4007, 6), is returned as unspecified: the kernel then selects it. Sends nothing.
///
/// # Errors
/// `NotFound` if this machine has no such interface; `NetworkUnreachable` if there is no route;
/// `AddrNotAvailable` if the interface has no address of that IP version.
pub fn source_address_to(to: SocketAddr, interface: Option<&Interface>) -> io::Result<IpAddr> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    let index = interface.map(Interface::index).transpose()?;
    if let (Some(index), true) = (index, to.ip().is_multicast()) {
        set_outgoing_interface(&socket, unspecified(to.ip()), index, 1)?;
    }
    // Connecting a UDP socket only looks up the route.
    socket.connect(&to.into())?;
    let loopback = Interface::WithAddress(Ipv4Addr::LOCALHOST.into());
    if index.is_some() && index == loopback.index().ok() {
        // The kernel may select the address of another interface here.
        return Ok(match to {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let local = socket.local_addr()?.as_socket().map(|local| local.ip());
    match (local, index) {
        // A route to the loopback interface, the only one that may have no source address of its
        // own.
        (Some(IpAddr::V4(local)), None) if local.is_unspecified() => Ok(Ipv4Addr::LOCALHOST.into()),
        (Some(local), _) if local.is_unspecified() => Err(io::ErrorKind::AddrNotAvailable.into()),
        (Some(IpAddr::V6(local)), _) if local.is_unicast_link_local() => {
            Ok(Ipv6Addr::UNSPECIFIED.into())
        }
        (Some(local), _) => Ok(local),
        (None, _) => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_found_by_name_and_by_address() {
        let lo = Interface::Named("lo".to_owned())
            .index()
            .expect("it is there");
        let with =
            |address: &str| Interface::WithAddress(address.parse().expect("an address")).index();
        assert_eq!(with("127.0.0.1").expect("it has it"), lo);
        assert_eq!(with("127.9.8.7").expect("as good as"), lo);
        assert_eq!(
            with("192.0.2.1").expect_err("for documents").kind(),
            io::ErrorKind::NotFound
        );
        let all = interface_addresses().expect("they can be listed");
        let loopback = ("lo".to_owned(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert!(all.contains(&loopback), "{all:?}");
        let none = Interface::Named("none-such\0".to_owned()).index();
        assert_eq!(none.expect_err("no name").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn join_rejects_unicast_and_mixed_families() {
        let join = |group: &str, source: &str| {
            let sources = [source.parse().expect("an address")];
            join(group.parse().expect("an address"), 5000, &sources, 1, 0)
        };
        for (group, source) in [("10.0.0.1", "10.0.0.2"), ("239.1.1.1", "::1")] {
            let error = join(group, source).expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
