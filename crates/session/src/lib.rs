//! The contract between a protocol and the engine that runs it.
//!
//! A [`Session`] is one side of one conversation: a client's with a server, or a reference server's
//! with one client. The engine delivers [`Input`]s to it and carries out the [`Output`]s that it
//! leaves in its [`Context`]. A session owns no socket, reads no clock and starts no thread. The
//! same session therefore runs over real sockets, and in tests over a seeded virtual network in
//! virtual time.
//!
//! There are two planes:
//!
//! * **Control**: bytes and datagrams go into [`Session::handle`], bytes come out as
//!   [`Output::Send`] and [`Output::Transmit`]. The control plane may allocate: it works once per
//!   request, not once per packet.
//! * **Media**: a [`Sink`] counts received packets, a [`Flow`] makes packets to send. They live in
//!   the worker's [`Sinks`] and [`Flows`]. The engine updates them packet by packet without calling
//!   the session, which receives only [`MediaEvent`]s. If media and control share a byte stream
//!   (RTSP's interleaved frames), the session splits the stream and passes the packets to its sinks
//!   itself: one read already is a batch.
//!
//! [`link`] is the model of a network link. The virtual network of tests uses it, and so does the
//! link that the engine emulates.

#![deny(missing_docs)]

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use measure::{ArrivalRun, Recorder, Time};

mod datagrams;
pub mod exchange;
mod flows;
pub mod link;
mod record;
pub mod schedule;
pub mod seeds;
mod service;
mod sinks;
mod streams;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tls;

pub use crate::tls::TlsError;
pub use datagrams::{Datagram, Endpoint, Outbox, PeerId, ReadTiming, Route, Transmit};
pub use exchange::{Exchange, ExchangeEnd as ExchangeEnded};
pub use flows::{Flow, FlowId, FlowPacket, Flows, Handover, LentFlow, PacketHeader, Tag};
pub use record::Record;
pub use schedule::Pace;
pub use service::{Judgement, Service, Start};
pub use sinks::{Arrival, CaptureNeeds, MediaEvent, MediaFilter, Sink, SinkId, Sinks, SocketMedia};
pub use streams::StreamRow;

/// One side of one conversation.
///
/// The first input is [`Input::Start`]. The last output is [`Output::Ended`]; the session receives
/// no input after it.
pub trait Session {
    /// Handles one input and appends to `cx.out` the outputs that follow from it.
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>);

    /// Time at which the engine delivers [`Input::Deadline`]; `None` if no deadline is set.
    ///
    /// The engine reads it again after each input, so a session may move or clear it at any time.
    fn deadline(&self) -> Option<Time>;

    /// Returns `true` if input that has arrived but is not delivered yet could change what the
    /// session does at its deadline, because the session waits for an answer or for media.
    ///
    /// The engine then reads the session's sockets before it delivers [`Input::Deadline`]. It may
    /// delay the deadline of a session that returns `false`, because that session only has
    /// something to send. Default: `true`.
    fn awaits_input(&self, now: Time) -> bool {
        let _ = now;
        true
    }

    /// Current results of the session's streams: what [`Output::Streams`] would hold now.
    ///
    /// The engine asks every few seconds, for the client's row in the run file. Default: no rows,
    /// for a session that receives no media or has ended.
    fn streams(&self, sinks: &mut Sinks) -> Vec<StreamRow> {
        let _ = sinks;
        Vec::new()
    }
}

/// Parts of the engine that a session may use while it handles an input.
pub struct Context<'a> {
    /// Current time.
    pub now: Time,
    /// Counters and histograms of the session's population.
    pub recorder: &'a mut Recorder,
    /// Receivers of media of this worker.
    pub sinks: &'a mut Sinks,
    /// Senders of media of this worker.
    pub flows: &'a mut Flows,
    /// Outputs, carried out in order after the call.
    pub out: &'a mut VecDeque<Output>,
    /// Bytes of the datagrams among the outputs; see [`Context::transmit`].
    pub outbox: &'a mut Outbox,
}

