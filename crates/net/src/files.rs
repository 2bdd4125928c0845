//! File descriptors: how many a thread may have, and a table of its own for each that needs many.
//!
//! The limit on open files (`RLIMIT_NOFILE`) is a limit on each *table* of descriptors, and a thread can have
//! one to itself (`unshare(CLONE_FILES)`, unshare(2)). So a process whose limit cannot be raised still
//! opens as many as it has threads times the limit; and the kernel, which takes no reference to a file
//! for a system call of the only thread that can close it, spares two atomic operations on each.

use std::io;
use std::os::fd::RawFd;

use rustix::process::{Resource, getrlimit};

/// How many files a table may hold. `None` is without limit.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Gives the calling thread a table of descriptors of its own, with standard input, output and error and
/// those of `keep` in it. Threads that it starts from now on share it; all others keep the old one.
///
/// What is opened before and kept is then open twice, once in each table, and is closed only when both
/// have let go of it.
///
/// The caller sees to it that no object which owns a descriptor crosses from one table to the other after
/// this, in either direction, and that all which the thread holds already are in `keep`: elsewhere the number
/// means another file, or none.
///
/// # Errors
/// The kernel refuses: there is no memory for a table.
pub fn own_table(keep: &[RawFd]) -> io::Result<()> {
    // SAFETY: `unshare(CLONE_FILES)` has no memory to be given. That descriptors are not mixed up
    // between tables afterwards is the caller's duty, as stated.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut keep: Vec<u32> = keep
        .iter()
        .chain(&[libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO])
        .filter_map(|&fd| u32::try_from(fd).ok())
        .collect();
    keep.sort_unstable();
    keep.dedup();
    let mut first = 0;
    for fd in keep {
        if fd > first {
            close_range(first, fd - 1);
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX);
    Ok(())
}

/// Closes these descriptors in the calling thread's table, of which other threads have copies in tables of their own ([`own_table`]): what they
/// own there stays open, and ends with them.
///
/// The caller sees to it that no object of this table owns any of them.
pub fn close_copies(copies: &[RawFd]) {
    for &fd in copies {
        // SAFETY: closing has no memory to be given. That nothing in this table refers to the descriptor is the caller's duty, as stated.
        unsafe { libc::close(fd) };
    }
}

/// Closes a range of descriptors, both ends included. A kernel that cannot (before Linux 5.9) leaves copies
/// open, which end with the thread.
fn close_range(first: u32, last: u32) {
    // SAFETY: closing has no memory to be given. This table is the thread's own, and nothing in it but
    // what was kept is referred to.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_table_of_its_own_holds_what_is_kept_and_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let kept = TcpStream::connect(address).expect("it listens");
        let (mut other, _) = listener.accept().expect("just connected");
        let (kept_fd, dropped_fd) = (kept.as_raw_fd(), other.as_raw_fd());
        let thread = std::thread::spawn(move || {
            own_table(&[kept_fd]).expect("memory");
            // The number is free here, and is taken by the next that is opened, while it goes on to
            // mean the connection outside.
            let files = std::fs::read_dir("/proc/thread-self/fd").expect("proc");
            let open: Vec<String> = files
                .map(|file| {
                    file.expect("proc")
                        .file_name()
                        .to_string_lossy()
                        .into_owned()
                })
                .collect();
            assert!(open.contains(&kept_fd.to_string()), "{open:?}");
            assert!(
                open.len() <= 5,
                "three, the one kept and the folder: {open:?}"
            );
            (&kept).write_all(b"from there").expect("it is open here");
            kept
        });
        let kept = thread.join().expect("no panic");
        let mut text = [0; 10];
        other.read_exact(&mut text).expect("it is open");
        assert_eq!(&text, b"from there");
        assert_eq!(other.as_raw_fd(), dropped_fd);
        (&kept).write_all(b"from here!").expect("open in both");
        other.read_exact(&mut text).expect("it is open");
        assert_eq!(&text, b"from here!");
    }

    #[test]
    fn what_was_handed_over_ends_with_the_thread_that_has_it() {
        use std::os::fd::AsFd;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        // The object goes to the thread; its number stays behind.
        let copy = listener.as_fd().try_clone_to_owned().expect("a descriptor");
        drop(listener);
        let handed = TcpListener::from(copy);
        let number = handed.as_raw_fd();
        let (standing, stands) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            own_table(&[handed.as_raw_fd()]).expect("memory");
            standing.send(()).expect("somebody waits");
            let _ = ended.recv();
        });
        stands.recv().expect("it stands");
        close_copies(&[number]);
        TcpStream::connect(address).expect("it listens still");
        drop(end);
        thread.join().expect("no panic");
        TcpStream::connect(address).expect_err("nobody listens any more");
    }
}
