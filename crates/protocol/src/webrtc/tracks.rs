//! What counts the media of a PeerConnection: all that comes on one socket, told apart by the
//! synchronisation source.

use std::time::Duration;

use measure::{Recorder, Time};

use crate::media::rtcp::{self, Packet};
use crate::media::rtp::header::{FIXED_LENGTH, Header};
use crate::media::rtp::{ReceiverConfig, RtpReceiver, StreamSummary, VOICE, metrics as rtp};
use crate::media::sdp::MediaKind;
use crate::session::{Arrival, MediaEvent, Sink};
use crate::webrtc::extension::{self, EXTENSION};
use crate::webrtc::feedback::Missing;
use crate::webrtc::metrics as m;
use crate::webrtc::sdp::Feedback;
use crate::webrtc::srtp::{RtpOpener, SrtpCounts, SrtpKeys};

mod check;
mod feedback;
mod key_frame;
mod repair;
mod silent;
mod transport;

use check::{CHECKED, Check, Checked};

pub(super) use key_frame::VideoCodec;
pub(super) use silent::{Course, Section};

/// The most streams that are told apart: what is beyond is counted as unknown media.
const TRACKS_MAX: usize = 1024;

/// How many streams are reported on before what was written is sent.
pub(super) const AT_ONCE: usize = 32;

/// Padding is said by this bit of the first byte (RFC 3550, 5.1).
const PADDING: u8 = 0x20;

/// The most bytes of padding that a packet can have (RFC 3550, 5.1).
const PADDING_MAX: usize = 255;

/// The most of a packet that is looked at where only its header is.
const HEADER_MAX: usize = 96;

/// Maximum delay from arrival to counting. Browsers send a NACK within some 20 ms of a gap.
pub(super) const FEEDBACK_WITHIN: Duration = Duration::from_millis(8);

/// Share of packets that a packet ring keeps whole, so that streams can be authenticated: one in 64
/// (two to the power of this). More would cost memory bandwidth; fewer would notice plain media and
/// foreign keys later.
pub(super) const AUTHENTICATED_SAMPLE: u8 = 6;

/// Unknown media above this part of all packets (a tenth), and of at least this number, fails a
/// client.
const UNKNOWN_PART: u64 = 10;
const UNKNOWN_LEAST: u64 = 20;

/// The most payload types of unknown media that are named.
const NUMBERS_TOLD: usize = 4;

/// What a payload type means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    /// The payload type.
    pub(super) payload_type: u8,
    /// What it carries.
    pub(super) kind: MediaKind,
    /// How, if it is video whose key frames can be told.
    pub(super) codec: Option<VideoCodec>,
    /// The clock of its timestamps in Hz.
    pub(super) clock_rate: u32,
    /// Whether it carries retransmissions (RFC 4588), and of which other.
    pub(super) is_rtx: bool,
    pub(super) apt: Option<u8>,
    /// Whether the other side sends again what it is asked for (RFC 4585, 4.2).
    pub(super) nack: bool,
    /// How it may be asked for a key frame.
    pub(super) asks_by: Option<KeyFrameRequest>,
}

/// How a sender is asked for a key frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyFrameRequest {
    /// Picture loss indication (RFC 4585, 6.3.1).
    Pli,
    /// Full intra request (RFC 5104, 4.3.1).
    Fir,
}

impl KeyFrameRequest {
    /// The one that browsers use where that feedback is agreed on. A server may agree to more than
    /// it was offered, so it must be wanted here too.
    pub(super) fn agreed(feedback: &[String], wanted: Feedback) -> Option<KeyFrameRequest> {
        let has = |own: &str| feedback.iter().any(|words| words == own);
        match (wanted.pli && has("nack pli"), wanted.fir && has("ccm fir")) {
            (true, _) => Some(KeyFrameRequest::Pli),
            (false, true) => Some(KeyFrameRequest::Fir),
            (false, false) => None,
        }
    }
}

/// A stream, by its source.
#[derive(Debug)]
struct Track {
    ssrc: u32,
    /// With which it began.
    payload_type: u8,
    kind: MediaKind,
    codec: Option<VideoCodec>,
    /// The timestamp of the newest key frame.
    key_frame: Option<u32>,
    /// Number of packets that are still to be authenticated.
    unchecked: u8,
    /// True if the latest whole packet was not authentic and no earlier one was. No packet of the
    /// stream counts then.
    foreign: bool,
    /// None where it carries retransmissions.
    receiver: Option<Box<RtpReceiver>>,
    /// What is to be asked for; none where nothing is.
    missing: Option<Box<Missing>>,
    /// How a key frame may be asked for.
    asks_by: Option<KeyFrameRequest>,
    /// How often that was done by [`KeyFrameRequest::Fir`]: the number of the last one.
    demands: u8,
    /// Whether its source has said goodbye.
    gone: bool,
}

