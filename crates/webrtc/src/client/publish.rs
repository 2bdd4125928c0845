//! Published media: generated or read from a file, and encrypted when it is sent.

mod congestion_feedback;
mod encrypted_flow;
mod media;
mod rtp_feed;
mod sending;
mod source;

use measure::{Recorder, Time};
use std::time::Duration;

use super::congestion::CongestionControl;
use crate::feedback::{Message, TransportCc, bare_goodbye, messages};
use crate::metrics as m;
use crate::retransmitter::Retransmitter;
use crate::sdp::{NegotiatedMedia, extension as header_extension};
use crate::turn::RelayChannel;
use encrypted_flow::{EncryptedFlow, LayerExtensions};
use kit::media::rtcp::{self, Packet};
use kit::media::source::SIMULCAST_LAYERS;
use kit::publication;
use media::{MEDIA_COUNTERS, StreamMedia};
pub(super) use rtp_feed::RtpFeed;
use session::{Context, FlowId, Flows, Output};
use source::LayerRids;

/// Interval at which reports are sent.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

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
    /// True once the server seems to receive the media.
    is_live: bool,
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
    /// Counts of retransmitted packets, and of those requested too late, that the recorder already
    /// has.
    recorded_retransmissions: [u64; 2],
    /// Counts of sent media that the recorder already has.
    recorded_counts: [u64; 6],
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
            recorded_retransmissions: [0; 2],
            recorded_counts: [0; 6],
            reported_lost: 0,
            reported_highest: None,
            last_fir_number: None,
        }
    }

    /// Gives access to the flow.
    fn access<T>(&self, flows: &mut Flows, access: impl FnOnce(&mut EncryptedFlow) -> T) -> T {
        flows.access_as(self.flow, access)
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
    pub(super) fn count_if_due(&mut self, cx: &mut Context<'_>) -> bool {
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
            Some(wall_clock) => Some(stream.access(flows, |encrypted| {
                encrypted.media.report(now, wall_clock, name, goodbye)
            })),
            None => goodbye.then(|| bare_goodbye(stream.ssrc, name)),
        };
        self.streams.iter().filter_map(&mut report).collect()
    }

    /// Returns for each stream whether its packets have transport-wide sequence numbers.
    #[cfg(test)]
    pub(super) fn numbered(&self, flows: &mut Flows) -> Vec<bool> {
        let streams = self.streams.iter();
        streams
            .map(|stream| stream.access(flows, |encrypted| encrypted.numbering.is_some()))
            .collect()
    }

    /// Stores what the server accepted, and whether and where it wants retransmissions.
    pub(super) fn set_accepted_sections(&mut self, sections: &[NegotiatedMedia], rids: LayerRids) {
        let accepted_section = |section: &NegotiatedMedia| {
            let rtx = section.codecs.iter().find(|codec| codec.has_name("rtx"));
            let number = |uri| section.extension_id(uri);
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
                nack: section.has_feedback("nack"),
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
            stream.access(flows, |encrypted| encrypted.channel = channel);
        }
    }

    fn has(&self, flow: FlowId) -> bool {
        self.streams.iter().any(|stream| stream.flow == flow)
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
                        stream.access(flows, |encrypted| {
                            if let Some(retransmissions) = &mut encrypted.retransmissions {
                                retransmissions.queue_requested(&missing, now, round_trip);
                            }
                        });
                    }
                }
                Message::PictureLoss { media, .. } => {
                    recorder.add(m::KEY_FRAME_REQUESTS, 1);
                    if let Some(stream) = self.stream(media) {
                        stream.access(flows, |encrypted| encrypted.media.request_key_frame());
                    }
                }
                Message::FullIntra { requests, .. } => {
                    recorder.add(m::KEY_FRAME_REQUESTS, requests.len() as u64);
                    for (media, number) in requests {
                        if let Some(stream) = self.stream(media)
                            && stream.last_fir_number.replace(number) != Some(number)
                        {
                            stream.access(flows, |encrypted| encrypted.media.request_key_frame());
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

    /// Adds what was sent since the last call to the recorder.
    fn count(&mut self, flows: &mut Flows, recorder: &mut Recorder) {
        for stream in &mut self.streams {
            let (media, again) = stream.access(flows, |encrypted| {
                let retransmissions = encrypted.retransmissions.as_ref();
                let counts = retransmissions.map(Retransmitter::counts);
                let counts = counts.unwrap_or_default();
                let again = [counts.retransmitted, counts.unknown];
                (encrypted.media.counts(), again)
            });
            let counters = [m::RETRANSMITTED_PACKETS, m::NACKED_TOO_LATE];
            m::add_new(
                recorder,
                counters,
                &mut stream.recorded_retransmissions,
                again,
            );
            let recorded = &mut stream.recorded_counts;
            m::add_new(recorder, MEDIA_COUNTERS, recorded, media);
        }
        if let Some(congestion) = &self.congestion {
            recorder.record(m::ESTIMATED_BITRATE, congestion.estimate().0);
            recorder.record(m::TARGET_BITRATE, self.target);
        }
    }

    /// Stops all streams, and adds the figures to the recorder.
    fn stop(&mut self, cx: &mut Context<'_>) {
        for stream in &self.streams {
            cx.out.push_back(Output::StopFlow { flow: stream.flow });
            stream.access(cx.flows, |encrypted| encrypted.media.stop());
        }
        self.count(cx.flows, cx.recorder);
    }
}

#[cfg(test)]
mod tests;
