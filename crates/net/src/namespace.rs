//! Unnamed network namespaces (network_namespaces(7)), which end with their last user.
//!
//! A namespace is kept alive by a file descriptor, by the threads in it, and by the processes that
//! they start. When the last of these is gone, however it ended, the kernel removes the namespace
//! with all its interfaces, so nothing has to be cleaned up. Each thread selects its own namespace,
//! and the threads that it starts inherit it.

mod netlink;

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use netlink::Netlink;

use crate::options::check;

#[cfg(any(test, fuzzing))]
pub use netlink::read_any;

/// Value of `net.ipv4.igmp_max_memberships`: how many groups one socket may join. The system's
/// default is 20.
const MEMBERSHIPS_MAX: &str = "10000";

/// Multicast addresses of IPv4 (RFC 5771).
const MULTICAST_V4: (Ipv4Addr, u8) = (Ipv4Addr::new(224, 0, 0, 0), 4);

/// Multicast addresses of IPv6 (RFC 4291, 2.7).
const MULTICAST_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8);

/// A network namespace, kept alive by a file descriptor.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// Creates a namespace in the user namespace of this process. It has a loopback interface,
    /// which is up, and nothing else; [`Namespace::route_multicast_to_loopback`] adds routes for
    /// multicast. The calling thread stays in its namespace.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN (unshare(2)); otherwise the operating system's
    /// error.
    pub fn new() -> io::Result<Namespace> {
        run_on_thread(|| {
            // SAFETY: `unshare(CLONE_NEWNET)` takes no pointer and moves only the calling thread:
            // open sockets stay in the namespace in which they were created.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            let own = Namespace::current()?;
            // If /proc/sys is not writable, a socket has the default number of groups.
            let _ = std::fs::write("/proc/sys/net/ipv4/igmp_max_memberships", MEMBERSHIPS_MAX);
            let mut netlink = Netlink::open()?;
            netlink.set_up("lo")?;
            Ok(own)
        })
    }

    /// Returns the namespace of the calling thread.
    ///
    /// # Errors
    /// /proc is not available.
    pub fn current() -> io::Result<Namespace> {
        File::open("/proc/thread-self/ns/net").map(Namespace)
    }

    /// Returns another descriptor of the namespace, which keeps it alive.
    ///
    /// # Errors
    /// This process has no free descriptor.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// Moves the calling thread into the namespace. Threads and processes that it starts later are
    /// in it too.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN (setns(2)).
    pub fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    }

    /// Runs `work` in the namespace, on a thread that ends afterwards.
    ///
    /// # Errors
    /// Those of [`Namespace::enter`] and of `work`.
    pub fn run_in<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        run_on_thread(|| {
            self.enter()?;
            work()
        })
    }

    /// Routes all multicast through the loopback interface.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; otherwise the operating system's error.
    pub fn route_multicast_to_loopback(&self) -> io::Result<()> {
        self.run_in(|| {
            let mut netlink = Netlink::open()?;
            netlink.add_route(MULTICAST_V4.0.into(), MULTICAST_V4.1, "lo")?;
            // The kernel drops all IPv6 multicast if the route is not `local`. The call fails if
            // the kernel lacks IPv6.
            let _ = netlink.add_local_route(MULTICAST_V6.0.into(), MULTICAST_V6.1, "lo");
            Ok(())
        })
    }

    /// Routes multicast through `interface`, unless a socket names another one.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; otherwise the operating system's error.
    pub fn route_multicast_through(&self, interface: &str) -> io::Result<()> {
        // For IPv6 the kernel adds such a route to each interface.
        self.run_in(|| Netlink::open()?.add_route(MULTICAST_V4.0.into(), MULTICAST_V4.1, interface))
    }

    /// Connects two namespaces by a pair of virtual Ethernet interfaces (veth(4)), which are up on
    /// return.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; otherwise the operating system's error.
    pub fn connect_by_veth(
        &self,
        own: &InterfaceConfig<'_>,
        other: &Namespace,
        theirs: &InterfaceConfig<'_>,
    ) -> io::Result<()> {
        self.run_in(|| {
            Netlink::open()?.add_veth(own.interface, theirs.interface, other.0.as_fd())
        })?;
        self.set_up(own)?;
        other.set_up(theirs)
    }

    /// Adds the addresses to an interface of the namespace, and brings it up.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `NotFound` if there is no such interface;
    /// otherwise the operating system's error.
    pub fn set_up(&self, end: &InterfaceConfig<'_>) -> io::Result<()> {
        self.run_in(|| {
            let mut netlink = Netlink::open()?;
            for &(address, prefix) in end.addresses {
                let added = netlink.add_address(end.interface, address, prefix);
                // This machine may lack IPv6.
                if address.is_ipv4() {
                    added?;
                }
            }
            netlink.set_up(end.interface)
        })
    }

    /// Adds a default route through `interface`.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; otherwise the operating system's error.
    pub fn add_default_route(&self, interface: &str) -> io::Result<()> {
        self.run_in(|| {
            let mut netlink = Netlink::open()?;
            netlink.add_route(Ipv4Addr::UNSPECIFIED.into(), 0, interface)?;
            // This machine may lack IPv6.
            let _ = netlink.add_route(Ipv6Addr::UNSPECIFIED.into(), 0, interface);
            Ok(())
        })
    }
}

/// Kernel settings that keep an interface from accepting packets for the address of another
/// (ip-sysctl). `arp_ignore`: it does not answer ARP requests for that address. `rp_filter`: it
/// drops a packet whose reply would leave through another interface (RFC 3704, 2.2); a TUN has no
/// ARP.
const ISOLATION_SETTINGS: [&str; 2] = [
    "/proc/sys/net/ipv4/conf/all/arp_ignore",
    "/proc/sys/net/ipv4/conf/all/rp_filter",
];

impl Namespace {
    /// Restricts traffic from and to the addresses of `end` to its interface, whatever the other
    /// endpoint. By default the kernel takes the shortest path, and each interface accepts packets
    /// for all local addresses. `number`, from 1 to 250, must be unique among the ends in the
    /// namespace. Over IPv6 only outgoing traffic is restricted.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `NotFound` if there is no such interface;
    /// otherwise the operating system's error, `EOPNOTSUPP` if the kernel lacks policy routing.
    pub fn isolate(&self, end: &InterfaceConfig<'_>, number: u8) -> io::Result<()> {
        self.run_in(|| {
            for setting in ISOLATION_SETTINGS {
                std::fs::write(setting, "1").map_err(|error| {
                    io::Error::new(
                        error.kind(),
                        format!("{setting} cannot be written: {error}"),
                    )
                })?;
            }
            let mut netlink = Netlink::open()?;
            for &(address, _) in end.addresses {
                let added = netlink.add_source_route(address, end.interface, number);
                // This machine may lack IPv6, which does not answer for the addresses of other
                // interfaces.
                if address.is_ipv4() {
                    added?;
                }
            }
            Ok(())
        })
    }
}

/// An interface and its addresses.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceConfig<'a> {
    /// Name of the interface, at most 15 bytes.
    pub interface: &'a str,
    /// Addresses, each with the prefix length of its network. IPv6 addresses are skipped if the
    /// kernel lacks IPv6.
    pub addresses: &'a [(IpAddr, u8)],
}

/// Runs `work` on a thread that ends afterwards, so that the calling thread stays in its namespace.
fn run_on_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let ended = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, work)?;
        Ok::<_, io::Error>(thread.join())
    })?;
    ended.unwrap_or_else(|_| Err(io::Error::other("a helper thread panicked")))
}

#[cfg(test)]
mod tests;
