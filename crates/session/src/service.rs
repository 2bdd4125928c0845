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

/// Judgement of a viewer: served well, or the first cause why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Served well.
    Well,
    /// The client failed.
    Failed,
    /// The first media arrived too late, or never.
    StartedLate,
    /// The stalls were too long.
    Stalled,
    /// Too much was lost.
    Loss,
}

impl Service {
    /// Judges the viewer. `failed` is true if its client failed. `None` if the viewer ended before
    /// its media was due.
    pub fn judgement(self, failed: bool) -> Option<Judgement> {
        Some(match self.start {
            _ if failed => Judgement::Failed,
            Start::Unknown => return None,
            Start::Late => Judgement::StartedLate,
            Start::InTime if self.stalled => Judgement::Stalled,
            Start::InTime if self.lossy => Judgement::Loss,
            Start::InTime => Judgement::Well,
        })
    }
}

// Every client has one at its end.
const _: () = assert!(size_of::<Service>() <= 4);
