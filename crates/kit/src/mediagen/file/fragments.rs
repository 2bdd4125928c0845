//! Movie fragments (ISO/IEC 14496-12, 8.8), converted to the form that the MP4 library supports.
//!
//! The library rejects fragments with absolute offsets (`base_data_offset`, 8.8.7), which ffmpeg
//! writes by default. This module makes their offsets relative to the fragment. Boxes keep their
//! positions.

use std::borrow::Cow;

/// Flag: an absolute offset is present (ISO/IEC 14496-12, 8.8.7.1).
const BASE_DATA_OFFSET: u8 = 0x01;
/// Flag: offsets are relative to the fragment. In the first byte of the flags.
const DEFAULT_BASE_IS_MOOF: u8 = 0x02;
/// Flag: a run states the offset of its data (ISO/IEC 14496-12, 8.8.8.1).
const DATA_OFFSET: u8 = 0x01;

/// Rewrites such fragments. Returns the file unchanged if there are none.
///
/// # Errors
/// An offset cannot be represented relative to the fragment.
pub(super) fn with_relative_offsets(bytes: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let mut file = Cow::Borrowed(bytes);
    for found in Boxes::new(bytes).filter(|found| &found.name == b"moof") {
        for track in found.children(bytes).filter(|child| &child.name == b"traf") {
            for (at, new) in patches(bytes, found.begin, &track)? {
                file.to_mut()[at..at + new.len()].copy_from_slice(&new);
            }
        }
    }
    Ok(file)
}

/// Returns bytes to write at positions of the file so that the offsets of a track are relative to
/// the fragment at `moof`. Empty if they are relative already.
fn patches(bytes: &[u8], moof: usize, track: &BoxRange) -> Result<Vec<(usize, Vec<u8>)>, String> {
    let Some(head) = track.children(bytes).find(|child| &child.name == b"tfhd") else {
        return Ok(Vec::new());
    };
    // Version and flags, track ID, offset, then the fields that the flags announce.
    let body = &bytes[head.body..head.end];
    let [version, a, b, flags, rest @ ..] = body else {
        return Ok(Vec::new());
    };
    let Some((number, rest)) = rest.split_first_chunk::<4>() else {
        return Ok(Vec::new());
    };
    if flags & BASE_DATA_OFFSET == 0 || head.body != head.begin + 8 {
        return Ok(Vec::new());
    }
    let Some((base, rest)) = rest.split_first_chunk::<8>() else {
        return Ok(Vec::new());
    };
    let base = u64::from_be_bytes(*base);
    let size = (head.end - head.begin - 8) as u32;
    let mut new = [&size.to_be_bytes()[..], b"tfhd"].concat();
    new.extend([
        *version,
        a | DEFAULT_BASE_IS_MOOF,
        *b,
        flags & !BASE_DATA_OFFSET,
    ]);
    new.extend(number);
    new.extend(rest);
    // A `free` box replaces the offset (8.1.2).
    new.extend(8u32.to_be_bytes());
    new.extend(b"free");
    let mut patches = vec![(head.begin, new)];
    let shift = i128::from(base) - moof as i128;
    for run in track.children(bytes).filter(|child| &child.name == b"trun") {
        let body = &bytes[run.body..run.end];
        let Some(([_, _, _, flags, _, _, _, _], rest)) = body.split_first_chunk::<8>() else {
            continue;
        };
        let outside = || "the MP4 fragments have unsupported data offsets".to_owned();
        if flags & DATA_OFFSET == 0 {
            // The run starts at the base offset, or follows the previous run.
            if shift == 0 {
                continue;
            }
            return Err(outside());
        }
        let Some(offset) = rest.first_chunk::<4>() else {
            continue;
        };
        let offset = i128::from(i32::from_be_bytes(*offset)) + shift;
        let offset = i32::try_from(offset).map_err(|_| outside())?;
        patches.push((run.body + 8, offset.to_be_bytes().to_vec()));
    }
    Ok(patches)
}

/// A box: positions of its start, its body and its end.
#[derive(Clone, Copy, Debug)]
struct BoxRange {
    name: [u8; 4],
    begin: usize,
    body: usize,
    end: usize,
}

