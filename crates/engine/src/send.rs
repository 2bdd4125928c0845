//! Sources that send transport streams to multicast groups: without a run, or as a part of one.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use load::{Load, Shape, Share};
use measure::{Catalogue, Pacing, Time, Totals, Window, tester};
use mediagen::ts::looped_stream::LoopedStream;
use net::{Clock, PortRange};
use protocol::media::ts::flow::SentStream;
use protocol::metrics::CLIENTS;
use protocol::session::{Interface, Outcome};
use protocol::source::{DEFAULT_RATE, GroupSender, SourceSettings, Target};
use scenario::{Leave, Pick};

use crate::attend::{Heard, attend};
use crate::clients::read_source;
use crate::control::Control;
use crate::crew::{Crew, Duty};
use crate::error::EngineError;
use crate::machine::since_1970;
use crate::messages::WorkerReport;
use crate::serve::{PORTS, ReportFile};
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
    pub looped: Arc<LoopedStream>,
    /// By which interface of this machine. Default: as routes have it.
    pub interface: Option<Interface>,
    /// How many hops datagrams live.
    pub ttl: u8,
    /// How long. Default: until it is stopped.
    pub length: Option<Duration>,
    /// Where a line of JSON goes for each stream when it has ended; and as the last line an object
    /// `pacing` ([`Pacing`]).
    pub report: Option<PathBuf>,
    /// Seed of the numbers of the sources and of what RTP begins with. Default: the time of day, so
    /// that each run is told from others.
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

/// One stream that is to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// Where to.
    pub(crate) target: Target,
    /// What.
    pub(crate) looped: Arc<LoopedStream>,
    /// By which interface; by that of the route without.
    pub(crate) interface: Option<Interface>,
    /// How many hops datagrams live.
    pub(crate) ttl: u8,
}

/// Sends until it is told to stop, or for its time. `progress` is called when it begins, and then
/// once a second.
///
/// # Errors
/// There is no way to a group, a socket cannot be had, or the report cannot be written.
pub fn send(
    options: &SendOptions,
    control: &Control,
    progress: &mut dyn FnMut(&SendProgress),
) -> Result<SendFinished, EngineError> {
    let clock = Clock::start();
    let seed = options.seed.unwrap_or(since_1970(&clock).as_nanos() as u64);
    let streams = options.targets.iter().map(|&target| Stream {
        target,
        looped: options.looped.clone(),
        interface: options.interface.clone(),
        ttl: options.ttl,
    });
    let streams: Vec<Stream> = streams.collect();
    let settings = settings(&streams, options.length, &clock)?;
    let mut report = options
        .report
        .as_ref()
        .map(ReportFile::create)
        .transpose()?;
    let sending = Sending::start(settings, clock, options.stop_timeout, seed)?;
    progress(&SendProgress {
        elapsed: Duration::ZERO,
        pacing: Pacing::default(),
    });
    let finished = sending.follow(control, options.stop_timeout, &mut |news| {
        match news {
            News::Window { ended, pacing, .. } => progress(&SendProgress {
                elapsed: ended,
                pacing,
            }),
            News::Stream(stream) => {
                if let Some(report) = &mut report {
                    report.write(stream)?;
                }
            }
        }
        Ok(())
    })?;
    if let Some(report) = &mut report {
        report.write(&serde_json::json!({ "pacing": finished.pacing, "seed": seed }))?;
        report.finish()?;
    }
    Ok(finished)
}

/// What is heard of sources while they send.
pub(crate) enum News<'a> {
    /// A window is over.
    Window {
        /// When, since they began.
        ended: Duration,
        /// What the tester counted of them in it.
        tester: &'a Window,
        /// How well they kept to their schedule so far.
        pacing: Pacing,
    },
    /// A stream has ended.
    Stream(&'a SentStream),
}

/// Sources at work.
pub(crate) struct Sending {
    crew: Crew,
    clock: Clock,
}

