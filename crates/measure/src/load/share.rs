//! One worker's share of a load, carried out step by step.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::Time;

use super::plan::{ArrivalRate, Piece, Step, nanos, pieces};
use super::slots::Slots;
use super::spec::{Load, Shape};

/// Minimum time between two starts in one slot if clients rejoin: 1 s. A server that refuses all
/// clients gets one request per second and slot, instead of as many as the tester can send.
pub const REJOIN_PAUSE: Duration = Duration::from_secs(1);

/// Action that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a client.
    Start {
        /// Slot of the client. Occupied until [`Share::ended`] is called for it.
        slot: u64,
        /// Number of clients that had this slot before.
        generation: u32,
        /// Planned start. Delays are measured from it.
        due: Time,
        /// Whether the client replaces one that ended while the plan still wanted it (`rejoin`).
        rejoins: bool,
    },
    /// Stop the client in a slot that is no longer wanted, then call [`Share::ended`].
    Stop {
        /// Slot of the client.
        slot: u64,
    },
    /// Turn away a client that arrived while all slots were occupied (open model).
    TurnAway {
        /// Time of the arrival.
        due: Time,
    },
}

/// One worker's share of a load: the slots that belong to it.
///
/// Call [`Share::next_due`] for the time of the next action, and then [`Share::next_action`] until
/// it returns `None`. Actions are never skipped, however late they are requested.
#[derive(Clone, Debug)]
pub struct Share {
    own: Slots,
    rejoin: bool,
    closed: bool,
    /// True if the plan is extended while it runs, so that its end is unknown.
    is_open: bool,
    /// Clients that have started and not ended.
    active: u64,
    source: StepSource,
    /// Indexed by the number of a slot among the own ones; covers the slots used so far.
    slots: Vec<Slot>,
    /// Slots that start again. An entry is valid only while its slot waits for that time.
    waiting: BinaryHeap<Reverse<(Time, u64)>>,
    /// Number of waiting slots.
    waiting_slots: u64,
    /// Total duration of past holds, and the start of the current one.
    held: Duration,
    held_from: Option<Time>,
}

#[derive(Clone, Debug)]
enum StepSource {
    Plan {
        pieces: Vec<Piece>,
        /// Index of the current piece.
        piece: usize,
        /// Next step of this worker, with its number in the piece.
        next: Option<(u64, Step)>,
    },
    Arrivals(ArrivalSource),
}

#[derive(Clone, Debug)]
struct ArrivalSource {
    rate: ArrivalRate,
    /// Time of the first arrival.
    after: Duration,
    /// Arrivals of this worker, counted over all workers.
    arrivals: Slots,
    /// Number of the next one among its own.
    next: u64,
    /// Number of slots of this worker.
    slot_count: u64,
    /// Free slots that were used before, lowest first.
    free: BinaryHeap<Reverse<u64>>,
}

impl ArrivalSource {
    fn next_at(&self) -> Option<Time> {
        let at = self.rate.time_of(self.arrivals.nth(self.next)?);
        (at < Time::NEVER).then(|| at + self.after)
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    state: SlotState,
    /// Whether the plan wants the slot.
    wanted: bool,
    /// Generation of the next client in this slot.
    generation: u32,
    last_start: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    Empty,
    Active,
    /// The client was asked to stop, but has not ended yet.
    Stopping,
    Waiting {
        due: Time,
        rejoins: bool,
    },
}

impl Share {
    /// The share of `load` that worker number `worker` (counted from 0) of `workers` carries out:
    /// every slot `k` with `k % workers == worker`.
    pub fn new(load: &Load, worker: u32, workers: u32) -> Share {
        let workers = workers.max(1);
        Share::of(load, Slots::every(worker.into(), workers.into()))
    }

