//! A runner: a process that waits for runs, and plays its part of each.
//!
//! The thread that calls [`serve`] carries out orders and passes the reports of the engine on. The
//! background thread answers questions, exchanges timestamps and brings reports into the log.

mod link;
mod observer;
mod part;
mod signs;
mod topics;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use measure::Build;
use net::clock::monotonic_nanos;

use crate::background::Background;
use crate::connection::Access;
use crate::error::ClusterError;
use crate::names;
use crate::orders::{Answer, Order, Part};
use crate::targets::Targets;
use link::Link;
pub use observer::{ObserverOptions, observe};
use part::ActivePart;

/// Interval between checks for orders while nothing runs.
const IDLE_INTERVAL: Duration = Duration::from_millis(50);

/// Interval between checks for orders while clients run.
const RUNNING_INTERVAL: Duration = Duration::from_millis(20);

/// Silence of the coordinator after which a runner stops its clients.
pub(crate) const COORDINATOR_LOST: Duration = Duration::from_secs(10);

/// Time before the start at which the thread waits for nothing else.
const READY_BEFORE: Duration = Duration::from_millis(30);

/// Time that the clients and reports of a runner have to end if it is ended during a run.
const FINISH_TIMEOUT: Duration = Duration::from_secs(15);

/// Time limit for freeing the name.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Settings of a runner.
#[derive(Clone, Debug)]
pub struct RunnerOptions {
    /// Name by which the coordinator calls it.
    pub name: String,
    /// A runner of weight 2 gets twice as many clients as one of weight 1.
    pub weight: u32,
    pub access: Access,
    /// Version of this program.
    pub version: String,
    /// Build of this program, for its run files.
    pub build: Build,
    /// Targets that its clients may send to.
    pub targets: Targets,
    /// Folder for its own run files. `None`: it keeps none.
    pub folder: Option<PathBuf>,
    /// True: it ends after its first run.
    pub once: bool,
}

/// Waits for runs and plays its part of each, until `stop` returns `true`. `tell` gets what
/// happens, as sentences.
///
/// # Errors
/// NATS cannot be used, or another runner has the name.
pub fn serve(
    options: &RunnerOptions,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&str),
) -> Result<(), ClusterError> {
    let background = Background::start().map_err(ClusterError::system("cannot start a thread"))?;
    let link = Link::open(&background, options, None)?;
    tell(&format!(
        "runner {} waits for runs at {}; its clients may send to {}",
        options.name, options.access.url, options.targets
    ));
    let mut host = Host {
        options,
        background,
        link,
        part: None,
        has_played: false,
    };
    let ended = host.work(stop, tell);
    host.finish_part(tell);
    host.link.close(&host.background);
    ended
}

/// A runner at work.
struct Host<'a> {
    options: &'a RunnerOptions,
    background: Background,
    link: Link,
    part: Option<ActivePart>,
    has_played: bool,
}

impl Host<'_> {
    fn work(
        &mut self,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), ClusterError> {
        while !stop() {
            if self.link.claim.is_lost() {
                return Err(names::taken(&self.options.name));
            }
            self.play_on(tell);
            if let Some(part) = &self.part {
                part.turn();
            }
            let runs = self.part.as_ref().is_some_and(ActivePart::is_running);
            let within = match runs {
                // Reports were waited for.
                true => Duration::ZERO,
                false => IDLE_INTERVAL.min(self.until_start()),
            };
            while let Some((order, reply)) = self.link.next_order(within) {
                let answer = self.carry_out(order, tell);
                reply.send(&self.background, &answer);
            }
            if self.has_played && self.part.is_none() && self.options.once {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Ends a part because this runner ends: stops its clients in order, and lets the reports
    /// leave.
    fn finish_part(&mut self, tell: &mut dyn FnMut(&str)) {
        let Some(mut part) = self.part.take() else {
            return;
        };
        part.stop("the runner was ended");
        let until = Instant::now() + FINISH_TIMEOUT;
        while !part.is_done() && Instant::now() < until {
            part.turn();
            part.pass_on(RUNNING_INTERVAL);
            if !part.is_running() {
                std::thread::sleep(RUNNING_INTERVAL);
            }
        }
        tell(&part.leave());
    }

    /// Time until the start of a part that has agreed on it.
    fn until_start(&self) -> Duration {
        let at = self.part.as_ref().and_then(ActivePart::begins_at);
        at.map_or(IDLE_INTERVAL, |at| {
            let nanos = at.saturating_sub(monotonic_nanos());
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)).saturating_sub(READY_BEFORE)
        })
    }

    fn carry_out(&mut self, order: Order, tell: &mut dyn FnMut(&str)) -> Answer {
        let refused = |why: String| Answer::Refused { why };
        let name = match &order {
            Order::Start { run }
            | Order::Begin { run, .. }
            | Order::Command { run, .. }
            | Order::Leave { run } => Some(run.clone()),
            Order::Prepare(_) | Order::Clock | Order::Observe { .. } => None,
        };
        let mine = self
            .part
            .as_ref()
            .is_some_and(|part| name.as_ref().is_none_or(|name| name == part.run()));
        let Some(part) = self.part.as_mut().filter(|_| mine && name.is_some()) else {
            return match order {
                Order::Prepare(part) => self.prepare(*part, tell),
                // This runner has left the run already.
                Order::Leave { .. } => Answer::Done,
                Order::Observe { .. } => {
                    refused("it observes no server: start it with `--observe`".to_owned())
                }
                _ => refused("it does not take part in this run".to_owned()),
            };
        };
        match order {
            Order::Start { .. } => part.start().map_or_else(refused, Answer::Ready),
            Order::Begin { at, wall_clock, .. } => {
                let agreed = part.agree(at, wall_clock);
                agreed.map_or_else(refused, |()| Answer::Done)
            }
            Order::Command { command, .. } => {
                part.command(&command.into());
                Answer::Done
            }
            Order::Leave { .. } => {
                self.end(tell);
                Answer::Done
            }
            Order::Prepare(_) | Order::Clock | Order::Observe { .. } => Answer::Done,
        }
    }

    fn prepare(&mut self, wanted: Part, tell: &mut dyn FnMut(&str)) -> Answer {
        if let Some(part) = &self.part {
            let why = format!("it takes part in another run ({})", part.run());
            return Answer::Refused { why };
        }
        let prepared = ActivePart::prepare(wanted, self.options, &self.link, &self.background);
        match prepared {
            Ok(part) => {
                tell(&format!(
                    "prepared for run {}: {}",
                    part.run(),
                    part.in_words()
                ));
                self.link.set_run(Some(part.run().to_owned()));
                self.part = Some(part);
                Answer::Done
            }
            Err(why) => {
                tell(&format!("refused a run: {why}"));
                Answer::Refused { why }
            }
        }
    }

    /// Passes reports on, and notices what ends a part.
    fn play_on(&mut self, tell: &mut dyn FnMut(&str)) {
        let Some(part) = &mut self.part else {
            return;
        };
        if part.begin_if_due() {
            tell("the run has begun");
        }
        part.pass_on(RUNNING_INTERVAL);
        if part.is_abandoned() {
            self.end(tell);
        }
    }

    fn end(&mut self, tell: &mut dyn FnMut(&str)) {
        let Some(part) = self.part.take() else {
            return;
        };
        self.has_played |= part.has_begun();
        self.link.set_run(None);
        tell(&part.leave());
    }
}
