//! What limited the server: statements that the windows of a run bear out, each with its figures.
//!
//! A statement says what was seen and not why. Where nothing was seen nothing is said: a server may
//! well be at an end that leaves no trace in what is measured.

use measure::metric::MetricSource;
use measure::server::ServerLog;
use measure::{Catalogue, Window};
use schemars::JsonSchema;

/// A core counts as taken up from this share of it on.
const SATURATED: f64 = 0.95;

/// A process is near its limit on file descriptors from this share of it on.
const NEAR_THE_LIMIT: f64 = 0.95;

/// How many kinds of complaints of the log are quoted.
const COMPLAINTS_SHOWN: usize = 3;

/// How many windows something must be seen in: one alone may be anything.
const WINDOWS_MIN: usize = 3;

/// The clients' share of their highest number up to which, and from which on, windows are compared
/// to see whether the bit rate still rises with the clients.
const BELOW: (f64, f64) = (0.6, 0.8);
const NEAR_THE_TOP: f64 = 0.95;

/// The bit rate is called flat where it rises by less than this share of what the clients rise by.
const FOLLOWS: f64 = 0.25;

/// The server's memory is looked at where the number of clients is within this share of its
/// highest...
const CONSTANT: f64 = 0.02;
/// ... for so long, in seconds, ...
const GROWS_FOR: f64 = 60.0;
/// ... in so many samples, ...
const SAMPLES_MIN: usize = 6;
/// ... and is said to grow if it does by this share and so many bytes, ...
const GROWS_BY: f64 = 0.1;
const GROWS_BY_BYTES: f64 = (8 << 20) as f64;
/// ... so evenly that a straight line explains so much of it (coefficient of determination).
const EVENLY: f64 = 0.9;

/// What a statement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// One thread of the server had a processor core to itself.
    Thread,
    /// Server and tester together took up all cores of the machine that they share, or the server
    /// all that it may use.
    Cores,
    /// The bit rate did not rise with the clients.
    FlatBitRate,
    /// The kernel dropped datagrams because the server did not fetch them.
    SocketDrops,
    /// A process of the server had nearly as many file descriptors open as it may.
    FileDescriptors,
    /// The server's log complained.
    Log,
    /// The server's memory grew while the number of clients did not.
    MemoryGrowth,
}

/// One statement about what limited the server, and its figures.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct Limit {
    /// What it is about.
    pub kind: LimitKind,
    /// The statement, with the figures that bear it out.
    pub text: String,
    /// When it was first seen, in seconds from the beginning of the run.
    pub first_at: f64,
    /// How many windows it was seen in.
    pub windows: u64,
}

/// What one window tells.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Point {
    start: f64,
    playing: f64,
    /// Payload of all populations, in bit/s.
    bit_rate: f64,
    cpu: Option<f64>,
    hottest_thread: Option<f64>,
    /// How many cores it may use.
    allowed: Option<f64>,
    tester_cpu: Option<f64>,
    uss: Option<f64>,
    descriptors_share: Option<f64>,
    descriptors: Option<f64>,
    log_complaints: f64,
    socket_drops: f64,
    /// Of a server on another machine: that machine's processor time, its cores, and what it
    /// dropped at full queues.
    machine_cpu: Option<f64>,
    machine_cores: Option<f64>,
    receive_errors: f64,
}

/// Whose figures a window's are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Population,
    Server,
    Tester,
}

/// The windows of a run, as far as statements need them: under 100 bytes each.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    points: Vec<Point>,
}

impl Evidence {
    /// Begins a window.
    pub(crate) fn window(&mut self, start: f64) {
        self.points.push(Point {
            start,
            ..Point::default()
        });
    }

