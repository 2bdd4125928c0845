//! Sending to a player.

use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::answers::SentTrack;
use super::flow::{FlowConfig, ForwardQueue, PlayerFlow, PlayerMedia};
use super::publication::{PeerMessage, Publication, StreamItem, Track, peer_topic, stream_topic};
use super::records::{SentCounts, SentTrackCounts};
use super::{CHANNEL, Shared};
use crate::extension;
use crate::feedback::{RtxStream, bare_goodbye};
use crate::peer::Peer;
use crate::sdp::Codec;
use crate::transport_sequence::TransportSequence;
use kit::media::rtcp::{SenderInfo, write_cname, write_sender_report};
use kit::media::rtp::{FlowSettings, RtpFlow};
use kit::media::source::MediaSource;
use session::{Context, FlowId, Output};

/// Interval between sender reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of tracks listed in a record. A room may add tracks without limit.
const TRACKS_MAX: usize = 1024;

/// Stream to be played.
#[derive(Debug)]
pub(super) struct PlannedStream {
    pub(super) name: String,
    pub(super) planned: Vec<SentTrack>,
    /// Publication of the stream. `None` for generated media.
    pub(super) publication: Option<Arc<Publication>>,
}

/// Counts of streams that have ended.
#[derive(Debug, Default)]
pub(super) struct EndedStreams {
    pub(super) sent: SentCounts,
    pub(super) media: Vec<SentTrackCounts>,
}

impl EndedStreams {
    pub(super) fn add(&mut self, media: SentTrackCounts) {
        self.sent.add(media.counts);
        if self.media.len() < TRACKS_MAX {
            self.media.push(media);
        }
    }
}

/// Returns the tracks of generated media.
pub(super) fn generated_tracks(source: &MediaSource) -> Vec<Track> {
    let track = |clip: &Arc<kit::mediagen::clip::Clip>| {
        let (kind, codec) = Codec::of_clip(clip);
        Track {
            kind,
            codec: match clip.parameters() {
                "" => codec,
                parameters => codec.with_parameters(parameters),
            },
        }
    };
    source.clips.iter().map(track).collect()
}

/// Track that is sent to the player.
#[derive(Debug)]
struct Stream {
    planned: SentTrack,
    flow: FlowId,
    ended: bool,
}

/// Sender of one stream to a player.
#[derive(Debug)]
pub(super) struct StreamSender {
    shared: Arc<Shared>,
    number: u64,
    /// Stream that is played. Its planned tracks are taken at the start.
    stream: PlannedStream,
    /// Number of the next item of a publication that is played, and the serial number by which the
    /// player leaves it.
    position: Option<(u64, u64)>,
    streams: Vec<Stream>,
    report_at: Option<Time>,
}

impl StreamSender {
    pub(super) fn new(shared: Arc<Shared>, number: u64, stream: PlannedStream) -> StreamSender {
        StreamSender {
            shared,
            number,
            stream,
            position: None,
            streams: Vec::new(),
            report_at: None,
        }
    }

    /// Returns the topic on which new items of the publication are announced.
    pub(super) fn topic(&self) -> Option<String> {
        let publication = self.stream.publication.as_ref()?;
        Some(stream_topic(publication.stream_index))
    }

    /// Returns the number of the PeerConnection that publishes the stream, if a client does.
    pub(super) fn publisher(&self) -> Option<u64> {
        let publication = self.stream.publication.as_ref()?;
        Some(publication.number)
    }

    /// Returns true if a track is sent with this SSRC.
    pub(super) fn sends_ssrc(&self, ssrc: u32) -> bool {
        self.streams.iter().any(|own| own.planned.ssrc == ssrc)
    }

