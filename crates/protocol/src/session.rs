//! The contract between a protocol and the engine that runs it.
//!
//! A [`Session`] is one side of one conversation: a client's with a server, or a reference server's
//! with one client. The engine feeds it [`Input`]s and carries out the [`Output`]s that it leaves
//! in its [`Context`]; between the two it owns no socket, reads no clock and starts nothing. So the
//! same session runs over real sockets, and in tests over a seeded virtual network in virtual time.
//!
//! There are two planes:
//!
//! * **Control**: bytes and datagrams go into [`Session::handle`], bytes come out as
//!   [`Output::Send`]. May allocate; costs what a request costs.
//! * **Media**: what arrives is counted by a [`Sink`], what leaves is made by a [`Flow`]. Both live
//!   beside all others of their worker, in [`Sinks`] and [`Flows`]; the engine updates them packet
//!   by packet without calling the session, which hears only of a [`MediaEvent`]. Where media and control share a byte stream (RTSP's interleaved frames) the
//!   session takes the stream apart and hands the packets to its sinks itself: the read was a batch
//!   already.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use measure::{Recorder, Run, Time};

mod datagrams;
pub mod exchange;
mod flows;
mod record;
pub mod schedule;
mod sinks;
mod streams;

pub use crate::tls::TlsError;
pub use datagrams::{Datagram, Endpoint, Outbox, PeerId, Reading, Route, Transmit};
pub use exchange::{Ended as ExchangeEnded, Exchange};
pub use flows::{Flow, FlowId, FlowPacket, Flows, Handover, Lender, PacketHeader, Tag};
pub use record::Record;
pub use schedule::Pace;
pub use sinks::{Arrival, Media, MediaEvent, MediaMark, Needs, Sink, SinkId, Sinks};
pub use streams::StreamRow;

/// One side of one conversation.
pub trait Session {
    /// Takes one input in, and leaves in `cx.out` what is to be done about it.
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>);

    /// When [`Input::Deadline`] is to come, unless something else happens first.
    fn deadline(&self) -> Option<Time>;

    /// Whether what has arrived and was not handed over as yet could change what the session makes
    /// of its deadline: because an answer, or media, is waited for. Not where it is only to send
    /// something.
    fn awaits(&self, now: Time) -> bool {
        let _ = now;
        true
    }

    /// What each stream of the session has come to so far, for the client's row in the run file
    /// while it lives: what [`Output::Streams`] would say now. Asked every few seconds. Nothing,
    /// for a session that receives no media or is over.
    fn streams(&self, sinks: &mut Sinks) -> Vec<StreamRow> {
        let _ = sinks;
        Vec::new()
    }
}

/// What a session may use while it handles an input.
pub struct Context<'a> {
    /// The time now.
    pub now: Time,
    /// Where the population's figures are added to.
    pub recorder: &'a mut Recorder,
    /// Receivers of media on this worker.
    pub sinks: &'a mut Sinks,
    /// Senders of media on this worker.
    pub flows: &'a mut Flows,
    /// What is to be done, in order.
    pub out: &'a mut VecDeque<Output>,
    /// The bytes of the datagrams among it: see [`Context::transmit`].
    pub outbox: &'a mut Outbox,
}

impl Context<'_> {
    /// Sends one datagram on a channel that [`Open::Udp`] opened, or that an [`Endpoint`] accepted,
    /// when the outputs so far have been carried out. `write` appends its bytes; nothing is
    /// allocated. Datagrams of one length that go to one place in a row leave by one system call.
    pub fn transmit(
        &mut self,
        channel: ChannelId,
        to: Option<SocketAddr>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.outbox.add(self.out, channel, to, write);
    }
}

/// A channel of a session. The session chooses the numbers; each is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

/// Which socket of a channel that is a pair of UDP ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// The even port: media. Of channels that are no pair, the only one.
    Media,
    /// The odd port: RTCP.
    Control,
}