impl Context<'_> {
    /// Sends one datagram on a channel that [`Open::Udp`] opened or an [`Endpoint`] accepted, after
    /// the outputs so far.
    ///
    /// `to` is the destination; `None` is the channel's peer. `write` appends the bytes of the
    /// datagram and must not remove any; an empty datagram is not sent. The call allocates nothing
    /// once the outbox has grown. Consecutive datagrams of equal length to one destination leave
    /// with one system call.
    pub fn transmit(
        &mut self,
        channel: ChannelId,
        to: Option<SocketAddr>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.outbox.add(self.out, channel, to, write);
    }
}

/// Number of a channel, unique within its session. The session chooses it and uses it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

/// One socket of a channel that is a pair of UDP ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// The even port: media. The only port of a channel that is not a pair.
    Media,
    /// The odd port: RTCP.
    Control,
}

/// An event that the engine delivers to a session.
#[derive(Debug)]
pub enum Input<'a> {
    /// First input, delivered once.
    Start {
        /// Planned start. Delays are measured from it, even if the session starts late.
        due: Time,
    },
    /// A channel is open: the answer to [`Output::Open`]. A reference server's session gets its
    /// client's connection this way, as channel 0, without asking for it.
    Opened {
        /// Channel that is open.
        channel: ChannelId,
        /// Local address; for a pair of UDP ports, that of the even port.
        local: SocketAddr,
        /// Peer address; `None` if the channel is not connected.
        remote: Option<SocketAddr>,
    },
    /// A channel could not be opened: the answer to [`Output::Open`].
    OpenFailed {
        /// Channel that was asked for.
        channel: ChannelId,
        /// Reason of the failure.
        error: ChannelError,
    },
    /// Bytes of a stream channel (TCP, TLS or Unix), in order, split at arbitrary positions.
    Bytes {
        /// Channel that the bytes came from.
        channel: ChannelId,
        /// At most one read's worth of bytes.
        bytes: &'a [u8],
        /// Kernel arrival time of the last byte; the time of reading if the kernel gave none.
        at: Time,
        /// Arrival times of parts of `bytes`, in order; the last part ends with `bytes`. Empty if
        /// unknown: then all bytes arrived by `at`.
        runs: &'a [ArrivalRun],
    },
    /// A datagram of a port pair or multicast channel that no sink counts.
    Datagram {
        /// Channel that the datagram came from.
        channel: ChannelId,
        /// Port that received it.
        port: Port,
        /// Address of the sender.
        from: SocketAddr,
        /// Payload of the datagram.
        bytes: &'a [u8],
        /// Kernel arrival time.
        at: Time,
    },
    /// Datagrams of a channel that [`Open::Udp`] or [`Open::UdpToHost`] opened, in order, as many
    /// as one read returned. On a channel that an [`Endpoint`] accepted, each datagram is delivered
    /// alone.
    Datagrams {
        /// Channel that the datagrams came from.
        channel: ChannelId,
        /// The datagrams, in order of arrival.
        datagrams: &'a [Datagram<'a>],
    },
    /// The peer closed a channel, or the channel broke. No more input comes from it.
    Closed {
        /// Channel that is closed.
        channel: ChannelId,
        /// Cause of the end.
        reason: CloseReason,
    },
    /// A sink reports an event that the session must act on.
    Media {
        /// Sink that reports.
        sink: SinkId,
        /// The event.
        event: MediaEvent,
    },
    /// A flow has sent its last packet, or cannot be sent because its channel does not exist or has
    /// no peer.
    ///
    /// Delivered once for each start, unless [`Output::StopFlow`] stopped the flow before. The flow
    /// sends nothing more, whatever is added to it, until [`Output::StartFlow`] starts it again.
    FlowEnded {
        /// Flow that ended.
        flow: FlowId,
    },
    /// Message from another session of this run, on a topic that this session subscribed to with
    /// [`Output::Subscribe`].
    TopicMessage {
        /// Topic of the message.
        topic: &'a str,
        /// Text of the message.
        message: &'a Arc<str>,
    },
    /// An exchange that took over a channel ([`Output::Exchange`]) ended. The channel is closed.
    ExchangeEnded {
        /// Channel that was handed over.
        channel: ChannelId,
        /// Cause of the end.
        reason: ExchangeEnded,
    },
    /// The time that [`Session::deadline`] returned has come.
    Deadline,
    /// Shut down gracefully before `until`.
    ///
    /// If the session is still alive at `until`, the engine delivers `Stop` once more, with an
    /// `until` that has passed. The session must then remove its sinks and flows and emit
    /// [`Output::Ended`] within that call. The engine removes a session that does not.
    Stop {
        /// Time by which the session must have ended.
        until: Time,
    },
}

