//! Start and end of sending over a PeerConnection.

use bytes::BytesMut;
use kit::mediagen::ladder::Encoder;
use measure::Time;
use std::time::Duration;

use super::encrypted_flow::{EncryptedFlow, LayerExtensions};
use super::source::SourceStream;
use super::{AcceptedSection, OutgoingStream};
use crate::client::congestion::{CongestionControl, NumberedStream};
use crate::client::link::{LinkEvent, LinkResult, PeerLink};
use crate::client::{Client, note};
use crate::failure::Failure;
use crate::feedback::RtxStream;
use crate::retransmitter::Retransmitter;
use crate::sdp::MediaKind;
use kit::media::source::MediaSource;
use kit::publication::Publication;
use session::{Context, FlowId, Output, ReadTiming};

/// Time after which media counts as published although the server has sent no report. WHIP does not
/// say when others can play it, and servers inspect packets before they allow that.
const LIVE_AFTER: Duration = Duration::from_secs(2);

impl PeerLink {
    /// Starts sending, because the PeerConnection is connected.
    pub(in crate::client) fn begin_sending(&mut self, cx: &mut Context<'_>) -> LinkResult {
        let Some(source) = self.setup.source.clone() else {
            return Ok(());
        };
        self.begin_streams(cx, &source);
        if self.outgoing_media.streams.is_empty() {
            let detail = self.describe("the server refused all offered media");
            return Err((Failure::OfferRefused, detail));
        }
        self.outgoing_media.begin_counting(cx.now);
        self.outgoing_media.began_at = Some(cx.now);
        // Only reports and answers to consent checks arrive here.
        cx.out.push_back(Output::SetReadTiming {
            channel: self.channel,
            reading: ReadTiming::Late,
        });
        self.events.push(LinkEvent::Sending);
        self.send_sender_reports(cx, false);
        Ok(())
    }

    /// Starts all streams that the server accepted.
    fn begin_streams(&mut self, cx: &mut Context<'_>, source: &MediaSource) {
        let outgoing = &mut self.outgoing_media;
        outgoing.congestion = self.setup.config.follows_congestion().then(|| {
            let ladder = source.ladder.as_ref();
            let bitrate = ladder.map_or(0, |ladder| Encoder::new(ladder.clone()).bitrate());
            outgoing.target = bitrate;
            let mut accepted = outgoing.accepted_sections.iter();
            let extension = accepted.find_map(|section| section.transport_cc_id);
            let packet = self.setup.config.payload_max();
            let congestion = CongestionControl::new(cx.now, bitrate, packet, extension);
            Box::new(congestion)
        });
        for (index, clip) in source.clips.iter().enumerate() {
            let mut accepted = self.outgoing_media.accepted_sections.iter();
            let accepted = accepted.find(|section| section.section_index == index);
            let Some(&section) = accepted else {
                let text = self.describe(&format!("the server refused {}", clip.media()));
                note(cx, "media_refused", text);
                continue;
            };
            let layered = index == 0 && !source.lower_layers.is_empty();
            let layers = section.layers.into_iter().enumerate();
            let mut layers: Vec<_> = layers
                .filter_map(|(layer, extensions)| Some((layer, Some(extensions?))))
                .filter(|_| layered)
                .collect();
            if layers.is_empty() {
                // A single stream, in the best layer.
                layers.push((0, layered.then_some(section.single_stream)));
                if layered {
                    let what = "the server refused simulcast: one layer is sent";
                    note(cx, "simulcast_refused", self.describe(what));
                }
            }
            for (layer, extensions) in layers {
                let stream = SourceStream { clip: index, layer };
                self.begin_stream(cx, source, stream, &section, extensions);
            }
        }
    }

