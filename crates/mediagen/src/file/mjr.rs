//! Recordings of Janus (.mjr): the packets of one stream as they came, with a few words of JSON
//! before them. Each is sent as it was recorded, with numbers and timestamps of its own.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::recording::{Frame, Recorded, coding};
use crate::clip::Coding;

/// What a file and each of its pieces begin with: the older form, and the newer one. A piece's
/// length follows.
const FILES: [&[u8]; 2] = [b"MJR00001", b"MJR00002"];
const OLD: &[u8] = b"MEETECHO";
const NEW: &[u8] = b"MEET";
const HEAD: usize = 8;

/// The shortest header of RTP.
const RTP_HEAD: usize = 12;

/// The most packets that are taken.
const PACKETS_MAX: usize = 4_000_000;

/// A packet without its header.
struct Packet<'a> {
    ssrc: u32,
    sequence: u16,
    timestamp: u32,
    payload: &'a [u8],
}

/// What is behind the header of an RTP packet (RFC 3550, 5.1).
fn packet(bytes: &[u8]) -> Option<Packet<'_>> {
    let head: &[u8; RTP_HEAD] = bytes.first_chunk()?;
    if head[0] >> 6 != 2 {
        return None;
    }
    let mut begin = RTP_HEAD + 4 * usize::from(head[0] & 0x0f);
    if head[0] & 0x10 != 0 {
        let words: [u8; 2] = *bytes.get(begin + 2..)?.first_chunk()?;
        begin += 4 + 4 * usize::from(u16::from_be_bytes(words));
    }
    let padding = match head[0] & 0x20 {
        0 => 0,
        _ => usize::from(*bytes.last()?),
    };
    let payload = bytes.get(begin..bytes.len().checked_sub(padding)?)?;
    Some(Packet {
        ssrc: u32::from_be_bytes([head[8], head[9], head[10], head[11]]),
        sequence: u16::from_be_bytes([head[2], head[3]]),
        timestamp: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
        payload,
    })
}

/// The pieces of a file: what is behind the head of each. What is cut off at its end is left out.
fn pieces(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let is_known = FILES.iter().any(|head| rest.starts_with(head))
            || rest.starts_with(OLD)
            || rest.starts_with(NEW);
        let (&length, after) = rest.get(HEAD..)?.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_be_bytes(length));
        let piece = after.get(..length).filter(|_| is_known)?;
        rest = &after[length..];
        Some(piece)
    })
}

/// The stream of a file.
pub(super) fn streams(bytes: &[u8]) -> Result<Vec<Recorded>, String> {
    if !FILES.iter().any(|head| bytes.starts_with(head)) {
        return Err("it is a recording of Janus of a form that is not known".to_owned());
    }
    let mut pieces = pieces(bytes);
    let about = pieces.next().unwrap_or_default();
    let about: serde_json::Value = serde_json::from_slice(about)
        .map_err(|error| format!("what it says of itself is no JSON: {error}"))?;
    let Some(name) = about["c"].as_str() else {
        return Err("it says of no codec that it is of".to_owned());
    };
    if about["e"].as_bool() == Some(true) {
        return Err("it was encrypted from end to end when it was recorded".to_owned());
    }
    let short: String = name.chars().take(20).collect();
    let mut coding = coding(&short)?;
    if let Some(parameters) = about["f"].as_str().filter(|text| is_plain(text)) {
        coding.parameters = parameters.to_owned();
    }
    let mut source = None;
    let mut sorted: BTreeMap<i64, Packet<'_>> = BTreeMap::new();
    let mut last = 0_i64;
    for piece in pieces.take(PACKETS_MAX) {
        // Of several sources the first; what is empty keeps a way open.
        let Some(packet) = packet(piece).filter(|packet| !packet.payload.is_empty()) else {
            continue;
        };
        if *source.get_or_insert(packet.ssrc) != packet.ssrc {
            continue;
        }
        let step = packet.sequence.wrapping_sub(last as u16) as i16;
        let number = match sorted.is_empty() {
            true => i64::from(packet.sequence),
            false => last + i64::from(step),
        };
        last = last.max(number);
        sorted.entry(number).or_insert(packet);
    }
    let frames = frames(&coding, sorted.into_values());
    Ok(vec![Recorded { coding, frames }])
}

