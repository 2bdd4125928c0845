//! Bytes of a TCP connection, with the time at which the kernel took them in.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use measure::Time;

use crate::clock::Clock;
use crate::options;

/// Room for the control message that bears a timestamp: 16 bytes behind a header of 16.
const CONTROL_BYTES: usize = 64;

/// Kept aligned as the kernel wants control messages to be.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Asks that [`read`] be told the kernel's times of this connection (`SO_TIMESTAMPNS`; Linux 4.13).
pub fn ask_arrival_time(socket: &impl AsRawFd) -> io::Result<()> {
    options::ask_arrival_time(socket)
}

/// What a [`read`] gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// How many bytes; 0 at the end.
    pub count: usize,
    /// When the last of them came: when the kernel took in the segment that bore it. What came with
    /// segments before has that time too. Where the kernel tells none, the time of reading.
    pub at: Time,
    /// Whether the kernel told the time, and it is that of the last byte for sure: where the buffer
    /// was full, it may be that of bytes behind it.
    pub exact: bool,
}

/// Reads what has come, and says when the last byte of it came.
///
/// # Errors
/// Those of `recvmsg(2)`; `WouldBlock` where nothing has come.
pub fn read(socket: &impl AsRawFd, buffer: &mut [u8], clock: &Clock) -> io::Result<Read> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: a message header of zeroes is a valid one: no name, no buffers, no control.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES;
    // SAFETY: `header` points to one part, which points to `buffer` and has its length, and to
    // `control` with its length; all three outlive the call, and nothing else refers to them during
    // it.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let told = arrival(&header);
    Ok(Read {
        count,
        at: told.map_or_else(|| clock.now(), |nanos| clock.from_realtime(nanos)),
        exact: told.is_some() && count < buffer.len(),
    })
}

/// Reads what has come and is known from elsewhere when ([`crate::segments`]): cheaper than
/// [`read`].
///
/// # Errors
/// Those of `recv(2)`; `WouldBlock` where nothing has come.
pub fn read_untimed(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (count, _) = rustix::net::recv(socket, buffer, rustix::net::RecvFlags::DONTWAIT)?;
    Ok(count)
}

/// How many of the bytes sent the other side's machine has not acknowledged yet (`SIOCOUTQ`;
/// tcp(7)). Once the sending side was closed, that counts as one more until it is acknowledged. Of
/// a Unix socket: how much memory is taken by what the other side has not read.
///
/// # Errors
/// What the operating system says: it is no such socket.
pub fn unacknowledged(socket: &impl AsRawFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: `TIOCOUTQ` (the number that `SIOCOUTQ` is another name of) writes one int, which
    // `bytes` is, and keeps no reference to it.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match result {
        0 => Ok(u64::try_from(bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The timestamp in the control messages that the kernel left.
fn arrival(header: &libc::msghdr) -> Option<i64> {
    // SAFETY: `header` was filled in by the kernel, so its control area holds whole control
    // messages for `msg_controllen` bytes; the CMSG functions stay within that, and the payload is
    // read, unaligned, as the type that its level and kind stand for.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let kind = ((*message).cmsg_level, (*message).cmsg_type);
            if kind == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
                let data = libc::CMSG_DATA(message).cast::<libc::timespec>();
                let time = data.read_unaligned();
                return Some(time.tv_sec * 1_000_000_000 + time.tv_nsec);
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
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
    fn the_time_is_that_of_arrival_and_not_that_of_reading() {
        let (ours, mut theirs) = pair();
        ask_arrival_time(&ours).expect("linux has it");
        let clock = Clock::start();
        let slack = std::time::Duration::from_micros(200);
        let mut buffer = [0; 100];
        let nothing = read(&ours, &mut buffer, &clock).expect_err("nothing came yet");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        // The kernel's clock for it is switched on a little after the first socket asks.
        let late = std::time::Duration::from_millis(20);
        let deadline = clock.now() + std::time::Duration::from_secs(5);
        loop {
            theirs.write_all(b"abc").expect("it takes them");
            let sent = clock.now();
            while clock.now() < sent + late {
                std::hint::spin_loop();
            }
            let read = read(&ours, &mut buffer, &clock).expect("loopback has delivered");
            assert_eq!(&buffer[..read.count], b"abc");
            if read.at <= sent + slack {
                assert!(read.exact);
                break;
            }
            assert!(clock.now() < deadline, "{read:?} is not when {sent:?} came");
        }
    }

    #[test]
    fn the_end_is_no_bytes_and_a_connection_that_was_not_asked_has_times_of_reading() {
        let (ours, mut theirs) = pair();
        let clock = Clock::start();
        let mut buffer = [0; 2];
        theirs.write_all(b"abc").expect("it takes them");
        drop(theirs);
        let before = clock.now();
        let two = read(&ours, &mut buffer, &clock).expect("loopback has delivered");
        assert_eq!((two.count, two.at >= before, two.exact), (2, true, false));
        let mut rest = || read(&ours, &mut buffer, &clock).expect("there is no more to come");
        assert_eq!((rest().count, rest().count), (1, 0));
    }

    #[test]
    fn what_the_other_side_has_no_room_for_is_not_acknowledged() {
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
