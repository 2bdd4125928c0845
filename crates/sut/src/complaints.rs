//! Complaints in a server's log: lines that match a pattern are counted, and the first ones of each
//! pattern are kept.
//!
//! The log is the output of a launched server, or a file that it writes. It is read continuously,
//! and every step has a limit: the number of lines and the time in a window, and the bytes of a
//! file. The excess is counted, but not searched.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use regex_lite::Regex;
use scenario::ServerLog;

use crate::error::SutError;
use crate::log::{Lines, pattern};

/// Default patterns, upper or lower case: lists of whole words, of which those with a star may
/// continue. The first pattern with a word in a line of the log counts the line.
pub const DEFAULT_PATTERNS: [&str; 6] = [
    "too many open files|no file descriptors",
    "out of memory|cannot allocate|can't allocate|no buffer space",
    "too old|too late|discard*|dropped|dropping",
    "timeout|timed out|time out",
    "panic*|fatal*|segfault|segmentation fault",
    "error|errors|fail|fails|failed|failure|failures",
];

/// Maximum number of lines that are searched in a window.
const LINES_A_WINDOW: u64 = 10_000;

/// Maximum time for searching lines in a window: a regular expression takes up to a microsecond for
/// each letter.
const TIME_A_WINDOW: Duration = Duration::from_millis(50);

/// Maximum number of bytes of a line that are searched.
const LINE_BYTES_MAX: usize = 512;

/// Number of lines that are kept of each pattern: the first ones.
const SAMPLES: u64 = 3;

/// Maximum length of a kept line, in characters.
const SAMPLE_MAX: usize = 240;

/// Maximum number of bytes of a file that are read in a window.
const READ_A_WINDOW: u64 = 1 << 20;

/// A line of the log that matches a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The pattern that it matches.
    pub pattern: String,
    /// The line, at most 240 characters of it and without control characters.
    pub text: String,
}

/// Number of lines that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCount {
    pub pattern: String,
    /// Number of lines that match the pattern and no earlier one.
    pub lines: u64,
    /// First of these lines.
    pub first: String,
}

/// Compiled patterns, and the limits used up in the current window. Default: they match nothing.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    all: Vec<(String, LineMatcher)>,
    /// Patterns of lines that are not counted.
    ignored: Vec<Regex>,
    searched_lines: AtomicU64,
    nanos: AtomicU64,
}

