//! TUN interfaces (linux/if_tun.h): the program reads the packets that are sent through the
//! interface, and the packets that it writes arrive at the interface.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use crate::options::check;
use crate::waker::{Waker, wait_for_any};

/// Maximum number of packets that wait to be read. The system's default is 500, which is 2 ms at
/// 250,000 packets/s.
const QUEUE_PACKETS: libc::c_int = 10_000;

/// A TUN interface with the program's end of it. Dropping it removes the interface.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    /// The kernel's interface statistics of its namespace (proc(5), /proc/net/dev).
    table: File,
}

impl Tun {
    /// Creates an interface with this name in the namespace of the calling thread. It is down and
    /// has no address yet. It carries IP packets only, without any header before them.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `ResourceBusy` if there is an interface with this
    /// name; `NotFound` if this machine lacks /dev/net/tun; `InvalidInput` if the name is longer
    /// than 15 bytes.
    pub fn open(name: &str) -> io::Result<Tun> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        let mut request = request(name)?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the request is valid for the read and the write, and its flags are set.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        Ok(Tun {
            file,
            name: name.to_owned(),
            // An open file keeps the namespace in which it was opened.
            table: File::open("/proc/thread-self/net/dev")?,
        })
    }

    /// Sets the longest packet that the kernel sends, in bytes with the IP header, and the length
    /// of the queue, and stops the kernel from sending packets of its own. Must be called in the
    /// interface's namespace while the interface is down.
    ///
    /// # Errors
    /// `InvalidInput` for an MTU below 68; otherwise the operating system's error.
    pub fn set_up(&self, mtu: u16) -> io::Result<()> {
        // Without this, the kernel sends router solicitations as soon as the interface is up. If
        // /proc/sys is not writable, it still does.
        for (setting, value) in [("addr_gen_mode", "1"), ("router_solicitations", "0")] {
            let path = format!("/proc/sys/net/ipv6/conf/{}/{setting}", self.name);
            let _ = std::fs::write(path, value);
        }
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
        let ask = |kind: libc::c_ulong, fill: &dyn Fn(&mut libc::ifreq)| {
            let mut request = request(&self.name)?;
            fill(&mut request);
            // SAFETY: the request is valid for the read and the write, and the parts of it that are
            // read are set.
            check(unsafe { libc::ioctl(socket.as_raw_fd(), kind as _, &raw mut request) })
        };
        ask(libc::SIOCSIFMTU, &|request| {
            request.ifr_ifru.ifru_mtu = mtu.into();
        })?;
        ask(libc::SIOCSIFTXQLEN, &|request| {
            request.ifr_ifru.ifru_metric = QUEUE_PACKETS;
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one packet that the kernel sends through the interface. Returns its length. A packet
    /// longer than the buffer is truncated.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Makes a packet arrive at the interface.
    ///
    /// # Errors
    /// `InvalidInput` if this is not an IP packet; otherwise the operating system's error.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(|_| ())
    }

    /// Number of packets that the kernel dropped because too many waited to be read.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn dropped(&self) -> io::Result<u64> {
        let mut table = &self.table;
        table.rewind()?;
        let mut text = String::new();
        table.read_to_string(&mut text)?;
        Ok(parse_transmit_drops(&text, &self.name).unwrap_or(0))
    }
}

/// Waits until one of two interfaces has a packet to read or the waker is woken, for at most
/// `timeout`, with the precision of the thread's wake-ups (ppoll(2)).
///
/// # Errors
/// The operating system's error; a signal is not an error.
pub fn wait_for_packet(ends: [&Tun; 2], waker: &Waker, timeout: Duration) -> io::Result<()> {
    let [first, second] = ends;
    wait_for_any(
        &mut [
            PollFd::new(first, PollFlags::IN),
            PollFd::new(second, PollFlags::IN),
            PollFd::new(waker, PollFlags::IN),
        ],
        timeout,
    )
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Returns the column `drop` of an interface's transmit statistics (proc(5), /proc/net/dev).
fn parse_transmit_drops(table: &str, name: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| {
        let (interface, figures) = line.split_once(':')?;
        (interface.trim() == name).then_some(figures)
    })?;
    line.split_ascii_whitespace().nth(11)?.parse().ok()
}

/// Returns a request for the interface `name`; all other fields are 0.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero is a valid value of a structure of numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0.
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, &from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_parsed_from_proc_net_dev() {
        let table = "Inter-|   Receive        |  Transmit\n face |bytes packets errs drop\n\
                     lo: 1 2 0 0 0 0 0 0 1 2 0 9 0 0 0 0\n\
                    link: 1 2 0 3 0 0 0 0 1 2 0 7 0 0 0 0\n";
        assert_eq!(parse_transmit_drops(table, "link"), Some(7));
        assert_eq!(parse_transmit_drops(table, "ink"), None);
        assert_eq!(parse_transmit_drops("link: 1 2", "link"), None);
    }

    #[test]
    fn sent_packet_is_read_and_written_packet_arrives() {
        use crate::Namespace;
        use crate::namespace::InterfaceConfig;
        use std::net::{IpAddr, Ipv4Addr, UdpSocket};

        // Without permission to create one there is nothing to test.
        let Ok(space) = Namespace::new() else { return };
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 9, 8, last));
        let made = space.run_in(|| {
            let tun = Tun::open("link")?;
            tun.set_up(1400)?;
            Ok(tun)
        });
        let Ok(tun) = made else { return };
        let tie = InterfaceConfig {
            interface: tun.name(),
            addresses: &[(address(1), 30)],
        };
        space.set_up(&tie).expect("it is there");
        let socket = space
            .run_in(|| UdpSocket::bind((address(1), 0)))
            .expect("a free port");
        let port = socket.local_addr().expect("it is bound").port();
        socket
            .send_to(b"out", (address(2), 7))
            .expect("there is a route");
        let mut buffer = [0; 2000];
        let packet = loop {
            // The kernel sends IPv6 packets of its own on a new interface.
            match tun.read(&mut buffer) {
                Ok(length) if buffer[0] >> 4 == 4 => break &mut buffer[..length],
                Ok(_) => {}
                Err(error) => panic!("{error}: a packet that was sent is there at once"),
            }
        };
        assert!(packet.ends_with(b"out") && packet.len() == 28 + 3);
        // Sends the packet back: swapping addresses and ports does not change the checksums.
        let (from, to) = (packet[12..16].to_vec(), packet[16..20].to_vec());
        packet[12..16].copy_from_slice(&to);
        packet[16..20].copy_from_slice(&from);
        packet[20..22].copy_from_slice(&7u16.to_be_bytes());
        packet[22..24].copy_from_slice(&port.to_be_bytes());
        tun.write(packet).expect("it is an IP packet");
        let mut heard = [0; 10];
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("it is open");
        assert_eq!(socket.recv(&mut heard).expect("it arrives"), 3);
        assert_eq!(tun.dropped().expect("there is a /proc"), 0);
        assert!(tun.write(&[0; 30]).is_err());
    }

    #[test]
    fn invalid_interface_names_are_rejected() {
        for name in ["", "sixteen-bytes-xx", "a\0b"] {
            let refused = Tun::open(name).expect_err("refused").kind();
            // Or /dev/net/tun does not exist.
            assert!(
                matches!(
                    refused,
                    io::ErrorKind::InvalidInput | io::ErrorKind::NotFound
                ) || refused == io::ErrorKind::PermissionDenied
            );
        }
    }
}
