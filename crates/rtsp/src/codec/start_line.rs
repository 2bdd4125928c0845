//! Distinguishes start lines of messages from garbage (RFC 2326, 6.1 and 7.1).

use super::Method;
use kit::mediagen::steps;

/// Beginning of a status line.
const PROTOCOL: &[u8] = b"RTSP/";

/// Length of a version such as `RTSP/1.0`.
const VERSION_LENGTH: usize = 8;

/// Maximum length of a method name while the stream is in sync.
const METHOD_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// A line feed. Holds the offset of the version before it, as in a request; `None` if no
    /// version precedes it.
    LineFeed(Option<usize>),
    /// A byte that no start line contains: the line is garbage, whatever follows.
    InvalidByte,
}

/// Scan state of a line that may be a start line. If the beginning of the line turns out to be
/// garbage, the state remains valid for the rest, so that no byte is examined again for each
/// position at which a message might begin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineScan {
    /// Number of bytes examined. Once the end is known, its offset.
    scanned: usize,
    end: Option<LineEnd>,
}

impl LineScan {
    /// Returns the end of the line and its offset, if known.
    pub(super) fn end(&self) -> Option<(LineEnd, usize)> {
        self.end.map(|end| (end, self.scanned))
    }

    /// Examines the bytes of the line that arrived since the last call. `data` begins with the
    /// line.
    pub(super) fn advance(&mut self, data: &[u8]) {
        if self.end.is_some() {
            return;
        }
        let from = self.scanned;
        while let Some(&byte) = data.get(self.scanned) {
            match (byte, data.get(self.scanned + 1)) {
                (b'\n', _) => {
                    let version = version_offset(&data[..self.scanned]);
                    self.end = Some(LineEnd::LineFeed(version));
                    break;
                }
                // The next byte decides.
                (b'\r', None) => break,
                (b'\r', Some(b'\n')) => {}
                (b'\r', Some(_)) => {
                    self.scanned += 1;
                    self.end = Some(LineEnd::InvalidByte);
                    break;
                }
                (b'\t', _) => {}
                (0..0x20 | 0x7f, _) => {
                    self.end = Some(LineEnd::InvalidByte);
                    break;
                }
                _ => {}
            }
            self.scanned += 1;
        }
        steps::count_bytes(self.scanned - from + 1);
    }

    /// Returns the scan state of the bytes after the first `bytes`.
    pub(super) fn after(self, bytes: usize) -> LineScan {
        if bytes >= self.scanned {
            return LineScan::default();
        }
        let end = self.end.map(|end| match end {
            LineEnd::LineFeed(version) => {
                LineEnd::LineFeed(version.and_then(|version| version.checked_sub(bytes)))
            }
            LineEnd::InvalidByte => LineEnd::InvalidByte,
        });
        LineScan {
            scanned: self.scanned - bytes,
            end,
        }
    }
}

/// Returns the offset of the version at the end of a request line. A space must precede it.
fn version_offset(line: &[u8]) -> Option<usize> {
    let trimmed = line.trim_ascii_end();
    steps::count_bytes(line.len() - trimmed.len());
    let begin = trimmed.len().checked_sub(VERSION_LENGTH)?;
    let before = begin.checked_sub(1)?;
    (is_version(&trimmed[begin..]) && trimmed[before] == b' ').then_some(begin)
}

/// Returns whether a start line may begin with `data`, which is the part of the line that has
/// arrived. If `strict`, only known methods are accepted: for use while the stream is out of sync.
/// Examines a bounded number of bytes.
pub(super) fn may_begin(data: &[u8], strict: bool) -> bool {
    let common = data.len().min(PROTOCOL.len());
    if data[..common] == PROTOCOL[..common] {
        return true;
    }
    let first = &data[..data.len().min(METHOD_MAX + 1)];
    let method_end = steps::find(first, b' ');
    let method = &first[..method_end.unwrap_or(first.len())];
    if method.is_empty() {
        return false;
    }
    if strict {
        return Method::KNOWN.iter().any(|known| {
            let name = known.name().as_bytes();
            match method_end {
                Some(_) => name == method,
                None => name.starts_with(method),
            }
        });
    }
    method.len() <= METHOD_MAX
        && method
            .iter()
            .all(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'-'))
}

/// Returns whether `line` is a start line. The caller has checked its beginning (`may_begin`) and
/// that it contains no invalid byte ([`LineScan`]). `version` is the offset of the version at its
/// end.
pub(super) fn is_start_line(line: &[u8], version: Option<usize>) -> bool {
    if line.starts_with(PROTOCOL) {
        return is_status_line(line);
    }
    let first = &line[..line.len().min(METHOD_MAX + 1)];
    let (Some(method_end), Some(version)) = (steps::find(first, b' '), version) else {
        return false;
    };
    // A URL must be between method and version.
    let between = line.get(method_end..version).unwrap_or_default();
    let blanks = between.iter().position(|b| !b.is_ascii_whitespace());
    steps::count_bytes(blanks.unwrap_or(between.len()));
    blanks.is_some()
}

fn is_version(text: &[u8]) -> bool {
    text.strip_prefix(PROTOCOL).is_some_and(
        |number| matches!(number, [a, b'.', b] if a.is_ascii_digit() && b.is_ascii_digit()),
    )
}

fn is_status_line(line: &[u8]) -> bool {
    let Some((version, rest)) = line.split_at_checked(VERSION_LENGTH) else {
        return false;
    };
    let status = rest.trim_ascii_start();
    steps::count_bytes(rest.len() - status.len());
    is_version(version)
        && rest.first() == Some(&b' ')
        && status.len() >= 3
        && status[..3].iter().all(u8::is_ascii_digit)
        && status[0] != b'0'
        && status.get(3).is_none_or(|b| !b.is_ascii_digit())
}

/// Returns whether a known message may begin here, as far as bytes have arrived.
pub(super) fn may_begin_known(data: &[u8]) -> bool {
    let agrees = |name: &[u8]| {
        let common = name.len().min(data.len());
        name[..common] == data[..common]
    };
    can_begin_with(data[0], true)
        && (agrees(PROTOCOL)
            || Method::KNOWN
                .iter()
                .any(|known| agrees(known.name().as_bytes())))
}

/// Returns whether a message can begin with this byte. If the stream is `lost`, only a known
/// message.
pub(super) fn can_begin_with(byte: u8, lost: bool) -> bool {
    if lost {
        // The first letters of RTSP and of every known method.
        matches!(byte, b'A' | b'D' | b'G' | b'O' | b'P' | b'R' | b'S' | b'T')
    } else {
        byte.is_ascii_alphabetic()
    }
}
