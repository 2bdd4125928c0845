//! Prefetches memory into the processor's caches.
//!
//! With thousands of streams, the state of a stream has left the processor's caches when its next
//! packet arrives, and packets that the kernel put into a ring are in the caches of another
//! processor. Fetching them takes as long as counting a packet, unless they are prefetched while
//! another packet is counted.

/// Size of a cache line in bytes.
const CACHE_LINE_BYTES: usize = 64;

/// Prefetches all memory of `value`, but not what it points to. Does nothing on other architectures
/// than x86_64.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    let begin = std::ptr::from_ref(value).cast::<u8>();
    for at in (0..size_of_val(value)).step_by(CACHE_LINE_BYTES) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is a hint. It has no effect that the program could observe, and never
        // faults, whatever the address; the instruction exists in every processor with SSE, and
        // therefore on x86_64. `wrapping_add` may point anywhere.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(begin.wrapping_add(at).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (begin, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetch_changes_nothing() {
        prefetch(&());
        prefetch::<[u8]>(&[]);
        let bytes = vec![7u8; 1000];
        prefetch(bytes.as_slice());
        assert!(bytes.iter().all(|&byte| byte == 7));
    }
}
