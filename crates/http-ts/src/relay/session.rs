//! Reference relay's session of one connection.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use measure::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::faults::AnswerFault;
use super::request::{Request, RequestError, RequestReader, RequestedGroup};
use super::{CrossSessionState, RelayedClient, Shared};
use kit::media::rtp::header::Header;
use kit::mediagen::ts::packet::{NULL_PID, PACKET_LEN, SYNC};
use session::{
    ChannelId, CloseReason, Context, Failure, Input, Open, Outcome, Output, Port, Record, Session,
};

const CONTROL: ChannelId = ChannelId(0);
/// Membership in the requested group.
const GROUP: ChannelId = ChannelId(1);
/// Faults: membership in the previously requested group, and a pair of sockets that remains open.
const OLD_GROUP: ChannelId = ChannelId(2);
const LEAKED_SOCKETS: ChannelId = ChannelId(3);
/// Maximum number of groups, and of socket pairs, that remain on purpose.
const LEAKED_MAX: usize = 1000;
/// Time limit for the request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Datagrams of this length may have been truncated ([`Open::Multicast`]).
const DATAGRAM_MAX: usize = 2048;
/// Maximum number of bytes buffered during a pause. Further datagrams are dropped.
const BUFFERED_BYTES_MAX: usize = 8 << 20;
/// An endless head grows by lines of this length, at this interval, up to this length.
const ENDLESS_LINE_BYTES: usize = 8 << 10;
const ENDLESS_INTERVAL: Duration = Duration::from_millis(10);
const ENDLESS_BYTES_MAX: usize = 16 << 20;

/// State of a session.
#[derive(Debug)]
enum State {
    AwaitingRequest {
        reader: RequestReader,
        until: Time,
    },
    /// Waits for the membership.
    Joining {
        request: Request,
        requested: RequestedGroup,
    },
    /// Relays datagrams of the group.
    Relaying(RelayedBody),
    /// Sends an endless response head.
    EndlessHead {
        next: Time,
        sent: usize,
    },
    /// Waits for the client to leave.
    Idle,
    /// The client has left, and its group or a pair of sockets remains on purpose.
    Leaked,
    Ended,
}

/// State of a relayed body.
#[derive(Debug)]
struct RelayedBody {
    group: SocketAddr,
    rtp: bool,
    chunked: bool,
    /// Datagrams before this time are dropped.
    starts_at: Time,
    /// Time when the next pause begins, or the current one ends.
    next_stall_change: Option<Time>,
    stalled: bool,
    buffered: VecDeque<Vec<u8>>,
    buffered_bytes: usize,
    last_datagram: Vec<u8>,
}

/// Counts a client towards the maximum until it is dropped.
#[derive(Debug)]
struct ClientSlot(Arc<Shared>);

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ClientSlot {
    /// Takes a slot, or returns `None` if none is free.
    fn take(shared: &Arc<Shared>) -> Option<ClientSlot> {
        let clients_max = shared.config.max_clients.unwrap_or(u32::MAX);
        let taken = shared
            .clients
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |served| {
                (served < clients_max).then_some(served + 1)
            });
        taken.is_ok().then(|| ClientSlot(shared.clone()))
    }
}

/// Session of one connection with a client.
#[derive(Debug)]
pub(super) struct RelaySession {
    shared: Arc<Shared>,
    rng: Pcg64,
    state: State,
    slot: Option<ClientSlot>,
    /// Previously requested group, and number of its datagrams still to be relayed: a fault.
    old_group: Option<(RequestedGroup, u64)>,
    record: RelayedClient,
}

