//! Published media: generated or read from a file, and encrypted when it is sent.

mod feed;
mod media;
mod sealed;

use bytes::BytesMut;
use measure::{Recorder, Time};
use mediagen::ladder::Encoder;
use std::time::Duration;

use super::Client;
use super::congestion::{Congestion, Numbered};
use crate::media::rtcp::{self, Packet};
use crate::media::rtp::{
    Clip, Faults, FlowSettings, LiveFlow, LiveSettings, RtpFlow, TalkFlow, TalkSettings,
};
use crate::media::source::{LAYERS, MediaSource};
use crate::mix::mix;
use crate::publication;
use crate::session::{Context, FlowId, Flows, Note, Output, Reading};
use crate::webrtc::again::Again;
use crate::webrtc::failure::Failure;
use crate::webrtc::feedback::{HistoryCounts, Message, Retransmissions, TransportCc, messages};
use crate::webrtc::metrics as m;
use crate::webrtc::sdp::{
    Agreed, Codec, Direction as Way, LocalSource, MediaKind, OfferedMedia,
    extension as header_extension,
};
use crate::webrtc::signalling::livekit;
use crate::webrtc::turn::RelayChannel;
use crate::webrtc::url::Place;
pub(super) use feed::Feed;
use media::{Counts, Media};
use sealed::{LayerNames, Sealed};

/// Interval at which sent media is counted and reports are sent.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Time after which media counts as published although the server has sent no report. WHIP does not
/// say when others can play it, and servers inspect packets before they allow that.
const LIVE_AFTER: Duration = Duration::from_secs(2);

/// Maximum number of packets that one report may plausibly cover.
const PACKETS_MAX: u64 = 100_000;

/// RIDs of the layers of a simulcast, best first.
type LayerIds = [&'static str; LAYERS as usize];

/// RIDs of high, middle and low quality, as most web pages use them.
const LAYER_NAMES: LayerIds = ["h", "m", "l"];

/// Media that a PeerConnection sends.
#[derive(Debug, Default)]
pub(super) struct Sent {
    streams: Vec<Outgoing>,
    /// Sections that the server accepted.
    agreed: Vec<Taken>,
    /// Time of the next count, at which reports are sent as well.
    count_at: Option<Time>,
    /// Time when the first media was sent.
    began: Option<Time>,
    /// Congestion control, if it is enabled.
    congestion: Option<Box<Congestion>>,
    /// Bit rate of the video that follows from the estimate.
    target: u64,
    /// Bit rate that was last requested of the encoder.
    asked: u64,
    /// Round-trip time to the server, measured by ICE.
    pub(super) round_trip: Option<Duration>,
    /// True once the server has reported received packets.
    heard: bool,
}

/// Section that the server accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    /// Index of the section in the offer, which is also that of its clip.
    place: usize,
    /// True if the server may request packets again (NACK).
    nack: bool,
    /// Payload type of the stream for retransmissions (RTX), if it was negotiated.
    rtx: Option<u8>,
    /// Id of the header extension for the audio level.
    level: Option<u8>,
    /// Id of the extension for transport-wide sequence numbers, if the server sends feedback for
    /// it. A server may accept numbers for video only. It would count numbered audio packets as
    /// lost.
    numbered: Option<u8>,
    /// Names of the accepted layers of a simulcast. `None` for a refused layer.
    layers: [Option<LayerNames>; LAYERS as usize],
    /// Names of the only stream, if no layer was accepted.
    alone: LayerNames,
}

/// Outgoing stream.
#[derive(Debug)]
struct Outgoing {
    flow: FlowId,
    ssrc: u32,
    /// Counts of NACKed packets that the recorder already has.
    counted_again: HistoryCounts,
    /// Counts of sent media that the recorder already has.
    counted: Counts,
    /// Cumulative loss in the server's last report.
    reported_lost: i32,
    /// Highest sequence number in the server's last report.
    reported_highest: Option<u32>,
    /// Number of the last full intra request. A repeated number is the same request (RFC 5104,
    /// 4.3.1.2).
    last_demand: Option<u8>,
}

