//! Streams that are sent once, to a multicast group, for all clients that play them.
//!
//! Each session that has set up such a stream participates in it. One of the playing sessions sends
//! for all; when it leaves, another one takes over at the same position. The flow belongs to the
//! worker, which all sessions of a listening address share, and is removed by the last participant.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Shared;
use super::config::MulticastConfig;
use super::published::StreamAddress;
use crate::headers::Ports;
use kit::media::rtp::RtpFlow;
use session::{Context, FlowId, Output};

/// Maximum number of streams sent at a time.
const GROUPS_MAX: u32 = 64;

/// Message when a stream has ended.
pub(super) const ENDED: &str = "ended";
/// Message when the sending session leaves and another one must take over.
const TAKE_OVER: &str = "free";

/// Checks the settings. Returns the reason if they cannot be used.
pub(super) fn check(config: &MulticastConfig) -> Result<(), String> {
    let group = config.group;
    if !group.is_multicast() {
        return Err(format!("{group} is not a multicast group"));
    }
    match group_at(group, GROUPS_MAX - 1) {
        Some(last) if last.is_multicast() => {}
        _ => {
            return Err(format!(
                "there are fewer than {GROUPS_MAX} multicast groups from {group} on; choose a lower one"
            ));
        }
    }
    if config.port == 0 || !config.port.is_multiple_of(2) || config.port > 65_000 {
        return Err(format!(
            "the first port of the groups, {}, must be even and from 2 to 65000",
            config.port
        ));
    }
    if config.ttl == 0 {
        return Err("the TTL of packets to the groups must be at least 1".to_owned());
    }
    Ok(())
}

fn group_at(first: IpAddr, index: u32) -> Option<IpAddr> {
    Some(match first {
        IpAddr::V4(first) => Ipv4Addr::from(u32::from(first).checked_add(index)?).into(),
        IpAddr::V6(first) => Ipv6Addr::from(u128::from(first).checked_add(index.into())?).into(),
    })
}

/// Returns whether a group is for source-specific multicast (RFC 4607, 1).
pub(super) fn is_source_specific(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[0] == 232,
        IpAddr::V6(group) => {
            let [first, second, ..] = group.segments();
            first & 0xfff0 == 0xff30 && second == 0
        }
    }
}

/// All streams that are sent to groups.
#[derive(Debug, Default)]
pub(super) struct GroupStreams(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Group of each stream, counted from the first group.
    groups: BTreeMap<StreamAddress, u32>,
    /// Keyed by stream and index of the track.
    group_streams: BTreeMap<(StreamAddress, usize), GroupStream>,
}

/// A track that is sent once for all players.
#[derive(Debug)]
struct GroupStream {
    flow: FlowId,
    /// Numbers of the sessions that have set it up, and whether they play.
    participants: Vec<(u64, bool)>,
    /// Number of the session whose channel is used for sending.
    sender: Option<u64>,
    ended: bool,
}

/// Destination of a track.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination {
    pub(super) group: IpAddr,
    pub(super) ports: Ports<u16>,
    pub(super) ttl: u8,
}

impl GroupStreams {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is complete in itself, so a panic cannot leave a partial change behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the destination of a track, or `None` if all groups are in use.
    pub(super) fn destination(
        &self,
        config: &MulticastConfig,
        local: SocketAddr,
        path: &str,
        media: usize,
    ) -> Option<Destination> {
        let mut state = self.state();
        let stream = (local, path.to_owned());
        let index = match state.groups.get(&stream) {
            Some(&index) => index,
            None => {
                let free = |index: &u32| state.groups.values().all(|taken| taken != index);
                let index = (0..GROUPS_MAX).find(free)?;
                state.groups.insert(stream, index);
                index
            }
        };
        let port = config.port.checked_add(u16::try_from(2 * media).ok()?)?;
        Some(Destination {
            group: group_at(config.group, index)?,
            ports: Ports::new(port, port.checked_add(1)?),
            ttl: config.ttl,
        })
    }
}

/// Participation of a session in a track that is sent once for all players.
#[derive(Debug)]
pub(super) struct Participant {
    shared: Arc<Shared>,
    key: (StreamAddress, usize),
    /// Number of the session.
    number: u64,
    topic: String,
}

impl Participant {
    pub(super) fn new(
        shared: Arc<Shared>,
        local: SocketAddr,
        path: &str,
        media: usize,
        number: u64,
    ) -> Participant {
        let stream = (local, path.to_owned());
        // The topic contains the group, of which there are few, instead of the path, which clients
        // choose.
        let group = shared.group_streams.state().groups.get(&stream).copied();
        let group = group.unwrap_or(GROUPS_MAX);
        Participant {
            shared,
            key: (stream, media),
            number,
            topic: format!("cast {local} {group} {media}"),
        }
    }

