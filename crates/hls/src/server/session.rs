//! Session of one connection: requests, one after the other, and their responses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use measure::Time;

use super::body::BodyFlow;
use super::faults::{AnswerFault, is_nth};
use super::media::Resource;
use super::playlists;
use super::request::{Reload, Requested};
use super::{ServedConnection, Shared};
use crate::playlist::Place;
use kit::http1::{FieldRules, HeadReader, Headers, RequestLine, Version, lines, write_head};
use session::{
    ChannelId, CloseReason, Context, Failure, FlowId, Input, Outcome, Output, Port, Record, Session,
};

const CONTROL: ChannelId = ChannelId(0);

/// Maximum length of a request head in bytes.
const HEAD_MAX: usize = 8 << 10;
/// Maximum number of header fields of a request.
const FIELDS_MAX: usize = 64;
/// Maximum number of bytes of further requests that arrive before a response is complete.
const UNREAD_MAX: usize = 64 << 10;
/// Time without a request after which a connection is closed.
const IDLE: Duration = Duration::from_secs(60);
/// Maximum number of requests that are answered at once. No player sends more than one.
const TOGETHER_REQUESTS_MAX: u32 = 100;
/// Maximum length of a body that is sent together with its head.
const TOGETHER_MAX: usize = 32 << 10;
/// Target durations for which a request may wait (rfc8216bis, 6.2.5.2).
const WAIT_TARGETS: u32 = 3;
/// Segments after the end of a live playlist that a request may wait for (rfc8216bis, 6.2.5.2).
const AHEAD_MAX: u64 = 2;

/// State of a session.
#[derive(Debug)]
enum State {
    /// Waits for a request until this time.
    Idle {
        until: Time,
    },
    /// Answers this request at this time.
    Waiting {
        answer: Answer,
        at: Time,
    },
    /// Sends a body.
    Sending {
        flow: FlowId,
        what: Sent,
    },
    /// Never answers again.
    Silent,
    Ended,
}

/// A response that is due later.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Playlist {
        variant: usize,
        is_above: bool,
        reload: Reload,
    },
    Media {
        resource: Resource,
        place: Place,
        /// True if the request came before the part was complete.
        was_hinted: bool,
    },
    /// The part that a wrong hint names does not exist.
    Wrong,
    /// Too long a wait.
    Unavailable,
    /// The segment is missing on purpose.
    Missing,
}

/// Kind of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Playlist,
    Initialization,
    Segment {
        is_discontinuous: bool,
    },
    Part {
        is_discontinuous: bool,
        was_hinted: bool,
    },
}

#[derive(Debug)]
pub(super) struct ServerSession {
    shared: Arc<Shared>,
    state: State,
    reader: HeadReader,
    /// Bytes that arrived before the response was complete.
    unread: Vec<u8>,
    /// Arrival of the last bytes.
    latest: Time,
    /// Arrival of the last bytes of the request that is being answered.
    arrived: Time,
    keeps_alive: bool,
    record: ServedConnection,
}

impl ServerSession {
    pub(super) fn new(shared: Arc<Shared>, number: u64) -> ServerSession {
        ServerSession {
            shared,
            state: State::Silent,
            reader: HeadReader::new(HEAD_MAX),
            unread: Vec::new(),
            latest: Time::ZERO,
            arrived: Time::ZERO,
            keeps_alive: true,
            record: ServedConnection {
                connection: number,
                ..ServedConnection::default()
            },
        }
    }