/// Whether words may stand in a description.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.len() <= 200 && text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
}

/// The longest step from one timestamp to the next that is believed, in seconds.
const STEP_MAX: i64 = 10;

/// Packets of one timestamp are a frame.
fn frames<'a>(coding: &Coding, packets: impl Iterator<Item = Packet<'a>>) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    // The last timestamp, and how far it is from the first, in ticks.
    let mut last: Option<(u32, i64)> = None;
    let rate = i64::from(coding.clock_rate);
    let mut step = rate / if coding.media == "video" { 25 } else { 50 };
    for packet in packets {
        let plain = match coding.name {
            "VP8" => vp8_without_numbers(packet.payload),
            _ => None,
        };
        let payload = plain.unwrap_or_else(|| Bytes::copy_from_slice(packet.payload));
        let is_key = begins_key(coding.name, packet.payload);
        let ticks = match last {
            None => 0,
            Some((before, ticks)) => {
                let ahead = i64::from(packet.timestamp.wrapping_sub(before) as i32);
                // Who encodes may begin anew: it goes on as before.
                if ahead > 0 && ahead <= STEP_MAX * rate {
                    step = ahead;
                }
                if ahead == 0 { ticks } else { ticks + step }
            }
        };
        let is_same = last.is_some_and(|(before, _)| before == packet.timestamp);
        last = Some((packet.timestamp, ticks));
        if is_same && let Some(frame) = frames.last_mut() {
            frame.is_key |= is_key;
            frame.payloads.push(payload);
            continue;
        }
        let nanos = i128::from(ticks.max(0)) * 1_000_000_000 / i128::from(coding.clock_rate);
        frames.push(Frame {
            due: u64::try_from(nanos).unwrap_or(u64::MAX),
            is_key,
            payloads: vec![payload],
        });
    }
    frames
}

/// Whether a payload begins a frame that can be decoded by itself; of sound each does.
fn begins_key(codec: &str, payload: &[u8]) -> bool {
    match codec {
        "VP8" => vp8_begins_key(payload).unwrap_or(false),
        "VP9" => payload[0] & 0x48 == 0x08,
        "H.264" => h264_begins_key(payload).unwrap_or(false),
        _ => true,
    }
}

/// How long the descriptor of a payload of VP8 is (RFC 7741, 4.2).
fn vp8_descriptor(payload: &[u8]) -> Option<usize> {
    let first = *payload.first()?;
    if first & 0x80 == 0 {
        return Some(1);
    }
    let extension = *payload.get(1)?;
    let mut length = 2;
    if extension & 0x80 != 0 {
        length += if *payload.get(length)? & 0x80 != 0 {
            2
        } else {
            1
        };
    }
    Some(length + usize::from(extension & 0x40 != 0) + usize::from(extension & 0x30 != 0))
}

fn vp8_begins_key(payload: &[u8]) -> Option<bool> {
    let first = *payload.first()?;
    let begins = first & 0x10 != 0 && first & 0x07 == 0;
    Some(begins && payload.get(vp8_descriptor(payload)?)? & 1 == 0)
}

/// The payload with the shortest descriptor: numbers of pictures would jump back where the loop
/// begins anew, and a decoder take what follows for old.
fn vp8_without_numbers(payload: &[u8]) -> Option<Bytes> {
    let data = payload.get(vp8_descriptor(payload)?..)?;
    // What stays says whether others refer to the frame, and where its partitions begin.
    Some(Bytes::from([&[payload.first()? & 0x37], data].concat()))
}

/// A parameter set or an IDR picture, alone, in an aggregate, or as the first of fragments (RFC 6184,
/// 5.2).
fn h264_begins_key(payload: &[u8]) -> Option<bool> {
    let is_key = |kind: u8| matches!(kind & 0x1f, 5 | 7);
    Some(match payload.first()? & 0x1f {
        24 => is_key(*payload.get(3)?),
        28 => payload.get(1)? & 0x80 != 0 && is_key(*payload.get(1)?),
        kind => is_key(kind),
    })
}
