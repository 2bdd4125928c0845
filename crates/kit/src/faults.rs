//! Deliberate faults of a reference server, as they are written after `--fault`: `NAME=VALUE`, or
//! the name alone.

#![deny(missing_docs)]

use std::time::Duration;

use measure::units::{Ratio, TimeSpan};

/// The faults of one server. None by default.
pub trait FaultSet: Default {
    /// Returns an example of each fault.
    fn known() -> Vec<&'static str>;

    /// Sets the fault `name`; `value` is empty if there is none. Returns `None` if no fault has
    /// this name.
    fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>>;

    /// Adds a fault. Unless the server says otherwise, it replaces an earlier one of its name.
    ///
    /// # Errors
    /// The fault is unknown (the text lists the known ones), or its value is invalid.
    fn add(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let result = self.set(name.trim(), value.trim()).unwrap_or_else(|| {
            let known = listed(Self::known());
            Err(format!("unknown fault; known faults are {known}"))
        });
        result.map_err(|error| format!("fault `{text}`: {error}"))
    }

    /// Reads the values of `--fault`.
    ///
    /// # Errors
    /// Those of [`FaultSet::add`].
    fn read(texts: &[String]) -> Result<Self, String> {
        let mut faults = Self::default();
        texts.iter().try_for_each(|text| faults.add(text))?;
        Ok(faults)
    }
}

/// Reads a time, such as `5s`.
///
/// # Errors
/// The text is not a time.
pub fn time(text: &str) -> Result<Duration, String> {
    let span = text.parse::<TimeSpan>();
    span.map(|span| span.0).map_err(|error| error.to_string())
}

/// Reads a share of at most 100 %, such as `1%`, as a number from 0 to 1.
///
/// # Errors
/// The text is not a share.
pub fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<Ratio>();
    share
        .map(|share| share.0)
        .map_err(|error| error.to_string())
}

/// Reads a start and a length, such as `5s+1s`.
///
/// # Errors
/// The text has another form.
pub fn start_and_length(text: &str) -> Result<(Duration, Duration), String> {
    let parts = text.split_once('+');
    let (start, length) = parts.ok_or("write a start and a length, such as `stall=5s+1s`")?;
    Ok((time(start)?, time(length)?))
}

/// Returns the item named `value`.
///
/// # Errors
/// There is none of that name; the text lists the names.
pub fn one_of<T: Copy>(all: &[(&'static str, T)], value: &str) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == value);
    found.map(|(_, fault)| *fault).ok_or_else(|| {
        let names = all.iter().map(|(name, _)| *name);
        format!("must be one of {}", listed(names))
    })
}

/// Lists names in a text.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
