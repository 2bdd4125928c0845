//! Browser recordings (IVF, WebM and Janus .mjr) as clips that can be looped. They have no room for
//! time codes, except those that they already contain.

use std::sync::Arc;

use super::recording::{Frame, RecordedStream};
use super::{check_times, ivf, last_frame_duration, length_of, mjr, ticks, webm};
use crate::mediagen::clip::{Clip, FrameTimes};

/// Reads the clips of a recording, video first. Returns `None` if the file is not a recording.
/// `audio` selects whether its audio is included.
///
/// # Errors
/// The recording contains nothing that can be sent, or is too long. The text states the reason.
pub fn recorded(bytes: &[u8], mtu: usize, audio: bool) -> Option<Result<Vec<Arc<Clip>>, String>> {
    let streams = match bytes {
        [b'D', b'K', b'I', b'F', ..] => ivf::streams(bytes, mtu),
        [0x1a, 0x45, 0xdf, 0xa3, ..] => webm::streams(bytes, mtu),
        [b'M', b'J', b'R', ..] => mjr::streams(bytes),
        _ => return None,
    };
    Some(streams.and_then(|streams| clips(streams, audio)))
}

fn clips(mut streams: Vec<RecordedStream>, audio: bool) -> Result<Vec<Arc<Clip>>, String> {
    let is_video = |own: &RecordedStream| own.coding.media == "video";
    streams.retain(|own| audio || is_video(own));
    streams.sort_by_key(|own| !is_video(own));
    let begins = match streams.first() {
        None => return Err("the recording has no stream to send".to_owned()),
        Some(first) => {
            let key = first.frames.iter().find(|frame| frame.is_key);
            let why = "the recording has no key frame";
            key.ok_or(why)?.due
        }
    };
    for own in &mut streams {
        own.check_payloads()?;
        own.frames.retain(|frame| frame.due >= begins);
        own.frames.sort_by_key(|frame| frame.due);
        // Drops frames that precede the first key frame in the file but have the same time.
        let key = own.frames.iter().position(|frame| frame.is_key);
        own.frames.drain(..key.unwrap_or(0));
    }
    streams.retain(|own| !own.frames.is_empty());
    let ends: Vec<_> = (streams.iter())
        .map(|own| end(&own.frames, begins))
        .collect();
    let length = length_of(&ends)?;
    let clips = streams.into_iter().map(|own| {
        let clock_rate = own.coding.clock_rate;
        let times = own.frames.iter().map(|frame| {
            let due = frame.due - begins;
            (due, ticks(due, clock_rate))
        });
        let frames: Vec<_> = times.collect();
        check_times(&frames, length)?;
        let times = FrameTimes { frames, length };
        let frames = own.frames.into_iter().map(|frame| frame.payloads);
        let clip = Clip::recorded(own.coding, frames.collect())?;
        Ok(Arc::new(clip.with_times(times)))
    });
    clips.collect()
}

/// The last frame lasts as long as the previous one.
fn end(frames: &[Frame], begins: u64) -> Option<u64> {
    let last = frames.last()?.due;
    let before = frames.iter().rev().find(|frame| frame.due < last);
    let lasts = last_frame_duration(before.map(|frame| last - frame.due));
    last.checked_add(lasts)?.checked_sub(begins)
}

#[cfg(test)]
mod tests;