    /// Adds what one subject saw in the window that was begun last.
    pub(crate) fn add(
        &mut self,
        whose: Whose,
        catalogue: Catalogue,
        window: &Window,
        seconds: f64,
    ) {
        let Some(point) = self.points.last_mut() else {
            return;
        };
        let gauge = |name| match catalogue.find(name)?.source {
            MetricSource::Gauge(id, _) => *window.gauges.get(usize::from(id.0))?,
            _ => None,
        };
        let counter = |name| match catalogue.find(name)?.source {
            MetricSource::Counter(id) => window.counters.get(usize::from(id.0)).copied(),
            _ => None,
        };
        match whose {
            Whose::Population => {
                point.playing += gauge("playing").unwrap_or(0.0);
                let bytes = counter("payload_bytes").unwrap_or(0) as f64;
                if seconds > 0.0 {
                    point.bit_rate += bytes * 8.0 / seconds;
                }
            }
            Whose::Server => {
                point.cpu = gauge("cpu");
                point.hottest_thread = gauge("cpu_hottest_thread");
                point.allowed = gauge("cpu_allowed");
                point.uss = gauge("uss");
                point.descriptors_share = gauge("file_descriptors_share");
                point.descriptors = gauge("file_descriptors");
                point.log_complaints = counter("log_complaints").unwrap_or(0) as f64;
                point.socket_drops = counter("socket_drops").unwrap_or(0) as f64;
                point.machine_cpu = gauge("machine_cpu");
                point.machine_cores = gauge("machine_cores");
                point.receive_errors = counter("udp_receive_errors").unwrap_or(0) as f64;
            }
            Whose::Tester => point.tester_cpu = gauge("cpu"),
        }
    }

