//! Times at which a player sends acknowledgements. NAKs for new gaps do not wait for them
//! ([`MediaEvent::FeedbackDue`](session::MediaEvent)).

use std::time::Duration;

use measure::Time;

use super::WAKEUP_GRID;
use crate::arq::statistics::ReceiverStatistics;

/// Maximum number of grid periods between two sweeps while packets arrive: the interval of full
/// acknowledgements (draft-sharabayko-srt-01, section 4.8.1). Fewer acknowledgements would be
/// cheaper, but the server would have less work than with other players.
const GRID_PERIODS_MAX: u64 = 2;

/// Maximum interval of sweeps of a client that receives no packets.
const IDLE_MAX: Duration = Duration::from_millis(40);

/// Schedule of the sweeps of a client. Reading a socket and acknowledging costs more than all other
/// work for a packet, so it is done as rarely as the latency allows.
#[derive(Debug)]
pub(super) struct AckSchedule {
    /// Time of the next sweep.
    pub(super) next_at: Time,
    interval: Duration,
    /// Offset of the sweeps: clients take turns, so that a worker is never busy with them for long.
    phase: u64,
    /// Number of packets received at the last sweep.
    received: u64,
}

impl AckSchedule {
    /// Creates a schedule whose first sweep is due at once. Clients with different seeds take
    /// different turns.
    pub(super) fn new(seed: u64) -> AckSchedule {
        AckSchedule {
            next_at: Time::ZERO,
            interval: WAKEUP_GRID,
            phase: (seed % GRID_PERIODS_MAX) * WAKEUP_GRID.as_nanos() as u64,
            received: 0,
        }
    }

    /// Plans the next sweep if one was due: after an eighth of the latency, at least 5 and at most
    /// 10 ms; later while no packets arrive.
    pub(super) fn plan(&mut self, now: Time, latency: Duration, counted: &ReceiverStatistics) {
        if now < self.next_at {
            return;
        }
        let idle = std::mem::replace(&mut self.received, counted.pkt_recv) == counted.pkt_recv;
        let grid = WAKEUP_GRID.as_nanos() as u64;
        let turns = (latency.as_nanos() as u64 / 8 / grid).clamp(1, GRID_PERIODS_MAX);
        let usual = Duration::from_nanos(turns * grid);
        self.interval = match idle {
            true => (2 * self.interval).clamp(usual, (latency / 6).clamp(usual, IDLE_MAX)),
            false => usual,
        };
        let every = self.interval.as_nanos() as u64;
        let next = ((now.as_nanos() + self.phase) / every + 1) * every;
        self.next_at = Time::from_nanos(next.saturating_sub(self.phase));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: Duration = Duration::from_millis(120);

    fn counted(came: u64) -> ReceiverStatistics {
        ReceiverStatistics {
            pkt_recv: came,
            ..ReceiverStatistics::default()
        }
    }

    /// Performs `count` sweeps, each when it is due. Returns the intervals after them, in
    /// milliseconds.
    fn waits(sweeps: &mut AckSchedule, count: u64, latency: Duration, comes: bool) -> Vec<u128> {
        let each = (1..=count).map(|turn| {
            let now = sweeps.next_at;
            let came = if comes {
                sweeps.received + turn
            } else {
                sweeps.received
            };
            sweeps.plan(now, latency, &counted(came));
            sweeps.next_at.since(now).as_millis()
        });
        each.collect()
    }

    #[test]
    fn sweeps_are_as_rare_as_the_latency_allows() {
        for (latency, expected) in [(120, 10), (1000, 10), (80, 10), (79, 5), (0, 5)] {
            let mut sweeps = AckSchedule::new(0);
            let waits = waits(&mut sweeps, 4, Duration::from_millis(latency), true);
            assert_eq!(waits, [expected; 4], "{latency}");
        }
    }

    #[test]
    fn sweeps_are_rarer_without_packets() {
        let mut sweeps = AckSchedule::new(0);
        sweeps.plan(Time::ZERO, LATENCY, &counted(1));
        let idle = waits(&mut sweeps, 5, LATENCY, false);
        assert_eq!(idle[1..], [20; 4]);
        let idle = waits(&mut sweeps, 5, Duration::from_secs(1), false);
        assert_eq!(idle[1..], [40; 4]);
        assert_eq!(waits(&mut sweeps, 2, LATENCY, true)[1], 10);
    }

    #[test]
    fn clients_take_turns() {
        let at = |seed| {
            let mut sweeps = AckSchedule::new(seed);
            sweeps.plan(Time::from_start(LATENCY), LATENCY, &counted(1));
            sweeps.next_at.since_start().as_millis()
        };
        assert_eq!([0, 1, 2, 3].map(at), [130, 125, 130, 125]);
        let mut sweeps = AckSchedule::new(1);
        sweeps.plan(Time::from_start(LATENCY), LATENCY, &counted(1));
        sweeps.plan(Time::from_start(LATENCY), LATENCY, &counted(2));
        assert_eq!(sweeps.next_at, Time::from_start(Duration::from_millis(125)));
    }
}
