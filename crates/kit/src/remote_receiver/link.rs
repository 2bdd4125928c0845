//! Client side: asks a receiver on another machine to receive its media, and gets its counts.

use std::net::SocketAddr;
use std::time::Duration;

use measure::Time;

use super::messages::{
    ClientMessage, LINE_MAX, LineSplitter, ReceiverMessage, StreamState, VERSION, to_line,
};
use super::proof::{Secret, proof};
use session::{ChannelId, Context, Output, Port};

/// A message of a receiver.
#[derive(Debug)]
pub enum ReceiverEvent {
    /// The receiver takes a stream's media at one of its ports.
    Opened {
        /// Number of the stream.
        stream: usize,
        /// Even port of the pair.
        port: u16,
    },
    /// The first packet of a stream arrived.
    FirstPacket {
        /// Number of the stream.
        stream: usize,
        /// Arrival time by this machine's clock, off by at most half of a round trip.
        at: Time,
    },
    /// Interim counts of a stream.
    InterimCounts {
        /// Arrival times of the first and the last packet by this machine's clock.
        arrivals: Option<(Time, Time)>,
        /// The counts as received.
        state: StreamState,
    },
    /// The sender of a stream has announced its end (RTCP BYE).
    Bye {
        /// Number of the stream.
        stream: usize,
        /// Arrival time by this machine's clock.
        at: Time,
    },
    /// The final counts have arrived, and the ports are closed.
    Closed,
}

/// A client's connection to its receiver.
#[derive(Debug)]
pub struct Link {
    channel: ChannelId,
    secret: Secret,
    /// Address of the receiver's connection.
    peer_address: Option<SocketAddr>,
    lines: LineSplitter,
    /// Requests to send once the receiver has sent its challenge.
    queued: Vec<ClientMessage>,
    proof_sent: bool,
    /// Time of the last request for ports, and the shortest time until a response.
    request_at: Option<Time>,
    round_trip: Option<Duration>,
    /// `true` once the last message was sent.
    pub closing: bool,
    /// `true` once the receiver has sent its last message, or was lost.
    pub closed: bool,
}

impl Link {
    /// Creates a link over a channel that is being opened.
    pub fn new(channel: ChannelId, secret: Secret) -> Link {
        Link {
            channel,
            secret,
            peer_address: None,
            lines: LineSplitter::default(),
            queued: Vec::new(),
            proof_sent: false,
            request_at: None,
            round_trip: None,
            closing: false,
            closed: false,
        }
    }

    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// Records that the channel is open.
    pub fn opened(&mut self, remote: Option<SocketAddr>) {
        self.peer_address = remote;
    }

    /// Address of the receiver's connection.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.peer_address
    }

    /// Shortest response time of the receiver so far.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Sends a request, or queues it until the receiver has sent its challenge.
    pub fn send_request(&mut self, cx: &mut Context<'_>, request: ClientMessage) {
        match self.proof_sent {
            true => self.send(cx, &request),
            false => self.queued.push(request),
        }
    }

    fn send(&mut self, cx: &mut Context<'_>, request: &ClientMessage) {
        if matches!(request, ClientMessage::Open(_)) {
            self.request_at = Some(cx.now);
        }
        cx.out.push_back(Output::Send {
            channel: self.channel,
            port: Port::Media,
            bytes: to_line(request),
        });
    }

    /// Handles received bytes and returns the receiver's messages.
    ///
    /// # Errors
    /// If the receiver refuses, or is not a receiver.
    pub fn received(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        at: Time,
    ) -> Result<Vec<ReceiverEvent>, String> {
        let mut messages: Vec<Result<ReceiverMessage, serde_json::Error>> = Vec::new();
        let mut lines = std::mem::take(&mut self.lines);
        let fed = lines.feed(bytes, LINE_MAX, |text| {
            messages.push(serde_json::from_slice(text))
        });
        self.lines = lines;
        let mut events = Vec::new();
        for message in messages {
            let message =
                message.map_err(|error| format!("not a streamgauge receiver: {error}"))?;
            self.handle_message(cx, message, at, &mut events)?;
        }
        match fed {
            Ok(()) => Ok(events),
            Err(_) => Err("not a streamgauge receiver: line too long".to_owned()),
        }
    }

    fn handle_message(
        &mut self,
        cx: &mut Context<'_>,
        message: ReceiverMessage,
        at: Time,
        events: &mut Vec<ReceiverEvent>,
    ) -> Result<(), String> {
        match message {
            ReceiverMessage::Hello { version, challenge } => {
                if self.proof_sent {
                    return Err("not a streamgauge receiver: second challenge".to_owned());
                }
                if version != VERSION {
                    return Err(format!(
                        "protocol version {version} differs from this program's {VERSION}: start the same streamgauge on both machines"
                    ));
                }
                let proof = proof(&self.secret, &challenge);
                self.send(cx, &ClientMessage::Proof { proof });
                self.proof_sent = true;
                for request in std::mem::take(&mut self.queued) {
                    self.send(cx, &request);
                }
            }
            ReceiverMessage::Refused { why } => return Err(format!("refused: {why}")),
            ReceiverMessage::Opened {
                stream,
                address,
                port,
            } => {
                // Otherwise a receiver could direct media to an uninvolved host.
                if let Some(reached) = self.peer_address
                    && reached.ip() != address
                {
                    return Err(format!(
                        "it states the address {address}, but was reached at {}: media is sent only to the address \
                         that agreed to receive it",
                        reached.ip()
                    ));
                }
                if port == 0 || port % 2 == 1 {
                    return Err(format!("invalid media port {port}"));
                }
                if let Some(request_at) = self.request_at {
                    let took = at.since(request_at);
                    self.round_trip = Some(self.round_trip.map_or(took, |least| least.min(took)));
                }
                let stream = usize::from(stream);
                events.push(ReceiverEvent::Opened { stream, port });
            }
            ReceiverMessage::First { stream, age } => events.push(ReceiverEvent::FirstPacket {
                stream: usize::from(stream),
                at: self.local_time(at, age),
            }),
            ReceiverMessage::Seen(state) => events.push(self.seen(at, state)),
            ReceiverMessage::Bye { stream, age } => events.push(ReceiverEvent::Bye {
                stream: usize::from(stream),
                at: self.local_time(at, age),
            }),
            ReceiverMessage::Closed { streams } => {
                events.extend(streams.into_iter().map(|state| self.seen(at, state)));
                self.closed = true;
                events.push(ReceiverEvent::Closed);
            }
        }
        Ok(())
    }

    fn seen(&self, at: Time, state: StreamState) -> ReceiverEvent {
        let arrivals = state
            .ages
            .map(|(first, last)| (self.local_time(at, first), self.local_time(at, last)));
        ReceiverEvent::InterimCounts { arrivals, state }
    }

    /// Time of an event by this machine's clock. It happened `age` nanoseconds before its message
    /// was sent, which took half of a round trip to arrive.
    fn local_time(&self, received_at: Time, age: u64) -> Time {
        let transit = self.round_trip.unwrap_or_default() / 2;
        received_at - Duration::from_nanos(age).saturating_add(transit)
    }
}
