//! A trial: reference servers with known faults, clients on one receive path, and every figure
//! compared with the truth.

use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::{Control, EngineError, Progress};
use measure::{Totals, Unit, VerdictResult};
use protocols::Protocol;
use report::metrics::Metrics;
use report::{Reader, Report, Subject};
use runfile::fact;
use scenario::Scenario;
use sut::Sut;

use super::case::packet_logger;
use super::judge::{BIT_RATE, COUNT, JITTER, Judgement, Row, Rows, STARTUP, TrueValue, worst};
use super::truth::{Counts, ServedStream, bit_rate, mean_jitter};
use crate::args::ReceivePath;
use crate::commands::demo::reference_server;
use crate::commands::free_port::free_port;
use crate::commands::run::overrides;
use crate::exit::Failure;
use crate::ui::version;

/// Interval between the starts of a group's clients.
pub(super) const START_INTERVAL: Duration = Duration::from_millis(25);

/// Similar streams of one server.
struct Group {
    name: &'static str,
    clients: u32,
    /// Flags of the server.
    server: &'static [&'static str],
    /// Timing figures that are compared with the truth, in addition to the counts.
    timed: TimingChecks,
}

/// Timing figures to compare.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TimingChecks {
    /// No figures, because times say little about packets out of order.
    No,
    /// Jitter and start-up delay.
    Delays,
    /// Jitter, start-up delay and bit rate.
    All,
}

/// Each server injects one kind of fault, so that the truth of each is simple.
const GROUPS: [Group; 3] = [
    Group {
        name: "steady",
        clients: 20,
        server: &["--bitrate", "800kbps", "--fps", "100"],
        timed: TimingChecks::All,
    },
    Group {
        name: "jittery",
        clients: 10,
        server: &[
            "--bitrate",
            "400kbps",
            "--fps",
            "50",
            "--fault",
            "jitter=10ms",
            "--fault",
            "slow=play:150ms",
        ],
        timed: TimingChecks::Delays,
    },
    Group {
        name: "faulty",
        clients: 10,
        server: &[
            "--bitrate",
            "800kbps",
            "--first-seq",
            "65400",
            "--fault",
            "loss=2%",
            "--fault",
            "loss-burst=0.5%x4",
            "--fault",
            "duplicate=2%",
            "--fault",
            "reorder=2%x3",
            // After the stall, late packets leave at once: a burst for every buffer on the way.
            "--fault",
            "stall=1s+300ms",
        ],
        timed: TimingChecks::No,
    },
];

/// Reason why a trial could not be run.
#[derive(Debug)]
pub(super) enum TrialError {
    /// The receive path is not available to this process, for this reason.
    NoPath(String),
    /// This process cannot create a link, for this reason.
    NoLink(String),
    /// Any other failure.
    Failure(Failure),
}

impl From<Failure> for TrialError {
    fn from(failure: Failure) -> TrialError {
        TrialError::Failure(failure)
    }
}

impl From<TrialError> for Failure {
    fn from(error: TrialError) -> Failure {
        match error {
            TrialError::NoLink(why) => Failure::bad(why),
            TrialError::NoPath(why) => Failure::bad(format_args!("no packet ring: {why}")),
            TrialError::Failure(failure) => failure,
        }
    }
}

/// Results of a trial.
#[derive(Default)]
pub(super) struct Trial {
    /// Receive path as the run's report names it. `None` if it names none.
    pub(super) receive_path: Option<String>,
    /// Every compared figure.
    pub(super) rows: Vec<Row>,
    /// Reasons not to trust the run itself: the tester's health, or clients that failed.
    pub(super) reasons: Vec<String>,
}

impl Trial {
    /// Returns the trial of a run, in which these figures were compared.
    pub(super) fn of(report: Report, rows: Vec<Row>) -> Trial {
        Trial {
            receive_path: report.tester.receive_path,
            rows,
            reasons: match report.verdict.result {
                VerdictResult::Pass => Vec::new(),
                VerdictResult::Fail | VerdictResult::Invalid | VerdictResult::Stopped => {
                    report.verdict.reasons
                }
            },
        }
    }

