//! Signalling: how the two sides of a PeerConnection exchange their descriptions.
//!
//! Each kind is a state machine without I/O. What arrives on its connection goes in, and
//! [`SignallingAction`] actions come out, in order.

pub mod janus;
pub mod livekit;
mod websocket;
pub mod whip;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use measure::{HistogramId, Recorder, Time};

use super::failure::Failure;
use kit::http1::Url;
use session::CloseReason;

/// Maximum length of a description, in bytes. That of a room with hundreds of streams is shorter.
pub const SDP_MAX: usize = 256 * 1024;

/// Maximum number of publishers of a room that are received.
const FEEDS_MAX: usize = 5_000;

/// Destination of a signalling connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignallingTarget {
    /// Host name or address.
    pub host: String,
    pub port: u16,
    /// True for TLS.
    pub secure: bool,
}

impl SignallingTarget {
    /// Returns the server of a URL.
    fn of(url: &Url) -> SignallingTarget {
        SignallingTarget {
            host: url.host().to_owned(),
            port: url.port(),
            secure: url.is_secure(),
        }
    }
}

/// One of the connections of a signalling. Only Janus over HTTP has a second one, for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    First,
    Second,
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
pub enum SignallingAction {
    /// Open a connection, in place of an earlier one. Answered by [`Signalling::connected`].
    Connect(Connection, SignallingTarget),
    /// Send bytes on a connection.
    Send(Connection, Vec<u8>),
    /// Close both connections.
    Disconnect,
    /// Create a PeerConnection and an offer. Answered by [`Signalling::local_description`].
    CreateOffer {
        peer: PeerNumber,
        direction: Direction,
    },
    /// Answer an offer of the server with [`Signalling::local_description`]. The PeerConnection is
    /// created if it does not exist.
    AnswerOffer { peer: PeerNumber, offer: String },
    /// The server's answer to our offer.
    RemoteAnswer { peer: PeerNumber, answer: String },
    /// Candidate of the server: a candidate line without `a=`.
    RemoteCandidate { peer: PeerNumber, candidate: String },
    /// Others already publish in the room, so media is expected from the start.
    ExpectMedia,
    /// Drop a PeerConnection because its sender has left. This is no failure.
    DropPeer { peer: PeerNumber },
    /// Send the fed streams to these ports of the server, as plain RTP (RFC 3550).
    FeedTo {
        /// Ports of the streams of [`Signalling::set_fed_streams`], in the same order.
        ports: Vec<FeedPorts>,
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
pub struct FeedStream {
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
pub struct FeedPorts {
    /// UDP port for RTP.
    pub media: u16,
    /// UDP port for RTCP, if the server uses one.
    pub control: Option<u16>,
}

/// Context of a call of a signalling.
pub struct SignallingContext<'a> {
    pub now: Time,
    /// Recorder of the population's figures.
    pub recorder: &'a mut Recorder,
    /// Requested actions, in order.
    pub actions: &'a mut VecDeque<SignallingAction>,
}

impl SignallingContext<'_> {
    /// Requests an action.
    pub fn push(&mut self, wanted: SignallingAction) {
        self.actions.push_back(wanted);
    }

    /// Reports that the signalling failed.
    pub fn fail(&mut self, failure: Failure, detail: impl Into<String>) {
        self.push(SignallingAction::Failed {
            failure,
            detail: detail.into(),
        });
    }

    /// Adds an event to the run's list of events.
    fn note(&mut self, kind: &'static str, text: String) {
        self.push(SignallingAction::Note { kind, text });
    }

    /// Records the delay since a time.
    fn record_delay(&mut self, histogram: HistogramId, since: Time) {
        let delay = self.now.since(since);
        self.recorder.record_duration(histogram, delay);
    }

    /// Closes the connections, if `has_connection` says that there is one, and clears it.
    fn disconnect(&mut self, has_connection: &mut bool) {
        if std::mem::take(has_connection) {
            self.push(SignallingAction::Disconnect);
        }
    }
}

/// Signalling of one client.
pub trait Signalling: Debug {
    /// Starts, and requests the first connection.
    fn begin(&mut self, scope: &mut SignallingContext<'_>);

    /// Sets the wall-clock time at [`Time::ZERO`], since 1970, for kinds that use it.
    fn set_wall_clock(&mut self, _wall_clock: Duration) {}

    /// Sets the streams that the client feeds, for kinds that support it. Called before
    /// [`Signalling::begin`].
    fn set_fed_streams(&mut self, _media: Vec<FeedStream>) {}

    /// Handles an opened connection.
    fn connected(&mut self, scope: &mut SignallingContext<'_>, which: Connection);

    /// Handles bytes of a connection.
    fn bytes(&mut self, scope: &mut SignallingContext<'_>, which: Connection, bytes: &[u8]);

    /// Handles the end of a connection, caused by the other side.
    fn closed(&mut self, scope: &mut SignallingContext<'_>, which: Connection, how: CloseReason);

    /// Handles our description of a PeerConnection, which the signalling has requested.
    fn local_description(&mut self, scope: &mut SignallingContext<'_>, peer: PeerNumber, sdp: &str);

    /// Time at which [`Signalling::handle_due`] is to be called.
    fn deadline(&self) -> Option<Time>;

    /// Handles what is due at [`Signalling::deadline`].
    fn handle_due(&mut self, scope: &mut SignallingContext<'_>);

    /// Leaves gracefully. [`SignallingAction::Left`] follows, unless the server does not answer in
    /// time.
    fn leave(&mut self, scope: &mut SignallingContext<'_>);

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
    fn awaited(&self) -> Option<(Time, String)>;
}

/// Returns the failure of a client whose connection has ended, and a text for its detail.
fn closed_failure(how: CloseReason) -> (Failure, String) {
    match how {
        CloseReason::SendQueueFull => (Failure::Stuck, "the server does not read".to_owned()),
        CloseReason::Tls(error) => (Failure::Connect(error.into()), error.to_string()),
        CloseReason::End | CloseReason::Reset => {
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
