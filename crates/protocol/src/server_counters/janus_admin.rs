//! Janus' Admin API over a WebSocket (`janus-admin-protocol`): its sessions are listed, of each its
//! handles, and each of these tells what its PeerConnection has counted. One question at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::{Counts, Look};
use crate::http1::Url;
use crate::mix::mix;
use crate::websocket::{self, Assembly, Item, Limits, Upgrade};

/// The subprotocol.
const SUBPROTOCOL: &str = "janus-admin-protocol";

/// The longest message that is taken: what a handle with a thousand streams tells is below.
const LIMITS: Limits = Limits {
    keep: 8 << 20,
    longest: 8 << 20,
};

/// The most sessions and handles that are looked at.
const HANDLES_MAX: usize = 50_000;

/// A session's number and a handle's.
type Key = (u64, u64);

/// What was counted for a handle.
#[derive(Clone, Copy, Debug, Default)]
struct Handle {
    /// By PeerConnections that it had before the one that it has.
    earlier: Counts,
    latest: Counts,
}

#[derive(Debug, Default)]
enum Doing {
    #[default]
    Nothing,
    /// The answer to the WebSocket's handshake is waited for.
    Upgrading(Upgrade),
    /// Sessions are being listed.
    Sessions,
    /// The handles of the last one are being listed; these sessions are left.
    Handles(u64, VecDeque<u64>),
    /// The last handle is being asked; these are left.
    Infos(Key, VecDeque<Key>),
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// More has to come.
    Wait,
    /// This is to be sent.
    Send(Vec<u8>),
    /// The connection can be asked.
    Open,
    /// The look is over.
    Done(Look),
}

/// A connection to a Janus that is asked what it has counted.
#[derive(Debug)]
pub struct JanusAdmin {
    secret: String,
    seed: u64,
    /// The number of the last question.
    last: u64,
    assembly: Assembly,
    doing: Doing,
    /// Handles found by the look that goes on.
    found: Vec<Key>,
    seen: BTreeMap<Key, Handle>,
    /// Of handles that are gone.
    past: Counts,
    look: Look,
}

impl JanusAdmin {
    /// A connection to `url`, and what is sent first.
    pub fn begin(url: &Url, secret: &str, seed: u64) -> (JanusAdmin, Vec<u8>) {
        let (upgrade, request) = Upgrade::begin(url, &[SUBPROTOCOL], seed);
        let admin = JanusAdmin {
            secret: secret.to_owned(),
            seed,
            last: 0,
            assembly: Assembly::default(),
            doing: Doing::Upgrading(upgrade),
            found: Vec::new(),
            seen: BTreeMap::new(),
            past: Counts::default(),
            look: Look::default(),
        };
        (admin, request)
    }

    /// Begins a look; what this returns is to be sent.
    pub fn look(&mut self) -> Vec<u8> {
        self.doing = Doing::Sessions;
        self.found.clear();
        self.look = Look {
            gone: self.look.gone,
            ..Look::default()
        };
        self.ask("list_sessions", json!({}))
    }

