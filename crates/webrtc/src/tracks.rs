//! Counts the media of a PeerConnection: all packets that arrive on one socket, separated by SSRC.

use std::time::Duration;

use measure::{Recorder, Time};

use crate::extension::{self, EXTENSION_BIT};
use crate::feedback::NackTracker;
use crate::metrics as m;
use crate::sdp::{Codec, FeedbackTypes};
use crate::srtp::{RtpOpener, SrtpCounts, SrtpKeys};
use kit::media::rtcp::{self, Packet};
use kit::media::rtp::header::{FIXED_LENGTH, Header};
use kit::media::rtp::{
    ReceiverConfig, RtpReceiver, StreamSummary, VOICE_FLAG, VideoCodec, metrics as rtp,
};
use kit::media::sdp::MediaKind;
use session::{Arrival, MediaEvent, Sink};

mod arrival_feedback;
mod feedback;
mod first_packets;
mod rtx;
mod sections;

use first_packets::{CHECKED_PACKETS, CheckResult, FirstPacketCheck};

pub(super) use sections::{MediaStatus, Section};

/// Maximum number of streams. Packets of further streams count as unknown media.
const TRACKS_MAX: usize = 1024;

/// Maximum number of streams whose reports or requests are written in one call.
pub(super) const STREAMS_PER_CALL: usize = 32;

/// Padding bit of the first byte (RFC 3550, 5.1).
const PADDING: u8 = 0x20;

/// Maximum length of a packet's padding in bytes (RFC 3550, 5.1).
const PADDING_MAX: usize = 255;

/// Maximum number of bytes of a packet that are used if only its header is read.
const HEADER_MAX: usize = 96;

/// Maximum delay from arrival to counting. Browsers send a NACK within some 20 ms of a gap.
pub(super) const FEEDBACK_DELAY_MAX: Duration = Duration::from_millis(8);

/// Share of packets that a packet ring keeps whole, so that streams can be authenticated: one in 64
/// (two to the power of this). More would cost memory bandwidth; fewer would detect plain media and
/// foreign keys later.
pub(super) const AUTHENTICATED_SAMPLE: u8 = 6;

/// A client fails if unknown media is more than this part of all packets (a tenth) and has at least
/// this number of packets.
const UNKNOWN_DIVISOR: u64 = 10;
const UNKNOWN_PACKETS_MIN: u64 = 20;

/// Maximum number of payload types in a message about unknown media.
const PAYLOAD_TYPES_SHOWN: usize = 4;

/// A negotiated payload type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PayloadFormat {
    pub(super) payload_type: u8,
    pub(super) kind: MediaKind,
    /// Codec, if it is video whose key frames can be detected.
    pub(super) codec: Option<VideoCodec>,
    /// RTP clock rate in Hz.
    pub(super) clock_rate: u32,
    /// True for retransmissions (RFC 4588); `apt` is the payload type of the originals.
    pub(super) is_rtx: bool,
    pub(super) apt: Option<u8>,
    /// True if the other side retransmits requested packets (RFC 4585, 4.2).
    pub(super) nack: bool,
    /// Message that requests a key frame, if one is negotiated.
    pub(super) key_frame_request: Option<KeyFrameRequest>,
}

/// RTCP message that requests a key frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyFrameRequest {
    /// Picture loss indication (RFC 4585, 6.3.1).
    Pli,
    /// Full intra request (RFC 5104, 4.3.1).
    Fir,
}

impl KeyFrameRequest {
    /// Chooses the message that browsers use. A server may accept more feedback than it was
    /// offered, so it must be enabled on this side too.
    pub(super) fn negotiated(codec: &Codec, wanted: FeedbackTypes) -> Option<KeyFrameRequest> {
        let is_usable = |words| wanted.enables(words) && codec.has_feedback(words);
        match (is_usable("nack pli"), is_usable("ccm fir")) {
            (true, _) => Some(KeyFrameRequest::Pli),
            (false, true) => Some(KeyFrameRequest::Fir),
            (false, false) => None,
        }
    }
}

