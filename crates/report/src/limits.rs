//! Limits of the server: statements that the windows of a run support, each with its figures.
//!
//! A statement describes an observation, not its reason. Without an observation there is no
//! statement: a server may reach a limit that leaves no trace in the measurements.

use measure::server::ServerLog;
use measure::totals::WINDOW_SECONDS_MIN;
use measure::{Catalogue, Window};
use schemars::JsonSchema;

use crate::window::{counter, level};

/// Share of a core from which it counts as saturated.
const SATURATED: f64 = 0.95;

/// Share of its limit on file descriptors from which a process is near the limit.
const NEAR_THE_LIMIT: f64 = 0.95;

/// Number of kinds of log complaints that are quoted.
const COMPLAINTS_SHOWN: usize = 3;

/// Minimum number of windows with an observation: a single one may have any cause.
const WINDOWS_MIN: usize = 3;

/// Shares of the highest number of clients. Windows within `FEWER_CLIENTS_SHARES` are compared with
/// those from `NEAR_THE_TOP` to see whether the bit rate still increases with the clients.
const FEWER_CLIENTS_SHARES: (f64, f64) = (0.6, 0.8);
const NEAR_THE_TOP: f64 = 0.95;

/// The bit rate is flat if its relative increase is less than this share of the increase in
/// clients.
const FLAT_RATIO: f64 = 0.25;

/// Memory growth: samples are taken while the number of clients is within this share of its
/// maximum.
const CONSTANT: f64 = 0.02;
/// Minimum period of the memory samples, in seconds.
const GROWS_FOR: f64 = 60.0;
/// Minimum number of memory samples.
const SAMPLES_MIN: usize = 6;
/// Minimum growth of the memory, as a share and in bytes.
const GROWS_BY: f64 = 0.1;
const GROWS_BY_BYTES: f64 = (8 << 20) as f64;
/// Minimum coefficient of determination of a straight line through the memory samples.
const DETERMINATION_MIN: f64 = 0.9;

/// Kind of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// One thread of the server used a whole processor core.
    Thread,
    /// Server and tester together used all cores of the machine that they share, or the server used
    /// all cores that it may use.
    Cores,
    /// The bit rate did not increase with the clients.
    FlatBitRate,
    /// The kernel dropped datagrams because the server did not fetch them.
    SocketDrops,
    /// A process of the server had almost all of its allowed file descriptors open.
    FileDescriptors,
    /// The server's log has complaints.
    Log,
    /// The server's memory grew while the number of clients did not.
    MemoryGrowth,
}

/// A statement on what limited the server, with its figures.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct Limit {
    /// Kind of the limit.
    pub kind: LimitKind,
    /// Statement, with the figures that support it.
    pub text: String,
    /// Time of the first observation, in seconds since the start of the run.
    pub first_at: f64,
    /// Number of windows with the observation.
    pub windows: u64,
}

/// Values of one window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowValues {
    start: f64,
    playing: f64,
    /// Payload bit rate of all populations, in bit/s.
    bit_rate: f64,
    cpu: Option<f64>,
    hottest_thread: Option<f64>,
    /// Number of cores that the server may use.
    allowed: Option<f64>,
    tester_cpu: Option<f64>,
    uss: Option<f64>,
    descriptors_share: Option<f64>,
    descriptors: Option<f64>,
    log_complaints: f64,
    socket_drops: f64,
    /// For a server on another machine: processor usage and cores of that machine, and the
    /// datagrams that it dropped at full receive queues.
    machine_cpu: Option<f64>,
    machine_cores: Option<f64>,
    receive_errors: f64,
}

/// Owner of the values in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubjectKind {
    Population,
    Server,
    Tester,
}

/// Values of a run's windows that the statements need: less than 200 bytes per window.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    points: Vec<WindowValues>,
    /// True if the current window is too short to count as a window of its own.
    is_short: bool,
    /// True if the run sent media to the server.
    sends_media: bool,
}

