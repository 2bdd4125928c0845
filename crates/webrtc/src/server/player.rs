//! Streams that a PeerConnection plays: a single one, or those of a room as they come and go.

use std::sync::Arc;

use measure::Time;

use super::Shared;
use super::publication::PeerMessage;
use super::records::ServedPeer;
use super::rooms::PlayChange;
use super::stream_sender::{EndedStreams, PlannedStream, StreamSender};
use crate::feedback::{Message, messages};
use crate::peer::Peer;
use crate::transport_sequence::TransportSequence;
use session::{Context, FlowId};

/// All streams that a PeerConnection plays.
#[derive(Debug)]
pub(super) struct Player {
    shared: Arc<Shared>,
    number: u64,
    streams: Vec<StreamSender>,
    /// True if the PeerConnection stays open without streams, because more may be added.
    stays_open: bool,
    started: bool,
    /// Transport-wide sequence numbers of all packets, if negotiated.
    transport_numbers: Option<TransportSequence>,
    ended_streams: EndedStreams,
}

impl Player {
    pub(super) fn new(
        shared: Arc<Shared>,
        number: u64,
        planned: Vec<PlannedStream>,
        stays_open: bool,
    ) -> Player {
        let sender = |feed| StreamSender::new(shared.clone(), number, feed);
        Player {
            streams: planned.into_iter().map(sender).collect(),
            shared,
            number,
            stays_open,
            started: false,
            transport_numbers: None,
            ended_streams: EndedStreams::default(),
        }
    }

    /// Starts sending. Returns `false` if there is nothing to send, now or later.
    pub(super) fn start(&mut self, cx: &mut Context<'_>, peer: &mut Peer) -> bool {
        self.started = true;
        let mut any = false;
        for sender in std::mem::take(&mut self.streams) {
            // The publisher may have left by now.
            any |= self.start_stream(cx, peer, sender);
        }
        self.apply_changes(cx, peer);
        any || self.stays_open
    }

    fn start_stream(
        &mut self,
        cx: &mut Context<'_>,
        peer: &Peer,
        mut sender: StreamSender,
    ) -> bool {
        let started = sender.start(cx, peer, &mut self.transport_numbers);
        if started {
            self.streams.push(sender);
        }
        started
    }

    /// Applies pending changes: starts added streams, and stops removed ones.
    pub(super) fn apply_changes(&mut self, cx: &mut Context<'_>, peer: &mut Peer) {
        if !self.started {
            return;
        }
        let more = self.shared.rooms().take_changes(self.number);
        for more in more {
            match more {
                PlayChange::Start(feed) => {
                    let sender = StreamSender::new(self.shared.clone(), self.number, feed);
                    self.start_stream(cx, peer, sender);
                }
                PlayChange::Stop(ssrc) => {
                    let index = self.streams.iter().position(|own| own.sends_ssrc(ssrc));
                    if let Some(index) = index {
                        let mut sender = self.streams.remove(index);
                        sender.end(cx, peer, true, &mut self.ended_streams);
                    }
                }
            }
        }
    }

    /// Handles RTCP feedback of the player, up to the first malformed message, and counts it.
    pub(super) fn handle_feedback(
        &self,
        cx: &mut Context<'_>,
        compound: &[u8],
        record: &mut ServedPeer,
    ) {
        for message in messages(compound).map_while(Result::ok) {
            match message {
                Message::Nack { media, missing, .. } => {
                    let mut all = self.streams.iter();
                    if let Some(sender) = all.find(|own| own.sends_ssrc(media)) {
                        sender.request_retransmissions(cx, media, &missing);
                    }
                }
                Message::PictureLoss { media, .. } => {
                    record.key_frames_wanted += 1;
                    self.request_key_frame(cx, media);
                }
                Message::FullIntra { requests, .. } => {
                    // One key frame answers all requests in the message.
                    if let Some((media, _)) = requests.first() {
                        record.key_frames_wanted += 1;
                        self.request_key_frame(cx, *media);
                    }
                }
                Message::Remb { .. } => record.rembs += 1,
                Message::TransportCc(feedback) => {
                    record.arrivals_told += feedback.receive_deltas.iter().flatten().count() as u64;
                }
            }
        }
    }

    fn request_key_frame(&self, cx: &mut Context<'_>, media: u32) {
        let own = self.streams.iter().find(|own| own.sends_ssrc(media));
        if let Some(sender) =
            own.or_else(|| self.streams.first().filter(|_| self.streams.len() == 1))
        {
            sender.request_key_frame(cx);
        }
    }

    /// Delivers a message to the streams of the publication that it concerns.
    pub(super) fn handle_message(&mut self, cx: &mut Context<'_>, peer: &mut Peer, message: &str) {
        let Some((kind, number)) = PeerMessage::parse(message) else {
            return;
        };
        let all = self.streams.iter_mut();
        for sender in all.filter(|own| own.publisher() == Some(number)) {
            sender.forward_items(cx, peer, kind);
        }
    }

    /// Marks a flow as ended. Returns `true` if all flows have ended and no stream may be added.
    pub(super) fn flow_ended(
        &mut self,
        cx: &mut Context<'_>,
        peer: &mut Peer,
        flow: FlowId,
    ) -> bool {
        let mut all = self.streams.iter_mut();
        let index = all.position(|own| own.flow_ended(flow));
        let Some(index) = index else {
            return false;
        };
        if self.stays_open {
            let mut sender = self.streams.remove(index);
            sender.end(cx, peer, true, &mut self.ended_streams);
            return false;
        }
        self.streams.len() == 1
    }

    pub(super) fn deadline(&self) -> Time {
        let due = self.streams.iter().map(StreamSender::deadline);
        due.min().unwrap_or(Time::NEVER)
    }

    pub(super) fn handle_timeout(&mut self, cx: &mut Context<'_>, peer: &mut Peer) {
        for sender in &mut self.streams {
            sender.handle_timeout(cx, peer);
        }
    }

    /// Sends sender reports on all streams.
    pub(super) fn report(&self, cx: &mut Context<'_>, peer: &mut Peer, goodbye: bool) {
        for sender in &self.streams {
            sender.report(cx, peer, goodbye);
        }
    }

    /// Stops sending, and adds the counts to the record.
    pub(super) fn end(
        &mut self,
        cx: &mut Context<'_>,
        peer: &mut Peer,
        goodbye: bool,
        record: &mut ServedPeer,
    ) {
        for mut sender in std::mem::take(&mut self.streams) {
            sender.end(cx, peer, goodbye, &mut self.ended_streams);
        }
        let ended = std::mem::take(&mut self.ended_streams);
        record.sent = Some(ended.sent);
        record.sent_media = ended.media;
    }
}