/// A stream, identified by its SSRC.
#[derive(Debug)]
struct Track {
    ssrc: u32,
    /// Payload type of the first packet.
    payload_type: u8,
    kind: MediaKind,
    codec: Option<VideoCodec>,
    /// RTP timestamp of the newest key frame.
    newest_key_frame: Option<u32>,
    /// Number of packets that are still to be authenticated.
    unchecked: u8,
    /// True if the latest whole packet was not authentic and no earlier one was. No packet of the
    /// stream counts then.
    foreign: bool,
    /// `None` for retransmissions.
    receiver: Option<Box<RtpReceiver>>,
    /// Missing packets; `None` if they are not requested.
    nack_tracker: Option<Box<NackTracker>>,
    /// Message that requests a key frame.
    key_frame_request: Option<KeyFrameRequest>,
    /// Sequence number of the last [`KeyFrameRequest::Fir`].
    fir_sequence: u8,
    /// True if the source sent a BYE.
    bye_received: bool,
}

/// All streams of a PeerConnection.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    formats: Vec<PayloadFormat>,
    /// Sections in which media is expected.
    sections: Vec<Section>,
    /// Arrival times, if they are reported to the sender.
    arrival_feedback: Option<Box<arrival_feedback::ArrivalFeedback>>,
    /// ID of the header extension with the audio level.
    pub(super) audio_level_id: Option<u8>,
    /// Counts at the last bandwidth estimate.
    last_estimate: arrival_feedback::EstimateCounts,
    /// Buffer for a restored packet.
    restored_packet: Vec<u8>,
    /// Sorted by SSRC.
    tracks: Vec<Track>,
    /// Index of the stream of the last packet.
    last_track: usize,
    /// Number of bytes that SRTP appends to the payload; 0 if packets are decrypted.
    pub(super) srtp_overhead: usize,
    /// Decrypts the first packets of each stream, if the others are not decrypted. `first_checked`
    /// is the result for the first packet of a new stream.
    check: Option<Box<FirstPacketCheck>>,
    first_checked: CheckResult,
    /// Decrypts all packets, if that is enabled.
    decryption: Option<Box<Decryption>>,
    key_frames: Option<KeyFrameState>,
    playout_buffer: Duration,
    /// Wall clock time since 1970 at time zero, if frames are decrypted and may carry time codes.
    pub(super) time_code_origin: Option<Duration>,
    has_begun: bool,
    /// Enables requests for missing packets, and for key frames if too many are missing.
    pub(super) nack_enabled: bool,
    /// True if the next gap is reported to the session. The NACK then includes later gaps.
    reports_next_gap: bool,
    /// Index of the stream with which the next requests begin, if the last ones did not cover all.
    next_nack_track: usize,
    /// Requested and recovered packets that are already in the metrics.
    pub(super) counted_requests: [u64; 2],
    unknown: UnknownMedia,
}

/// Packets that belong to no negotiated media.
#[derive(Clone, Copy, Debug, Default)]
struct UnknownMedia {
    packets: u64,
    /// One bit for each payload type.
    payload_types: u128,
}

/// Decryption of all packets.
#[derive(Debug, Default)]
struct Decryption {
    /// `None` before keys are available.
    opener: Option<RtpOpener>,
    /// Buffer for a decrypted packet.
    plain: Vec<u8>,
}

/// Key frames received, if payloads can be read.
#[derive(Debug)]
struct KeyFrameState {
    /// Time from which the first key frame is awaited.
    since: Time,
    /// Arrival of the first key frame.
    first: Option<Time>,
}

impl Sink for Tracks {
    fn packet(&mut self, arrival: &Arrival<'_>, recorder: &mut Recorder) -> Option<MediaEvent> {
        let Some(mut decryption) = self.decryption.take() else {
            return self.count(arrival, recorder);
        };
        let opener = decryption.opener.as_mut();
        // Packets that cannot be decrypted appear in the opener's counts.
        let plain = opener.and_then(|own| own.open(arrival.bytes, &mut decryption.plain).ok());
        let event = plain.and_then(|bytes| {
            let own = Arrival {
                at: arrival.at,
                bytes,
                length: bytes.len(),
                overhead: arrival.overhead + arrival.length - bytes.len(),
            };
            self.count(&own, recorder)
        });
        self.decryption = Some(decryption);
        event
    }
}