    /// Returns `true` if no figure is wrong but the trial is inconclusive: the server was
    /// interrupted, or the run itself is not to be trusted.
    pub(super) fn was_disturbed(&self) -> bool {
        match worst(&self.rows) {
            Judgement::Unknown => true,
            Judgement::Ok => !self.reasons.is_empty(),
            Judgement::Off => false,
        }
    }

    /// Judges the trial. It is `Off` as well if it has no figures or if the run is not to be
    /// trusted.
    pub(super) fn judge(&self) -> Judgement {
        match worst(&self.rows) {
            Judgement::Ok if !self.reasons.is_empty() || self.rows.is_empty() => Judgement::Off,
            judgement => judgement,
        }
    }
}

/// A reference server and the file that it writes its report to.
pub(super) struct Reference {
    pub(super) server: Sut,
    pub(super) port: u16,
    pub(super) report: PathBuf,
}

impl Reference {
    /// Starts an RTSP server that logs every packet.
    pub(super) fn log_packets(
        folder: &Path,
        name: &str,
        with: &[&str],
    ) -> Result<Reference, Failure> {
        let with = with.iter().chain(&["--log-packets"]);
        let with = with.map(|&word| word.to_owned()).collect();
        Reference::start(packet_logger(), folder, name, with)
    }

    /// Starts the server of a protocol.
    pub(super) fn start(
        protocol: &Protocol,
        folder: &Path,
        name: &str,
        mut with: Vec<String>,
    ) -> Result<Reference, Failure> {
        let port = free_port(protocol.transport)?;
        let report = folder.join(format!("{name}.served"));
        with.extend(["--report".to_owned(), utf8(&report)?]);
        let server = reference_server(protocol, port, with)?;
        Ok(Reference {
            server: Sut::start(&server, folder, &|_| {}).map_err(Failure::bad)?,
            port,
            report,
        })
    }

    /// Stops the server and returns the file of its report.
    pub(super) fn finish(self) -> PathBuf {
        self.server.stop();
        self.report
    }
}

/// Runs a scenario and opens its run file.
pub(super) fn play(
    scenario: &Scenario,
    folder: &Path,
    control: &Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<(Reader, Report), TrialError> {
    let options = engine::Options {
        overwrite: true,
        describe: false,
        ..version::run_options(folder.join("calibrate.run"))
    };
    let finished = match engine::run(scenario, &options, control, progress) {
        Ok(finished) => finished,
        Err(EngineError::ReceivePath(why)) => return Err(TrialError::NoPath(why)),
        Err(error @ (EngineError::Link { .. } | EngineError::Network { .. })) => {
            let lines: Vec<String> = error.to_string().lines().map(|l| l.trim().into()).collect();
            return Err(TrialError::NoLink(lines.join("; ")));
        }
        Err(error) => return Err(Failure::bad(error).into()),
    };
    if let Some(error) = finished.run_file_error {
        return Err(Failure::bad(error).into());
    }
    let reader = report::open(&finished.run_file, engine::catalogue_of).map_err(Failure::bad)?;
    let report = Report::from_run(&reader).map_err(Failure::bad)?;
    Ok((reader, report))
}

/// Runs a trial with media of this length.
pub(super) fn trial(
    way: ReceivePath,
    length: Duration,
    folder: &Path,
    set: &[String],
    control: &Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Trial, TrialError> {
    let length_text = format!("{}ms", length.as_millis());
    let mut servers = Vec::new();
    let mut text = String::from("name: calibrate\nclients:\n");
    for group in &GROUPS {
        let with = [group.server, &["--length", &length_text]].concat();
        let server = Reference::log_packets(folder, group.name, &with)?;
        text.push_str(&format!(
            "  {}:\n    protocol: rtsp\n    urls: [\"rtsp://127.0.0.1:{}/1\"]\n    transport: {}\n    \
             load: {{ clients: {}, one_every: {}ms }}\n",
            group.name,
            server.port,
            way.transport(),
            group.clients,
            START_INTERVAL.as_millis(),
        ));
        servers.push(server);
    }
    let scenario = scenario(way, &text, set)?;
    let (reader, report) = play(&scenario, folder, control, progress)?;
    let began = start_time(&reader)?;
    let mut rows = Vec::new();
    for (group, server) in GROUPS.iter().zip(servers) {
        let served = ServedStream::read(&server.finish(), true)?;
        let metrics = metrics_of(&report, group.name)?;
        let mut rows = Rows {
            streams: group.name,
            all: &mut rows,
        };
        compare_counts(&served, metrics, &mut rows);
        if group.timed != TimingChecks::No {
            compare_jitter(&served, metrics, &mut rows);
            compare_startup(&served, metrics, &reader, began, &mut rows)?;
        }
        if group.timed == TimingChecks::All {
            compare_bit_rate(&served, &reader, began, length, &mut rows)?;
        }
    }
    Ok(Trial::of(report, rows))
}

/// Returns the figures of a population.
pub(super) fn metrics_of<'a>(report: &'a Report, name: &str) -> Result<&'a Metrics, Failure> {
    let mut populations = report.populations.iter();
    let found = populations.find(|population| population.name == name);
    let found = found.ok_or_else(|| Failure::bad("the run file lacks a population"))?;
    Ok(&found.metrics)
}

