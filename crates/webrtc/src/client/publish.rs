//! Published media: generated or read from a file, and encrypted when it is sent.

mod congestion_feedback;
mod encrypted_flow;
mod media;
mod rtp_feed;
mod source;

use bytes::BytesMut;
use measure::{Recorder, Time};
use mediagen::ladder::Encoder;
use std::time::Duration;

use super::congestion::{CongestionControl, NumberedStream};
use super::{Client, note};
use crate::failure::Failure;
use crate::feedback::{Message, RtxStream, SendHistoryCounts, TransportCc, messages};
use crate::metrics as m;
use crate::retransmitter::Retransmitter;
use crate::sdp::{MediaKind, NegotiatedMedia, extension as header_extension};
use crate::turn::RelayChannel;
use encrypted_flow::{EncryptedFlow, LayerExtensions};
use kit::media::rtcp::{self, Packet};
use kit::media::source::{MediaSource, SIMULCAST_LAYERS};
use kit::publication::{self, Publication};
use media::{MediaCounts, StreamMedia};
pub(super) use rtp_feed::RtpFeed;
use session::{Context, FlowId, Flows, Output, ReadTiming};
use source::{LayerRids, SourceStream};

/// Interval at which reports are sent.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which media counts as published although the server has sent no report. WHIP does not
/// say when others can play it, and servers inspect packets before they allow that.
const LIVE_AFTER: Duration = Duration::from_secs(2);

/// Maximum number of packets that one report may plausibly cover.
const PACKETS_MAX: u64 = 100_000;

/// Media that a PeerConnection sends.
#[derive(Debug, Default)]
pub(super) struct OutgoingMedia {
    streams: Vec<OutgoingStream>,
    /// Sections that the server accepted.
    accepted_sections: Vec<AcceptedSection>,
    /// Time at which sent media is counted next.
    count_at: Option<Time>,
    /// Time of the next reports.
    report_at: Option<Time>,
    /// Time when the first media was sent.
    began_at: Option<Time>,
    /// Congestion control, if it is enabled.
    congestion: Option<Box<CongestionControl>>,
    /// Bit rate of the video that follows from the estimate.
    target: u64,
    /// Bit rate that was last requested of the encoder.
    requested_bitrate: u64,
    /// Round-trip time to the server, measured by ICE.
    pub(super) round_trip: Option<Duration>,
    /// True once the server has reported received packets.
    is_reported: bool,
}

/// Section that the server accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AcceptedSection {
    /// Index of the section in the offer, which is also that of its clip.
    section_index: usize,
    /// True if the server may request retransmissions (NACK).
    nack: bool,
    /// Payload type of the stream for retransmissions (RTX), if it was negotiated.
    rtx_payload_type: Option<u8>,
    /// Id of the header extension for the audio level.
    audio_level_id: Option<u8>,
    /// Id of the extension for transport-wide sequence numbers, if the server sends feedback for
    /// it. A server may accept numbers for video only. It would count numbered audio packets as
    /// lost.
    transport_cc_id: Option<u8>,
    /// Header extensions of the layers of a simulcast. `None` for a refused layer.
    layers: [Option<LayerExtensions>; SIMULCAST_LAYERS as usize],
    /// Header extensions of the only stream, if no layer was accepted.
    single_stream: LayerExtensions,
}

/// Outgoing stream.
#[derive(Debug)]
struct OutgoingStream {
    flow: FlowId,
    ssrc: u32,
    /// Counts of NACKed packets that the recorder already has.
    recorded_retransmissions: SendHistoryCounts,
    /// Counts of sent media that the recorder already has.
    recorded_counts: MediaCounts,
    /// Cumulative loss in the server's last report.
    reported_lost: i32,
    /// Highest sequence number in the server's last report.
    reported_highest: Option<u32>,
    /// Number of the last full intra request. A repeated number is the same request (RFC 5104,
    /// 4.3.1.2).
    last_fir_number: Option<u8>,
}

impl OutgoingStream {
    fn new(flow: FlowId, ssrc: u32) -> OutgoingStream {
        OutgoingStream {
            flow,
            ssrc,
            recorded_retransmissions: SendHistoryCounts::default(),
            recorded_counts: MediaCounts::default(),
            reported_lost: 0,
            reported_highest: None,
            last_fir_number: None,
        }
    }
}