impl Tracks {
    fn count(&mut self, arrival: &Arrival<'_>, recorder: &mut Recorder) -> Option<MediaEvent> {
        let Some((ssrc, payload_type)) = ssrc_and_payload_type(arrival.bytes) else {
            recorder.add(rtp::MALFORMED, 1);
            return None;
        };
        let mut first_number = false;
        if let Some(feedback) = &mut self.arrival_feedback
            && arrival.bytes[0] & EXTENSION_BIT != 0
        {
            first_number = feedback.record_arrival(ssrc, arrival);
        }
        if self.check.is_some() && !self.may_count(ssrc, arrival) {
            return None;
        }
        let at = match self.tracks.get(self.last_track) {
            Some(track) if track.ssrc == ssrc => self.last_track,
            _ => match self.find_or_create(ssrc, payload_type) {
                Some(at) => at,
                None => {
                    recorder.add(m::UNKNOWN_MEDIA, 1);
                    self.unknown.packets += 1;
                    self.unknown.payload_types |= 1 << payload_type;
                    return None;
                }
            },
        };
        self.last_track = at;
        let event = match self.tracks[at].receiver {
            Some(_) => self.count_media(at, arrival, recorder),
            None => self.count_retransmission(at, payload_type, arrival, recorder),
        };
        match event {
            None if first_number => self.first_number_event(),
            // One event per packet: the next number is reported instead.
            event => event,
        }
    }

    /// Returns `true` if a packet may count although only its header is read. The first packets of
    /// a stream must be authentic.
    #[inline]
    fn may_count(&mut self, ssrc: u32, arrival: &Arrival<'_>) -> bool {
        match self.tracks.get(self.last_track) {
            Some(track) if track.ssrc == ssrc && track.unchecked == 0 => true,
            _ => self.is_authentic(ssrc, arrival),
        }
    }

    fn is_authentic(&mut self, ssrc: u32, arrival: &Arrival<'_>) -> bool {
        let position = self.position(ssrc);
        let track = position.ok().map(|position| &mut self.tracks[position]);
        let (Some(check), true) = (
            &mut self.check,
            track.as_ref().is_none_or(|track| track.unchecked > 0),
        ) else {
            return true;
        };
        let checked = check.check_packet(arrival);
        let mut may_count = checked != CheckResult::Unauthentic;
        match (track, checked) {
            (None, _) => self.first_checked = checked,
            (Some(track), CheckResult::Unauthentic) => {
                track.foreign = track.unchecked == CHECKED_PACKETS
            }
            (Some(track), CheckResult::Authentic) => {
                track.unchecked -= 1;
                track.foreign = false;
            }
            // Retransmissions are too rare for the sample of packets that a ring keeps whole.
            (Some(track), CheckResult::Unknown) if track.receiver.is_none() => track.unchecked = 0,
            (Some(track), CheckResult::Unknown) => may_count = !track.foreign,
        }
        if position.is_ok() && self.tracks.iter().all(|track| track.unchecked == 0) {
            check.free_memory();
        }
        may_count
    }

    /// Records the audio level of a packet that carries one (RFC 6464, 3).
    fn count_level(&self, packet: &[u8], recorder: &mut Recorder) {
        let level = self
            .audio_level_id
            .and_then(|id| extension::find_element(packet, id));
        if let Some(&[level, ..]) = level {
            recorder.record(m::AUDIO_LEVEL, u64::from(level & !VOICE_FLAG));
            recorder.add(m::VOICE_PACKETS, u64::from(level & VOICE_FLAG != 0));
        }
    }

