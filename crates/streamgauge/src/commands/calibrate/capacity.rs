//! Measures the capacity of this machine for one receive path: more clients each second, until the
//! tester is no longer accurate or healthy, or the reference server on the same machine cannot keep
//! up.

use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use engine::{Control, Phase, Progress};
use measure::totals::Statistic;
use measure::{HealthBounds, Totals, tester};
use report::Reader;
use report::human::{count, figure, plural};

use super::case::packet_logger;
use super::judge::{JITTER, STARTUP};
use super::trial::{Reference, TrialError, find_subject, play, scenario, start_time, stream_of};
use super::truth::{ServedStream, mean_jitter};
use crate::args::ReceivePath;
use crate::commands::demo::reference_server;
use crate::commands::free_port::free_port;
use crate::exit::Failure;

/// Bit rate of each client's media in bit/s: about 100 packets a second.
pub(super) const CLIENT_RATE: f64 = 1e6;
const CLIENT_RATE_TEXT: &str = "1Mbps";
/// Clients in the first second, and the factor by which they grow each second after it.
pub(super) const FIRST_CLIENTS: u64 = 50;
const GROWTH: f64 = 1.5;
/// Maximum duration in seconds.
const SECONDS: u32 = 10;
const SECONDS_QUICK: u32 = 7;
/// Clients of a separate, otherwise idle server that logs every packet. They show the errors of the
/// tester at each moment.
const PROBES: u32 = 5;
/// Maximum number of descriptors per client: two ports and a connection.
const DESCRIPTORS_PER_CLIENT: u64 = 3;
/// Descriptors for everything else.
const OTHER_DESCRIPTORS: u64 = 200;
/// The server has fallen behind if it sends less than this share of the media due to the playing
/// clients.
const SENT_SHARE_MIN: f64 = 0.97;
/// The trial stops after this many consecutive seconds in which the tester was unhealthy.
const UNFIT_MAX: u32 = 2;

/// The limiting factor of the capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// The tester, for this reason.
    Tester(String),
    /// The reference server on the same machine, for this reason. The tester could have done more.
    Server(String),
    /// No limit up to the highest load that was tried.
    None,
}

/// Load of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SustainedLoad {
    pub(super) clients: f64,
    pub(super) packets: f64,
    pub(super) bits: f64,
}

/// Capacity of this machine.
#[derive(Clone, Debug)]
pub(super) struct Capacity {
    /// Load of the last good second.
    pub(super) carried: SustainedLoad,
    pub(super) limit: Limit,
}

/// Result of one second.
#[derive(Clone, Debug, Default, PartialEq)]
struct SecondResult {
    carried: SustainedLoad,
    /// Faults of the tester and of the server.
    tester: Option<String>,
    server: Option<String>,
}