/// Matcher of complaints.
#[derive(Debug)]
enum LineMatcher {
    /// Lower-case words, each with whether it may continue.
    Words(Vec<(&'static str, bool)>),
    Pattern(Regex),
}

impl LineMatcher {
    fn words(words: &'static str) -> LineMatcher {
        let words = words.split('|');
        LineMatcher::Words(
            words
                .map(|word| match word.strip_suffix('*') {
                    Some(beginning) => (beginning, true),
                    None => (word, false),
                })
                .collect(),
        )
    }

    fn is_in(&self, line: &str, small: &str) -> bool {
        match self {
            LineMatcher::Pattern(regex) => regex.is_match(line),
            LineMatcher::Words(words) => words.iter().any(|&(word, goes_on)| {
                let letter = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
                small.match_indices(word).any(|(at, _)| {
                    let (before, after) = (&small[..at], &small[at + word.len()..]);
                    !letter(before.chars().next_back())
                        && (goes_on || !letter(after.chars().next()))
                })
            }),
        }
    }
}

impl Patterns {
    pub(crate) fn new(spec: &ServerLog) -> Result<Patterns, SutError> {
        let all = match spec.patterns.is_empty() {
            true => DEFAULT_PATTERNS
                .iter()
                .map(|&words| (words.to_owned(), LineMatcher::words(words)))
                .collect(),
            false => spec
                .patterns
                .iter()
                .map(|text| Ok((text.clone(), LineMatcher::Pattern(pattern(text)?))))
                .collect::<Result<_, SutError>>()?,
        };
        let mut patterns = Patterns {
            all,
            ..Patterns::default()
        };
        patterns.ignore(&spec.ignore)?;
        Ok(patterns)
    }

    /// Adds patterns of lines that are not counted.
    pub(crate) fn ignore(&mut self, more: &[String]) -> Result<(), SutError> {
        for text in more {
            self.ignored.push(pattern(text)?);
        }
        Ok(())
    }

    /// Searches output for complaints. Lines beyond the limits are counted as skipped.
    pub(crate) fn find(&self, lines: &mut Lines, bytes: &[u8]) -> FoundLines {
        let mut found_lines = FoundLines::default();
        lines.for_each_line(bytes, |line| {
            if self.all.is_empty() {
                return;
            }
            if self.searched_lines.fetch_add(1, Ordering::Relaxed) >= LINES_A_WINDOW
                || Duration::from_nanos(self.nanos.load(Ordering::Relaxed)) >= TIME_A_WINDOW
            {
                found_lines.skipped += 1;
                return;
            }
            let begun = Instant::now();
            let mut end = line.len().min(LINE_BYTES_MAX);
            while !line.is_char_boundary(end) {
                end -= 1;
            }
            let start = &line[..end];
            let small = start.to_ascii_lowercase();
            let found = self
                .all
                .iter()
                .position(|(_, matcher)| matcher.is_in(start, &small))
                .filter(|_| !self.ignored.iter().any(|regex| regex.is_match(start)));
            let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.nanos.fetch_add(nanos, Ordering::Relaxed);
            if let Some(index) = found {
                let clean = line.trim().chars().take(SAMPLE_MAX);
                let clean = clean.map(|letter| match letter.is_control() {
                    true => ' ',
                    false => letter,
                });
                found_lines.found.push((index, clean.collect()));
            }
        });
        found_lines
    }
}

/// Complaints found in some output.
#[derive(Debug, Default)]
pub(crate) struct FoundLines {
    found: Vec<(usize, String)>,
    skipped: u64,
}

/// Complaints found since the beginning.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    /// Number of lines and first line of each pattern, by the pattern's index.
    counts: Vec<(u64, String)>,
    since_last_call: u64,
    skipped: u64,
    /// Kept lines that have not been reported yet.
    unreported: Vec<(usize, String)>,
}

impl Complaints {
    pub(crate) fn add(&mut self, found_lines: FoundLines) {
        self.skipped += found_lines.skipped;
        for (index, line) in found_lines.found {
            if self.counts.len() <= index {
                self.counts.resize_with(index + 1, Default::default);
            }
            let (count, first) = &mut self.counts[index];
            *count += 1;
            self.since_last_call += 1;
            if *count == 1 {
                first.clone_from(&line);
            }
            if *count <= SAMPLES {
                self.unreported.push((index, line));
            }
        }
    }

    /// Returns the numbers of complaints and of skipped lines since the last call, and begins a
    /// window.
    pub(crate) fn take_counts(&mut self, patterns: &Patterns) -> (u64, u64) {
        patterns.searched_lines.store(0, Ordering::Relaxed);
        patterns.nanos.store(0, Ordering::Relaxed);
        (
            std::mem::take(&mut self.since_last_call),
            std::mem::take(&mut self.skipped),
        )
    }

    /// Returns the lines kept since the last call.
    pub(crate) fn take_unreported(&mut self, patterns: &Patterns) -> Vec<LogLine> {
        let fresh = std::mem::take(&mut self.unreported);
        fresh
            .into_iter()
            .map(|(index, text)| LogLine {
                pattern: patterns.all[index].0.clone(),
                text,
            })
            .collect()
    }

    /// Returns the number of lines of each pattern, highest first.
    pub(crate) fn counts(&self, patterns: &Patterns) -> Vec<LogCount> {
        let mut counts: Vec<LogCount> = self
            .counts
            .iter()
            .zip(&patterns.all)
            .filter(|((lines, _), _)| *lines > 0)
            .map(|((lines, first), (pattern, _))| LogCount {
                pattern: pattern.clone(),
                lines: *lines,
                first: first.clone(),
            })
            .collect();
        counts.sort_by_key(|count| std::cmp::Reverse(count.lines));
        counts
    }
}

/// Follows a log file that a server writes.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    path: PathBuf,
    file: Option<(File, u64)>,
    lines: Lines,
    /// Bytes that were written but not read, because they exceeded the limit.
    pub(crate) skipped_bytes: u64,
}

impl Follower {
    /// Begins at the end of the file. If the file is absent, it is awaited.
    ///
    /// # Errors
    /// If the path is not a regular file, or the file cannot be read.
    pub(crate) fn new(path: &Path) -> Result<Follower, SutError> {
        let mut follower = Follower {
            path: path.to_owned(),
            ..Follower::default()
        };
        follower.begin()?;
        Ok(follower)
    }