    /// What can be said. `cores` is how many the machine has, on which the server runs beside the
    /// tester; `log` is what its log complained of.
    pub(crate) fn limits(&self, cores: u32, log: &ServerLog) -> Vec<Limit> {
        [
            self.thread(),
            self.cores(cores),
            self.allowed_cores(cores),
            self.other_machines_cores(),
            self.flat(),
            self.socket_drops(),
            self.receive_errors(),
            self.descriptors(),
            self.memory(),
            self.log(log),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn thread(&self) -> Option<Limit> {
        let seen: Vec<&Point> = self.where_at_least(|point| point.hottest_thread, SATURATED);
        let most = largest(&seen, |point| point.hottest_thread);
        limit(
            LimitKind::Thread,
            &seen,
            self.points.len(),
            |from, times| {
                format!(
                    "one thread of the server had a core to itself (up to {most:.2} cores) {times}, {from}: a \
                 server that does its work in one thread ends there, however many cores there are"
                )
            },
        )
    }

    /// Of a server that may use fewer cores than the machine has: those.
    fn allowed_cores(&self, cores: u32) -> Option<Limit> {
        let share = |point: &Point| {
            let fewer = |&allowed: &f64| allowed > 0.0 && allowed < f64::from(cores);
            Some(point.cpu? / point.allowed.filter(fewer)?)
        };
        let seen = self.where_at_least(share, SATURATED);
        let most = largest(&seen, |point| point.cpu);
        let allowed = largest(&seen, |point| point.allowed);
        limit(LimitKind::Cores, &seen, self.points.len(), |from, times| {
            format!(
                "the server took up all that it may use of the machine's {cores} cores, which is {allowed} (up to {most:.2}) {times}, \
                 {from}: it is kept to that by its affinity or its control group's quota"
            )
        })
    }

    fn other_machines_cores(&self) -> Option<Limit> {
        let share =
            |point: &Point| Some(point.machine_cpu? / point.machine_cores.filter(|&n| n > 0.0)?);
        let seen = self.where_at_least(share, SATURATED);
        let most = largest(&seen, |point| point.machine_cpu);
        let cores = largest(&seen, |point| point.machine_cores);
        limit(LimitKind::Cores, &seen, self.points.len(), |from, times| {
            format!(
                "the {cores:.0} cores of the server's machine were taken up (up to {most:.2}) {times}, {from}"
            )
        })
    }

    fn descriptors(&self) -> Option<Limit> {
        let seen = self.where_at_least(|point| point.descriptors_share, NEAR_THE_LIMIT);
        let most = largest(&seen, |point| point.descriptors_share) * 100.0;
        let open = largest(&seen, |point| point.descriptors);
        let first = seen.first()?;
        // None left is enough, however soon some were given back.
        if seen.len() < WINDOWS_MIN && most < 100.0 {
            return None;
        }
        Some(Limit {
            kind: LimitKind::FileDescriptors,
            text: format!(
                "a process of the server had up to {most:.0} % of the file descriptors open that it may ({open:.0} in all of its \
                 processes) {}, {}: at 100 % it can take no connection any more",
                times(seen.len(), self.points.len()),
                from(first)
            ),
            first_at: first.start,
            windows: seen.len() as u64,
        })
    }

    fn log(&self, log: &ServerLog) -> Option<Limit> {
        let seen: Vec<&Point> = self
            .points
            .iter()
            .filter(|p| p.log_complaints > 0.0)
            .collect();
        let first = seen.first()?;
        let lines: f64 = seen.iter().map(|point| point.log_complaints).sum();
        let more = if log.more { " or more" } else { "" };
        let mut text = format!(
            "the server's log complained in {lines:.0} lines{more}, {}, {}",
            times(seen.len(), self.points.len()),
            from(first)
        );
        for (index, complaint) in log.complaints.iter().take(COMPLAINTS_SHOWN).enumerate() {
            text += if index == 0 { ": " } else { "; " };
            text += &format!(
                "{} such as \u{201c}{}\u{201d}",
                complaint.lines, complaint.first
            );
        }
        Some(Limit {
            kind: LimitKind::Log,
            text,
            first_at: first.start,
            windows: seen.len() as u64,
        })
    }

    fn receive_errors(&self) -> Option<Limit> {
        let seen: Vec<&Point> = self
            .points
            .iter()
            .filter(|p| p.receive_errors > 0.0)
            .collect();
        let first = seen.first()?;
        let errors: f64 = seen.iter().map(|point| point.receive_errors).sum();
        Some(Limit {
            kind: LimitKind::SocketDrops,
            text: format!(
                "the server's machine dropped {errors:.0} datagrams at full receive queues, the server's or others', {}, {}",
                times(seen.len(), self.points.len()),
                from(first)
            ),
            first_at: first.start,
            windows: seen.len() as u64,
        })
    }

    fn cores(&self, cores: u32) -> Option<Limit> {
        // What a machine elsewhere spends is not to be added to what the tester spends here.
        let here = |point: &Point| point.machine_cpu.is_none();
        let both = |point: &Point| {
            let server = point.cpu.filter(|_| here(point))?;
            Some(server + point.tester_cpu.unwrap_or(0.0))
        };
        let bound = SATURATED * f64::from(cores.max(1));
        let seen = self.where_at_least(both, bound);
        let server = largest(&seen, |point| point.cpu);
        let tester = largest(&seen, |point| point.tester_cpu);
        limit(LimitKind::Cores, &seen, self.points.len(), |from, times| {
            format!(
                "the machine's {cores} cores were taken up (the server up to {server:.2}, the tester beside it up to \
                 {tester:.2}) {times}, {from}"
            )
        })
    }

    fn socket_drops(&self) -> Option<Limit> {
        let seen: Vec<&Point> = self
            .points
            .iter()
            .filter(|p| p.socket_drops > 0.0)
            .collect();
        let first = seen.first()?;
        let drops: f64 = seen.iter().map(|point| point.socket_drops).sum();
        Some(Limit {
            kind: LimitKind::SocketDrops,
            text: format!(
                "the kernel dropped {drops:.0} datagrams at the server's sockets, because it did not fetch them in \
                 time, {}, {}",
                times(seen.len(), self.points.len()),
                from(first)
            ),
            first_at: first.start,
            windows: seen.len() as u64,
        })
    }

    /// Compares windows near the highest number of clients with those of fewer, on the way up.
    fn flat(&self) -> Option<Limit> {
        let top = largest_of(self.points.iter().map(|point| point.playing));
        // Whoever leaves in turn is not to be compared with who comes in turn.
        let last = self
            .points
            .iter()
            .rposition(|p| p.playing >= NEAR_THE_TOP * top)?;
        let rising = &self.points[..=last];
        let (low, high) = (BELOW.0 * top, BELOW.1 * top);
        let first_at_top = rising
            .iter()
            .position(|p| p.playing >= NEAR_THE_TOP * top)?;
        let below: Vec<&Point> = rising[..first_at_top]
            .iter()
            .filter(|point| (low..=high).contains(&point.playing))
            .collect();
        let above: Vec<&Point> = rising[first_at_top..]
            .iter()
            .filter(|point| point.playing >= NEAR_THE_TOP * top)
            .collect();
        if below.len() < WINDOWS_MIN || above.len() < WINDOWS_MIN {
            return None;
        }
        let clients = (mean(&below, |p| p.playing), mean(&above, |p| p.playing));
        let rates = (mean(&below, |p| p.bit_rate), mean(&above, |p| p.bit_rate));
        if rates.0 <= 0.0 || clients.0 <= 0.0 {
            return None;
        }
        let (more_clients, more_rate) = (clients.1 / clients.0 - 1.0, rates.1 / rates.0 - 1.0);
        (more_rate < FOLLOWS * more_clients).then(|| Limit {
            kind: LimitKind::FlatBitRate,
            text: format!(
                "the bit rate did not follow the clients: from {:.0} to {:.0} that played ({:+.0} %) it went from \
                 {:.1} to {:.1} Mbit/s ({:+.0} %)",
                clients.0,
                clients.1,
                more_clients * 100.0,
                rates.0 / 1e6,
                rates.1 / 1e6,
                more_rate * 100.0
            ),
            first_at: rising[first_at_top].start,
            windows: above.len() as u64,
        })
    }

    fn memory(&self) -> Option<Limit> {
        let top = largest_of(self.points.iter().map(|point| point.playing));
        if top <= 0.0 {
            return None;
        }
        let mut samples: Vec<(f64, f64)> = Vec::new();
        for point in &self.points {
            if point.playing < (1.0 - CONSTANT) * top {
                continue;
            }
            // A level stays until the next sample; only new ones count.
            if let Some(uss) = point.uss
                && samples.last().is_none_or(|&(_, last)| last != uss)
            {
                samples.push((point.start, uss));
            }
        }
        let (&(begin, _), &(end, _)) = (samples.first()?, samples.last()?);
        let line = FittedLine::through(&samples)?;
        let (at_first, at_last) = (line.at(begin), line.at(end));
        let grown = at_last - at_first;
        (samples.len() >= SAMPLES_MIN
            && end - begin >= GROWS_FOR
            && grown >= GROWS_BY * at_first
            && grown >= GROWS_BY_BYTES
            && line.explains >= EVENLY)
            .then(|| Limit {
                kind: LimitKind::MemoryGrowth,
                text: format!(
                    "the server's memory grew by {:.1} MiB a minute while the number of clients stood still: from {:.1} to \
                     {:.1} MiB of its own within {:.0} s",
                    line.slope * 60.0 / f64::from(1 << 20),
                    at_first / f64::from(1 << 20),
                    at_last / f64::from(1 << 20),
                    end - begin
                ),
                first_at: begin,
                windows: samples.len() as u64,
            })
    }

    fn where_at_least(&self, figure: impl Fn(&Point) -> Option<f64>, bound: f64) -> Vec<&Point> {
        let seen = |point: &&Point| figure(point).is_some_and(|value| value >= bound);
        self.points.iter().filter(seen).collect()
    }
}

/// A statement about windows, if they are enough for one.
fn limit(
    kind: LimitKind,
    seen: &[&Point],
    of: usize,
    text: impl FnOnce(String, String) -> String,
) -> Option<Limit> {
    let first = seen.first()?;
    (seen.len() >= WINDOWS_MIN).then(|| Limit {
        kind,
        text: text(from(first), times(seen.len(), of)),
        first_at: first.start,
        windows: seen.len() as u64,
    })
}

fn from(first: &Point) -> String {
    format!(
        "first at {:.0} s with {:.0} clients playing",
        first.start, first.playing
    )
}

fn times(seen: usize, of: usize) -> String {
    format!("in {seen} of {of} windows")
}

fn largest_of(figures: impl Iterator<Item = f64>) -> f64 {
    figures.fold(0.0, f64::max)
}

fn largest(points: &[&Point], figure: impl Fn(&Point) -> Option<f64>) -> f64 {
    largest_of(points.iter().filter_map(|point| figure(point)))
}

fn mean(points: &[&Point], figure: impl Fn(&Point) -> f64) -> f64 {
    points.iter().map(|point| figure(point)).sum::<f64>() / points.len() as f64
}

/// A straight line by least squares.
struct FittedLine {
    slope: f64,
    offset: f64,
    /// The coefficient of determination.
    explains: f64,
}

impl FittedLine {
    fn through(points: &[(f64, f64)]) -> Option<FittedLine> {
        let count = points.len() as f64;
        let (sum_x, sum_y) = points
            .iter()
            .fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
        let (mean_x, mean_y) = (sum_x / count, sum_y / count);
        let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
        for (x, y) in points {
            let (x, y) = (x - mean_x, y - mean_y);
            xx += x * x;
            xy += x * y;
            yy += y * y;
        }
        (xx > 0.0 && yy > 0.0).then(|| FittedLine {
            slope: xy / xx,
            offset: mean_y - xy / xx * mean_x,
            explains: xy * xy / (xx * yy),
        })
    }

    fn at(&self, x: f64) -> f64 {
        self.offset + self.slope * x
    }
}

#[cfg(test)]
mod tests {
    use measure::server::LogComplaint;

    use super::*;

    /// A run of windows of a second, each as `of` makes it out of its number.
    fn run(windows: u32, of: impl Fn(f64, &mut Point)) -> Evidence {
        let points = (0..windows).map(|number| {
            let mut point = Point {
                start: f64::from(number),
                playing: 100.0,
                bit_rate: 100e6,
                cpu: Some(0.5),
                hottest_thread: Some(0.4),
                tester_cpu: Some(0.1),
                uss: Some(50e6),
                ..Point::default()
            };
            of(f64::from(number), &mut point);
            point
        });
        Evidence {
            points: points.collect(),
        }
    }

    fn kinds(evidence: &Evidence) -> Vec<LimitKind> {
        limits(evidence).iter().map(|limit| limit.kind).collect()
    }

    fn limits(evidence: &Evidence) -> Vec<Limit> {
        evidence.limits(2, &ServerLog::default())
    }

    #[test]
    fn of_a_server_at_ease_nothing_is_said() {
        assert_eq!(kinds(&run(120, |_, _| {})), []);
        assert_eq!(kinds(&Evidence::default()), []);
        // Nor of one of which nothing is known.
        let blind = run(120, |_, point| *point = Point::default());
        assert_eq!(kinds(&blind), []);
    }

    #[test]
    fn a_saturated_thread_and_saturated_cores_are_told_apart() {
        let hot = |windows: f64| {
            run(60, move |at, point| {
                if at >= 60.0 - windows {
                    point.hottest_thread = Some(0.99);
                }
            })
        };
        assert_eq!(kinds(&hot(2.0)), [], "two windows may be anything");
        let limits = hot(5.0).limits(2, &ServerLog::default());
        assert_eq!(limits.len(), 1);
        assert_eq!((limits[0].kind, limits[0].windows), (LimitKind::Thread, 5));
        assert!(
            limits[0]
                .text
                .contains("0.99 cores) in 5 of 60 windows, first at 55 s with 100")
        );
        let cores = run(60, |_, point| {
            point.cpu = Some(1.5);
            point.tester_cpu = Some(0.45);
        });
        assert_eq!(kinds(&cores), [LimitKind::Cores]);
        assert_eq!(cores.limits(4, &ServerLog::default()), [], "there are more");
    }

    #[test]
    fn a_server_that_is_kept_to_some_of_the_cores_is_judged_by_those() {
        let kept = |allowed: Option<f64>, cpu: f64| {
            run(60, move |_, point| {
                (point.allowed, point.cpu) = (allowed, Some(cpu));
            })
        };
        let limits = kept(Some(1.0), 0.99).limits(4, &ServerLog::default());
        assert_eq!(limits.len(), 1);
        assert_eq!((limits[0].kind, limits[0].windows), (LimitKind::Cores, 60));
        let text = &limits[0].text;
        assert!(
            text.contains("machine's 4 cores, which is 1 (up to 0.99) in 60 of 60"),
            "{text}"
        );
        assert_eq!(kinds(&kept(Some(0.5), 0.49)), [LimitKind::Cores]);
        // It may use all, or was not near it, or nothing is known.
        for (allowed, cpu) in [(Some(2.0), 1.7), (Some(1.0), 0.9), (None, 0.99)] {
            assert_eq!(kinds(&kept(allowed, cpu)), [], "{allowed:?} {cpu}");
        }
        let all = kept(Some(2.0), 1.99).limits(2, &ServerLog::default());
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].text.contains("the tester beside it"), "{all:?}");
        // Of another machine nothing is known.
        let mut remote = kept(None, 1.0);
        remote
            .points
            .iter_mut()
            .for_each(|p| p.machine_cpu = Some(1.0));
        assert_eq!(kinds(&remote), []);
    }

