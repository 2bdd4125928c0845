//! PeerConnection of the reference server: sends media to its client, or receives what the client
//! publishes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::answers::ReceivedTrack;
use super::faults::Silence;
use super::player::Player;
use super::publication::{PeerMessage, Publication, peer_topic};
use super::records::{DroppedCounts, ServedPeer};
use super::rooms::announce_change;
use super::stream_receiver::StreamReceiver;
use super::stream_sender::PlannedStream;
use super::{CHANNEL, Shared};
use crate::peer::{Peer, PeerEvent, Received};
use session::{Context, Datagram, FlowId, Input, Outcome, Output, Record, Session};

/// Silence after which a client is considered gone. Clients must renew consent more often (RFC
/// 7675, 5.1).
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Time that a client has to leave after its stream ended.
const LINGER: Duration = Duration::from_secs(5);

/// Negotiated role of a PeerConnection.
#[derive(Debug)]
pub(super) enum Role {
    /// The client plays generated media, or what another client publishes.
    Player(PlannedStream),
    /// The client plays what others publish in a room. Its end is announced on `topic`.
    Subscriber {
        feeds: Vec<PlannedStream>,
        topic: String,
    },
    /// The client publishes.
    Publisher {
        taken: Vec<ReceivedTrack>,
        publication: Arc<Publication>,
    },
}

/// Negotiated PeerConnection that has not started.
#[derive(Debug)]
pub(super) struct PendingPeer {
    pub(super) number: u64,
    /// Name of the stream.
    pub(super) name: String,
    pub(super) peer: Box<Peer>,
    pub(super) role: Role,
}

impl PendingPeer {
    /// Returns the name of the stream if the client publishes it.
    pub(super) fn published_stream(&self) -> Option<&str> {
        match &self.role {
            Role::Publisher { .. } => Some(&self.name),
            Role::Player(_) | Role::Subscriber { .. } => None,
        }
    }
}

#[derive(Debug)]
enum MediaHandler {
    Player(Box<Player>),
    Publisher(Box<StreamReceiver>),
}

/// Session of a PeerConnection.
#[derive(Debug)]
pub(super) struct PeerSession {
    shared: Arc<Shared>,
    slot: usize,
    number: u64,
    peer: Box<Peer>,
    media: MediaHandler,
    /// Topic of the room in which the session's end is announced.
    room_topic: Option<String>,
    /// Time of the last datagram.
    last_datagram_at: Time,
    /// Time at which the session ends if the client does not leave after the end of its stream.
    leave_deadline: Option<Time>,
    ended: bool,
    record: ServedPeer,
    /// Buffer for an outgoing datagram.
    datagram: Vec<u8>,
}

impl PeerSession {
    pub(super) fn new(
        now: Time,
        shared: Arc<Shared>,
        pending: PendingPeer,
        slot: usize,
    ) -> PeerSession {
        let PendingPeer {
            number,
            name,
            peer,
            role,
        } = pending;
        let mut record = ServedPeer {
            number,
            stream: name.clone(),
            ..ServedPeer::default()
        };
        let mut room_topic = None;
        let media = match role {
            Role::Player(stream) => {
                record.relayed = stream.publication.is_some();
                let player = Player::new(shared.clone(), number, vec![stream], false);
                MediaHandler::Player(Box::new(player))
            }
            Role::Subscriber { feeds, topic } => {
                record.relayed = true;
                room_topic = Some(topic);
                let player = Player::new(shared.clone(), number, feeds, true);
                MediaHandler::Player(Box::new(player))
            }
            Role::Publisher { taken, publication } => {
                record.published = true;
                let receiver = StreamReceiver::new(shared.clone(), name, taken, publication);
                MediaHandler::Publisher(Box::new(receiver))
            }
        };
        PeerSession {
            shared,
            slot,
            number,
            peer,
            media,
            room_topic,
            last_datagram_at: now,
            leave_deadline: None,
            ended: false,
            record,
            datagram: Vec::new(),
        }
    }