/// All streams of a PeerConnection.
#[derive(Debug)]
pub(super) struct Tracks {
    agreed: Vec<Agreed>,
    /// In which media is to come.
    sections: Vec<Section>,
    /// When packets came, where that is told.
    transport: Option<Box<transport::Transport>>,
    /// The number of the header extension that tells how loud sound is.
    level: Option<u8>,
    /// What had come at the last estimate of what can be taken.
    estimated: transport::Estimated,
    /// Room for a packet that came again.
    restored: Vec<u8>,
    /// By their sources.
    tracks: Vec<Track>,
    /// Where the stream of the last packet stands.
    last: usize,
    /// What SRTP adds behind the payload; nothing where it was taken off.
    trailer: usize,
    /// Decrypts the first packets of each stream, if the others are not decrypted; and its result
    /// for the first packet of a new stream.
    check: Option<Box<Check>>,
    first_checked: Checked,
    /// What opens packets, where they come encrypted and are to be opened.
    opening: Option<Box<Opening>>,
    key_frames: Option<KeyFrames>,
    playout_buffer: Duration,
    /// What the wall clock showed, since 1970, when time began, where frames may bear time codes
    /// and are decrypted.
    codes_from: Option<Duration>,
    began: bool,
    /// Whether missing packets are asked for, and key frames where that is of no use.
    asks: bool,
    /// True if the next gap is reported to the session. The NACK then includes later gaps.
    listens: bool,
    /// At which stream to go on where not of all could be asked at once.
    ask_from: usize,
    /// What was added to the figures of what was asked for, and came.
    counted: (u64, u64),
    unknown: Unknown,
}

/// Packets that belong to none of the media agreed upon.
#[derive(Clone, Copy, Debug, Default)]
struct Unknown {
    packets: u64,
    /// A bit for each of their payload types.
    payload_types: u128,
}

/// What opens packets.
#[derive(Debug)]
struct Opening {
    /// None before there are keys.
    opener: Option<RtpOpener>,
    /// Room for an opened packet.
    plain: Vec<u8>,
}

/// What is known of key frames, where payloads can be read.
#[derive(Debug)]
struct KeyFrames {
    /// Since when.
    since: Time,
    /// Whether one has come.
    came: bool,
}

impl Sink for Tracks {
    fn packet(&mut self, arrival: &Arrival<'_>, recorder: &mut Recorder) -> Option<MediaEvent> {
        let Some(mut opening) = self.opening.take() else {
            return self.count(arrival, recorder);
        };
        let opener = opening.opener.as_mut();
        // What cannot be opened is in the opener's counts.
        let plain = opener.and_then(|own| own.open(arrival.bytes, &mut opening.plain).ok());
        let event = plain.and_then(|bytes| {
            let own = Arrival {
                at: arrival.at,
                bytes,
                length: bytes.len(),
                overhead: arrival.overhead + arrival.length - bytes.len(),
            };
            self.count(&own, recorder)
        });
        self.opening = Some(opening);
        event
    }
}

impl Tracks {
    fn count(&mut self, arrival: &Arrival<'_>, recorder: &mut Recorder) -> Option<MediaEvent> {
        let Some((ssrc, payload_type)) = source(arrival.bytes) else {
            recorder.add(rtp::MALFORMED, 1);
            return None;
        };
        let mut first_number = false;
        if let Some(transport) = &mut self.transport
            && arrival.bytes[0] & EXTENSION != 0
        {
            first_number = transport.packet(ssrc, arrival);
        }
        if self.check.is_some() && !self.is_believed(ssrc, arrival) {
            return None;
        }
        let at = match self.tracks.get(self.last) {
            Some(track) if track.ssrc == ssrc => self.last,
            _ => match self.find(ssrc, payload_type) {
                Some(at) => at,
                None => {
                    recorder.add(m::UNKNOWN_MEDIA, 1);
                    self.unknown.packets += 1;
                    self.unknown.payload_types |= 1 << payload_type;
                    return None;
                }
            },
        };
        self.last = at;
        let event = match self.tracks[at].receiver {
            Some(_) => self.media(at, arrival, recorder),
            None => self.again(at, payload_type, arrival, recorder),
        };
        match event {
            None if first_number => self.first_number(),
            // One event a packet: the next number tells of itself.
            event => event,
        }
    }