/// What a session hears.
#[derive(Debug)]
pub enum Input<'a> {
    /// Set to work. Comes first, once. `due` is when the plan wanted it, which is what delays are
    /// measured from.
    Start {
        /// When the session should have begun.
        due: Time,
    },
    /// A channel stands.
    Opened {
        /// Which.
        channel: ChannelId,
        /// Our end; of a pair of UDP ports the even one.
        local: SocketAddr,
        /// The other end, where there is one.
        remote: Option<SocketAddr>,
    },
    /// A channel could not be had.
    OpenFailed {
        /// Which.
        channel: ChannelId,
        /// Why.
        error: ChannelError,
    },
    /// Bytes arrived on a stream channel (TCP, TLS), in order, cut anywhere.
    Bytes {
        /// On which.
        channel: ChannelId,
        /// What; at most what one read gives.
        bytes: &'a [u8],
        /// When the last of them came, as far as that is known: else when they were read.
        at: Time,
        /// When each of them came: runs in order, of which the last ends with `bytes`. Empty where
        /// nothing is known of it: then all came by `at`.
        runs: &'a [Run],
    },
    /// A datagram arrived that belongs to no sink.
    Datagram {
        /// On which channel.
        channel: ChannelId,
        /// On which of its ports.
        port: Port,
        /// From where.
        from: SocketAddr,
        /// What.
        bytes: &'a [u8],
        /// When the kernel took it in.
        at: Time,
    },
    /// Datagrams arrived on a channel that [`Open::Udp`] opened: in order, as many as were there at
    /// one look. On one that an [`Endpoint`] accepted each comes alone.
    Datagrams {
        /// On which channel.
        channel: ChannelId,
        /// What.
        datagrams: &'a [Datagram<'a>],
    },
    /// The other side closed a channel, or it broke. Nothing more comes from it.
    Closed {
        /// Which.
        channel: ChannelId,
        /// How.
        how: Closed,
    },
    /// Something happened in a sink that the session must know.
    Media {
        /// In which.
        sink: SinkId,
        /// What.
        event: MediaEvent,
    },
    /// A flow has sent its last packet, or cannot be sent: its channel is not there or has no peer.
    /// Comes once. It sends no more, whatever it is given, until it is started again.
    FlowEnded {
        /// Which.
        flow: FlowId,
    },
    /// Another session of this run said something on a topic this one listens to.
    Told {
        /// The topic.
        topic: &'a str,
        /// What was said.
        message: &'a Arc<str>,
    },
    /// A connection that was handed over ([`Output::Exchange`]) is over; it is closed.
    Exchanged {
        /// Which.
        channel: ChannelId,
        /// How it ended.
        how: ExchangeEnded,
    },
    /// The time that [`Session::deadline`] named has come.
    Deadline,
    /// Come to a clean end, and be through by `until`: then the engine cuts what is left. Before it
    /// does, this comes once more with an `until` that has passed: [`Output::Ended`] is then to be
    /// said in that very call, with the session's sinks and flows taken away.
    Stop {
        /// The time left.
        until: Time,
    },
}