impl OutgoingMedia {
    /// Time of the next count or of the next reports.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.count_at.into_iter().chain(self.report_at).min()
    }

    /// Starts to count what is sent, and to report it.
    fn begin_counting(&mut self, now: Time) {
        self.count_at = Some(publication::next_count(now));
        self.report_at = Some(now + REPORT_INTERVAL);
    }

    /// Counts what was sent, if that is due. Returns `true` if reports are due.
    fn count_if_due(&mut self, cx: &mut Context<'_>) -> bool {
        let now = cx.now;
        if self.count_at.is_some_and(|due| due <= now) {
            self.count_at = Some(publication::next_count(now));
            self.count(cx.flows, cx.recorder);
        }
        let reports = self.report_at.is_some_and(|due| due <= now);
        if reports {
            self.report_at = Some(now + REPORT_INTERVAL);
        }
        reports
    }

    /// Returns the RTCP compound of each stream: a sender report with the time since 1970, or
    /// nothing if `wall_clock` is `None`, because sender reports are disabled. If `goodbye` is
    /// true, a BYE is added in either case. Without a sender report, it follows an empty receiver
    /// report (RFC 3550, 6.1).
    fn rtcp_compounds(
        &self,
        flows: &mut Flows,
        (now, wall_clock, name): (Time, Option<Duration>, &str),
        goodbye: bool,
    ) -> Vec<Vec<u8>> {
        let mut report = |stream: &OutgoingStream| match wall_clock {
            Some(wall_clock) => Some(flows.access_as(
                stream.flow,
                |encrypted: &mut EncryptedFlow| {
                    encrypted.media.report(now, wall_clock, name, goodbye)
                },
            )),
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
        let is_numbered = |encrypted: &mut EncryptedFlow| encrypted.numbering.is_some();
        let streams = self.streams.iter();
        streams
            .map(|stream| flows.access_as(stream.flow, is_numbered))
            .collect()
    }

    /// Stores what the server accepted, and whether and where it wants retransmissions.
    pub(super) fn set_accepted_sections(&mut self, sections: &[NegotiatedMedia], rids: LayerRids) {
        let accepted_section = |section: &NegotiatedMedia| {
            let mut codecs = section.codecs.iter();
            let nack = codecs.any(|codec| codec.feedback.iter().any(|words| words == "nack"));
            let rtx = section.codecs.iter().find(|codec| codec.has_name("rtx"));
            let number = |uri| {
                let number = section.extension_id(uri);
                number.and_then(|number| u8::try_from(number).ok())
            };
            let mid = match section.mid.as_bytes() {
                &[name] => number(header_extension::MID).map(|id| (id, name)),
                _ => None,
            };
            let rid = number(header_extension::RID);
            let layer_extensions = |name: &str| {
                let is_accepted = section.layers.iter().any(|own| own == name);
                let &[letter] = name.as_bytes() else {
                    return None;
                };
                Some(LayerExtensions {
                    mid,
                    rid: Some((rid.filter(|_| is_accepted)?, letter)),
                    repaired_rid: number(header_extension::REPAIRED_RID),
                })
            };
            AcceptedSection {
                layers: rids.map(layer_extensions),
                single_stream: LayerExtensions {
                    mid,
                    rid: None,
                    repaired_rid: None,
                },
                section_index: section.index,
                nack,
                rtx_payload_type: rtx.map(|codec| codec.payload_type),
                audio_level_id: number(header_extension::AUDIO_LEVEL),
                transport_cc_id: number(header_extension::TRANSPORT_CC)
                    .filter(|_| section.has_feedback("transport-cc")),
            }
        };
        let sending = || sections.iter().filter(|section| section.direction.sends());
        self.accepted_sections = sending().map(accepted_section).collect();
    }

    /// Sends all packets over this TURN channel from now on.
    pub(super) fn set_turn_channel(&mut self, channel: Option<RelayChannel>, flows: &mut Flows) {
        for stream in &self.streams {
            flows.access_as(stream.flow, |encrypted: &mut EncryptedFlow| {
                encrypted.channel = channel
            });
        }
    }

    fn stream(&mut self, ssrc: u32) -> Option<&mut OutgoingStream> {
        self.streams.iter_mut().find(|stream| stream.ssrc == ssrc)
    }

    /// Handles feedback of the server, up to the first message that cannot be parsed.
    fn feedback(&mut self, compound: &[u8], now: Time, flows: &mut Flows, recorder: &mut Recorder) {
        for message in messages(compound).map_while(Result::ok) {
            match message {
                Message::Nack { media, missing, .. } => {
                    // Every requested packet counts, whether it is retransmitted or not.
                    recorder.add(m::NACKED_PACKETS, missing.len() as u64);
                    let round_trip = self.round_trip;
                    if let Some(stream) = self.stream(media) {
                        flows.access_as(stream.flow, |encrypted: &mut EncryptedFlow| {
                            if let Some(retransmissions) = &mut encrypted.retransmissions {
                                retransmissions.queue_requested(&missing, now, round_trip);
                            }
                        });
                    }
                }
                Message::PictureLoss { media, .. } => {
                    recorder.add(m::KEY_FRAME_REQUESTS, 1);
                    if let Some(stream) = self.stream(media) {
                        flows.access_as(stream.flow, |encrypted: &mut EncryptedFlow| {
                            encrypted.media.request_key_frame()
                        });
                    }
                }
                Message::FullIntra { requests, .. } => {
                    recorder.add(m::KEY_FRAME_REQUESTS, requests.len() as u64);
                    for (media, number) in requests {
                        if let Some(stream) = self.stream(media)
                            && stream.last_fir_number.replace(number) != Some(number)
                        {
                            flows.access_as(stream.flow, |encrypted: &mut EncryptedFlow| {
                                encrypted.media.request_key_frame()
                            });
                        }
                    }
                }
                Message::Remb { bitrate, .. } => {
                    recorder.add(m::REMBS_RECEIVED, 1);
                    if let Some(congestion) = &mut self.congestion {
                        congestion.remb(bitrate);
                    }
                    self.apply_estimate(flows);
                }
                Message::TransportCc(message) => {
                    recorder.add(m::TRANSPORT_FEEDBACK_RECEIVED, 1);
                    self.handle_transport_feedback(&message, now, flows);
                }
            }
        }
    }

    /// Handles RTCP of the server: its receiver reports and its feedback, up to the first packet
    /// that cannot be parsed.
    pub(super) fn handle_rtcp(
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
                let covered = highest.map(|before| block.extended_highest.wrapping_sub(before));
                // The first report does not say how many packets its losses refer to. A report that
                // goes back belongs to another count.
                let counted = covered.filter(|covered| u64::from(*covered) <= PACKETS_MAX);
                packets += counted.map_or(0, u64::from);
                // Some receivers report a negative loss because of duplicates.
                let reported = block.cumulative_lost.max(0);
                let newly_lost = i64::from(reported) - i64::from(stream.reported_lost);
                stream.reported_lost = reported;
                match u64::try_from(newly_lost) {
                    Ok(newly_lost) => {
                        recorder.add(m::REPORTED_LOST, newly_lost);
                        lost += newly_lost * u64::from(counted.is_some());
                    }
                    // Late packets have arrived, or duplicates.
                    Err(_) => recorder.take_back(m::REPORTED_LOST, newly_lost.unsigned_abs()),
                }
                self.is_reported = true;
            }
        }
        if let Some(congestion) = self.congestion.as_mut().filter(|_| packets > 0) {
            congestion.handle_report(now, packets, lost);
            self.apply_estimate(flows);
        }
    }
}

