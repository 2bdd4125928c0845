//! Exit of a process that runs out of memory.

use std::alloc::{GlobalAlloc, Layout};

/// The system's allocator. That of musl has one lock for all threads, so mimalloc takes its place.
#[cfg(not(target_env = "musl"))]
static ALLOCATOR: std::alloc::System = std::alloc::System;
#[cfg(target_env = "musl")]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Allocator that ends the process with this exit code, and prints why, if no memory is
/// left. The standard library would abort instead.
///
/// Fallible allocations, such as [`Vec::try_reserve`], end the process too.
#[derive(Debug)]
pub struct ExitOnOutOfMemory(pub i32);

// SAFETY: each call is passed to `ALLOCATOR` unchanged, and its result is returned
// unless it is null.
unsafe impl GlobalAlloc for ExitOnOutOfMemory {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `alloc`.
        let memory = unsafe { ALLOCATOR.alloc(layout) };
        if memory.is_null() {
            self.exit();
        }
        memory
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        let memory = unsafe { ALLOCATOR.alloc_zeroed(layout) };
        if memory.is_null() {
            self.exit();
        }
        memory
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `realloc`.
        let memory = unsafe { ALLOCATOR.realloc(memory, layout, size) };
        if memory.is_null() {
            self.exit();
        }
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { ALLOCATOR.dealloc(memory, layout) }
    }
}

impl ExitOnOutOfMemory {
    #[cold]
    fn exit(&self) -> ! {
        const TEXT: &str = "Error: out of memory. The run file, if there is one, keeps what was \
                            measured so far. Raise the memory limit (ulimit -v, cgroup), or run \
                            fewer clients.\n";
        // SAFETY: the text is valid for the read, neither call needs memory, and `_exit` may be
        // called at any time. A failed write changes nothing.
        unsafe {
            libc::write(libc::STDERR_FILENO, TEXT.as_ptr().cast(), TEXT.len());
            libc::_exit(self.0)
        }
    }
}