    #[test]
    fn another_machine_is_judged_by_its_own_cores() {
        let remote = |cores: f64| {
            run(60, move |_, point| {
                point.cpu = Some(1.9);
                point.machine_cpu = Some(3.9);
                point.machine_cores = Some(cores);
                point.receive_errors = if cores > 4.0 { 1.0 } else { 0.0 };
            })
        };
        let limits = remote(4.0).limits(2, &ServerLog::default());
        assert_eq!(limits.len(), 1);
        assert!(
            limits[0]
                .text
                .contains("the 4 cores of the server's machine"),
            "{}",
            limits[0].text
        );
        let limits = remote(8.0).limits(2, &ServerLog::default());
        assert_eq!(limits.len(), 1);
        assert!(
            limits[0].text.contains("dropped 60 datagrams"),
            "{}",
            limits[0].text
        );
    }

    #[test]
    fn a_bit_rate_that_stops_rising_is_told_from_one_that_follows() {
        let ramp = |ends: f64| {
            run(120, move |at, point| {
                point.playing = (at * 2.0).min(200.0);
                point.bit_rate = point.playing.min(ends) * 1e6;
            })
        };
        assert_eq!(kinds(&ramp(200.0)), []);
        let limits = ramp(145.0).limits(2, &ServerLog::default());
        assert_eq!(limits.len(), 1);
        assert_eq!(limits[0].kind, LimitKind::FlatBitRate);
        assert!(limits[0].text.contains("Mbit/s (+"), "{}", limits[0].text);
        // All at once: there is nothing to compare with.
        assert_eq!(kinds(&run(60, |_, point| point.bit_rate = 1.0)), []);
        // Clients that leave are not the way up.
        let leaving = run(120, |at, point| {
            point.playing = 200.0 - at;
            point.bit_rate = 100e6;
        });
        assert_eq!(kinds(&leaving), []);
    }