/// What a session wants done.
#[derive(Debug)]
pub enum Output {
    /// Open a channel. Answered by [`Input::Opened`] or [`Input::OpenFailed`], always.
    Open {
        /// Its number from now on.
        channel: ChannelId,
        /// What kind.
        open: Open,
    },
    /// Send bytes: on a stream channel in order after what was sent before, on a UDP channel as one
    /// datagram to its peer.
    Send {
        /// On which channel.
        channel: ChannelId,
        /// From which of its ports.
        port: Port,
        /// What.
        bytes: Vec<u8>,
    },
    /// Send datagrams: see [`Context::transmit`], which makes it.
    Transmit(Transmit),
    /// Name the other end of a UDP channel: where [`Output::Send`] and flows go. Media from other
    /// addresses than `media.ip()` is foreign: it is counted by the engine and not given to the
    /// sink. Of a single socket ([`Open::Udp`]) it names where flows go, and datagrams that name no
    /// other place, from then on; what comes is not changed by it.
    Peer {
        /// Which channel.
        channel: ChannelId,
        /// Where media goes to and comes from.
        media: SocketAddr,
        /// Where RTCP goes to.
        control: SocketAddr,
    },
    /// Close a channel when everything sent on it has left. No [`Input::Closed`] follows.
    Close {
        /// Which.
        channel: ChannelId,
    },
    /// Have what comes on a TCP connection acknowledged that soon, though it is read seldom once
    /// media comes. A server that sends nothing small before all is acknowledged (Nagle's
    /// algorithm; RFC 9293, 3.7.4) would else be kept waiting for up to 40 ms.
    Acknowledge {
        /// On which channel.
        channel: ChannelId,
        /// How soon.
        acks: Acks,
    },
    /// Read a channel that [`Open::Udp`] or [`Open::UdpTo`] opened so soon from now on. An answer
    /// may be waited for at once, and the media behind it read late.
    Read {
        /// Which channel.
        channel: ChannelId,
        /// How soon.
        reading: Reading,
    },
    /// Let a flow send from now on; it then runs by its own schedule until it ends
    /// ([`Input::FlowEnded`]).
    StartFlow {
        /// Which flow.
        flow: FlowId,
        /// On which channel: its packets are datagrams, or pieces of the connection's bytes.
        channel: ChannelId,
    },
    /// Let a flow send no more. It can be started again. The session removes it from [`Flows`]
    /// itself; what it has then sent is all.
    StopFlow {
        /// Which flow.
        flow: FlowId,
    },
    /// Hand a stream channel over: from now on messages are sent and read on it without the
    /// session, by the exchange's own plan. Ends with [`Input::Exchanged`]; until then the session
    /// hears nothing of the channel.
    Exchange {
        /// Which.
        channel: ChannelId,
        /// What is sent, and what becomes of what comes.
        exchange: Box<dyn Exchange>,
    },
    /// Plan no more messages on a channel that was handed over: what is on its way leaves, the
    /// other side is told that nothing more will come, and what it still sends is taken in until it
    /// closes.
    FinishExchange {
        /// Which.
        channel: ChannelId,
    },
    /// Hear what is said on a topic from now on, and what was last said on it before.
    Listen {
        /// The topic.
        topic: String,
    },
    /// Say something to all sessions of the run that listen to the topic.
    Tell {
        /// The topic.
        topic: String,
        /// What.
        message: Arc<str>,
    },
    /// The first media packet of the session has arrived, on whichever channel. Said once; the
    /// engine counts the client as playing from then on.
    Playing {
        /// When.
        at: Time,
    },
    /// What the server says of the media, by a session that is there to ask for it.
    Described(Box<measure::media::MediaDescription>),
    /// What each stream of the session came to, said before [`Output::Ended`]: for the client's row
    /// in the run file.
    Streams(Vec<StreamRow>),
    /// Something for the run's list of events. The engine bounds how many are kept.
    Note(Note),
    /// What the session did, for the report of whoever runs it.
    Record(Record),
    /// The session is over; whatever it still has open is to be closed, and its sinks and flows
    /// are gone. The last output.
    Ended(Outcome),
}

/// How soon what comes on a connection is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Within two ticks of the kernel's clock (2 to 20 ms), where it can be told so (Linux 6.15);
    /// it costs nothing.
    Soon,
    /// At once, because what comes is read at once: each segment costs a wake-up.
    AtOnce,
}

