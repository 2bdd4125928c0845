//! Multicast groups: membership, and sending to them (RFC 1112, RFC 3678).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::options;

/// Through which interface a group is joined, or sent to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// The one that has this address of this machine: the one by which a peer is reached that is
    /// spoken to from it.
    With(IpAddr),
    /// The one of this name.
    Named(String),
}

impl Interface {
    /// The kernel's number of it, from 1 (netdevice(7)).
    ///
    /// # Errors
    /// `NotFound` where this machine has no such interface; what the operating system says.
    pub fn index(&self) -> io::Result<u32> {
        let found = match self {
            Interface::Named(name) => index_of_name(name),
            Interface::With(address) => {
                let address = address.to_canonical();
                let with = |own: IpAddr| own == address;
                let found = name_with(with)?.and_then(|name| index_of_name(&name));
                // All of 127.0.0.0/8 is this machine's, and just one address of it an interface's.
                match found {
                    None if address.is_loopback() => {
                        name_with(|own| own.is_loopback())?.and_then(|name| index_of_name(&name))
                    }
                    found => found,
                }
            }
        };
        found.ok_or_else(|| {
            let which = match self {
                Interface::Named(name) => format!("no interface is called {name}"),
                Interface::With(address) => format!("no interface has the address {address}"),
            };
            io::Error::new(io::ErrorKind::NotFound, which)
        })
    }
}

fn index_of_name(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: `name` ends with a zero and lives for the duration of the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index > 0).then_some(index)
}

