//! Waits and silences of the players of all protocols: their bounds, and their words in failures.

#![deny(missing_docs)]

use std::net::SocketAddr;
use std::time::Duration;

use measure::{Recorder, Time};

use crate::media::silence;
use crate::metrics::{STARTUP_DELAY, STARTUP_DELAY_FROM_SENT};

/// Minimum time that a stopped client must have waited for an answer or for media before the wait
/// counts as a failure of the server: well above what a working server takes, and below what a
/// viewer tolerates. Without it, a run that is shorter than the time-outs would pass against a
/// server that never answers.
pub const FAILED_WAIT_MIN: Duration = Duration::from_secs(1);

/// Local and remote address of a connection. The remote one may be unknown.
pub type Addresses = (SocketAddr, Option<SocketAddr>);

/// Arrival times of the media of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaTimes {
    /// Arrival of the first packet or frame.
    pub first: Time,
    /// Arrival of the last one.
    pub last: Time,
    /// Longest gap between two of them.
    pub longest_gap: Duration,
}

impl MediaTimes {
    /// Returns how long no media has arrived until `now`, if that is too long to be a gap like
    /// those before. `silence` is the configured silence after which media counts as stopped.
    pub fn stopped_for(&self, now: Time, silence: Duration) -> Option<Duration> {
        let silent = now.since(self.last);
        let came = self.last.since(self.first);
        let bound = silence::bound(came, self.longest_gap, silence);
        (silent >= bound).then_some(silent)
    }
}

/// Records the delays of a start whose media began at `at`. The client was due to start at `due`,
/// and started at `started`.
pub fn record_startup(recorder: &mut Recorder, at: Time, due: Time, started: Time) {
    recorder.record_duration(STARTUP_DELAY, at.since(due));
    recorder.record_duration(STARTUP_DELAY_FROM_SENT, at.since(started));
}

/// Describes how long media had been received at `now`; `first` is its arrival.
pub fn describe_progress(first: Option<Time>, now: Time) -> String {
    match first {
        Some(first) => format!("after {:.3} s of media", now.since(first).as_secs_f64()),
        None => "before any media".to_owned(),
    }
}

/// Describes a wait that ended because the client was stopped.
pub fn describe_wait(waited: Duration) -> String {
    format!(
        "{:.3} s, until the client was stopped",
        waited.as_secs_f64()
    )
}

/// Describes media that had stopped before its client was stopped. `what` is a part of it, such as
/// `packet`.
pub fn describe_silence(what: &str, silent: Duration) -> String {
    let silent = silent.as_secs_f64();
    format!("no {what} for {silent:.3} s until the client was stopped")
}

/// Like [`describe_silence`], with the addresses of the connection.
pub fn describe_stopped(what: &str, silent: Duration, ends: &str) -> String {
    format!("{} ({ends})", describe_silence(what, silent))
}

/// Describes the addresses of a connection to this host and port.
pub fn describe_addresses(addresses: Option<Addresses>, host: &str, port: u16) -> String {
    match addresses {
        Some((local, Some(remote))) => format!("{local} to {remote}"),
        Some((local, None)) => format!("{local} to {host}:{port}"),
        None => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_measured_from_the_last_arrival() {
        let at = |millis| Time::from_start(Duration::from_millis(millis));
        let times = MediaTimes {
            first: at(1_000),
            last: at(5_000),
            longest_gap: Duration::from_millis(40),
        };
        let silence = Duration::from_secs(10);
        assert_eq!(times.stopped_for(at(6_999), silence), None);
        assert_eq!(
            times.stopped_for(at(7_000), silence),
            Some(Duration::from_secs(2))
        );
    }

    #[test]
    fn addresses_are_as_complete_as_known() {
        let local = SocketAddr::from(([127, 0, 0, 1], 5));
        let remote = SocketAddr::from(([127, 0, 0, 2], 6));
        let of = |addresses| describe_addresses(addresses, "h", 7);
        assert_eq!(of(None), "h:7");
        assert_eq!(of(Some((local, None))), "127.0.0.1:5 to h:7");
        assert_eq!(
            of(Some((local, Some(remote)))),
            "127.0.0.1:5 to 127.0.0.2:6"
        );
    }
}
