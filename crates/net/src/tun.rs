//! Interfaces whose packets a program carries (TUN; linux/if_tun.h): what is sent by such an
//! interface is read here, and what is written here arrives by it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::waker::Waker;

/// How many packets may wait to be read. The system's default is 500, which at 250,000 packets/s
/// are 2 ms.
const QUEUE: libc::c_int = 10_000;

/// An interface, and the end of it that is not the kernel's. It ends when this is dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    /// What the kernel says of the interfaces of its namespace (proc(5), /proc/net/dev).
    table: File,
}

impl Tun {
    /// A new one in the namespace of the calling thread, of that name. It is down and has no
    /// address yet. It carries IP packets alone, each with nothing before it.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `ResourceBusy` where there is one of that name;
    /// `NotFound` where this machine has no /dev/net/tun; `InvalidInput` if the name is longer than
    /// 15 bytes.
    pub fn open(name: &str) -> io::Result<Tun> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        let mut request = request(name)?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the request is valid for the read and the write, and its flags are set.
        let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Tun {
            file,
            name: name.to_owned(),
            // An open one stays that of the namespace it was opened in.
            table: File::open("/proc/thread-self/net/dev")?,
        })
    }

    /// Sets the longest packet that the kernel sends by it, in bytes with the IP header, and how
    /// many may wait; and has the kernel send none of its own. To be called in the interface's
    /// namespace, while it is down.
    ///
    /// # Errors
    /// `InvalidInput` for an MTU below 68 or above 65,535; what else the operating system says.
    pub fn set_up(&self, mtu: u16) -> io::Result<()> {
        // Else the kernel sends packets of its own as soon as it is up: it looks for routers. Where
        // /proc/sys may not be written, it does.
        for (setting, value) in [("addr_gen_mode", "1"), ("router_solicitations", "0")] {
            let path = format!("/proc/sys/net/ipv6/conf/{}/{setting}", self.name);
            let _ = std::fs::write(path, value);
        }
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
        let ask = |kind, fill: &dyn Fn(&mut libc::ifreq)| {
            let mut request = request(&self.name)?;
            fill(&mut request);
            // SAFETY: the request is valid for the read and the write, and what is read of it is
            // set.
            match unsafe { libc::ioctl(socket.as_raw_fd(), kind, &raw mut request) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        ask(libc::SIOCSIFMTU, &|request| {
            request.ifr_ifru.ifru_mtu = mtu.into();
        })?;
        ask(libc::SIOCSIFTXQLEN, &|request| {
            request.ifr_ifru.ifru_metric = QUEUE;
        })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one packet that the kernel sends by it; gives its length. What is longer than the
    /// buffer is cut.
    ///
    /// # Errors
    /// `WouldBlock` where there is none.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Has a packet arrive by it.
    ///
    /// # Errors
    /// `InvalidInput` for what is no IP packet; what else the operating system says.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(|_| ())
    }

    /// How many packets the kernel sent by it and dropped, because too many waited to be read.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn dropped(&self) -> io::Result<u64> {
        let mut table = &self.table;
        table.rewind()?;
        let mut text = String::new();
        table.read_to_string(&mut text)?;
        Ok(sent_and_dropped(&text, &self.name).unwrap_or(0))
    }
}

/// Waits until one of two interfaces has a packet to be read, or the waker is woken, or so long: as
/// exactly as the thread wakes (ppoll(2)).
///
/// # Errors
/// What the operating system says; a signal is none.
pub fn wait(ends: [&Tun; 2], waker: &Waker, most: Duration) -> io::Result<()> {
    let [first, second] = ends;
    let mut polled = [
        PollFd::new(first, PollFlags::IN),
        PollFd::new(second, PollFlags::IN),
        PollFd::new(waker, PollFlags::IN),
    ];
    let most = Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: most.subsec_nanos().into(),
    };
    match poll(&mut polled, Some(&most)) {
        Err(rustix::io::Errno::INTR) => Ok(()),
        polled => Ok(polled.map(|_| ())?),
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The column `drop` of what an interface transmitted (proc(5), /proc/net/dev).
fn sent_and_dropped(table: &str, name: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| {
        let (interface, figures) = line.split_once(':')?;
        (interface.trim() == name).then_some(figures)
    })?;
    line.split_ascii_whitespace().nth(11)?.parse().ok()
}

/// A request about the interface of that name; all else is 0.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: of a structure of numbers, all of them 0 is a value.
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
    fn drops_of_an_interface_are_found_in_the_kernels_table() {
        let table = "Inter-|   Receive        |  Transmit\n face |bytes packets errs drop\n\
                     lo: 1 2 0 0 0 0 0 0 1 2 0 9 0 0 0 0\n\
                    link: 1 2 0 3 0 0 0 0 1 2 0 7 0 0 0 0\n";
        assert_eq!(sent_and_dropped(table, "link"), Some(7));
        assert_eq!(sent_and_dropped(table, "ink"), None);
        assert_eq!(sent_and_dropped("link: 1 2", "link"), None);
    }

    #[test]
    fn a_packet_that_is_sent_by_it_is_read_and_one_that_is_written_arrives() {
        use crate::Namespace;
        use crate::namespace::Tie;
        use std::net::{IpAddr, Ipv4Addr, UdpSocket};

        // Without the right to make one there is nothing to be tested.
        let Ok(space) = Namespace::new() else { return };
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 9, 8, last));
        let made = space.within(|| {
            let tun = Tun::open("link")?;
            tun.set_up(1400)?;
            Ok(tun)
        });
        let Ok(tun) = made else { return };
        let tie = Tie {
            interface: tun.name(),
            addresses: &[(address(1), 30)],
        };
        space.set_up(&tie).expect("it is there");
        let socket = space
            .within(|| UdpSocket::bind((address(1), 0)))
            .expect("a free port");
        let port = socket.local_addr().expect("it is bound").port();
        socket
            .send_to(b"out", (address(2), 7))
            .expect("there is a route");
        let mut buffer = [0; 2000];
        let packet = loop {
            // The kernel says things of its own by a new interface, over IPv6.
            match tun.read(&mut buffer) {
                Ok(length) if buffer[0] >> 4 == 4 => break &mut buffer[..length],
                Ok(_) => {}
                Err(error) => panic!("{error}: a packet that was sent is there at once"),
            }
        };
        assert!(packet.ends_with(b"out") && packet.len() == 28 + 3);
        // Back to where it came from: addresses and ports change places, which no sum notices.
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
    fn names_that_no_interface_can_have_are_refused() {
        for name in ["", "sixteen-bytes-xx", "a\0b"] {
            let refused = Tun::open(name).expect_err("refused").kind();
            // Or there is no /dev/net/tun at all.
            assert!(
                matches!(
                    refused,
                    io::ErrorKind::InvalidInput | io::ErrorKind::NotFound
                ) || refused == io::ErrorKind::PermissionDenied
            );
        }
    }
}
