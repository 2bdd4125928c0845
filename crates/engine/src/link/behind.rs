//! A program behind a link: in a network of its own, from which everything goes by the link to this
//! machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Child, Command};

use net::namespace::Tie;
use net::{Clock, Namespace, Tun};

use super::{Emulator, LinkWindow, Plan};

/// The interface that the program has.
const INSIDE: &str = "link";

/// How many links there may be on a machine at a time: their networks differ in one byte.
const MOST: u8 = u8::MAX;

/// A network behind a link, until it is stopped.
#[derive(Debug)]
pub struct Behind {
    inside: Namespace,
    emulator: Emulator,
    number: u8,
}

impl Behind {
    /// Makes a network that has one interface, and a link from it to this machine; `mtu` is that of
    /// both ends. The record begins.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN and CAP_NET_ADMIN; `NotFound` without /dev/net/tun;
    /// what else the operating system says.
    pub fn make(plan: Plan, mtu: u16) -> io::Result<Behind> {
        let (number, far) = outside()?;
        let inside = Namespace::new()?;
        far.set_up(mtu)?;
        Namespace::current()?.set_up(&Tie {
            interface: far.name(),
            addresses: &addresses(number, 1),
        })?;
        let near = inside.within(|| {
            let near = Tun::open(INSIDE)?;
            near.set_up(mtu)?;
            Ok(near)
        })?;
        inside.set_up(&Tie {
            interface: INSIDE,
            addresses: &addresses(number, 2),
        })?;
        inside.all_by(INSIDE)?;
        let emulator = Emulator::start(near, far, plan)?;
        emulator.begin(&Clock::start());
        Ok(Behind {
            inside,
            emulator,
            number,
        })
    }

    /// This machine's address at its end of the link.
    pub fn machine(&self) -> IpAddr {
        addresses(self.number, 1)[0].0
    }

    /// The program's address at its end of the link.
    pub fn program(&self) -> IpAddr {
        addresses(self.number, 2)[0].0
    }

    /// Whether the link's thread may go before all others.
    pub fn goes_first(&self) -> bool {
        self.emulator.goes_first()
    }

    /// Inode of the network namespace behind the link.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn network(&self) -> io::Result<u64> {
        self.inside.inode()
    }

    /// Starts a program behind the link.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        self.inside.within(|| command.spawn())
    }

    /// Stops the link; gives what it did.
    ///
    /// # Errors
    /// It stopped before, for the reason that the operating system gave.
    pub fn stop(self) -> io::Result<Option<LinkWindow>> {
        self.emulator.stop()
    }
}

/// This machine's end of the first link that is not there yet.
fn outside() -> io::Result<(u8, Tun)> {
    for number in 0..MOST {
        match Tun::open(&format!("sglink{number}")) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            opened => return opened.map(|tun| (number, tun)),
        }
    }
    Err(io::Error::other("there are 255 links on this machine"))
}

/// The addresses of one end, of IPv4 first.
fn addresses(number: u8, last: u8) -> [(IpAddr, u8); 2] {
    let v4 = Ipv4Addr::new(10, 82, number, last);
    let v6 = Ipv6Addr::new(0xfd82, 0, 0, number.into(), 0, 0, 0, last.into());
    [(v4.into(), 30), (v6.into(), 64)]
}
