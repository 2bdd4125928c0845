//! Exit of a process that runs out of memory.

use std::alloc::{GlobalAlloc, Layout, System};

/// System allocator that ends the process with this exit code, and prints why, if no memory is
/// left. The standard library would abort instead.
///
/// Fallible allocations, such as [`Vec::try_reserve`], end the process too.
#[derive(Debug)]
pub struct ExitOnOutOfMemory(pub i32);

// SAFETY: each call is passed to the system's allocator unchanged, and its result is returned
// unless it is null.
unsafe impl GlobalAlloc for ExitOnOutOfMemory {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `alloc`.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() {
            self.exit();
        }
        memory
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if memory.is_null() {
            self.exit();
        }
        memory
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `realloc`.
        let memory = unsafe { System.realloc(memory, layout, size) };
        if memory.is_null() {
            self.exit();
        }
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
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
