//! Sources that send transport streams to multicast groups, as a command of their own or as part of
//! a run.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kit::media::ts::flow::SentStream;
use kit::mediagen::ts::looped_stream::LoopedStream;
use kit::metrics::CLIENTS;
use kit::source::{DEFAULT_RATE, Destination, GroupSender, SourceSettings};
use measure::{Catalogue, Pacing, Totals, Window, tester};
use net::{Clock, PortRange};
use scenario::Pick;
use session::{Interface, Outcome};

use crate::control::Control;
use crate::error::EngineError;
use crate::machine::since_1970;
use crate::messages::WorkerReport;
use crate::modes::report_loop::{PoolReport, handle_reports};
use crate::modes::serve::{PORTS, ReportFile};
use crate::network::multicast_interface;
use crate::runner::clients::read_source;
use crate::worker::pool::{WorkerPlan, WorkerPool};
use crate::worker::{ClientPlan, MakeClient, WorkerPopulation};

/// Metrics of sources, as for clients. Details follow in their final records.
const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS]);

/// Options of `streamgauge send`.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// Targets, one stream each.
    pub targets: Vec<Destination>,
    /// Stream that is sent to every target.
    pub looped: Arc<LoopedStream>,
    /// Outgoing interface. Default: that of the route.
    pub interface: Option<Interface>,
    /// TTL, or hop limit, of datagrams.
    pub ttl: u8,
    /// Duration. Default: until it is stopped.
    pub length: Option<Duration>,
    /// Report file: a line of JSON for each stream that has ended, then an object `pacing`
    /// ([`Pacing`]).
    pub report: Option<PathBuf>,
    /// Seed of the source numbers and of the initial RTP values. Default: the time of day, so that
    /// the runs can be told apart.
    pub seed: Option<u64>,
    /// Shutdown timeout.
    pub stop_timeout: Duration,
}

/// Progress of sending, reported once per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendProgress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Datagrams sent, and their delay against the schedule.
    pub pacing: Pacing,
}

/// Result of sending.
#[derive(Clone, Debug, Default)]
pub struct SendFinished {
    pub streams: Vec<SentStream>,
    /// Delay of all streams against their schedule.
    pub pacing: Pacing,
}

/// A stream to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) target: Destination,
    pub(crate) looped: Arc<LoopedStream>,
    /// Outgoing interface; `None` for that of the route.
    pub(crate) interface: Option<Interface>,
    /// TTL, or hop limit, of datagrams.
    pub(crate) ttl: u8,
}

/// Sends until it is stopped, or for `length`. `progress` is called at the start and then once per
/// second.
///
/// # Errors
/// A group has no route, a socket cannot be opened, or the report cannot be written.
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
    let sending = RunningSources::start(settings, clock, options.stop_timeout, seed)?;
    progress(&SendProgress::default());
    let finished = sending.run_to_end(control, options.stop_timeout, &mut |event| {
        match event {
            SendEvent::Window(seen, _) => progress(&seen),
            SendEvent::Stream(stream) => {
                if let Some(report) = &mut report {
                    report.write(stream)?;
                }
            }
        }
        Ok(())
    })?;
    if let Some(report) = &mut report {
        report.write(&serde_json::json!({ "pacing": finished.pacing, "seed": seed }))?;
    }
    Ok(finished)
}

