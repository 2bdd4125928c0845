//! Emulated link between two interfaces: one thread reads each packet, lets the model decide its
//! fate, and writes it when it is due.

mod direction;
mod linked_namespace;
mod pace;
pub(crate) mod placed;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use measure::{LINK_CATALOGUE, Time, Window};
use net::{Clock, Tun, Waker, tun};
use session::link::SettingsTimeline;

use direction::{Arrival, BURST, Direction};
pub use linked_namespace::LinkedNamespace;
use pace::{Pace, Sleep, Wait};

/// Longest wait of the thread. It bounds how long a delay of the thread goes unnoticed.
const LONGEST_WAIT: Duration = Duration::from_millis(10);

/// Maximum number of read rounds after a sleep, enough for all packets that may be waiting.
const ROUNDS: usize = 1000;

/// Time for packets under way to arrive after the end of the link is requested.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Capacity of the window queue: about a minute.
const WINDOWS: usize = 64;

/// Settings of a link in both directions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkPlan {
    /// Uplink and downlink. The uplink leads from the clients to the server, or away from the
    /// program behind the link.
    pub timelines: [SettingsTimeline; 2],
    /// Seed of all random choices.
    pub seed: u64,
}

/// Metrics of a link in one window.
#[derive(Debug)]
pub struct LinkWindow {
    /// Index of the window, or of the last merged one.
    pub index: u64,
    /// True if the record ended with it.
    pub is_last: bool,
    /// From the clients to the server.
    pub up: Window,
    /// From the server to the clients.
    pub down: Window,
}

impl LinkWindow {
    /// Merges a window into those before it.
    fn add(sum: &mut Option<LinkWindow>, window: LinkWindow) {
        let Some(sum) = sum else {
            *sum = Some(window);
            return;
        };
        sum.index = window.index;
        sum.is_last = window.is_last;
        sum.up.merge(&window.up, LINK_CATALOGUE);
        sum.down.merge(&window.down, LINK_CATALOGUE);
    }
}

/// Handle of a link that carries packets until it is stopped.
#[derive(Debug)]
pub struct Emulator {
    commands: Sender<LinkCommand>,
    waker: Arc<Waker>,
    windows: Receiver<LinkWindow>,
    thread: Option<JoinHandle<io::Result<LinkWindow>>>,
    /// True if its thread runs at real-time priority.
    is_realtime: bool,
}

/// Command to the link's thread.
enum LinkCommand {
    /// Begin the record, with this clock.
    Begin(Clock),
    /// End the record and hand over the rest of it, but continue to carry packets.
    EndRecord,
    /// End once the packets under way have arrived, and hand over the rest of the record.
    End,
}

impl Emulator {
    /// Starts to carry packets between two interfaces; `near` belongs to the clients. The record
    /// starts with [`Emulator::begin`].
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn start(near: Tun, far: Tun, plan: LinkPlan) -> io::Result<Emulator> {
        let (commands, command_receiver) = bounded(4);
        let (window_sender, windows) = bounded(WINDOWS);
        let (realtime_sender, realtime_receiver) = bounded(1);
        let waker = Arc::new(Waker::new()?);
        let link_thread = LinkThread {
            ends: [near, far],
            directions: directions(&plan),
            plan,
            clock: Clock::start(),
            next_window: Time::NEVER,
            windows: 0,
            commands: command_receiver,
            window_sender,
            waker: waker.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || {
                // Without these rights packets may leave late, which the record shows.
                let _ = net::thread::minimize_timer_slack();
                let first = net::thread::set_realtime_priority().is_ok();
                let _ = realtime_sender.send(first);
                link_thread.carry()
            })?;
        Ok(Emulator {
            commands,
            waker,
            windows,
            thread: Some(thread),
            is_realtime: realtime_receiver.recv().unwrap_or(false),
        })
    }

    /// True if its thread runs at real-time priority (CAP_SYS_NICE). Otherwise packets leave late
    /// on a busy machine.
    pub fn is_realtime(&self) -> bool {
        self.is_realtime
    }

    /// Begins the record at time 0 of `clock`. Outages, stages and packet numbers count from there.
    pub fn begin(&self, clock: &Clock) {
        self.send(LinkCommand::Begin(clock.same_start()));
    }

    /// Ends the record within a window and returns the part that was not taken. The link continues
    /// to carry packets.
    pub fn end_record(&self) -> Option<LinkWindow> {
        self.send(LinkCommand::EndRecord);
        self.take(|window| window.is_last)
    }

    /// Returns the windows up to `index` that were not taken, merged. Waits up to 100 ms for a
    /// window that has just ended.
    pub fn window(&self, index: u64) -> Option<LinkWindow> {
        self.take(|window| window.index >= index)
    }

    /// Takes windows up to one that is `enough`, and merges them.
    fn take(&self, enough: impl Fn(&LinkWindow) -> bool) -> Option<LinkWindow> {
        const MOMENT: Duration = Duration::from_millis(100);
        let mut sum: Option<LinkWindow> = None;
        while sum.as_ref().is_none_or(|sum| !enough(sum)) {
            let Ok(window) = self.windows.recv_timeout(MOMENT) else {
                break;
            };
            LinkWindow::add(&mut sum, window);
        }
        sum
    }

    /// Stops the link once the packets under way have arrived, within 2 s. Returns the windows that
    /// were not taken, merged.
    ///
    /// # Errors
    /// The thread had ended early, with the error of the operating system.
    pub fn stop(mut self) -> io::Result<Option<LinkWindow>> {
        let last = self.end()?;
        let mut sum = None;
        for window in self.windows.try_iter().chain(last) {
            LinkWindow::add(&mut sum, window);
        }
        Ok(sum)
    }

