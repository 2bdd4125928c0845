//! One worker's part of a load, carried out step by step.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use measure::Time;

use crate::plan::{ArrivalRate, Piece, Step, pieces};
use crate::spec::{Load, Shape};

/// The least time between two starts in one slot when a client rejoins: 1 s. A server that refuses
/// everybody is asked once a second by each slot, not as fast as the tester can.
pub const REJOIN_PAUSE: Duration = Duration::from_secs(1);

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client starts.
    Start {
        /// Its place. Taken until [`Share::ended`] is called for it.
        slot: u64,
        /// How many clients had this place before.
        generation: u32,
        /// When the plan wanted it, which is what delays are measured from.
        due: Time,
        /// Whether it takes the place of one that ended before the plan wanted that (`rejoin`).
        rejoins: bool,
    },
    /// The client in that place is no longer wanted: end it, then call [`Share::ended`].
    Stop {
        /// Its place.
        slot: u64,
    },
    /// A client arrived while all places were taken (open model).
    TurnAway {
        /// When it arrived.
        due: Time,
    },
}

/// One worker's part of a load: every slot `k` with `k % workers == worker`.
///
/// Ask [`Share::next_due`] when to come back, and then [`Share::next_action`] until it gives
/// nothing. What is due is never skipped, however late it is asked for.
#[derive(Clone, Debug)]
pub struct Share {
    worker: u64,
    workers: u64,
    rejoin: bool,
    closed: bool,
    /// Clients that have started and not ended.
    active: u64,
    source: Counts,
    /// By slot / workers, as far as slots have been used.
    slots: Vec<Slot>,
    /// Slots that are to start again. An entry holds only while its slot waits for that time.
    waiting: BinaryHeap<Reverse<(Time, u64)>>,
    /// How many slots wait.
    waiting_slots: u64,
    /// How long the plan was held before, and since when it is.
    held: Duration,
    held_from: Option<Time>,
}

#[derive(Clone, Debug)]
enum Counts {
    Plan {
        pieces: Vec<Piece>,
        /// The piece that is being carried out.
        piece: usize,
        /// The number within its piece, and the step to come.
        next: Option<(u64, Step)>,
    },
    Arrivals {
        rate: ArrivalRate,
        /// The number of the next arrival of this worker, of all workers' arrivals.
        next: u64,
        /// The distance to the one after it: how many workers have places.
        step: u64,
        /// How many places this worker has.
        places: u64,
        /// Places that were used and are free, the lowest first.
        free: BinaryHeap<Reverse<u64>>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    phase: Phase,
    /// Whether the plan wants it.
    wanted: bool,
    /// The number of the next client here.
    generation: u32,
    last_start: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Empty,
    Active,
    /// Told to stop, and not yet ended.
    Stopping,
    Waiting {
        due: Time,
        rejoins: bool,
    },
}

impl Share {
    /// The part of `load` that `worker` of `workers` has to carry out. `worker` counts from 0.
    pub fn new(load: &Load, worker: u32, workers: u32) -> Share {
        let workers = u64::from(workers.max(1));
        let worker = u64::from(worker);
        let source = match &load.shape {
            Shape::Arrivals {
                per_second,
                max_clients,
            } => {
                // Worker w has the places k with k % workers == w. A worker without a place gets no
                // arrivals either, or it would turn away clients for whom there is room.
                let places = max_clients.saturating_sub(worker).div_ceil(workers);
                Counts::Arrivals {
                    rate: ArrivalRate::new(*per_second),
                    next: worker,
                    step: workers.min(*max_clients).max(1),
                    places,
                    free: BinaryHeap::new(),
                }
            }
            shape => {
                let mut source = Counts::Plan {
                    pieces: pieces(shape),
                    piece: 0,
                    next: None,
                };
                source.advance(0, worker, workers);
                source
            }
        };
        Share {
            worker,
            workers,
            rejoin: load.rejoin,
            closed: worker >= workers,
            active: 0,
            source,
            slots: Vec::new(),
            waiting: BinaryHeap::new(),
            waiting_slots: 0,
            held: Duration::ZERO,
            held_from: None,
        }
    }

