//! Sender of an encoder's stream: each picture is chosen when it is due, as the receivers request.

use std::time::Duration;

use crate::mediagen::ladder::{Encoder, Picture};
use crate::mediagen::time_code::TimeCode;
use bytes::Bytes;
use measure::Time;

use super::flow::{Pacing, nanos, ticks};
use super::header::Header;
use super::report::ReportedSource;
use super::served_stream::DepartureCounter;
use session::{Flow, FlowPacket, Handover, PacketHeader, Tag};

/// Settings of a [`EncoderFlow`].
#[derive(Debug)]
pub struct EncoderFlowSettings {
    pub encoder: Encoder,
    pub pacing: Pacing,
    pub ssrc: u32,
    /// Sequence number of the first packet.
    pub first_seq: u16,
    /// RTP timestamp of the first picture.
    pub first_timestamp: u32,
}

/// Sends one stream of pictures, at the picture rate of the encoder.
#[derive(Debug)]
pub struct EncoderFlow {
    settings: EncoderFlowSettings,
    began: Option<Time>,
    stopped: bool,
    /// Picture that is being sent, and the index of its next packet. `None` until the first packet
    /// is due: requests up to then apply to the picture.
    picture: Option<(Picture, u32)>,
    /// Number of pictures that were handed out completely, and number of packets.
    pictures: u64,
    packets: u64,
    /// Wall clock at the start of the run, in nanoseconds since 1970. `None` without time codes.
    wall_clock_origin: Option<u64>,
    tally: DepartureCounter,
}

/// A tag contains the payload length above the packet number.
const TAG_LENGTH_SHIFT: u32 = 46;

/// Tag of a packet that is never sent twice.
pub(super) fn make_tag(number: u64, length: usize) -> Tag {
    Tag((length as u64) << TAG_LENGTH_SHIFT | number << 2)
}

/// Returns the part of such a tag that contains the packet number, for [`DepartureCounter`].
pub(super) fn tag_number(tag: Tag) -> Tag {
    Tag(tag.0 & ((1 << TAG_LENGTH_SHIFT) - 1))
}

/// Returns the payload length in such a tag.
pub(super) fn tag_length(tag: Tag) -> u64 {
    tag.0 >> TAG_LENGTH_SHIFT
}

impl EncoderFlow {
    pub fn new(settings: EncoderFlowSettings) -> EncoderFlow {
        EncoderFlow {
            settings,
            began: None,
            stopped: false,
            picture: None,
            pictures: 0,
            packets: 0,
            wall_clock_origin: None,
            tally: DepartureCounter::default(),
        }
    }

    /// Fills in the time codes for which pictures have room. `wall_clock` is the wall clock at the
    /// start of the run, since 1970.
    pub fn with_time_codes(mut self, wall_clock: Duration) -> EncoderFlow {
        self.wall_clock_origin = Some(nanos(wall_clock));
        self
    }

    /// Starts at `at`.
    pub fn start(&mut self, at: Time) {
        self.began = Some(at);
    }

    /// Stops sending.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Makes the next picture a key frame; see [`Encoder::key_frame`].
    pub fn key_frame(&mut self) {
        self.settings.encoder.key_frame();
    }

    /// Sets the bit rate from the next picture on; see [`Encoder::set_bitrate`]. Returns the bit
    /// rate that is used, in bit/s.
    pub fn set_bitrate(&mut self, bits_per_second: u64) -> u64 {
        self.settings.encoder.set_bitrate(bits_per_second)
    }

    /// Number of key frames so far that came before the end of their GOP.
    pub fn early_key_frames(&self) -> u64 {
        self.settings.encoder.early_key_frames()
    }

    /// Number of pictures that were handed out completely.
    pub fn pictures_sent(&self) -> u64 {
        self.pictures
    }

    /// Number of packets that left, and their payload bytes.
    pub fn sent(&self) -> (u64, u64) {
        self.tally.sent_with_copies()
    }

    /// Number of due packets so far that the network stack did not accept.
    pub fn rejected(&self) -> u64 {
        self.tally.not_taken
    }

    /// Returns a report on the packets that left so far; see [`super::RtpFlow::report`].
    pub fn report(&self, now: Time, wall_clock: Duration, name: &str, goodbye: bool) -> Vec<u8> {
        let played = now.since(self.began.unwrap_or(now));
        let ticks = ticks(played, self.settings.encoder.clip().clock_rate());
        let about = ReportedSource {
            ssrc: self.settings.ssrc,
            timestamp: self.settings.first_timestamp.wrapping_add(ticks),
            sent: self.sent(),
        };
        about.report(wall_clock + now.since_start(), name, goodbye)
    }

    /// Due time of the next packet.
    fn due(&self) -> Option<Time> {
        let began = self.began.filter(|_| !self.stopped)?;
        let at = |picture| self.settings.encoder.clip().nanos(picture);
        let mut nanos = at(self.pictures);
        if let (Pacing::Spread, Some((picture, part))) = (self.settings.pacing, self.picture) {
            let span = at(self.pictures + 1) - nanos;
            nanos += span * u64::from(part) / u64::from(picture.packets());
        }
        Some(began + Duration::from_nanos(nanos))
    }

    fn payload(&self, picture: &Picture, part: u32, due: Time) -> Bytes {
        let packet = self.settings.encoder.packet(picture, part);
        let (Some(began), Some(offset)) = (self.wall_clock_origin, packet.code_at) else {
            return packet.payload.clone();
        };
        let code = TimeCode {
            source: self.settings.ssrc,
            number: self.pictures as u32,
            nanos: began.wrapping_add(due.as_nanos()),
        };
        code.put_into(&packet.payload, offset.into())
    }
}

impl Flow for EncoderFlow {
    #[inline]
    fn next_due(&self) -> Option<Time> {
        self.due()
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        let due = self.due().filter(|due| *due <= now)?;
        let encoder = &mut self.settings.encoder;
        let (picture, part) = *self
            .picture
            .get_or_insert_with(|| (encoder.next_picture(), 0));
        let clip = self.settings.encoder.clip();
        let timestamp = self
            .settings
            .first_timestamp
            .wrapping_add(clip.ticks(self.pictures));
        let seq = self.settings.first_seq.wrapping_add(self.packets as u16);
        let mut header = Header::new(clip.payload_type(), seq, timestamp, self.settings.ssrc);
        header.marker = self.settings.encoder.packet(&picture, part).marker;
        let payload = self.payload(&picture, part, due);
        let tag = make_tag(self.packets, payload.len());
        self.packets += 1;
        self.picture = Some((picture, part + 1)).filter(|_| part + 1 < picture.packets());
        if self.picture.is_none() {
            self.pictures += 1;
        }
        Some(FlowPacket {
            due,
            header: PacketHeader::EMPTY.append(&header.to_bytes()),
            payload,
            tag,
        })
    }

    #[inline]
    fn packet_sent(&mut self, tag: Tag, left: Option<Handover>) {
        self.tally
            .count_departure(tag_number(tag), left, tag_length(tag));
    }

    #[inline]
    fn needs_send_times(&self) -> bool {
        !self.tally.has_sent()
    }
}

#[cfg(test)]
mod tests;