/// A channel to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open {
    /// A TCP connection.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// How long connecting may take, looking up the name included.
        timeout: Duration,
    },
    /// A TLS connection over TCP; bytes on the channel are the plain ones.
    Tls {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// How long connecting and the handshake may take.
        timeout: Duration,
        /// What the certificate must be for, where that is not `host`. Whose certificates are
        /// trusted is the population's ([`crate::tls::TlsConfig`]).
        server_name: Option<String>,
    },
    /// A connection to a Unix socket of streams (unix(7)). It stands at once or cannot be had. Its
    /// ends have no addresses: unspecified ones stand for them.
    Unix {
        /// The socket's path.
        path: PathBuf,
    },
    /// A UDP socket. What comes is heard as [`Input::Datagrams`], whoever sent it; with a peer only
    /// what that one sent. Media goes to a sink instead, where one is named.
    Udp {
        /// The local address to bind; port 0 for any, unspecified for any address.
        local: SocketAddr,
        /// The only one to speak to (connect(2)). Then an answer that nobody is there (ICMP port
        /// unreachable) ends the channel with [`Closed::Reset`].
        peer: Option<SocketAddr>,
        /// How soon it is read.
        reading: Reading,
        /// What of it is media, and what counts that.
        media: Option<Media>,
    },
    /// The same with any local address, to a peer that is named: it is looked up as for a
    /// connection, and connected to the first of its addresses to which there is a way. Those of
    /// IPv4 are first: whether anybody is at an address, nothing tells before something is sent.
    /// The peer's address is the remote end of [`Input::Opened`].
    UdpTo {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// The local port to bind; 0 for any. Where somebody has it, the channel fails with
        /// [`ChannelError::NoPorts`].
        local_port: u16,
        /// How long looking the name up may take.
        timeout: Duration,
        /// How soon it is read.
        reading: Reading,
        /// What of it is media, and what counts that.
        media: Option<Media>,
    },
    /// A pair of UDP ports, an even one for media and the odd one above it for RTCP.
    UdpPair {
        /// The local address to bind; unspecified for any.
        local: IpAddr,
        /// What counts the datagrams on the even port. Without one they come as
        /// [`Input::Datagram`].
        sink: Option<SinkId>,
        /// Whether the pair may be one that other sessions of this worker use too. What arrives is
        /// then told apart by the sender's address, so a peer must be named before anything is
        /// heard. A server can so stand for thousands of clients without two descriptors each.
        shared: bool,
    },
    /// Membership in a multicast group, on a pair of ports as the group uses them.
    ///
    /// One copy of what is sent to the group serves all of this worker's sessions that join it
    /// alike; each has its own sink. A sink counts what arrives after the channel's
    /// [`Output::Peer`] was said, which names the only sender whose datagrams count, or with an
    /// unspecified address any, and where RTCP goes to.
    ///
    /// To the network these sessions are one receiver: what they send is sent of the one that
    /// joined first alone, and it alone hears of other receivers' RTCP. What a sender says in RTCP,
    /// all hear.
    Multicast {
        /// The group.
        group: IpAddr,
        /// The port for media.
        port: u16,
        /// The port for RTCP.
        control: u16,
        /// The only sources to take packets from, where the membership is source-specific (RFC
        /// 4607); else none.
        sources: Vec<IpAddr>,
        /// Through which interface.
        interface: Interface,
        /// How many hops live what is sent to the group.
        ttl: u8,
        /// What counts the datagrams of the media port. Without one they come as
        /// [`Input::Datagram`], cut off after 2048 bytes.
        sink: Option<SinkId>,
    },
    /// A pair of UDP ports to send to multicast groups from. Other sessions of this worker use the
    /// pair too; nothing is heard on it.
    MulticastSender {
        /// The local address to bind; unspecified for any.
        local: IpAddr,
        /// The interface by which the datagrams leave. Without one it is that of `local`, and where
        /// that is unspecified, the one that the routes name.
        interface: Option<Interface>,
        /// How many hops they live.
        ttl: u8,
    },
}

/// An interface of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// The one that has this address.
    With(IpAddr),
    /// The one of this name.
    Named(String),
}

/// Where a pair of UDP ports is to be bound for the peer of a connection from `local`. A link-local
/// address of IPv6 means an interface too, which an address alone does not say (RFC 4007, 6): then
/// any, and the peer's address decides.
pub fn bind_beside(local: IpAddr) -> IpAddr {
    match local {
        IpAddr::V6(address) if address.is_unicast_link_local() => Ipv6Addr::UNSPECIFIED.into(),
        local => local,
    }
}