    /// Holds the plan from then on: what it wants later waits. Who is there stays, and another takes
    /// the place of one that ended, where clients rejoin. Arrivals go on.
    pub fn hold(&mut self, from: Time) {
        if matches!(self.source, Counts::Plan { .. }) && self.held_from.is_none() {
            self.held_from = Some(from);
        }
    }

    /// Lets the plan go on from then on: what it wants comes later by as long as it was held.
    pub fn go_on(&mut self, at: Time) {
        if let Some(from) = self.held_from.take() {
            self.held += at.since(from);
        }
    }

    /// When the next step of the plan is to be taken; nothing while that is held.
    fn planned_at(&self) -> Option<Time> {
        let at = self.source.next_at()? + self.held;
        self.held_from.is_none_or(|from| at <= from).then_some(at)
    }

    /// When [`Share::next_action`] may have something; never where nothing will come.
    pub fn next_due(&self) -> Option<Time> {
        if self.closed {
            return None;
        }
        let planned = self.planned_at();
        let waiting = self.waiting.peek().map(|Reverse((due, _))| *due);
        match (planned, waiting) {
            (Some(planned), Some(waiting)) => Some(planned.min(waiting)),
            (one, other) => one.or(other),
        }
    }

    /// The next thing to do that is due at `now`, in the order in which it was due.
    pub fn next_action(&mut self, now: Time) -> Option<Action> {
        while !self.closed {
            let planned = self.planned_at().filter(|at| *at <= now);
            let waiting = self
                .waiting
                .peek()
                .map(|Reverse((due, _))| *due)
                .filter(|due| *due <= now);
            let action = match (planned, waiting) {
                (None, None) => return None,
                (Some(planned), waiting) if waiting.is_none_or(|waiting| planned <= waiting) => {
                    self.planned_action()
                }
                _ => self.waiting_action(),
            };
            if action.is_some() {
                return action;
            }
        }
        None
    }

    /// The client in `slot` has ended or died, at `at`. Where the slot is still wanted and clients
    /// rejoin, another becomes due, at least [`REJOIN_PAUSE`] after the start before.
    pub fn ended(&mut self, slot: u64, at: Time) {
        let Some(index) = self.index(slot) else {
            return;
        };
        let Some(entry) = self.slots.get_mut(index) else {
            return;
        };
        let was = entry.phase;
        if !matches!(was, Phase::Active | Phase::Stopping) {
            return;
        }
        entry.phase = Phase::Empty;
        self.active -= 1;
        if let Counts::Arrivals { free, .. } = &mut self.source {
            free.push(Reverse(slot));
            return;
        }
        // A slot that was stopped and is wanted again has been waiting for this.
        let again = entry.wanted && (self.rejoin || was == Phase::Stopping);
        if again && !self.closed {
            let due = at.max(entry.last_start + REJOIN_PAUSE);
            let rejoins = was == Phase::Active;
            entry.phase = Phase::Waiting { due, rejoins };
            self.waiting.push(Reverse((due, slot)));
            self.waiting_slots += 1;
        }
    }

    /// Starts nobody any more. Who is active stays so until [`Share::ended`].
    pub fn close(&mut self) {
        self.closed = true;
        self.waiting = BinaryHeap::new();
        self.waiting_slots = 0;
    }

    /// Whether nobody is active and nobody will ever start.
    pub fn is_finished(&self) -> bool {
        self.active == 0
            && (self.closed || (self.waiting_slots == 0 && self.source.next_at().is_none()))
    }

    /// How many clients are active: started and not ended.
    pub fn active(&self) -> u64 {
        self.active
    }