    /// Skips the current content of the file.
    pub(crate) fn begin(&mut self) -> Result<(), SutError> {
        self.lines = Lines::default();
        self.file = match open(&self.path) {
            Ok(mut found) => {
                found.1 = found.0.seek(SeekFrom::End(0)).unwrap_or(0);
                Some(found)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(SutError::Unusable(format!(
                    "the server's log {} cannot be read: {error}",
                    self.path.display()
                )));
            }
        };
        Ok(())
    }

    /// Reads the text that was added.
    pub(crate) fn read_added(&mut self, patterns: &Patterns) -> FoundLines {
        let mut found_lines = FoundLines::default();
        self.read_on(patterns, &mut found_lines);
        // The file may have been replaced or truncated: it is then read from its beginning.
        let Ok(now) = std::fs::metadata(&self.path) else {
            return found_lines;
        };
        let same = self.file.as_ref().is_some_and(|(file, at)| {
            file.metadata().is_ok_and(|own| {
                (own.dev(), own.ino()) == (now.dev(), now.ino()) && now.len() >= *at
            })
        });
        if !same && now.is_file() {
            self.lines = Lines::default();
            self.file = open(&self.path).ok();
            self.read_on(patterns, &mut found_lines);
        }
        found_lines
    }

    /// Reads the open file on from where the last reading ended.
    fn read_on(&mut self, patterns: &Patterns, found_lines: &mut FoundLines) {
        let Some((file, at)) = &mut self.file else {
            return;
        };
        let end = file.metadata().map_or(*at, |file| file.len());
        let new = end.saturating_sub(*at);
        if new > READ_A_WINDOW {
            self.skipped_bytes += new - READ_A_WINDOW;
            self.lines = Lines::default();
            *at = end - READ_A_WINDOW;
        }
        if file.seek(SeekFrom::Start(*at)).is_err() {
            return;
        }
        let mut buffer = [0; 16 * 1024];
        let mut left = READ_A_WINDOW;
        while left > 0 {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    *at += length as u64;
                    left = left.saturating_sub(length as u64);
                    let more = patterns.find(&mut self.lines, &buffer[..length]);
                    found_lines.skipped += more.skipped;
                    found_lines.found.extend(more.found);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }
}

/// Opens a regular file at its beginning. Any other kind is refused: it may never end.
fn open(path: &Path) -> std::io::Result<(File, u64)> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    Ok((File::open(path)?, 0))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn defaults() -> Patterns {
        Patterns::new(&ServerLog::default()).expect("they are good")
    }

    fn line_counts(complaints: &Complaints, patterns: &Patterns) -> Vec<(u64, String)> {
        let counts = complaints.counts(patterns).into_iter();
        counts.map(|count| (count.lines, count.first)).collect()
    }

    #[test]
    fn default_patterns_match_only_complaints() {
        let patterns = defaults();
        for (line, complains) in [
            ("[00f1] main error: cannot bind", true),
            ("Discarding too old outgoing packet", true),
            ("accept4() failed (24: Too many open files)", true),
            ("ERR: Failure to send", true),
            ("request timed out", true),
            ("terror and failover mode are on", false),
            ("listening on 8554", false),
            ("GET /errorless 200", false),
            ("Fatalité é error", true),
            // Not split within a character.
            (&"\u{20ac}".repeat(500), false),
        ] {
            let found_lines = patterns.find(&mut Lines::default(), format!("{line}\n").as_bytes());
            assert_eq!(!found_lines.found.is_empty(), complains, "{line}");
        }
    }

    #[test]
    fn lines_are_counted_by_pattern_and_the_first_are_kept() {
        let patterns = defaults();
        let mut complaints = Complaints::default();
        let mut lines = Lines::default();
        for number in 0..100 {
            let text = format!("packet {number} \u{1b}is too old\n");
            // In two pieces.
            let (one, two) = text.as_bytes().split_at(9);
            complaints.add(patterns.find(&mut lines, one));
            complaints.add(patterns.find(&mut lines, two));
        }
        complaints.add(patterns.find(&mut lines, b"an error\nwell\nno end of error"));
        assert_eq!(complaints.take_counts(&patterns), (101, 0));
        assert_eq!(complaints.take_counts(&patterns), (0, 0));
        let fresh = complaints.take_unreported(&patterns);
        assert_eq!(fresh.len(), 3 + 1);
        assert_eq!(fresh[2].text, "packet 2  is too old");
        assert_eq!(complaints.take_unreported(&patterns), []);
        assert_eq!(
            line_counts(&complaints, &patterns),
            [
                (100, "packet 0  is too old".to_owned()),
                (1, "an error".to_owned())
            ]
        );
    }