    fn handle_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) {
        if self.unread.len() + bytes.len() > UNREAD_MAX {
            return self.end(cx, failed("flooded", "too many requests before a response"));
        }
        self.unread.extend_from_slice(bytes);
    }

    /// Answers the requests that have arrived, as long as none waits.
    fn read_requests(&mut self, cx: &mut Context<'_>) {
        let mut count = 0;
        while let State::Idle { .. } = self.state {
            count += 1;
            if count > TOGETHER_REQUESTS_MAX {
                return self.end(cx, failed("flooded", "too many requests at once"));
            }
            let unread = std::mem::take(&mut self.unread);
            let mut rest = &unread[..];
            let head = self.reader.read(&mut rest);
            self.unread = rest.to_vec();
            match head {
                Ok(None) => return,
                Ok(Some(head)) => self.handle_request(cx, &head),
                Err(_) => {
                    self.keeps_alive = false;
                    self.refuse(cx, 431);
                }
            }
        }
    }

    fn handle_request(&mut self, cx: &mut Context<'_>, head: &[u8]) {
        self.record.requests += 1;
        self.arrived = self.latest;
        let mut all = lines(head);
        let line = all.next().and_then(RequestLine::parse);
        let headers = Headers::parse(all, FieldRules::Lenient, FIELDS_MAX);
        let (Some(line), Ok(headers)) = (line, headers) else {
            self.keeps_alive = false;
            return self.refuse(cx, 400);
        };
        self.keeps_alive = match line.version {
            Version::Http11 => !headers.contains_token("Connection", "close"),
            Version::Http10 => headers.contains_token("Connection", "keep-alive"),
        };
        match self.shared.config.faults.answer {
            Some(AnswerFault::Status(status)) => return self.refuse(cx, status),
            Some(AnswerFault::Html) => {
                let page = "<!DOCTYPE html>\n<title>Welcome</title>\n<p>It works.\n";
                let page = Bytes::from_static(page.as_bytes());
                return self.send_body(cx, "text/html", page, Sent::Playlist, None);
            }
            Some(AnswerFault::Redirect) => {
                let target = line.target.replace(|c: char| c.is_control(), "");
                let fields = [("Location", target.as_str()), ("Content-Length", "0")];
                self.send(cx, write_head("HTTP/1.1 302 Found", &fields));
                return self.response_ended(cx);
            }
            Some(AnswerFault::Silent) => {
                self.state = State::Silent;
                return;
            }
            None => {}
        }
        if line.method != "GET" {
            // The request may have a body, or the client may expect none.
            self.keeps_alive = false;
            return self.refuse(cx, 405);
        }
        match self.shared.find(line.target) {
            None => self.refuse(cx, 404),
            Some(requested) => self.handle_requested(cx, requested),
        }
    }

    fn handle_requested(&mut self, cx: &mut Context<'_>, requested: Requested) {
        let timeline = self.shared.timeline;
        match requested {
            Requested::Multivariant => {
                self.record.playlists += 1;
                let text = playlists::multivariant(&self.shared).into();
                self.send_body(cx, PLAYLIST_TYPE, text, Sent::Playlist, None);
            }
            Requested::Playlist {
                variant,
                is_above,
                reload,
            } => self.handle_playlist(cx, variant, is_above, reload),
            Requested::Initialization { variant } => {
                let video = self.shared.video(variant);
                let section = video.initialization().unwrap_or_default();
                let section = Bytes::copy_from_slice(section);
                self.send_body(cx, "video/mp4", section, Sent::Initialization, None);
            }
            Requested::Segment { variant, sequence } => {
                let place = Place { sequence, part: 0 };
                let resource = Resource::Segment { variant, sequence };
                let after = place.next_segment();
                self.handle_media(cx, resource, place, after);
            }
            Requested::Part { variant, place } => {
                let resource = Resource::Part { variant, place };
                let is_last = place.part + 1 == timeline.parts_of_segment();
                let after = match is_last {
                    true => place.next_segment(),
                    false => Place {
                        part: place.part + 1,
                        ..place
                    },
                };
                self.handle_media(cx, resource, place, after);
            }
            Requested::Wrong => {
                // As long as a part would take.
                let part = timeline.part.unwrap_or(timeline.segment);
                let at = cx.now + timeline.duration(&(0..part));
                let answer = Answer::Wrong;
                self.state = State::Waiting { answer, at };
            }
        }
    }

    fn handle_playlist(
        &mut self,
        cx: &mut Context<'_>,
        variant: usize,
        is_above: bool,
        reload: Reload,
    ) {
        let (shared, now) = (&self.shared, cx.now);
        let (end, is_over) = shared.end_at(now);
        let answer = Answer::Playlist {
            variant,
            is_above,
            reload,
        };
        let mut at = now;
        if let Some(sequence) = reload.sequence.filter(|_| !is_over) {
            if sequence > end.sequence + AHEAD_MAX {
                return self.refuse(cx, 400);
            }
            let wanted = match reload.part {
                None => Place { sequence, part: 0 }.next_segment(),
                // A part that the segment does not have is the first of the next one.
                Some(part) if part.saturating_add(1) >= shared.timeline.parts_of_segment() => {
                    let place = Place { sequence, part: 0 }.next_segment();
                    let first_of_next = part >= shared.timeline.parts_of_segment();
                    Place {
                        part: u32::from(first_of_next),
                        ..place
                    }
                }
                Some(part) => Place {
                    sequence,
                    part: part + 1,
                },
            };
            if !shared.config.faults.no_wait && end < wanted {
                at = shared
                    .config
                    .faults
                    .published_at(shared.timeline.complete_at(wanted));
            }
        }
        if at.since(now) > WAIT_TARGETS * shared.target() {
            let at = now + WAIT_TARGETS * shared.target();
            let answer = Answer::Unavailable;
            self.state = State::Waiting { answer, at };
            return;
        }
        self.state = State::Waiting { answer, at };
        self.answer_due(cx);
    }

    /// Handles the request for a segment or part at `place`, of which `after` is the end.
    fn handle_media(
        &mut self,
        cx: &mut Context<'_>,
        resource: Resource,
        place: Place,
        after: Place,
    ) {
        let (shared, now) = (&self.shared, cx.now);
        let (end, _) = shared.end_at(now);
        let is_far = !shared.config.is_recorded && place.sequence > end.sequence + AHEAD_MAX;
        if is_far || shared.timeline.end.is_some_and(|end| place.sequence >= end) {
            return self.refuse(cx, 404);
        }
        let complete_at = shared.timeline.complete_at(after);
        let was_hinted = complete_at > now;
        let is_next = matches!(resource, Resource::Part { .. })
            && place.sequence <= end.sequence + 1
            && !shared.config.faults.no_wait;
        let oldest = match shared.config.is_recorded {
            true => 0,
            // Segments stay for as long again as they were in the playlist.
            false => end.sequence.saturating_sub(2 * shared.config.window),
        };
        let exists = oldest <= place.sequence
            && !shared.is_gap(place.sequence)
            && (shared.config.is_recorded || !was_hinted || is_next);
        if !exists {
            return self.refuse(cx, 404);
        }
        let faults = &shared.config.faults;
        let mut at = match shared.config.is_recorded {
            true => now,
            false => complete_at.max(now),
        };
        if shared.is_hit(faults.missing, resource) {
            self.record.missing += 1;
            let answer = Answer::Missing;
            self.state = State::Waiting { answer, at };
            return self.answer_due(cx);
        }
        if let Some((nth, delay)) = faults.late
            && shared.is_hit(Some(nth), resource)
        {
            at += delay;
            self.record.late += 1;
        }
        let answer = Answer::Media {
            resource,
            place,
            was_hinted: was_hinted && !self.shared.config.is_recorded,
        };
        self.state = State::Waiting { answer, at };
        self.answer_due(cx);
    }

    /// Sends the response that is due.
    fn answer_due(&mut self, cx: &mut Context<'_>) {
        let State::Waiting { answer, at } = self.state else {
            return;
        };
        if at > cx.now {
            return;
        }
        // The response is no longer pending.
        self.state = State::Silent;
        match answer {
            Answer::Wrong => self.refuse(cx, 404),
            Answer::Unavailable => self.refuse(cx, 503),
            Answer::Missing => self.send_refusal(cx, 404),
            Answer::Playlist {
                variant,
                is_above,
                reload,
            } => {
                let (end, is_over) = self.shared.end_at(cx.now);
                let text = self.shared.get(Resource::Playlist {
                    variant,
                    end,
                    is_over,
                    is_above,
                    may_skip: reload.may_skip && !is_over,
                });
                self.record.playlists += 1;
                self.record.reloads += u64::from(reload.sequence.is_some());
                let is_delta = text.windows(11).any(|bytes| bytes == b"#EXT-X-SKIP");
                self.record.deltas += u64::from(is_delta);
                self.send_body(cx, PLAYLIST_TYPE, text, Sent::Playlist, None);
            }
            Answer::Media {
                resource,
                place,
                was_hinted,
            } => {
                let mut body = self.shared.get(resource);
                let faults = &self.shared.config.faults;
                if self.shared.is_hit(faults.damaged, resource) {
                    body = self.shared.damage(&body);
                    self.record.damaged += 1;
                }
                let is_misstated = self.shared.is_misstated(resource);
                self.record.misstated += u64::from(is_misstated);
                let slow = faults.slow;
                let slowly = slow.filter(|(nth, _)| self.shared.is_hit(Some(*nth), resource));
                self.record.slow += u64::from(slowly.is_some());
                let is_discontinuous =
                    is_nth(faults.discontinuity, place.sequence) && place.part == 0;
                let what = match resource {
                    Resource::Part { .. } => Sent::Part {
                        is_discontinuous,
                        was_hinted,
                    },
                    _ => Sent::Segment { is_discontinuous },
                };
                let kind = match self.shared.suffix() {
                    "ts" => "video/mp2t",
                    _ => "video/mp4",
                };
                self.send_body(cx, kind, body, what, slowly.map(|(_, time)| time));
            }
        }
    }

    fn send(&self, cx: &mut Context<'_>, bytes: Vec<u8>) {
        cx.out.push_back(Output::Send {
            channel: CONTROL,
            port: Port::Media,
            bytes,
        });
    }

    fn refuse(&mut self, cx: &mut Context<'_>, status: u16) {
        self.record.refused += 1;
        self.send_refusal(cx, status);
    }

    fn send_refusal(&mut self, cx: &mut Context<'_>, status: u16) {
        let reason = reason(status);
        let body = format!("{status} {reason}\n");
        let length = body.len().to_string();
        let fields = [
            ("Content-Type", "text/plain"),
            ("Content-Length", length.as_str()),
        ];
        let mut bytes = write_head(&format!("HTTP/1.1 {status} {reason}"), &fields);
        bytes.extend_from_slice(body.as_bytes());
        self.send(cx, bytes);
        self.response_ended(cx);
    }

    fn send_body(
        &mut self,
        cx: &mut Context<'_>,
        kind: &str,
        body: Bytes,
        what: Sent,
        slowly: Option<Duration>,
    ) {
        let length = body.len().to_string();
        let cached = match what {
            Sent::Playlist => "no-cache",
            _ => "max-age=60",
        };
        let fields = [
            ("Content-Type", kind),
            ("Content-Length", length.as_str()),
            ("Cache-Control", cached),
            ("Access-Control-Allow-Origin", "*"),
        ];
        let mut head = write_head("HTTP/1.1 200 OK", &fields);
        if body.len() <= TOGETHER_MAX && slowly.is_none() {
            head.extend_from_slice(&body);
            self.send(cx, head);
            self.count_sent(what, body.len() as u64, cx.now);
            return self.response_ended(cx);
        }
        self.send(cx, head);
        let flow = cx.flows.insert(BodyFlow::new(body, cx.now, slowly));
        cx.out.push_back(Output::StartFlow {
            flow,
            channel: CONTROL,
        });
        self.state = State::Sending { flow, what };
    }

    /// Counts a body that was sent to its end at `ended`.
    fn count_sent(&mut self, what: Sent, bytes: u64, ended: Time) {
        let took = ended.since(self.arrived).as_nanos() as u64;
        let record = &mut self.record;
        match what {
            Sent::Playlist => return,
            Sent::Initialization => record.initializations += 1,
            Sent::Segment { .. } | Sent::Part { .. } => record.media_nanos += took,
        }
        match what {
            Sent::Playlist | Sent::Initialization => {}
            Sent::Segment { is_discontinuous } => {
                record.segments += 1;
                record.discontinuities += u64::from(is_discontinuous);
            }
            Sent::Part {
                is_discontinuous,
                was_hinted,
            } => {
                record.parts += 1;
                record.discontinuities += u64::from(is_discontinuous);
                record.hinted += u64::from(was_hinted);
            }
        }
        record.bytes += bytes;
    }

    /// Ends the connection after a response, or waits for the next request.
    fn response_ended(&mut self, cx: &mut Context<'_>) {
        if !self.keeps_alive {
            return self.end(cx, Outcome::Completed);
        }
        self.state = State::Idle {
            until: cx.now + IDLE,
        };
    }

    fn body_ended(&mut self, cx: &mut Context<'_>) {
        let State::Sending { flow, what } = self.state else {
            return;
        };
        // From here on, nobody else removes the flow.
        self.state = State::Silent;
        let flow = cx.flows.remove_as::<BodyFlow>(flow);
        self.count_sent(what, flow.sent(), flow.ended());
        self.response_ended(cx);
    }

    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Ended => return,
            State::Sending { flow, what } => {
                cx.out.push_back(Output::StopFlow { flow });
                let sent = cx.flows.remove_as::<BodyFlow>(flow).sent();
                if what != Sent::Playlist {
                    self.record.bytes += sent;
                }
                self.record.unfinished += 1;
            }
            State::Waiting { .. } => self.record.unfinished += 1,
            State::Idle { .. } | State::Silent => {}
        }
        let record = std::mem::take(&mut self.record);
        cx.out.push_back(Output::Record(Record::new(record)));
        cx.out.push_back(Output::Close { channel: CONTROL });
        cx.out.push_back(Output::Ended(outcome));
    }
}

