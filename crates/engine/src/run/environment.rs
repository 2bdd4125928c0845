//! Parts of a run besides its clients: its emulated links, its own sources, the server, and golden
//! browsers.

use std::path::Path;

use net::{Clock, Namespace};
use scenario::Scenario;
use sut::Sut;

use crate::control::Control;
use crate::error::EngineError;
use crate::link::placed::Links;
use crate::modes::browsers::Browsers;
use crate::network::Networks;
use crate::progress::{Phase, Progress};
use crate::run::crew::Crew;
use crate::run::server_release::{self, PeakHoldings};
use crate::run::sources::Sources;

/// Parts of a run besides its clients.
///
/// If a run cannot begin, its parts end in the order of the fields: browsers are connected to the
/// server, which uses the links.
pub(crate) struct Environment {
    pub(crate) browsers: Browsers,
    pub(crate) sut: Option<Sut>,
    /// Resources that the server holds; `Some` if `linger` is set.
    pub(crate) holding: Option<PeakHoldings>,
    pub(crate) sources: Option<Sources>,
    pub(crate) links: Links,
}

impl Environment {
    /// Starts everything. The server is ready on return.
    ///
    /// # Errors
    /// The first that cannot start.
    pub(crate) fn start(
        scenario: &Scenario,
        crew: &mut dyn Crew,
        mut networks: Option<&mut Networks>,
        control: &Control,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Environment, EngineError> {
        // Before the server: some servers look up their multicast groups when they start.
        let links = networks.as_mut().map(|own| std::mem::take(&mut own.links));
        let links = links.unwrap_or_default();
        if !links.all_realtime() {
            let text = "the emulated link has no real-time priority (CAP_SYS_NICE): on a busy machine packets leave late";
            progress(&Progress::without_clients(Phase::Warning(text.to_owned())));
        }
        let networks = networks.as_deref();
        let sources = Sources::start(scenario, networks.map(|own| &own.sources))?;
        let observed = match &scenario.server {
            Some(server) => crew.observe_server(server)?,
            None => None,
        };
        let mut sut = match observed {
            Some(sut) => Some(sut),
            None => {
                let apart = networks.and_then(Networks::server_apart);
                start_server(scenario, apart, control, progress)?
            }
        };
        if let Some(sut) = &mut sut {
            sut.watch_groups(server_release::groups(scenario));
        }
        Ok(Environment {
            browsers: Browsers::start(scenario, control)?,
            sut,
            holding: None,
            sources,
            links,
        })
    }

    /// Begins to measure: the run begins.
    pub(crate) fn begin(&mut self, scenario: &Scenario, clock: &Clock) {
        if let Some(sut) = &mut self.sut {
            sut.begin();
            let server = scenario.server.as_ref();
            let lingers = server.is_some_and(|server| server.linger.is_some());
            self.holding = lingers.then(|| PeakHoldings::baseline(sut));
        }
        if let Some(sources) = &self.sources {
            sources.begin();
        }
        self.links.begin(clock);
        self.browsers.begin();
    }
}

/// Starts the server in the namespace `apart`, or in that of the calling thread.
fn start_server(
    scenario: &Scenario,
    apart: Option<&Namespace>,
    control: &Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Option<Sut>, EngineError> {
    let Some(server) = &scenario.server else {
        return Ok(None);
    };
    let options = sut::Options {
        cancelled: control.stop_flag(),
        ..sut::Options::default()
    };
    let address = scenario.network.server_address();
    let spec = sut::ServerSpec::from(server).with_host(address);
    let secrets = scenario.secrets();
    let mut tell = |step: sut::Progress| {
        let text = secrets.mask(&in_words(&step));
        progress(&Progress::without_clients(Phase::Launching(text)));
    };
    // The paths of the scenario are resolved already.
    let started = match apart {
        None => {
            let tell = std::cell::RefCell::new(tell);
            Sut::start_with(&spec, Path::new(""), &options, &|step| {
                (tell.borrow_mut())(step);
            })
        }
        Some(space) => {
            let (steps_sender, steps) = crossbeam_channel::bounded(16);
            let start = move || {
                let report_step = |step| {
                    // The receiver reads until this thread has ended.
                    let _ = steps_sender.send(step);
                };
                Ok(Sut::start_with(
                    &spec,
                    Path::new(""),
                    &options,
                    &report_step,
                ))
            };
            let ended = std::thread::scope(|scope| {
                let thread = scope.spawn(|| space.run_in(start));
                steps.iter().for_each(&mut tell);
                thread.join()
            });
            let failed = EngineError::system("cannot start the server in its network");
            let broke_down = |_| Err(std::io::Error::other("the thread panicked"));
            ended.unwrap_or_else(broke_down).map_err(failed)?
        }
    };
    match started {
        Ok(sut) => Ok(Some(sut)),
        Err(sut::SutError::Cancelled) => Err(EngineError::Stopped),
        Err(error) => Err(error.into()),
    }
}

fn in_words(step: &sut::Progress) -> String {
    match step {
        sut::Progress::MakingClip {
            number,
            count,
            path,
        } => {
            format!("making clip {number} of {count}: {}", path.display())
        }
        sut::Progress::Starting { command } => format!("starting {command}"),
        sut::Progress::WaitingFor { what, within } => {
            format!("waiting up to {} s for {what}", within.as_secs())
        }
        sut::Progress::Ready { pid, after } => {
            format!(
                "server ready after {:.1} s (pid {pid})",
                after.as_secs_f64()
            )
        }
    }
}
