//! CoDel (Controlled Delay): drops packets from a standing queue (RFC 8289, 5).

use std::time::Duration;

use measure::Time;

/// State of the algorithm (RFC 8289, 5.3).
#[derive(Clone, Debug, Default)]
pub(crate) struct CoDel {
    /// Time at which the delay will have been above target for an interval; `None` while it is
    /// below.
    first_above: Option<Time>,
    dropping: bool,
    drop_next: Time,
    count: u32,
    last_count: u32,
}

impl CoDel {
    /// Whether the packet that leaves the queue now, after `waited`, may be dropped (5.5).
    fn may_drop(
        &mut self,
        now: Time,
        waited: Duration,
        is_last: bool,
        target: Duration,
        interval: Duration,
    ) -> bool {
        // A queue of at most one packet is not a standing queue.
        if waited < target || is_last {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now + interval);
                false
            }
            Some(at) => now >= at,
        }
    }

    /// Whether to drop the packet that leaves the queue now (5.4). `is_last`: the queue is empty
    /// behind it.
    pub(crate) fn drops(
        &mut self,
        now: Time,
        waited: Duration,
        is_last: bool,
        target: Duration,
        interval: Duration,
    ) -> bool {
        let may_drop = self.may_drop(now, waited, is_last, target, interval);
        if self.dropping {
            if !may_drop {
                self.dropping = false;
            } else if now >= self.drop_next {
                self.count += 1;
                self.drop_next += self.spacing(interval);
                return true;
            }
            return false;
        }
        if !may_drop {
            return false;
        }
        self.dropping = true;
        // Shortly after the last dropping state, dropping resumes at nearly the same rate.
        let delta = self.count.saturating_sub(self.last_count);
        let recent = now.since(self.drop_next) < interval * 16;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = now + self.spacing(interval);
        self.last_count = self.count;
        true
    }

    /// Interval to the next drop. It shrinks with the square root of the number of drops.
    fn spacing(&self, interval: Duration) -> Duration {
        interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}