/// Event of running sources.
pub(crate) enum SendEvent<'a> {
    /// A window is complete: the progress at its end, and its tester metrics.
    Window(SendProgress, &'a Window),
    /// A stream has ended.
    Stream(&'a SentStream),
}

/// Running sources.
pub(crate) struct RunningSources {
    pool: WorkerPool,
    clock: Clock,
}

impl RunningSources {
    /// Starts sources with this clock.
    pub(crate) fn start(
        settings: Vec<SourceSettings>,
        clock: Clock,
        stop_timeout: Duration,
        seed: u64,
    ) -> Result<RunningSources, EngineError> {
        let urls: Vec<String> = settings.iter().map(|s| s.target.to_string()).collect();
        let client: MakeClient = Arc::new(move |url, identity| {
            let own = settings.iter().find(|own| own.target.to_string() == url);
            let own = own.ok_or_else(|| format!("{url} is not to be sent to"))?;
            Ok(Box::new(GroupSender::new(own.clone(), identity.seed)))
        });
        // TLS is not used.
        let tls = Arc::new(net::tls::Client::new(net::tls::Trust {
            accept_any: false,
            authorities: None,
        }));
        let population = WorkerPopulation {
            name: "source".to_owned(),
            catalogue: CATALOGUE,
            clients: Some(ClientPlan::at_once(urls, Pick::Own, client, tls)),
        };
        let duty = WorkerPlan {
            realtime_pacer: true,
            ..WorkerPlan::new(vec![population], PortRange::new(PORTS))
        };
        let mut crew = WorkerPool::start(vec![duty], stop_timeout, seed)?;
        crew.begin(&clock);
        Ok(RunningSources { pool: crew, clock })
    }

    /// Handles the reports of the sources until all have ended. If one fails, the others are
    /// stopped.
    pub(crate) fn run_to_end(
        &self,
        control: &Control,
        stop_timeout: Duration,
        hear: &mut dyn FnMut(SendEvent<'_>) -> Result<(), EngineError>,
    ) -> Result<SendFinished, EngineError> {
        let mut finished = SendFinished::default();
        let mut totals = Totals::new(tester::TESTER_CATALOGUE);
        let mut failure = None;
        handle_reports(
            &self.pool,
            &self.clock,
            (CATALOGUE, "source"),
            control,
            stop_timeout,
            &mut |report| {
                match report {
                    PoolReport::Window(window) => {
                        let tester = window.tester();
                        totals.add(&tester, window.seconds);
                        finished.pacing = Pacing::of(&totals);
                        let began = window.begins.since_start();
                        let progress = SendProgress {
                            elapsed: began + Duration::from_secs_f64(window.seconds),
                            pacing: finished.pacing,
                        };
                        hear(SendEvent::Window(progress, &tester))?;
                    }
                    PoolReport::WorkerReport(WorkerReport::Record(record)) => {
                        if let Some(stream) = record.downcast::<SentStream>() {
                            hear(SendEvent::Stream(&stream))?;
                            finished.streams.push(*stream);
                        }
                    }
                    PoolReport::WorkerReport(WorkerReport::Client(client)) => {
                        if let Some((_, Outcome::Failed(failed))) = client.ended {
                            failure.get_or_insert(failed.detail);
                            // The other sources stop as well.
                            control.stop();
                        }
                    }
                    PoolReport::WorkerReport(_) => {}
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

/// Settings of each source. Routes and interfaces are those of the calling thread's namespace.
pub(crate) fn settings(
    streams: &[Stream],
    length: Option<Duration>,
    clock: &Clock,
) -> Result<Vec<SourceSettings>, EngineError> {
    let count = streams.len() as f64;
    let wall_clock = since_1970(clock);
    let settings = streams.iter().enumerate().map(|(index, stream)| {
        let target = stream.target;
        let interface = stream.interface.clone().map(multicast_interface);
        let failed = || EngineError::system(format!("cannot send to {target}"));
        let local = net::multicast::source_address_to(target.group, interface.as_ref());
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

/// Returns the stream to send: a file in a loop, or a synthetic programme. May take some seconds.
///
/// # Errors
/// The file cannot be read or is not a suitable transport stream, or the bit rate is not possible.
pub fn looped_stream(file: Option<&Path>, rate: Option<u64>) -> Result<LoopedStream, String> {
    let Some(path) = file else {
        return LoopedStream::synthetic(rate.unwrap_or(DEFAULT_RATE))
            .map_err(|error| error.to_string());
    };
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = read_source(path).map_err(|error| failed(&error))?;
    LoopedStream::of_file(&bytes, rate).map_err(|error| failed(&error))
}