impl OutgoingMedia {
    /// Adds what was sent since the last call to the recorder.
    fn count(&mut self, flows: &mut Flows, recorder: &mut Recorder) {
        for stream in &mut self.streams {
            let now = flows.access_as(stream.flow, |encrypted: &mut EncryptedFlow| {
                let retransmissions = encrypted
                    .retransmissions
                    .as_ref()
                    .map(Retransmitter::counts);
                (
                    encrypted.media.counts(),
                    retransmissions.unwrap_or_default(),
                )
            });
            let (now, retransmissions) = now;
            let retransmissions_before =
                std::mem::replace(&mut stream.recorded_retransmissions, retransmissions);
            let sent_again = retransmissions.retransmitted - retransmissions_before.retransmitted;
            recorder.add(m::RETRANSMITTED_PACKETS, sent_again);
            let too_late = retransmissions.unknown - retransmissions_before.unknown;
            recorder.add(m::NACKED_TOO_LATE, too_late);
            let before = std::mem::replace(&mut stream.recorded_counts, now);
            recorder.add(m::SENT_PACKETS, now.packets - before.packets);
            recorder.add(m::SENT_BYTES, now.bytes - before.bytes);
            recorder.add(m::SENT_FRAMES, now.frames - before.frames);
            recorder.add(m::NOT_TAKEN, now.not_taken - before.not_taken);
            let early = now.early_key_frames - before.early_key_frames;
            recorder.add(m::EARLY_KEY_FRAMES, early);
            recorder.add(
                m::SENT_VOICE_PACKETS,
                now.voice_packets - before.voice_packets,
            );
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
                .access_as(stream.flow, |encrypted: &mut EncryptedFlow| {
                    encrypted.media.stop()
                });
        }
    }
}

