//! A client and a server, driven against each other in virtual time.

mod arrivals;
mod datagrams;
mod exchanges;
mod outputs;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use measure::{Catalogue, Recorder, Time};

use super::stream::Stream;
use crate::link::{Counts, Link, Settings};
use crate::{
    ChannelId, CloseReason, Context, Endpoint, ExchangeEnded, FlowId, Flows, Input, Outbox,
    Outcome, Output, PacketHeader, PeerId, Port, Session, SinkId, Sinks, SocketMedia,
};

/// Length of the IPv4 and UDP headers in bytes.
const DATAGRAM_OVERHEAD: usize = 28;

/// Maximum number of bytes of one read of a stream.
const READ_MAX: usize = 64 * 1024;

/// Maximum number of packets of one flow before other events are handled.
const PACKETS_A_TURN: usize = 64;

/// Settings of the network between the two sides, and their metrics.
#[derive(Clone, Debug)]
pub struct PairSettings {
    /// Seed of all random choices.
    pub seed: u64,
    /// Link of the datagrams from the client to the server.
    pub up: Settings,
    /// Link of the datagrams from the server to the client.
    pub down: Settings,
    /// Delay of a connection's bytes, in both directions.
    pub stream_delay: Duration,
    /// Port that the server listens on. Connections to other ports are refused.
    pub port: u16,
    /// Reaction of the server to connections.
    pub server_reaction: ServerReaction,
    /// Metrics of both sides.
    pub catalogue: Catalogue,
    /// Maximum number of steps; see [`RunEnd::StepsUp`].
    pub steps_max: u64,
}

impl PairSettings {
    /// A network without loss, with a delay of 1 ms in each direction, port 554, ten million steps.
    pub fn new(seed: u64, catalogue: Catalogue) -> PairSettings {
        let perfect = Settings {
            delay: Duration::from_millis(1),
            ..Settings::default()
        };
        PairSettings {
            seed,
            up: perfect.clone(),
            down: perfect,
            stream_delay: Duration::from_millis(1),
            port: 554,
            server_reaction: ServerReaction::Accept,
            catalogue,
            steps_max: 10_000_000,
        }
    }
}

/// Reaction of the server to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerReaction {
    /// Connections get a session of the server.
    Accept,
    /// Connections are refused.
    Refuse,
    /// Connections get no answer until they time out.
    Ignore,
}

/// One of the two sides of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that opens the conversation.
    Client,
    /// The side with an endpoint or a listening port.
    Server,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// Number of a session. Clients are numbered as they are added, the server's sessions as they are
/// accepted, all in one sequence. The first client has number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionNumber(pub usize);

/// Reason why a run returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All sessions have ended.
    Ended,
    /// Some sessions have not ended, but no event is scheduled: they wait for something that never
    /// happens.
    Idle,
    /// The time limit is reached.
    TimeUp,
    /// The maximum number of steps is reached, so that an endless loop is likely.
    StepsUp,
}

/// Counts of the datagrams from one address to another.
#[derive(Clone, Copy, Debug)]
pub struct PathCounts {
    /// Source address.
    pub from: SocketAddr,
    /// Destination address.
    pub to: SocketAddr,
    /// Counts of the link.
    pub counts: Counts,
}

/// A client and a server, driven against each other in virtual time.
///
/// The client has the address 10.0.0.1, the server 10.0.0.2, whatever its host name. Pairs of UDP
/// ports count up from 20000; the pair that a server shares among its sessions is 6970 and 6971.
pub struct Pair {
    settings: PairSettings,
    now: Time,
    steps: u64,
    serial: u64,
    accept: Box<dyn FnMut(SessionNumber) -> Box<dyn Session>>,
    endpoint: Option<Box<dyn Endpoint>>,
    /// Open sessions that the endpoint has accepted.
    peers: BTreeMap<PeerId, usize>,
    slots: Vec<Slot>,
    sides: [SideState; 2],
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    connections: Vec<Connection>,
    paths: Vec<PathState>,
    path_of: BTreeMap<(SocketAddr, SocketAddr), usize>,
    addresses: BTreeMap<SocketAddr, Vec<(usize, ChannelId, Port)>>,
    next_port: u16,
    active_flows: Vec<ActiveFlow>,
    exchanges: BTreeMap<exchanges::ExchangeKey, exchanges::RunningExchange>,
    topics: BTreeMap<String, Topic>,
    pending: VecDeque<(usize, Pending)>,
    outputs: Vec<(SessionNumber, Output)>,
    foreign: u64,
    scratch: Vec<u8>,
    outbox: Outbox,
}

