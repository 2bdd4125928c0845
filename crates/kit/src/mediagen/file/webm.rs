//! WebM, a subset of Matroska (RFC 9559): the first VP8 or VP9 video track and the first Opus
//! track.

use super::recording::{RecordedStream, coding};

/// Elements whose children are parsed. Others are read or skipped.
const SEGMENT: u32 = 0x1853_8067;
const INFO: u32 = 0x1549_a966;
const TRACKS: u32 = 0x1654_ae6b;
const TRACK_ENTRY: u32 = 0xae;
const CLUSTER: u32 = 0x1f43_b675;
const BLOCK_GROUP: u32 = 0xa0;

const TIMESTAMP_SCALE: u32 = 0x2a_d7b1;
const TRACK_NUMBER: u32 = 0xd7;
const CODEC_ID: u32 = 0x86;
const CONTENT_ENCODINGS: u32 = 0x6d80;
const TIMESTAMP: u32 = 0xe7;
const SIMPLE_BLOCK: u32 = 0xa3;
const BLOCK: u32 = 0xa1;

/// Flags for several frames in a block (RFC 9559, 10.3).
const LACING: u8 = 0x06;

/// Parses a variable-length integer and returns it with its length. `marked` keeps the length
/// marker, as in element IDs (RFC 8794, 4 and 5).
fn variable(bytes: &[u8], marked: bool) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = first.leading_zeros() as usize + 1;
    let all = bytes.get(..length).filter(|_| length <= 8)?;
    let value = all
        .iter()
        .fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    let mask = (1_u64 << (7 * length)) - 1;
    Some((if marked { value } else { value & mask }, length))
}

fn unsigned(data: &[u8]) -> u64 {
    let last = &data[data.len().saturating_sub(8)..];
    last.iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

struct Reader {
    /// Nanoseconds per tick.
    scale: u64,
    /// Number and codec of the track being parsed. They may come in any order.
    number: Option<u64>,
    codec: Option<String>,
    /// True if its frames are additionally compressed or encrypted.
    is_encoded: bool,
    /// Selected tracks by track number.
    found: Vec<(u64, RecordedStream)>,
    /// Names of other codecs.
    others: Vec<String>,
    cluster: u64,
    mtu: usize,
}

/// Reads the streams of a file. A truncated element at the end is ignored.
pub(super) fn streams(bytes: &[u8], mtu: usize) -> Result<Vec<RecordedStream>, String> {
    let mut reader = Reader {
        scale: 1_000_000,
        number: None,
        codec: None,
        is_encoded: false,
        found: Vec::new(),
        others: Vec::new(),
        cluster: 0,
        mtu,
    };
    let mut at = 0;
    while let Some((id, id_length)) = variable(&bytes[at..], true)
        && let Some((size, size_length)) = variable(&bytes[at + id_length..], false)
    {
        let begin = at + id_length + size_length;
        let id = u32::try_from(id).unwrap_or(0);
        // The children follow, whatever the length of these elements, which may be unknown.
        if id == TRACK_ENTRY || id == CLUSTER {
            reader.finish_track()?;
        }
        if [SEGMENT, INFO, TRACKS, TRACK_ENTRY, CLUSTER, BLOCK_GROUP].contains(&id) {
            at = begin;
            continue;
        }
        let end = begin.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
        let Some(data) = bytes.get(begin..end) else {
            break;
        };
        reader.take(id, data)?;
        at = end;
    }
    reader.finish_track()?;
    if reader.found.is_empty() {
        let others = match &reader.others[..] {
            [] => String::new(),
            some => format!(", but {}", some.join(" and ")),
        };
        return Err(format!("no VP8, VP9 or Opus track{others}"));
    }
    Ok(reader.found.into_iter().map(|(_, found)| found).collect())
}

impl Reader {
    fn take(&mut self, id: u32, data: &[u8]) -> Result<(), String> {
        match id {
            TIMESTAMP_SCALE => self.scale = unsigned(data).max(1),
            TRACK_NUMBER => self.number = Some(unsigned(data)),
            CODEC_ID => {
                let text = String::from_utf8_lossy(&data[..data.len().min(100)]);
                self.codec = Some(text.trim_end_matches('\0').to_owned());
            }
            CONTENT_ENCODINGS => self.is_encoded = true,
            TIMESTAMP => self.cluster = unsigned(data),
            SIMPLE_BLOCK | BLOCK => self.block(data)?,
            _ => {}
        }
        Ok(())
    }

    /// Finishes the description of a track.
    fn finish_track(&mut self) -> Result<(), String> {
        let is_encoded = std::mem::take(&mut self.is_encoded);
        let (Some(number), Some(name)) = (self.number.take(), self.codec.take()) else {
            return Ok(());
        };
        let coding = match &*name {
            "V_VP8" => coding("VP8")?,
            "V_VP9" => coding("VP9")?,
            "A_OPUS" => coding("Opus")?,
            other => {
                if self.others.len() < 4 {
                    self.others.push(other.chars().take(20).collect());
                }
                return Ok(());
            }
        };
        if is_encoded {
            let name = coding.name;
            return Err(format!(
                "the {name} track has an unsupported content encoding"
            ));
        }
        // Only the first track of each kind is used.
        let mut found = self.found.iter();
        if found.all(|(_, own)| own.coding.media != coding.media) {
            let frames = Vec::new();
            self.found.push((number, RecordedStream { coding, frames }));
        }
        Ok(())
    }

    fn block(&mut self, data: &[u8]) -> Result<(), String> {
        let Some((track, length)) = variable(data, false) else {
            return Ok(());
        };
        let Some((&[high, low, flags], frame)) = data[length..].split_first_chunk() else {
            return Ok(());
        };
        let mut found = self.found.iter_mut();
        let Some((_, stream)) = found.find(|own| own.0 == track) else {
            return Ok(());
        };
        if flags & LACING != 0 {
            return Err("blocks with several frames (lacing) are not supported".to_owned());
        }
        let ticks = self
            .cluster
            .saturating_add_signed(i16::from_be_bytes([high, low]).into());
        let due = ticks.saturating_mul(self.scale);
        stream.add(due, frame, self.mtu)
    }
}