impl Client {
    /// Returns the kinds of media that the server accepted.
    pub(super) fn sent_kinds(&self) -> Vec<&'static str> {
        let Some(source) = &self.setup.source else {
            return Vec::new();
        };
        if self.feed.is_some() {
            return source.clips.iter().map(|clip| clip.media()).collect();
        }
        let accepted = self
            .links
            .iter()
            .flat_map(|link| &link.outgoing_media.accepted_sections);
        accepted
            .filter_map(|accepted| Some(source.clips.get(accepted.section_index)?.media()))
            .collect()
    }

    /// Starts sending, because the PeerConnection is connected.
    pub(super) fn begin_sending(&mut self, cx: &mut Context<'_>, at: usize) {
        let Some(source) = self.setup.source.clone() else {
            return;
        };
        let channel = self.links[at].channel;
        let outgoing = &mut self.links[at].outgoing_media;
        outgoing.congestion = self.setup.config.follows_congestion().then(|| {
            let ladder = source.ladder.as_ref();
            let bitrate = ladder.map_or(0, |ladder| Encoder::new(ladder.clone()).bitrate());
            outgoing.target = bitrate;
            let extension = outgoing
                .accepted_sections
                .iter()
                .find_map(|taken| taken.transport_cc_id);
            let what = (bitrate, self.setup.config.payload_max());
            Box::new(CongestionControl::new(cx.now, what, extension))
        });
        for (index, clip) in source.clips.iter().enumerate() {
            let accepted = &self.links[at].outgoing_media.accepted_sections;
            let accepted = accepted
                .iter()
                .find(|taken| taken.section_index == index)
                .copied();
            let Some(taken) = accepted else {
                let text = self.describe_link(at, &format!("the server refused {}", clip.media()));
                note(cx, "media_refused", text);
                continue;
            };
            let layered = index == 0 && !source.lower_layers.is_empty();
            let layers = taken.layers.iter().enumerate();
            let mut layers: Vec<_> = layers
                .filter_map(|(layer, extensions)| Some((layer, Some((*extensions)?))))
                .filter(|_| layered)
                .collect();
            if layers.is_empty() {
                // A single stream, in the best layer.
                layers.push((0, layered.then_some(taken.single_stream)));
                if layered {
                    let text =
                        self.describe_link(at, "the server refused simulcast: one layer is sent");
                    note(cx, "simulcast_refused", text);
                }
            }
            for (layer, extensions) in layers {
                let stream = SourceStream { clip: index, layer };
                if !self.begin_stream(cx, at, &source, stream, (taken, extensions)) {
                    return;
                }
            }
        }
        if self.links[at].outgoing_media.streams.is_empty() {
            let detail = self.describe_link(at, "the server refused all offered media");
            return self.fail(cx, Failure::OfferRefused, detail);
        }
        self.links[at].outgoing_media.begin_counting(cx.now);
        self.links[at].outgoing_media.began_at = Some(cx.now);
        // Only reports and answers to consent checks arrive here.
        cx.out.push_back(Output::SetReadTiming {
            channel,
            reading: ReadTiming::Late,
        });
        self.startup.published(cx);
        self.send_sender_reports(cx, at, false);
    }

    /// Starts sending a layer of a clip. Returns `false` if there are no keys.
    fn begin_stream(
        &mut self,
        cx: &mut Context<'_>,
        at: usize,
        source: &MediaSource,
        stream: SourceStream,
        (section, layer): (AcceptedSection, Option<LayerExtensions>),
    ) -> bool {
        let link = &self.links[at];
        let peer = link.peer.as_ref();
        let Some(sealer) = peer.and_then(|peer| peer.rtp_sealer()) else {
            return false;
        };
        let ssrc = self.setup.own_ssrc(stream);
        let retransmissions = section.nack.then(|| {
            Retransmitter::new(section.rtx_payload_type.map(|payload_type| RtxStream {
                ssrc: self.setup.rtx_ssrc(stream),
                payload_type,
                next_sequence: self.setup.rtx_first_sequence(stream),
            }))
        });
        let congestion = link.outgoing_media.congestion.as_ref();
        let numbers = congestion.and_then(|own| own.numbers());
        let numbers = numbers.filter(|_| section.transport_cc_id.is_some());
        let channel = link.channel;
        let flow = cx.flows.insert(EncryptedFlow {
            media: self.setup.start_media(cx.now, source, stream),
            sealer: Some(sealer),
            buffer: BytesMut::new(),
            retransmissions,
            numbering: numbers.map(NumberedStream::new),
            channel: link.relay_channel(),
            audio_level_id: section.audio_level_id,
            layer_extensions: layer,
        });
        self.links[at]
            .outgoing_media
            .streams
            .push(OutgoingStream::new(flow, ssrc));
        cx.out.push_back(Output::StartFlow { flow, channel });
        true
    }

    /// Tells players whether the stream is published.
    pub(super) fn announce_published(&mut self, cx: &mut Context<'_>, is_live: bool) {
        if self.setup.source.is_none() || !self.published {
            return;
        }
        let kinds = self.sent_kinds();
        let said = match is_live {
            true => Publication::Live {
                audio: kinds.contains(&MediaKind::Audio.name()),
                video: kinds.contains(&MediaKind::Video.name()),
            },
            // Other participants of the room may still publish.
            false if self.setup.url.is_room() => return,
            false => Publication::GONE,
        };
        said.publish(cx, self.setup.url.topic());
    }

    /// Announces the stream once the server seems to receive it.
    pub(super) fn announce_when_live(&mut self, cx: &mut Context<'_>, at: usize) {
        let outgoing = &self.links[at].outgoing_media;
        let late = |began| cx.now.since(began) >= LIVE_AFTER;
        if !self.published && (outgoing.is_reported || outgoing.began_at.is_some_and(late)) {
            self.published = true;
            self.announce_published(cx, true);
        }
    }

    /// Handles everything that is due while media is sent.
    pub(super) fn handle_sending_due(&mut self, cx: &mut Context<'_>, at: usize) {
        self.announce_when_live(cx, at);
        if self.links[at].outgoing_media.count_if_due(cx) {
            self.send_sender_reports(cx, at, false);
            self.flush_peer(cx, at);
        }
    }

    /// Sends a sender report for each stream, if they are enabled, and a goodbye if `goodbye` is
    /// true.
    fn send_sender_reports(&mut self, cx: &mut Context<'_>, at: usize, goodbye: bool) {
        let wall_clock = self.setup.wall_clock.unwrap_or_default();
        let wall_clock = self.setup.config.sender_reports.then_some(wall_clock);
        let link = &mut self.links[at];
        let Some(peer) = &mut link.peer else {
            return;
        };
        let sender = (cx.now, wall_clock, self.setup.cname.as_str());
        for report in link
            .outgoing_media
            .rtcp_compounds(cx.flows, sender, goodbye)
        {
            peer.send_rtcp(&report);
        }
    }

    /// Stops sending, says goodbye, and adds the figures to the recorder.
    pub(super) fn end_sending(&mut self, cx: &mut Context<'_>, at: usize) {
        if self.links[at].outgoing_media.streams.is_empty() {
            return;
        }
        let outgoing = &mut self.links[at].outgoing_media;
        outgoing.stop(cx);
        outgoing.count(cx.flows, cx.recorder);
        self.send_sender_reports(cx, at, true);
        for stream in std::mem::take(&mut self.links[at].outgoing_media.streams) {
            cx.flows.remove(stream.flow);
        }
    }

    /// Fails the client because a flow has ended. Flows end on their own only if nothing can be
    /// sent.
    pub(super) fn handle_flow_ended(&mut self, cx: &mut Context<'_>, flow: FlowId) {
        if self.feed.as_ref().is_some_and(|feed| feed.has(flow)) {
            return self.fail_feed(cx);
        }
        let link_index = self.links.iter().position(|link| {
            link.outgoing_media
                .streams
                .iter()
                .any(|own| own.flow == flow)
        });
        if let Some(at) = link_index {
            let detail = self.describe_link(at, "no media can be sent");
            self.fail(cx, Failure::NotSent, detail);
        }
    }
}

#[cfg(test)]
mod tests;