    /// Takes what has come, and says what is to be done. It is to be called with nothing until it
    /// says to wait.
    ///
    /// # Errors
    /// What came instead of an answer; the connection is of no further use.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<Step, String> {
        if let Doing::Upgrading(upgrade) = &mut self.doing {
            if !upgrade.answered(&mut bytes)? {
                return Ok(Step::Wait);
            }
            self.doing = Doing::Nothing;
            return Ok(Step::Open);
        }
        let mut assembly = std::mem::take(&mut self.assembly);
        let mut step = Ok(Step::Wait);
        while matches!(step, Ok(Step::Wait)) {
            step = match assembly.next(false, &LIMITS, &mut bytes) {
                Ok(None) => break,
                Ok(Some(Item::Frame(frame))) => match frame.body {
                    Some(body) => self.answer(body),
                    None => Err("an answer is too long".to_owned()),
                },
                Ok(Some(Item::Ping(payload))) => {
                    let payload = payload.to_vec();
                    Ok(Step::Send(self.frame(websocket::PONG, &payload)))
                }
                Ok(Some(Item::Close(_))) => Err("it was closed".to_owned()),
                Err(malformed) => Err(malformed.to_string()),
            };
        }
        self.assembly = assembly;
        step
    }

    fn frame(&mut self, opcode: u8, payload: &[u8]) -> Vec<u8> {
        self.last += 1;
        let mask = mix(&[self.seed, 23, self.last]) as u32;
        let mut out = Vec::with_capacity(payload.len() + 14);
        websocket::write_message(opcode, payload, Some(mask), &mut out);
        out
    }

    fn ask(&mut self, what: &str, mut request: Value) -> Vec<u8> {
        request["janus"] = what.into();
        request["admin_secret"] = self.secret.as_str().into();
        request["transaction"] = (self.last + 1).to_string().into();
        self.frame(websocket::TEXT, request.to_string().as_bytes())
    }

    fn answer(&mut self, body: &[u8]) -> Result<Step, String> {
        let answer: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        // Of a look that was given up.
        if answer["transaction"].as_str() != Some(&self.last.to_string()) {
            return Ok(Step::Wait);
        }
        let refused = match answer["janus"].as_str() {
            Some("success") => None,
            _ => Some(answer["error"]["reason"].as_str().unwrap_or("no reason")),
        };
        match (std::mem::take(&mut self.doing), refused) {
            (Doing::Sessions, Some(reason)) => Err(format!("it refuses to list: {reason}")),
            (Doing::Sessions, None) => {
                let sessions = numbers(&answer["sessions"]);
                Ok(self.next_session(sessions))
            }
            // Sessions and handles go while they are asked about.
            (Doing::Handles(session, rest), refused) => {
                if refused.is_none() {
                    let handles = numbers(&answer["handles"]);
                    let room = HANDLES_MAX.saturating_sub(self.found.len());
                    let keys = handles.into_iter().take(room);
                    self.found.extend(keys.map(|handle| (session, handle)));
                }
                Ok(self.next_session(rest))
            }
            (Doing::Infos(key, rest), refused) => {
                if refused.is_none() {
                    self.info(key, &answer["info"]);
                }
                Ok(self.next_handle(rest))
            }
            (Doing::Nothing | Doing::Upgrading(_), _) => Ok(Step::Wait),
        }
    }

    fn next_session(&mut self, mut rest: VecDeque<u64>) -> Step {
        match rest.pop_front() {
            Some(session) => {
                self.doing = Doing::Handles(session, rest);
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
                self.doing = Doing::Infos(key, rest);
                let (session, handle) = key;
                let request = json!({"session_id": session, "handle_id": handle});
                Step::Send(self.ask("handle_info", request))
            }
            None => Step::Done(self.finish()),
        }
    }

    fn info(&mut self, key: Key, info: &Value) {
        self.look.queued += info["queued-packets"].as_u64().unwrap_or(0);
        let Some(webrtc) = info.get("webrtc") else {
            // It has no PeerConnection yet, or no more.
            return;
        };
        let Some(media) = webrtc["media"].as_object() else {
            self.look.unread += 1;
            return;
        };
        self.look.peers += 1;
        let counts = media.values().map(counts_of);
        let counts = counts.fold(Counts::default(), Counts::plus);
        let handle = self.seen.entry(key).or_default();
        let before = handle.latest;
        if counts.packets_in < before.packets_in || counts.packets_out < before.packets_out {
            // Another PeerConnection has begun. (What is lost may become less in one.)
            handle.earlier = handle.earlier.plus(handle.latest);
        }
        handle.latest = counts;
    }

    fn finish(&mut self) -> Look {
        let found: BTreeSet<Key> = self.found.iter().copied().collect();
        let (look, past) = (&mut self.look, &mut self.past);
        self.seen.retain(|key, handle| {
            let is_there = found.contains(key);
            if !is_there {
                *past = past.plus(handle.earlier).plus(handle.latest);
                look.gone += 1;
            }
            is_there
        });
        let present = self.seen.values();
        look.counts = present.fold(*past, |sum, handle| {
            sum.plus(handle.earlier).plus(handle.latest)
        });
        *look
    }
}

fn numbers(list: &Value) -> VecDeque<u64> {
    let numbers = list.as_array().into_iter().flatten();
    numbers
        .filter_map(Value::as_u64)
        .take(HANDLES_MAX)
        .collect()
}

/// What one media of a PeerConnection has counted.
fn counts_of(medium: &Value) -> Counts {
    let number = |place: &str| medium.pointer(place).and_then(Value::as_u64).unwrap_or(0);
    // Layers of a simulcast are told beside the first.
    let layers = ["", "/video-simulcast-1", "/video-simulcast-2"];
    let of_layers = |name: &str| -> u64 {
        let counts = layers.map(|layer| number(&format!("/stats/in{layer}/{name}")));
        counts.into_iter().fold(0, u64::saturating_add)
    };
    let contexts = ["main", "sim1", "sim2"];
    let lost = contexts.map(|context| possible_loss(number(&format!("/rtcp/{context}/lost"))));
    Counts {
        packets_in: of_layers("packets"),
        bytes_in: of_layers("bytes"),
        packets_out: number("/stats/out/packets"),
        bytes_out: number("/stats/out/bytes"),
        nacked_in: of_layers("nacks"),
        nacked_out: number("/stats/out/nacks"),
        retransmissions_in: number("/stats/in/retransmissions"),
        lost_in: lost.into_iter().fold(0, u64::saturating_add),
        lost_out: possible_loss(number("/rtcp/main/lost-by-remote")),
    }
}

/// A count of lost packets as receivers report it, in 24 bits with a sign (RFC 3550, 6.4.1). Janus
/// reads a negative one as a number of nearly 2^24, which no stream can have lost.
fn possible_loss(lost: u64) -> u64 {
    if lost < 1 << 23 { lost } else { 0 }
}

#[cfg(test)]
mod tests;
