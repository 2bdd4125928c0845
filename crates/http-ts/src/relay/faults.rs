//! Faults that the reference relay injects.

use kit::faults::{FaultSet, listed, share, time};
use std::time::Duration;

/// Wrong response to every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFault {
    /// This status, from 400 to 599, with a page.
    Status(u16),
    /// Status 200 with an HTML page.
    Html,
    /// Status 200 with data compressed by gzip (RFC 1952).
    Gzip,
    /// A response head that does not end.
    EndlessHead,
    /// Chunks whose stated length is wrong.
    BadChunks,
    /// A redirect to the same URL.
    Redirect,
    /// A response head, and nothing after it.
    Silent,
    /// No response at all.
    Mute,
}

/// Faults to inject. Default: none. Shares refer to datagrams and are from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelayFaults {
    /// Share of datagrams that are dropped.
    pub lose: f64,
    /// Share of datagrams that are replaced by a copy of the one before, so that the number of
    /// bytes stays right.
    pub replace: f64,
    /// Share of datagrams that are sent twice.
    pub duplicate: f64,
    /// Share of datagrams that are truncated, mostly within a transport packet.
    pub truncate: f64,
    /// Time from the response head to the first relayed datagram. Earlier datagrams are dropped.
    pub slow_start: Duration,
    /// Interval and duration of pauses. Datagrams that arrive during a pause are sent after it.
    pub stall: Option<(Duration, Duration)>,
    /// True if groups remain joined without clients, up to 1000 groups.
    pub keep_groups: bool,
    /// True if a pair of sockets is opened for each client that has left, and never closed, up to
    /// 1000 pairs.
    pub keep_files: bool,
    /// Number of datagrams of the previously requested group, by any client, that are relayed
    /// before those of the requested one.
    pub old_channel: u64,
    /// Response to every request instead of a stream.
    pub answer: Option<AnswerFault>,
}

const ANSWERS: [(&str, AnswerFault); 7] = [
    ("html", AnswerFault::Html),
    ("gzip", AnswerFault::Gzip),
    ("endless-head", AnswerFault::EndlessHead),
    ("bad-chunks", AnswerFault::BadChunks),
    ("redirect", AnswerFault::Redirect),
    ("silent", AnswerFault::Silent),
    ("mute", AnswerFault::Mute),
];

impl FaultSet for RelayFaults {
    fn known() -> Vec<&'static str> {
        vec![
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
        ]
    }

    fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        Some(match name {
            "lose" => share(value).map(|share| self.lose = share),
            "replace" => share(value).map(|share| self.replace = share),
            "duplicate" => share(value).map(|share| self.duplicate = share),
            "truncate" => share(value).map(|share| self.truncate = share),
            "slow-start" => time(value).map(|span| self.slow_start = span),
            "stall" => parse_stall(value).map(|stall| self.stall = Some(stall)),
            "keep-groups" => without_value(value).map(|()| self.keep_groups = true),
            "keep-files" => without_value(value).map(|()| self.keep_files = true),
            "old-channel" => parse_number(value).map(|number| self.old_channel = number),
            "answer" => parse_answer(value).map(|answer| self.answer = Some(answer)),
            _ => return None,
        })
    }
}

fn without_value(text: &str) -> Result<(), String> {
    match text {
        "" => Ok(()),
        _ => Err("this fault has no value".to_owned()),
    }
}

fn parse_number(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number @ 1..) => Ok(number),
        _ => Err("expected a number of datagrams, such as `old-channel=100`".to_owned()),
    }
}

fn parse_stall(text: &str) -> Result<(Duration, Duration), String> {
    let (every, length) = text
        .split_once(':')
        .ok_or("expected interval and duration: `stall=5s:1s`")?;
    let (every, length) = (time(every)?, time(length)?);
    if length.is_zero() || every <= length {
        return Err("a stall must be longer than 0s and end before the next begins".to_owned());
    }
    Ok((every, length))
}

fn parse_answer(text: &str) -> Result<AnswerFault, String> {
    if let Some((_, answer)) = ANSWERS.iter().find(|(name, _)| *name == text) {
        return Ok(*answer);
    }
    match text.parse() {
        Ok(status @ 400..=599) => Ok(AnswerFault::Status(status)),
        _ => Err(format!(
            "expected a status from 400 to 599, or {}",
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
        for known in RelayFaults::known() {
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
            answer: Some(AnswerFault::Status(404)),
        };
        assert_eq!(faults, expected);
        for (name, answer) in ANSWERS {
            faults.add(&format!("answer={name}")).expect("it is known");
            assert_eq!(faults.answer, Some(answer));
        }
    }

    #[test]
    fn unknown_faults_are_rejected_with_the_known_ones() {
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