impl RelaySession {
    pub(super) fn new(shared: Arc<Shared>, number: u64) -> RelaySession {
        let seed = shared.config.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        RelaySession {
            shared,
            rng: Pcg64::seed_from_u64(seed),
            state: State::Idle,
            slot: None,
            old_group: None,
            record: RelayedClient {
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
    fn send_head(&mut self, cx: &mut Context<'_>, status: u16, fields: &str) {
        self.record.status = Some(status);
        let reason = reason(status);
        let head = format!("HTTP/1.1 {status} {reason}\r\n{fields}Connection: close\r\n\r\n");
        Self::send(cx, head.into_bytes());
    }

    /// Answers with a page, and ends the session.
    fn send_page(&mut self, cx: &mut Context<'_>, status: u16) {
        let body = format!("{status} {}\n", reason(status));
        let fields = format!(
            "Content-Type: text/plain\r\nContent-Length: {}\r\n",
            body.len()
        );
        self.send_head(cx, status, &fields);
        self.send_body(cx, body.into_bytes());
    }

    /// Sends a body that ends with the connection, and ends the session.
    fn send_body(&mut self, cx: &mut Context<'_>, body: Vec<u8>) {
        self.record.bytes += body.len() as u64;
        Self::send(cx, body);
        self.end(cx, Outcome::Completed);
    }

    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if matches!(self.state, State::Ended) {
            return;
        }
        let kept = std::mem::replace(&mut self.state, State::Ended);
        if !matches!(kept, State::Leaked) {
            self.release_client(cx);
        }
        cx.out.push_back(Output::Ended(outcome));
    }

    /// Reports on the client, and closes its connection.
    fn release_client(&mut self, cx: &mut Context<'_>) {
        self.slot = None;
        let record = std::mem::take(&mut self.record);
        cx.out.push_back(Output::Record(Record::new(record)));
        cx.out.push_back(Output::Close { channel: CONTROL });
    }

    fn cross_session(&self) -> MutexGuard<'_, CrossSessionState> {
        // The shared state is valid even after a panic.
        let faults = self.shared.cross_session.lock();
        faults.unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the group or a pair of sockets of a client that has left, if a fault asks for it.
    /// Returns false if nothing is kept.
    fn leak(&mut self, cx: &mut Context<'_>) -> bool {
        let State::Relaying(body) = &self.state else {
            return false;
        };
        let (group, faults) = (body.group, &self.shared.config.faults);
        let mut shared = self.cross_session();
        let keeps_group = faults.keep_groups
            && shared.leaked_groups.len() < LEAKED_MAX
            && shared.leaked_groups.insert(group);
        let keeps_files = faults.keep_files && shared.leaked_sockets < LEAKED_MAX;
        shared.leaked_sockets += usize::from(keeps_files);
        drop(shared);
        if !keeps_group && !keeps_files {
            return false;
        }
        if !keeps_group {
            cx.out.push_back(Output::Close { channel: GROUP });
        }
        if keeps_files {
            cx.out.push_back(Output::Open {
                channel: LEAKED_SOCKETS,
                open: Open::UdpPair {
                    local: Ipv4Addr::LOCALHOST.into(),
                    sink: None,
                    shared: false,
                },
            });
        }
        self.close_old(cx);
        self.release_client(cx);
        self.state = State::Leaked;
        true
    }

    fn close_old(&mut self, cx: &mut Context<'_>) {
        if self.old_group.take().is_some() {
            cx.out.push_back(Output::Close { channel: OLD_GROUP });
        }
    }

    fn handle_request(&mut self, cx: &mut Context<'_>, request: Request) {
        self.record.target = Some(request.target.clone());
        if let Some(answer) = self.shared.config.faults.answer {
            return self.inject_answer_fault(cx, answer, &request);
        }
        if !request.is_get {
            return self.send_page(cx, 405);
        }
        let Some(requested) = RequestedGroup::parse(&request.target) else {
            return self.send_page(cx, 404);
        };
        let Some(slot) = ClientSlot::take(&self.shared) else {
            return self.send_page(cx, 503);
        };
        self.slot = Some(slot);
        self.record.group = Some(requested.group.ip());
        let before = self.cross_session().last_group.replace(requested);
        let old = self.shared.config.faults.old_channel;
        self.old_group = before
            .filter(|before| old > 0 && before.group != requested.group)
            .map(|before| (before, old));
        self.join(cx, GROUP, requested);
        self.state = State::Joining { request, requested };
    }

    fn join(&self, cx: &mut Context<'_>, channel: ChannelId, requested: RequestedGroup) {
        let (group, port) = (requested.group.ip(), requested.group.port());
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
    fn accept_any_sender(cx: &mut Context<'_>, channel: ChannelId, group: SocketAddr) {
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

    fn inject_answer_fault(
        &mut self,
        cx: &mut Context<'_>,
        answer: AnswerFault,
        request: &Request,
    ) {
        const TYPE: &str = "Content-Type: video/mp2t\r\n";
        match answer {
            AnswerFault::Status(status) => self.send_page(cx, status),
            AnswerFault::Html => {
                self.send_head(cx, 200, "Content-Type: text/html\r\n");
                let page = "<!DOCTYPE html>\n<title>Welcome</title>\n<p>It works.\n";
                self.send_body(cx, page.repeat(100).into_bytes());
            }
            AnswerFault::Gzip => {
                self.send_head(cx, 200, &format!("{TYPE}Content-Encoding: gzip\r\n"));
                let mut body = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
                body.extend((0..5000).map(|_| self.rng.next_u64() as u8));
                self.send_body(cx, body);
            }
            AnswerFault::EndlessHead => {
                self.record.status = Some(200);
                Self::send(cx, b"HTTP/1.1 200 OK\r\n".to_vec());
                self.state = State::EndlessHead {
                    next: cx.now,
                    sent: 0,
                };
            }
            AnswerFault::BadChunks => {
                self.send_head(cx, 200, &format!("{TYPE}Transfer-Encoding: chunked\r\n"));
                // The chunk states 188 bytes, but 1880 follow.
                let mut body = b"bc\r\n".to_vec();
                for _ in 0..10 {
                    body.extend(null_packet());
                }
                body.extend(b"\r\n");
                self.send_body(cx, body);
            }
            AnswerFault::Redirect => {
                // Unchanged, except for characters that a head cannot contain.
                let target = request.target.replace(|c: char| c.is_control(), "");
                self.send_head(
                    cx,
                    302,
                    &format!("Location: {target}\r\nContent-Length: 0\r\n"),
                );
                self.end(cx, Outcome::Completed);
            }
            AnswerFault::Silent => {
                self.send_head(cx, 200, TYPE);
                self.state = State::Idle;
            }
            AnswerFault::Mute => self.state = State::Idle,
        }
    }

    fn handle_joined(&mut self, cx: &mut Context<'_>) {
        let State::Joining { request, requested } = &self.state else {
            return;
        };
        let chunked = self.shared.config.chunked && request.supports_chunks;
        let RequestedGroup { group, rtp } = *requested;
        Self::accept_any_sender(cx, GROUP, group);
        if let Some((old, _)) = self.old_group {
            self.join(cx, OLD_GROUP, old);
        }
        let framing = match chunked {
            true => "Transfer-Encoding: chunked\r\n",
            false => "",
        };
        self.send_head(cx, 200, &format!("Content-Type: video/mp2t\r\n{framing}"));
        let faults = &self.shared.config.faults;
        let starts_at = cx.now + faults.slow_start;
        self.state = State::Relaying(RelayedBody {
            group,
            rtp,
            chunked,
            starts_at,
            next_stall_change: faults.stall.map(|(every, _)| starts_at + every),
            stalled: false,
            buffered: VecDeque::new(),
            buffered_bytes: 0,
            last_datagram: Vec::new(),
        });
    }

    /// Handles a datagram of the previously requested group.
    fn handle_old_datagram(&mut self, cx: &mut Context<'_>, datagram: &[u8]) {
        let Some((old, left)) = &mut self.old_group else {
            return;
        };
        let Some(payload) = transport_stream(datagram, old.rtp) else {
            return;
        };
        *left -= 1;
        let is_last = *left == 0;
        self.record.old_channel += 1;
        self.send_or_buffer(cx, payload.to_vec());
        if is_last {
            self.close_old(cx);
        }
    }

    fn handle_datagram(&mut self, cx: &mut Context<'_>, datagram: &[u8]) {
        let State::Relaying(body) = &self.state else {
            return;
        };
        self.record.datagrams += 1;
        let Some(payload) = transport_stream(datagram, body.rtp) else {
            self.record.unusable += 1;
            return;
        };
        let (starts_at, faults) = (body.starts_at, &self.shared.config.faults);
        let (lose, replace, duplicate, truncate) = (
            faults.lose,
            faults.replace,
            faults.duplicate,
            faults.truncate,
        );
        if cx.now < starts_at || self.old_group.is_some() || self.chance(lose) {
            self.record.left_out += 1;
            return;
        }
        if self.chance(replace) {
            self.record.left_out += 1;
            let State::Relaying(body) = &self.state else {
                return;
            };
            if !body.last_datagram.is_empty() {
                let again = body.last_datagram.clone();
                self.record.sent_twice += 1;
                self.send_or_buffer(cx, again);
            }
            return;
        }
        let mut bytes = payload.to_vec();
        if bytes.len() > 1 && self.chance(truncate) {
            self.record.cut += 1;
            bytes.truncate(1 + (self.rng.next_u64() % (bytes.len() as u64 - 1)) as usize);
        }
        self.record.passed_on += 1;
        if self.chance(duplicate) {
            self.record.sent_twice += 1;
            self.send_or_buffer(cx, bytes.clone());
        }
        if replace > 0.0
            && let State::Relaying(body) = &mut self.state
        {
            body.last_datagram.clone_from(&bytes);
        }
        self.send_or_buffer(cx, bytes);
    }

    /// Sends bytes of the body, or buffers them during a pause.
    fn send_or_buffer(&mut self, cx: &mut Context<'_>, bytes: Vec<u8>) {
        let State::Relaying(body) = &mut self.state else {
            return;
        };
        if !body.stalled {
            self.record.bytes += bytes.len() as u64;
            Self::send(cx, frame_body(bytes, body.chunked));
        } else if body.buffered_bytes + bytes.len() <= BUFFERED_BYTES_MAX {
            body.buffered_bytes += bytes.len();
            body.buffered.push_back(bytes);
        } else {
            self.record.left_out += 1;
        }
    }

    /// Begins or ends a pause, if that is due.
    fn toggle_stall(&mut self, cx: &mut Context<'_>) {
        let (State::Relaying(body), Some((every, length))) =
            (&mut self.state, self.shared.config.faults.stall)
        else {
            return;
        };
        let Some(change_at) = body
            .next_stall_change
            .filter(|&change_at| change_at <= cx.now)
        else {
            return;
        };
        body.stalled = !body.stalled;
        if body.stalled {
            self.record.stalls += 1;
            body.next_stall_change = Some(change_at + length);
            return;
        }
        body.next_stall_change = Some(change_at + (every - length));
        body.buffered_bytes = 0;
        for bytes in std::mem::take(&mut body.buffered) {
            self.record.bytes += bytes.len() as u64;
            Self::send(cx, frame_body(bytes, body.chunked));
        }
    }

    fn handle_deadline(&mut self, cx: &mut Context<'_>) {
        match &mut self.state {
            State::AwaitingRequest { until, .. } if *until <= cx.now => self.send_page(cx, 408),
            State::EndlessHead { next, sent } if *next <= cx.now => {
                *next = cx.now + ENDLESS_INTERVAL;
                *sent += ENDLESS_LINE_BYTES;
                let through = *sent > ENDLESS_BYTES_MAX;
                let filler = "x".repeat(ENDLESS_LINE_BYTES - 12);
                Self::send(cx, format!("X-Filler: {filler}\r\n").into_bytes());
                if through {
                    self.end(cx, Outcome::Completed);
                }
            }
            _ => self.toggle_stall(cx),
        }
    }

    fn closed(&mut self, cx: &mut Context<'_>, channel: ChannelId, how: CloseReason) {
        if channel != CONTROL {
            return;
        }
        let outcome = match how {
            CloseReason::End | CloseReason::Reset => Outcome::Completed,
            CloseReason::SendQueueFull => failed("stuck", "the client stopped reading"),
            CloseReason::Tls(error) => failed("tls", &error.to_string()),
        };
        if !self.leak(cx) {
            self.end(cx, outcome);
        }
    }
}

impl Session for RelaySession {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            Input::Start { .. } => {
                self.state = State::AwaitingRequest {
                    reader: RequestReader::default(),
                    until: cx.now + REQUEST_TIMEOUT,
                };
            }
            Input::Opened {
                channel: CONTROL,
                remote,
                ..
            } => self.record.remote = remote.map(|remote| remote.to_string()),
            Input::Opened { channel: GROUP, .. } => self.handle_joined(cx),
            Input::Opened {
                channel: OLD_GROUP, ..
            } => {
                if let Some((old, _)) = self.old_group {
                    Self::accept_any_sender(cx, OLD_GROUP, old.group);
                }
            }
            Input::OpenFailed { channel: GROUP, .. } => self.send_page(cx, 502),
            Input::OpenFailed {
                channel: OLD_GROUP, ..
            } => self.old_group = None,
            Input::Bytes { bytes, .. } => {
                let State::AwaitingRequest { reader, .. } = &mut self.state else {
                    return;
                };
                match reader.feed(bytes) {
                    None => {}
                    Some(Ok(request)) => self.handle_request(cx, request),
                    Some(Err(RequestError::TooLong)) => self.send_page(cx, 431),
                    Some(Err(RequestError::Malformed)) => self.send_page(cx, 400),
                }
            }
            Input::Datagram {
                channel: OLD_GROUP,
                port: Port::Media,
                bytes,
                ..
            } => self.handle_old_datagram(cx, bytes),
            Input::Datagram {
                port: Port::Media,
                bytes,
                ..
            } => self.handle_datagram(cx, bytes),
            Input::Closed {
                channel,
                reason: how,
            } => self.closed(cx, channel, how),
            Input::Deadline => self.handle_deadline(cx),
            Input::Stop { .. } => {
                if let State::Relaying(RelayedBody { chunked: true, .. }) = self.state {
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
            | Input::TopicMessage { .. }
            | Input::ExchangeEnded { .. } => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        match &self.state {
            State::AwaitingRequest { until, .. } => Some(*until),
            State::EndlessHead { next, .. } => Some(*next),
            State::Relaying(body) => body.next_stall_change,
            State::Joining { .. } | State::Idle | State::Leaked | State::Ended => None,
        }
    }
}

/// Returns the transport stream of a datagram, or `None` if it has none.
fn transport_stream(datagram: &[u8], rtp: bool) -> Option<&[u8]> {
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
fn frame_body(bytes: Vec<u8>, chunked: bool) -> Vec<u8> {
    if !chunked {
        return bytes;
    }
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend(bytes);
    chunk.extend(b"\r\n");
    chunk
}

/// Builds a null packet of a transport stream.
fn null_packet() -> [u8; PACKET_LEN] {
    let [high, low] = NULL_PID.to_be_bytes();
    let mut packet = [0xff; PACKET_LEN];
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
