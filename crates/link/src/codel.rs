//! Controlled delay: which packets a queue drops that stands for too long (RFC 8289, 5).

use std::time::Duration;

use measure::Time;

/// The state of RFC 8289, 5.3.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoDel {
    /// When the waiting will have been too long for an interval; none while it is not.
    first_above: Option<Time>,
    dropping: bool,
    drop_next: Time,
    count: u32,
    last_count: u32,
}

impl CoDel {
    /// Whether the packet that leaves the queue now, after it waited so long, may be dropped (5.5).
    fn may_drop(
        &mut self,
        now: Time,
        waited: Duration,
        is_last: bool,
        target: Duration,
        interval: Duration,
    ) -> bool {
        // With one packet or less in the queue it does not stand.
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

    /// Whether the packet that leaves the queue now is to be dropped (5.4). `is_last` says that
    /// none is behind it.
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
        // Soon after it dropped last, it goes on at nearly the rate that was right then.
        let delta = self.count.saturating_sub(self.last_count);
        let recent = now.since(self.drop_next) < interval * 16;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = now + self.spacing(interval);
        self.last_count = self.count;
        true
    }

    /// The time to the next drop: it shrinks with the root of their number.
    fn spacing(&self, interval: Duration) -> Duration {
        interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}