/// A request of a session to the engine.
#[derive(Debug)]
pub enum Output {
    /// Open a channel. The answer is always one [`Input::Opened`] or [`Input::OpenFailed`].
    Open {
        /// Number of the new channel.
        channel: ChannelId,
        /// Kind of channel and its parameters.
        open: Open,
    },
    /// Send bytes: on a stream channel in order, after the bytes sent before; on a port pair or a
    /// multicast channel as one datagram to its peer. Single UDP sockets use [`Context::transmit`]
    /// instead.
    ///
    /// A stream channel queues what the kernel does not take. If the bounded queue overflows, the
    /// channel ends with [`CloseReason::SendQueueFull`].
    Send {
        /// Channel to send on.
        channel: ChannelId,
        /// Port to send from.
        port: Port,
        /// Bytes to send.
        bytes: Vec<u8>,
    },
    /// Send datagrams. Made by [`Context::transmit`].
    Transmit(Transmit),
    /// Set the peer of a UDP channel: the destination of [`Output::Send`] and of flows. The engine
    /// counts media from an address other than `media.ip()` as foreign, and passes none of it to
    /// the sink.
    ///
    /// On a single socket ([`Open::Udp`]) this sets the destination of flows, and of datagrams
    /// without a destination of their own, from then on. It does not restrict what is received.
    Peer {
        /// UDP channel.
        channel: ChannelId,
        /// Address that media goes to and comes from.
        media: SocketAddr,
        /// Address that RTCP goes to.
        control: SocketAddr,
    },
    /// Close a channel once everything sent on it has left. No [`Input::Closed`] follows.
    Close {
        /// Channel to close.
        channel: ChannelId,
    },
    /// Limit the delay of acknowledgements on a TCP connection, which the engine reads rarely once
    /// it carries media.
    ///
    /// Without it, a server that holds back small segments until all data is acknowledged (Nagle's
    /// algorithm; RFC 9293, 3.7.4) would wait for up to 40 ms.
    Acknowledge {
        /// TCP channel.
        channel: ChannelId,
        /// Maximum delay of acknowledgements.
        delay: AckDelay,
    },
    /// Expect this many bytes on a TCP connection that is read as soon as data arrives
    /// ([`AckDelay::AtOnce`]). The session has no use for any before the last of them, so the
    /// engine may read them in larger pieces, with fewer wake-ups. The end of the connection is
    /// noticed at once.
    Expect {
        /// TCP channel.
        channel: ChannelId,
        /// Number of bytes, from the next one.
        bytes: u64,
    },
    /// Change how soon a channel that [`Open::Udp`] or [`Open::UdpToHost`] opened is read. A
    /// session may thus wait for an answer at once and have the media after it read late.
    SetReadTiming {
        /// UDP channel.
        channel: ChannelId,
        /// New reading mode.
        reading: ReadTiming,
    },
    /// Start a flow. It sends by its own schedule until it ends ([`Input::FlowEnded`]).
    StartFlow {
        /// Flow to start.
        flow: FlowId,
        /// Channel to send on: the packets are datagrams, or pieces of the connection's byte
        /// stream.
        channel: ChannelId,
    },
    /// Stop a flow. It can be started again. The session removes it from [`Flows`] itself; the
    /// flow's counts are then final.
    StopFlow {
        /// Flow to stop.
        flow: FlowId,
    },
    /// Hand a stream channel over to an exchange, which sends and receives messages by its own
    /// plan, without the session.
    ///
    /// The session receives no other input of the channel before [`Input::ExchangeEnded`].
    Exchange {
        /// Stream channel to hand over.
        channel: ChannelId,
        /// Sender and receiver of the messages.
        exchange: Box<dyn Exchange>,
    },
    /// Shut an exchange down gracefully: plan no more messages, send those under way, tell the peer
    /// that no more follow, and receive what it still sends until it closes.
    FinishExchange {
        /// Channel that was handed over.
        channel: ChannelId,
    },
    /// Subscribe to a topic. The last message published on it, if any, is delivered at once.
    ///
    /// The engine bounds the number of topics and notes `topic_refused` for one beyond the bound.
    Subscribe {
        /// Topic to subscribe to.
        topic: String,
    },
    /// Publish a message to all sessions of the run that subscribed to the topic.
    Publish {
        /// Topic of the message.
        topic: String,
        /// Text of the message.
        message: Arc<str>,
    },
    /// The first media packet of the session has arrived, on any of its channels. Emitted once. The
    /// engine counts the client as playing from then on.
    Playing {
        /// Arrival time of the packet.
        at: Time,
    },
    /// The server's description of the media. Emitted by sessions that only ask for it.
    Described(Box<measure::media::MediaDescription>),
    /// How well the session's viewer was served. Emitted once, before [`Output::Ended`], by
    /// sessions that receive media. The engine counts it once it knows whether the client failed.
    Viewed(Service),
    /// Final results of the session's streams, for the client's row in the run file. Emitted before
    /// [`Output::Ended`].
    Streams(Vec<StreamRow>),
    /// An entry of the run's list of events. The engine bounds the number of entries of a kind and
    /// counts the rest.
    Note(Note),
    /// A record of what the session did, for the report of the command that runs it.
    Record(Record),
    /// The session ended: the last output. The session has removed its sinks and flows; the engine
    /// closes its channels.
    Ended(Outcome),
}

