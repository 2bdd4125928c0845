//! A program behind a link: in its own network namespace, whose only route leads over the link to
//! this machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};

use net::namespace::InterfaceConfig;
use net::{Clock, Namespace, Tun};

use super::placed::LinkEnd;
use super::{Emulator, LinkPlan, LinkWindow};

/// Name of the interface in the program's namespace.
const INSIDE: &str = "link";

/// Maximum number of links on a machine at a time: their networks differ in one byte.
const LINKS_MAX: u8 = u8::MAX;

/// A network behind a link, until it is stopped.
#[derive(Debug)]
pub struct LinkedNamespace {
    inside: Namespace,
    emulator: Emulator,
    number: u8,
}

impl LinkedNamespace {
    /// Creates a namespace with one interface, and a link from it to this machine. Both ends have
    /// this `mtu`. The record begins.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN and CAP_NET_ADMIN; `NotFound` if /dev/net/tun is
    /// missing; or any other error of the operating system.
    pub fn make(plan: LinkPlan, mtu: u16) -> io::Result<LinkedNamespace> {
        let (number, far) = open_machine_end()?;
        let inside = Namespace::new()?;
        far.set_up(mtu)?;
        Namespace::current()?.set_up(&InterfaceConfig {
            interface: far.name(),
            addresses: &addresses(number, 1),
        })?;
        let near = LinkEnd::new(&inside, INSIDE, &addresses(number, 2)).open(mtu)?;
        inside.add_default_route(INSIDE)?;
        let emulator = Emulator::start(near, far, plan)?;
        emulator.begin(&Clock::start());
        Ok(LinkedNamespace {
            inside,
            emulator,
            number,
        })
    }

    /// Address of this machine at its end of the link.
    pub fn machine(&self) -> IpAddr {
        addresses(self.number, 1)[0].0
    }

    /// Address of the program at its end of the link.
    pub fn program(&self) -> IpAddr {
        addresses(self.number, 2)[0].0
    }

    /// True if the link's thread runs at real-time priority.
    pub fn raised_priority(&self) -> bool {
        self.emulator.is_realtime()
    }

    /// Returns a descriptor of the network namespace behind the link, which keeps it alive.
    ///
    /// # Errors
    /// This process has no free descriptor.
    pub fn network(&self) -> io::Result<OwnedFd> {
        self.inside.descriptor()
    }

    /// Starts a program behind the link.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        self.inside.run_in(|| command.spawn())
    }

    /// Stops the link. Returns its last windows.
    ///
    /// # Errors
    /// The link had ended early, with the error of the operating system.
    pub fn stop(self) -> io::Result<Option<LinkWindow>> {
        self.emulator.stop()
    }
}

/// Opens this machine's end of the first link whose number is free.
fn open_machine_end() -> io::Result<(u8, Tun)> {
    for number in 0..LINKS_MAX {
        match Tun::open(&format!("sglink{number}")) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            opened => return opened.map(|tun| (number, tun)),
        }
    }
    Err(io::Error::other("all 255 links of this machine are in use"))
}

/// Addresses of one end, IPv4 first.
fn addresses(number: u8, last: u8) -> [(IpAddr, u8); 2] {
    let v4 = Ipv4Addr::new(10, 82, number, last);
    let v6 = Ipv6Addr::new(0xfd82, 0, 0, number.into(), 0, 0, 0, last.into());
    [(v4.into(), 30), (v6.into(), 64)]
}
