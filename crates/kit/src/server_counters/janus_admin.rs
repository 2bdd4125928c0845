//! Janus Admin API over a WebSocket (`janus-admin-protocol`): lists the sessions, then the handles
//! of each session, and reads the counters of each handle's PeerConnection. One request is
//! outstanding at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::{CounterSnapshot, Counts};
use crate::http1::Url;
use crate::websocket::{self, ClientHandshake, Limits, Reassembler, Received};
use session::seeds::derive_seed;

/// WebSocket subprotocol.
const SUBPROTOCOL: &str = "janus-admin-protocol";

/// Limit of a message, above the size of a handle's info with a thousand streams.
const LIMITS: Limits = Limits {
    keep_max: 8 << 20,
    length_max: 8 << 20,
};

/// Maximum number of sessions, and of handles, that are read.
const HANDLES_MAX: usize = 50_000;

/// Session id and handle id.
type Key = (u64, u64);

/// Counters of one handle.
#[derive(Clone, Copy, Debug, Default)]
struct Handle {
    /// Sum over earlier PeerConnections of the handle.
    earlier: Counts,
    latest: Counts,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Idle,
    /// Waiting for the response to the WebSocket handshake.
    Upgrading(ClientHandshake),
    /// Listing the sessions.
    Sessions,
    /// Listing the handles of this session; the rest of the sessions are queued.
    Handles(u64, VecDeque<u64>),
    /// Reading this handle; the rest of the handles are queued.
    Infos(Key, VecDeque<Key>),
}

/// Next step of the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait for more bytes.
    Wait,
    /// Send these bytes.
    Send(Vec<u8>),
    /// The connection is ready for queries.
    Open,
    /// The query is complete.
    Done(CounterSnapshot),
}

/// A connection to a Janus server that reads its counters.
#[derive(Debug)]
pub struct JanusAdmin {
    secret: String,
    seed: u64,
    /// Number of the last request.
    last_request: u64,
    assembly: Reassembler,
    doing: Phase,
    /// Handles found by the current query.
    found: Vec<Key>,
    handles: BTreeMap<Key, Handle>,
    /// Sum over handles that have ended.
    ended: Counts,
    query: CounterSnapshot,
}

impl JanusAdmin {
    /// Starts a connection to `url`, and returns it with the first bytes to send.
    pub fn begin(url: &Url, secret: &str, seed: u64) -> (JanusAdmin, Vec<u8>) {
        let (upgrade, request) = ClientHandshake::begin(url, &[SUBPROTOCOL], seed);
        let admin = JanusAdmin {
            secret: secret.to_owned(),
            seed,
            last_request: 0,
            assembly: Reassembler::default(),
            doing: Phase::Upgrading(upgrade),
            found: Vec::new(),
            handles: BTreeMap::new(),
            ended: Counts::default(),
            query: CounterSnapshot::default(),
        };
        (admin, request)
    }

    /// Starts a query, and returns the bytes to send.
    pub fn start_query(&mut self) -> Vec<u8> {
        self.doing = Phase::Sessions;
        self.found.clear();
        self.query = CounterSnapshot {
            ended: self.query.ended,
            ..CounterSnapshot::default()
        };
        self.ask("list_sessions", json!({}))
    }

    /// Handles received bytes and returns the next step. Must be called again with no bytes until
    /// it returns [`Step::Wait`].
    ///
    /// # Errors
    /// If the response is invalid; the connection is then unusable.
    pub fn received(&mut self, mut bytes: &[u8]) -> Result<Step, String> {
        if let Phase::Upgrading(upgrade) = &mut self.doing {
            if !upgrade.read_response(&mut bytes)? {
                return Ok(Step::Wait);
            }
            self.doing = Phase::Idle;
            return Ok(Step::Open);
        }
        let mut assembly = std::mem::take(&mut self.assembly);
        let mut step = Ok(Step::Wait);
        while matches!(step, Ok(Step::Wait)) {
            step = match assembly.next(false, &LIMITS, &mut bytes) {
                Ok(None) => break,
                Ok(Some(Received::Message(frame))) => match frame.body {
                    Some(body) => self.answer(body),
                    None => Err("response too long".to_owned()),
                },
                Ok(Some(Received::Ping(payload))) => {
                    let payload = payload.to_vec();
                    Ok(Step::Send(self.frame(websocket::PONG, &payload)))
                }
                Ok(Some(Received::Close(_))) => Err("Janus closed the WebSocket".to_owned()),
                Err(malformed) => Err(malformed.to_string()),
            };
        }
        self.assembly = assembly;
        step
    }

    fn frame(&mut self, opcode: u8, payload: &[u8]) -> Vec<u8> {
        self.last_request += 1;
        let mask = derive_seed(&[self.seed, 23, self.last_request]) as u32;
        let mut out = Vec::with_capacity(payload.len() + 14);
        websocket::write_message(opcode, payload, Some(mask), &mut out);
        out
    }

    fn ask(&mut self, what: &str, mut request: Value) -> Vec<u8> {
        request["janus"] = what.into();
        request["admin_secret"] = self.secret.as_str().into();
        request["transaction"] = (self.last_request + 1).to_string().into();
        self.frame(websocket::TEXT, request.to_string().as_bytes())
    }