/// Maximum delay of TCP acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckDelay {
    /// Two ticks of the kernel's clock (2 to 20 ms), on Linux 6.15 or newer. Costs nothing.
    Soon,
    /// Immediately, because the connection is read as soon as data arrives. Each segment costs a
    /// wake-up.
    AtOnce,
}

/// Kind of a channel to open, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open {
    /// A TCP connection.
    Tcp {
        /// Host name or address.
        host: String,
        /// TCP port.
        port: u16,
        /// Maximum time to resolve the name and connect.
        timeout: Duration,
    },
    /// A TLS connection over TCP. The channel carries plain text; the engine encrypts and decrypts.
    Tls {
        /// Host name or address.
        host: String,
        /// TCP port.
        port: u16,
        /// Maximum time to resolve the name, connect and complete the handshake.
        timeout: Duration,
        /// Name that the certificate must be valid for; `None` means `host`. The population's
        /// [`crate::tls::TlsConfig`] decides which certificates are trusted.
        server_name: Option<String>,
    },
    /// A connection to a Unix stream socket (unix(7)). It opens or fails at once. Both addresses of
    /// [`Input::Opened`] are unspecified.
    Unix {
        /// Path of the socket.
        path: PathBuf,
    },
    /// A UDP socket. Datagrams are delivered as [`Input::Datagrams`], from any sender, or with
    /// `peer` from that peer only. Those that `media` matches go to its sink instead.
    Udp {
        /// Local address to bind. Port 0 means any port, an unspecified address any address.
        local: SocketAddr,
        /// The only peer (connect(2)). If it is unreachable (ICMP port unreachable), the channel
        /// ends with [`CloseReason::Reset`].
        peer: Option<SocketAddr>,
        /// How soon the socket is read.
        reading: ReadTiming,
        /// Datagrams that are media, and the sink that counts them; `None` if there are none.
        media: Option<SocketMedia>,
    },
    /// A UDP socket with any local address, connected to a named peer.
    ///
    /// The name is resolved as for a TCP connection. The socket connects to the first address that
    /// has a route, IPv4 addresses first: before a datagram is sent, UDP cannot tell whether a peer
    /// listens at an address. [`Input::Opened`] has the peer's address as `remote`.
    UdpToHost {
        /// Host name or address.
        host: String,
        /// UDP port of the peer.
        port: u16,
        /// Local port to bind; 0 for any. If the port is in use, the channel fails with
        /// [`ChannelError::NoPorts`].
        local_port: u16,
        /// Maximum time to resolve the name.
        timeout: Duration,
        /// How soon the socket is read.
        reading: ReadTiming,
        /// Datagrams that are media, and the sink that counts them; `None` if there are none.
        media: Option<SocketMedia>,
    },
    /// A pair of UDP ports: an even one for media and the next one for RTCP.
    UdpPair {
        /// Local address to bind; unspecified for any.
        local: IpAddr,
        /// Sink that counts the datagrams of the even port. With `None` they are delivered as
        /// [`Input::Datagram`].
        sink: Option<SinkId>,
        /// `true` to share the pair with other sessions of this worker. A server of thousands of
        /// clients then does not need two descriptors for each. Datagrams are assigned to sessions
        /// by the sender's address: a session receives none before it sets its peer with
        /// [`Output::Peer`].
        shared: bool,
    },
    /// Membership in a multicast group, on a pair of ports as the group uses them.
    ///
    /// One socket pair serves all sessions of this worker that join the group with the same
    /// parameters; each session has a sink of its own. A sink counts packets that arrive after the
    /// channel's [`Output::Peer`]. `Peer` sets the only sender whose datagrams count (an
    /// unspecified address means any sender) and the destination of RTCP.
    ///
    /// To the network these sessions are one receiver. Only the session that joined first sends,
    /// and only that session receives other receivers' RTCP. All sessions receive the sender's
    /// RTCP.
    Multicast {
        /// Address of the group.
        group: IpAddr,
        /// Port for media.
        port: u16,
        /// Port for RTCP.
        control: u16,
        /// Source addresses of a source-specific membership (RFC 4607). Empty for a membership with
        /// any source.
        sources: Vec<IpAddr>,
        /// Interface to join through.
        interface: Interface,
        /// Time to live (hop limit) of datagrams sent to the group.
        ttl: u8,
        /// Sink that counts the datagrams of the media port. With `None` they are delivered as
        /// [`Input::Datagram`], truncated to 2048 bytes.
        sink: Option<SinkId>,
    },
    /// A pair of UDP ports to send to multicast groups. Other sessions of this worker share it. It
    /// receives nothing.
    MulticastSender {
        /// Local address to bind; unspecified for any.
        local: IpAddr,
        /// Interface that the datagrams leave by. `None` means the interface of `local`, or if that
        /// is unspecified, the one of the routing table.
        interface: Option<Interface>,
        /// Time to live (hop limit) of the datagrams.
        ttl: u8,
    },
}

