//! Asks for memory before it is needed, without waiting for it.
//!
//! With thousands of streams, what is known of one is out of the processor's caches when its next
//! packet comes; and what the kernel has put into a ring is in the caches of another processor. To
//! fetch it takes as long as to count a packet, unless it is asked for while another packet is
//! counted.

/// The part of memory that is fetched at once.
const LINE: usize = 64;

/// Asks for all the memory that `value` is in, but not what it points to. Does nothing where it is
/// not known how.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    let begin = std::ptr::from_ref(value).cast::<u8>();
    for at in (0..size_of_val(value)).step_by(LINE) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is a hint. It reads nothing that the program could see, and never
        // faults, whatever the address; the instruction is in every processor with SSE, which
        // x86_64 has. `wrapping_add` may point anywhere.
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
    fn it_changes_nothing_whatever_it_is_asked_for() {
        prefetch(&());
        prefetch::<[u8]>(&[]);
        let bytes = vec![7u8; 1000];
        prefetch(bytes.as_slice());
        assert!(bytes.iter().all(|&byte| byte == 7));
    }
}