    fn opened(&mut self, cx: &mut Context<'_>, remote: Option<SocketAddr>) {
        self.last_datagram_at = cx.now;
        self.record.remote = remote.map(|remote| remote.to_string());
        cx.out.push_back(Output::Subscribe {
            topic: peer_topic(self.slot),
        });
    }

    fn datagram(&mut self, cx: &mut Context<'_>, datagram: &Datagram<'_>) {
        self.last_datagram_at = cx.now;
        let is_dtls = matches!(datagram.bytes, [20..=63, ..]);
        if is_dtls && self.shared.config.faults.silent == Some(Silence::Dtls) {
            return;
        }
        match self
            .peer
            .handle_datagram(cx.now, datagram.from, datagram.bytes)
        {
            Received::Rtp => {
                if let MediaHandler::Publisher(receiver) = &mut self.media {
                    receiver.handle_rtp(cx, datagram);
                }
            }
            Received::Rtcp(compound) => match &mut self.media {
                MediaHandler::Player(player) => {
                    player.handle_feedback(cx, compound, &mut self.record)
                }
                MediaHandler::Publisher(receiver) => {
                    receiver.handle_rtcp(cx, compound, datagram.at)
                }
            },
            Received::Handled | Received::Dropped => {}
        }
    }

    /// Sends pending datagrams and handles events of the PeerConnection.
    fn handle_peer_events(&mut self, cx: &mut Context<'_>) {
        self.flush(cx);
        while let Some(event) = self.peer.poll_event() {
            match event {
                PeerEvent::IceConnected { remote } => cx.out.push_back(Output::Peer {
                    channel: CHANNEL,
                    media: remote,
                    control: remote,
                }),
                PeerEvent::DtlsConnected => self.start_media(cx),
                PeerEvent::Closed => return self.end(cx, "closed by the client"),
                PeerEvent::Failed(failure) => return self.end(cx, failure.name()),
            }
        }
        self.flush(cx);
    }

    /// Sends pending datagrams of the PeerConnection.
    fn flush(&mut self, cx: &mut Context<'_>) {
        let bytes = &mut self.datagram;
        loop {
            bytes.clear();
            let Some(to) = self.peer.poll_transmit(bytes) else {
                return;
            };
            cx.transmit(CHANNEL, Some(to), |out| out.extend_from_slice(bytes));
        }
    }

    /// Starts media after ICE and DTLS have completed.
    fn start_media(&mut self, cx: &mut Context<'_>) {
        if std::mem::replace(&mut self.record.connected, true) {
            return;
        }
        let profile = self.peer.srtp_profile();
        self.record.srtp_profile = profile.map(|profile| format!("{profile:?}"));
        match &mut self.media {
            MediaHandler::Player(_) if self.shared.config.faults.silent == Some(Silence::Media) => {
            }
            MediaHandler::Player(player) => {
                if !player.start(cx, &mut self.peer) {
                    self.end(cx, "the stream ended before it could be played");
                }
            }
            MediaHandler::Publisher(receiver) => receiver.start(cx, &mut self.peer),
        }
    }

    fn handle_message(&mut self, cx: &mut Context<'_>, topic: &str, message: &str) {
        if topic == peer_topic(self.slot) {
            match PeerMessage::parse_for(message, self.number) {
                Some(PeerMessage::Close) => self.end(cx, "deleted by the client"),
                Some(PeerMessage::KeyFrameRequest) => {
                    if let MediaHandler::Publisher(receiver) = &mut self.media {
                        receiver.request_key_frame();
                    }
                }
                Some(PeerMessage::PlayChanges) => {
                    let answer = self.shared.rooms().pending_answers.remove(&self.number);
                    if let Some(theirs) = answer
                        && let Err(failure) = self.peer.set_remote(cx.now, &theirs)
                    {
                        return self.end(cx, failure.name());
                    }
                    if let MediaHandler::Player(player) = &mut self.media {
                        player.apply_changes(cx, &mut self.peer);
                    }
                }
                _ => {}
            }
            return;
        }
        if let MediaHandler::Player(player) = &mut self.media {
            player.handle_message(cx, &mut self.peer, message);
        }
    }

