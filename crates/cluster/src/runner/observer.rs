//! A runner that observes the server on its machine, and plays no clients.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use scenario::ServerLog;
use sut::{Origin, ServerSpec, Sut};

use super::link::Link;
use super::signs::{Signs, see_coordinator};
use super::{COORDINATOR_LOST, IDLE_INTERVAL, RunnerOptions};
use crate::background::Background;
use crate::error::ClusterError;
use crate::names;
use crate::observed::{OBSERVE_INTERVAL, ServerReport};
use crate::orders::{Answer, Order, encode};
use crate::storage::{lead_subject, server_subject};

/// The server that a runner observes.
#[derive(Clone, Debug)]
pub struct ObserverOptions {
    /// Process of the server; its descendants belong to it.
    pub pid: u32,
    /// Log file of the server.
    pub log: Option<PathBuf>,
}

/// The server during a run.
struct ActiveRun {
    run: String,
    sut: Sut,
    report: ServerReport,
    next: Instant,
    signs: Arc<Signs>,
}

/// Waits for runs and observes the server during each, until `stop` returns `true` or the server
/// ends. `tell` gets what happens, as sentences.
///
/// # Errors
/// NATS cannot be used, another runner has the name, or no process has this ID.
pub fn observe(
    options: &RunnerOptions,
    server: &ObserverOptions,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&str),
) -> Result<(), ClusterError> {
    let first = Sut::observe_pid(server.pid)?;
    let description = first.description().to_owned();
    let background = Background::start().map_err(ClusterError::system("cannot start a thread"))?;
    let link = Link::open(&background, options, Some(description.clone()))?;
    tell(&format!(
        "runner {} observes {description}, and waits for runs at {}",
        options.name, options.access.url
    ));
    let mut host = Observer {
        options,
        server,
        background,
        link,
        active: None,
        has_observed: false,
    };
    let ended = host.work(&first, stop, tell);
    host.link.close(&host.background);
    ended
}

struct Observer<'a> {
    options: &'a RunnerOptions,
    server: &'a ObserverOptions,
    background: Background,
    link: Link,
    active: Option<ActiveRun>,
    has_observed: bool,
}

impl Observer<'_> {
    fn work(
        &mut self,
        first: &Sut,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), ClusterError> {
        while !stop() {
            if self.link.claim.is_lost() {
                return Err(names::taken(&self.options.name));
            }
            if let Some((order, reply)) = self.link.next_order(IDLE_INTERVAL) {
                let answer = self.carry_out(order, tell);
                reply.send(&self.background, &answer);
            }
            self.report();
            let lost = |active: &ActiveRun| active.signs.silence() >= COORDINATOR_LOST;
            if self.active.as_ref().is_some_and(lost) {
                tell("the coordinator gives no sign of life");
                self.leave(tell);
            }
            if self.active.is_some() {
                continue;
            }
            if self.has_observed && self.options.once {
                return Ok(());
            }
            if first.has_exited().is_some() {
                return Err(ClusterError::ServerEnded {
                    server: first.description().to_owned(),
                });
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, order: Order, tell: &mut dyn FnMut(&str)) -> Answer {
        let refused = |why: String| Answer::Refused { why };
        match order {
            Order::Observe {
                run,
                patterns,
                ignore,
            } => match &self.active {
                Some(active) if active.run != run => {
                    refused(format!("it observes another run ({})", active.run))
                }
                Some(_) => Answer::Done,
                None => match self.begin(run, patterns, ignore) {
                    Ok(()) => {
                        tell("a run has begun");
                        Answer::Done
                    }
                    Err(error) => refused(error.to_string()),
                },
            },
            Order::Leave { run } => {
                if self.active.as_ref().is_some_and(|active| active.run == run) {
                    self.leave(tell);
                }
                Answer::Done
            }
            _ => refused("it observes a server, and plays no clients".to_owned()),
        }
    }

    fn begin(
        &mut self,
        run: String,
        patterns: Vec<String>,
        ignore: Vec<String>,
    ) -> Result<(), sut::SutError> {
        let spec = ServerSpec {
            log: ServerLog {
                file: self.server.log.clone(),
                patterns,
                ignore,
            },
            ..ServerSpec::new(Origin::Observe {
                pid: self.server.pid,
            })
        };
        let options = sut::Options::default();
        let mut sut = Sut::start_with(&spec, std::path::Path::new(""), &options, &|_| ())?;
        sut.begin();
        let signs = Arc::new(Signs::new());
        self.background.spawn(see_coordinator(
            self.link.client.clone(),
            lead_subject(&run),
            Arc::downgrade(&signs),
        ));
        self.link.set_run(Some(run.clone()));
        self.active = Some(ActiveRun {
            run,
            sut,
            report: ServerReport::default(),
            next: Instant::now(),
            signs,
        });
        Ok(())
    }

    /// Reports the server once a second.
    fn report(&mut self) {
        let Some(active) = &mut self.active else {
            return;
        };
        let now = Instant::now();
        let ended = active.sut.has_exited();
        // An end is reported at once: clients notice it at once too.
        let is_news = ended.is_some() && !active.report.has_ended();
        if now < active.next && !is_news {
            return;
        }
        // A late report does not make the next ones early.
        active.next = (active.next + OBSERVE_INTERVAL).max(now + OBSERVE_INTERVAL / 2);
        let seen = active.sut.observe();
        let lines = active.sut.take_log_lines();
        active.report.add(&seen, lines);
        active.report.set_state(active.sut.log_counts(), ended);
        let subject = server_subject(&active.run, &self.options.name);
        let (client, bytes) = (self.link.client.clone(), encode(&active.report));
        self.background.spawn(async move {
            // The next report has all that this one has.
            let _ = client.publish(subject, bytes).await;
        });
    }

    fn leave(&mut self, tell: &mut dyn FnMut(&str)) {
        if self.active.take().is_some() {
            self.has_observed = true;
            self.link.set_run(None);
            tell("the run has ended");
        }
    }
}
