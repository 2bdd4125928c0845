//! Checks of keys that several protocols have.

#![deny(missing_docs)]

use measure::units::TimeSpan;

/// A key with an invalid value, and the reason.
pub type KeyError = (&'static str, String);

/// Checks that times are longer than zero.
///
/// # Errors
/// The first key whose time is zero.
pub fn check_positive<const N: usize>(
    times: [(&'static str, TimeSpan); N],
) -> Result<(), KeyError> {
    let zero = times.into_iter().find(|(_, time)| time.0.is_zero());
    zero.map_or(Ok(()), |(key, _)| {
        Err((key, format!("`{key}` must be longer than 0s")))
    })
}