    fn index(&self, slot: u64) -> Option<usize> {
        (slot % self.workers == self.worker)
            .then_some(slot / self.workers)
            .and_then(|index| usize::try_from(index).ok())
    }

    /// The entry of a slot of ours, made where there is none yet.
    fn slot(&mut self, slot: u64) -> &mut Slot {
        let index = usize::try_from(slot / self.workers).unwrap_or(usize::MAX);
        if index >= self.slots.len() {
            // Slots are used from the lowest up, so this adds one.
            self.slots.resize(
                index + 1,
                Slot {
                    phase: Phase::Empty,
                    wanted: false,
                    generation: 0,
                    last_start: Time::ZERO,
                },
            );
        }
        &mut self.slots[index]
    }

    fn planned_action(&mut self) -> Option<Action> {
        let (worker, workers) = (self.worker, self.workers);
        match &mut self.source {
            Counts::Plan { next, .. } => {
                let (number, mut step) = (*next)?;
                step.at += self.held;
                self.source.advance(number + 1, worker, workers);
                if step.enters {
                    self.enter(step)
                } else {
                    self.leave(step)
                }
            }
            Counts::Arrivals {
                rate,
                next,
                step,
                places,
                free,
            } => {
                let due = rate.time_of(*next);
                *next = next.saturating_add(*step);
                let used = self.slots.len() as u64;
                let slot = match free.pop() {
                    Some(Reverse(slot)) => slot,
                    None if used < *places => worker + used * workers,
                    None => return Some(Action::TurnAway { due }),
                };
                Some(self.start(slot, due, false))
            }
        }
    }

    fn enter(&mut self, step: Step) -> Option<Action> {
        let entry = self.slot(step.slot);
        entry.wanted = true;
        // One that is still stopping gives way when it has ended.
        (entry.phase == Phase::Empty).then(|| self.start(step.slot, step.at, false))
    }

    fn leave(&mut self, step: Step) -> Option<Action> {
        let entry = self.slot(step.slot);
        entry.wanted = false;
        match entry.phase {
            Phase::Active => {
                entry.phase = Phase::Stopping;
                Some(Action::Stop { slot: step.slot })
            }
            Phase::Waiting { .. } => {
                entry.phase = Phase::Empty;
                self.waiting_slots -= 1;
                None
            }
            Phase::Empty | Phase::Stopping => None,
        }
    }

    fn waiting_action(&mut self) -> Option<Action> {
        let Reverse((due, slot)) = self.waiting.pop()?;
        let rejoins = match self.slot(slot).phase {
            Phase::Waiting { due: at, rejoins } if at == due => rejoins,
            _ => return None,
        };
        self.waiting_slots -= 1;
        Some(self.start(slot, due, rejoins))
    }

    fn start(&mut self, slot: u64, due: Time, rejoins: bool) -> Action {
        self.active += 1;
        let entry = self.slot(slot);
        let generation = entry.generation;
        entry.phase = Phase::Active;
        entry.generation = generation.wrapping_add(1);
        entry.last_start = due;
        Action::Start {
            slot,
            generation,
            due,
            rejoins,
        }
    }
}

impl Counts {
    fn next_at(&self) -> Option<Time> {
        match self {
            Counts::Plan { next, .. } => next.map(|(_, step)| step.at),
            Counts::Arrivals {
                rate, next, places, ..
            } => (*places > 0)
                .then(|| rate.time_of(*next))
                .filter(|at| *at < Time::NEVER),
        }
    }

    /// Finds this worker's step from the `number`-th of the current piece on.
    fn advance(&mut self, number: u64, worker: u64, workers: u64) {
        let Counts::Plan {
            pieces,
            piece,
            next,
        } = self
        else {
            return;
        };
        let mut number = number;
        *next = None;
        while let Some(current) = pieces.get(*piece) {
            *next = current.next_step(number, worker, workers);
            if next.is_some() {
                return;
            }
            *piece += 1;
            number = 0;
        }
    }
}
