//! What receivers of all kinds of media measure alike: of packets of RTP, of frames, of transport
//! streams.

use measure::{CounterId, HistogramId};

mod arrivals;
mod codes;
mod jitter;
mod playing;

pub(crate) use arrivals::Arrivals;
pub(crate) use codes::Codes;
pub(crate) use jitter::Jitter;
pub(crate) use playing::Playing;

/// Where in a population's recorder these figures are kept. Each kind of media has a group of
/// metrics of its own, in which they have the same names.
pub(crate) trait Figures {
    const FRAMES: CounterId;
    const STALLS: CounterId;
    const FRAMES_PUBLISHED: CounterId;
    const FRAMES_DELIVERED: CounterId;
    const TIME_CODES_AHEAD: CounterId;
    const JITTER: HistogramId;
    const EARLY: HistogramId;
    const LATENESS: HistogramId;
    const LONGEST_GAP: HistogramId;
    const PLAYOUT_BUFFER: HistogramId;
    const STALL_TIME: HistogramId;
    const FRAME_DELAY: HistogramId;
}

/// Implements [`Figures`] for a type by the constants of a module `m`.
macro_rules! figures {
    ($Name:ident) => {
        impl $crate::media::shared::Figures for $Name {
            const FRAMES: measure::CounterId = m::FRAMES;
            const STALLS: measure::CounterId = m::STALLS;
            const FRAMES_PUBLISHED: measure::CounterId = m::FRAMES_PUBLISHED;
            const FRAMES_DELIVERED: measure::CounterId = m::FRAMES_DELIVERED;
            const TIME_CODES_AHEAD: measure::CounterId = m::TIME_CODES_AHEAD;
            const JITTER: measure::HistogramId = m::JITTER;
            const EARLY: measure::HistogramId = m::EARLY;
            const LATENESS: measure::HistogramId = m::LATENESS;
            const LONGEST_GAP: measure::HistogramId = m::LONGEST_GAP;
            const PLAYOUT_BUFFER: measure::HistogramId = m::PLAYOUT_BUFFER;
            const STALL_TIME: measure::HistogramId = m::STALL_TIME;
            const FRAME_DELAY: measure::HistogramId = m::FRAME_DELAY;
        }
    };
}

pub(crate) use figures;

/// Nanoseconds of one unit of a media's clock. A description may state a clock of 0 Hz: that is 0,
/// and nothing can be measured in it.
fn unit(clock_rate: u32) -> f64 {
    match clock_rate {
        0 => 0.0,
        _ => 1e9 / f64::from(clock_rate),
    }
}