impl Open {
    /// A connection to a server, with TLS if `secure` is true.
    pub fn server(
        host: impl Into<String>,
        port: u16,
        timeout: Duration,
        secure: bool,
        tls: &tls::TlsConfig,
    ) -> Open {
        let host = host.into();
        match secure {
            true => Open::Tls {
                host,
                port,
                timeout,
                server_name: tls.server_name.clone(),
            },
            false => Open::Tcp {
                host,
                port,
                timeout,
            },
        }
    }
}

/// A network interface of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// The interface that has this address.
    Address(IpAddr),
    /// The interface of this name.
    Name(String),
}

/// Returns the address to bind a pair of UDP ports to, for the peer of a connection from `local`.
///
/// A link-local IPv6 address is ambiguous without its interface (RFC 4007, section 6). For it the
/// result is the unspecified address, and the peer's address decides the interface.
pub fn udp_bind_address(local: IpAddr) -> IpAddr {
    match local {
        IpAddr::V6(address) if address.is_unicast_link_local() => Ipv6Addr::UNSPECIFIED.into(),
        local => local,
    }
}

/// Returns the peer address of a connection with another port. The scope of an IPv6 link-local
/// address is kept.
pub fn with_port(remote: SocketAddr, port: u16) -> SocketAddr {
    let mut address = remote;
    address.set_port(port);
    address
}

