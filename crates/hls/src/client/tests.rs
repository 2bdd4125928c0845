//! Tests of the player with a scripted server, in virtual time.

use std::collections::VecDeque;

use measure::units::TimeSpan;
use measure::{ArrivalRun, CounterId, HistogramId, Recorder};

use super::*;
use crate::PROTOCOL;
use crate::config::{LowLatency, VariantChoice};
use session::{AckDelay, ChannelError, Flows, Judgement, Outcome, Sinks};

mod encrypted;
mod failover;
mod failover_of_parts;
mod hostile;
mod live;
mod low_latency;
mod odd;
mod open_ranges;
mod refused;
mod variants;
mod vod;

const WALL_CLOCK: Duration = Duration::from_secs(1_700_000_000);

/// An answer of the scripted server.
#[derive(Clone)]
struct Answer {
    /// Status line without the version, and header fields.
    head: String,
    body: Vec<u8>,
    /// Time from the request to the last byte of the body. The head arrives after half of it.
    takes: Duration,
    /// Offsets at which the body is cut: its pieces arrive one by one in the second half of the
    /// time.
    cuts: Vec<usize>,
    /// Arrival of each piece, from the request on; the head arrives with the first. Default:
    /// evenly.
    arrivals: Vec<Duration>,
    /// True if the pieces are read together, with the arrival time of each.
    is_read_at_end: bool,
    /// True if the connection is closed after it.
    closes: bool,
    /// True if the head states the length of the body.
    has_length: bool,
    /// Bytes that follow at once and belong to no response.
    further: Vec<u8>,
}

impl Answer {
    fn new(head: &str, body: impl Into<Vec<u8>>) -> Answer {
        Answer {
            head: head.to_owned(),
            body: body.into(),
            takes: Duration::from_millis(20),
            cuts: Vec::new(),
            arrivals: Vec::new(),
            is_read_at_end: false,
            closes: false,
            has_length: true,
            further: Vec::new(),
        }
    }

    fn ok(body: impl Into<Vec<u8>>) -> Answer {
        Answer::new("200 OK", body)
    }

    fn in_time(self, milliseconds: u64) -> Answer {
        let takes = Duration::from_millis(milliseconds);
        Answer { takes, ..self }
    }

    fn head_bytes(&self) -> Vec<u8> {
        let length = match self.has_length {
            true => format!("Content-Length: {}\r\n", self.body.len()),
            false => String::new(),
        };
        format!("HTTP/1.1 {}\r\n{length}\r\n", self.head).into_bytes()
    }
}

enum Event {
    Opened(ChannelId),
    Bytes(ChannelId, Vec<u8>, Vec<ArrivalRun>),
    Closed(ChannelId, CloseReason),
}

/// A request as the server saw it.
struct Asked {
    at: Time,
    path: String,
    head: String,
    channel: ChannelId,
}

/// A player and its server.
struct World<S> {
    client: Client,
    server: S,
    now: Time,
    recorder: Recorder,
    events: Vec<(Time, Event)>,
    open: Vec<ChannelId>,
    /// True if the server gets `path#bytes=0-9` of a request for a range.
    serves_ranges: bool,
    /// Connections that are read as soon as something arrives.
    prompt: Vec<ChannelId>,
    /// Bytes that are to be read together.
    expected: Vec<(ChannelId, u64)>,
    asked: Vec<Asked>,
    notes: Vec<&'static str>,
    note_texts: Vec<String>,
    service: Option<session::Service>,
    outcome: Option<Outcome>,
}

fn config() -> ClientConfig {
    ClientConfig::default()
}

fn at(milliseconds: u64) -> Time {
    Time::ZERO + Duration::from_millis(milliseconds)
}

impl<S: FnMut(&str, Time) -> Option<Answer>> World<S> {
    /// A player of `http://10.0.0.1/a/index.m3u8`. `server` gets path and time of each request; it
    /// does not answer with `None`.
    fn new(config: ClientConfig, server: S) -> World<S> {
        let url = Url::parse("http://10.0.0.1/a/index.m3u8").expect("a URL");
        let mut world = World {
            client: Client::new(Arc::new(config), url, Some(WALL_CLOCK)),
            server,
            now: Time::ZERO,
            recorder: Recorder::new(PROTOCOL.catalogue),
            events: Vec::new(),
            open: Vec::new(),
            serves_ranges: false,
            prompt: Vec::new(),
            expected: Vec::new(),
            asked: Vec::new(),
            notes: Vec::new(),
            note_texts: Vec::new(),
            service: None,
            outcome: None,
        };
        world.input(Input::Start { due: Time::ZERO });
        world
    }