    fn answer(&mut self, body: &[u8]) -> Result<Step, String> {
        let answer: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        // Response to a query that was abandoned.
        if answer["transaction"].as_str() != Some(&self.last_request.to_string()) {
            return Ok(Step::Wait);
        }
        let refused = match answer["janus"].as_str() {
            Some("success") => None,
            _ => Some(answer["error"]["reason"].as_str().unwrap_or("no reason")),
        };
        match (std::mem::take(&mut self.doing), refused) {
            (Phase::Sessions, Some(reason)) => Err(format!("Janus refused to list: {reason}")),
            (Phase::Sessions, None) => {
                let sessions = numbers(&answer["sessions"]);
                Ok(self.next_session(sessions))
            }
            // Sessions and handles may end between the requests.
            (Phase::Handles(session, rest), refused) => {
                if refused.is_none() {
                    let handles = numbers(&answer["handles"]);
                    let room = HANDLES_MAX.saturating_sub(self.found.len());
                    let keys = handles.into_iter().take(room);
                    self.found.extend(keys.map(|handle| (session, handle)));
                }
                Ok(self.next_session(rest))
            }
            (Phase::Infos(key, rest), refused) => {
                if refused.is_none() {
                    self.info(key, &answer["info"]);
                }
                Ok(self.next_handle(rest))
            }
            (Phase::Idle | Phase::Upgrading(_), _) => Ok(Step::Wait),
        }
    }

    fn next_session(&mut self, mut rest: VecDeque<u64>) -> Step {
        match rest.pop_front() {
            Some(session) => {
                self.doing = Phase::Handles(session, rest);
                Step::Send(self.ask("list_handles", json!({"session_id": session})))
            }
            None => {
                let found = self.found.iter().copied().collect();
                self.next_handle(found)
            }
        }
    }

    fn next_handle(&mut self, mut rest: VecDeque<Key>) -> Step {
        match rest.pop_front() {
            Some(key) => {
                self.doing = Phase::Infos(key, rest);
                let (session, handle) = key;
                let request = json!({"session_id": session, "handle_id": handle});
                Step::Send(self.ask("handle_info", request))
            }
            None => Step::Done(self.finish()),
        }
    }

    fn info(&mut self, key: Key, info: &Value) {
        self.query.queued += info["queued-packets"].as_u64().unwrap_or(0);
        let Some(webrtc) = info.get("webrtc") else {
            // The handle has no PeerConnection, or has none any more.
            return;
        };
        let Some(media) = webrtc["media"].as_object() else {
            self.query.unreadable += 1;
            return;
        };
        self.query.peers += 1;
        let counts = media.values().map(counts_of);
        let counts = counts.fold(Counts::default(), Counts::plus);
        let handle = self.handles.entry(key).or_default();
        let before = handle.latest;
        if counts.packets_in < before.packets_in || counts.packets_out < before.packets_out {
            // A new PeerConnection has started. (Loss counters may decrease within one.)
            handle.earlier = handle.earlier.plus(handle.latest);
        }
        handle.latest = counts;
    }

    fn finish(&mut self) -> CounterSnapshot {
        let found: BTreeSet<Key> = self.found.iter().copied().collect();
        let (query, ended) = (&mut self.query, &mut self.ended);
        self.handles.retain(|key, handle| {
            let is_there = found.contains(key);
            if !is_there {
                *ended = ended.plus(handle.earlier).plus(handle.latest);
                query.ended += 1;
            }
            is_there
        });
        let present = self.handles.values();
        query.counts = present.fold(*ended, |sum, handle| {
            sum.plus(handle.earlier).plus(handle.latest)
        });
        *query
    }
}

fn numbers(list: &Value) -> VecDeque<u64> {
    let numbers = list.as_array().into_iter().flatten();
    numbers
        .filter_map(Value::as_u64)
        .take(HANDLES_MAX)
        .collect()
}

/// Counters of one medium of a PeerConnection.
fn counts_of(medium: &Value) -> Counts {
    let number = |pointer: &str| medium.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    // Simulcast layers have counters next to those of the first layer.
    let layers = ["", "/video-simulcast-1", "/video-simulcast-2"];
    let of_layers = |name: &str| -> u64 {
        let counts = layers.map(|layer| number(&format!("/stats/in{layer}/{name}")));
        counts.into_iter().fold(0, u64::saturating_add)
    };
    let contexts = ["main", "sim1", "sim2"];
    let lost = contexts.map(|context| plausible_loss(number(&format!("/rtcp/{context}/lost"))));
    Counts {
        packets_in: of_layers("packets"),
        bytes_in: of_layers("bytes"),
        packets_out: number("/stats/out/packets"),
        bytes_out: number("/stats/out/bytes"),
        nacked_in: of_layers("nacks"),
        nacked_out: number("/stats/out/nacks"),
        retransmissions_in: number("/stats/in/retransmissions"),
        lost_in: lost.into_iter().fold(0, u64::saturating_add),
        lost_out: plausible_loss(number("/rtcp/main/lost-by-remote")),
    }
}

/// Interprets a count of lost packets, which RTCP reports in 24 bits with a sign (RFC 3550, 6.4.1).
/// Janus reads a negative one as nearly 2^24, which is implausible for any stream; it becomes 0.
fn plausible_loss(lost: u64) -> u64 {
    if lost < 1 << 23 { lost } else { 0 }
}

#[cfg(test)]
mod tests;