    #[test]
    fn descriptors_near_their_limit_are_told_from_many() {
        let with = |share: f64| {
            run(60, move |at, point| {
                point.descriptors = Some(1000.0);
                point.descriptors_share = Some(if at < 20.0 { 0.1 } else { share });
            })
        };
        assert_eq!(kinds(&with(0.94)), []);
        let limits = limits(&with(1.0));
        assert_eq!(limits.len(), 1);
        assert_eq!(limits[0].kind, LimitKind::FileDescriptors);
        assert_eq!((limits[0].first_at, limits[0].windows), (20.0, 40));
        let text = &limits[0].text;
        assert!(
            text.contains("up to 100 %") && text.contains("(1000 in all"),
            "{text}"
        );
        let once = |share: f64| {
            run(60, move |at, point| {
                point.descriptors_share = Some(if at == 20.0 { share } else { 0.5 })
            })
        };
        assert_eq!(kinds(&once(0.99)), []);
        assert_eq!(kinds(&once(1.0)), [LimitKind::FileDescriptors]);
    }

    #[test]
    fn what_the_log_complains_of_is_quoted() {
        let evidence = run(60, |at, point| {
            point.log_complaints = if at >= 50.0 { 4.0 } else { 0.0 };
        });
        let complaint = |lines, first: &str| LogComplaint {
            pattern: String::new(),
            lines,
            first: first.to_owned(),
        };
        let log = ServerLog {
            complaints: vec![complaint(38, "too old"), complaint(2, "no files")],
            more: false,
        };
        let limits_of = limits;
        let limits = evidence.limits(2, &log);
        assert_eq!(limits.len(), 1);
        assert_eq!((limits[0].kind, limits[0].first_at), (LimitKind::Log, 50.0));
        assert!(
            limits[0].text.contains("40 lines, in 10 of 60 windows, first at 50 s with 100 clients playing: 38 such as \u{201c}too old\u{201d}; 2 such as"),
            "{}",
            limits[0].text
        );
        // Of a run that was cut off only the count is known.
        assert_eq!(limits_of(&evidence).len(), 1);
    }