/// State that the sessions of one side share, as those of a worker do.
struct SideState {
    recorder: Recorder,
    sinks: Sinks,
    flows: Flows,
}

struct Slot {
    session: Box<dyn Session>,
    side: Side,
    channels: BTreeMap<ChannelId, Channel>,
    outcome: Option<Outcome>,
}

enum Channel {
    Connecting,
    Stream { connection: usize, end: usize },
    Ports(Ports),
    Udp(Udp),
}

/// A UDP socket of one session, or its part of the endpoint's socket.
#[derive(Clone, Copy)]
struct Udp {
    local: SocketAddr,
    /// The only peer. For an accepted session, its client.
    peer: Option<SocketAddr>,
    /// Destination of datagrams without a destination of their own.
    to: Option<SocketAddr>,
    /// Number of the session at the endpoint.
    accepted: Option<PeerId>,
    media: Option<SocketMedia>,
}

/// A pair of UDP ports.
#[derive(Clone, Copy)]
struct Ports {
    media: SocketAddr,
    control: SocketAddr,
    sink: Option<SinkId>,
    owner: PortOwner,
    peer: Option<(SocketAddr, SocketAddr)>,
}

/// Owner of a pair of ports.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PortOwner {
    /// One session.
    Own,
    /// All sessions of one side: a datagram is assigned by its sender.
    Shared,
    /// A multicast group: all sessions that joined receive each datagram.
    Group,
}

impl Ports {
    /// A pair on the host of one side.
    fn of(side: Side, port: u16, sink: Option<SinkId>, owner: PortOwner) -> Ports {
        Ports {
            media: SocketAddr::new(address(side), port),
            control: SocketAddr::new(address(side), port + 1),
            sink,
            owner,
            peer: None,
        }
    }

    fn local(&self, port: Port) -> SocketAddr {
        match port {
            Port::Media => self.media,
            Port::Control => self.control,
        }
    }
}

/// A connection. End 0 is the client's, end 1 the server's; stream 0 leads from end 0 to end 1.
struct Connection {
    ends: [(usize, ChannelId); 2],
    open: [bool; 2],
    streams: [Stream; 2],
}

struct PathState {
    from: SocketAddr,
    to: SocketAddr,
    link: Link<DatagramInFlight>,
    /// Time of the next check for arrivals.
    check_at: Time,
}

#[derive(Clone, Debug)]
struct DatagramInFlight {
    header: PacketHeader,
    body: Bytes,
}

impl From<Bytes> for DatagramInFlight {
    fn from(body: Bytes) -> DatagramInFlight {
        let header = PacketHeader::EMPTY;
        DatagramInFlight { header, body }
    }
}

/// A flow that is started.
struct ActiveFlow {
    session: usize,
    flow: FlowId,
    channel: ChannelId,
    due: Time,
}

#[derive(Default)]
struct Topic {
    last: Option<Arc<str>>,
    subscribers: Vec<usize>,
}

/// An event of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A connection attempt reaches the server.
    ConnectionAttempt { session: usize, channel: ChannelId },
    /// The client learns that its connection is established.
    Connected { connection: usize },
    /// A connection failed.
    NotConnected {
        session: usize,
        channel: ChannelId,
        silent: bool,
    },
    /// Bytes, or the end of the stream, have arrived at this end.
    Stream { connection: usize, end: usize },
    /// A datagram may have arrived.
    Datagram { path: usize },
}

/// An input to deliver once the current one has been handled.
enum Pending {
    Input(Input<'static>),
    TopicMessage { topic: String, message: Arc<str> },
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("now", &self.now)
            .field("steps", &self.steps)
            .field("sessions", &self.slots.len())
            .finish_non_exhaustive()
    }
}

