//! RTP (RFC 3550): receivers that measure, and senders.

mod encoder_flow;
pub mod faults;
pub mod flow;
mod frame_assembler;
pub mod header;
mod key_frame;
pub mod metrics;
mod outage;
pub mod receiver;
mod report;
mod sequence;
mod served_stream;
mod summary;
mod tag;
mod talk_flow;

pub use encoder_flow::{EncoderFlow, EncoderFlowSettings};
pub use flow::{Clip, Faults, FlowSettings, Pacing, Playback, RtpFlow};
pub use key_frame::VideoCodec;
pub use receiver::{PositionStatement, ReceiverConfig, RtpReceiver, StreamCounts};
pub use report::REPORT_INTERVAL;
pub use served_stream::{Departure, ServedStream};
pub use summary::{RTP_COLUMNS, StreamSummary, TS_COLUMNS, TsSummary, summaries};
pub use talk_flow::{TalkFlow, TalkSettings, VOICE_FLAG};

use crate::media::shared::figures;
use metrics as m;
use session::CaptureNeeds;

/// Shared measurements of RTP streams, kept in the metrics of [`metrics`].
struct RtpMetrics;

figures!(RtpMetrics);

/// Parts of a packet that an [`RtpReceiver`] reads (RFC 3550, 5.1). For padding (P) it needs the
/// last byte, which contains the padding length. Without contributing sources (CC) and extension
/// (X) the fixed header is sufficient.
pub const READ_NEEDS: CaptureNeeds = CaptureNeeds {
    delay_max: None,
    all: false,
    whole_if: 0x20,
    whole_sample: None,
    longer_if: 0x1f,
    prefix_bytes: header::FIXED_LENGTH as u8,
};
