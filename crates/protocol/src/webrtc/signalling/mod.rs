//! Signalling: how the two ends of a PeerConnection come to know each other. Each kind is a state
//! machine without I/O: what arrives on its connection goes in, what is to be done comes out as
//! [`Wanted`], in order.

pub mod janus;
pub mod livekit;
mod socket;
pub mod whip;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use measure::{Recorder, Time};

use super::failure::Failure;
use crate::session::Closed;

/// The longest description that is taken, in bytes: that of a room with hundreds of streams is
/// below.
pub const SDP_MAX: usize = 256 * 1024;

/// The most publishers of a room that are received.
const FEEDS_MAX: usize = 5_000;

/// Where a connection is to be made to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether over TLS.
    pub secure: bool,
}

/// A PeerConnection, as a signalling numbers them. Each number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerNumber(pub u32);

/// Which way media goes in a PeerConnection, seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It comes.
    Receive,
    /// It is sent.
    Send,
}

/// What a signalling wants done, or has learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Connect; answered by [`Signalling::connected`]. Whatever connection there was is no more.
    Connect(Target),
    /// Send on the connection.
    Send(Vec<u8>),
    /// Connect beside it; answered by [`Signalling::second_connected`].
    ConnectSecond(Target),
    /// Send on the second connection.
    SendSecond(Vec<u8>),
    /// Close the connection, and the second one.
    HangUp,
    /// Make a PeerConnection and offer it: answered by [`Signalling::described`].
    Offer {
        /// Which.
        peer: PeerNumber,
        /// Which way media goes.
        direction: Direction,
    },
    /// The server offers: make a PeerConnection where there is none of that number, and answer by
    /// [`Signalling::described`].
    Answer {
        /// Which.
        peer: PeerNumber,
        /// The server's offer.
        offer: String,
    },
    /// The server has answered our offer.
    Answered {
        /// Which.
        peer: PeerNumber,
        /// Its answer.
        answer: String,
    },
    /// A further address at which the server may be reached: a candidate line without `a=`.
    Candidate {
        /// Which.
        peer: PeerNumber,
        /// The line.
        candidate: String,
    },
    /// Others publish in the room already: their media is waited for from now on.
    Expect,
    /// The PeerConnection is of no further use, and nobody has failed: who sent in it has left.
    Forget {
        /// Which.
        peer: PeerNumber,
    },
    /// What is fed is taken at these ports of the server's, in plain RTP (RFC 3550).
    Feed {
        /// Each stream that was told of by [`Signalling::tell_media`].
        ports: Vec<FeedPort>,
    },
    /// Something for the list of events.
    Note {
        /// A stable name.
        kind: &'static str,
        /// What happened.
        text: String,
    },
    /// It has failed, and nothing more comes.
    Failed {
        /// Why.
        failure: Failure,
        /// What exactly happened.
        detail: String,
    },
    /// It has left as it was told to, and nothing more comes.
    Left,
}

/// A stream that is fed to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FedMedia {
    /// `video` or `audio`.
    pub kind: &'static str,
    /// The codec, by its name in `a=rtpmap`.
    pub codec: String,
    /// Its payload type.
    pub payload_type: u8,
    /// What `a=fmtp` says of it; empty for nothing.
    pub parameters: String,
}

/// Where a stream is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedPort {
    /// The UDP port of its media.
    pub media: u16,
    /// That of its RTCP, where there is one.
    pub control: Option<u16>,
}

/// What a signalling may use while it works.
pub struct Scope<'a> {
    /// The time now.
    pub now: Time,
    /// Where figures are added to.
    pub recorder: &'a mut Recorder,
    /// What is wanted, in order.
    pub wanted: &'a mut VecDeque<Wanted>,
}

impl Scope<'_> {
    /// Wants something done.
    pub fn want(&mut self, wanted: Wanted) {
        self.wanted.push_back(wanted);
    }

    /// Fails.
    pub fn fail(&mut self, failure: Failure, detail: impl Into<String>) {
        self.want(Wanted::Failed {
            failure,
            detail: detail.into(),
        });
    }
}