/// Reason why a channel could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelError {
    /// No process listens at the address.
    Refused,
    /// No route to the host.
    Unreachable,
    /// The host name has no address.
    NameNotFound,
    /// The connection was not established before the timeout.
    TimedOut,
    /// TCP connected, but TLS failed.
    Tls(TlsError),
    /// No free local port or port pair: a limit of the tester.
    NoPorts,
    /// No free file descriptor in this process: a limit of the tester.
    NoDescriptors,
    /// The kernel refused another multicast membership: a limit of the tester.
    NoMembership,
    /// The network interface does not exist on this machine.
    NoInterface,
    /// The owner of this machine does not permit clients that send to the target.
    NotPermitted,
    /// Any other error, with the operating system's error number.
    Other(i32),
}

impl fmt::Display for ChannelError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ChannelError::Refused => "connection refused",
            ChannelError::Unreachable => "no route to the host",
            ChannelError::NameNotFound => "the host name has no address",
            ChannelError::TimedOut => "connection timed out",
            ChannelError::Tls(error) => return error.fmt(out),
            ChannelError::NoPorts => "this machine has no free port left",
            ChannelError::NoDescriptors => "this process has no file descriptor left",
            ChannelError::NoMembership => {
                "this machine grants no more multicast memberships or group sources (sysctl \
                 net.ipv4.igmp_max_memberships, net.ipv4.igmp_max_msf, net.ipv6.mld_max_msf)"
            }
            ChannelError::NoInterface => "this machine has no such network interface",
            ChannelError::NotPermitted => {
                "the owner of this machine permits no clients that send there (--allow-target)"
            }
            ChannelError::Other(code) => return write!(out, "operating system error {code}"),
        })
    }
}

/// Cause of the end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The peer closed it in order.
    End,
    /// The peer reset it, or it broke.
    Reset,
    /// The peer read nothing for so long that the bounded send queue overflowed.
    SendQueueFull,
    /// The peer violated or aborted TLS.
    Tls(TlsError),
}

/// Result of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The session ended as planned: the media played to its known end, or the run's own publisher
    /// left.
    Completed,
    /// The session shut down gracefully after [`Input::Stop`].
    Stopped,
    /// The server ended the stream at a time that was not announced. The scenario decides whether
    /// that is planned.
    EndedByServer {
        /// Time of the end.
        at: Time,
        /// `true` if the server announced the end by the protocol. `false` if it closed the
        /// connection, as after a crash.
        in_order: bool,
        /// Failure of the client if the end is not planned.
        failure: Failure,
    },
    /// The session failed.
    Failed(Failure),
}

impl Outcome {
    /// Returns the failure of the session. An end by the server counts as one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Outcome::EndedByServer { failure, .. } | Outcome::Failed(failure) => Some(failure),
            Outcome::Completed | Outcome::Stopped => None,
        }
    }
}

/// Reason why a session failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Stable name from the protocol's enumerated set: a row of the report.
    pub reason: &'static str,
    /// Details for the run file: the request and the answer, exact enough to find the packet in a
    /// capture. At most a few hundred characters.
    pub detail: String,
}

/// An entry of the run's list of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Stable name, by which equal events are counted.
    pub kind: &'static str,
    /// Description of the event.
    pub text: String,
}

/// Arrival times of the bytes of one read, looked up at increasing offsets.
#[derive(Clone, Debug)]
pub struct ArrivalTimes<'a> {
    runs: &'a [ArrivalRun],
    at: Time,
}

impl<'a> ArrivalTimes<'a> {
    /// Takes `runs` and `at` of [`Input::Bytes`].
    pub fn new(runs: &'a [ArrivalRun], at: Time) -> ArrivalTimes<'a> {
        ArrivalTimes { runs, at }
    }

    /// Returns the time by which all bytes before offset `end` had arrived, and `true` if that is
    /// the arrival time of the segment that brought the last of them. Offsets must not decrease
    /// from call to call.
    #[inline]
    pub fn arrival_of(&mut self, end: usize) -> (Time, bool) {
        while let [run, rest @ ..] = self.runs {
            if end <= run.end {
                return (run.at, run.exact);
            }
            self.runs = rest;
        }
        (self.at, false)
    }
}