    /// Counts a media packet of the stream at `at`.
    #[inline]
    fn count_media(
        &mut self,
        at: usize,
        arrival: &Arrival<'_>,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        if arrival.bytes[0] & EXTENSION_BIT != 0 && self.tracks[at].kind == MediaKind::Audio {
            self.count_level(arrival.bytes, recorder);
        }
        let track = &mut self.tracks[at];
        if let Some(key_frames) = &mut self.key_frames {
            track.detect_key_frame(key_frames, arrival, recorder);
        }
        let receiver = track.receiver.as_mut()?;
        let mut has_new_gap = false;
        if let Some(tracker) = &mut track.nack_tracker {
            let sequence = u16::from_be_bytes([arrival.bytes[2], arrival.bytes[3]]);
            let before = tracker.counts().missing;
            tracker.record_arrival(sequence, arrival.at);
            has_new_gap = self.reports_next_gap && tracker.counts().missing != before;
        }
        let own = Arrival {
            length: arrival.length.saturating_sub(self.srtp_overhead),
            overhead: arrival.overhead + self.srtp_overhead,
            ..*arrival
        };
        let event = match self.srtp_overhead > 0 && arrival.bytes[0] & PADDING != 0 {
            false => receiver.packet(&own, recorder),
            true => count_encrypted_padding(receiver, &own, recorder),
        };
        let event = match event {
            Some(MediaEvent::First { .. }) if std::mem::replace(&mut self.has_begun, true) => None,
            Some(MediaEvent::SourceChanged { .. }) => None,
            event => event,
        };
        if event.is_none() && has_new_gap {
            self.reports_next_gap = false;
            return Some(MediaEvent::FeedbackDue { at: arrival.at });
        }
        event
    }
}

/// Counts a packet with padding whose length is encrypted. If everything after the header can be
/// padding, it is counted as padding: WebRTC senders pad only packets without payload, which probe
/// the path.
#[cold]
fn count_encrypted_padding(
    receiver: &mut RtpReceiver,
    arrival: &Arrival<'_>,
    recorder: &mut Recorder,
) -> Option<MediaEvent> {
    let mut bytes = [0; HEADER_MAX];
    let captured = arrival.bytes.len().min(HEADER_MAX);
    bytes[..captured].copy_from_slice(&arrival.bytes[..captured]);
    bytes[0] &= !PADDING;
    let bytes = &bytes[..captured];
    let mut own = Arrival { bytes, ..*arrival };
    if let Ok(header) = Header::parse(bytes, arrival.length)
        && header.payload_length <= PADDING_MAX
        && header.payload_offset <= captured
    {
        own.bytes = &bytes[..header.payload_offset];
        own.length = header.payload_offset;
        own.overhead += header.payload_length;
    }
    receiver.packet(&own, recorder)
}

impl Track {
    /// Counts a key frame at its first packet. A packet that is not newer than the last key frame
    /// begins no other.
    #[inline]
    fn detect_key_frame(
        &mut self,
        state: &mut KeyFrameState,
        arrival: &Arrival<'_>,
        recorder: &mut Recorder,
    ) {
        let Some(codec) = self.codec else { return };
        let Ok(header) = Header::parse(arrival.bytes, arrival.length) else {
            return;
        };
        let end = header.payload_offset + header.payload_length;
        let payload = arrival.bytes.get(header.payload_offset..end);
        let is_newer = |last: u32| header.timestamp.wrapping_sub(last) as i32 > 0;
        if !self.newest_key_frame.is_none_or(is_newer)
            || !payload.is_some_and(|payload| codec.begins_key_frame(payload))
        {
            return;
        }
        self.newest_key_frame = Some(header.timestamp);
        recorder.add(m::KEY_FRAMES, 1);
        if state.first.is_none() {
            state.first = Some(arrival.at);
            let waited = arrival.at.since(state.since);
            recorder.record_duration(m::FIRST_KEY_FRAME_DELAY, waited);
        }
    }
}

/// Returns the SSRC and the payload type of a packet (RFC 3550, 5.1).
fn ssrc_and_payload_type(bytes: &[u8]) -> Option<(u32, u8)> {
    let fixed: &[u8; FIXED_LENGTH] = bytes.first_chunk()?;
    let [.., a, b, c, d] = *fixed;
    Some((u32::from_be_bytes([a, b, c, d]), fixed[1] & 0x7f))
}

impl Tracks {
    /// Creates the state of a PeerConnection without media.
    pub(super) fn new(playout_buffer: Duration) -> Tracks {
        Tracks {
            playout_buffer,
            ..Tracks::default()
        }
    }

