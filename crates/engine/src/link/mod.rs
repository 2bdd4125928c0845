//! An emulated link between two interfaces: one thread that reads each packet, asks the model of
//! the link what becomes of it, and writes it when it is due.

mod behind;
mod direction;
mod pace;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use link::Course;
use measure::{LINK_CATALOGUE, Time, Window};
use net::{Clock, Tun, Waker, tun};

pub use behind::Behind;
use direction::Direction;
use pace::Pace;

/// The longest that its thread waits without looking at the time. So it is noticed within it that
/// the thread was kept from its work.
const LONGEST_WAIT: Duration = Duration::from_millis(10);

/// If its thread looks so much later than it was to, it was kept from its work. Half of what makes
/// a measurement invalid.
const KEPT: Duration = Duration::from_micros(500);

/// How often packets are taken in then, some at a time: as many as may have waited.
const ROUNDS: usize = 1000;

/// For how long packets that are under way when it is to end may still arrive.
const LAST: Duration = Duration::from_secs(2);

/// How many windows may wait to be taken: a minute.
const WINDOWS: usize = 64;

/// A link: what it does to packets in either direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// From the clients to the server, or from the program that is behind the link; and back.
    pub courses: [Course; 2],
    /// What chance is drawn from.
    pub seed: u64,
}

/// What a link did in one window.
#[derive(Debug)]
pub struct LinkWindow {
    /// Which window of the record; it is the last one's where the record ends within it.
    pub index: u64,
    /// Whether the record ended with it.
    pub is_last: bool,
    /// From the clients to the server.
    pub up: Window,
    /// The other way.
    pub down: Window,
}

impl LinkWindow {
    /// Adds a window to those before it.
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

/// A link that carries packets, until it is stopped.
#[derive(Debug)]
pub struct Emulator {
    wishes: Sender<Wish>,
    waker: Arc<Waker>,
    windows: Receiver<LinkWindow>,
    thread: Option<JoinHandle<io::Result<LinkWindow>>>,
    plan: Plan,
    /// Whether its thread goes before all others.
    first: bool,
}

/// What its thread is told.
enum Wish {
    /// Begin the record, with that clock.
    Begin(Clock, Box<Plan>),
    /// End the record, and hand over the rest of it; go on carrying packets.
    EndRecord,
    /// End when what is under way has arrived, and hand over the rest of the record.
    End,
}

impl Emulator {
    /// Begins to carry packets between two interfaces, `near` that of the clients. What it does is
    /// in no record before [`Emulator::begin`].
    ///
    /// # Errors
    /// What the operating system says.
    pub fn start(near: Tun, far: Tun, plan: Plan) -> io::Result<Emulator> {
        let (wishes, heard) = bounded(4);
        let (told, windows) = bounded(WINDOWS);
        let (say, said) = bounded(1);
        let waker = Arc::new(Waker::new()?);
        let carrier = Carrier {
            ends: [near, far],
            directions: directions(&plan),
            clock: Clock::start(),
            next_window: Time::NEVER,
            windows: 0,
            wishes: heard,
            told,
            waker: waker.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || {
                // Where it may not, packets may leave late; the record says how late.
                let _ = net::thread::wake_exactly();
                let first = net::thread::go_before_all().is_ok();
                let _ = say.send(first);
                carrier.carry()
            })?;
        Ok(Emulator {
            wishes,
            waker,
            windows,
            thread: Some(thread),
            plan,
            first: said.recv().unwrap_or(false),
        })
    }

    /// Whether its thread may go before all others (CAP_SYS_NICE). If not, packets leave late on a
    /// busy machine.
    pub fn goes_first(&self) -> bool {
        self.first
    }

    /// Begins the record at the time 0 of that clock; what is lost and when is counted from here.
    pub fn begin(&self, clock: &Clock) {
        self.tell(Wish::Begin(clock.same_start(), Box::new(self.plan.clone())));
    }

    /// Ends the record, in the middle of a window, and gives what was not taken of it yet. The link
    /// goes on carrying packets.
    pub fn end_record(&self) -> Option<LinkWindow> {
        self.tell(Wish::EndRecord);
        self.take(|window| window.is_last)
    }

    /// What it did in the window of that number, and in those before that were not taken yet.
    /// Waits for it a moment, where it has just ended.
    pub fn window(&self, index: u64) -> Option<LinkWindow> {
        self.take(|window| window.index >= index)
    }

    /// Takes windows up to one that is `enough`, and adds them up.
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