    /// The share of `load` of the worker that `own` belongs to.
    pub fn of(load: &Load, own: Slots) -> Share {
        let source = match &load.shape {
            Shape::Arrivals {
                per_second,
                max_clients,
            } => StepSource::Arrivals(ArrivalSource {
                rate: ArrivalRate::new(*per_second),
                after: load.after,
                // A worker without slots gets no arrivals, because it would turn away clients for
                // whom other workers have slots.
                arrivals: own.repeated_after(*max_clients),
                next: 0,
                slot_count: own.count_below(*max_clients),
                free: BinaryHeap::new(),
            }),
            _ => {
                let mut source = StepSource::Plan {
                    pieces: pieces(load),
                    piece: 0,
                    next: None,
                };
                source.advance(0, &own);
                source
            }
        };
        Share {
            rejoin: load.rejoin,
            closed: own.is_empty(),
            own,
            is_open: false,
            active: 0,
            source,
            slots: Vec::new(),
            waiting: BinaryHeap::new(),
            waiting_slots: 0,
            held: Duration::ZERO,
            held_from: None,
        }
    }

    /// The share of a plan that begins without clients and is extended while it runs. It is
    /// finished only after [`Share::close`].
    pub fn open(rejoin: bool, own: Slots) -> Share {
        let load = Load {
            shape: Shape::Stages(Vec::new()),
            rejoin,
            after: Duration::ZERO,
        };
        Share {
            is_open: true,
            ..Share::of(&load, own)
        }
    }

    /// Extends the plan: from `begin` on, which is in the future, the number of clients changes to
    /// `clients` within the time `over`. A slot whose client has ended although the plan still
    /// wants it gets another client at `begin`. Does nothing for arrivals.
    pub fn extend(&mut self, begin: Time, over: Duration, clients: u64) {
        let StepSource::Plan { pieces, next, .. } = &mut self.source else {
            return;
        };
        let before = pieces.last().map_or(0, |last| last.to);
        pieces.push(Piece::new(begin, nanos(over), before, clients));
        if next.is_none() {
            self.source.advance(0, &self.own);
        }
        for index in 0..self.slots.len() {
            let Some(slot) = self.own.nth(index as u64) else {
                break;
            };
            let entry = &mut self.slots[index];
            if entry.wanted && entry.state == SlotState::Empty && slot < clients {
                let due = begin.max(entry.last_start + REJOIN_PAUSE);
                entry.state = SlotState::Waiting { due, rejoins: true };
                self.waiting.push(Reverse((due, slot)));
                self.waiting_slots += 1;
            }
        }
    }

    /// Holds the plan from `from` on: later steps are delayed. Active clients stay, and clients
    /// that end are still replaced if `rejoin` is set. Arrivals continue.
    pub fn hold(&mut self, from: Time) {
        if matches!(self.source, StepSource::Plan { .. }) && self.held_from.is_none() {
            self.held_from = Some(from);
        }
    }

    /// Resumes the plan at `at`: the remaining steps are delayed by the duration of the hold.
    pub fn resume(&mut self, at: Time) {
        if let Some(from) = self.held_from.take() {
            self.held += at.since(from);
        }
    }

    /// Time of the next step of the plan; `None` while the plan is held.
    fn planned_at(&self) -> Option<Time> {
        let at = self.source.next_at()? + self.held;
        self.held_from.is_none_or(|from| at <= from).then_some(at)
    }

    /// Time at which [`Share::next_action`] may return an action; `None` if there will be none, or
    /// none before the plan is resumed.
    pub fn next_due(&self) -> Option<Time> {
        if self.closed {
            return None;
        }
        let planned = self.planned_at();
        let waiting = self.waiting.peek().map(|Reverse((due, _))| *due);
        planned.into_iter().chain(waiting).min()
    }

    /// Returns the next action that is due at `now`, in order of due times.
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

    /// Reports that the client in `slot` ended or failed at `at`. If the slot is still wanted and
    /// clients rejoin, another one becomes due, at least [`REJOIN_PAUSE`] after the last start.
    pub fn ended(&mut self, slot: u64, at: Time) {
        let Some(index) = self.index(slot) else {
            return;
        };
        let Some(entry) = self.slots.get_mut(index) else {
            return;
        };
        let was = entry.state;
        if !matches!(was, SlotState::Active | SlotState::Stopping) {
            return;
        }
        entry.state = SlotState::Empty;
        self.active -= 1;
        if let StepSource::Arrivals(source) = &mut self.source {
            source.free.push(Reverse(slot));
            return;
        }
        // A slot that was stopped and is wanted again waits for the end of its client.
        let again = entry.wanted && (self.rejoin || was == SlotState::Stopping);
        if again && !self.closed {
            let due = at.max(entry.last_start + REJOIN_PAUSE);
            let rejoins = was == SlotState::Active;
            entry.state = SlotState::Waiting { due, rejoins };
            self.waiting.push(Reverse((due, slot)));
            self.waiting_slots += 1;
        }
    }