    /// Sets the negotiated payload types. Streams that have begun are unchanged.
    pub(super) fn set_formats(&mut self, mut formats: Vec<PayloadFormat>) {
        formats.shrink_to_fit();
        self.formats = formats;
    }

    /// Enables decryption of all packets, which starts when keys are available.
    pub(super) fn enable_decryption(&mut self) {
        self.decryption = Some(Box::default());
    }

    /// Sets the opener with which packets are decrypted from now on.
    pub(super) fn set_opener(&mut self, now: Time, opener: Option<RtpOpener>) {
        self.key_frames = opener.as_ref().map(|_| KeyFrameState {
            since: now,
            first: None,
        });
        if let Some(decryption) = &mut self.decryption {
            decryption.opener = opener;
        }
    }

    /// Enables authentication of the first packets of each stream.
    pub(super) fn authenticate_first_packets(&mut self, keys: Option<SrtpKeys>) {
        self.check = keys.map(|keys| Box::new(FirstPacketCheck::new(keys)));
    }

    /// Returns the counts of decryption, including first packets that were not authentic.
    pub(super) fn opener_counts(&self) -> SrtpCounts {
        let opener = self.decryption.as_ref().and_then(|own| own.opener.as_ref());
        let mut counts = opener.map(RtpOpener::counts).unwrap_or_default();
        counts.unauthentic += self.check.as_ref().map_or(0, |own| own.unauthentic);
        counts
    }

    /// Returns the index of a source's stream, which is created if it is new. Returns `None` for
    /// unknown media.
    fn find_or_create(&mut self, ssrc: u32, payload_type: u8) -> Option<usize> {
        let at = match self.position(ssrc) {
            Ok(at) => return Some(at),
            Err(at) => at,
        };
        let mut format = self.formats.iter();
        let format = *format.find(|format| format.payload_type == payload_type)?;
        if self.tracks.len() >= TRACKS_MAX {
            return None;
        }
        // The payload type may change within a stream: any of its kind is accepted.
        let receiver = (!format.is_rtx).then(|| {
            let receiver = RtpReceiver::new(&ReceiverConfig {
                clock_rate: format.clock_rate,
                payload_types: Vec::new(),
                playout_buffer: self.playout_buffer,
            });
            let codes = self
                .time_code_origin
                .filter(|_| format.kind == MediaKind::Video);
            Box::new(match codes {
                Some(wall_clock) => receiver.with_time_codes(wall_clock),
                None if format.kind == MediaKind::Audio => receiver.with_single_packets(),
                None => receiver,
            })
        });
        // Most clients have one stream; `insert` alone would reserve space for four.
        self.tracks
            .reserve_exact(usize::from(self.tracks.is_empty()));
        self.tracks.insert(
            at,
            Track {
                ssrc,
                payload_type,
                kind: format.kind,
                codec: format.codec,
                newest_key_frame: None,
                nack_tracker: (self.nack_enabled && format.nack && receiver.is_some())
                    .then(|| Box::new(NackTracker::new(Duration::ZERO))),
                key_frame_request: format.key_frame_request,
                fir_sequence: 0,
                unchecked: match (&self.check, self.first_checked) {
                    (None, _) | (Some(_), CheckResult::Unknown) => CHECKED_PACKETS,
                    (Some(_), _) => CHECKED_PACKETS - 1,
                },
                foreign: false,
                receiver,
                bye_received: false,
            },
        );
        Some(at)
    }

    fn receivers(&self) -> impl Iterator<Item = (MediaKind, &RtpReceiver)> {
        let media = |track| {
            let Track { kind, receiver, .. }: &Track = track;
            receiver.as_deref().map(|receiver| (*kind, receiver))
        };
        self.tracks.iter().filter_map(media)
    }

