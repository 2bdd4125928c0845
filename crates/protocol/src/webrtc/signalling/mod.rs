//! Signalling: how the two sides of a PeerConnection exchange their descriptions.
//!
//! Each kind is a state machine without I/O. What arrives on its connection goes in, and [`Wanted`]
//! actions come out, in order.

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

/// Maximum length of a description, in bytes. That of a room with hundreds of streams is shorter.
pub const SDP_MAX: usize = 256 * 1024;

/// Maximum number of publishers of a room that are received.
const FEEDS_MAX: usize = 5_000;

/// Destination of a signalling connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Host name or address.
    pub host: String,
    pub port: u16,
    /// True for TLS.
    pub secure: bool,
}

/// Number that a signalling gives to a PeerConnection. Each number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerNumber(pub u32);

/// Direction of the media of a PeerConnection, from the client's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Receive,
    Send,
}

/// Action that a signalling requests, or event that it reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Open the connection, in place of an earlier one. Answered by [`Signalling::connected`].
    Connect(Target),
    /// Send bytes on the connection.
    Send(Vec<u8>),
    /// Open the second connection. Answered by [`Signalling::second_connected`].
    ConnectSecond(Target),
    /// Send bytes on the second connection.
    SendSecond(Vec<u8>),
    /// Close both connections.
    HangUp,
    /// Create a PeerConnection and an offer. Answered by [`Signalling::described`].
    Offer {
        peer: PeerNumber,
        direction: Direction,
    },
    /// Answer an offer of the server with [`Signalling::described`]. The PeerConnection is created
    /// if it does not exist.
    Answer { peer: PeerNumber, offer: String },
    /// The server's answer to our offer.
    Answered { peer: PeerNumber, answer: String },
    /// Candidate of the server: a candidate line without `a=`.
    Candidate { peer: PeerNumber, candidate: String },
    /// Others already publish in the room, so media is expected from the start.
    Expect,
    /// Drop a PeerConnection because its sender has left. This is no failure.
    Forget { peer: PeerNumber },
    /// Send the fed streams to these ports of the server, as plain RTP (RFC 3550).
    Feed {
        /// Ports of the streams of [`Signalling::tell_media`], in the same order.
        ports: Vec<FeedPort>,
    },
    /// Add an event to the run's list of events.
    Note {
        /// Stable name of the event.
        kind: &'static str,
        text: String,
    },
    /// The signalling failed. Nothing follows.
    Failed { failure: Failure, detail: String },
    /// The signalling left as requested. Nothing follows.
    Left,
}

/// Stream that is fed to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FedMedia {
    /// `video` or `audio`.
    pub kind: &'static str,
    /// Name of the codec, as in `a=rtpmap`.
    pub codec: String,
    pub payload_type: u8,
    /// Parameters of the codec, as in `a=fmtp`. Empty if it has none.
    pub parameters: String,
}

/// Ports of the server for a stream that is fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedPort {
    /// UDP port for RTP.
    pub media: u16,
    /// UDP port for RTCP, if the server uses one.
    pub control: Option<u16>,
}

/// Context of a call of a signalling.
pub struct Scope<'a> {
    pub now: Time,
    /// Recorder of the population's figures.
    pub recorder: &'a mut Recorder,
    /// Requested actions, in order.
    pub wanted: &'a mut VecDeque<Wanted>,
}

impl Scope<'_> {
    /// Requests an action.
    pub fn want(&mut self, wanted: Wanted) {
        self.wanted.push_back(wanted);
    }

    /// Reports that the signalling failed.
    pub fn fail(&mut self, failure: Failure, detail: impl Into<String>) {
        self.want(Wanted::Failed {
            failure,
            detail: detail.into(),
        });
    }
}

/// Signalling of one client.
pub trait Signalling: Debug {
    /// Starts, and requests the first connection.
    fn begin(&mut self, scope: &mut Scope<'_>);

    /// Sets the wall-clock time at [`Time::ZERO`], since 1970, for kinds that use it.
    fn tell_wall_clock(&mut self, _wall_clock: Duration) {}

    /// Sets the streams that the client feeds, for kinds that support it. Called before
    /// [`Signalling::begin`].
    fn tell_media(&mut self, _media: Vec<FedMedia>) {}

    /// Handles the opened connection.
    fn connected(&mut self, scope: &mut Scope<'_>);

    /// Handles bytes of the connection.
    fn bytes(&mut self, scope: &mut Scope<'_>, bytes: &[u8]);

    /// Handles the end of the connection, caused by the other side.
    fn closed(&mut self, scope: &mut Scope<'_>, how: Closed);

    /// Handles the opened second connection, which only some kinds request.
    fn second_connected(&mut self, _scope: &mut Scope<'_>) {}

    /// Handles bytes of the second connection.
    fn second_bytes(&mut self, _scope: &mut Scope<'_>, _bytes: &[u8]) {}

    /// Handles the end of the second connection, caused by the other side.
    fn second_closed(&mut self, _scope: &mut Scope<'_>, _how: Closed) {}

    /// Handles our description of a PeerConnection, which the signalling has requested.
    fn described(&mut self, scope: &mut Scope<'_>, peer: PeerNumber, sdp: &str);

    /// Handles a connected PeerConnection: media can flow.
    fn stands(&mut self, scope: &mut Scope<'_>, peer: PeerNumber);

    /// Time at which [`Signalling::look`] is to be called.
    fn deadline(&self) -> Option<Time>;

    /// Handles what is due at [`Signalling::deadline`].
    fn look(&mut self, scope: &mut Scope<'_>);

    /// Leaves gracefully. [`Wanted::Left`] follows, unless the server does not answer in time.
    fn leave(&mut self, scope: &mut Scope<'_>);

    /// Returns `true` if the client has media to receive now, `false` if it only publishes or is
    /// alone in a room.
    fn expects_media(&self) -> bool;

    /// Returns the time until which its publisher had muted a track: [`Time::NEVER`] while it is
    /// muted, `None` if unknown. `track` is its name in descriptions (`a=msid`).
    fn muted_until(&self, track: &str) -> Option<Time> {
        let _ = track;
        None
    }

    /// Returns the tracks that the server cannot deliver, with its reasons.
    fn missing_tracks(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    /// Returns what the client waits for, and since when, in case it is stopped meanwhile. `None`
    /// if it waits for nothing.
    fn waits(&self) -> Option<(Time, String)>;
}

/// Settings of all kinds of signalling.
#[derive(Clone, Debug)]
pub struct Common {
    /// Time-out of each request.
    pub request_timeout: Duration,
    /// Token: that of `Authorization: Bearer`, or Janus' token.
    pub token: Option<String>,
    /// Value of `User-Agent`.
    pub user_agent: String,
    /// Seed of all random values.
    pub seed: u64,
}

/// Returns the failure of a client whose connection has ended, and a text for its detail.
fn ended(how: Closed) -> (Failure, String) {
    match how {
        Closed::Stuck => (Failure::Stuck, "the server does not read".to_owned()),
        Closed::Tls(error) => (Failure::Connect(error.into()), error.to_string()),
        Closed::End | Closed::Reset => {
            (Failure::SignallingClosed, "the connection ended".to_owned())
        }
    }
}

/// Returns a description without its candidates, and the candidates without `a=`.
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