    #[test]
    fn flood_is_searched_up_to_the_limit() {
        let patterns = defaults();
        let mut complaints = Complaints::default();
        let flood = "error\n".repeat(25_000);
        complaints.add(patterns.find(&mut Lines::default(), flood.as_bytes()));
        let (seen, skipped) = complaints.take_counts(&patterns);
        assert!((1..=10_000).contains(&seen), "{seen}");
        assert_eq!(seen + skipped, 25_000);
        // The next window has new limits.
        complaints.add(patterns.find(&mut Lines::default(), b"error\n"));
        assert_eq!(complaints.take_counts(&patterns), (1, 0));
    }

    #[test]
    fn log_file_is_followed_through_rotation() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let patterns = defaults();
        let mut complaints = Complaints::default();
        let mut follower = Follower::new(&path).expect("it may come later");
        let write = |text: &str| {
            let mut options = std::fs::OpenOptions::new();
            let mut file = options
                .append(true)
                .create(true)
                .open(&path)
                .expect("it opens");
            file.write_all(text.as_bytes()).expect("written");
        };
        let mut count_new = |follower: &mut Follower| {
            complaints.add(follower.read_added(&patterns));
            complaints.take_counts(&patterns).0
        };
        write("error 1\n");
        assert_eq!(count_new(&mut follower), 1, "it came after the beginning");
        write("error 2\nerror 3\nerr");
        assert_eq!(count_new(&mut follower), 2);
        write("or 4\n");
        assert_eq!(count_new(&mut follower), 1, "in two pieces");
        write("error 5\n");
        std::fs::rename(&path, folder.path().join("log.1")).expect("renamed");
        write("error 6\nerror 7\n");
        assert_eq!(count_new(&mut follower), 3, "the end of one and the next");
        std::fs::write(&path, "error\n").expect("written");
        assert_eq!(count_new(&mut follower), 1, "emptied");
        write(&"x".repeat(3 << 20));
        write("\nerror 8\n");
        assert_eq!(count_new(&mut follower), 1, "the end of too much");
        assert!(follower.skipped_bytes > 0);
        let mut late = Follower::new(&path).expect("it is there");
        assert_eq!(count_new(&mut late), 0);
        assert!(Follower::new(folder.path()).is_err(), "it is no file");
    }

    #[test]
    fn own_patterns_replace_the_defaults() {
        let spec = |patterns: &[&str]| ServerLog {
            file: None,
            patterns: patterns.iter().map(|&text| text.to_owned()).collect(),
            ignore: Vec::new(),
        };
        let patterns = Patterns::new(&spec(&["overrun \\d+"])).expect("good");
        let found_lines = patterns.find(&mut Lines::default(), b"error\noverrun 17\n");
        assert_eq!(found_lines.found, [(0, "overrun 17".to_owned())]);
        let error = Patterns::new(&spec(&["a("])).expect_err("bad").to_string();
        assert!(error.contains("`a(`"), "{error}");
    }

    #[test]
    fn ignored_lines_are_not_counted() {
        let ignore = vec!["^\\[WARN\\] no error \\d".to_owned()];
        let spec = ServerLog {
            ignore,
            ..ServerLog::default()
        };
        let mut patterns = Patterns::new(&spec).expect("good");
        patterns
            .ignore(&["late again".to_owned()])
            .expect("good as well");
        let log = b"[WARN] no error 7\n[WARN] error 7\ntoo late again\ntoo late\n";
        let found_lines = patterns.find(&mut Lines::default(), log);
        let found: Vec<_> = found_lines
            .found
            .iter()
            .map(|(_, line)| line.as_str())
            .collect();
        assert_eq!(found, ["[WARN] error 7", "too late"]);
        let error = patterns.ignore(&["a(".to_owned()]).expect_err("bad");
        assert!(error.to_string().contains("`a(`"), "{error}");
    }
}