    /// Returns the topic on which the participants notify each other.
    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    /// Reads or changes the track. Returns the default if it is not registered.
    fn with<R: Default>(&self, reach: impl FnOnce(&mut GroupStream) -> R) -> R {
        let mut state = self.shared.group_streams.state();
        let track = state.group_streams.get_mut(&self.key);
        track.map(reach).unwrap_or_default()
    }

    /// Adds this session to the participants. Returns the flow of the track, or `None` for the
    /// first participant, which must call [`Participant::register_flow`].
    pub(super) fn join(&self) -> Option<FlowId> {
        self.with(|group_stream| {
            group_stream.participants.push((self.number, false));
            Some(group_stream.flow)
        })
    }

    /// Registers the flow of the track. Called by the first participant.
    pub(super) fn register_flow(&self, flow: FlowId) {
        let group_stream = GroupStream {
            flow,
            participants: vec![(self.number, false)],
            sender: None,
            ended: false,
        };
        let mut state = self.shared.group_streams.state();
        state.group_streams.insert(self.key.clone(), group_stream);
    }

    /// Starts playing. Returns whether this session must send the track.
    pub(super) fn play(&self) -> bool {
        self.with(|group_stream| {
            group_stream.set_playing(self.number, true);
            group_stream.claim(self.number)
        })
    }

    /// Pauses. Returns whether no other session plays, so that the flow must stop.
    pub(super) fn pause(&self, cx: &mut Context<'_>, flow: FlowId) -> bool {
        let (sent, others) = self.with(|group_stream| {
            group_stream.set_playing(self.number, false);
            group_stream.release(self.number)
        });
        if sent && others {
            self.hand_over(cx, flow);
        }
        !others
    }

    /// Removes this session from the participants. Returns whether it was the last one, so that the
    /// flow must be removed.
    pub(super) fn leave(&self, cx: &mut Context<'_>, flow: FlowId) -> bool {
        let mut state = self.shared.group_streams.state();
        let Some(group_stream) = state.group_streams.get_mut(&self.key) else {
            return false;
        };
        group_stream
            .participants
            .retain(|(number, _)| *number != self.number);
        let (sent, others_play) = group_stream.release(self.number);
        let last = group_stream.participants.is_empty();
        if last {
            state.group_streams.remove(&self.key);
            let (stream, _) = &self.key;
            if !state.group_streams.keys().any(|(other, _)| other == stream) {
                state.groups.remove(stream);
            }
        }
        drop(state);
        match (sent, others_play) {
            (true, true) => self.hand_over(cx, flow),
            (true, false) => {
                // The flow resumes at this position when a session plays again.
                cx.flows.access_as(flow, RtpFlow::pause);
                cx.out.push_back(Output::StopFlow { flow });
            }
            (false, _) => {}
        }
        last
    }

    fn hand_over(&self, cx: &mut Context<'_>, flow: FlowId) {
        cx.out.push_back(Output::StopFlow { flow });
        self.notify(cx, TAKE_OVER);
    }

    fn notify(&self, cx: &mut Context<'_>, message: &str) {
        cx.out.push_back(Output::Publish {
            topic: self.topic.clone(),
            message: message.into(),
        });
    }

    /// Returns whether this session must take over sending, because no other session sends.
    pub(super) fn take_over(&self) -> bool {
        self.with(|group_stream| !group_stream.ended && group_stream.claim(self.number))
    }

    /// Marks the track as ended and notifies the players.
    pub(super) fn ended(&self, cx: &mut Context<'_>) {
        self.with(|group_stream| group_stream.ended = true);
        self.notify(cx, ENDED);
    }

    /// Returns whether the track has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.with(|group_stream| group_stream.ended)
    }

    /// Returns whether other sessions play the track.
    pub(super) fn others_play(&self) -> bool {
        self.with(|group_stream| {
            let mut all = group_stream.participants.iter();
            all.any(|&(number, plays)| number != self.number && plays)
        })
    }
}

impl GroupStream {
    /// Makes a session the sender if there is none. Returns `false` if there was one.
    fn claim(&mut self, number: u64) -> bool {
        let is_free = self.sender.is_none();
        self.sender.get_or_insert(number);
        is_free
    }

    /// Ends the sending by a session. Returns whether it sent, and whether any session plays.
    fn release(&mut self, number: u64) -> (bool, bool) {
        let sent = self.sender.take_if(|sender| *sender == number).is_some();
        (sent, self.participants.iter().any(|(_, plays)| *plays))
    }

    fn set_playing(&mut self, number: u64, plays: bool) {
        for participant in &mut self.participants {
            if participant.0 == number {
                participant.1 = plays;
            }
        }
    }
}