    /// True if a packet counts although only its header is read. The first packets of a stream have
    /// to be authentic.
    #[inline]
    fn is_believed(&mut self, ssrc: u32, arrival: &Arrival<'_>) -> bool {
        match self.tracks.get(self.last) {
            Some(track) if track.ssrc == ssrc && track.unchecked == 0 => true,
            _ => self.is_authentic(ssrc, arrival),
        }
    }

    fn is_authentic(&mut self, ssrc: u32, arrival: &Arrival<'_>) -> bool {
        let place = self.tracks.binary_search_by_key(&ssrc, |track| track.ssrc);
        let track = place.ok().map(|place| &mut self.tracks[place]);
        let (Some(check), true) = (
            &mut self.check,
            track.as_ref().is_none_or(|track| track.unchecked > 0),
        ) else {
            return true;
        };
        let checked = check.packet(arrival);
        let mut believed = checked != Checked::Unauthentic;
        match (track, checked) {
            (None, _) => self.first_checked = checked,
            (Some(track), Checked::Unauthentic) => track.foreign = track.unchecked == CHECKED,
            (Some(track), Checked::Authentic) => {
                track.unchecked -= 1;
                track.foreign = false;
            }
            // Retransmissions are too rare for the sample of packets that a ring keeps whole.
            (Some(track), Checked::Unknown) if track.receiver.is_none() => track.unchecked = 0,
            (Some(track), Checked::Unknown) => believed = !track.foreign,
        }
        if place.is_ok() && self.tracks.iter().all(|track| track.unchecked == 0) {
            check.rest();
        }
        believed
    }

    /// Says which header extension tells how loud sound is, from now on.
    pub(super) fn read_levels(&mut self, extension: Option<u8>) {
        self.level = extension;
    }

    /// Counts how loud the sound of a packet is, where it says so (RFC 6464, 3).
    fn count_level(&self, packet: &[u8], recorder: &mut Recorder) {
        let level = self.level.and_then(|id| extension::find(packet, id));
        if let Some(&[level, ..]) = level {
            recorder.record(m::AUDIO_LEVEL, u64::from(level & !VOICE));
            recorder.add(m::VOICE_PACKETS, u64::from(level & VOICE != 0));
        }
    }

    /// Takes in a packet of media of the stream at `at`.
    #[inline]
    fn media(
        &mut self,
        at: usize,
        arrival: &Arrival<'_>,
        recorder: &mut Recorder,
    ) -> Option<MediaEvent> {
        if arrival.bytes[0] & EXTENSION != 0 && self.tracks[at].kind == MediaKind::Audio {
            self.count_level(arrival.bytes, recorder);
        }
        let track = &mut self.tracks[at];
        if let Some(key_frames) = &mut self.key_frames {
            track.look_for_key_frame(key_frames, arrival, recorder);
        }
        let receiver = track.receiver.as_mut()?;
        let mut asks = false;
        if let Some(missing) = &mut track.missing {
            let sequence = u16::from_be_bytes([arrival.bytes[2], arrival.bytes[3]]);
            let before = missing.counts().missing;
            missing.packet(sequence, arrival.at);
            asks = self.listens && missing.counts().missing != before;
        }
        let own = Arrival {
            length: arrival.length.saturating_sub(self.trailer),
            overhead: arrival.overhead + self.trailer,
            ..*arrival
        };
        let event = match self.trailer > 0 && arrival.bytes[0] & PADDING != 0 {
            false => receiver.packet(&own, recorder),
            true => encrypted_padding(receiver, &own, recorder),
        };
        let event = match event {
            Some(MediaEvent::First { .. }) if std::mem::replace(&mut self.began, true) => None,
            Some(MediaEvent::SourceChanged { .. }) => None,
            event => event,
        };
        if event.is_none() && asks {
            self.listens = false;
            return Some(MediaEvent::FeedbackDue { at: arrival.at });
        }
        event
    }
}

/// Takes in a packet with padding, whose length is encrypted with it. Where all behind the header
/// may be padding, it is: WebRTC's senders pad only packets without payload, which probe the path.
#[cold]
fn encrypted_padding(
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
    /// Counts a key frame by its first packet. One that comes later than a newer one is none to
    /// begin with.
    #[inline]
    fn look_for_key_frame(
        &mut self,
        known: &mut KeyFrames,
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
        if !self.key_frame.is_none_or(is_newer)
            || !payload.is_some_and(|payload| codec.begins_key_frame(payload))
        {
            return;
        }
        self.key_frame = Some(header.timestamp);
        recorder.add(m::KEY_FRAMES, 1);
        if !std::mem::replace(&mut known.came, true) {
            let waited = arrival.at.since(known.since).as_nanos();
            recorder.record(m::FIRST_KEY_FRAME_DELAY, waited as u64);
        }
    }
}

