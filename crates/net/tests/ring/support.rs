//! Shared parts of the tests of real rings: permissions, namespaces, waiting, and an independent
//! receiver.

use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use net::ring::{Family, ReceiveCounts};
use net::{Clock, PacketRing, RingSettings};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Timeout of every wait in these tests.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Prints to the terminal that a test was left out, past the harness, which hides the output of
/// passing tests.
fn print_skipped(why: &str) {
    let name = std::thread::current();
    let name = name.name().unwrap_or("a test");
    // A failed write is ignored.
    let _ = writeln!(io::stderr(), "left out: {name}: {why}");
}

/// A datagram as the tests compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
    pub(crate) length: usize,
    pub(crate) overhead: usize,
    pub(crate) at: measure::Time,
}

/// A ring and the datagrams taken out of it.
pub(crate) struct Tap {
    pub(crate) ring: PacketRing,
    pub(crate) clock: Clock,
    pub(crate) datagrams: Vec<Seen>,
}

impl Tap {
    /// Opens a ring for one port or several. Returns `None` and prints the reason if that is not
    /// permitted.
    pub(crate) fn open(
        family: Family,
        ports: std::ops::RangeInclusive<u16>,
        change: impl FnOnce(&mut RingSettings),
    ) -> Option<Tap> {
        let mut settings = RingSettings::new(family, ports);
        settings.bytes = 1 << 20;
        change(&mut settings);
        match PacketRing::open(&settings) {
            Ok(ring) => Some(Tap {
                ring,
                clock: Clock::start(),
                datagrams: Vec::new(),
            }),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                print_skipped("opening a packet ring needs the capability CAP_NET_RAW");
                None
            }
            Err(error) => panic!("the ring cannot be opened: {error}"),
        }
    }

    /// Takes everything that the kernel has put into the ring so far, waiting until it is handed
    /// over.
    pub(crate) fn drain(&mut self) -> ReceiveCounts {
        let mut sum = ReceiveCounts::default();
        wait_for("the kernel to hand over the last block", || {
            let datagrams = &mut self.datagrams;
            let taken = self.ring.receive(&self.clock, usize::MAX, |datagram| {
                datagrams.push(Seen {
                    from: datagram.from,
                    to: datagram.to,
                    bytes: datagram.bytes.to_vec(),
                    length: datagram.length,
                    overhead: datagram.overhead,
                    at: datagram.at,
                });
            });
            sum.frames += taken.frames;
            sum.datagrams += taken.datagrams;
            sum.blocks += taken.blocks;
            let seen = self.ring.kernel_counts().expect("the kernel tells");
            seen.arrived - seen.dropped == self.ring.handled()
        });
        sum
    }

    /// Drains the ring until there are `datagrams` datagrams: the kernel may deliver a moment after
    /// the send.
    pub(crate) fn drain_until(&mut self, datagrams: usize) -> ReceiveCounts {
        let mut sum = ReceiveCounts::default();
        wait_for("the datagrams to arrive", || {
            let taken = self.drain();
            sum.frames += taken.frames;
            sum.datagrams += taken.datagrams;
            sum.blocks += taken.blocks;
            let dropped = self.ring.kernel_counts().expect("the kernel tells").dropped;
            assert_eq!(dropped, 0, "the ring was full");
            self.datagrams.len() >= datagrams
        });
        sum
    }

    pub(crate) fn lengths(&self) -> Vec<usize> {
        self.datagrams.iter().map(|seen| seen.length).collect()
    }
}

/// Waits until `holds` returns `true`.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::park_timeout(Duration::from_micros(100));
    }
}

/// An unnamed network namespace, which ends with this value.
pub(crate) struct Namespace {
    holder: Child,
    file: File,
}

