//! What decoders cost, counted in bytes that they look at, so that tests can demand that it grows
//! no faster than what is decoded. Only debug builds for tests count: a benchmark that is built with
//! the tests' features is as fast as the command.

/// Counts so many bytes as looked at or moved. Called by decoders wherever they visit bytes.
#[inline(always)]
pub fn took(bytes: usize) {
    #[cfg(all(any(test, feature = "testing"), debug_assertions))]
    TAKEN.with(|taken| taken.set(taken.get() + bytes as u64));
    #[cfg(not(all(any(test, feature = "testing"), debug_assertions)))]
    let _ = bytes;
}

/// The place of the first `wanted` in `bytes`; each byte up to it counts as looked at.
#[inline(always)]
pub fn find(bytes: &[u8], wanted: u8) -> Option<usize> {
    let found = bytes.iter().position(|&byte| byte == wanted);
    took(found.map_or(bytes.len(), |at| at + 1));
    found
}

#[cfg(any(test, feature = "testing"))]
thread_local! {
    static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How many steps `work` takes.
#[cfg(any(test, feature = "testing"))]
pub fn of(work: impl FnOnce()) -> u64 {
    let before = TAKEN.with(std::cell::Cell::get);
    work();
    TAKEN.with(std::cell::Cell::get) - before
}

/// Demands that reading is linear: `read` is given the input that `make` makes of a size, as a
/// whole and in pieces of several lengths. It may take at most `per_byte` steps for each byte, and
/// for twice the input not much more than twice the steps.
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
        // What is repeated in it need not fit the size.
        assert!(
            second <= first * 5 / 2 + 2 * all,
            "{what} in pieces of {piece}: {first} steps, and {second} for twice as much"
        );
    }
}