    /// Starts sending. Packets are numbered by `numbers` if that was negotiated. Returns `false` if
    /// there is nothing to send.
    pub(super) fn start(
        &mut self,
        cx: &mut Context<'_>,
        peer: &Peer,
        numbers: &mut Option<TransportSequence>,
    ) -> bool {
        if let Some(publication) = &self.stream.publication {
            let now = self.shared.publication(&self.stream.name);
            if now.is_none_or(|now| now.number != publication.number) {
                return false;
            }
            let Some(joined) = self.shared.published.join(&self.stream.name) else {
                return false;
            };
            self.position = Some((joined.next, joined.serial));
            cx.out
                .extend(self.topic().map(|topic| Output::Subscribe { topic }));
        }
        let mut numbered = self
            .stream
            .planned
            .iter()
            .filter_map(|planned| planned.transport_cc_id);
        if let Some(extension) = numbered.next() {
            numbers.get_or_insert_with(|| TransportSequence::new(extension));
        }
        for planned in std::mem::take(&mut self.stream.planned) {
            if self.shared.config.faults.silences(planned.kind) {
                continue;
            }
            let Some(sealer) = peer.rtp_sealer() else {
                return false;
            };
            let track = planned.track;
            // Streams of a room may have equal track indexes, but their SSRCs differ.
            let random = |of| {
                let parts = [of, track as u64, u64::from(planned.ssrc)];
                self.shared.seeded_random(self.number, &parts)
            };
            let media = match &self.stream.publication {
                Some(_) => PlayerMedia::Forwarded(ForwardQueue::default()),
                None => {
                    let config = &self.shared.config;
                    let flow = RtpFlow::new(FlowSettings {
                        clip: self.shared.source.clips[track].clone(),
                        pacing: self.shared.source.pacing,
                        ssrc: planned.ssrc,
                        // Well below the wrap-around: players know the index by then.
                        first_seq: random(5) as u16 & 0x3fff,
                        first_timestamp: random(6) as u32,
                        length: config.length,
                        faults: config.faults.for_generation(),
                        seed: random(7),
                        log: false,
                    });
                    let mut flow = flow.with_time_codes(config.wall_clock);
                    flow.start(cx.now);
                    PlayerMedia::Generated(Box::new(flow))
                }
            };
            let retransmissions = planned.nack.then(|| {
                planned.rtx.map(|payload_type| RtxStream {
                    ssrc: planned.rtx_ssrc,
                    payload_type,
                    next_sequence: random(8) as u16 & 0x3fff,
                })
            });
            let config = FlowConfig {
                ssrc: planned.ssrc,
                payload_type: planned.payload_type,
                faults: self.shared.config.faults.clone(),
                seed: random(9),
                retransmissions,
                transport_numbers: numbers
                    .clone()
                    .filter(|_| planned.transport_cc_id.is_some()),
            };
            let flow = cx.flows.insert(PlayerFlow::new(media, config, sealer));
            cx.out.push_back(Output::StartFlow {
                flow,
                channel: CHANNEL,
            });
            self.streams.push(Stream {
                planned,
                flow,
                ended: false,
            });
        }
        self.report_at = Some(cx.now + REPORT_INTERVAL);
        // Decoding can only start at a key frame.
        self.request_key_frame(cx);
        true
    }

    /// Requests a key frame from the publisher. Generated media keeps its own key frame interval.
    pub(super) fn request_key_frame(&self, cx: &mut Context<'_>) {
        if let Some(publication) = &self.stream.publication {
            let topic = peer_topic(publication.publisher_slot);
            PeerMessage::KeyFrameRequest.publish(cx, topic, publication.number);
        }
    }

    /// Queues retransmissions of packets that the player requested.
    pub(super) fn request_retransmissions(&self, cx: &mut Context<'_>, ssrc: u32, missing: &[u16]) {
        let mut streams = self.streams.iter();
        if let Some(stream) = streams.find(|own| own.planned.ssrc == ssrc) {
            let now = cx.now;
            cx.flows.access_as(stream.flow, |flow: &mut PlayerFlow| {
                flow.request_retransmissions(missing, now);
            });
        }
    }