    /// Starts no more clients. Active clients remain until [`Share::ended`].
    pub fn close(&mut self) {
        self.closed = true;
        self.waiting = BinaryHeap::new();
        self.waiting_slots = 0;
    }

    /// True if no client is active and none will start.
    pub fn is_finished(&self) -> bool {
        self.active == 0
            && (self.closed
                || (!self.is_open && self.waiting_slots == 0 && self.source.next_at().is_none()))
    }

    /// Number of active clients: started and not ended.
    pub fn active(&self) -> u64 {
        self.active
    }

    fn index(&self, slot: u64) -> Option<usize> {
        let number = self.own.number_of(slot)?;
        usize::try_from(number).ok()
    }

    /// State of one of this worker's slots, created on first use.
    fn slot(&mut self, slot: u64) -> &mut Slot {
        let index = self.index(slot).unwrap_or(usize::MAX);
        if index >= self.slots.len() {
            // Slots are used in ascending order, so this adds one.
            self.slots.resize(
                index + 1,
                Slot {
                    state: SlotState::Empty,
                    wanted: false,
                    generation: 0,
                    last_start: Time::ZERO,
                },
            );
        }
        &mut self.slots[index]
    }

    fn planned_action(&mut self) -> Option<Action> {
        match &mut self.source {
            StepSource::Plan { next, .. } => {
                let (number, mut step) = (*next)?;
                step.at += self.held;
                self.source.advance(number + 1, &self.own);
                if step.enters {
                    self.enter(step)
                } else {
                    self.leave(step)
                }
            }
            StepSource::Arrivals(source) => {
                let due = source.next_at()?;
                source.next = source.next.saturating_add(1);
                let used = self.slots.len() as u64;
                let is_left = used < source.slot_count;
                let unused = is_left.then(|| self.own.nth(used)).flatten();
                let Some(slot) = source.free.pop().map(|Reverse(slot)| slot).or(unused) else {
                    return Some(Action::TurnAway { due });
                };
                Some(self.start(slot, due, false))
            }
        }
    }

    fn enter(&mut self, step: Step) -> Option<Action> {
        let entry = self.slot(step.slot);
        entry.wanted = true;
        // A client that is still stopping is replaced once it has ended.
        (entry.state == SlotState::Empty).then(|| self.start(step.slot, step.at, false))
    }

    fn leave(&mut self, step: Step) -> Option<Action> {
        let entry = self.slot(step.slot);
        entry.wanted = false;
        match entry.state {
            SlotState::Active => {
                entry.state = SlotState::Stopping;
                Some(Action::Stop { slot: step.slot })
            }
            SlotState::Waiting { .. } => {
                entry.state = SlotState::Empty;
                self.waiting_slots -= 1;
                None
            }
            SlotState::Empty | SlotState::Stopping => None,
        }
    }

    fn waiting_action(&mut self) -> Option<Action> {
        let Reverse((due, slot)) = self.waiting.pop()?;
        let rejoins = match self.slot(slot).state {
            SlotState::Waiting { due: at, rejoins } if at == due => rejoins,
            _ => return None,
        };
        self.waiting_slots -= 1;
        Some(self.start(slot, due, rejoins))
    }

    fn start(&mut self, slot: u64, due: Time, rejoins: bool) -> Action {
        self.active += 1;
        let entry = self.slot(slot);
        let generation = entry.generation;
        entry.state = SlotState::Active;
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

impl StepSource {
    fn next_at(&self) -> Option<Time> {
        match self {
            StepSource::Plan { next, .. } => next.map(|(_, step)| step.at),
            StepSource::Arrivals(source) => source.next_at(),
        }
    }

    /// Finds this worker's next step, from step `number` of the current piece on.
    fn advance(&mut self, number: u64, own: &Slots) {
        let StepSource::Plan {
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
            *next = current.next_step(number, own);
            if next.is_some() {
                return;
            }
            *piece += 1;
            number = 0;
        }
    }
}
