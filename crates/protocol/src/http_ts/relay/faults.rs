//! What the reference relay does wrong on purpose.

use std::time::Duration;

use measure::units::{Ratio, TimeSpan};

/// A wrong answer to every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This status, 400 to 599, and a page.
    Status(u16),
    /// Status 200, and a page in HTML.
    Html,
    /// Status 200, and what is compressed with gzip (RFC 1952).
    Gzip,
    /// A head that does not end.
    EndlessHead,
    /// Chunks whose stated length is not theirs.
    BadChunks,
    /// A redirect to the same place.
    Redirect,
    /// A head, and nothing after it.
    Silent,
    /// Nothing at all.
    Mute,
}

/// All that the reference relay does wrong on purpose. Nothing by default. Shares are from 0 to 1,
/// and of the datagrams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelayFaults {
    /// The share that is left out.
    pub lose: f64,
    /// The share that is left out and in whose place the one before is sent once more: the number
    /// of bytes stays right.
    pub replace: f64,
    /// The share that is sent twice.
    pub duplicate: f64,
    /// The share of which the end is missing, mostly in the middle of a transport packet.
    pub truncate: f64,
    /// How long after the head of the answer the first datagram is passed on; what comes before is
    /// left out.
    pub slow_start: Duration,
    /// How often nothing is sent for how long, what comes meanwhile being sent then.
    pub stall: Option<(Duration, Duration)>,
    /// Whether groups stay joined that nobody watches any more, up to 1000 of them.
    pub keep_groups: bool,
    /// Whether a pair of sockets is opened for each client that has left, and never closed, up to
    /// 1000 pairs.
    pub keep_files: bool,
    /// How many datagrams of the group that was asked for last, by whomever, are passed on before
    /// those of the one that is asked for.
    pub old_channel: u64,
    /// What every request is answered with, instead of a stream.
    pub answer: Option<Answer>,
}

/// The faults, as they are written.
const KNOWN: [&str; 10] = [
    "lose=1%",
    "replace=1%",
    "duplicate=1%",
    "truncate=1%",
    "slow-start=2s",
    "stall=5s:1s",
    "keep-groups",
    "keep-files",
    "old-channel=100",
    "answer=404",
];

const ANSWERS: [(&str, Answer); 7] = [
    ("html", Answer::Html),
    ("gzip", Answer::Gzip),
    ("endless-head", Answer::EndlessHead),
    ("bad-chunks", Answer::BadChunks),
    ("redirect", Answer::Redirect),
    ("silent", Answer::Silent),
    ("mute", Answer::Mute),
];

impl RelayFaults {
    /// Adds one fault, as it is written after `--fault`. One that stands already is replaced.
    ///
    /// # Errors
    /// What is wrong with it, and what there is.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let (name, value) = (name.trim(), value.trim());
        let result = match name {
            "lose" => share(value).map(|share| self.lose = share),
            "replace" => share(value).map(|share| self.replace = share),
            "duplicate" => share(value).map(|share| self.duplicate = share),
            "truncate" => share(value).map(|share| self.truncate = share),
            "slow-start" => span(value).map(|span| self.slow_start = span),
            "stall" => stall(value).map(|stall| self.stall = Some(stall)),
            "keep-groups" => without_value(value).map(|()| self.keep_groups = true),
            "keep-files" => without_value(value).map(|()| self.keep_files = true),
            "old-channel" => number(value).map(|number| self.old_channel = number),
            "answer" => answer(value).map(|answer| self.answer = Some(answer)),
            _ => Err(format!(
                "there is no such fault; there are {}",
                listed(KNOWN)
            )),
        };
        result.map_err(|error| format!("fault `{text}`: {error}"))
    }
}

fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<Ratio>();
    share
        .map(|share| share.0)
        .map_err(|error| error.to_string())
}

fn span(text: &str) -> Result<Duration, String> {
    let span = text.parse::<TimeSpan>();
    span.map(|span| span.0).map_err(|error| error.to_string())
}

fn without_value(text: &str) -> Result<(), String> {
    match text {
        "" => Ok(()),
        _ => Err("it has no value".to_owned()),
    }
}

fn number(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number @ 1..) => Ok(number),
        _ => Err("write how many datagrams, such as `old-channel=100`".to_owned()),
    }
}

fn stall(text: &str) -> Result<(Duration, Duration), String> {
    let (every, length) = text
        .split_once(':')
        .ok_or("write how often and how long: `stall=5s:1s`")?;
    let (every, length) = (span(every)?, span(length)?);
    if length.is_zero() || every <= length {
        return Err("a stall must have a length, and end before the next begins".to_owned());
    }
    Ok((every, length))
}

fn answer(text: &str) -> Result<Answer, String> {
    if let Some((_, answer)) = ANSWERS.iter().find(|(name, _)| *name == text) {
        return Ok(*answer);
    }
    match text.parse() {
        Ok(status @ 400..=599) => Ok(Answer::Status(status)),
        _ => Err(format!(
            "write a status from 400 to 599, or {}",
            listed(ANSWERS.iter().map(|(name, _)| *name))
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        let mut faults = RelayFaults::default();
        for known in KNOWN {
            faults.add(known).expect("it is known");
        }
        let expected = RelayFaults {
            lose: 0.01,
            replace: 0.01,
            duplicate: 0.01,
            truncate: 0.01,
            slow_start: Duration::from_secs(2),
            stall: Some((Duration::from_secs(5), Duration::from_secs(1))),
            keep_groups: true,
            keep_files: true,
            old_channel: 100,
            answer: Some(Answer::Status(404)),
        };
        assert_eq!(faults, expected);
        for (name, answer) in ANSWERS {
            faults.add(&format!("answer={name}")).expect("it is known");
            assert_eq!(faults.answer, Some(answer));
        }
    }

    #[test]
    fn what_is_no_fault_is_refused_with_what_there_is() {
        let refused = |text: &str| RelayFaults::default().add(text).expect_err("it is wrong");
        assert!(refused("loss=1%").contains("`lose=1%`"));
        assert!(refused("lose=101%").contains("at most 100%"));
        assert!(refused("answer=200").contains("`html`"));
        for wrong in [
            "lose",
            "stall=5s",
            "stall=1s:1s",
            "stall=1s:0s",
            "slow-start=x",
            "keep-groups=1",
            "old-channel",
            "old-channel=0",
            "",
        ] {
            refused(wrong);
        }
    }
}
