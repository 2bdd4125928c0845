//! IVF: frames of one video behind each other, each with its length and its time.

use super::recording::{Recorded, coding};

/// The shortest head of a file, and the head of a frame.
const HEAD: usize = 32;
const FRAME_HEAD: usize = 12;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The stream of a file. What is cut off at its end is left out.
pub(super) fn streams(bytes: &[u8], mtu: usize) -> Result<Vec<Recorded>, String> {
    let cut_off = || "its IVF is cut off".to_owned();
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
            return Err(format!("its `{other}` is neither VP8 nor VP9"));
        }
    };
    if rate == 0 {
        return Err("its IVF says of no clock how fast it is".to_owned());
    }
    let mut stream = Recorded {
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
        let due = u64::try_from(nanos).map_err(|_| "its IVF has a time beyond all".to_owned())?;
        stream.add(due, data, mtu)?;
        at = end;
    }
    Ok(vec![stream])
}
