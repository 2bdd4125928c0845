//! Sending to a player.

use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::flow::{FlowConfig, Media, Relayed, ServedFlow};
use super::negotiate::Planned;
use super::relay::{Publication, Relay, Track, Word, topic_of_peer, topic_of_stream};
use super::served::{SentCounts, SentMedia};
use super::{CHANNEL, Shared};
use crate::media::rtcp::{SenderReportInfo, write_bye, write_cname, write_sender_report};
use crate::media::rtp::{FlowSettings, RtpFlow};
use crate::media::source::MediaSource;
use crate::session::{Context, FlowId, Output};
use crate::webrtc::extension;
use crate::webrtc::feedback::Retransmissions;
use crate::webrtc::peer::Peer;
use crate::webrtc::sdp::{Codec, MediaKind};
use crate::webrtc::transport_numbers::TransportNumbers;

/// Interval between sender reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of tracks listed in a record. A room may add tracks without limit.
const MEDIA_MAX: usize = 1024;

/// Stream to be played.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) name: String,
    pub(super) planned: Vec<Planned>,
    /// Publication of the stream. `None` for generated media.
    pub(super) publication: Option<Arc<Publication>>,
}

/// Counts of streams that have ended.
#[derive(Debug, Default)]
pub(super) struct Past {
    pub(super) sent: SentCounts,
    pub(super) media: Vec<SentMedia>,
}

impl Past {
    pub(super) fn add(&mut self, media: SentMedia) {
        self.sent.add(&media.counts);
        if self.media.len() < MEDIA_MAX {
            self.media.push(media);
        }
    }
}