/// Another port of the address that a connection has at its other end. Its interface is kept, where
/// it means one.
pub fn beside(remote: SocketAddr, port: u16) -> SocketAddr {
    let mut address = remote;
    address.set_port(port);
    address
}

/// Why a channel could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelError {
    /// Nobody listens there.
    Refused,
    /// There is no way there.
    Unreachable,
    /// The name has no address.
    NameNotFound,
    /// It did not stand in time.
    TimedOut,
    /// There was a connection, but TLS could not be had on it.
    Tls(TlsError),
    /// This machine has no free port pair left for it: the tester's own limit.
    NoPorts,
    /// This process has no file descriptor left for it: the tester's own limit.
    NoFiles,
    /// This machine grants no more memberships in multicast groups: the tester's own limit.
    NoMembership,
    /// This machine has no such interface.
    NoInterface,
    /// Anything else; the number is the operating system's.
    Other(i32),
}

impl fmt::Display for ChannelError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ChannelError::Refused => "connection refused",
            ChannelError::Unreachable => "no route to the host",
            ChannelError::NameNotFound => "the host's name has no address",
            ChannelError::TimedOut => "no connection in time",
            ChannelError::Tls(error) => return error.fmt(out),
            ChannelError::NoPorts => "this machine has no free port left",
            ChannelError::NoFiles => "this process has no file descriptor left",
            ChannelError::NoMembership => {
                "this machine grants no more memberships in multicast groups or of their sources (sysctl \
                 net.ipv4.igmp_max_memberships, net.ipv4.igmp_max_msf, net.ipv6.mld_max_msf)"
            }
            ChannelError::NoInterface => "this machine has no such network interface",
            ChannelError::Other(code) => return write!(out, "operating system error {code}"),
        })
    }
}

/// How a channel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Closed {
    /// The other side closed it in order.
    End,
    /// The other side reset it, or it broke.
    Reset,
    /// The other side took nothing off it for so long that its bounded queue ran over.
    Stuck,
    /// What came over it was no more what TLS demands, or the other side broke TLS off.
    Tls(TlsError),
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As planned: the media played to its known end, or the run's own publisher left.
    Completed,
    /// It was told to stop, and did so in order.
    Stopped,
    /// The server ended the stream at a time that nobody had announced. The scenario decides whether
    /// that is planned.
    EndedByServer {
        /// Time of the end.
        at: Time,
        /// Whether the server said so by the protocol. Otherwise it closed the connection, as after
        /// a crash.
        in_order: bool,
        /// The client's failure, if the end is not planned.
        failure: Failure,
    },
    /// It failed.
    Failed(Failure),
}

impl Outcome {
    /// The failure of the session. An end by the server counts as one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Outcome::EndedByServer { failure, .. } | Outcome::Failed(failure) => Some(failure),
            Outcome::Completed | Outcome::Stopped => None,
        }
    }
}

/// Why a session failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A stable name out of the protocol's enumerated set: a row of the report.
    pub reason: &'static str,
    /// What exactly happened, for the run file: what was asked, what came, so that one finds the
    /// packet. At most a few hundred characters.
    pub detail: String,
}

/// Something for the list of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// A stable name, so that like events can be counted.
    pub kind: &'static str,
    /// What happened.
    pub text: String,
}

/// Finds out when bytes of a read came, from its runs, one after the other.
#[derive(Clone, Debug)]
pub struct Times<'a> {
    runs: &'a [Run],
    by: Time,
}

impl<'a> Times<'a> {
    /// The times of [`Input::Bytes`].
    pub fn new(runs: &'a [Run], at: Time) -> Times<'a> {
        Times { runs, by: at }
    }

    /// When what ends at that offset was there as a whole, and whether that is the time of the very
    /// segment that brought its last byte. Offsets are asked for in order.
    #[inline]
    pub fn of(&mut self, end: usize) -> (Time, bool) {
        while let [run, rest @ ..] = self.runs {
            if end <= run.end {
                return (run.at, run.exact);
            }
            self.runs = rest;
        }
        (self.by, false)
    }
}