    /// Handles the end of a flow. After the last one, the session says goodbye (BYE).
    fn flow_ended(&mut self, cx: &mut Context<'_>, flow: FlowId) {
        if let MediaHandler::Player(player) = &mut self.media
            && player.flow_ended(cx, &mut self.peer, flow)
            && self.leave_deadline.is_none()
        {
            player.report(cx, &mut self.peer, true);
            self.leave_deadline = Some(cx.now + LINGER);
        }
    }

    /// Handles all timers that are due.
    fn handle_timers(&mut self, cx: &mut Context<'_>) {
        if self.ended {
            return;
        }
        if self.peer.deadline().is_some_and(|due| due <= cx.now) {
            self.peer.handle_timeout(cx.now);
        }
        match &mut self.media {
            MediaHandler::Player(player) if self.leave_deadline.is_none() => {
                player.handle_timeout(cx, &mut self.peer)
            }
            MediaHandler::Player(_) => {}
            MediaHandler::Publisher(receiver) => receiver.handle_timeout(cx, &mut self.peer),
        }
        self.handle_peer_events(cx);
        if cx.now >= self.last_datagram_at + SILENCE_MAX {
            self.end(cx, "no datagram from the client in time");
        } else if self.leave_deadline.is_some_and(|by| cx.now >= by) {
            self.end(cx, "the stream ended");
        }
    }

    fn end(&mut self, cx: &mut Context<'_>, how: &str) {
        self.end_as(cx, how, Outcome::Completed);
    }

    fn end_as(&mut self, cx: &mut Context<'_>, how: &str, outcome: Outcome) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let goodbye = self.leave_deadline.is_none();
        match &mut self.media {
            MediaHandler::Player(player) => {
                player.end(cx, &mut self.peer, goodbye, &mut self.record)
            }
            MediaHandler::Publisher(receiver) => receiver.end(cx, &mut self.record),
        }
        self.peer.close(cx.now);
        self.flush(cx);
        let counts = self.peer.counts();
        self.record.dropped = DroppedCounts {
            stun_malformed: counts.stun_malformed,
            stun_unauthentic: counts.stun_unauthentic,
            dtls_unexpected: counts.dtls_unexpected,
            rtcp_unauthentic: counts.rtcp.unauthentic,
            rtcp_replayed: counts.rtcp.replayed,
            foreign: counts.foreign,
        };
        self.record.ended = how.to_owned();
        self.shared
            .registry()
            .remove_started(self.slot, self.number);
        self.shared.rooms().discard_pending(self.number);
        announce_change(cx, self.room_topic.take());
        let record = std::mem::take(&mut self.record);
        cx.out.push_back(Output::Record(Record::new(record)));
        cx.out.push_back(Output::Ended(outcome));
    }
}

impl Session for PeerSession {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.ended {
            return;
        }
        match input {
            Input::Opened { remote, .. } => self.opened(cx, remote),
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    self.datagram(cx, datagram);
                }
            }
            Input::TopicMessage { topic, message } => self.handle_message(cx, topic, message),
            Input::FlowEnded { flow } => self.flow_ended(cx, flow),
            Input::Stop { .. } => self.end_as(cx, "the server was stopped", Outcome::Stopped),
            _ => {}
        }
        self.handle_timers(cx);
    }

    fn deadline(&self) -> Option<Time> {
        if self.ended {
            return None;
        }
        let media_deadline = match &self.media {
            MediaHandler::Player(_) if self.leave_deadline.is_some() => Time::NEVER,
            MediaHandler::Player(player) => player.deadline(),
            MediaHandler::Publisher(receiver) => receiver.deadline(),
        };
        let due = media_deadline.min(self.last_datagram_at + SILENCE_MAX);
        let due = due.min(self.peer.deadline().unwrap_or(Time::NEVER));
        Some(due.min(self.leave_deadline.unwrap_or(Time::NEVER)))
    }
}
