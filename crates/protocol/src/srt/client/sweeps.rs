//! Times at which a player sends acknowledgements. NAKs for new gaps do not wait for them
//! ([`MediaEvent::FeedbackDue`](crate::session::MediaEvent)).

use std::time::Duration;

use measure::Time;

use super::GRID;
use crate::srt::arq::statistics::ReceiverStatistics;

/// How many turns of the grid lie between two sweeps at most, while packets come: as many as lie
/// between two full acknowledgements (draft-sharabayko-srt-01, section 4.8.1). Fewer of those would
/// be cheaper, but the server would have less to do than other players give it.
const TURNS_MAX: u64 = 2;

/// The longest time between two sweeps of a client to which nothing comes.
const IDLE_MAX: Duration = Duration::from_millis(40);

/// The sweeps of a client. To read a socket and to acknowledge costs more than all else that is
/// done for a packet, so it is done as seldom as the latency allows.
#[derive(Debug)]
pub(super) struct Sweeps {
    at: Time,
    every: Duration,
    /// Clients take turns, so that a worker is never long at it.
    phase: u64,
    /// Number of packets received at the last sweep.
    came: u64,
}

impl Sweeps {
    /// The first is at once. Clients of different seeds take different turns.
    pub(super) fn new(seed: u64) -> Sweeps {
        Sweeps {
            at: Time::ZERO,
            every: GRID,
            phase: (seed % TURNS_MAX) * GRID.as_nanos() as u64,
            came: 0,
        }
    }

    /// When the next one is.
    pub(super) fn at(&self) -> Time {
        self.at
    }

    /// There was one now, if it was time for it; plans the next. That is after an eighth of the
    /// latency, up to 10 ms; later while no packets come.
    pub(super) fn plan(&mut self, now: Time, latency: Duration, counted: &ReceiverStatistics) {
        if now < self.at {
            return;
        }
        let idle = std::mem::replace(&mut self.came, counted.pkt_recv) == counted.pkt_recv;
        let grid = GRID.as_nanos() as u64;
        let turns = (latency.as_nanos() as u64 / 8 / grid).clamp(1, TURNS_MAX);
        let usual = Duration::from_nanos(turns * grid);
        self.every = match idle {
            true => (2 * self.every).clamp(usual, (latency / 6).clamp(usual, IDLE_MAX)),
            false => usual,
        };
        let every = self.every.as_nanos() as u64;
        let next = ((now.as_nanos() + self.phase) / every + 1) * every;
        self.at = Time::from_nanos(next.saturating_sub(self.phase));
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

    /// Sweeps when it is time for it, so often; gives how long each waited for the next, in
    /// milliseconds.
    fn waits(sweeps: &mut Sweeps, count: u64, latency: Duration, comes: bool) -> Vec<u128> {
        let each = (1..=count).map(|turn| {
            let now = sweeps.at();
            let came = if comes {
                sweeps.came + turn
            } else {
                sweeps.came
            };
            sweeps.plan(now, latency, &counted(came));
            sweeps.at().since(now).as_millis()
        });
        each.collect()
    }

    #[test]
    fn a_client_is_swept_as_seldom_as_its_latency_allows() {
        for (latency, expected) in [(120, 10), (1000, 10), (80, 10), (79, 5), (0, 5)] {
            let mut sweeps = Sweeps::new(0);
            let waits = waits(&mut sweeps, 4, Duration::from_millis(latency), true);
            assert_eq!(waits, [expected; 4], "{latency}");
        }
    }

    #[test]
    fn without_packets_it_is_swept_less_often() {
        let mut sweeps = Sweeps::new(0);
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
            let mut sweeps = Sweeps::new(seed);
            sweeps.plan(Time::from_start(LATENCY), LATENCY, &counted(1));
            sweeps.at().since_start().as_millis()
        };
        assert_eq!([0, 1, 2, 3].map(at), [130, 125, 130, 125]);
        let mut sweeps = Sweeps::new(1);
        sweeps.plan(Time::from_start(LATENCY), LATENCY, &counted(1));
        sweeps.plan(Time::from_start(LATENCY), LATENCY, &counted(2));
        assert_eq!(sweeps.at(), Time::from_start(Duration::from_millis(125)));
    }
}
