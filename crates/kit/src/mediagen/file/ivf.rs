//! IVF: frames of a single video, each with a header that states its length and time.

use super::recording::{RecordedStream, coding};

/// Minimum length of the file header, and length of a frame header.
const HEAD: usize = 32;
const FRAME_HEAD: usize = 12;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Reads the stream of a file. A truncated frame at the end is ignored.
pub(super) fn streams(bytes: &[u8], mtu: usize) -> Result<Vec<RecordedStream>, String> {
    let cut_off = || "the IVF header is truncated".to_owned();
    let name = number::<4>(bytes, 8).ok_or_else(cut_off)?;
    let head = number(bytes, 6)
        .map(u16::from_le_bytes)
        .ok_or_else(cut_off)?;
    let rate = number(bytes, 16)
        .map(u32::from_le_bytes)
        .ok_or_else(cut_off)?;
    let scale = number(bytes, 20)
        .map(u32::from_le_bytes)
        .ok_or_else(cut_off)?;
    let coding = match &name {
        b"VP80" => coding("VP8")?,
        b"VP90" => coding("VP9")?,
        other => {
            let other = String::from_utf8_lossy(other).escape_debug().to_string();
            return Err(format!("the IVF codec `{other}` is neither VP8 nor VP9"));
        }
    };
    if rate == 0 {
        return Err("the IVF header has no time base".to_owned());
    }
    let mut stream = RecordedStream {
        coding,
        frames: Vec::new(),
    };
    let mut at = usize::from(head).max(HEAD);
    while let (Some(length), Some(time)) = (
        number(bytes, at).map(u32::from_le_bytes),
        number(bytes, at + 4).map(u64::from_le_bytes),
    ) {
        let begin = at + FRAME_HEAD;
        let end = begin.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        let Some(data) = bytes.get(begin..end) else {
            break;
        };
        let nanos = u128::from(time) * u128::from(scale) * 1_000_000_000 / u128::from(rate);
        let due = u64::try_from(nanos).map_err(|_| "an IVF time is out of range".to_owned())?;
        stream.add(due, data, mtu)?;
        at = end;
    }
    Ok(vec![stream])
}