impl Outgoing {
    fn new(flow: FlowId, ssrc: u32) -> Outgoing {
        Outgoing {
            flow,
            ssrc,
            counted_again: HistoryCounts::default(),
            counted: Counts::default(),
            reported_lost: 0,
            reported_highest: None,
            last_demand: None,
        }
    }
}

impl Sent {
    pub(super) fn next_due(&self) -> Option<Time> {
        self.count_at
    }

    /// Returns the RTCP compound of each stream: a sender report with the time since 1970, or
    /// nothing if `wall_clock` is `None`, because sender reports are disabled. If `goodbye` is
    /// true, a BYE is added in either case. Without a sender report, it follows an empty receiver
    /// report (RFC 3550, 6.1).
    fn reports_of_ours(
        &self,
        flows: &mut Flows,
        (now, wall_clock, name): (Time, Option<Duration>, &str),
        goodbye: bool,
    ) -> Vec<Vec<u8>> {
        let mut report = |stream: &Outgoing| match wall_clock {
            Some(wall_clock) => Some(flows.with(stream.flow, |sealed: &mut Sealed| {
                sealed.media.report(now, wall_clock, name, goodbye)
            })),
            None if goodbye => {
                let mut compound = Vec::new();
                rtcp::write_receiver_report(&mut compound, stream.ssrc, &[]);
                rtcp::write_cname(&mut compound, stream.ssrc, name);
                rtcp::write_bye(&mut compound, &[stream.ssrc], None);
                Some(compound)
            }
            None => None,
        };
        self.streams.iter().filter_map(&mut report).collect()
    }

    /// Returns for each stream whether its packets have transport-wide sequence numbers.
    #[cfg(test)]
    pub(super) fn numbered(&self, flows: &mut Flows) -> Vec<bool> {
        let has = |sealed: &mut Sealed| sealed.numbered.is_some();
        let streams = self.streams.iter();
        streams.map(|stream| flows.with(stream.flow, has)).collect()
    }

    /// Stores what the server accepted, and whether and where it wants retransmissions.
    pub(super) fn agree(&mut self, sections: &[Agreed], names: LayerIds) {
        let taken_of = |section: &Agreed| {
            let mut codecs = section.codecs.iter();
            let nack = codecs.any(|codec| codec.feedback.iter().any(|words| words == "nack"));
            let rtx = section.codecs.iter().find(|codec| codec.is("rtx"));
            let number = |uri| {
                let number = section.extension_id(uri);
                number.and_then(|number| u8::try_from(number).ok())
            };
            let mid = match section.mid.as_bytes() {
                &[name] => number(header_extension::MID).map(|id| (id, name)),
                _ => None,
            };
            let rid = number(header_extension::RID);
            let named = |name: &str| {
                let is_taken = section.layers.iter().any(|own| own == name);
                let &[letter] = name.as_bytes() else {
                    return None;
                };
                Some(LayerNames {
                    mid,
                    rid: Some((rid.filter(|_| is_taken)?, letter)),
                    repaired: number(header_extension::REPAIRED_RID),
                })
            };
            Taken {
                layers: names.map(named),
                alone: LayerNames {
                    mid,
                    rid: None,
                    repaired: None,
                },
                place: section.place,
                nack,
                rtx: rtx.map(|codec| codec.payload_type),
                level: number(header_extension::AUDIO_LEVEL),
                numbered: number(header_extension::TRANSPORT_CC)
                    .filter(|_| section.has_feedback("transport-cc")),
            }
        };
        let taken = || sections.iter().filter(|section| section.direction.sends());
        self.agreed = taken().map(taken_of).collect();
    }

    /// Sends all packets over this TURN channel from now on.
    pub(super) fn leave_by(&mut self, channel: Option<RelayChannel>, flows: &mut Flows) {
        for stream in &self.streams {
            flows.with(stream.flow, |sealed: &mut Sealed| sealed.channel = channel);
        }
    }

    fn stream(&mut self, ssrc: u32) -> Option<&mut Outgoing> {
        self.streams.iter_mut().find(|stream| stream.ssrc == ssrc)
    }