impl BoxRange {
    fn children<'a>(&self, bytes: &'a [u8]) -> Boxes<'a> {
        Boxes {
            bytes: &bytes[..self.end],
            at: self.body,
        }
    }
}

/// Iterator over the boxes of a file or of a box (ISO/IEC 14496-12, 4.2), up to the first truncated
/// one.
struct Boxes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Boxes<'a> {
    fn new(bytes: &'a [u8]) -> Boxes<'a> {
        Boxes { bytes, at: 0 }
    }
}

impl Iterator for Boxes<'_> {
    type Item = BoxRange;

    fn next(&mut self) -> Option<BoxRange> {
        let begin = self.at;
        let rest = self.bytes.get(begin..)?;
        let (size, after) = rest.split_first_chunk::<4>()?;
        let (name, after) = after.split_first_chunk::<4>()?;
        let (header, size) = match u32::from_be_bytes(*size) {
            // The box extends to the end.
            0 => (8, rest.len()),
            1 => {
                let size = u64::from_be_bytes(*after.first_chunk::<8>()?);
                (16, usize::try_from(size).ok()?)
            }
            size => (8, usize::try_from(size).ok()?),
        };
        if size < header || size > rest.len() {
            return None;
        }
        self.at = begin + size;
        Some(BoxRange {
            name: *name,
            begin,
            body: begin + header,
            end: begin + size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed(name: &[u8], body: &[u8]) -> Vec<u8> {
        let size = (8 + body.len()) as u32;
        [&size.to_be_bytes()[..], name, body].concat()
    }

    /// A fragment after 16 bytes, whose data begins `offset` bytes after `base`.
    fn file(base: u64, offset: i32) -> Vec<u8> {
        let head = [
            &[0, 0, 0, 0x39, 0, 0, 0, 1][..],
            &base.to_be_bytes(),
            &[0, 0, 2, 0, 0, 0, 0, 9, 1, 1, 0, 0],
        ];
        let run = [&[0, 0, 0, 1, 0, 0, 0, 1][..], &offset.to_be_bytes()];
        let track = [
            boxed(b"tfhd", &head.concat()),
            boxed(b"trun", &run.concat()),
        ];
        let fragment = boxed(b"moof", &boxed(b"traf", &track.concat()));
        [boxed(b"free", &[0; 8]), fragment, boxed(b"mdat", &[7; 9])].concat()
    }

    #[test]
    fn absolute_offsets_become_relative_to_the_fragment() {
        for (base, offset, expected) in [(16, 92, 92), (0, 108, 92), (108, 0, 92), (116, -8, 92)] {
            let bytes = file(base, offset);
            let all = with_relative_offsets(&bytes).expect("they can be followed");
            assert_eq!(all.len(), bytes.len());
            let moof = Boxes::new(&all).nth(1).expect("it is whole");
            let track = moof.children(&all).next().expect("it is whole");
            let parts: Vec<BoxRange> = track.children(&all).collect();
            let names = parts.iter().map(|part| part.name);
            assert_eq!(names.collect::<Vec<_>>(), [*b"tfhd", *b"free", *b"trun"]);
            let head = &all[parts[0].body..parts[0].end];
            let kept = [
                0, 2, 0, 0x38, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 9, 1, 1, 0, 0,
            ];
            assert_eq!(head, kept);
            let run = &all[parts[2].body + 8..parts[2].end];
            assert_eq!(run, i32::to_be_bytes(expected));
            // All other bytes are unchanged.
            let changed = parts[0].begin..parts[2].end;
            assert_eq!(all[..changed.start], bytes[..changed.start]);
            assert_eq!(all[changed.end..], bytes[changed.end..]);
            // Relative offsets are left unchanged.
            let again = with_relative_offsets(&all).expect("they can be followed");
            assert!(matches!(again, Cow::Borrowed(_)));
            // Truncated input is read as far as possible.
            for end in 0..bytes.len() {
                let _ = with_relative_offsets(&bytes[..end]);
            }
        }
    }

    #[test]
    fn offset_that_does_not_fit_is_refused() {
        let far = file(1 << 40, 0);
        let error = with_relative_offsets(&far).map(|_| ());
        assert_eq!(
            error,
            Err("the MP4 fragments have unsupported data offsets".to_owned())
        );
    }
}
