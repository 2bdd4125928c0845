//! Reference relay's session of one connection.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use measure::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::faults::Answer;
use super::request::{Request, RequestReader, Unreadable, WantedGroup};
use super::{Across, RelayedClient, Shared};
use crate::media::rtp::header::Header;
use crate::session::{
    ChannelId, Closed, Context, Failure, Input, Open, Outcome, Output, Port, Record, Session,
};
use mediagen::ts::packet::{NULL_PID, PACKET, SYNC};

const CONTROL: ChannelId = ChannelId(0);
/// Membership in the requested group.
const GROUP: ChannelId = ChannelId(1);
/// Faults: membership in the previously requested group, and a pair of sockets that remains open.
const OLD_GROUP: ChannelId = ChannelId(2);
const KEPT_FILES: ChannelId = ChannelId(3);
/// Maximum number of groups, and of socket pairs, that remain on purpose.
const KEPT_MAX: usize = 1000;
/// Time limit for the request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Datagrams of this length may have been truncated ([`Open::Multicast`]).
const DATAGRAM_MAX: usize = 2048;
/// Maximum number of bytes buffered during a pause. Further datagrams are dropped.
const HELD_MAX: usize = 8 << 20;
/// An endless head grows by lines of this length, at this interval, up to this length.
const ENDLESS_LINE: usize = 8 << 10;
const ENDLESS_EVERY: Duration = Duration::from_millis(10);
const ENDLESS_MAX: usize = 16 << 20;

/// State of a session.
#[derive(Debug)]
enum State {
    Asking {
        reader: RequestReader,
        until: Time,
    },
    /// Waits for the membership.
    Joining {
        request: Request,
        wanted: WantedGroup,
    },
    /// Relays datagrams of the group.
    Relaying(Body),
    /// Sends an endless response head.
    Endless {
        next: Time,
        sent: usize,
    },
    /// Waits for the client to leave.
    Idle,
    /// The client has left, and its group or a pair of sockets remains on purpose.
    Kept,
    Over,
}

/// State of a relayed body.
#[derive(Debug)]
struct Body {
    group: SocketAddr,
    rtp: bool,
    chunked: bool,
    /// Datagrams before this time are dropped.
    begins: Time,
    /// Time when the next pause begins, or the current one ends.
    turns: Option<Time>,
    stalls: bool,
    held: VecDeque<Vec<u8>>,
    held_bytes: usize,
    /// The last datagram.
    last: Vec<u8>,
}

/// Counts a client towards the maximum until it is dropped.
#[derive(Debug)]
struct Seat(Arc<Shared>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.served.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Seat {
    /// Takes a seat, or returns `None` if none is free.
    fn take(shared: &Arc<Shared>) -> Option<Seat> {
        let most = shared.config.max_clients.unwrap_or(u32::MAX);
        let taken = shared
            .served
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |served| {
                (served < most).then_some(served + 1)
            });
        taken.is_ok().then(|| Seat(shared.clone()))
    }
}

/// Session of one connection with a client.
#[derive(Debug)]
pub(super) struct RelaySession {
    shared: Arc<Shared>,
    rng: Pcg64,
    state: State,
    seat: Option<Seat>,
    /// Previously requested group, and number of its datagrams still to be relayed: a fault.
    old: Option<(WantedGroup, u64)>,
    account: RelayedClient,
}