impl Namespace {
    /// Creates a namespace with its loopback interface up. Returns `None` and prints the reason if
    /// that is not permitted.
    pub(crate) fn new() -> Option<Namespace> {
        let own = std::fs::read_link("/proc/self/ns/net").expect("linux has namespaces");
        // The process lives until its standard input ends, even if this process is killed.
        let mut holder = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare is there: it is part of util-linux");
        let path = format!("/proc/{}/ns/net", holder.id());
        let mut denied = false;
        wait_for("the namespace", || {
            denied = holder.try_wait().is_ok_and(|status| status.is_some());
            denied || std::fs::read_link(&path).is_ok_and(|other| other != own)
        });
        let file = File::open(&path);
        let (false, Ok(file)) = (denied, file) else {
            print_skipped("making a network namespace needs the capability CAP_SYS_ADMIN");
            return None;
        };
        let namespace = Namespace { holder, file };
        namespace.ip("link set lo up");
        Some(namespace)
    }

    /// Calls `run` in the namespace, on a thread of its own. Sockets created there stay there.
    pub(crate) fn run<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let (file, name) = (&self.file, std::thread::current());
        let name = name.name().unwrap_or("a test").to_owned();
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(name);
            let thread = thread.spawn_scoped(scope, move || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("it was permitted to make it");
                run()
            });
            let thread = thread.expect("a thread can be made");
            match thread.join() {
                Ok(value) => value,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Runs ip(8) in the namespace.
    pub(crate) fn ip(&self, arguments: &str) {
        if let Err(text) = self.try_ip(arguments) {
            panic!("ip {arguments}: {text}");
        }
    }

    /// Adds an interface of a kind that not every kernel supports. Returns `false` and prints the
    /// reason if this kernel does not.
    pub(crate) fn add_link(&self, arguments: &str) -> bool {
        match self.try_ip(&format!("link add {arguments}")) {
            Ok(()) => true,
            Err(text) if text.contains("Unknown device type") => {
                print_skipped("this kernel has no interfaces of the kind");
                false
            }
            Err(text) => panic!("ip link add {arguments}: {text}"),
        }
    }

    fn try_ip(&self, arguments: &str) -> Result<(), String> {
        self.run(|| {
            let output = Command::new("ip")
                .args(arguments.split_whitespace())
                .output();
            let output = output.expect("ip is there: it is part of iproute2");
            let text = String::from_utf8_lossy(&output.stderr);
            output
                .status
                .success()
                .then_some(())
                .ok_or(text.into_owned())
        })
    }

    /// Connects two namespaces by a pair of virtual Ethernet interfaces, both up.
    pub(crate) fn join(&self, name: &str, other: &Namespace, other_name: &str) {
        let other_process = other.holder.id();
        self.ip(&format!(
            "link add {name} type veth peer name {other_name} netns {other_process}"
        ));
        for (namespace, name) in [(self, name), (other, other_name)] {
            namespace.ip(&format!("link set {name} up"));
        }
    }

    /// Opens a UDP socket in the namespace.
    pub(crate) fn socket(&self, address: &str) -> UdpSocket {
        self.run(|| socket(address))
    }

    /// Opens a ring in the namespace.
    pub(crate) fn tap(
        &self,
        family: Family,
        ports: std::ops::RangeInclusive<u16>,
        change: impl FnOnce(&mut RingSettings) + Send,
    ) -> Option<Tap> {
        self.run(|| Tap::open(family, ports, change))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        // The process exits because its input has ended.
        let _ = self.holder.wait();
    }
}

/// Binds a socket with kernel timestamps. Waits for an IPv6 address that is still tentative.
pub(crate) fn socket(address: &str) -> UdpSocket {
    let address: SocketAddr = address.parse().expect("an address with a port");
    let mut found = None;
    wait_for("the address", || {
        found = net::ports::bind(address, 1 << 20).ok();
        found.is_some()
    });
    found.expect("it was waited for")
}

pub(crate) fn port(socket: &UdpSocket) -> u16 {
    socket.local_addr().expect("it is bound").port()
}

/// Sets an option that no safe crate offers.
pub(crate) fn set_option(socket: &UdpSocket, level: i32, name: i32, value: &[u8]) {
    // SAFETY: `value` is valid for reads of its length, and the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            libc::socklen_t::try_from(value.len()).expect("options are short"),
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}