    /// Forwards new items of the publication. If `message` says that it ended, its flows finish.
    pub(super) fn forward_items(
        &mut self,
        cx: &mut Context<'_>,
        peer: &mut Peer,
        message: PeerMessage,
    ) {
        let Some((next, _)) = &mut self.position else {
            return;
        };
        let (items, end) = self.shared.published.items_from(&self.stream.name, *next);
        *next = end;
        for item in items {
            match item {
                StreamItem::Media {
                    track,
                    header,
                    level,
                    payload,
                } => {
                    let mut streams = self.streams.iter();
                    if let Some(stream) = streams.find(|own| own.planned.track == track) {
                        let now = cx.now;
                        let level = stream.planned.audio_level_id.zip(level);
                        let added = level
                            .and_then(|(id, level)| extension::add_element(&header, id, [level]));
                        let header = added.unwrap_or(header);
                        cx.flows.access_as(stream.flow, |flow: &mut PlayerFlow| {
                            flow.push(now, &header, payload);
                        });
                    }
                }
                StreamItem::Clock {
                    track,
                    ntp_time,
                    rtp_time,
                } => self.report_relayed(cx, peer, track, ntp_time, rtp_time),
            }
        }
        if message == PeerMessage::StreamEnded {
            for stream in &self.streams {
                cx.flows
                    .access_as(stream.flow, |flow: &mut PlayerFlow| flow.finish());
            }
        }
    }

    /// Marks a flow as ended. Returns true if all flows have ended.
    pub(super) fn flow_ended(&mut self, flow: FlowId) -> bool {
        for stream in &mut self.streams {
            stream.ended |= stream.flow == flow;
        }
        !self.streams.is_empty() && self.streams.iter().all(|stream| stream.ended)
    }

    pub(super) fn deadline(&self) -> Time {
        self.report_at.unwrap_or(Time::NEVER)
    }

    pub(super) fn handle_timeout(&mut self, cx: &mut Context<'_>, peer: &mut Peer) {
        if self.report_at.is_some_and(|due| due <= cx.now) {
            self.report_at = Some(cx.now + REPORT_INTERVAL);
            self.report(cx, peer, false);
        }
    }

    /// Sends a sender report on each generated track. Reports on forwarded tracks come from the
    /// publisher, except the last one, which says goodbye (BYE).
    pub(super) fn report(&self, cx: &mut Context<'_>, peer: &mut Peer, goodbye: bool) {
        let (now, wall_clock) = (cx.now, self.shared.config.wall_clock);
        let cname = self.shared.cname();
        for stream in &self.streams {
            let generated = cx.flows.access_as(stream.flow, |flow: &mut PlayerFlow| {
                let generated = flow.generated();
                generated.map(|generated| generated.report(now, wall_clock, &cname, goodbye))
            });
            let compound = match generated {
                Some(compound) => compound,
                None if !goodbye => continue,
                None => bare_goodbye(stream.planned.ssrc, &cname),
            };
            peer.send_rtcp(&compound);
        }
    }

    /// Forwards a publisher's sender report, with the counts of this server's packets.
    fn report_relayed(
        &self,
        cx: &mut Context<'_>,
        peer: &mut Peer,
        track: usize,
        ntp_time: u64,
        rtp_time: u32,
    ) {
        let mut streams = self.streams.iter();
        let Some(stream) = streams.find(|own| own.planned.track == track) else {
            return;
        };
        let sent = cx
            .flows
            .access_as(stream.flow, |flow: &mut PlayerFlow| flow.sent());
        let info = SenderInfo {
            ssrc: stream.planned.ssrc,
            ntp_time,
            rtp_time,
            // Both counts wrap around (RFC 3550, 6.4.1).
            packet_count: sent.0 as u32,
            octet_count: sent.1 as u32,
        };
        let mut compound = Vec::with_capacity(64);
        write_sender_report(&mut compound, &info, &[]);
        write_cname(&mut compound, info.ssrc, &self.shared.cname());
        peer.send_rtcp(&compound);
    }

    /// Stops sending, and adds the counts to `ended`.
    pub(super) fn end(
        &mut self,
        cx: &mut Context<'_>,
        peer: &mut Peer,
        goodbye: bool,
        ended: &mut EndedStreams,
    ) {
        for stream in &self.streams {
            cx.out.push_back(Output::StopFlow { flow: stream.flow });
        }
        if goodbye {
            self.report(cx, peer, true);
        }
        for stream in std::mem::take(&mut self.streams) {
            let flow: Box<PlayerFlow> = cx.flows.remove_as(stream.flow);
            ended.add(SentTrackCounts {
                kind: stream.planned.kind.name(),
                ssrc: stream.planned.ssrc,
                counts: flow.counts(),
            });
        }
        if let Some((_, serial)) = self.position {
            self.shared.published.leave(&self.stream.name, serial);
        }
    }
}
