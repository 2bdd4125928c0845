//! Sources that send transport streams to multicast groups, without a run.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use load::{Load, Shape, Share};
use measure::{Catalogue, Totals, tester};
use net::{Clock, PortRange};
use protocol::media::ts::flow::SentStream;
use protocol::media::ts::reel::Reel;
use protocol::metrics::CLIENTS;
use protocol::session::{Interface, Outcome};
use protocol::source::{Source, SourceSettings, Target};
use scenario::{Leave, Pick};

use crate::attend::{Heard, attend};
use crate::control::Control;
use crate::crew::{Crew, Duty};
use crate::error::EngineError;
use crate::messages::Report;
use crate::serve::{PORTS, Pacing, ReportFile};
use crate::trace::Traced;
use crate::worker::{ClientPlan, MakeClient, PopulationPlan};

/// What is counted of sources as of clients; the rest they say when they end.
const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS]);

/// What is to be sent.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// Where to: one stream each.
    pub targets: Vec<Target>,
    /// What is sent, the same to each.
    pub reel: Arc<Reel>,
    /// By which interface of this machine. Default: as routes have it.
    pub interface: Option<Interface>,
    /// How many hops datagrams live.
    pub ttl: u8,
    /// How long. Default: until it is stopped.
    pub length: Option<Duration>,
    /// Where a line of JSON goes for each stream when it has ended; and as the last line an object `pacing`
    /// ([`Pacing`]).
    pub report: Option<PathBuf>,
    /// Seed of the numbers of the sources and of what RTP begins with. Default: the time of day, so that each run is told from others.
    pub seed: Option<u64>,
    /// How long it may take to stop.
    pub stop_timeout: Duration,
}

/// How sending stands, once a second.
#[derive(Clone, Copy, Debug)]
pub struct SendProgress {
    /// Since it began.
    pub elapsed: Duration,
    /// What left, and how well it was kept to its schedule.
    pub pacing: Pacing,
}

/// What was sent.
#[derive(Clone, Debug)]
pub struct SendFinished {
    /// Each stream.
    pub streams: Vec<SentStream>,
    /// How well all of them were kept to their schedule.
    pub pacing: Pacing,
}

/// Sends until it is told to stop, or for its time. `progress` is called when it begins, and then once a second.
///
/// # Errors
/// There is no way to a group, a socket cannot be had, or the report cannot be written.
pub fn send(
    options: &SendOptions,
    control: &Control,
    progress: &mut dyn FnMut(&SendProgress),
) -> Result<SendFinished, EngineError> {
    let clock = Clock::start();
    let wall_clock = Duration::from_nanos(u64::try_from(clock.started_at()).unwrap_or(0));
    let seed = options.seed.unwrap_or(wall_clock.as_nanos() as u64);
    let settings = sources(options, wall_clock)?;
    let urls: Vec<String> = settings.iter().map(|s| s.target.to_string()).collect();
    let mut report = options
        .report
        .as_ref()
        .map(ReportFile::create)
        .transpose()?;
    let catalogue = CATALOGUE;
    let load = Load {
        shape: Shape::AtOnce {
            clients: urls.len() as u64,
        },
        rejoin: false,
    };
    let client: MakeClient = Arc::new(move |url, seed| {
        let own = settings.iter().find(|own| own.target.to_string() == url);
        let own = own.ok_or_else(|| format!("{url} is not to be sent to"))?;
        Ok(Box::new(Source::new(own.clone(), seed)))
    });
    let plan = ClientPlan {
        share: Share::new(&load, 0, 1),
        urls,
        pick: Pick::Own,
        leave: Leave::AtEnd,
        client,
        // Nothing is sent by TLS.
        tls: Arc::new(net::tls::Client::new(net::tls::Trust {
            anybody: false,
            authorities: None,
        })),
        traced: Traced::default(),
    };
    let duty = Duty {
        populations: vec![PopulationPlan {
            name: "source".to_owned(),
            catalogue,
            clients: Some(plan),
        }],
        serving: Vec::new(),
        ports: PortRange::new(PORTS),
        ring: None,
        goes_first: false,
    };
    let mut crew = Crew::start(vec![duty], options.stop_timeout, seed)?;
    crew.begin(&clock);
    let mut finished = SendFinished {
        streams: Vec::new(),
        pacing: Pacing::default(),
    };
    let mut totals = Totals::new(tester::TESTER_CATALOGUE);
    let mut failure = None;
    progress(&SendProgress {
        elapsed: Duration::ZERO,
        pacing: finished.pacing,
    });
    attend(
        &crew,
        &clock,
        (catalogue, "source"),
        control,
        options.stop_timeout,
        &mut |heard| {
            match heard {
                Heard::Window(window) => {
                    totals.add(&window.tester, window.seconds);
                    finished.pacing = Pacing::of(&totals);
                    let ended = window.begins.since_start();
                    progress(&SendProgress {
                        elapsed: ended + Duration::from_secs_f64(window.seconds),
                        pacing: finished.pacing,
                    });
                }
                Heard::Report(Report::Sent(stream)) => {
                    if let Some(report) = &mut report {
                        report.write(stream.as_ref())?;
                    }
                    finished.streams.push(*stream);
                }
                Heard::Report(Report::Client(client)) => {
                    if let Some((_, Outcome::Failed(failed))) = client.ended {
                        failure.get_or_insert(failed.detail);
                        // The others need not go on without it.
                        control.stop();
                    }
                }
                Heard::Report(_) => {}
            }
            Ok(())
        },
    )?;
    if let Some(detail) = failure {
        return Err(EngineError::Sending(detail));
    }
    if let Some(report) = &mut report {
        report.write(&serde_json::json!({ "pacing": finished.pacing, "seed": seed }))?;
        report.finish()?;
    }
    Ok(finished)
}

/// What each source is to do.
fn sources(
    options: &SendOptions,
    wall_clock: Duration,
) -> Result<Vec<SourceSettings>, EngineError> {
    let interface = options.interface.clone().map(|interface| match interface {
        Interface::With(address) => net::multicast::Interface::With(address),
        Interface::Named(name) => net::multicast::Interface::Named(name),
    });
    let count = options.targets.len() as f64;
    let sources = options.targets.iter().enumerate();
    let sources = sources.map(|(index, &target)| {
        let failed = || EngineError::system(format!("cannot send to {target}"));
        let local = net::multicast::source_of(target.group, interface.as_ref());
        let local: IpAddr = local.map_err(failed())?;
        Ok(SourceSettings {
            target,
            reel: options.reel.clone(),
            local,
            interface: options.interface.clone(),
            ttl: options.ttl,
            length: options.length,
            offset: index as f64 / count,
            wall_clock,
        })
    });
    sources.collect()
}