    #[test]
    fn drops_are_summed() {
        let evidence = run(60, |at, point| {
            point.socket_drops = if at == 7.0 || at == 9.0 { 21.0 } else { 0.0 };
        });
        let limits = evidence.limits(2, &ServerLog::default());
        assert_eq!(limits.len(), 1);
        assert!(
            limits[0].text.contains("dropped 42 datagrams"),
            "{}",
            limits[0].text
        );
        assert_eq!((limits[0].first_at, limits[0].windows), (7.0, 2));
    }

    #[test]
    fn memory_that_grows_at_rest_is_told_from_what_comes_with_clients() {
        let sampled = |at: f64| (at / 5.0).floor() * 5.0;
        let leak = run(120, move |at, point| {
            point.uss = Some(50e6 + sampled(at) * 200e3)
        });
        let limits = leak.limits(2, &ServerLog::default());
        assert_eq!(limits.len(), 1);
        assert_eq!(limits[0].kind, LimitKind::MemoryGrowth);
        assert!(
            limits[0].text.contains("11.4 MiB a minute"),
            "{}",
            limits[0].text
        );
        let with_clients = run(120, |at, point| {
            point.playing = at;
            point.bit_rate = at * 1e6;
            point.uss = Some(50e6 + at * 200e3);
        });
        assert_eq!(kinds(&with_clients), []);
        let noise = run(120, move |at, point| {
            point.uss = Some(50e6 + 30e6 * (sampled(at) * 1.7).sin());
        });
        assert_eq!(kinds(&noise), []);
        let short = run(30, move |at, point| {
            point.uss = Some(50e6 + sampled(at) * 2e6)
        });
        assert_eq!(kinds(&short), []);
    }
}
