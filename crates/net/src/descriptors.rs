//! File descriptors: the limit of a descriptor table, and threads with a table of their own.
//!
//! The limit on open files (`RLIMIT_NOFILE`) applies to each descriptor *table*, and a thread can
//! have its own table (`unshare(CLONE_FILES)`, unshare(2)). A process whose limit cannot be raised
//! can therefore open as many files as its number of threads times the limit. In addition, the
//! kernel takes no reference to a file for a system call of the only thread that can close it,
//! which saves two atomic operations per call.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use rustix::process::{Resource, getrlimit};

use crate::Waker;
use crate::options::check;

/// Maximum number of files per table. `None` means no limit.
pub fn open_files_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Starts a thread with its own descriptor table, which holds standard input, output and error,
/// `listeners` and `shared`, and nothing else. Threads that it starts share its table; all other
/// threads keep the old one. Returns once the thread has its table.
///
/// `listeners` move to the thread and keep their numbers: they are closed when the thread closes
/// them, because the old table keeps no copy. `shared` are open in both tables, and each holder can
/// use them; when the last holder drops one, the other table keeps a copy until its threads end.
///
/// A descriptor is an index into a table, so an object that owns one must not move from one table
/// to the other: there the number refers to another file, or to none. This function takes care of
/// its arguments. `work` must hold nothing else that owns a descriptor, and none may be sent to or
/// from the thread later.
///
/// # Errors
/// The thread cannot be started. If only its table cannot be created, for lack of memory, `work` is
/// called with the error, and the listeners are closed.
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
        // SAFETY: the thread has just started and holds only `listeners` and `shared`, which are in
        // `keep`. Nothing else in `work` owns a descriptor, as required above.
        let table = unsafe { own_table(&keep) };
        let _ = standing.send(table.is_ok());
        // The wakers must stay open until the table exists.
        drop(shared);
        work(table.map(|()| listeners))
    })?;
    if stands.recv() == Ok(true) {
        // SAFETY: their owners moved to the thread, whose table holds them; it no longer shares
        // this table.
        unsafe { close_copies(&moved) };
    }
    Ok(thread)
}

/// Gives the calling thread its own descriptor table, which holds standard input, output and error
/// and the descriptors in `keep`. Threads that it starts from now on share the table; all other
/// threads keep the old one.
///
/// # Errors
/// The kernel has no memory for a table.
///
/// # Safety
/// All descriptors that the thread holds or will use must be in `keep`. After this call, no object
/// that owns a descriptor may move from one table to the other, in either direction, unless the
/// descriptor is in both: otherwise its number refers to another file, or to none.
unsafe fn own_table(keep: &[RawFd]) -> io::Result<()> {
    // SAFETY: `unshare(CLONE_FILES)` takes no pointer. The caller ensures that descriptors are not
    // mixed up between tables afterwards, as stated.
    check(unsafe { libc::unshare(libc::CLONE_FILES) })?;
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
/// No object of this table may own any of them.
unsafe fn close_copies(copies: &[RawFd]) {
    for &fd in copies {
        // SAFETY: closing takes no pointer. The caller ensures that nothing in this table refers to
        // the descriptor, as stated.
        unsafe { libc::close(fd) };
    }
}

/// Closes an inclusive range of descriptors. A kernel before Linux 5.9 cannot do this and leaves
/// copies open, which end with the thread.
fn close_range(first: u32, last: u32) {
    // SAFETY: closing takes no pointer. The table belongs to this thread, and nothing in it is
    // referenced except the descriptors that were kept.
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
    fn own_table_holds_only_the_kept_descriptors() {
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
    fn moved_listener_closes_with_its_thread() {
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
        // The descriptor's number is free in this table: a file opened next may get it, and must
        // not be closed with the listener.
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