/// Parses a scenario for this receive path, with the tester settings that the user gave.
pub(super) fn scenario(way: ReceivePath, text: &str, set: &[String]) -> Result<Scenario, Failure> {
    let mut overrides = overrides();
    overrides
        .set
        .extend(way.scenario_setting().map(str::to_owned));
    overrides.set.extend_from_slice(set);
    Scenario::parse("calibrate", text, &overrides).map_err(Failure::diagnostic)
}

/// Returns the start of the run, in nanoseconds of `CLOCK_MONOTONIC`.
pub(super) fn start_time(reader: &Reader) -> Result<f64, Failure> {
    reader
        .fact(&fact::CLOCK_MONOTONIC_NANOS)
        .map_err(Failure::bad)?
        .map(|nanos| nanos as f64)
        .ok_or_else(|| Failure::bad("the run file does not say when the run began"))
}

fn compare_counts(served: &[ServedStream], metrics: &Metrics, rows: &mut Rows<'_>) {
    let truth = Counts::of(served);
    let mut row = |metric: &str, truth: u64, measured: Option<f64>| {
        let truth = TrueValue::exactly(truth as f64);
        rows.add(metric, Unit::Count, (truth, measured), COUNT);
    };
    let value = |name: &str| metrics.value(name);
    row("expected", truth.expected, value("expected"));
    row("received", truth.received, value("received"));
    row("lost", truth.expected - truth.received, value("lost"));
    row("duplicated", truth.duplicated, value("duplicated"));
    row("reordered", truth.reordered, value("reordered"));
    row("loss_bursts", truth.loss_bursts, value("loss_bursts"));
    // The mean of a distribution of counts is exact, and so is the sum computed from it.
    let distribution = |name: &str| metrics.distribution(name);
    let longest = distribution("loss_burst_length").map_or(0.0, |found| found.max);
    row("loss_burst_length.max", truth.longest_burst, Some(longest));
    let distance = distribution("reorder_distance")
        .map_or(0.0, |found| (found.mean * found.count as f64).round());
    row(
        "reorder_distance, sum",
        truth.reorder_distance,
        Some(distance),
    );
    row("payload_bytes", truth.payload_bytes, value("payload_bytes"));
}

fn compare_jitter(served: &[ServedStream], metrics: &Metrics, rows: &mut Rows<'_>) {
    if let Some(truth) = mean_jitter(served, f64::NEG_INFINITY, f64::INFINITY) {
        let measured = metrics.distribution("jitter").map(|found| found.mean);
        rows.add("jitter.mean", Unit::Seconds, (truth, measured), JITTER);
    }
}