impl Evidence {
    /// Begins a window. The fraction of a second at the end of a run is not a window of its own:
    /// its counts are added to the previous window.
    pub(crate) fn window(&mut self, start: f64, seconds: f64) {
        self.is_short = seconds < WINDOW_SECONDS_MIN && !self.points.is_empty();
        if !self.is_short {
            self.points.push(WindowValues {
                start,
                ..WindowValues::default()
            });
        }
    }

    /// Adds the values of a subject in the current window.
    pub(crate) fn add(
        &mut self,
        whose: SubjectKind,
        catalogue: Catalogue,
        window: &Window,
        seconds: f64,
    ) {
        let Some(point) = self.points.last_mut() else {
            return;
        };
        let count = |name| counter(catalogue, window, name).unwrap_or(0) as f64;
        if whose == SubjectKind::Server {
            point.log_complaints += count("log_complaints");
            point.socket_drops += count("socket_drops");
            point.receive_errors += count("udp_receive_errors");
        }
        self.sends_media |= match whose {
            SubjectKind::Population => count("sent_bytes") > 0.0,
            SubjectKind::Tester => count("sent_packets") > 0.0,
            SubjectKind::Server => false,
        };
        if self.is_short {
            return;
        }
        let gauge = |name| level(catalogue, window, name);
        match whose {
            SubjectKind::Population => {
                point.playing += gauge("playing").unwrap_or(0.0);
                if seconds > 0.0 {
                    point.bit_rate += count("payload_bytes") * 8.0 / seconds;
                }
            }
            SubjectKind::Server => {
                point.cpu = gauge("cpu");
                point.hottest_thread = gauge("cpu_hottest_thread");
                point.allowed = gauge("cpu_allowed");
                point.uss = gauge("uss");
                point.descriptors_share = gauge("file_descriptors_share");
                point.descriptors = gauge("file_descriptors");
                point.machine_cpu = gauge("machine_cpu");
                point.machine_cores = gauge("machine_cores");
            }
            SubjectKind::Tester => point.tester_cpu = gauge("cpu"),
        }
    }