    /// Starts a stream of the source.
    fn begin_stream(
        &mut self,
        cx: &mut Context<'_>,
        source: &MediaSource,
        stream: SourceStream,
        section: &AcceptedSection,
        layer_extensions: Option<LayerExtensions>,
    ) {
        let Some(sealer) = self.peer.as_ref().and_then(|peer| peer.rtp_sealer()) else {
            return;
        };
        let retransmissions = section.nack.then(|| {
            Retransmitter::new(section.rtx_payload_type.map(|payload_type| RtxStream {
                ssrc: self.setup.rtx_ssrc(stream),
                payload_type,
                next_sequence: self.setup.rtx_first_sequence(stream),
            }))
        });
        let congestion = self.outgoing_media.congestion.as_ref();
        let numbers = congestion.and_then(|own| own.numbers());
        let numbers = numbers.filter(|_| section.transport_cc_id.is_some());
        let channel = self.channel;
        let flow = cx.flows.insert(EncryptedFlow {
            media: self.setup.start_media(cx.now, source, stream),
            sealer: Some(sealer),
            buffer: BytesMut::new(),
            retransmissions,
            numbering: numbers.map(NumberedStream::new),
            channel: self.relay_channel(),
            audio_level_id: section.audio_level_id,
            layer_extensions,
        });
        let stream = OutgoingStream::new(flow, self.setup.own_ssrc(stream));
        self.outgoing_media.streams.push(stream);
        cx.out.push_back(Output::StartFlow { flow, channel });
    }

    /// Checks whether the server seems to receive the media.
    pub(in crate::client) fn check_live(&mut self, now: Time) {
        let outgoing = &mut self.outgoing_media;
        let late = |began| now.since(began) >= LIVE_AFTER;
        if !outgoing.is_live && (outgoing.is_reported || outgoing.began_at.is_some_and(late)) {
            outgoing.is_live = true;
            self.events.push(LinkEvent::Live);
        }
    }

    /// Sends a sender report for each stream, if they are enabled, and a goodbye if `goodbye` is
    /// true.
    pub(in crate::client) fn send_sender_reports(&mut self, cx: &mut Context<'_>, goodbye: bool) {
        let wall_clock = self.setup.wall_clock.unwrap_or_default();
        let wall_clock = self.setup.config.sender_reports.then_some(wall_clock);
        let Some(peer) = &mut self.peer else {
            return;
        };
        let sender = (cx.now, wall_clock, self.setup.cname.as_str());
        for report in self
            .outgoing_media
            .rtcp_compounds(cx.flows, sender, goodbye)
        {
            peer.send_rtcp(&report);
        }
    }

    /// Stops sending, says goodbye, and adds the figures to the recorder.
    pub(in crate::client) fn end_sending(&mut self, cx: &mut Context<'_>) {
        if self.outgoing_media.streams.is_empty() {
            return;
        }
        self.outgoing_media.stop(cx);
        self.send_sender_reports(cx, true);
        for stream in std::mem::take(&mut self.outgoing_media.streams) {
            cx.flows.remove(stream.flow);
        }
    }
}

impl Client {
    /// Returns the kinds of media that the server accepted.
    fn sent_kinds(&self) -> Vec<&'static str> {
        let Some(source) = &self.setup.source else {
            return Vec::new();
        };
        if self.feed.is_some() {
            return source.clips.iter().map(|clip| clip.media()).collect();
        }
        let links = self.links.iter();
        let accepted = links.flat_map(|link| &link.outgoing_media.accepted_sections);
        accepted
            .filter_map(|accepted| Some(source.clips.get(accepted.section_index)?.media()))
            .collect()
    }

    /// Tells players whether the stream is published.
    pub(in crate::client) fn announce_published(&mut self, cx: &mut Context<'_>, is_live: bool) {
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

    /// Fails the client because a flow has ended. Flows end on their own only if nothing can be
    /// sent.
    pub(in crate::client) fn handle_flow_ended(&mut self, cx: &mut Context<'_>, flow: FlowId) {
        let feed = self.feed.as_ref();
        if feed.is_some_and(|feed| feed.outgoing_media.has(flow)) {
            return self.fail_feed(cx);
        }
        let mut links = self.links.iter();
        if let Some(link) = links.find(|link| link.outgoing_media.has(flow)) {
            let detail = link.describe("no media can be sent");
            self.fail(cx, Failure::NotSent, detail);
        }
    }
}