/// A kind of signalling, of one client.
pub trait Signalling: Debug {
    /// Sets to work: a first connection is wanted.
    fn begin(&mut self, scope: &mut Scope<'_>);

    /// Says what the wall clock showed, since 1970, when time began: for kinds that tell the time.
    fn tell_wall_clock(&mut self, _wall_clock: Duration) {}

    /// Says what the client feeds, for kinds that have this: before it is set to work.
    fn tell_media(&mut self, _media: Vec<FedMedia>) {}

    /// The connection stands.
    fn connected(&mut self, scope: &mut Scope<'_>);

    /// Bytes have come on the connection.
    fn bytes(&mut self, scope: &mut Scope<'_>, bytes: &[u8]);

    /// The connection is gone, by the other side.
    fn closed(&mut self, scope: &mut Scope<'_>, how: Closed);

    /// The second connection stands, which only some ask for.
    fn second_connected(&mut self, _scope: &mut Scope<'_>) {}

    /// Bytes have come on the second connection.
    fn second_bytes(&mut self, _scope: &mut Scope<'_>, _bytes: &[u8]) {}

    /// The second connection is gone, by the other side.
    fn second_closed(&mut self, _scope: &mut Scope<'_>, _how: Closed) {}

    /// Our description of a PeerConnection, which was asked for.
    fn described(&mut self, scope: &mut Scope<'_>, peer: PeerNumber, sdp: &str);

    /// A PeerConnection stands: media can go over it.
    fn stands(&mut self, scope: &mut Scope<'_>, peer: PeerNumber);

    /// When [`Signalling::look`] is to be called.
    fn deadline(&self) -> Option<Time>;

    /// The time has come that [`Signalling::deadline`] named.
    fn look(&mut self, scope: &mut Scope<'_>);

    /// Leaves in order; [`Wanted::Left`] follows, or nothing in time.
    fn leave(&mut self, scope: &mut Scope<'_>);

    /// Whether somebody sends whom the client is to receive: not so for who only publishes, or is
    /// alone in a room.
    fn expects_media(&self) -> bool;

    /// Until when the publisher of a track had muted it, by the name that the track has in
    /// descriptions (`a=msid`): [`Time::NEVER`] while they do, none where that is not known.
    fn muted_until(&self, track: &str) -> Option<Time> {
        let _ = track;
        None
    }

    /// The tracks of which the server has said that they will not come, and why.
    fn missing_tracks(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    /// What the client waits for, and since when; none where it waits for nothing: for who is
    /// stopped meanwhile.
    fn waits(&self) -> Option<(Time, String)>;
}

/// What all kinds are set up with.
#[derive(Clone, Debug)]
pub struct Common {
    /// How long each request may take to be answered.
    pub request_timeout: Duration,
    /// What follows `Bearer` in `Authorization`, or is Janus' token.
    pub token: Option<String>,
    /// The text of `User-Agent`.
    pub user_agent: String,
    /// Seed of all that is drawn.
    pub seed: u64,
}

/// Why a client fails whose connection is gone, and what to say of it.
fn ended(how: Closed) -> (Failure, String) {
    match how {
        Closed::Stuck => (Failure::Stuck, "the server does not read".to_owned()),
        Closed::Tls(error) => (Failure::Connect(error.into()), error.to_string()),
        Closed::End | Closed::Reset => {
            (Failure::SignallingClosed, "the connection ended".to_owned())
        }
    }
}

/// A description without the addresses in it, and these, without `a=`.
fn split_candidates(sdp: &str) -> (String, Vec<String>) {
    let (mut rest, mut candidates) = (String::with_capacity(sdp.len()), Vec::new());
    for line in sdp.split_inclusive('\n') {
        if line.starts_with("a=end-of-candidates") {
            continue;
        }
        match line
            .strip_prefix("a=")
            .filter(|_| line.starts_with("a=candidate:"))
        {
            Some(candidate) => {
                let candidate = candidate.trim_end().to_owned();
                if !candidates.contains(&candidate) {
                    candidates.push(candidate);
                }
            }
            None => rest += line,
        }
    }
    (rest, candidates)
}