    /// Returns all statements. `cores` is the number of cores of the machine that server and tester
    /// share; `log` has the complaints of the server's log.
    pub(crate) fn limits(&self, cores: u32, log: &ServerLog) -> Vec<Limit> {
        [
            self.thread(),
            self.cores(cores),
            self.allowed_cores(cores),
            self.other_machines_cores(),
            self.flat_bit_rate(),
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
        let seen = self.where_at_least(|point| point.hottest_thread, SATURATED);
        let most = largest(&seen, |point| point.hottest_thread);
        self.repeated(LimitKind::Thread, &seen, |when| {
            format!(
                "one thread of the server used a whole core (up to {most:.2} cores) {when}: a \
                 server that works in one thread can do no more, however many cores there are"
            )
        })
    }

    /// Statement on a server that may use fewer cores than the machine has.
    fn allowed_cores(&self, cores: u32) -> Option<Limit> {
        let share = |point: &WindowValues| {
            let fewer = |&allowed: &f64| allowed > 0.0 && allowed < f64::from(cores);
            Some(point.cpu? / point.allowed.filter(fewer)?)
        };
        let seen = self.where_at_least(share, SATURATED);
        let most = largest(&seen, |point| point.cpu);
        let allowed = largest(&seen, |point| point.allowed);
        self.repeated(LimitKind::Cores, &seen, |when| {
            format!(
                "the server may use {allowed} of the machine's {cores} cores, and used all of that (up to {most:.2}) {when}: \
                 its affinity or its control group's quota is the limit"
            )
        })
    }

    fn other_machines_cores(&self) -> Option<Limit> {
        let share = |point: &WindowValues| {
            Some(point.machine_cpu? / point.machine_cores.filter(|&n| n > 0.0)?)
        };
        let seen = self.where_at_least(share, SATURATED);
        let most = largest(&seen, |point| point.machine_cpu);
        let cores = largest(&seen, |point| point.machine_cores);
        self.repeated(LimitKind::Cores, &seen, |when| {
            format!(
                "the {cores:.0} cores of the server's machine were all in use (up to {most:.2}) {when}"
            )
        })
    }

    fn descriptors(&self) -> Option<Limit> {
        let seen = self.where_at_least(|point| point.descriptors_share, NEAR_THE_LIMIT);
        let most = largest(&seen, |point| point.descriptors_share) * 100.0;
        let open = largest(&seen, |point| point.descriptors);
        // A single window without a free descriptor is enough, even if some were released soon.
        if seen.len() < WINDOWS_MIN && most < 100.0 {
            return None;
        }
        self.observed(LimitKind::FileDescriptors, &seen, |when| {
            format!(
                "a process of the server had up to {most:.0} % of the file descriptors open that it is allowed ({open:.0} in all of its \
                 processes) {when}: at 100 % it can accept no further connection"
            )
        })
    }

    fn log(&self, log: &ServerLog) -> Option<Limit> {
        let more = if log.more { " or more" } else { "" };
        self.counted(
            LimitKind::Log,
            |point| point.log_complaints,
            |lines, when| {
                let mut text =
                    format!("the server's log complained in {lines:.0} lines{more}, {when}");
                for (index, complaint) in log.complaints.iter().take(COMPLAINTS_SHOWN).enumerate() {
                    text += if index == 0 { ": " } else { "; " };
                    text += &format!(
                        "{} such as \u{201c}{}\u{201d}",
                        complaint.lines, complaint.first
                    );
                }
                text
            },
        )
    }

    fn receive_errors(&self) -> Option<Limit> {
        self.counted(LimitKind::SocketDrops, |point| point.receive_errors, |errors, when| {
            format!(
                "the server's machine dropped {errors:.0} datagrams at full receive queues, those of the server or of other programs, {when}"
            )
        })
    }

    fn cores(&self, cores: u32) -> Option<Limit> {
        // The processor usage of another machine is not added to that of the tester on this one.
        let here = |point: &WindowValues| point.machine_cpu.is_none();
        let both = |point: &WindowValues| {
            let server = point.cpu.filter(|_| here(point))?;
            Some(server + point.tester_cpu.unwrap_or(0.0))
        };
        let bound = SATURATED * f64::from(cores.max(1));
        let seen = self.where_at_least(both, bound);
        let server = largest(&seen, |point| point.cpu);
        let tester = largest(&seen, |point| point.tester_cpu);
        self.repeated(LimitKind::Cores, &seen, |when| {
            format!(
                "the machine's {cores} cores were all in use (by the server up to {server:.2}, by the tester up to \
                 {tester:.2}) {when}"
            )
        })
    }

    fn socket_drops(&self) -> Option<Limit> {
        // Feedback of clients is small, and its loss costs viewers no frame.
        let hit = match self.sends_media {
            true => "",
            false => {
                " (the run sent it no media: these were clients' feedback, such as RTCP, unless media came from \
                 elsewhere, and limit nothing that it sends)"
            }
        };
        self.counted(LimitKind::SocketDrops, |point| point.socket_drops, |drops, when| {
            format!(
                "the kernel dropped {drops:.0} datagrams at the server's sockets, because it did not fetch them in \
                 time, {when}{hit}"
            )
        })
    }

    /// Compares windows near the highest number of clients with earlier windows of fewer clients.
    fn flat_bit_rate(&self) -> Option<Limit> {
        let top = largest_of(self.points.iter().map(|point| point.playing));
        // Later windows, in which clients leave, are not compared with those in which clients
        // arrive.
        let last = self
            .points
            .iter()
            .rposition(|p| p.playing >= NEAR_THE_TOP * top)?;
        let rising = &self.points[..=last];
        let (low, high) = (FEWER_CLIENTS_SHARES.0 * top, FEWER_CLIENTS_SHARES.1 * top);
        let first_at_top = rising
            .iter()
            .position(|p| p.playing >= NEAR_THE_TOP * top)?;
        let below: Vec<&WindowValues> = rising[..first_at_top]
            .iter()
            .filter(|point| (low..=high).contains(&point.playing))
            .collect();
        let above: Vec<&WindowValues> = rising[first_at_top..]
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
        (more_rate < FLAT_RATIO * more_clients).then(|| Limit {
            kind: LimitKind::FlatBitRate,
            text: format!(
                "the bit rate did not follow the clients: from {:.0} to {:.0} playing clients ({:+.0} %) it went from \
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
            // A level is constant until its next sample. Only new samples count.
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
            && line.determination >= DETERMINATION_MIN)
            .then(|| Limit {
                kind: LimitKind::MemoryGrowth,
                text: format!(
                    "the server's memory grew by {:.1} MiB a minute while the number of clients was constant: from {:.1} to \
                     {:.1} MiB (USS) within {:.0} s",
                    line.slope * 60.0 / f64::from(1 << 20),
                    at_first / f64::from(1 << 20),
                    at_last / f64::from(1 << 20),
                    end - begin
                ),
                first_at: begin,
                windows: samples.len() as u64,
            })
    }

    fn where_at_least(
        &self,
        figure: impl Fn(&WindowValues) -> Option<f64>,
        bound: f64,
    ) -> Vec<&WindowValues> {
        let seen = |point: &&WindowValues| figure(point).is_some_and(|value| value >= bound);
        self.points.iter().filter(seen).collect()
    }

    /// Makes a statement if enough windows have the observation.
    fn repeated(
        &self,
        kind: LimitKind,
        seen: &[&WindowValues],
        text: impl FnOnce(&str) -> String,
    ) -> Option<Limit> {
        let limit = self.observed(kind, seen, text)?;
        (seen.len() >= WINDOWS_MIN).then_some(limit)
    }

    /// Makes a statement on the number of events, if any window has some.
    fn counted(
        &self,
        kind: LimitKind,
        count: impl Fn(&WindowValues) -> f64,
        text: impl FnOnce(f64, &str) -> String,
    ) -> Option<Limit> {
        let seen = self.points.iter().filter(|point| count(point) > 0.0);
        let seen: Vec<&WindowValues> = seen.collect();
        let all = seen.iter().map(|point| count(point)).sum();
        self.observed(kind, &seen, |when| text(all, when))
    }

    /// Makes a statement if any window has the observation. `text` is made from the times of these
    /// windows in words.
    fn observed(
        &self,
        kind: LimitKind,
        seen: &[&WindowValues],
        text: impl FnOnce(&str) -> String,
    ) -> Option<Limit> {
        let first = seen.first()?;
        let when = format!(
            "in {} of {} windows, first at {:.0} s with {:.0} clients playing",
            seen.len(),
            self.points.len(),
            first.start,
            first.playing
        );
        Some(Limit {
            kind,
            text: text(&when),
            first_at: first.start,
            windows: seen.len() as u64,
        })
    }
}

fn largest_of(figures: impl Iterator<Item = f64>) -> f64 {
    figures.fold(0.0, f64::max)
}

fn largest(points: &[&WindowValues], figure: impl Fn(&WindowValues) -> Option<f64>) -> f64 {
    largest_of(points.iter().filter_map(|point| figure(point)))
}

fn mean(points: &[&WindowValues], figure: impl Fn(&WindowValues) -> f64) -> f64 {
    points.iter().map(|point| figure(point)).sum::<f64>() / points.len() as f64
}

/// Straight line, fitted by least squares.
struct FittedLine {
    slope: f64,
    offset: f64,
    /// Coefficient of determination.
    determination: f64,
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
            determination: xy * xy / (xx * yy),
        })
    }

    fn at(&self, x: f64) -> f64 {
        self.offset + self.slope * x
    }
}

#[cfg(test)]
mod tests;
