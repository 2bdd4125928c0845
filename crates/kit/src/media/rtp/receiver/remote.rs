//! Stream that a receiver on another machine counts.

use std::time::Duration;

use measure::Time;

use super::{RtpReceiver, StreamCounts};

impl RtpReceiver {
    /// Represents a receiver on another machine from now on. That receiver counts the stream and
    /// adds it to the population's figures; this one only returns the counts, and the total
    /// duration of the stalls, that it reported.
    pub fn set_remote_counts(
        &mut self,
        arrivals: Option<(Time, Time)>,
        (counts, stalled): (StreamCounts, Duration),
    ) {
        self.finished = true;
        self.counts = counts;
        self.playout.playing.set_remote_stalls(stalled);
        if let Some((first, last)) = arrivals {
            self.first_arrival.get_or_insert(first);
            self.arrivals.begin(last.max(self.arrivals.last()));
        }
    }
}