/// Compares the start-up delays of the clients, as their mean and for the client with the largest
/// deviation. The truth is the time from the planned first request, computed here independently, to
/// the time at which the server sent its first packet.
fn compare_startup(
    served: &[ServedStream],
    metrics: &Metrics,
    reader: &Reader,
    began: f64,
    rows: &mut Rows<'_>,
) -> Result<(), Failure> {
    let mut sum = TrueValue::default();
    let mut count = 0.0;
    let mut worst: Option<(TrueValue, f64)> = None;
    for client in reader.clients() {
        let client = client.map_err(Failure::bad)?;
        if client.subject != rows.streams {
            continue;
        }
        let (Some(stream), Some(first_media)) =
            (stream_of(&client.streams, served), client.first_media)
        else {
            continue;
        };
        let Some(left) = stream.first_sent_at else {
            continue;
        };
        let due = began + f64::from(client.slot) * START_INTERVAL.as_nanos() as f64;
        // The server reads its clock after the call that sends the first packet. The packet may
        // have left earlier by up to the duration of that call.
        let unsure = stream
            .departures
            .first()
            .map_or(0.0, |first| first.sent_between.1 - first.sent_between.0);
        let truth = TrueValue {
            value: (left - due) / 1e9,
            uncertainty: unsure / 1e9,
        };
        sum.value += truth.value;
        sum.uncertainty += truth.uncertainty;
        count += 1.0;
        let measured = first_media.since(client.due).as_secs_f64();
        let error = (measured - truth.value).abs();
        if worst.is_none_or(|(truth, measured)| error > (measured - truth.value).abs()) {
            worst = Some((truth, measured));
        }
    }
    if let Some((truth, measured)) = worst {
        let mean = TrueValue {
            value: sum.value / count,
            uncertainty: sum.uncertainty / count,
        };
        let found = metrics
            .distribution("startup_delay")
            .map(|found| found.mean);
        let worst = (truth, Some(measured));
        rows.add("startup_delay.mean", Unit::Seconds, (mean, found), STARTUP);
        rows.add("startup_delay, worst client", Unit::Seconds, worst, STARTUP);
    }
    Ok(())
}

/// Finds the server's record of the stream in a client's row.
pub(super) fn stream_of<'a>(
    streams: &serde_json::Value,
    served: &'a [ServedStream],
) -> Option<&'a ServedStream> {
    let ssrc = streams.get(0)?.get("ssrc")?.as_u64()?;
    served.iter().find(|stream| stream.ssrc == ssrc)
}

/// Finds a population, the server or the tester by its name.
pub(super) fn find_subject<'a>(reader: &'a Reader, name: &str) -> Result<&'a Subject, Failure> {
    let found = reader.find_subject(name);
    found.ok_or_else(|| Failure::bad(format_args!("the run file has nothing about `{name}`")))
}

/// Compares the bit rate over the whole seconds in which every stream played, as a run with a
/// warm-up counts it.
fn compare_bit_rate(
    served: &[ServedStream],
    reader: &Reader,
    began: f64,
    length: Duration,
    rows: &mut Rows<'_>,
) -> Result<(), Failure> {
    let subject = find_subject(reader, rows.streams)?;
    let mut totals = Totals::new(subject.catalogue);
    let mut span = None;
    for window in reader.windows() {
        let window = window.map_err(Failure::bad)?;
        let ends = window.start.as_secs_f64() + window.seconds;
        if window.index == 0 || ends > length.as_secs_f64() {
            continue;
        }
        if let Some(seen) = window.subjects.get(rows.streams) {
            totals.add(seen, window.seconds);
            let (from, _) = span.unwrap_or((window.start.as_secs_f64(), ends));
            span = Some((from, ends));
        }
    }
    if let Some((from, to)) = span {
        let truth = bit_rate(served, began + from * 1e9, began + to * 1e9);
        let measured = totals.named("bitrate", measure::totals::Statistic::Value);
        rows.add("bitrate", Unit::BitsPerSecond, (truth, measured), BIT_RATE);
    }
    Ok(())
}

/// Returns the path as text of an argument.
pub(super) fn utf8(path: &Path) -> Result<String, Failure> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::bad(format_args!("the path {} is not UTF-8", path.display())))
}