    fn input(&mut self, input: Input<'_>) {
        let mut out = VecDeque::new();
        let mut cx = Context {
            now: self.now,
            recorder: &mut self.recorder,
            sinks: &mut Sinks::default(),
            flows: &mut Flows::default(),
            out: &mut out,
            outbox: &mut session::Outbox::default(),
        };
        self.client.handle(&mut cx, input);
        for output in out {
            match output {
                Output::Open { channel, .. } => {
                    assert!(!self.open.contains(&channel));
                    self.open.push(channel);
                    self.after(1, Event::Opened(channel));
                }
                Output::Acknowledge { channel, delay } => {
                    assert_eq!(delay, AckDelay::AtOnce);
                    self.prompt.push(channel);
                }
                Output::Send { channel, bytes, .. } => {
                    assert!(self.prompt.contains(&channel), "it is read at once");
                    self.answer(channel, bytes);
                }
                Output::Close { channel } => {
                    assert!(self.open.contains(&channel), "it closes what is open");
                    self.forget(channel);
                }
                Output::Note(note) => {
                    self.notes.push(note.kind);
                    self.note_texts.push(note.text);
                }
                Output::Expect { channel, bytes } => self.expected.push((channel, bytes)),
                Output::Viewed(service) => self.service = Some(service),
                Output::Ended(outcome) => self.outcome = Some(outcome),
                Output::Playing { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn after(&mut self, milliseconds: u64, event: Event) {
        let due = self.now + Duration::from_millis(milliseconds);
        self.events.push((due, event));
    }

    fn forget(&mut self, channel: ChannelId) {
        self.open.retain(|open| *open != channel);
        self.events.retain(|(_, event)| match event {
            Event::Opened(of) | Event::Bytes(of, ..) | Event::Closed(of, _) => *of != channel,
        });
    }

    fn answer(&mut self, channel: ChannelId, request: Vec<u8>) {
        let head = String::from_utf8(request).expect("requests are text");
        let path = head.split(' ').nth(1).expect("a target").to_owned();
        let range = head.split("Range: ").nth(1);
        let range = range.and_then(|rest| rest.split("\r\n").next());
        let range = range.filter(|_| self.serves_ranges);
        let resource = range.map_or(path.clone(), |range| format!("{path}#{range}"));
        let answer = (self.server)(&resource, self.now);
        self.asked.push(Asked {
            at: self.now,
            path,
            head,
            channel,
        });
        let Some(answer) = answer else { return };
        let head_after = answer.arrivals.first().copied();
        let head_after = head_after.unwrap_or(answer.takes / 2);
        let (half, whole) = (self.now + head_after, self.now + answer.takes);
        let head = answer.head_bytes();
        self.events
            .push((half, Event::Bytes(channel, head, Vec::new())));
        let body = [answer.body, answer.further].concat();
        let count = answer.cuts.len() as u32 + 1;
        let ends = answer.cuts.into_iter().chain([body.len()]);
        let runs: Vec<ArrivalRun> = ends
            .zip(1..)
            .map(|(end, number)| ArrivalRun {
                end,
                at: match answer.arrivals.get(number as usize - 1) {
                    Some(after) => self.now + *after,
                    None => half + (whole.since(half)) * number / count,
                },
                exact: true,
            })
            .collect();
        if answer.is_read_at_end {
            self.events.push((whole, Event::Bytes(channel, body, runs)));
        } else {
            let mut begin = 0;
            for run in runs {
                let piece = body[begin..run.end].to_vec();
                self.events
                    .push((run.at, Event::Bytes(channel, piece, Vec::new())));
                begin = run.end;
            }
        }
        if answer.closes {
            self.events
                .push((whole, Event::Closed(channel, CloseReason::End)));
        }
    }

    /// Runs until `until`, or until the client ends.
    fn run(&mut self, until: Time) {
        let mut idle = 0;
        while self.outcome.is_none() {
            let next = (0..self.events.len()).min_by_key(|&at| self.events[at].0);
            let event_at = next.map(|at| self.events[at].0);
            let deadline = self.client.deadline();
            let Some(due) = event_at.into_iter().chain(deadline).min() else {
                break;
            };
            if due > until {
                break;
            }
            assert!(due >= self.now, "no deadline is in the past");
            // At most a deadline for each thing that it may do at a time.
            idle = match due == self.now && event_at != Some(due) {
                true => idle + 1,
                false => 0,
            };
            assert!(idle < 5, "deadlines that change nothing");
            self.now = due;
            match next.filter(|_| event_at == Some(due)) {
                None => self.input(Input::Deadline),
                Some(at) => match self.events.remove(at).1 {
                    Event::Opened(channel) => self.input(Input::Opened {
                        channel,
                        local: "10.0.0.2:40000".parse().expect("an address"),
                        remote: None,
                    }),
                    Event::Bytes(channel, bytes, runs) => self.input(Input::Bytes {
                        channel,
                        bytes: &bytes,
                        at: due,
                        runs: &runs,
                    }),
                    Event::Closed(channel, reason) => {
                        self.open.retain(|open| *open != channel);
                        self.input(Input::Closed { channel, reason });
                    }
                },
            }
        }
        if self.outcome.is_none() {
            self.now = until;
        }
    }

    fn stop(&mut self) -> Outcome {
        self.input(Input::Stop { until: self.now });
        self.outcome.clone().expect("it has ended")
    }

    fn failed(&mut self) -> (&'static str, String) {
        match self.outcome.take() {
            Some(Outcome::Failed(failure)) => (failure.reason, failure.detail),
            other => panic!("{other:?} is no failure"),
        }
    }

    fn count(&self, counter: CounterId) -> u64 {
        self.recorder.counter(counter)
    }

    /// Number and maximum in milliseconds of what was recorded.
    fn recorded(&self, histogram: HistogramId) -> (u64, u64) {
        let recorded = self.recorder.histogram(histogram);
        recorded.map_or((0, 0), |own| {
            // Values have two digits at least.
            let max = own.max().unwrap_or(0) as f64 / 1e6;
            (own.count(), max.round() as u64)
        })
    }

    fn paths(&self) -> Vec<&str> {
        self.asked.iter().map(|asked| asked.path.as_str()).collect()
    }
}

/// A playlist with `lines` after its head.
fn playlist(head: &str, lines: &str) -> Answer {
    Answer::ok(format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{head}\n{lines}"))
}