    /// Handles feedback of the server, up to the first message that cannot be parsed.
    fn feedback(&mut self, compound: &[u8], now: Time, flows: &mut Flows, recorder: &mut Recorder) {
        for message in messages(compound).map_while(Result::ok) {
            match message {
                Message::Nack { media, missing, .. } => {
                    // Every requested packet counts, whether it is sent again or not.
                    recorder.add(m::NACKED_PACKETS, missing.len() as u64);
                    let round_trip = self.round_trip;
                    if let Some(stream) = self.stream(media) {
                        flows.with(stream.flow, |sealed: &mut Sealed| {
                            if let Some(again) = &mut sealed.again {
                                again.ask(&missing, now, round_trip);
                            }
                        });
                    }
                }
                Message::PictureLoss { media, .. } => {
                    recorder.add(m::KEY_FRAME_REQUESTS, 1);
                    if let Some(stream) = self.stream(media) {
                        flows.with(stream.flow, |sealed: &mut Sealed| sealed.media.key_frame());
                    }
                }
                Message::FullIntra { demands, .. } => {
                    recorder.add(m::KEY_FRAME_REQUESTS, demands.len() as u64);
                    for (media, number) in demands {
                        if let Some(stream) = self.stream(media)
                            && stream.last_demand.replace(number) != Some(number)
                        {
                            flows.with(stream.flow, |sealed: &mut Sealed| sealed.media.key_frame());
                        }
                    }
                }
                Message::Remb { bitrate, .. } => {
                    recorder.add(m::REMBS_RECEIVED, 1);
                    if let Some(congestion) = &mut self.congestion {
                        congestion.remb(bitrate);
                    }
                    self.follow(flows);
                }
                Message::TransportCc(message) => {
                    recorder.add(m::TRANSPORT_FEEDBACK_RECEIVED, 1);
                    self.told(&message, now, flows);
                }
            }
        }
    }

    /// Handles transport feedback.
    fn told(&mut self, message: &TransportCc, now: Time, flows: &mut Flows) {
        let Some(congestion) = &mut self.congestion else {
            return;
        };
        for stream in &self.streams {
            flows.with(stream.flow, |sealed: &mut Sealed| {
                let follows = matches!(sealed.media, Media::Live(_));
                if let Some(numbered) = &mut sealed.numbered {
                    numbered.take(follows, congestion);
                }
            });
        }
        congestion.told(now, message);
        self.follow(flows);
    }

    /// Sets the bit rate of the video to the estimate.
    fn follow(&mut self, flows: &mut Flows) {
        let Some(congestion) = &self.congestion else {
            return;
        };
        let (_, target) = congestion.estimate();
        // Each change is a message to the thread that sends, so changes below 1 % are skipped.
        if target.abs_diff(self.asked) * 100 < self.asked {
            return;
        }
        self.asked = target;
        for stream in &self.streams {
            flows.with(stream.flow, |sealed: &mut Sealed| {
                if let Media::Live(flow) = &mut sealed.media {
                    self.target = flow.set_bitrate(target);
                }
            });
        }
    }

    /// Handles RTCP of the server: its receiver reports and its feedback, up to the first packet
    /// that cannot be parsed.
    pub(super) fn reports(
        &mut self,
        compound: &[u8],
        now: Time,
        flows: &mut Flows,
        recorder: &mut Recorder,
    ) {
        if self.streams.is_empty() {
            return;
        }
        self.feedback(compound, now, flows, recorder);
        let (mut packets, mut lost) = (0, 0);
        for packet in rtcp::packets(compound) {
            let blocks = match packet {
                Ok(Packet::ReceiverReport { blocks, .. } | Packet::SenderReport { blocks, .. }) => {
                    blocks
                }
                Ok(_) => continue,
                Err(_) => break,
            };
            for block in &blocks {
                let Some(stream) = self.stream(block.ssrc) else {
                    continue;
                };
                recorder.add(m::RECEIVER_REPORTS, 1);
                let highest = stream.reported_highest.replace(block.extended_highest);
                let came = highest.map(|before| block.extended_highest.wrapping_sub(before));
                // The first report does not say how many packets its losses refer to. A report that
                // goes back belongs to another count.
                let counts = came.filter(|came| u64::from(*came) <= PACKETS_MAX);
                packets += counts.map_or(0, u64::from);
                // Some receivers report a negative loss because of duplicates.
                let reported = block.cumulative_lost.max(0);
                let more = i64::from(reported) - i64::from(stream.reported_lost);
                stream.reported_lost = reported;
                match u64::try_from(more) {
                    Ok(more) => {
                        recorder.add(m::REPORTED_LOST, more);
                        lost += more * u64::from(counts.is_some());
                    }
                    // Late packets have arrived, or duplicates.
                    Err(_) => recorder.take_back(m::REPORTED_LOST, more.unsigned_abs()),
                }
                self.heard = true;
            }
        }
        if let Some(congestion) = self.congestion.as_mut().filter(|_| packets > 0) {
            congestion.reported(now, packets, lost);
            self.follow(flows);
        }
    }
}