impl Sending {
    /// Sets sources to work, by that clock.
    pub(crate) fn start(
        settings: Vec<SourceSettings>,
        clock: Clock,
        stop_timeout: Duration,
        seed: u64,
    ) -> Result<Sending, EngineError> {
        let urls: Vec<String> = settings.iter().map(|s| s.target.to_string()).collect();
        let load = Load {
            shape: Shape::AtOnce {
                clients: urls.len() as u64,
            },
            rejoin: false,
        };
        let client: MakeClient = Arc::new(move |url, seat| {
            let own = settings.iter().find(|own| own.target.to_string() == url);
            let own = own.ok_or_else(|| format!("{url} is not to be sent to"))?;
            Ok(Box::new(GroupSender::new(own.clone(), seat.seed)))
        });
        let plan = ClientPlan {
            share: Share::new(&load, 0, 1),
            urls,
            pick: Pick::Own,
            leave: Leave::AtEnd,
            run_ends: Time::NEVER,
            client,
            // Nothing is sent by TLS.
            tls: Arc::new(net::tls::Client::new(net::tls::Trust {
                anybody: false,
                authorities: None,
            })),
            traced: Traced::default(),
            media: true,
            sources: Vec::new(),
        };
        let duty = Duty {
            populations: vec![PopulationPlan {
                name: "source".to_owned(),
                catalogue: CATALOGUE,
                clients: Some(plan),
            }],
            serving: Vec::new(),
            endpoints: Vec::new(),
            ports: PortRange::new(PORTS),
            ring: None,
            goes_first: false,
            in_real_time: true,
        };
        let mut crew = Crew::start(vec![duty], stop_timeout, seed)?;
        crew.begin(&clock);
        Ok(Sending { crew, clock })
    }

    /// Hears what they say until they have ended. If one fails, the others end too.
    pub(crate) fn follow(
        &self,
        control: &Control,
        stop_timeout: Duration,
        hear: &mut dyn FnMut(News<'_>) -> Result<(), EngineError>,
    ) -> Result<SendFinished, EngineError> {
        let mut finished = SendFinished {
            streams: Vec::new(),
            pacing: Pacing::default(),
        };
        let mut totals = Totals::new(tester::TESTER_CATALOGUE);
        let mut failure = None;
        attend(
            &self.crew,
            &self.clock,
            (CATALOGUE, "source"),
            control,
            stop_timeout,
            &mut |heard| {
                match heard {
                    Heard::Window(window) => {
                        totals.add(&window.tester, window.seconds);
                        finished.pacing = Pacing::of(&totals);
                        let began = window.begins.since_start();
                        hear(News::Window {
                            ended: began + Duration::from_secs_f64(window.seconds),
                            tester: &window.tester,
                            pacing: finished.pacing,
                        })?;
                    }
                    Heard::WorkerReport(WorkerReport::Record(record)) => {
                        if let Some(stream) = record.take::<SentStream>() {
                            hear(News::Stream(&stream))?;
                            finished.streams.push(*stream);
                        }
                    }
                    Heard::WorkerReport(WorkerReport::Client(client)) => {
                        if let Some((_, Outcome::Failed(failed))) = client.ended {
                            failure.get_or_insert(failed.detail);
                            // The others need not go on without it.
                            control.stop();
                        }
                    }
                    Heard::WorkerReport(_) => {}
                }
                Ok(())
            },
        )?;
        match failure {
            Some(detail) => Err(EngineError::Sending(detail)),
            None => Ok(finished),
        }
    }
}

/// What each source is to do. Routes and interfaces are those that the calling thread sees.
pub(crate) fn settings(
    streams: &[Stream],
    length: Option<Duration>,
    clock: &Clock,
) -> Result<Vec<SourceSettings>, EngineError> {
    let count = streams.len() as f64;
    let wall_clock = since_1970(clock);
    let settings = streams.iter().enumerate().map(|(index, stream)| {
        let target = stream.target;
        let interface = stream.interface.clone().map(|interface| match interface {
            Interface::With(address) => net::multicast::Interface::With(address),
            Interface::Named(name) => net::multicast::Interface::Named(name),
        });
        let failed = || EngineError::system(format!("cannot send to {target}"));
        let local = net::multicast::source_of(target.group, interface.as_ref());
        let local: IpAddr = local.map_err(failed())?;
        Ok(SourceSettings {
            target,
            looped: stream.looped.clone(),
            local,
            interface: stream.interface.clone(),
            ttl: stream.ttl,
            length,
            offset: index as f64 / count,
            wall_clock,
        })
    });
    settings.collect()
}

/// What is to be sent: a file over and over, or a made programme. It may take some seconds.
///
/// # Errors
/// The file cannot be read, is no transport stream that can be sent so, or the bit rate is not
/// possible.
pub fn looped_stream(file: Option<&Path>, rate: Option<u64>) -> Result<LoopedStream, String> {
    let Some(path) = file else {
        return LoopedStream::synthetic(rate.unwrap_or(DEFAULT_RATE))
            .map_err(|error| error.to_string());
    };
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = read_source(path).map_err(|error| failed(&error))?;
    LoopedStream::of_file(&bytes, rate).map_err(|error| failed(&error))
}
