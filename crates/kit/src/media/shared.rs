//! Measurements that receivers of all kinds of media share: RTP packets, frames, and transport
//! streams.

use measure::{CounterId, HistogramId};

mod arrivals;
mod jitter;
mod playout_model;
mod time_codes;

pub use arrivals::Arrivals;
pub(crate) use jitter::Jitter;
pub(crate) use playout_model::PlayoutModel;
pub(crate) use time_codes::TimeCodes;

/// Metrics of these measurements in a population's recorder. Each kind of media has its own group
/// of metrics, in which they have the same names.
pub(crate) trait SharedMetrics: TimeCodeMetrics {
    const FRAMES: CounterId;
    const STALLS: CounterId;
    const JITTER: HistogramId;
    const EARLY: HistogramId;
    const LATENESS: HistogramId;
    const PLAYOUT_BUFFER: HistogramId;
    const STALL_TIME: HistogramId;
}

/// Metrics of the time codes of frames.
pub(crate) trait TimeCodeMetrics {
    const FRAMES_PUBLISHED: CounterId;
    const FRAMES_DELIVERED: CounterId;
    const TIME_CODES_AHEAD: CounterId;
    const FRAME_DELAY: HistogramId;
}

/// Implements [`TimeCodeMetrics`] for a type, with the constants of a module `m`.
macro_rules! time_code_metrics {
    ($Name:ident) => {
        impl $crate::media::shared::TimeCodeMetrics for $Name {
            const FRAMES_PUBLISHED: measure::CounterId = m::FRAMES_PUBLISHED;
            const FRAMES_DELIVERED: measure::CounterId = m::FRAMES_DELIVERED;
            const TIME_CODES_AHEAD: measure::CounterId = m::TIME_CODES_AHEAD;
            const FRAME_DELAY: measure::HistogramId = m::FRAME_DELAY;
        }
    };
}

/// Implements [`SharedMetrics`] for a type, with the constants of a module `m`.
macro_rules! figures {
    ($Name:ident) => {
        $crate::media::shared::time_code_metrics!($Name);

        impl $crate::media::shared::SharedMetrics for $Name {
            const FRAMES: measure::CounterId = m::FRAMES;
            const STALLS: measure::CounterId = m::STALLS;
            const JITTER: measure::HistogramId = m::JITTER;
            const EARLY: measure::HistogramId = m::EARLY;
            const LATENESS: measure::HistogramId = m::LATENESS;
            const PLAYOUT_BUFFER: measure::HistogramId = m::PLAYOUT_BUFFER;
            const STALL_TIME: measure::HistogramId = m::STALL_TIME;
        }
    };
}

/// Declares the counters of a stream, each of which counts the same as a metric of a module `m`.
/// Other fields may follow behind a semicolon.
macro_rules! stream_counts {
    (
        $(#[$meta:meta])*
        $Name:ident { $($field:ident: $METRIC:ident),+ $(,)? $(; $($others:tt)+)? }
    ) => {
        $(#[$meta])*
        pub struct $Name {
            $(#[doc = concat!("See [`m::", stringify!($METRIC), "`].")] pub $field: u64,)+
            $($($others)+)?
        }

        impl $Name {
            /// Adds the counters of another stream.
            pub fn add(&mut self, other: &$Name) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

pub(crate) use {figures, stream_counts, time_code_metrics};

/// Nanoseconds per unit of a media clock. Returns 0 for a clock of 0 Hz, which a description may
/// state and with which nothing can be measured.
fn nanos_per_tick(clock_rate: u32) -> f64 {
    match clock_rate {
        0 => 0.0,
        _ => 1e9 / f64::from(clock_rate),
    }
}
