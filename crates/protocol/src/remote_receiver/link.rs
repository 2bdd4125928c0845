//! A client's side: asks a receiver on another machine to take its media, and hears from it what
//! came.

use std::net::SocketAddr;
use std::time::Duration;

use measure::Time;

use super::messages::{Asked, LINE_MAX, Lines, Said, StreamState, VERSION, line};
use super::proof::{Secret, proof};
use crate::session::{ChannelId, Context, Output, Port};

/// Something that a receiver said.
#[derive(Debug)]
pub enum Heard {
    /// It takes a stream's media at this port of its own.
    Opened {
        /// Which stream.
        stream: usize,
        /// The even port.
        port: u16,
    },
    /// The first packet of a stream arrived.
    First {
        /// Which stream.
        stream: usize,
        /// When, by this machine's clock: wrong by at most half of a round trip.
        at: Time,
    },
    /// How a stream stands: what was counted, and when its first and last packets came.
    Seen {
        /// When, by this machine's clock.
        arrivals: Option<(Time, Time)>,
        /// What it said.
        state: StreamState,
    },
    /// The sender of a stream has said that it ended.
    Bye {
        /// Which stream.
        stream: usize,
        /// When, by this machine's clock.
        at: Time,
    },
    /// All was counted, and the ports are closed.
    Closed,
}

/// A client's connection to its receiver.
#[derive(Debug)]
pub struct Link {
    channel: ChannelId,
    secret: Secret,
    /// The receiver as it was reached.
    reached: Option<SocketAddr>,
    lines: Lines,
    /// What is to be asked when it may be.
    waiting: Vec<Asked>,
    proved: bool,
    /// When ports were asked for, and the shortest time until they were there.
    asked: Option<Time>,
    round_trip: Option<Duration>,
    /// Whether the last was said by either side.
    pub(crate) closing: bool,
    pub(crate) closed: bool,
}

impl Link {
    /// Over that channel, which is being opened.
    pub fn new(channel: ChannelId, secret: Secret) -> Link {
        Link {
            channel,
            secret,
            reached: None,
            lines: Lines::default(),
            waiting: Vec::new(),
            proved: false,
            asked: None,
            round_trip: None,
            closing: false,
            closed: false,
        }
    }

    /// Its channel.
    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// The channel stands, to that address.
    pub fn opened(&mut self, remote: Option<SocketAddr>) {
        self.reached = remote;
    }

    /// The receiver as it was reached.
    pub fn reached(&self) -> Option<SocketAddr> {
        self.reached
    }

    /// How long the receiver takes to answer, at the least.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Asks something, as soon as the receiver listens.
    pub fn ask(&mut self, cx: &mut Context<'_>, asked: Asked) {
        match self.proved {
            true => self.send(cx, &asked),
            false => self.waiting.push(asked),
        }
    }

    fn send(&mut self, cx: &mut Context<'_>, asked: &Asked) {
        if matches!(asked, Asked::Open(_)) {
            self.asked = Some(cx.now);
        }
        cx.out.push_back(Output::Send {
            channel: self.channel,
            port: Port::Media,
            bytes: line(asked),
        });
    }

    /// Takes in what came, and hands on what was said.
    ///
    /// # Errors
    /// It refuses, or is none: why.
    pub fn bytes(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        at: Time,
    ) -> Result<Vec<Heard>, String> {
        let mut said: Vec<Result<Said, serde_json::Error>> = Vec::new();
        let mut lines = std::mem::take(&mut self.lines);
        let fed = lines.feed(bytes, LINE_MAX, |text| {
            said.push(serde_json::from_slice(text))
        });
        self.lines = lines;
        let mut heard = Vec::new();
        for said in said {
            let said = said.map_err(|error| format!("it is no receiver: {error}"))?;
            self.take(cx, said, at, &mut heard)?;
        }
        match fed {
            Ok(()) => Ok(heard),
            Err(_) => Err("it is no receiver: a line is too long".to_owned()),
        }
    }

    fn take(
        &mut self,
        cx: &mut Context<'_>,
        said: Said,
        at: Time,
        heard: &mut Vec<Heard>,
    ) -> Result<(), String> {
        match said {
            Said::Hello { version, challenge } => {
                if self.proved {
                    return Err("it is no receiver: it begins twice".to_owned());
                }
                if version != VERSION {
                    return Err(format!(
                        "it speaks version {version}, and this program {VERSION}: start the same streamgauge on both machines"
                    ));
                }
                let proof = proof(&self.secret, &challenge);
                self.send(cx, &Asked::Proof { proof });
                self.proved = true;
                for asked in std::mem::take(&mut self.waiting) {
                    self.send(cx, &asked);
                }
            }
            Said::Refused { why } => return Err(format!("it refuses: {why}")),
            Said::Opened {
                stream,
                address,
                port,
            } => {
                // Else it could have media sent to somebody who knows nothing of it.
                if let Some(reached) = self.reached
                    && reached.ip() != address
                {
                    return Err(format!(
                        "it says that its address is {address}, and was reached at {}: media is sent to no address but the \
                         one that agreed to it",
                        reached.ip()
                    ));
                }
                if port == 0 || port % 2 == 1 {
                    return Err(format!("it names port {port}"));
                }
                if let Some(asked) = self.asked {
                    let took = at.since(asked);
                    self.round_trip = Some(self.round_trip.map_or(took, |least| least.min(took)));
                }
                let stream = usize::from(stream);
                heard.push(Heard::Opened { stream, port });
            }
            Said::First { stream, age } => heard.push(Heard::First {
                stream: usize::from(stream),
                at: self.when(at, age),
            }),
            Said::Seen(state) => heard.push(self.seen(at, state)),
            Said::Bye { stream, age } => heard.push(Heard::Bye {
                stream: usize::from(stream),
                at: self.when(at, age),
            }),
            Said::Closed { streams } => {
                heard.extend(streams.into_iter().map(|state| self.seen(at, state)));
                self.closed = true;
                heard.push(Heard::Closed);
            }
        }
        Ok(())
    }

    fn seen(&self, at: Time, state: StreamState) -> Heard {
        let arrivals = state
            .ages
            .map(|(first, last)| (self.when(at, first), self.when(at, last)));
        Heard::Seen { arrivals, state }
    }

    /// When that was, by this machine's clock, which was so long ago when it was said: it took half
    /// of a round trip to come here.
    fn when(&self, heard: Time, age: u64) -> Time {
        let way = self.round_trip.unwrap_or_default() / 2;
        let before = Duration::from_nanos(age).saturating_add(way);
        Time::from_nanos(
            heard
                .as_nanos()
                .saturating_sub(u64::try_from(before.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}
