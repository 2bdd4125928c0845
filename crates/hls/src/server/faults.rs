//! Faults that the reference server injects.

use std::time::Duration;

use kit::faults::{FaultSet, one_of, time};
use measure::Time;

/// Wrong answer to every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFault {
    /// This status, from 400 to 599, with a page.
    Status(u16),
    /// Status 200 with an HTML page.
    Html,
    /// A redirect to the same URL.
    Redirect,
    /// No answer at all.
    Silent,
}

/// Faults to inject. Default: none. Numbers of segments count from 0. If the server offers parts,
/// `late`, `slow`, `missing` and `damaged` apply to parts, which are numbered likewise, and to
/// segments with such a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerFaults {
    /// Number n, and delay: the answer for each n-th segment is late by the delay.
    pub late: Option<(u64, Duration)>,
    /// Number n, and duration: the body of each n-th segment is spread over this time.
    pub slow: Option<(u64, Duration)>,
    /// Number n: each n-th segment does not exist (404), although the playlist lists it.
    pub missing: Option<u64>,
    /// Number n: each n-th segment is stated as missing.
    pub gap: Option<u64>,
    /// Number n: before each n-th segment the playlist states a discontinuity.
    pub discontinuity: Option<u64>,
    /// Number n, and time: the playlist states that each n-th segment is longer by this time.
    pub wrong_duration: Option<(u64, Duration)>,
    /// Number n: each n-th segment or part is damaged. Its last transport packet is missing, or the
    /// last byte of its last box.
    pub damaged: Option<u64>,
    /// Number n: each n-th hint names a resource that the playlist does not list.
    pub wrong_hint: Option<u64>,
    /// Interval and duration of the times in which the playlists do not change.
    pub stale: Option<(Duration, Duration)>,
    /// True if a request never waits for what does not exist yet.
    pub no_wait: bool,
    /// Answer to every request instead of the right one.
    pub answer: Option<AnswerFault>,
}

const ANSWERS: [(&str, AnswerFault); 3] = [
    ("html", AnswerFault::Html),
    ("redirect", AnswerFault::Redirect),
    ("silent", AnswerFault::Silent),
];

impl ServerFaults {
    /// Time whose playlists are sent at `now`.
    pub(super) fn shown_at(&self, now: Time) -> Time {
        let Some((every, length)) = self.stale else {
            return now;
        };
        let (every, length) = (every.as_nanos(), length.as_nanos());
        let nanos = u128::from(now.as_nanos());
        let within = nanos % every;
        let fresh = every - length;
        match within > fresh {
            true => Time::from_nanos((nanos - within + fresh) as u64),
            false => now,
        }
    }

    /// Time from which playlists show what is complete at `at`.
    pub(super) fn published_at(&self, at: Time) -> Time {
        let Some((every, _)) = self.stale.filter(|_| self.shown_at(at) < at) else {
            return at;
        };
        let every = every.as_nanos() as u64;
        Time::from_nanos((at.as_nanos() / every + 1) * every)
    }
}

/// True if `number` is an n-th one, counted from 0.
pub(super) fn is_nth(fault: Option<u64>, number: u64) -> bool {
    fault.is_some_and(|nth| number % nth == nth - 1)
}

impl FaultSet for ServerFaults {
    fn known() -> Vec<&'static str> {
        vec![
            "late=5:1s",
            "slow=5:3s",
            "missing=5",
            "gap=5",
            "discontinuity=5",
            "wrong-duration=5:1s",
            "damaged=5",
            "wrong-hint=5",
            "stale=20s:5s",
            "no-wait",
            "answer=404",
        ]
    }

    fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        Some(match name {
            "late" => numbered_time(value).map(|fault| self.late = Some(fault)),
            "slow" => numbered_time(value).map(|fault| self.slow = Some(fault)),
            "missing" => number(value).map(|nth| self.missing = Some(nth)),
            "gap" => number(value).map(|nth| self.gap = Some(nth)),
            "discontinuity" => number(value).map(|nth| self.discontinuity = Some(nth)),
            "wrong-duration" => numbered_time(value).map(|fault| self.wrong_duration = Some(fault)),
            "damaged" => number(value).map(|nth| self.damaged = Some(nth)),
            "wrong-hint" => number(value).map(|nth| self.wrong_hint = Some(nth)),
            "stale" => stale(value).map(|fault| self.stale = Some(fault)),
            "no-wait" => match value {
                "" => {
                    self.no_wait = true;
                    Ok(())
                }
                _ => Err("this fault has no value".to_owned()),
            },
            "answer" => answer(value).map(|fault| self.answer = Some(fault)),
            _ => return None,
        })
    }
}

fn number(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number @ 1..) => Ok(number),
        _ => Err("expected a number from 1: 5 means each fifth".to_owned()),
    }
}

fn numbered_time(text: &str) -> Result<(u64, Duration), String> {
    let parts = text.split_once(':');
    let (nth, span) = parts.ok_or("expected a number and a time: `5:1s` means each fifth")?;
    Ok((number(nth)?, time(span)?))
}

fn stale(text: &str) -> Result<(Duration, Duration), String> {
    let parts = text.split_once(':');
    let (every, length) = parts.ok_or("expected interval and duration: `stale=20s:5s`")?;
    let (every, length) = (time(every)?, time(length)?);
    if length.is_zero() || every <= length {
        return Err("the duration must be longer than 0s and shorter than the interval".to_owned());
    }
    Ok((every, length))
}

fn answer(text: &str) -> Result<AnswerFault, String> {
    match text.parse() {
        Ok(status @ 400..=599) => Ok(AnswerFault::Status(status)),
        _ => {
            one_of(&ANSWERS, text).map_err(|names| format!("{names}, or a status from 400 to 599"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        let mut faults = ServerFaults::default();
        for known in ServerFaults::known() {
            faults.add(known).expect("it is known");
        }
        let seconds = Duration::from_secs;
        let expected = ServerFaults {
            late: Some((5, seconds(1))),
            slow: Some((5, seconds(3))),
            missing: Some(5),
            gap: Some(5),
            discontinuity: Some(5),
            wrong_duration: Some((5, seconds(1))),
            damaged: Some(5),
            wrong_hint: Some(5),
            stale: Some((seconds(20), seconds(5))),
            no_wait: true,
            answer: Some(AnswerFault::Status(404)),
        };
        assert_eq!(faults, expected);
        for (name, answer) in ANSWERS {
            faults.add(&format!("answer={name}")).expect("it is known");
            assert_eq!(faults.answer, Some(answer));
        }
        for wrong in [
            "lat=1:1s",
            "late=1",
            "late=0:1s",
            "slow=x:1s",
            "missing",
            "missing=0",
            "stale=5s",
            "stale=1s:1s",
            "stale=1s:0s",
            "no-wait=1",
            "answer=200",
        ] {
            faults.add(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn playlists_stand_still_at_the_end_of_each_interval() {
        let mut faults = ServerFaults::default();
        faults.add("stale=20s:5s").expect("it is known");
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        for (now, shown, published) in [(14, 14, 14), (15, 15, 15), (17, 15, 20), (36, 35, 40)] {
            assert_eq!(faults.shown_at(at(now)), at(shown));
            assert_eq!(faults.published_at(at(now)), at(published));
        }
    }
}