/// Returns the tracks of generated media.
pub(super) fn tracks_of(source: &MediaSource) -> Vec<Track> {
    let track = |clip: &Arc<mediagen::clip::Clip>| {
        let encoding = clip.encoding();
        let (name, rate) = encoding.split_once('/').unwrap_or((encoding, ""));
        let rate = rate.parse().unwrap_or(clip.clock_rate());
        let codec = Codec::new(clip.payload_type(), name, rate);
        Track {
            kind: match clip.media() {
                "audio" => MediaKind::Audio,
                _ => MediaKind::Video,
            },
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
    planned: Planned,
    flow: FlowId,
    ended: bool,
}

/// Sender of one stream to a player.
#[derive(Debug)]
pub(super) struct Playing {
    shared: Arc<Shared>,
    number: u64,
    name: String,
    planned: Vec<Planned>,
    /// Publication that is played; `None` for generated media. Once it is played, `joined` holds
    /// the number of its next item, and the serial number by which the player leaves it.
    publication: Option<Arc<Publication>>,
    joined: Option<(u64, u64)>,
    streams: Vec<Stream>,
    report_at: Option<Time>,
}

impl Playing {
    pub(super) fn new(shared: Arc<Shared>, number: u64, feed: Feed) -> Playing {
        let Feed {
            name,
            planned,
            publication,
        } = feed;
        Playing {
            shared,
            number,
            name,
            planned,
            publication,
            joined: None,
            streams: Vec::new(),
            report_at: None,
        }
    }

    /// Returns the topic on which new items of the publication are announced.
    pub(super) fn topic(&self) -> Option<String> {
        let publication = self.publication.as_ref()?;
        Some(topic_of_stream(publication.index))
    }

    /// Returns the number of the PeerConnection that publishes the stream, if a client does.
    pub(super) fn publisher(&self) -> Option<u64> {
        self.publication
            .as_ref()
            .map(|publication| publication.number)
    }

    /// Returns true if a track is sent with this SSRC.
    pub(super) fn has(&self, ssrc: u32) -> bool {
        self.streams.iter().any(|own| own.planned.ssrc == ssrc)
    }

    /// Starts sending. Packets are numbered by `numbers` if that was negotiated. Returns `false` if
    /// there is nothing to send.
    pub(super) fn begin(
        &mut self,
        cx: &mut Context<'_>,
        peer: &Peer,
        numbers: &mut Option<TransportNumbers>,
    ) -> bool {
        if let Some(publication) = &self.publication {
            let now = self.shared.publication(&self.name);
            if now.is_none_or(|now| now.number != publication.number) {
                return false;
            }
            let Some(joined) = self.shared.published.join(&self.name) else {
                return false;
            };
            self.joined = Some((joined.next, joined.serial));
            cx.out
                .extend(self.topic().map(|topic| Output::Listen { topic }));
        }
        let mut numbered = self.planned.iter().filter_map(|planned| planned.transport);
        if let Some(extension) = numbered.next() {
            numbers.get_or_insert_with(|| TransportNumbers::new(extension));
        }
        for planned in std::mem::take(&mut self.planned) {
            if self.shared.config.faults.silences(planned.kind) {
                continue;
            }
            let Some(sealer) = peer.rtp_sealer() else {
                return false;
            };
            let track = planned.track;
            // Streams of a room may have equal track indexes, but their SSRCs differ.
            let drawn = |of| {
                let parts = [of, track as u64, u64::from(planned.ssrc)];
                self.shared.drawn(self.number, &parts)
            };
            let media = match &self.publication {
                Some(_) => Media::Relayed(Relayed::default()),
                None => {
                    let config = &self.shared.config;
                    let flow = RtpFlow::new(FlowSettings {
                        clip: self.shared.source.clips[track].clone(),
                        pacing: self.shared.source.pacing,
                        ssrc: planned.ssrc,
                        // Well below the wrap-around: players know the index by then.
                        first_seq: drawn(5) as u16 & 0x3fff,
                        first_timestamp: drawn(6) as u32,
                        length: config.length,
                        faults: config.faults.of_making(),
                        seed: drawn(7),
                        log: false,
                    });
                    let mut flow = flow.with_time_codes(config.wall_clock);
                    flow.start(cx.now);
                    Media::Made(Box::new(flow))
                }
            };
            let again = planned.nack.then(|| {
                planned.rtx.map(|payload_type| Retransmissions {
                    ssrc: planned.rtx_ssrc,
                    payload_type,
                    next: drawn(8) as u16 & 0x3fff,
                })
            });
            let config = FlowConfig {
                ssrc: planned.ssrc,
                payload_type: planned.payload_type,
                faults: self.shared.config.faults.clone(),
                seed: drawn(9),
                again,
                numbers: numbers.clone().filter(|_| planned.transport.is_some()),
            };
            let flow = cx.flows.insert(ServedFlow::new(media, config, sealer));
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
        self.report_at = Some(cx.now + REPORT_EVERY);
        // Decoding can only start at a key frame.
        self.wants_picture(cx);
        true
    }

    /// Requests a key frame from the publisher. Generated media keeps its own key frame interval.
    pub(super) fn wants_picture(&self, cx: &mut Context<'_>) {
        if let Some(publication) = &self.publication {
            cx.out.push_back(Output::Tell {
                topic: topic_of_peer(publication.slot),
                message: Word::Picture.about(publication.number).into(),
            });
        }
    }

    /// Queues retransmissions of packets that the player requested.
    pub(super) fn ask(&self, cx: &mut Context<'_>, ssrc: u32, missing: &[u16]) {
        let mut streams = self.streams.iter();
        if let Some(stream) = streams.find(|own| own.planned.ssrc == ssrc) {
            let now = cx.now;
            cx.flows.with(stream.flow, |flow: &mut ServedFlow| {
                flow.ask(missing, now);
            });
        }
    }

    /// Forwards new items of the publication. If `word` says that it ended, its flows finish.
    pub(super) fn told(&mut self, cx: &mut Context<'_>, peer: &mut Peer, word: Word) {
        let Some((next, _)) = &mut self.joined else {
            return;
        };
        let (pieces, end) = self.shared.published.take(&self.name, *next);
        *next = end;
        for piece in pieces {
            match piece {
                Relay::Media {
                    track,
                    header,
                    level,
                    payload,
                } => {
                    let mut streams = self.streams.iter();
                    if let Some(stream) = streams.find(|own| own.planned.track == track) {
                        let now = cx.now;
                        let level = stream.planned.level.zip(level);
                        let added =
                            level.and_then(|(id, level)| extension::add(&header, id, [level]));
                        let header = added.unwrap_or(header);
                        cx.flows.with(stream.flow, |flow: &mut ServedFlow| {
                            flow.push(now, &header, payload);
                        });
                    }
                }
                Relay::Clock {
                    track,
                    ntp_time,
                    rtp_time,
                } => self.report_relayed(cx, peer, track, (ntp_time, rtp_time)),
            }
        }
        if word == Word::Over {
            for stream in &self.streams {
                cx.flows
                    .with(stream.flow, |flow: &mut ServedFlow| flow.finish());
            }
        }
    }

    /// Marks a flow as ended. Returns true if all flows have ended.
    pub(super) fn ended(&mut self, flow: FlowId) -> bool {
        for stream in &mut self.streams {
            stream.ended |= stream.flow == flow;
        }
        !self.streams.is_empty() && self.streams.iter().all(|stream| stream.ended)
    }

    pub(super) fn deadline(&self) -> Time {
        self.report_at.unwrap_or(Time::NEVER)
    }

    pub(super) fn look(&mut self, cx: &mut Context<'_>, peer: &mut Peer) {
        if self.report_at.is_some_and(|due| due <= cx.now) {
            self.report_at = Some(cx.now + REPORT_EVERY);
            self.report(cx, peer, false);
        }
    }

    /// Sends a sender report on each generated track. Reports on forwarded tracks come from the
    /// publisher, except the last one, which says goodbye (BYE).
    pub(super) fn report(&self, cx: &mut Context<'_>, peer: &mut Peer, goodbye: bool) {
        let (now, wall_clock) = (cx.now, self.shared.config.wall_clock);
        let cname = self.shared.cname();
        for stream in &self.streams {
            let made = cx.flows.with(stream.flow, |flow: &mut ServedFlow| {
                let made = flow.made();
                made.map(|made| made.report(now, wall_clock, &cname, goodbye))
            });
            let compound = match made {
                Some(compound) => compound,
                None if !goodbye => continue,
                None => {
                    let ssrc = stream.planned.ssrc;
                    let mut compound = Vec::with_capacity(64);
                    crate::media::rtcp::write_receiver_report(&mut compound, ssrc, &[]);
                    write_cname(&mut compound, ssrc, &cname);
                    write_bye(&mut compound, &[ssrc], None);
                    compound
                }
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
        (ntp_time, rtp_time): (u64, u32),
    ) {
        let mut streams = self.streams.iter();
        let Some(stream) = streams.find(|own| own.planned.track == track) else {
            return;
        };
        let sent = cx
            .flows
            .with(stream.flow, |flow: &mut ServedFlow| flow.sent());
        let info = SenderReportInfo {
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

    /// Stops sending, and adds the counts to `past`.
    pub(super) fn end(
        &mut self,
        cx: &mut Context<'_>,
        peer: &mut Peer,
        goodbye: bool,
        past: &mut Past,
    ) {
        for stream in &self.streams {
            cx.out.push_back(Output::StopFlow { flow: stream.flow });
        }
        if goodbye {
            self.report(cx, peer, true);
        }
        for stream in std::mem::take(&mut self.streams) {
            let flow: Box<ServedFlow> = cx.flows.take(stream.flow);
            past.add(SentMedia {
                kind: stream.planned.kind.name(),
                ssrc: stream.planned.ssrc,
                counts: flow.counts(),
            });
        }
        if let Some((_, serial)) = self.joined {
            self.shared.published.leave(&self.name, serial);
        }
    }
}
