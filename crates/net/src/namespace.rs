//! Network namespaces without a name (network_namespaces(7)): a network that ends with what is in
//! it.
//!
//! A namespace is held by a descriptor, by the threads that are in it, and by the processes that
//! they start. When the last of these is gone, however that came, the kernel takes the namespace
//! down with all its interfaces; so nothing has to be cleaned up, and nothing can be left behind.
//! Each thread is in one of its own choice; those that it starts are in the same.

mod netlink;

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use netlink::Netlink;

#[cfg(any(test, fuzzing))]
pub use netlink::read_any;

/// What `net.ipv4.igmp_max_memberships` is raised to: how many groups one socket may join. The
/// system's default is 20.
const MEMBERSHIPS: &str = "10000";

/// The multicast addresses of IPv4 (RFC 5771).
const GROUPS: (Ipv4Addr, u8) = (Ipv4Addr::new(224, 0, 0, 0), 4);

/// The multicast addresses of IPv6 (RFC 4291, 2.7).
const GROUPS_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8);

/// A network namespace, held open.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// A new one, of the user namespace that this process is in. It has a loopback interface that
    /// carries multicast of IPv4 and, where the kernel has it, of IPv6; nothing else. The calling
    /// thread stays where it is.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN (unshare(2)); what else the operating system says.
    pub fn new() -> io::Result<Namespace> {
        on_a_thread(|| {
            // SAFETY: `unshare(CLONE_NEWNET)` has no memory to be given, and moves the calling
            // thread alone: sockets that are open stay those of the namespace they were made in.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            let own = Namespace::current()?;
            // Where /proc/sys may not be written, a socket has the usual number of groups.
            let _ = std::fs::write("/proc/sys/net/ipv4/igmp_max_memberships", MEMBERSHIPS);
            let mut netlink = Netlink::open()?;
            netlink.set_up("lo")?;
            Ok(own)
        })
    }

    /// That of the calling thread.
    ///
    /// # Errors
    /// There is no /proc.
    pub fn current() -> io::Result<Namespace> {
        File::open("/proc/thread-self/ns/net").map(Namespace)
    }

    /// Inode of the namespace: that of `/proc/PID/ns/net` of each process in it (namespaces(7)).
    ///
    /// # Errors
    /// What the operating system says.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.ino())
    }

    /// Moves the calling thread into it; what it starts from now on is there too.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN (setns(2)).
    pub fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    }

    /// Does something in it, on a thread that ends with that.
    ///
    /// # Errors
    /// As [`Namespace::enter`], and what `work` says.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        on_a_thread(|| {
            self.enter()?;
            work()
        })
    }

    /// Has its loopback interface carry all multicast.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; what else the operating system says.
    pub fn loop_multicast(&self) -> io::Result<()> {
        self.within(|| {
            let mut netlink = Netlink::open()?;
            netlink.add_route(GROUPS.0.into(), GROUPS.1, "lo")?;
            // By a route that is not `local` the kernel drops all of it. Without IPv6 there is none
            // of it.
            let _ = netlink.add_local_route(GROUPS_V6.0.into(), GROUPS_V6.1, "lo");
            Ok(())
        })
    }

    /// Has multicast leave by that interface, unless a socket names another.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; what else the operating system says.
    pub fn multicast_by(&self, interface: &str) -> io::Result<()> {
        // Of IPv6 each interface has a route for it from the kernel.
        self.within(|| Netlink::open()?.add_route(GROUPS.0.into(), GROUPS.1, interface))
    }

    /// Ties two to each other by a pair of virtual Ethernet interfaces (veth(4)), which are up when
    /// this returns.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; what else the operating system says.
    pub fn tie(&self, own: &Tie<'_>, other: &Namespace, theirs: &Tie<'_>) -> io::Result<()> {
        self.within(|| {
            Netlink::open()?.add_veth(own.interface, theirs.interface, other.0.as_fd())
        })?;
        self.set_up(own)?;
        other.set_up(theirs)
    }

    /// Gives an interface in it its addresses, and switches it on.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `NotFound` where there is no such interface; what
    /// else the operating system says.
    pub fn set_up(&self, end: &Tie<'_>) -> io::Result<()> {
        self.within(|| {
            let mut netlink = Netlink::open()?;
            for &(address, prefix) in end.addresses {
                let added = netlink.add_address(end.interface, address, prefix);
                // This machine may be without IPv6.
                if address.is_ipv4() {
                    added?;
                }
            }
            netlink.set_up(end.interface)
        })
    }

    /// Has everything leave by that interface that is for no network it knows.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; what else the operating system says.
    pub fn all_by(&self, interface: &str) -> io::Result<()> {
        self.within(|| {
            let mut netlink = Netlink::open()?;
            netlink.add_route(Ipv4Addr::UNSPECIFIED.into(), 0, interface)?;
            // This machine may be without IPv6.
            let _ = netlink.add_route(Ipv6Addr::UNSPECIFIED.into(), 0, interface);
            Ok(())
        })
    }
}

/// Settings of the kernel by which an interface takes nothing for the address of another
/// (ip-sysctl). `arp_ignore`: it does not answer ARP for that address. `rp_filter`: it drops a
/// packet whose answer would leave by another interface (RFC 3704, 2.2); a TUN has no ARP.
const STRICT: [&str; 2] = [
    "/proc/sys/net/ipv4/conf/all/arp_ignore",
    "/proc/sys/net/ipv4/conf/all/rp_filter",
];

impl Namespace {
    /// Keeps what is sent from and to the addresses of an end to its interface, wherever it goes or
    /// comes from: else the kernel takes the shortest way, and each interface takes packets for all
    /// addresses. `number` is one that no other end in it has, from 1 to 250. Over IPv6 what is sent
    /// is kept to the interface, and what comes is not.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `NotFound` where there is no such interface; what
    /// else the operating system says, of a kernel without policy routing `EOPNOTSUPP`.
    pub fn keep_apart(&self, end: &Tie<'_>, number: u8) -> io::Result<()> {
        self.within(|| {
            for setting in STRICT {
                std::fs::write(setting, "1").map_err(|error| {
                    io::Error::new(
                        error.kind(),
                        format!("{setting} cannot be written: {error}"),
                    )
                })?;
            }
            let mut netlink = Netlink::open()?;
            for &(address, _) in end.addresses {
                let added = netlink.add_way_from(address, end.interface, number);
                // This machine may be without IPv6, which answers for no other's addresses.
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
pub struct Tie<'a> {
    /// What the interface is called; at most 15 bytes.
    pub interface: &'a str,
    /// Its addresses, each with the length of its network's prefix. Those of IPv6 are left out
    /// where the kernel has none.
    pub addresses: &'a [(IpAddr, u8)],
}

/// Does something on a thread that ends with it, so that the calling one stays in its namespace.
fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let ended = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, work)?;
        Ok::<_, io::Error>(thread.join())
    })?;
    ended.unwrap_or_else(|_| Err(io::Error::other("the thread broke down")))
}

#[cfg(test)]
mod tests;
