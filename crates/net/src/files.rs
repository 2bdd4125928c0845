//! File descriptors: how many a thread may have, and a table of its own for each that needs many.
//!
//! The limit on open files (`RLIMIT_NOFILE`) is a limit on each *table* of descriptors, and a
//! thread can have one to itself (`unshare(CLONE_FILES)`, unshare(2)). So a process whose limit
//! cannot be raised still opens as many as it has threads times the limit; and the kernel, which
//! takes no reference to a file for a system call of the only thread that can close it, spares two
//! atomic operations on each.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use rustix::process::{Resource, getrlimit};

use crate::Waker;

/// How many files a table may hold. `None` is without limit.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Starts a thread that has a table of descriptors of its own: standard input, output and error,
/// `listeners` and `shared`, and nothing else. Threads that it starts share its table; all others
/// keep the old one. Returns when it has its table.
///
/// `listeners` move to the thread, which is handed them with their numbers: they close when it
/// closes them, and no copy stays behind. `shared` are open in both tables, and each holder can use
/// them; when the last one goes, the other table keeps a copy until its threads end.
///
/// A descriptor is a number in a table, so an object that owns one must not cross from one table to
/// the other: elsewhere the number means another file, or none. For what is listed here that is
/// seen to. `work` must hold nothing else that owns a descriptor, and none may be sent to or from
/// the thread later.
///
/// # Errors
/// The thread cannot be started. Where only its table cannot be had, for want of memory, `work` is
/// called with the error, and listeners are closed.
pub fn spawn_with_own_table<T: Send + 'static>(
    thread: Builder,
    listeners: Vec<TcpListener>,
    shared: Vec<Arc<Waker>>,
    work: impl FnOnce(io::Result<Vec<TcpListener>>) -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let moved: Vec<RawFd> = listeners.iter().map(AsRawFd::as_raw_fd).collect();
    let keep: Vec<RawFd> = shared
        .iter()
        .map(|waker| waker.as_raw_fd())
        .chain(moved.iter().copied())
        .collect();
    let (standing, stands) = mpsc::channel();
    let thread = thread.spawn(move || {
        // SAFETY: the thread has just begun and holds `listeners` and `shared` alone, which are in
        // `keep`. What else `work` holds owns no descriptors, as is demanded above.
        let table = unsafe { own_table(&keep) };
        let _ = standing.send(table.is_ok());
        // They must be open until the table is there.
        drop(shared);
        work(table.map(|()| listeners))
    })?;
    if stands.recv() == Ok(true) {
        // SAFETY: their owners went to the thread, whose table has them; it no longer shares this
        // one.
        unsafe { close_copies(&moved) };
    }
    Ok(thread)
}

/// Gives the calling thread a table of descriptors of its own, with standard input, output and
/// error and those of `keep` in it. Threads that it starts from now on share it; all others keep
/// the old one.
///
/// # Errors
/// The kernel refuses: there is no memory for a table.
///
/// # Safety
/// All descriptors that the thread holds or will use must be in `keep`, and no object that owns one
/// may cross from one table to the other after this, in either direction, unless it is in both:
/// elsewhere its number means another file, or none.
unsafe fn own_table(keep: &[RawFd]) -> io::Result<()> {
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

/// Closes these descriptors in the calling thread's table.
///
/// # Safety
/// No object of this table owns any of them.
unsafe fn close_copies(copies: &[RawFd]) {
    for &fd in copies {
        // SAFETY: closing has no memory to be given. That nothing in this table refers to the
        // descriptor is the caller's duty, as stated.
        unsafe { libc::close(fd) };
    }
}

/// Closes a range of descriptors, both ends included. A kernel that cannot (before Linux 5.9)
/// leaves copies open, which end with the thread.
fn close_range(first: u32, last: u32) {
    // SAFETY: closing has no memory to be given. This table is the thread's own, and nothing in it
    // but what was kept is referred to.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpStream};
    use std::os::fd::AsFd;

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        (listener, address)
    }

    #[test]
    fn a_table_of_its_own_holds_what_is_kept_and_nothing_else() {
        let (listener, address) = listener();
        let waker = Arc::new(Waker::new().expect("a descriptor"));
        let numbers = [listener.as_raw_fd(), waker.as_raw_fd()];
        let theirs = waker.clone();
        let builder = Builder::new();
        let thread = spawn_with_own_table(builder, vec![listener], vec![waker], move |listeners| {
            let listeners = listeners.expect("memory");
            let files = std::fs::read_dir("/proc/thread-self/fd").expect("proc");
            let open: Vec<String> = files
                .map(|file| {
                    file.expect("proc")
                        .file_name()
                        .to_string_lossy()
                        .into_owned()
                })
                .collect();
            for number in numbers {
                assert!(open.contains(&number.to_string()), "{open:?}");
            }
            assert!(
                open.len() <= 6,
                "three, the two kept and the folder: {open:?}"
            );
            theirs.wake();
            let _ = listeners[0].accept().expect("somebody comes");
        });
        let thread = thread.expect("a thread");
        TcpStream::connect(address).expect("it listens");
        thread.join().expect("no panic");
    }

    #[test]
    fn what_was_handed_over_ends_with_the_thread_that_has_it() {
        let (listener, address) = listener();
        let number = listener.as_raw_fd();
        let (end, ended) = mpsc::channel::<()>();
        let builder = Builder::new();
        let thread = spawn_with_own_table(builder, vec![listener], Vec::new(), move |listeners| {
            let listeners = listeners.expect("memory");
            let _ = ended.recv();
            drop(listeners);
        });
        let thread = thread.expect("a thread");
        TcpStream::connect(address).expect("it listens still");
        // Its number is free here: the next that is opened may have it, and is not closed with the
        // listener.
        let opened: Vec<std::fs::File> =
            std::iter::repeat_with(|| std::fs::File::open("/proc/self/status").expect("proc"))
                .take(200)
                .collect();
        drop(end);
        thread.join().expect("no panic");
        TcpStream::connect(address).expect_err("nobody listens any more");
        let has_it = |file: &std::fs::File| file.as_raw_fd() == number;
        if let Some(file) = opened.iter().find(|file| has_it(file)) {
            file.as_fd().try_clone_to_owned().expect("it is open still");
        }
    }
}