impl Session for ServerSession {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            Input::Start { .. } => {
                self.state = State::Idle {
                    until: cx.now + IDLE,
                };
            }
            Input::Opened { remote, .. } => {
                self.record.remote = remote.map(|remote| remote.to_string());
            }
            Input::Bytes { bytes, at, .. } => {
                self.latest = at;
                self.handle_bytes(cx, bytes);
            }
            Input::FlowEnded { .. } => self.body_ended(cx),
            Input::Deadline => match self.state {
                State::Idle { until } if until <= cx.now => self.end(cx, Outcome::Completed),
                _ => self.answer_due(cx),
            },
            Input::Closed { reason, .. } => {
                let outcome = match reason {
                    CloseReason::End | CloseReason::Reset => Outcome::Completed,
                    CloseReason::SendQueueFull => failed("stuck", "the client stopped reading"),
                    CloseReason::Tls(error) => failed("tls", &error.to_string()),
                };
                self.end(cx, outcome);
            }
            Input::Stop { .. } => self.end(cx, Outcome::Stopped),
            _ => {}
        }
        self.read_requests(cx);
    }

    fn deadline(&self) -> Option<Time> {
        match self.state {
            State::Idle { until } => Some(until),
            State::Waiting { at, .. } => Some(at),
            State::Sending { .. } | State::Silent | State::Ended => None,
        }
    }
}

/// Type of playlists (RFC 8216, 10).
const PLAYLIST_TYPE: &str = "application/vnd.apple.mpegurl";

/// Returns the usual reason phrase of a status (RFC 9110, 15).
fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Error",
    }
}

fn failed(reason: &'static str, detail: &str) -> Outcome {
    Outcome::Failed(Failure {
        reason,
        detail: detail.to_owned(),
    })
}
