//! Times from which the delays of a start are measured.

use measure::Time;

/// Times of a start.
#[derive(Debug, Default)]
pub(super) struct StartTimes {
    /// Time when the first request was due.
    pub(super) due: Time,
    /// Time when the client started.
    pub(super) started: Time,
    pub(super) play_sent: Option<Time>,
    pub(super) play_answered: Option<Time>,
    /// Arrival time of the first packet of any stream.
    pub(super) first_media: Option<Time>,
    /// True after a channel change: the delays of a start are not measured.
    pub(super) is_later_channel: bool,
}