impl RelaySession {
    pub(super) fn new(shared: Arc<Shared>, number: u64) -> RelaySession {
        let seed = shared.config.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        RelaySession {
            shared,
            rng: Pcg64::seed_from_u64(seed),
            state: State::Idle,
            seat: None,
            old: None,
            account: RelayedClient {
                connection: number,
                ..RelayedClient::default()
            },
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        let drawn = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        drawn < probability
    }

    fn send(cx: &mut Context<'_>, bytes: Vec<u8>) {
        cx.out.push_back(Output::Send {
            channel: CONTROL,
            port: Port::Media,
            bytes,
        });
    }

    /// Sends a response head. `fields` consists of complete lines.
    fn head(&mut self, cx: &mut Context<'_>, status: u16, fields: &str) {
        self.account.status = Some(status);
        let reason = reason(status);
        let head = format!("HTTP/1.1 {status} {reason}\r\n{fields}Connection: close\r\n\r\n");
        Self::send(cx, head.into_bytes());
    }

    /// Answers with a page, and ends the session.
    fn page(&mut self, cx: &mut Context<'_>, status: u16) {
        let body = format!("{status} {}\n", reason(status));
        let fields = format!(
            "Content-Type: text/plain\r\nContent-Length: {}\r\n",
            body.len()
        );
        self.head(cx, status, &fields);
        self.account.bytes += body.len() as u64;
        Self::send(cx, body.into_bytes());
        self.end(cx, Outcome::Completed);
    }

    /// Sends a body that ends with the connection, and ends the session.
    fn body(&mut self, cx: &mut Context<'_>, body: Vec<u8>) {
        self.account.bytes += body.len() as u64;
        Self::send(cx, body);
        self.end(cx, Outcome::Completed);
    }

    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if matches!(self.state, State::Over) {
            return;
        }
        let kept = std::mem::replace(&mut self.state, State::Over);
        if !matches!(kept, State::Kept) {
            self.part(cx);
        }
        cx.out.push_back(Output::Ended(outcome));
    }

    /// Reports on the client, and closes its connection.
    fn part(&mut self, cx: &mut Context<'_>) {
        self.seat = None;
        let account = std::mem::take(&mut self.account);
        cx.out.push_back(Output::Record(Record::new(account)));
        cx.out.push_back(Output::Close { channel: CONTROL });
    }

    fn across(&self) -> MutexGuard<'_, Across> {
        // The shared state is valid even after a panic.
        let across = self.shared.across.lock();
        across.unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the group or a pair of sockets of a client that has left, if a fault asks for it.
    /// Returns false if nothing is kept.
    fn keep(&mut self, cx: &mut Context<'_>) -> bool {
        let State::Relaying(body) = &self.state else {
            return false;
        };
        let (group, faults) = (body.group, &self.shared.config.faults);
        let mut across = self.across();
        let keeps_group = faults.keep_groups
            && across.kept_groups.len() < KEPT_MAX
            && across.kept_groups.insert(group);
        let keeps_files = faults.keep_files && across.kept_files < KEPT_MAX;
        across.kept_files += usize::from(keeps_files);
        drop(across);
        if !keeps_group && !keeps_files {
            return false;
        }
        if !keeps_group {
            cx.out.push_back(Output::Close { channel: GROUP });
        }
        if keeps_files {
            cx.out.push_back(Output::Open {
                channel: KEPT_FILES,
                open: Open::UdpPair {
                    local: Ipv4Addr::LOCALHOST.into(),
                    sink: None,
                    shared: false,
                },
            });
        }
        self.close_old(cx);
        self.part(cx);
        self.state = State::Kept;
        true
    }

    fn close_old(&mut self, cx: &mut Context<'_>) {
        if self.old.take().is_some() {
            cx.out.push_back(Output::Close { channel: OLD_GROUP });
        }
    }

    fn asked(&mut self, cx: &mut Context<'_>, request: Request) {
        self.account.target = Some(request.target.clone());
        if let Some(answer) = self.shared.config.faults.answer {
            return self.answer_wrongly(cx, answer, &request);
        }
        if !request.is_get {
            return self.page(cx, 405);
        }
        let Some(wanted) = WantedGroup::parse(&request.target) else {
            return self.page(cx, 404);
        };
        let Some(seat) = Seat::take(&self.shared) else {
            return self.page(cx, 503);
        };
        self.seat = Some(seat);
        self.account.group = Some(wanted.group.ip());
        let before = self.across().last.replace(wanted);
        let old = self.shared.config.faults.old_channel;
        self.old = before
            .filter(|before| old > 0 && before.group != wanted.group)
            .map(|before| (before, old));
        self.join(cx, GROUP, wanted);
        self.state = State::Joining { request, wanted };
    }