impl Pair {
    /// Creates a pair of a client and the server's factory of sessions, which is called for each
    /// accepted connection with the number of the new session.
    pub fn new(
        settings: PairSettings,
        client: Box<dyn Session>,
        accept: impl FnMut(SessionNumber) -> Box<dyn Session> + 'static,
    ) -> Pair {
        let catalogue = settings.catalogue;
        let world = || SideState {
            recorder: Recorder::new(catalogue),
            sinks: Sinks::default(),
            flows: Flows::default(),
        };
        let mut pair = Pair {
            settings,
            now: Time::ZERO,
            steps: 0,
            serial: 0,
            accept: Box::new(accept),
            endpoint: None,
            peers: BTreeMap::new(),
            slots: Vec::new(),
            sides: [world(), world()],
            events: BinaryHeap::new(),
            connections: Vec::new(),
            paths: Vec::new(),
            path_of: BTreeMap::new(),
            addresses: BTreeMap::new(),
            next_port: 20_000,
            active_flows: Vec::new(),
            exchanges: BTreeMap::new(),
            topics: BTreeMap::new(),
            pending: VecDeque::new(),
            outputs: Vec::new(),
            foreign: 0,
            scratch: Vec::new(),
            outbox: Outbox::default(),
        };
        pair.add_client(client);
        pair
    }

    /// Adds a client, which starts now.
    pub fn add_client(&mut self, client: Box<dyn Session>) -> SessionNumber {
        self.add(Side::Client, client)
    }

    /// Adds a session on the server's host without a connection, which starts now. Used for peers
    /// that call each other.
    pub fn add_peer(&mut self, session: Box<dyn Session>) -> SessionNumber {
        self.add(Side::Server, session)
    }

    fn add(&mut self, side: Side, session: Box<dyn Session>) -> SessionNumber {
        let index = self.slots.len();
        self.slots.push(Slot {
            session,
            side,
            channels: BTreeMap::new(),
            outcome: None,
        });
        self.push(index, Input::Start { due: self.now });
        SessionNumber(index)
    }

    /// Current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Number of steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Outcome of a session; `None` if it has not ended.
    pub fn outcome(&self, session: SessionNumber) -> Option<&Outcome> {
        self.slots.get(session.0)?.outcome.as_ref()
    }

