//! PeerConnection of the reference server: sends media to its client, or receives what the client
//! publishes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::faults::Silence;
use super::feeds::Feeds;
use super::negotiate::{Planned, Taken};
use super::playing::Feed;
use super::relay::{Publication, Word, topic_of_peer};
use super::rooms::CHANGED;
use super::served::{DroppedCounts, ServedPeer};
use super::taking::Taking;
use super::{CHANNEL, Shared};
use crate::session::{Context, Datagram, FlowId, Input, Outcome, Output, Record, Session};
use crate::webrtc::peer::{Peer, PeerEvent, Received};

/// Silence after which a client is considered gone. Clients must renew consent more often (RFC
/// 7675, 5.1).
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Time that a client has to leave after its stream ended.
const LINGER: Duration = Duration::from_secs(5);

/// Negotiated role of a PeerConnection.
#[derive(Debug)]
pub(super) enum Role {
    /// The client plays generated media, or what another client publishes.
    Plays {
        planned: Vec<Planned>,
        publication: Option<Arc<Publication>>,
    },
    /// The client plays what others publish in a room. Its end is announced on `topic`.
    Attends { feeds: Vec<Feed>, topic: String },
    /// The client publishes.
    Publishes {
        taken: Vec<Taken>,
        publication: Arc<Publication>,
    },
}

/// Negotiated PeerConnection that has not started.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) number: u64,
    /// Name of the stream.
    pub(super) name: String,
    pub(super) peer: Box<Peer>,
    pub(super) role: Role,
}

impl Waiting {
    /// Returns the name of the stream if the client publishes it.
    pub(super) fn publishes(&self) -> Option<&str> {
        match &self.role {
            Role::Publishes { .. } => Some(&self.name),
            Role::Plays { .. } | Role::Attends { .. } => None,
        }
    }
}

/// Media handler of a PeerConnection.
#[derive(Debug)]
enum Work {
    Plays(Box<Feeds>),
    Publishes(Box<Taking>),
}

/// Session of a PeerConnection.
#[derive(Debug)]
pub(super) struct PeerSession {
    shared: Arc<Shared>,
    slot: usize,
    number: u64,
    peer: Box<Peer>,
    work: Work,
    /// Topic of the room in which the session's end is announced.
    room: Option<String>,
    /// Time of the last datagram.
    heard: Time,
    /// Time at which the session ends if the client does not leave after the end of its stream.
    leave_by: Option<Time>,
    over: bool,
    done: ServedPeer,
    /// Buffer for an outgoing datagram.
    datagram: Vec<u8>,
}

impl PeerSession {
    pub(super) fn new(
        now: Time,
        shared: Arc<Shared>,
        waiting: Waiting,
        slot: usize,
    ) -> PeerSession {
        let Waiting {
            number,
            name,
            peer,
            role,
        } = waiting;
        let mut done = ServedPeer {
            number,
            stream: name.clone(),
            ..ServedPeer::default()
        };
        let mut room = None;
        let work = match role {
            Role::Plays {
                planned,
                publication,
            } => {
                done.relayed = publication.is_some();
                let feed = Feed {
                    name,
                    planned,
                    publication,
                };
                let feeds = Feeds::new(shared.clone(), number, vec![feed], false);
                Work::Plays(Box::new(feeds))
            }
            Role::Attends { feeds, topic } => {
                done.relayed = true;
                room = Some(topic);
                let feeds = Feeds::new(shared.clone(), number, feeds, true);
                Work::Plays(Box::new(feeds))
            }
            Role::Publishes { taken, publication } => {
                done.published = true;
                let taking = Taking::new(shared.clone(), name, taken, publication);
                Work::Publishes(Box::new(taking))
            }
        };
        PeerSession {
            shared,
            slot,
            number,
            peer,
            work,
            room,
            heard: now,
            leave_by: None,
            over: false,
            done,
            datagram: Vec::new(),
        }
    }

    fn opened(&mut self, cx: &mut Context<'_>, remote: Option<SocketAddr>) {
        self.heard = cx.now;
        self.done.remote = remote.map(|remote| remote.to_string());
        cx.out.push_back(Output::Listen {
            topic: topic_of_peer(self.slot),
        });
    }

    fn datagram(&mut self, cx: &mut Context<'_>, datagram: &Datagram<'_>) {
        self.heard = cx.now;
        let is_dtls = matches!(datagram.bytes, [20..=63, ..]);
        if is_dtls && self.shared.config.faults.silent == Some(Silence::Dtls) {
            return;
        }
        match self
            .peer
            .handle_datagram(cx.now, datagram.from, datagram.bytes)
        {
            Received::Rtp => {
                if let Work::Publishes(taking) = &mut self.work {
                    taking.media(cx, datagram);
                }
            }
            Received::Rtcp(compound) => match &mut self.work {
                Work::Plays(playing) => playing.feedback(cx, compound),
                Work::Publishes(taking) => taking.reports(cx, compound, datagram.at),
            },
            Received::Handled | Received::Dropped(_) => {}
        }
    }