    fn join(&self, cx: &mut Context<'_>, channel: ChannelId, wanted: WantedGroup) {
        let (group, port) = (wanted.group.ip(), wanted.group.port());
        cx.out.push_back(Output::Open {
            channel,
            open: Open::Multicast {
                group,
                port,
                // RTCP is not used. This port is joined as well, but not read.
                control: port.checked_add(1).unwrap_or(port - 1),
                sources: Vec::new(),
                interface: self.shared.config.interface.clone(),
                ttl: 1,
                sink: None,
            },
        });
    }

    /// Accepts datagrams from any sender.
    fn take_from_anybody(cx: &mut Context<'_>, channel: ChannelId, group: SocketAddr) {
        let any: IpAddr = match group {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        cx.out.push_back(Output::Peer {
            channel,
            media: SocketAddr::new(any, 0),
            control: SocketAddr::new(any, 0),
        });
    }

    fn answer_wrongly(&mut self, cx: &mut Context<'_>, answer: Answer, request: &Request) {
        const TYPE: &str = "Content-Type: video/mp2t\r\n";
        match answer {
            Answer::Status(status) => self.page(cx, status),
            Answer::Html => {
                self.head(cx, 200, "Content-Type: text/html\r\n");
                let page = "<!DOCTYPE html>\n<title>Welcome</title>\n<p>It works.\n";
                self.body(cx, page.repeat(100).into_bytes());
            }
            Answer::Gzip => {
                self.head(cx, 200, &format!("{TYPE}Content-Encoding: gzip\r\n"));
                let mut body = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
                body.extend((0..5000).map(|_| self.rng.next_u64() as u8));
                self.body(cx, body);
            }
            Answer::EndlessHead => {
                self.account.status = Some(200);
                Self::send(cx, b"HTTP/1.1 200 OK\r\n".to_vec());
                self.state = State::Endless {
                    next: cx.now,
                    sent: 0,
                };
            }
            Answer::BadChunks => {
                self.head(cx, 200, &format!("{TYPE}Transfer-Encoding: chunked\r\n"));
                // The chunk states 188 bytes, but 1880 follow.
                let mut body = b"bc\r\n".to_vec();
                for _ in 0..10 {
                    body.extend(null_packet());
                }
                body.extend(b"\r\n");
                self.body(cx, body);
            }
            Answer::Redirect => {
                // Unchanged, except for characters that a head cannot contain.
                let place = request.target.replace(|c: char| c.is_control(), "");
                self.head(
                    cx,
                    302,
                    &format!("Location: {place}\r\nContent-Length: 0\r\n"),
                );
                self.end(cx, Outcome::Completed);
            }
            Answer::Silent => {
                self.head(cx, 200, TYPE);
                self.state = State::Idle;
            }
            Answer::Mute => self.state = State::Idle,
        }
    }

    fn joined(&mut self, cx: &mut Context<'_>) {
        let State::Joining { request, wanted } = &self.state else {
            return;
        };
        let chunked = self.shared.config.chunked && request.takes_chunks;
        let WantedGroup { group, rtp } = *wanted;
        Self::take_from_anybody(cx, GROUP, group);
        if let Some((old, _)) = self.old {
            self.join(cx, OLD_GROUP, old);
        }
        let framing = match chunked {
            true => "Transfer-Encoding: chunked\r\n",
            false => "",
        };
        self.head(cx, 200, &format!("Content-Type: video/mp2t\r\n{framing}"));
        let faults = &self.shared.config.faults;
        let begins = cx.now + faults.slow_start;
        self.state = State::Relaying(Body {
            group,
            rtp,
            chunked,
            begins,
            turns: faults.stall.map(|(every, _)| begins + every),
            stalls: false,
            held: VecDeque::new(),
            held_bytes: 0,
            last: Vec::new(),
        });
    }

    /// Handles a datagram of the previously requested group.
    fn old_datagram(&mut self, cx: &mut Context<'_>, datagram: &[u8]) {
        let Some((old, left)) = &mut self.old else {
            return;
        };
        let Some(payload) = payload(datagram, old.rtp) else {
            return;
        };
        *left -= 1;
        let is_last = *left == 0;
        self.account.old_channel += 1;
        self.pass_on(cx, payload.to_vec());
        if is_last {
            self.close_old(cx);
        }
    }

    fn datagram(&mut self, cx: &mut Context<'_>, datagram: &[u8]) {
        let State::Relaying(body) = &self.state else {
            return;
        };
        self.account.datagrams += 1;
        let Some(payload) = payload(datagram, body.rtp) else {
            self.account.unusable += 1;
            return;
        };
        let (begins, faults) = (body.begins, &self.shared.config.faults);
        let (lose, replace, duplicate, truncate) = (
            faults.lose,
            faults.replace,
            faults.duplicate,
            faults.truncate,
        );
        if cx.now < begins || self.old.is_some() || self.chance(lose) {
            self.account.left_out += 1;
            return;
        }
        if self.chance(replace) {
            self.account.left_out += 1;
            let State::Relaying(body) = &self.state else {
                return;
            };
            if !body.last.is_empty() {
                let again = body.last.clone();
                self.account.sent_twice += 1;
                self.pass_on(cx, again);
            }
            return;
        }
        let mut bytes = payload.to_vec();
        if bytes.len() > 1 && self.chance(truncate) {
            self.account.cut += 1;
            bytes.truncate(1 + (self.rng.next_u64() % (bytes.len() as u64 - 1)) as usize);
        }
        self.account.passed_on += 1;
        if self.chance(duplicate) {
            self.account.sent_twice += 1;
            self.pass_on(cx, bytes.clone());
        }
        if replace > 0.0
            && let State::Relaying(body) = &mut self.state
        {
            body.last.clone_from(&bytes);
        }
        self.pass_on(cx, bytes);
    }

    /// Sends bytes of the body, or buffers them during a pause.
    fn pass_on(&mut self, cx: &mut Context<'_>, bytes: Vec<u8>) {
        let State::Relaying(body) = &mut self.state else {
            return;
        };
        if !body.stalls {
            self.account.bytes += bytes.len() as u64;
            Self::send(cx, framed(bytes, body.chunked));
        } else if body.held_bytes + bytes.len() <= HELD_MAX {
            body.held_bytes += bytes.len();
            body.held.push_back(bytes);
        } else {
            self.account.left_out += 1;
        }
    }

    /// Begins or ends a pause, if that is due.
    fn turn(&mut self, cx: &mut Context<'_>) {
        let (State::Relaying(body), Some((every, length))) =
            (&mut self.state, self.shared.config.faults.stall)
        else {
            return;
        };
        let Some(turns) = body.turns.filter(|&turns| turns <= cx.now) else {
            return;
        };
        body.stalls = !body.stalls;
        if body.stalls {
            self.account.stalls += 1;
            body.turns = Some(turns + length);
            return;
        }
        body.turns = Some(turns + (every - length));
        body.held_bytes = 0;
        for bytes in std::mem::take(&mut body.held) {
            self.account.bytes += bytes.len() as u64;
            Self::send(cx, framed(bytes, body.chunked));
        }
    }

    fn deadline_came(&mut self, cx: &mut Context<'_>) {
        match &mut self.state {
            State::Asking { until, .. } if *until <= cx.now => self.page(cx, 408),
            State::Endless { next, sent } if *next <= cx.now => {
                *next = cx.now + ENDLESS_EVERY;
                *sent += ENDLESS_LINE;
                let through = *sent > ENDLESS_MAX;
                let filler = "x".repeat(ENDLESS_LINE - 12);
                Self::send(cx, format!("X-Filler: {filler}\r\n").into_bytes());
                if through {
                    self.end(cx, Outcome::Completed);
                }
            }
            _ => self.turn(cx),
        }
    }

    fn closed(&mut self, cx: &mut Context<'_>, channel: ChannelId, how: Closed) {
        if channel != CONTROL {
            return;
        }
        let outcome = match how {
            Closed::End | Closed::Reset => Outcome::Completed,
            Closed::Stuck => failed("stuck", "the client stopped reading"),
            Closed::Tls(error) => failed("tls", &error.to_string()),
        };
        if !self.keep(cx) {
            self.end(cx, outcome);
        }
    }
}

impl Session for RelaySession {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            Input::Start { .. } => {
                self.state = State::Asking {
                    reader: RequestReader::default(),
                    until: cx.now + PATIENCE,
                };
            }
            Input::Opened {
                channel: CONTROL,
                remote,
                ..
            } => self.account.remote = remote.map(|remote| remote.to_string()),
            Input::Opened { channel: GROUP, .. } => self.joined(cx),
            Input::Opened {
                channel: OLD_GROUP, ..
            } => {
                if let Some((old, _)) = self.old {
                    Self::take_from_anybody(cx, OLD_GROUP, old.group);
                }
            }
            Input::OpenFailed { channel: GROUP, .. } => self.page(cx, 502),
            Input::OpenFailed {
                channel: OLD_GROUP, ..
            } => self.old = None,
            Input::Bytes { bytes, .. } => {
                let State::Asking { reader, .. } = &mut self.state else {
                    return;
                };
                match reader.feed(bytes) {
                    None => {}
                    Some(Ok(request)) => self.asked(cx, request),
                    Some(Err(Unreadable::TooLong)) => self.page(cx, 431),
                    Some(Err(Unreadable::Malformed)) => self.page(cx, 400),
                }
            }
            Input::Datagram {
                channel: OLD_GROUP,
                port: Port::Media,
                bytes,
                ..
            } => self.old_datagram(cx, bytes),
            Input::Datagram {
                port: Port::Media,
                bytes,
                ..
            } => self.datagram(cx, bytes),
            Input::Closed { channel, how } => self.closed(cx, channel, how),
            Input::Deadline => self.deadline_came(cx),
            Input::Stop { .. } => {
                if let State::Relaying(Body { chunked: true, .. }) = self.state {
                    Self::send(cx, b"0\r\n\r\n".to_vec());
                }
                self.end(cx, Outcome::Stopped);
            }
            // Channels of faults, which may fail to open.
            Input::Opened { .. } | Input::OpenFailed { .. } => {}
            Input::Datagram { .. }
            | Input::Datagrams { .. }
            | Input::Media { .. }
            | Input::FlowEnded { .. }
            | Input::Told { .. }
            | Input::Exchanged { .. } => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        match &self.state {
            State::Asking { until, .. } => Some(*until),
            State::Endless { next, .. } => Some(*next),
            State::Relaying(body) => body.turns,
            State::Joining { .. } | State::Idle | State::Kept | State::Over => None,
        }
    }
}

/// Returns the transport stream of a datagram, or `None` if it has none.
fn payload(datagram: &[u8], rtp: bool) -> Option<&[u8]> {
    if datagram.is_empty() || datagram.len() >= DATAGRAM_MAX {
        return None;
    }
    if !rtp {
        return Some(datagram);
    }
    let header = Header::parse(datagram, datagram.len()).ok()?;
    let payload = datagram.get(header.payload_offset..)?;
    payload
        .get(..header.payload_length)
        .filter(|p| !p.is_empty())
}

/// Wraps bytes of a body in a chunk, if the body is chunked.
fn framed(bytes: Vec<u8>, chunked: bool) -> Vec<u8> {
    if !chunked {
        return bytes;
    }
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend(bytes);
    chunk.extend(b"\r\n");
    chunk
}

/// Builds a null packet of a transport stream.
fn null_packet() -> [u8; PACKET] {
    let [high, low] = NULL_PID.to_be_bytes();
    let mut packet = [0xff; PACKET];
    packet[..4].copy_from_slice(&[SYNC, high, low, 0x10]);
    packet
}

/// Returns the usual reason phrase of a status (RFC 9110, 15).
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        302 => "Found",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
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