impl Sent {
    /// Adds what was sent since the last call to the recorder.
    fn count(&mut self, flows: &mut Flows, recorder: &mut Recorder) {
        for stream in &mut self.streams {
            let now = flows.with(stream.flow, |sealed: &mut Sealed| {
                let again = sealed.again.as_ref().map(Again::counts);
                (sealed.media.counts(), again.unwrap_or_default())
            });
            let (now, again) = now;
            let asked = std::mem::replace(&mut stream.counted_again, again);
            let sent_again = again.sent_again - asked.sent_again;
            recorder.add(m::RETRANSMITTED_PACKETS, sent_again);
            let too_late = again.unknown - asked.unknown;
            recorder.add(m::NACKED_TOO_LATE, too_late);
            let before = std::mem::replace(&mut stream.counted, now);
            recorder.add(m::SENT_PACKETS, now.packets - before.packets);
            recorder.add(m::SENT_BYTES, now.bytes - before.bytes);
            recorder.add(m::SENT_FRAMES, now.frames - before.frames);
            recorder.add(m::NOT_TAKEN, now.not_taken - before.not_taken);
            let early = now.early_key_frames - before.early_key_frames;
            recorder.add(m::EARLY_KEY_FRAMES, early);
            recorder.add(m::SENT_VOICE_PACKETS, now.voiced - before.voiced);
        }
        if let Some(congestion) = &self.congestion {
            recorder.record(m::ESTIMATED_BITRATE, congestion.estimate().0);
            recorder.record(m::TARGET_BITRATE, self.target);
        }
    }

    /// Stops all streams.
    fn stop(&mut self, cx: &mut Context<'_>) {
        for stream in &self.streams {
            cx.out.push_back(Output::StopFlow { flow: stream.flow });
            cx.flows
                .with(stream.flow, |sealed: &mut Sealed| sealed.media.stop());
        }
    }
}

/// Returns a number that identifies a layer of a clip.
fn number(index: usize, layer: usize) -> u64 {
    index as u64 | (layer as u64) << 32
}

impl Client {
    /// Returns the SSRC of a layer of a clip.
    fn own_ssrc(&self, (index, layer): (usize, usize)) -> u32 {
        mix(&[self.seed, 41, number(index, layer)]) as u32
    }

    /// Returns the SSRC of the retransmissions of a layer.
    fn rtx_ssrc(&self, (index, layer): (usize, usize)) -> u32 {
        mix(&[self.seed, 44, number(index, layer)]) as u32
    }

    /// Returns a payload type for retransmissions that no clip uses.
    fn rtx_payload_type(&self, index: usize) -> u8 {
        let clips = self.source.iter().flat_map(|source| &source.clips);
        let taken: Vec<u8> = clips.map(|clip| clip.payload_type()).collect();
        let mut free = (96..=127u8).filter(|number| !taken.contains(number));
        free.nth(index).unwrap_or(127)
    }

    /// Returns the RIDs by which the server knows the layers of a simulcast.
    pub(super) fn layer_names(&self) -> LayerIds {
        match self.url.place {
            Place::LiveKit(_) => livekit::LAYER_NAMES,
            _ => LAYER_NAMES,
        }
    }