    /// Processes the sender reports and BYEs of a compound.
    pub(super) fn handle_rtcp(&mut self, compound: &[u8], at: Time, recorder: &mut Recorder) {
        for packet in rtcp::packets(compound) {
            match packet {
                Ok(Packet::SenderReport { info, .. }) => {
                    if let Some(receiver) = self.receiver(info.ssrc) {
                        receiver.sender_report(&info, at, recorder);
                    }
                }
                Ok(Packet::Bye { sources, .. }) => {
                    for ssrc in sources {
                        self.handle_bye(ssrc);
                    }
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }

    /// Handles the BYE of a source (RFC 3550, 6.6).
    fn handle_bye(&mut self, ssrc: u32) {
        if let Ok(position) = self.position(ssrc) {
            let track = &mut self.tracks[position];
            track.bye_received = true;
            if let Some(receiver) = &mut track.receiver {
                receiver.source_ended(ssrc);
            }
        }
    }

    /// Returns `true` if media has arrived and all its sources have sent a BYE.
    pub(super) fn all_sources_left(&self) -> bool {
        let mut media = self.tracks.iter().filter(|track| track.receiver.is_some());
        let first = media.next().is_some_and(|track| track.bye_received);
        first && media.all(|track| track.bye_received)
    }

    /// Returns a description of unknown media if it is more than a tenth of all packets.
    pub(super) fn describe_unknown_media(&self) -> Option<String> {
        let UnknownMedia {
            packets,
            payload_types,
        } = self.unknown;
        let media = self.receivers();
        let known: u64 = media
            .map(|(_, own)| own.counts())
            .map(|counts| counts.received + counts.duplicated)
            .sum();
        if packets < UNKNOWN_PACKETS_MIN || packets * UNKNOWN_DIVISOR <= packets + known {
            return None;
        }
        let all = (0..128).filter(|number| payload_types >> number & 1 != 0);
        let shown: Vec<String> = all
            .take(PAYLOAD_TYPES_SHOWN)
            .map(|own| own.to_string())
            .collect();
        let more = match payload_types.count_ones() as usize > PAYLOAD_TYPES_SHOWN {
            true => " and others",
            false => "",
        };
        Some(format!(
            "{packets} of {} packets belong to no negotiated media (payload types {}{more})",
            packets + known,
            shown.join(", ")
        ))
    }

    /// Returns the index of a source's stream, or else where it is to be inserted.
    fn position(&self, ssrc: u32) -> Result<usize, usize> {
        self.tracks.binary_search_by_key(&ssrc, |track| track.ssrc)
    }

    fn receiver(&mut self, ssrc: u32) -> Option<&mut RtpReceiver> {
        let position = self.position(ssrc).ok()?;
        self.tracks[position].receiver.as_deref_mut()
    }

    /// Returns the arrival time of the first key frame, if payloads can be read; without video,
    /// that of the first packet.
    pub(super) fn first_picture(&self) -> Option<Time> {
        let is_video = |format: &PayloadFormat| format.codec.is_some();
        match self.formats.iter().any(is_video) {
            true => self.key_frames.as_ref()?.first,
            false => self.first_arrival(),
        }
    }

    /// Returns the arrival time of the first media packet.
    pub(super) fn first_arrival(&self) -> Option<Time> {
        let all = self.receivers();
        all.filter_map(|(_, own)| own.first_arrival()).min()
    }

    /// Returns the arrival time of the last media packet.
    pub(super) fn last_arrival(&self) -> Option<Time> {
        let all = self.receivers();
        all.filter_map(|(_, own)| own.last_arrival()).max()
    }

    /// Returns the longest gap between packets, of the stream for which it is shortest.
    pub(super) fn longest_gap(&self) -> Duration {
        let all = self.receivers();
        all.map(|(_, own)| own.longest_gap())
            .min()
            .unwrap_or_default()
    }

    /// Records the figures that are only known at the end. For media that should have continued,
    /// the gap up to `silent_until` counts.
    pub(super) fn finish(&mut self, silent_until: Option<Time>, recorder: &mut Recorder) {
        self.record_requests(recorder);
        for track in &mut self.tracks {
            match (&mut track.receiver, silent_until) {
                (Some(receiver), Some(until)) => receiver.fell_silent(until, recorder),
                (Some(receiver), None) => receiver.finish(recorder),
                (None, _) => {}
            }
        }
    }

    /// Returns a report row for each stream.
    pub(super) fn rows(&self, url: &str) -> Vec<StreamSummary> {
        let row = |(kind, receiver)| StreamSummary::from_receiver(kind, url, receiver);
        self.receivers().map(row).collect()
    }
}

#[cfg(test)]
mod tests;