    /// Ends the thread. Returns its last window.
    fn end(&mut self) -> io::Result<Option<LinkWindow>> {
        self.send(LinkCommand::End);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended.map(Some),
            Some(Err(_)) => Err(io::Error::other("its thread panicked")),
            None => Ok(None),
        }
    }

    fn send(&self, command: LinkCommand) {
        // If the thread has ended, joining it returns the reason.
        let _ = self.commands.send(command);
        self.waker.wake();
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn directions(plan: &LinkPlan) -> [Direction; 2] {
    let [up, down] = plan.timelines.clone();
    // The random choices of the two are independent.
    let seed = plan.seed.wrapping_mul(2);
    [
        Direction::new(up, seed),
        Direction::new(down, seed.wrapping_add(1)),
    ]
}

/// State of the link's thread.
struct LinkThread {
    ends: [Tun; 2],
    directions: [Direction; 2],
    plan: LinkPlan,
    clock: Clock,
    next_window: Time,
    windows: u64,
    commands: Receiver<LinkCommand>,
    window_sender: Sender<LinkWindow>,
    waker: Arc<Waker>,
}

impl LinkThread {
    /// Carries packets until the link ends. Returns the last window.
    fn carry(mut self) -> io::Result<LinkWindow> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut pace = Pace::new(self.clock.now(), processors);
        let mut end = None;
        let mut sleep = Sleep::none(self.clock.now());
        loop {
            match self.commands.try_recv() {
                Ok(LinkCommand::Begin(clock)) => {
                    self.begin(clock);
                    let now = self.clock.now();
                    (pace, sleep) = (Pace::new(now, processors), Sleep::none(now));
                }
                Ok(LinkCommand::EndRecord) => {
                    self.next_window = Time::NEVER;
                    self.hand_over(true);
                }
                Ok(LinkCommand::End) => end = Some(self.clock.now() + DRAIN_TIME),
                // The handle was dropped.
                Err(TryRecvError::Disconnected) if end.is_none() => return Ok(self.window(true)),
                Err(TryRecvError::Disconnected | TryRecvError::Empty) => {}
            }
            // First, so that settings of a later window take effect in that window.
            if self.clock.now() >= self.next_window {
                self.next_window += crate::worker::WINDOW;
                self.hand_over(false);
            }
            let [near, far] = &self.ends;
            let [up, down] = &mut self.directions;
            let mut moved = 0;
            for _ in 0..ROUNDS {
                let Some(arrival) = sleep.arrival(self.clock.now()) else {
                    break;
                };
                let taken = [
                    up.take_in(&self.clock, near, arrival)?,
                    down.take_in(&self.clock, far, arrival)?,
                ];
                moved += taken.iter().sum::<usize>();
                if taken.iter().all(|&taken| taken < BURST) {
                    break;
                }
            }
            let looks = self.clock.now();
            let early = sleep.early(looks);
            let round = [
                up.deliver(&self.clock, far, early),
                down.deliver(&self.clock, near, early),
                up.take_in(&self.clock, near, Arrival::NOW)?,
                down.take_in(&self.clock, far, Arrival::NOW)?,
            ];
            moved += round.iter().sum::<usize>();
            let now = self.clock.now();
            pace.packets(now, moved);
            sleep = Sleep::none(now);
            let is_ending = end.is_some_and(|end| now >= end);
            let more = match pace.is_exact() {
                true => moved > 0,
                false => round.contains(&BURST),
            };
            if more && !is_ending {
                continue;
            }
            let next = self.directions.iter().filter_map(Direction::next).min();
            if is_ending || end.is_some() && next.is_none() {
                return Ok(self.window(true));
            }
            let next = next.unwrap_or(Time::NEVER).min(self.next_window);
            let wait = pace.next(next.since(now).min(LONGEST_WAIT));
            sleep = Sleep::of(wait, looks, now);
            let [near, far] = &self.ends;
            match wait {
                Wait::Busy => continue,
                Wait::ForPacket(time) => tun::wait_for_packet([near, far], &self.waker, time)?,
                Wait::Through(time) => self.waker.wait(time)?,
            }
            self.waker.clear();
            pace.slept(now, self.clock.now());
        }
    }

    fn begin(&mut self, clock: Clock) {
        self.clock = clock;
        self.next_window = Time::ZERO + crate::worker::WINDOW;
        self.windows = 0;
        let directions = self.directions.iter_mut().zip(directions(&self.plan));
        for ((direction, new), near) in directions.zip(&self.ends) {
            direction.begin(new, near);
        }
    }

    /// Takes the window since the last call.
    fn window(&mut self, is_last: bool) -> LinkWindow {
        let [near, far] = &self.ends;
        let [up, down] = &mut self.directions;
        let window = LinkWindow {
            index: self.windows,
            is_last,
            up: up.window(near),
            down: down.window(far),
        };
        self.windows += 1;
        window
    }

    fn hand_over(&mut self, is_last: bool) {
        let window = self.window(is_last);
        let [up, down] = &mut self.directions;
        // The queue is full if windows are taken only at the end of the record; they are merged
        // then.
        if let Err(full) = self.window_sender.try_send(window) {
            let window = full.into_inner();
            up.keep(window.up);
            down.keep(window.down);
        }
    }
}
