//! Reads of a TCP connection, with the kernel's arrival time.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use measure::Time;

use crate::batch::read_control;
use crate::clock::Clock;
use crate::options;

/// Space for the control message with the timestamp: 16 bytes after a header of 16.
const CONTROL_BYTES: usize = 64;

/// Aligned as the kernel requires for control messages.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Requests the kernel's arrival times for [`read_timed`] on this connection (`SO_TIMESTAMPNS`;
/// Linux 4.13). If the kernel has none, as emulators of Linux do, no read is `exact`.
pub fn enable_timestamps(socket: &impl AsRawFd) -> io::Result<()> {
    match options::enable_timestamps(socket) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        result => result,
    }
}

/// Result of [`read_timed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedRead {
    /// Number of bytes; 0 at the end of the stream.
    pub count: usize,
    /// Arrival time of the last byte: when the kernel received its segment. Bytes of earlier
    /// segments have this time too. If the kernel reports none, the time of reading.
    pub at: Time,
    /// True if the kernel reported the time and it certainly belongs to the last byte. If the
    /// buffer was full, the time may belong to later bytes.
    pub exact: bool,
}

/// Reads the bytes that have arrived, and returns the arrival time of the last one.
///
/// # Errors
/// Those of `recvmsg(2)`; `WouldBlock` if nothing has arrived.
pub fn read_timed(
    socket: &impl AsRawFd,
    buffer: &mut [u8],
    clock: &Clock,
) -> io::Result<TimedRead> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: an all-zero message header is valid: no name, no buffers, no control messages.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: `header` points to one part, which points to `buffer` and has its length, and to
    // `control` with its length; all three outlive the call, and nothing else accesses them during
    // it.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let told = read_control(&header).at;
    Ok(TimedRead {
        count,
        at: told.map_or_else(|| clock.now(), |nanos| clock.from_realtime(nanos)),
        exact: told.is_some() && count < buffer.len(),
    })
}

/// Reads the bytes that have arrived, without their time, which is known from another source
/// ([`crate::arrival_times`]). Cheaper than [`read_timed`].
///
/// # Errors
/// Those of `recv(2)`; `WouldBlock` if nothing has arrived.
pub fn read_untimed(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (count, _) = rustix::net::recv(socket, buffer, rustix::net::RecvFlags::DONTWAIT)?;
    Ok(count)
}

/// Number of bytes sent that the peer has not acknowledged yet (`SIOCOUTQ`; tcp(7)). After the
/// sending side was closed, that counts as one more until it is acknowledged. For a Unix socket:
/// the memory used by what the peer has not read.
///
/// # Errors
/// The operating system's error, if this is not such a socket.
pub fn unacknowledged(socket: &impl AsRawFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: `TIOCOUTQ` (the same number as `SIOCOUTQ`) writes one int, which `bytes` is, and
    // keeps no reference to it.
    options::check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let ours = TcpStream::connect(address).expect("it listens");
        let (theirs, _) = listener.accept().expect("one came");
        theirs.set_nodelay(true).expect("it is open");
        (ours, theirs)
    }

    #[test]
    fn read_returns_the_arrival_time() {
        let (ours, mut theirs) = pair();
        enable_timestamps(&ours).expect("linux has it");
        let clock = Clock::start();
        let slack = std::time::Duration::from_micros(200);
        let mut buffer = [0; 100];
        let nothing = read_timed(&ours, &mut buffer, &clock).expect_err("nothing came yet");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        // The kernel enables these timestamps a little after the first socket requests them.
        let late = std::time::Duration::from_millis(20);
        let deadline = clock.now() + std::time::Duration::from_secs(5);
        loop {
            theirs.write_all(b"abc").expect("it takes them");
            let sent = clock.now();
            while clock.now() < sent + late {
                std::hint::spin_loop();
            }
            let read = read_timed(&ours, &mut buffer, &clock).expect("loopback has delivered");
            assert_eq!(&buffer[..read.count], b"abc");
            if read.at <= sent + slack {
                assert!(read.exact);
                break;
            }
            assert!(clock.now() < deadline, "{read:?} is not when {sent:?} came");
        }
    }

    #[test]
    fn without_timestamps_reads_have_the_time_of_reading() {
        let (ours, mut theirs) = pair();
        let clock = Clock::start();
        let mut buffer = [0; 2];
        theirs.write_all(b"abc").expect("it takes them");
        drop(theirs);
        let before = clock.now();
        let two = read_timed(&ours, &mut buffer, &clock).expect("loopback has delivered");
        assert_eq!((two.count, two.at >= before, two.exact), (2, true, false));
        let mut rest = || read_timed(&ours, &mut buffer, &clock).expect("there is no more to come");
        assert_eq!((rest().count, rest().count), (1, 0));
    }

    #[test]
    fn bytes_beyond_the_peers_buffer_are_unacknowledged() {
        let (ours, mut theirs) = pair();
        ours.set_nonblocking(true).expect("it can");
        let mut sent = 0;
        while let Ok(count) = (&ours).write(&[7; 65_536]) {
            sent += count as u64;
        }
        let waiting = || unacknowledged(&ours).expect("it is a connection");
        assert!(waiting() > 0 && waiting() < sent, "{} of {sent}", waiting());
        let reader = std::thread::spawn(move || {
            use std::io::Read;
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).map(|count| count as u64)
        });
        ours.shutdown(std::net::Shutdown::Write).expect("it stands");
        assert_eq!(reader.join().expect("no panic").expect("it ends"), sent);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while waiting() > 0 {
            assert!(std::time::Instant::now() < deadline, "{} wait", waiting());
            std::thread::park_timeout(std::time::Duration::from_micros(100));
        }
    }
}