    /// Sends pending datagrams and handles events of the PeerConnection.
    fn drain(&mut self, cx: &mut Context<'_>) {
        self.flush(cx);
        while let Some(event) = self.peer.poll_event() {
            match event {
                PeerEvent::IceConnected { remote } => cx.out.push_back(Output::Peer {
                    channel: CHANNEL,
                    media: remote,
                    control: remote,
                }),
                PeerEvent::DtlsConnected => self.connected(cx),
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
    fn connected(&mut self, cx: &mut Context<'_>) {
        if std::mem::replace(&mut self.done.connected, true) {
            return;
        }
        let profile = self.peer.srtp_profile();
        self.done.srtp_profile = profile.map(|profile| format!("{profile:?}"));
        match &mut self.work {
            Work::Plays(_) if self.shared.config.faults.silent == Some(Silence::Media) => {}
            Work::Plays(playing) => {
                if !playing.begin(cx, &mut self.peer) {
                    self.end(cx, "the stream ended before it could be played");
                }
            }
            Work::Publishes(taking) => taking.begin(cx, &mut self.peer),
        }
    }

    fn told(&mut self, cx: &mut Context<'_>, topic: &str, message: &str) {
        if topic == topic_of_peer(self.slot) {
            match Word::of(message, self.number) {
                Some(Word::Close) => self.end(cx, "deleted by the client"),
                Some(Word::Picture) => {
                    if let Work::Publishes(taking) = &mut self.work {
                        taking.wants_picture();
                    }
                }
                Some(Word::Plays) => {
                    let answer = self.shared.rooms().take_answer(self.number);
                    if let Some(theirs) = answer
                        && let Err(failure) = self.peer.set_remote(cx.now, &theirs)
                    {
                        return self.end(cx, failure.name());
                    }
                    if let Work::Plays(playing) = &mut self.work {
                        playing.take_more(cx, &mut self.peer);
                    }
                }
                _ => {}
            }
            return;
        }
        if let Work::Plays(playing) = &mut self.work {
            playing.told(cx, &mut self.peer, message);
        }
    }

    /// Handles the end of a flow. After the last one, the session says goodbye (BYE).
    fn flow_ended(&mut self, cx: &mut Context<'_>, flow: FlowId) {
        if let Work::Plays(playing) = &mut self.work
            && playing.ended(cx, &mut self.peer, flow)
            && self.leave_by.is_none()
        {
            playing.report(cx, &mut self.peer, true);
            self.leave_by = Some(cx.now + LINGER);
        }
    }

    /// Handles all timers that are due.
    fn look(&mut self, cx: &mut Context<'_>) {
        if self.over {
            return;
        }
        if self.peer.deadline().is_some_and(|due| due <= cx.now) {
            self.peer.handle_timeout(cx.now);
        }
        match &mut self.work {
            Work::Plays(playing) if self.leave_by.is_none() => playing.look(cx, &mut self.peer),
            Work::Plays(_) => {}
            Work::Publishes(taking) => taking.look(cx, &mut self.peer),
        }
        self.drain(cx);
        if cx.now >= self.heard + SILENCE_MAX {
            self.end(cx, "no datagram from the client in time");
        } else if self.leave_by.is_some_and(|by| cx.now >= by) {
            self.end(cx, "the stream ended");
        }
    }

    fn end(&mut self, cx: &mut Context<'_>, how: &str) {
        self.end_as(cx, how, Outcome::Completed);
    }

    fn end_as(&mut self, cx: &mut Context<'_>, how: &str, outcome: Outcome) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let goodbye = self.leave_by.is_none();
        match &mut self.work {
            Work::Plays(playing) => playing.end(cx, &mut self.peer, goodbye, &mut self.done),
            Work::Publishes(taking) => taking.end(cx, &mut self.done),
        }
        self.peer.close(cx.now);
        self.flush(cx);
        let counts = self.peer.counts();
        self.done.dropped = DroppedCounts {
            stun_malformed: counts.stun_malformed,
            stun_unauthentic: counts.stun_unauthentic,
            dtls_unexpected: counts.dtls_unexpected,
            rtcp_unauthentic: counts.rtcp.unauthentic,
            rtcp_replayed: counts.rtcp.replayed,
            foreign: counts.foreign,
        };
        self.done.ended = how.to_owned();
        self.shared.registry().ended(self.slot, self.number);
        self.shared.rooms().forget_more(self.number);
        let said = |topic| Output::Tell {
            topic,
            message: CHANGED.into(),
        };
        cx.out.extend(self.room.take().map(said));
        let done = std::mem::take(&mut self.done);
        cx.out.push_back(Output::Record(Record::new(done)));
        cx.out.push_back(Output::Ended(outcome));
    }
}

impl Session for PeerSession {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.over {
            return;
        }
        match input {
            Input::Opened { remote, .. } => self.opened(cx, remote),
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    self.datagram(cx, datagram);
                }
            }
            Input::Told { topic, message } => self.told(cx, topic, message),
            Input::FlowEnded { flow } => self.flow_ended(cx, flow),
            Input::Stop { .. } => self.end_as(cx, "the server was stopped", Outcome::Stopped),
            _ => {}
        }
        self.look(cx);
    }

    fn deadline(&self) -> Option<Time> {
        if self.over {
            return None;
        }
        let work = match &self.work {
            Work::Plays(_) if self.leave_by.is_some() => Time::NEVER,
            Work::Plays(playing) => playing.deadline(),
            Work::Publishes(taking) => taking.deadline(),
        };
        let due = work.min(self.heard + SILENCE_MAX);
        let due = due.min(self.peer.deadline().unwrap_or(Time::NEVER));
        Some(due.min(self.leave_by.unwrap_or(Time::NEVER)))
    }
}
