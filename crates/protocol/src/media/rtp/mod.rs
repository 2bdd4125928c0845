//! RTP (RFC 3550): receivers that measure, and senders.

pub mod faults;
pub mod flow;
pub mod header;
mod live;
pub mod metrics;
mod outage;
mod playout;
pub mod receiver;
mod report;
mod sequence;
mod served;
mod summary;
mod talking;

pub use flow::{Clip, Course, Faults, FlowSettings, Pacing, RtpFlow};
pub use live::{LiveFlow, LiveSettings};
pub use receiver::{Position, ReceiverConfig, RtpReceiver, StreamCounts};
pub use report::REPORT_EVERY;
pub use served::{Departure, ServedStream};
pub use summary::{RTP_COLUMNS, StreamSummary, TS_COLUMNS};
pub(crate) use talking::{TalkFlow, TalkSettings, VOICE};

use crate::media::shared::figures;
use crate::session::{MediaMark, Needs};
use metrics as m;

/// Distinguishes RTP from everything else on a port: STUN, DTLS and the like (RFC 7983, 7), and
/// RTCP (RFC 5761, 4).
pub const MARK: MediaMark = MediaMark {
    first: [128, 191],
    but_second: Some([192, 223]),
};

/// Shared measurements of RTP streams, kept in the metrics of [`metrics`].
struct Rtp;

figures!(Rtp);

/// Parts of a packet that an [`RtpReceiver`] reads (RFC 3550, 5.1). For padding (P) it needs the
/// last byte, which contains the padding length. Without contributing sources (CC) and extension
/// (X) the fixed header is sufficient.
pub const NEEDS: Needs = Needs {
    within: None,
    all: false,
    whole_if: 0x20,
    whole_sample: None,
    more_if: 0x1f,
    first: header::FIXED_LENGTH as u8,
};