/// Runs the trial.
pub(super) fn capacity(
    way: ReceivePath,
    quick: bool,
    folder: &Path,
    set: &[String],
    files: Option<u64>,
    control: &Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Capacity, TrialError> {
    let seconds = if quick { SECONDS_QUICK } else { SECONDS };
    let probe = Reference::log_packets(folder, "probe", &["--bitrate", "800kbps", "--fps", "100"])?;
    let port = free_port(packet_logger().transport)?;
    let served = folder.join("load.served");
    let text = text(way, port, probe.port, seconds, files);
    let mut scenario = scenario(way, &text, set)?;
    let with = ["--bitrate", CLIENT_RATE_TEXT, "--report"].map(str::to_owned);
    let with = with.into_iter().chain([super::trial::utf8(&served)?]);
    scenario.server = Some(reference_server(packet_logger(), port, with.collect())?);
    let mut unfit = 0;
    let mut watch = |so_far: &Progress| {
        progress(so_far);
        if so_far.phase == Phase::Running {
            unfit = if so_far.tester.healthy { 0 } else { unfit + 1 };
            if unfit >= UNFIT_MAX {
                control.stop();
            }
        }
    };
    let (reader, _) = play(&scenario, folder, control, &mut watch)?;
    let probes = ServedStream::read(&probe.finish(), true)?;
    let seconds = seconds_of(&reader, &ServedStream::read(&served, false)?, &probes)?;
    Ok(conclude(&seconds))
}

fn text(way: ReceivePath, port: u16, probe: u16, seconds: u32, files: Option<u64>) -> String {
    let max_clients = files.map_or(u64::MAX, |files| {
        files.saturating_sub(OTHER_DESCRIPTORS) / DESCRIPTORS_PER_CLIENT
    });
    let mut text = format!(
        "name: capacity\nduration: {seconds}s\nstop_timeout: 1s\nclients:\n  probe:\n    protocol: rtsp\n    \
         urls: [\"rtsp://127.0.0.1:{probe}/1\"]\n    transport: {transport}\n    load: {{ clients: {PROBES} }}\n  \
         load:\n    protocol: rtsp\n    urls: [\"rtsp://127.0.0.1:{port}/1\"]\n    transport: {transport}\n    \
         load:\n      stages:\n",
        transport = way.transport(),
    );
    for second in 0..seconds {
        let clients = (FIRST_CLIENTS as f64 * GROWTH.powi(second as i32)) as u64;
        let clients = clients.min(max_clients);
        // Writing to a string does not fail.
        let _ = writeln!(text, "        - {{ clients: {clients}, over: 1s }}");
    }
    text
}

/// Returns the result of each second. The first is left out, as the probes start in it.
fn seconds_of(
    reader: &Reader,
    load: &[ServedStream],
    probes: &[ServedStream],
) -> Result<Vec<SecondResult>, Failure> {
    let began = start_time(reader)?;
    let clients = clients_of(reader, load, began)?;
    for name in ["load", "probe", "tester", "server"] {
        find_subject(reader, name)?;
    }
    let bounds = HealthBounds::default();
    let mut seconds = Vec::new();
    for window in reader.windows() {
        let window = window.map_err(Failure::bad)?;
        let start = window.start.as_secs_f64();
        let span = start..start + window.seconds;
        // The last, shorter window is the one in which the run was stopped.
        if window.index == 0 || window.seconds < 0.999 {
            continue;
        }
        let totals = |name: &str| {
            let catalogue = reader.find_subject(name)?.catalogue;
            let found = window.subjects.get(name)?;
            Some(Totals::of_window(catalogue, found, window.seconds))
        };
        let (Some(loads), Some(probe), Some(tester)) =
            (totals("load"), totals("probe"), totals("tester"))
        else {
            continue;
        };
        let value = |of: &Totals, name: &str| of.named(name, Statistic::Value).unwrap_or(0.0);
        let (expected, received) = (value(&loads, "expected"), value(&loads, "received"));
        let overflow = value(&tester, "overflow");
        let carried = SustainedLoad {
            clients: value(&loads, "playing"),
            packets: received / window.seconds,
            bits: value(&loads, "bitrate"),
        };
        let absolute = began + span.start * 1e9..began + span.end * 1e9;
        let unfit = tester_fault(&tester, &bounds, overflow)
            .or_else(|| jitter_fault(&probe, probes, absolute))
            .or_else(|| startup_fault(&clients, &span));
        let due: f64 = clients
            .iter()
            .map(|client| client.playing_in(&span) * CLIENT_RATE)
            .sum();
        let bits = carried.bits * window.seconds;
        let cpu = totals("server").map_or(0.0, |server| value(&server, "cpu"));
        let behind = if expected - received > overflow {
            let lost = plural(expected - received - overflow, "packet", "packets");
            Some(format!("{lost} were not sent or were lost on their way"))
        } else if bits < due * SENT_SHARE_MIN {
            Some(format!(
                "it sent {} of the {} that were due, with {}",
                figure(measure::Unit::BitsPerSecond, carried.bits),
                figure(measure::Unit::BitsPerSecond, due / window.seconds),
                figure(measure::Unit::Cores, cpu),
            ))
        } else {
            None
        };
        seconds.push(SecondResult {
            carried,
            tester: unfit,
            server: behind,
        });
    }
    Ok(seconds)
}

/// Returns the last good second before the first bad one, and the fault in the bad one. A bad
/// second before a good one is ignored as a hiccup of the machine: the good one carried more
/// clients.
fn conclude(seconds: &[SecondResult]) -> Capacity {
    let is_bad = |second: &SecondResult| second.tester.is_some() || second.server.is_some();
    let bad = (0..seconds.len())
        .find(|&at| is_bad(&seconds[at]) && seconds.get(at + 1).is_none_or(is_bad));
    let mut before = seconds[..bad.unwrap_or(seconds.len())].iter().rev();
    let good = before.find(|&second| !is_bad(second));
    let carried = good.map(|second| second.carried).unwrap_or_default();
    let limit = match bad.map(|bad| &seconds[bad]) {
        None => Limit::None,
        Some(SecondResult {
            tester: Some(reason),
            ..
        }) => Limit::Tester(reason.clone()),
        Some(second) => Limit::Server(second.server.clone().unwrap_or_default()),
    };
    Capacity { carried, limit }
}

fn tester_fault(totals: &Totals, bounds: &HealthBounds, overflow: f64) -> Option<String> {
    let lag = totals
        .named("lag", Statistic::Quantile(0.99))
        .unwrap_or(0.0);
    let cpu = totals
        .named("cpu_hottest_worker", Statistic::Max)
        .unwrap_or(0.0);
    let late = totals.counter(tester::NOT_STARTED_IN_TIME);
    Some(if overflow > 0.0 {
        let packets = plural(overflow, "packet", "packets");
        format!("its own queues dropped {packets}")
    } else if cpu > bounds.worker_cpu {
        let cpu = figure(measure::Unit::Cores, cpu);
        format!("its busiest worker used {cpu}")
    } else if lag > bounds.lag_p99.as_secs_f64() {
        let lag = report::human::seconds(lag);
        format!("its event loop lagged by {lag}")
    } else if late > 0 {
        let late = count(late as f64);
        format!("{late} clients began more than 1 s late")
    } else {
        return None;
    })
}

fn jitter_fault(probe: &Totals, probes: &[ServedStream], span: Range<f64>) -> Option<String> {
    let truth = mean_jitter(probes, span.start, span.end)?;
    let measured = probe.named("jitter", Statistic::Mean)?;
    let error = measured - truth.value;
    (error.abs() > JITTER.for_value(truth.value) + truth.uncertainty).then(|| {
        format!(
            "the jitter it measured was off by {}",
            report::human::seconds(error)
        )
    })
}

/// A client of the load. Times are seconds since the start of the run.
struct Client {
    first_media: f64,
    ended: f64,
    /// Time at which its first packet left the server.
    first_sent: Option<f64>,
}

impl Client {
    fn playing_in(&self, span: &Range<f64>) -> f64 {
        (self.ended.min(span.end) - self.first_media.max(span.start)).max(0.0)
    }
}

fn clients_of(reader: &Reader, load: &[ServedStream], began: f64) -> Result<Vec<Client>, Failure> {
    let mut clients = Vec::new();
    for client in reader.clients() {
        let client = client.map_err(Failure::bad)?;
        let Some(first_media) = client.first_media.filter(|_| client.subject == "load") else {
            continue;
        };
        let left = stream_of(&client.streams, load).and_then(|stream| stream.first_sent_at);
        clients.push(Client {
            first_media: first_media.as_secs_f64(),
            ended: client.ended.map_or(f64::INFINITY, |at| at.as_secs_f64()),
            first_sent: left.map(|left| (left - began) / 1e9),
        });
    }
    Ok(clients)
}

fn startup_fault(clients: &[Client], span: &Range<f64>) -> Option<String> {
    let (mut sum, mut count) = (0.0, 0.0);
    for client in clients {
        if let Some(left) = client
            .first_sent
            .filter(|_| span.contains(&client.first_media))
        {
            sum += client.first_media - left;
            count += 1.0;
        }
    }
    let mean: f64 = if count > 0.0 { sum / count } else { 0.0 };
    (mean.abs() > STARTUP.for_value(0.0)).then(|| {
        format!(
            "the start-up delays it measured were off by {}",
            report::human::seconds(mean)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(clients: f64, tester: Option<&str>, server: Option<&str>) -> SecondResult {
        SecondResult {
            carried: SustainedLoad {
                clients,
                packets: clients * 100.0,
                bits: clients * 1e6,
            },
            tester: tester.map(str::to_owned),
            server: server.map(str::to_owned),
        }
    }

    #[test]
    fn the_last_good_second_before_the_first_bad_one_counts() {
        let good = |clients| second(clients, None, None);
        let slow = |clients| second(clients, None, Some("slow"));
        let seconds = [good(50.0), good(75.0), slow(112.0), slow(168.0)];
        let capacity = conclude(&seconds);
        assert_eq!(capacity.carried.clients, 75.0);
        assert_eq!(capacity.limit, Limit::Server("slow".to_owned()));
        let capacity = conclude(&seconds[..2]);
        assert_eq!(
            (capacity.carried.clients, capacity.limit),
            (75.0, Limit::None)
        );
        let capacity = conclude(&[second(50.0, Some("lost"), None)]);
        assert_eq!(capacity.carried.clients, 0.0);
    }

    #[test]
    fn a_bad_second_before_a_good_one_is_ignored() {
        let good = |clients| second(clients, None, None);
        let bad = |clients| second(clients, Some("late"), None);
        let capacity = conclude(&[good(50.0), bad(75.0), good(112.0)]);
        assert_eq!(
            (capacity.carried.clients, capacity.limit),
            (112.0, Limit::None)
        );
        let capacity = conclude(&[good(50.0), bad(75.0), good(112.0), bad(168.0)]);
        assert_eq!(capacity.carried.clients, 112.0);
        assert_eq!(capacity.limit, Limit::Tester("late".to_owned()));
    }

    #[test]
    fn tester_is_the_limit_if_the_server_is_slow_as_well() {
        let capacity = conclude(&[second(50.0, Some("late"), Some("slow"))]);
        assert_eq!(capacity.limit, Limit::Tester("late".to_owned()));
    }

    #[test]
    fn media_is_due_only_to_playing_clients() {
        let client = Client {
            first_media: 2.25,
            ended: f64::INFINITY,
            first_sent: None,
        };
        assert_eq!(client.playing_in(&(1.0..2.0)), 0.0);
        assert_eq!(client.playing_in(&(2.0..3.0)), 0.75);
        assert_eq!(client.playing_in(&(3.0..4.0)), 1.0);
    }

    #[test]
    fn descriptor_limit_bounds_the_number_of_clients() {
        protocols::install();
        let text = text(
            ReceivePath::Tcp,
            1,
            2,
            SECONDS,
            Some(OTHER_DESCRIPTORS + 300),
        );
        assert!(text.contains("clients: 100, over: 1s"), "{text}");
        assert!(!text.contains("clients: 112"), "{text}");
        scenario(ReceivePath::Tcp, &text, &[]).expect("it is a good scenario");
    }
}
