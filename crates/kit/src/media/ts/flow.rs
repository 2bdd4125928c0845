//! Sender of one transport stream to one group: datagrams at a constant bit rate, each with a
//! stamp.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use serde::Serialize;

use super::stamped_stream::StampedStream;
use crate::media::rtp::header::{FIXED_LENGTH, Header};
use crate::mediagen::ts::looped_stream::{DATAGRAM, DATAGRAM_BITS, LoopedStream};
use crate::mediagen::ts::mux::Steps;
use session::{Flow, FlowPacket, Handover, PacketHeader, Tag};

/// Number of datagrams for which memory is allocated at once.
const TOGETHER: usize = 64;

/// Payload type of transport streams (RFC 3551, table 5).
const PAYLOAD_TYPE: u8 = 33;

/// Settings of a [`TsFlow`].
#[derive(Clone, Debug)]
pub struct TsFlowSettings {
    /// Media to send, in an endless loop.
    pub looped: Arc<LoopedStream>,
    /// Destination, as the stamps state it.
    pub group: SocketAddr,
    /// Number in the stamps that distinguishes runs of a source.
    pub source: u64,
    /// Initial values of a stream over RTP (RFC 2250); `None` for plain UDP.
    pub rtp: Option<RtpStart>,
    /// Wall clock at the start of the run, since 1970.
    pub wall_clock: Duration,
    /// Length of the stream: datagrams that are due within it are sent. `None` for an endless
    /// stream.
    pub length: Option<Duration>,
}

/// Initial values of a stream over RTP (RFC 3550, 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtpStart {
    pub ssrc: u32,
    /// Sequence number of the first datagram.
    pub sequence: u16,
    /// Timestamp of the first datagram.
    pub timestamp: u32,
}

/// Statistics of what was sent to a group: a line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SentStream {
    /// Destination: `udp://GROUP:PORT` or `rtp://GROUP:PORT`.
    pub url: String,
    /// Number in the stamps that distinguishes runs of the source.
    pub source: u64,
    /// Bit rate of the transport packets, stamps included, in bit/s.
    pub bits_per_second: u64,
    /// Datagrams that were due. Their stamps are numbered from 0.
    pub datagrams: u64,
    /// Datagrams that left.
    pub sent: u64,
    /// Datagrams that the network stack did not accept.
    pub refused: u64,
    /// Bytes of the transport packets that left.
    pub bytes: u64,
    /// Due time of the first datagram and departure of the last one, in nanoseconds since 1970;
    /// `None` if none left.
    pub from_to_nanos: Option<(u64, u64)>,
}

/// Sends one transport stream.
#[derive(Debug)]
pub struct TsFlow {
    stream: StampedStream,
    rtp: Option<RtpStart>,
    /// Due time of the first datagram; `None` before the start.
    began: Option<Time>,
    /// Due time of the next datagram, relative to the first, in nanoseconds.
    due: Steps,
    /// RTP timestamp of the next datagram, relative to the first, in ticks of 90 kHz.
    ticks: Steps,
    /// Total number of datagrams.
    total_datagrams: u64,
    rate: u64,
    sent: u64,
    refused: u64,
    last_left: Option<Time>,
}

impl TsFlow {
    pub fn new(settings: TsFlowSettings) -> TsFlow {
        let rate = settings.looped.bits_per_second();
        let count = settings.length.map_or(u64::MAX, |length| {
            let bits = length.as_nanos() * u128::from(rate) / 1_000_000_000;
            u64::try_from(bits.div_ceil(DATAGRAM_BITS.into())).unwrap_or(u64::MAX)
        });
        TsFlow {
            stream: StampedStream::new(
                settings.looped,
                (settings.group, settings.source),
                settings.wall_clock,
                TOGETHER,
            ),
            rtp: settings.rtp,
            began: None,
            due: Steps::new(DATAGRAM_BITS * 1_000_000_000, rate),
            ticks: Steps::new(DATAGRAM_BITS * 90_000, rate),
            total_datagrams: count,
            rate,
            sent: 0,
            refused: 0,
            last_left: None,
        }
    }

    /// Starts at `at`. No effect if the flow has started.
    pub fn start(&mut self, at: Time) {
        self.began.get_or_insert(at);
    }

    /// Time between datagrams.
    pub fn interval(&self) -> Duration {
        Duration::from_nanos(DATAGRAM_BITS * 1_000_000_000 / self.rate)
    }

    /// Returns the RTP header (RFC 3550, 5.1). The timestamp is the send time; it never jumps, so
    /// the marker is never set (RFC 2250, 2).
    fn header(&self, rtp: RtpStart) -> [u8; FIXED_LENGTH] {
        let sequence = rtp.sequence.wrapping_add(self.stream.stamp().number as u16);
        let timestamp = rtp.timestamp.wrapping_add(self.ticks.now as u32);
        Header::new(PAYLOAD_TYPE, sequence, timestamp, rtp.ssrc).to_bytes()
    }

    /// Statistics of what was sent so far.
    pub fn statistics(&self) -> SentStream {
        let scheme = if self.rtp.is_some() { "rtp" } else { "udp" };
        let stamp = self.stream.stamp();
        let nanos = |time: Time| self.stream.nanos_at(time);
        SentStream {
            url: format!("{scheme}://{}", stamp.group),
            source: stamp.source,
            bits_per_second: self.rate,
            datagrams: stamp.number,
            sent: self.sent,
            refused: self.refused,
            bytes: self.sent * DATAGRAM as u64,
            from_to_nanos: self
                .began
                .zip(self.last_left)
                .map(|(from, to)| (nanos(from), nanos(to))),
        }
    }
}

impl Flow for TsFlow {
    #[inline]
    fn next_due(&self) -> Option<Time> {
        let began = self
            .began
            .filter(|_| self.stream.stamp().number < self.total_datagrams)?;
        Some(began + Duration::from_nanos(self.due.now))
    }

    #[inline]
    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        let due = self.next_due().filter(|&due| due <= now)?;
        let tag = Tag(self.stream.stamp().number);
        let header = match self.rtp {
            Some(rtp) => PacketHeader::EMPTY.append(&self.header(rtp)),
            None => PacketHeader::EMPTY,
        };
        let payload = self.stream.next(due).freeze();
        self.due.advance();
        self.ticks.advance();
        Some(FlowPacket {
            due,
            header,
            payload,
            tag,
        })
    }

    #[inline]
    fn packet_sent(&mut self, _: Tag, left: Option<Handover>) {
        match left {
            Some(left) => {
                self.sent += 1;
                self.last_left = Some(left.ended);
            }
            None => self.refused += 1,
        }
    }

    // Transport streams are few and fast, and are sent for their even spacing.
    fn wants_even_spacing(&self) -> bool {
        true
    }
}

#[cfg(test)]
pub(super) mod tests;
