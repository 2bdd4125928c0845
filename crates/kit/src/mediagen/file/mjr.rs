//! Janus recordings (.mjr): RTP packets of one stream as they arrived, preceded by a JSON header.
//! Frames are sent as recorded, with new sequence numbers and timestamps.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::recording::{Frame, RecordedStream, coding};
use crate::mediagen::clip::Coding;

/// Magic numbers of the file and of its records, in the older and the newer format. The length of a
/// record follows.
const FILES: [&[u8]; 2] = [b"MJR00001", b"MJR00002"];
const OLD: &[u8] = b"MEETECHO";
const NEW: &[u8] = b"MEET";
const HEAD: usize = 8;

/// Minimum length of an RTP header.
const RTP_HEAD: usize = 12;

/// Maximum number of packets that are read.
const PACKETS_MAX: usize = 4_000_000;

/// An RTP packet, split into header fields and payload.
struct Packet<'a> {
    ssrc: u32,
    sequence: u16,
    timestamp: u32,
    payload: &'a [u8],
}

/// Parses an RTP packet (RFC 3550, 5.1).
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

/// Iterates over the records of a file, without their headers. A truncated record at the end is
/// ignored.
fn records(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
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

/// Reads the stream of a file.
pub(super) fn streams(bytes: &[u8]) -> Result<Vec<RecordedStream>, String> {
    if !FILES.iter().any(|head| bytes.starts_with(head)) {
        return Err("the Janus recording has an unknown format version".to_owned());
    }
    let mut pieces = records(bytes);
    let about = pieces.next().unwrap_or_default();
    let about: serde_json::Value = serde_json::from_slice(about)
        .map_err(|error| format!("the header of the Janus recording is not valid JSON: {error}"))?;
    let Some(name) = about["c"].as_str() else {
        return Err("the header of the Janus recording names no codec".to_owned());
    };
    if about["e"].as_bool() == Some(true) {
        return Err("the Janus recording is end-to-end encrypted".to_owned());
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
        // Only the first source is used. Packets without payload are keep-alives.
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
    Ok(vec![RecordedStream { coding, frames }])
}

/// True if the text may appear in a session description.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.len() <= 200 && text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
}

/// Maximum plausible step between timestamps, in seconds.
const STEP_MAX: i64 = 10;

/// Groups packets with equal timestamps into frames.
fn frames<'a>(coding: &Coding, packets: impl Iterator<Item = Packet<'a>>) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    // The last timestamp, and its distance from the first, in ticks.
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
                // After an encoder restart, time continues with the previous step.
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

/// True if the payload begins a key frame. Every audio frame is one.
fn begins_key(codec: &str, payload: &[u8]) -> bool {
    match codec {
        "VP8" => vp8_begins_key(payload).unwrap_or(false),
        "VP9" => payload[0] & 0x48 == 0x08,
        "H.264" => h264_begins_key(payload).unwrap_or(false),
        _ => true,
    }
}

/// Length of the VP8 payload descriptor (RFC 7741, 4.2).
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

/// Returns the payload with the shortest possible descriptor. Picture numbers would jump back when
/// the loop repeats, and a decoder would discard the following frames as old.
fn vp8_without_numbers(payload: &[u8]) -> Option<Bytes> {
    let data = payload.get(vp8_descriptor(payload)?..)?;
    // Keeps the bits for non-reference frames and partition starts.
    Some(Bytes::from([&[payload.first()? & 0x37], data].concat()))
}

/// True for a parameter set or an IDR picture, in a single packet, an aggregate, or a first
/// fragment (RFC 6184, 5.2).
fn h264_begins_key(payload: &[u8]) -> Option<bool> {
    let is_key = |kind: u8| matches!(kind & 0x1f, 5 | 7);
    Some(match payload.first()? & 0x1f {
        24 => is_key(*payload.get(3)?),
        28 => payload.get(1)? & 0x80 != 0 && is_key(*payload.get(1)?),
        kind => is_key(kind),
    })
}
