//! How well a session that receives media was served.

/// How well a viewer was served, apart from a failure, which the engine knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Start of its media.
    pub start: Start,
    /// True if it stalled for longer than allowed.
    pub stalled: bool,
    /// True if it lost more than allowed.
    pub lossy: bool,
}

/// Start of a viewer's media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// As soon as required.
    InTime,
    /// Later than allowed, or never.
    Late,
    /// The viewer ended before its media was due.
    Unknown,
}

// Every client has one at its end.
const _: () = assert!(size_of::<Service>() <= 4);