    /// Stops it, when what is under way has arrived, within 2 s; gives what it did since the last
    /// window that was taken.
    ///
    /// # Errors
    /// Its thread ended before, for the reason that the operating system gave.
    pub fn stop(mut self) -> io::Result<Option<LinkWindow>> {
        let last = self.end()?;
        let mut sum = None;
        for window in self.windows.try_iter().chain(last) {
            LinkWindow::add(&mut sum, window);
        }
        Ok(sum)
    }

    /// Gives the last window.
    fn end(&mut self) -> io::Result<Option<LinkWindow>> {
        self.tell(Wish::End);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended.map(Some),
            Some(Err(_)) => Err(io::Error::other("its thread broke down")),
            None => Ok(None),
        }
    }

    fn tell(&self, wish: Wish) {
        // A thread that has ended says why when it is joined.
        let _ = self.wishes.send(wish);
        self.waker.wake();
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn directions(plan: &Plan) -> [Direction; 2] {
    let [up, down] = seeds(plan.seed);
    let [there, back] = plan.courses.clone();
    [Direction::new(there, up), Direction::new(back, down)]
}

/// One seed for each direction, so that neither draws what the other does.
fn seeds(seed: u64) -> [u64; 2] {
    [seed.wrapping_mul(2), seed.wrapping_mul(2).wrapping_add(1)]
}

/// What its thread has.
struct Carrier {
    ends: [Tun; 2],
    directions: [Direction; 2],
    clock: Clock,
    next_window: Time,
    windows: u64,
    wishes: Receiver<Wish>,
    told: Sender<LinkWindow>,
    waker: Arc<Waker>,
}

impl Carrier {
    /// Gives what it did since the last window that it handed over.
    fn carry(mut self) -> io::Result<LinkWindow> {
        let mut pace = Pace::new(self.clock.now());
        let mut end = None;
        // When it is to look for packets.
        let mut look = self.clock.now();
        loop {
            match self.wishes.try_recv() {
                Ok(Wish::Begin(clock, plan)) => {
                    self.begin(clock, *plan);
                    pace = Pace::new(self.clock.now());
                    look = self.clock.now();
                }
                Ok(Wish::EndRecord) => {
                    self.next_window = Time::NEVER;
                    self.hand_over(true);
                }
                Ok(Wish::End) => end = Some(self.clock.now() + LAST),
                // Whoever it was for is gone.
                Err(TryRecvError::Disconnected) if end.is_none() => return Ok(self.window(true)),
                Err(TryRecvError::Disconnected | TryRecvError::Empty) => {}
            }
            // Before anything else: what settings of a later window do is in that window.
            if self.clock.now() >= self.next_window {
                self.next_window += crate::worker::WINDOW;
                self.hand_over(false);
            }
            let [near, far] = &self.ends;
            let [up, down] = &mut self.directions;
            let kept = self.clock.now().since(look);
            if kept > KEPT {
                // Nobody knows when packets came in the meantime. That they came at its beginning
                // is the worst, so that is how late they are in the record.
                for _ in 0..ROUNDS {
                    let more = up.take_in(&self.clock, near, kept)?;
                    if !(down.take_in(&self.clock, far, kept)? || more) {
                        break;
                    }
                }
            }
            let mut busy = up.deliver(&self.clock, far);
            busy |= down.deliver(&self.clock, near);
            busy |= up.take_in(&self.clock, near, Duration::ZERO)?;
            busy |= down.take_in(&self.clock, far, Duration::ZERO)?;
            let now = self.clock.now();
            look = now;
            if busy && end.is_none_or(|end| now < end) {
                continue;
            }
            let next = self.directions.iter().filter_map(Direction::next).min();
            if end.is_some_and(|end| now >= end || next.is_none()) {
                return Ok(self.window(true));
            }
            let next = next.unwrap_or(Time::NEVER).min(self.next_window);
            let wait = next.since(now).min(LONGEST_WAIT);
            if let Some(wait) = pace.wait(now, wait) {
                look = now + wait;
                let [near, far] = &self.ends;
                tun::wait([near, far], &self.waker, wait)?;
                self.waker.clear();
                pace.waited(now, self.clock.now());
            }
        }
    }

    fn begin(&mut self, clock: Clock, plan: Plan) {
        self.clock = clock;
        self.next_window = Time::ZERO + crate::worker::WINDOW;
        self.windows = 0;
        let [up, down] = seeds(plan.seed);
        let [near, far] = &self.ends;
        let [there, back] = plan.courses;
        self.directions[0].begin(there, up, near);
        self.directions[1].begin(back, down, far);
    }

    /// What it did since the last one.
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
        // Nobody takes them where the record is read at its end alone; then the sum is kept.
        if let Err(full) = self.told.try_send(window) {
            let window = full.into_inner();
            up.keep(window.up);
            down.keep(window.down);
        }
    }
}