/// The source and the payload type of a packet (RFC 3550, 5.1).
fn source(bytes: &[u8]) -> Option<(u32, u8)> {
    let fixed: &[u8; FIXED_LENGTH] = bytes.first_chunk()?;
    let [.., a, b, c, d] = *fixed;
    Some((u32::from_be_bytes([a, b, c, d]), fixed[1] & 0x7f))
}

impl Tracks {
    /// Of a PeerConnection over which nothing has come. `trailer` is how many bytes SRTP adds to a
    /// packet, where what comes is not decrypted.
    pub(super) fn new(playout_buffer: Duration) -> Tracks {
        Tracks {
            agreed: Vec::new(),
            sections: Vec::new(),
            transport: None,
            level: None,
            estimated: transport::Estimated::default(),
            restored: Vec::new(),
            tracks: Vec::new(),
            last: 0,
            trailer: 0,
            check: None,
            first_checked: Checked::Unknown,
            opening: None,
            key_frames: None,
            playout_buffer,
            codes_from: None,
            began: false,
            asks: false,
            listens: false,
            ask_from: 0,
            counted: (0, 0),
            unknown: Unknown::default(),
        }
    }

    /// Has it keep what is missing, to be asked for.
    pub(super) fn ask_for_missing(&mut self) {
        self.asks = true;
    }

    /// Has time codes looked for in frames, which have to be decrypted. `wall_clock` is what it
    /// showed, since 1970, when time began.
    pub(super) fn look_for_codes(&mut self, wall_clock: Duration) {
        self.codes_from = Some(wall_clock);
    }

    /// Says what payload types mean from now on. Streams that have begun go on as they are.
    pub(super) fn agree(&mut self, mut agreed: Vec<Agreed>) {
        agreed.shrink_to_fit();
        self.agreed = agreed;
    }

    /// Has it open what comes, once there are keys.
    pub(super) fn open_packets(&mut self) {
        self.opening = Some(Box::new(Opening {
            opener: None,
            plain: Vec::new(),
        }));
    }

    /// There are keys to open packets with, from now on.
    pub(super) fn set_opener(&mut self, now: Time, opener: Option<RtpOpener>) {
        self.key_frames = opener.as_ref().map(|_| KeyFrames {
            since: now,
            came: false,
        });
        if let Some(opening) = &mut self.opening {
            opening.opener = opener;
        }
    }

    /// Enables authentication of the first packets of each stream.
    pub(super) fn check_first(&mut self, keys: Option<SrtpKeys>) {
        self.check = keys.map(|keys| Box::new(Check::new(keys)));
    }

    /// What became of packets that were to be opened.
    pub(super) fn opener_counts(&self) -> SrtpCounts {
        let opener = self.opening.as_ref().and_then(|own| own.opener.as_ref());
        let mut counts = opener.map(RtpOpener::counts).unwrap_or_default();
        counts.unauthentic += self.check.as_ref().map_or(0, |own| own.unauthentic());
        counts
    }

    /// Says how many bytes SRTP adds to each packet, where they are not taken off.
    pub(super) fn set_trailer(&mut self, trailer: usize) {
        self.trailer = trailer;
    }