/// The name of the first interface that has an address like that.
fn name_with(is_wanted: impl Fn(IpAddr) -> bool) -> io::Result<Option<String>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` is valid for the write of a pointer.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut found, mut next) = (None, first);
    while !next.is_null() {
        // SAFETY: the list that getifaddrs gave is whole until it is freed, and each entry is
        // valid.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        if entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: not null, so it points to an address that has a family at least.
        let family = libc::c_int::from(unsafe { (*entry.ifa_addr).sa_family });
        let address = match family {
            libc::AF_INET => {
                // SAFETY: of that family it is a `sockaddr_in`; nothing is assumed of its
                // alignment.
                let address: libc::sockaddr_in =
                    unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
                IpAddr::V4(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)))
            }
            libc::AF_INET6 => {
                // SAFETY: of that family it is a `sockaddr_in6`; nothing is assumed of its
                // alignment.
                let address: libc::sockaddr_in6 =
                    unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
                IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr))
            }
            _ => continue,
        };
        if is_wanted(address) && !entry.ifa_name.is_null() {
            // SAFETY: a name in the list ends with a zero, and lives until the list is freed.
            let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
            found = Some(name.to_string_lossy().into_owned());
            break;
        }
    }
    // SAFETY: it is what getifaddrs gave, is freed once, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// A non-blocking UDP socket that receives what is sent to `group` at `port` and comes in by the
/// interface with that number, with the kernel's timestamps switched on: from anybody, or from
/// `sources` alone where there are any (a source-specific membership; RFC 4607). Others may receive
/// the same beside it. A receive buffer of 0 leaves the system's default.
///
/// The membership ends when the socket is closed.
///
/// # Errors
/// `InvalidInput` where `group` is no multicast group, or a source is not of its family; what the
/// operating system says: ENOBUFS where it grants no more memberships
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
        // Groups of a link alone need the link's number.
        IpAddr::V6(group) => SocketAddrV6::new(group, port, 0, interface).into(),
    };
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    socket.set_nonblocking(true)?;
    if receive_buffer > 0 {
        socket.set_recv_buffer_size(receive_buffer)?;
    }
    options::ask_arrival_time_and_drops(&socket)?;
    socket.set_reuse_address(true)?;
    // Else what others of this machine have joined would come too, by other interfaces and from
    // other sources.
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

/// `MCAST_JOIN_SOURCE_GROUP` (RFC 3678, 5.1.2), which serves both versions of IP.
fn join_source(
    socket: &impl AsRawFd,
    group: IpAddr,
    source: IpAddr,
    interface: u32,
) -> io::Result<()> {
    let request = libc::group_source_req {
        gsr_interface: interface,
        gsr_group: storage(group),
        gsr_source: storage(source),
    };
    let level = match group {
        IpAddr::V4(_) => libc::IPPROTO_IP,
        IpAddr::V6(_) => libc::IPPROTO_IPV6,
    };
    let length = libc::socklen_t::try_from(size_of_val(&request)).expect("some hundred bytes");
    // SAFETY: `request` is valid for reads of `length` bytes for the duration of the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            libc::MCAST_JOIN_SOURCE_GROUP,
            (&raw const request).cast(),
            length,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An address as the kernel takes it where it may be of any family.
fn storage(address: IpAddr) -> libc::sockaddr_storage {
    let address = SockAddr::from(SocketAddr::new(address, 0));
    // SAFETY: a storage of zeroes is a valid one: of no family.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let length =
        usize::try_from(address.len()).map_or(0, |length| length.min(size_of_val(&storage)));
    // SAFETY: `address` is valid for reads of its length, the storage is as long at least, and they
    // are apart.
    unsafe {
        std::ptr::copy_nonoverlapping(
            address.as_ptr().cast::<u8>(),
            (&raw mut storage).cast::<u8>(),
            length,
        );
    }
    storage
}

/// Has what is sent on this socket to groups of the version of IP that `from` is of leave by the
/// interface with that number, and live for so many hops (`IP_MULTICAST_IF`, `IP_MULTICAST_TTL`;
/// ip(7)). Default: an interface by route, one hop. Where the socket is bound to no address of this
/// machine, IPv4 packets come from `from`; if that is unspecified, from one of the interface's
/// addresses, of which loopback has none that would do.
///
/// # Errors
/// What the operating system says.
pub fn send_by(socket: &impl AsFd, from: IpAddr, interface: u32, ttl: u8) -> io::Result<()> {
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
    let length = libc::socklen_t::try_from(size_of_val(&request)).expect("12 fits");
    // SAFETY: `request` is valid for reads of `length` bytes for the duration of the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MULTICAST_IF,
            (&raw const request).cast(),
            length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    reference.set_multicast_ttl_v4(ttl.into())
}

/// The address of this machine that what is sent to `to` comes from, by that interface or by the
/// one that routes name. On the loopback interface that is 127.0.0.1 for groups of IPv4, for which
/// the kernel has none there. An address that means an interface too (RFC 4007, 6) is given as the
/// unspecified one: then the kernel takes it itself. Sends nothing.
///
/// # Errors
/// `NotFound` where this machine has no such interface; `NetworkUnreachable` where no route leads
/// there; `AddrNotAvailable` where the interface has no address of that version of IP.
pub fn source_of(to: SocketAddr, interface: Option<&Interface>) -> io::Result<IpAddr> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    let index = interface.map(Interface::index).transpose()?;
    if let (Some(index), true) = (index, to.ip().is_multicast()) {
        let any = match to {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        send_by(&socket, any, index, 1)?;
    }
    // Of UDP this asks the routes, and nothing else.
    socket.connect(&to.into())?;
    let loopback = Interface::With(Ipv4Addr::LOCALHOST.into());
    if index.is_some() && index == loopback.index().ok() {
        // And not another interface's, which the kernel may take.
        return Ok(match to {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let local = socket.local_addr()?.as_socket().map(|local| local.ip());
    match (local, index) {
        // A route to the loopback interface: it alone may have no address of its own to send from.
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
        let with = |address: &str| Interface::With(address.parse().expect("an address")).index();
        assert_eq!(with("127.0.0.1").expect("it has it"), lo);
        assert_eq!(with("127.9.8.7").expect("as good as"), lo);
        assert_eq!(
            with("192.0.2.1").expect_err("for documents").kind(),
            io::ErrorKind::NotFound
        );
        let none = Interface::Named("none-such\0".to_owned()).index();
        assert_eq!(none.expect_err("no name").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_no_group_is_not_joined() {
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