    /// Returns the offered sections of the source.
    pub(super) fn offered_source(&self) -> Vec<OfferedMedia> {
        let Some(source) = &self.source else {
            return Vec::new();
        };
        let mut medias = Vec::new();
        for (index, clip) in source.clips.iter().enumerate() {
            let encoding = clip.encoding();
            let (name, rate) = encoding.split_once('/').unwrap_or((encoding, ""));
            let (rate, channels) = rate.split_once('/').unwrap_or((rate, ""));
            let rate = rate.parse().unwrap_or(clip.clock_rate());
            let mut codec = Codec::new(clip.payload_type(), name, rate);
            codec.channels = channels.parse().ok();
            if !clip.parameters().is_empty() {
                // Parameter sets are sent in packets, so the offer need not contain them (RFC 6184,
                // 8.1).
                let named = |part: &&str| !part.trim().starts_with("sprop-");
                let parts: Vec<&str> = clip.parameters().split(';').filter(named).collect();
                codec = codec.with_parameters(&parts.join(";"));
            }
            let kind = match clip.media() {
                "audio" => MediaKind::Audio,
                _ => MediaKind::Video,
            };
            let mut codecs = vec![codec];
            if kind == MediaKind::Video {
                let again = Codec::new(self.rtx_payload_type(index), "rtx", rate);
                codecs.push(again.with_parameters(&format!("apt={}", clip.payload_type())));
            }
            let layered = index == 0 && !source.layers.is_empty();
            let of_layers = [
                header_extension::MID,
                header_extension::RID,
                header_extension::REPAIRED_RID,
            ];
            let of_layers = of_layers.into_iter().filter(|_| layered);
            let source = LocalSource {
                ssrc: self.own_ssrc((index, 0)),
                rtx_ssrc: Some(self.rtx_ssrc((index, 0))),
                cname: self.cname.clone(),
                stream: "streamgauge".to_owned(),
                track: format!("{}{index}", clip.media()),
                layers: match layered {
                    true => self.layer_names().map(str::to_owned).to_vec(),
                    false => Vec::new(),
                },
            };
            // An extension must have the same id in all sections of a transport.
            let of_all = self
                .config
                .follows()
                .then_some(header_extension::TRANSPORT_CC);
            let talks = kind == MediaKind::Audio && self.talk.is_some();
            let of_voice = talks.then_some(header_extension::AUDIO_LEVEL);
            medias.push(OfferedMedia {
                kind,
                direction: Way::SendOnly,
                codecs,
                extensions: of_all
                    .into_iter()
                    .chain(of_voice)
                    .chain(of_layers)
                    .map(str::to_owned)
                    .collect(),
                source: Some(source),
            });
        }
        medias
    }