    /// Where the stream of that source stands; it begins where it is new.
    fn find(&mut self, ssrc: u32, payload_type: u8) -> Option<usize> {
        let place = self.tracks.binary_search_by_key(&ssrc, |track| track.ssrc);
        let at = match place {
            Ok(at) => return Some(at),
            Err(at) => at,
        };
        let mut agreed = self.agreed.iter();
        let agreed = *agreed.find(|agreed| agreed.payload_type == payload_type)?;
        if self.tracks.len() >= TRACKS_MAX {
            return None;
        }
        // Payload types may differ within a stream: any of its kind is taken.
        let receiver = (!agreed.is_rtx).then(|| {
            let receiver = RtpReceiver::new(&ReceiverConfig {
                clock_rate: agreed.clock_rate,
                payload_types: Vec::new(),
                playout_buffer: self.playout_buffer,
            });
            let codes = self.codes_from.filter(|_| agreed.kind == MediaKind::Video);
            Box::new(match codes {
                Some(wall_clock) => receiver.with_time_codes(wall_clock),
                None if agreed.kind == MediaKind::Audio => receiver.with_single_packets(),
                None => receiver,
            })
        });
        // Most have one, and room for four would be made.
        self.tracks
            .reserve_exact(usize::from(self.tracks.is_empty()));
        self.tracks.insert(
            at,
            Track {
                ssrc,
                payload_type,
                kind: agreed.kind,
                codec: agreed.codec,
                key_frame: None,
                missing: (self.asks && agreed.nack && receiver.is_some())
                    .then(|| Box::new(Missing::new(Duration::ZERO))),
                asks_by: agreed.asks_by,
                demands: 0,
                unchecked: match (&self.check, self.first_checked) {
                    (None, _) | (Some(_), Checked::Unknown) => CHECKED,
                    (Some(_), _) => CHECKED - 1,
                },
                foreign: false,
                receiver,
                gone: false,
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

    /// Takes what the other side says in a compound.
    pub(super) fn reports(&mut self, compound: &[u8], at: Time, recorder: &mut Recorder) {
        for packet in rtcp::packets(compound) {
            match packet {
                Ok(Packet::SenderReport { info, .. }) => {
                    if let Some(receiver) = self.receiver(info.ssrc) {
                        receiver.sender_report(&info, at, recorder);
                    }
                }
                Ok(Packet::Bye { sources, .. }) => {
                    for ssrc in sources {
                        self.goodbye(ssrc);
                    }
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }

    /// A source says that it leaves (RFC 3550, 6.6).
    fn goodbye(&mut self, ssrc: u32) {
        let place = self.tracks.binary_search_by_key(&ssrc, |track| track.ssrc);
        let Some(track) = place.ok().map(|place| &mut self.tracks[place]) else {
            return;
        };
        track.gone = true;
        if let Some(receiver) = &mut track.receiver {
            receiver.source_ended(ssrc);
        }
    }

    /// Whether media has come, and each of its sources has said goodbye.
    pub(super) fn are_gone(&self) -> bool {
        let mut media = self.tracks.iter().filter(|track| track.receiver.is_some());
        let first = media.next().is_some_and(|track| track.gone);
        first && media.all(|track| track.gone)
    }

    /// Describes unknown media, if it is more than a tenth of all packets.
    pub(super) fn much_unknown(&self) -> Option<String> {
        let Unknown {
            packets,
            payload_types,
        } = self.unknown;
        let media = self.receivers();
        let known: u64 = media
            .map(|(_, own)| own.counts())
            .map(|counts| counts.received + counts.duplicated)
            .sum();
        if packets < UNKNOWN_LEAST || packets * UNKNOWN_PART <= packets + known {
            return None;
        }
        let all = (0..128).filter(|number| payload_types >> number & 1 != 0);
        let numbers: Vec<String> = all.take(NUMBERS_TOLD).map(|own| own.to_string()).collect();
        let more = match payload_types.count_ones() as usize > NUMBERS_TOLD {
            true => " and others",
            false => "",
        };
        Some(format!(
            "{packets} of {} packets belong to no agreed media (payload types {}{more})",
            packets + known,
            numbers.join(", ")
        ))
    }

    fn receiver(&mut self, ssrc: u32) -> Option<&mut RtpReceiver> {
        let place = self.tracks.binary_search_by_key(&ssrc, |track| track.ssrc);
        self.tracks[place.ok()?].receiver.as_deref_mut()
    }

    /// When media came first.
    pub(super) fn first_arrival(&self) -> Option<Time> {
        let all = self.receivers();
        all.filter_map(|(_, own)| own.first_arrival()).min()
    }

    /// When media came last.
    pub(super) fn last_arrival(&self) -> Option<Time> {
        let all = self.receivers();
        all.filter_map(|(_, own)| own.last_arrival()).max()
    }

    /// The longest time without a packet of the stream that had the shortest.
    pub(super) fn longest_gap(&self) -> Duration {
        let all = self.receivers();
        all.map(|(_, own)| own.longest_gap())
            .min()
            .unwrap_or_default()
    }

    /// Hands in what is only known at the end; of media that was to come on, what is missing up to
    /// `silent_until` counts.
    pub(super) fn finish(&mut self, silent_until: Option<Time>, recorder: &mut Recorder) {
        self.count_questions(recorder);
        for track in &mut self.tracks {
            match (&mut track.receiver, silent_until) {
                (Some(receiver), Some(until)) => receiver.fell_silent(until, recorder),
                (Some(receiver), None) => receiver.finish(recorder),
                (None, _) => {}
            }
        }
    }

    /// The rows of its streams.
    pub(super) fn rows(&self, url: &str) -> Vec<StreamSummary> {
        let row = |(kind, receiver)| StreamSummary::new(kind, url, receiver);
        self.receivers().map(row).collect()
    }
}

#[cfg(test)]
mod tests;
