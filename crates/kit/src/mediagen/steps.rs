//! Cost of decoders, counted in bytes that they examine, so that tests can check that it grows
//! linearly with the input. Only debug builds for tests count: a benchmark built with the tests'
//! features is as fast as the released program.

/// Counts `bytes` bytes as examined or moved. Decoders call it wherever they visit bytes.
#[inline(always)]
pub fn count_bytes(bytes: usize) {
    #[cfg(all(any(test, feature = "testing"), debug_assertions))]
    EXAMINED.with(|taken| taken.set(taken.get() + bytes as u64));
    #[cfg(not(all(any(test, feature = "testing"), debug_assertions)))]
    let _ = bytes;
}

/// Returns the position of the first `wanted` in `bytes`. Each byte up to it counts as examined.
#[inline(always)]
pub fn find(bytes: &[u8], wanted: u8) -> Option<usize> {
    let found = bytes.iter().position(|&byte| byte == wanted);
    count_bytes(found.map_or(bytes.len(), |at| at + 1));
    found
}

#[cfg(any(test, feature = "testing"))]
thread_local! {
    static EXAMINED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Number of steps that `work` takes.
#[cfg(any(test, feature = "testing"))]
pub fn of(work: impl FnOnce()) -> u64 {
    let before = EXAMINED.with(std::cell::Cell::get);
    work();
    EXAMINED.with(std::cell::Cell::get) - before
}

/// Asserts that decoding is linear. `read` receives the input that `make` returns for a size, as a
/// whole and in pieces of several lengths. It may take at most `per_byte` steps per byte, and not
/// much more than twice the steps for twice the input.
#[cfg(any(test, feature = "testing"))]
pub fn assert_linear(
    what: &str,
    per_byte: u64,
    make: impl Fn(usize) -> Vec<u8>,
    read: impl Fn(&mut dyn Iterator<Item = &[u8]>),
) {
    const SIZE: usize = 16 * 1024;
    let (once, twice) = (make(SIZE), make(2 * SIZE));
    for piece in [usize::MAX, 1400, 7, 1] {
        let steps = |input: &[u8]| of(|| read(&mut input.chunks(piece.min(input.len()))));
        let (first, second) = (steps(&once), steps(&twice));
        let all = twice.len() as u64;
        assert!(
            first > 0 && second <= per_byte * all,
            "{what} in pieces of {piece}: {second} steps for {all} bytes"
        );
        // Repeated content need not divide the size evenly.
        assert!(
            second <= first * 5 / 2 + 2 * all,
            "{what} in pieces of {piece}: {first} steps, and {second} for twice as much"
        );
    }
}