    /// Returns the kinds of media that the server accepted.
    pub(super) fn sent_kinds(&self) -> Vec<&'static str> {
        let Some(source) = &self.source else {
            return Vec::new();
        };
        if self.feed.is_some() {
            return source.clips.iter().map(|clip| clip.media()).collect();
        }
        let taken = self.links.iter().flat_map(|link| &link.sent.agreed);
        taken
            .filter_map(|taken| Some(source.clips.get(taken.place)?.media()))
            .collect()
    }

    /// Creates and starts one of the streams of the source.
    fn media(&self, now: Time, source: &MediaSource, (index, layer): (usize, usize)) -> Media {
        let ssrc = self.own_ssrc((index, layer));
        // The first number is far below the wrap-around, so that receivers have settled on an SRTP
        // index before it.
        let first_seq = mix(&[self.seed, 42, number(index, layer)]) as u16 & 0x3fff;
        let first_timestamp = mix(&[self.seed, 43, number(index, layer)]) as u32;
        let pacing = source.pacing;
        if let (Some(talk), "audio") = (&self.talk, source.clips[index].media()) {
            let mut flow = TalkFlow::new(TalkSettings {
                clip: source.clips[index].clone(),
                quiet: Clip::opus_quiet(),
                talk: (**talk).clone(),
                ssrc,
                first_seq,
                first_timestamp,
            });
            flow.start(now);
            return Media::Talk(Box::new(flow));
        }
        let encoded = match layer {
            0 => source.encoded.as_ref(),
            lower => source.layers.get(lower - 1),
        };
        if let Some(ladder) = encoded.filter(|_| index == 0) {
            let mut flow = LiveFlow::new(LiveSettings {
                encoder: Encoder::new(ladder.clone()),
                pacing,
                ssrc,
                first_seq,
                first_timestamp,
            });
            if let Some(wall_clock) = self.wall_clock {
                flow = flow.with_time_codes(wall_clock);
            }
            flow.start(now);
            return Media::Live(flow);
        }
        let mut flow = RtpFlow::new(FlowSettings {
            clip: source.clips[index].clone(),
            pacing,
            ssrc,
            first_seq,
            first_timestamp,
            length: None,
            faults: Faults::default(),
            seed: 0,
            log: false,
        });
        if let Some(wall_clock) = self.wall_clock {
            flow = flow.with_time_codes(wall_clock);
        }
        flow.start(now);
        Media::Clip(flow)
    }

    /// Starts sending, because the PeerConnection is connected.
    pub(super) fn begin_sending(&mut self, cx: &mut Context<'_>, at: usize) {
        let Some(source) = self.source.clone() else {
            return;
        };
        let channel = self.links[at].channel;
        let sent = &mut self.links[at].sent;
        sent.congestion = self.config.follows().then(|| {
            let ladder = source.encoded.as_ref();
            let bitrate = ladder.map_or(0, |ladder| Encoder::new(ladder.clone()).bitrate());
            sent.target = bitrate;
            let numbered = sent.agreed.iter().find_map(|taken| taken.numbered);
            let what = (bitrate, self.config.packet());
            Box::new(Congestion::new(cx.now, what, numbered))
        });
        for (index, clip) in source.clips.iter().enumerate() {
            let agreed = &self.links[at].sent.agreed;
            let agreed = agreed.iter().find(|taken| taken.place == index).copied();
            let Some(taken) = agreed else {
                let text = self.of_link(at, &format!("the server refused {}", clip.media()));
                let kind = "media_refused";
                cx.out.push_back(Output::Note(Note { kind, text }));
                continue;
            };
            let layered = index == 0 && !source.layers.is_empty();
            let layers = taken.layers.iter().enumerate();
            let mut layers: Vec<_> = layers
                .filter_map(|(layer, names)| Some((layer, Some((*names)?))))
                .filter(|_| layered)
                .collect();
            if layers.is_empty() {
                // A single stream, in the best layer.
                layers.push((0, layered.then_some(taken.alone)));
                if layered {
                    let text = self.of_link(at, "the server refused simulcast: one layer is sent");
                    let kind = "simulcast_refused";
                    cx.out.push_back(Output::Note(Note { kind, text }));
                }
            }
            for (layer, names) in layers {
                let which = (index, layer);
                if !self.begin_stream(cx, at, &source, which, (taken, names)) {
                    return;
                }
            }
        }
        if self.links[at].sent.streams.is_empty() {
            let detail = self.of_link(at, "the server refused all offered media");
            return self.fail(cx, Failure::OfferRefused, detail);
        }
        self.links[at].sent.count_at = Some(cx.now + COUNT_EVERY);
        self.links[at].sent.began = Some(cx.now);
        // Only reports and answers to consent checks arrive here.
        cx.out.push_back(Output::Read {
            channel,
            reading: Reading::Late,
        });
        let published = cx.now.since(self.due);
        let nanos = published.as_nanos() as u64;
        cx.recorder.record(m::PUBLISH_DELAY, nanos);
        self.begins(cx, cx.now);
        self.report_sent(cx, at, false);
    }

    /// Starts sending a layer of a clip. Returns `false` if there are no keys.
    fn begin_stream(
        &mut self,
        cx: &mut Context<'_>,
        at: usize,
        source: &MediaSource,
        which: (usize, usize),
        (taken, layer): (Taken, Option<LayerNames>),
    ) -> bool {
        let link = &self.links[at];
        let peer = link.peer.as_ref();
        let Some(sealer) = peer.and_then(|peer| peer.rtp_sealer()) else {
            return false;
        };
        let ssrc = self.own_ssrc(which);
        let first = mix(&[self.seed, 45, number(which.0, which.1)]);
        let again = taken.nack.then(|| {
            Again::new(taken.rtx.map(|payload_type| Retransmissions {
                ssrc: self.rtx_ssrc(which),
                payload_type,
                next: first as u16 & 0x3fff,
            }))
        });
        let congestion = link.sent.congestion.as_ref();
        let numbers = congestion.and_then(|own| own.numbers());
        let numbers = numbers.filter(|_| taken.numbered.is_some());
        let channel = link.channel;
        let flow = cx.flows.insert(Sealed {
            media: self.media(cx.now, source, which),
            sealer: Some(sealer),
            room: BytesMut::new(),
            again,
            numbered: numbers.map(Numbered::new),
            channel: link.relay_channel(),
            level: taken.level,
            layer,
        });
        self.links[at].sent.streams.push(Outgoing::new(flow, ssrc));
        cx.out.push_back(Output::StartFlow { flow, channel });
        true
    }

    /// Tells players whether the stream is published.
    pub(super) fn say_published(&mut self, cx: &mut Context<'_>, is_live: bool) {
        if self.source.is_none() || !self.published {
            return;
        }
        let message = match is_live {
            true => publication::live(&self.sent_kinds()),
            // Other participants of the room may still publish.
            false if self.url.is_room() => return,
            false => publication::gone(None),
        };
        publication::tell(cx, self.url.topic(), message);
    }

    /// Announces the stream once the server seems to receive it.
    pub(super) fn look_whether_live(&mut self, cx: &mut Context<'_>, at: usize) {
        let sent = &self.links[at].sent;
        let late = |began| cx.now.since(began) >= LIVE_AFTER;
        if !self.published && (sent.heard || sent.began.is_some_and(late)) {
            self.published = true;
            self.say_published(cx, true);
        }
    }

    /// Handles everything that is due while media is sent.
    pub(super) fn due_sending(&mut self, cx: &mut Context<'_>, at: usize) {
        self.look_whether_live(cx, at);
        let sent = &mut self.links[at].sent;
        if sent.count_at.is_none_or(|due| cx.now < due) {
            return;
        }
        sent.count_at = Some(cx.now + COUNT_EVERY);
        sent.count(cx.flows, cx.recorder);
        self.report_sent(cx, at, false);
        self.drain(cx, at);
    }

    /// Sends a sender report for each stream, if they are enabled, and a goodbye if `goodbye` is
    /// true.
    fn report_sent(&mut self, cx: &mut Context<'_>, at: usize, goodbye: bool) {
        let wall_clock = self.wall_clock.unwrap_or_default();
        let wall_clock = self.config.sender_reports.then_some(wall_clock);
        let link = &mut self.links[at];
        let Some(peer) = &mut link.peer else {
            return;
        };
        let about = (cx.now, wall_clock, self.cname.as_str());
        for report in link.sent.reports_of_ours(cx.flows, about, goodbye) {
            peer.send_rtcp(&report);
        }
    }

    /// Stops sending, says goodbye, and adds the figures to the recorder.
    pub(super) fn end_sending(&mut self, cx: &mut Context<'_>, at: usize) {
        if self.links[at].sent.streams.is_empty() {
            return;
        }
        let sent = &mut self.links[at].sent;
        sent.stop(cx);
        sent.count(cx.flows, cx.recorder);
        self.report_sent(cx, at, true);
        for stream in std::mem::take(&mut self.links[at].sent.streams) {
            cx.flows.remove(stream.flow);
        }
    }

    /// Fails the client because a flow has ended. Flows end on their own only if nothing can be
    /// sent.
    pub(super) fn sending_ended(&mut self, cx: &mut Context<'_>, flow: FlowId) {
        if self.feed.as_ref().is_some_and(|feed| feed.has(flow)) {
            return self.not_fed(cx);
        }
        let of_ours = self
            .links
            .iter()
            .position(|link| link.sent.streams.iter().any(|own| own.flow == flow));
        if let Some(at) = of_ours {
            let detail = self.of_link(at, "no media can be sent");
            self.fail(cx, Failure::NotSent, detail);
        }
    }
}

#[cfg(test)]
mod tests;