    /// Sessions of one side.
    pub fn sessions(&self, side: Side) -> impl Iterator<Item = SessionNumber> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(move |(_, slot)| slot.side == side)
            .map(|(index, _)| SessionNumber(index))
    }

    /// Metrics of one side.
    pub fn recorder(&mut self, side: Side) -> &mut Recorder {
        &mut self.sides[side as usize].recorder
    }

    /// Receivers of one side.
    pub fn sinks(&mut self, side: Side) -> &mut Sinks {
        &mut self.sides[side as usize].sinks
    }

    /// Senders of one side.
    pub fn flows(&mut self, side: Side) -> &mut Flows {
        &mut self.sides[side as usize].flows
    }

    /// Outputs that require no action, in order: notes, records and the like.
    pub fn outputs(&self) -> &[(SessionNumber, Output)] {
        &self.outputs
    }

    /// All paths that datagrams have taken, with their counts.
    pub fn paths(&self) -> impl Iterator<Item = PathCounts> {
        self.paths.iter().map(|path| PathCounts {
            from: path.from,
            to: path.to,
            counts: path.link.counts(),
        })
    }

    /// Number of datagrams without a receiver, or from an address other than the peer's.
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Asks a session to stop.
    pub fn stop(&mut self, session: SessionNumber, grace: Duration) {
        let until = self.now + grace;
        self.push(session.0, Input::Stop { until });
    }

    /// Resets all connections; both ends are notified.
    pub fn break_connections(&mut self) {
        let reason = CloseReason::Reset;
        let mut broken = Vec::new();
        for connection in &mut self.connections {
            for end in 0..2 {
                if std::mem::take(&mut connection.open[end]) {
                    broken.push(connection.ends[end]);
                }
            }
        }
        for (session, channel) in broken {
            let key = (session, channel);
            if self.exchanges.contains_key(&key) {
                self.end_exchange(key, ExchangeEnded::Closed(reason));
                continue;
            }
            self.push(session, Input::Closed { channel, reason });
        }
    }

    /// Runs until the time limit, or until all sessions have ended.
    pub fn run(&mut self, limit: Duration) -> RunEnd {
        let limit = self.now + limit;
        loop {
            self.deliver_pending();
            if self.slots.iter().all(|slot| slot.outcome.is_some()) {
                return RunEnd::Ended;
            }
            if self.steps >= self.settings.steps_max {
                return RunEnd::StepsUp;
            }
            self.steps += 1;
            let Some(next) = self.next() else {
                return RunEnd::Idle;
            };
            if next > limit {
                self.now = limit;
                return RunEnd::TimeUp;
            }
            self.now = self.now.max(next);
            self.step();
        }
    }

    /// Time of the next event.
    fn next(&self) -> Option<Time> {
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        let flows = self.active_flows.iter().map(|active| active.due);
        let flow = flows.filter(|&due| due != Time::NEVER).min();
        let exchange = self.exchange_due().map(|(at, _)| at);
        let deadline = self.deadline().map(|(at, _)| at);
        let dues = [event, flow, exchange, deadline];
        dues.into_iter().flatten().min()
    }

    fn deadline(&self) -> Option<(Time, usize)> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.outcome.is_none())
            .filter_map(|(index, slot)| Some((slot.session.deadline()?, index)))
            .filter(|(at, _)| *at != Time::NEVER)
            .min()
    }

    /// Handles one event that is due: of the network first, then of flows, exchanges and deadlines.
    fn step(&mut self) {
        if let Some(Reverse((at, _, event))) = self.events.peek().copied()
            && at <= self.now
        {
            self.events.pop();
            self.handle_event(event);
            return;
        }
        if let Some(index) = self
            .active_flows
            .iter()
            .position(|flow| flow.due <= self.now)
        {
            self.send_flow(index);
            return;
        }
        if let Some((at, key)) = self.exchange_due()
            && at <= self.now
        {
            self.step_exchange(key);
            return;
        }
        if let Some((at, index)) = self.deadline()
            && at <= self.now
        {
            self.deliver(index, Input::Deadline);
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((at, self.serial, event)));
    }

    fn push(&mut self, index: usize, input: Input<'static>) {
        self.pending.push_back((index, Pending::Input(input)));
    }

    /// Opens a channel of a session.
    fn open_channel(
        &mut self,
        index: usize,
        channel: ChannelId,
        state: Channel,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    ) {
        self.slots[index].channels.insert(channel, state);
        let opened = Input::Opened {
            channel,
            local,
            remote,
        };
        self.push(index, opened);
    }

    /// Delivers queued inputs until none is left.
    fn deliver_pending(&mut self) {
        while let Some((index, pending)) = self.pending.pop_front() {
            self.steps += 1;
            if self.steps > self.settings.steps_max {
                return;
            }
            match pending {
                Pending::Input(input) => {
                    if let Input::Closed { channel, .. } = input {
                        self.slots[index].channels.remove(&channel);
                    }
                    self.deliver(index, input);
                }
                Pending::TopicMessage { topic, message } => {
                    let (topic, message) = (&topic, &message);
                    self.deliver(index, Input::TopicMessage { topic, message });
                }
            }
        }
    }

    fn deliver(&mut self, index: usize, input: Input<'_>) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        if slot.outcome.is_some() {
            return;
        }
        let world = &mut self.sides[slot.side as usize];
        let mut out = VecDeque::new();
        let mut outbox = std::mem::take(&mut self.outbox);
        outbox.clear();
        let mut context = Context {
            now: self.now,
            recorder: &mut world.recorder,
            sinks: &mut world.sinks,
            flows: &mut world.flows,
            out: &mut out,
            outbox: &mut outbox,
        };
        slot.session.handle(&mut context, input);
        for output in out {
            match output {
                Output::Transmit(transmit) => {
                    self.transmit(index, &transmit, outbox.bytes(&transmit));
                }
                output => self.carry_out(index, output),
            }
        }
        self.outbox = outbox;
        self.update_flow_dues(index);
    }
}

fn address(side: Side) -> IpAddr {
    IpAddr::V4(match side {
        Side::Client => Ipv4Addr::new(10, 0, 0, 1),
        Side::Server => Ipv4Addr::new(10, 0, 0, 2),
    })
}

fn client_address(connection: usize) -> SocketAddr {
    SocketAddr::new(address(Side::Client), 50_000 + (connection % 10_000) as u16)
}
