//! `streamgauge send`: sends MPEG-TS to multicast groups, for a given time or until it is stopped.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use engine::{Pacing, SendFinished, SendOptions, SendProgress};
use kit::mediagen::ts::looped_stream::{DATAGRAM_BITS, LoopedStream};
use kit::reference::interface;
use kit::source::{Destination, GROUPS_MAX};
use report::human::{count, plural, seconds};

use super::long_running::{LongRunning, STOP_TIMEOUT};
use crate::args;
use crate::exit::{Exit, Failure};
use crate::ui::console::Console;

/// Exits with 0 when its time has passed or it is stopped.
pub(crate) fn send(arguments: &args::Send, console: Console) -> Result<Exit, Failure> {
    let targets = targets(&arguments.urls)?;
    let rate = arguments.bitrate.map(|rate| rate.0);
    let looped = engine::looped_stream(arguments.file.as_deref(), rate).map_err(Failure::bad)?;
    let interface = arguments.interface.as_deref().map(interface);
    console.say(&plan(&targets, &looped));
    let options = SendOptions {
        targets,
        looped: Arc::new(looped),
        interface,
        ttl: arguments.ttl,
        length: arguments.duration.map(|duration| duration.0),
        report: arguments.report.clone(),
        seed: arguments.seed,
        stop_timeout: STOP_TIMEOUT,
    };
    let mut attended = LongRunning::start(console)?;
    let mut before = PreviousTotals::default();
    let finished = engine::send(&options, &attended.control(), &mut |progress| {
        attended.update_status(&before.so_far(progress));
    });
    let finished = attended.finish(finished)?;
    if finished.pacing.packets == 0 && finished.pacing.refused > 0 {
        return Err(Failure::bad(
            "nothing was sent: the network stack refused every datagram; is there a route to each group?",
        ));
    }
    for line in result(&finished) {
        console.say(&line);
    }
    Ok(Exit::Pass)
}

/// Parses the groups and refuses duplicates.
fn targets(urls: &[String]) -> Result<Vec<Destination>, Failure> {
    let urls = scenario::expand_urls(urls).map_err(Failure::bad)?;
    if urls.len() > GROUPS_MAX {
        return Err(Failure::bad(format_args!(
            "{} groups: at most {GROUPS_MAX} are possible",
            urls.len()
        )));
    }
    let mut seen = HashSet::new();
    let mut targets = Vec::new();
    for url in &urls {
        let target: Destination = url.parse().map_err(Failure::bad)?;
        if !seen.insert(target.group) {
            return Err(Failure::bad(format_args!(
                "{} is given twice: its streams could not be told apart",
                target.group
            )));
        }
        targets.push(target);
    }
    Ok(targets)
}

/// Describes what is going to be sent.
fn plan(targets: &[Destination], looped: &LoopedStream) -> String {
    let rate = looped.bits_per_second() as f64;
    let each = match targets {
        [one] => one.to_string(),
        [first, .., last] => format!(
            "{first} to {last}, {}, {} in total",
            plural(targets.len() as f64, "group", "groups"),
            megabits(rate * targets.len() as f64)
        ),
        [] => String::new(),
    };
    let stamps = match looped.lists_stamps() {
        true => "",
        false => "; its programme map (PMT) changes or is full, so it does not list the stamps",
    };
    format!(
        "sending {} to {each}: {}, {} datagrams/s of 1316 bytes each{stamps}",
        megabits(rate),
        looped.description(),
        count((rate / DATAGRAM_BITS as f64).round()),
    )
}

fn megabits(rate: f64) -> String {
    format!("{:.3} Mbit/s", rate / 1e6)
}

/// Totals at the last update, a second ago.
#[derive(Default)]
struct PreviousTotals {
    packets: u64,
    elapsed: Duration,
}

impl PreviousTotals {
    fn so_far(&mut self, progress: &SendProgress) -> String {
        let SendProgress { elapsed, pacing } = progress;
        let seconds = elapsed.saturating_sub(self.elapsed).as_secs_f64();
        let rate = match seconds > 0.0 {
            true => (pacing.packets - self.packets) as f64 * DATAGRAM_BITS as f64 / seconds,
            false => 0.0,
        };
        self.packets = pacing.packets;
        self.elapsed = *elapsed;
        format!(
            "{:.0} s: {} at {}; {}",
            elapsed.as_secs_f64(),
            plural(pacing.packets as f64, "datagram", "datagrams"),
            megabits(rate),
            bursts(pacing),
        )
    }
}

fn bursts(pacing: &Pacing) -> String {
    let share = 100.0 * pacing.in_bursts as f64 / pacing.packets.max(1) as f64;
    format!(
        "{} in bursts ({share:.2} %), {} refused",
        count(pacing.in_bursts as f64),
        count(pacing.refused as f64)
    )
}

/// Returns the lines that summarise what was sent.
fn result(finished: &SendFinished) -> Vec<String> {
    let SendFinished { streams, pacing } = finished;
    let sent: u64 = streams.iter().map(|stream| stream.sent).sum();
    // The last datagram occupies its interval as well.
    let rate = |stream: &kit::media::ts::flow::SentStream| {
        let (from, to) = stream.from_to_nanos?;
        let each = DATAGRAM_BITS as f64 / stream.bits_per_second as f64;
        let seconds = to.saturating_sub(from) as f64 / 1e9 + each;
        Some(stream.bytes as f64 * 8.0 / seconds)
    };
    let rate: f64 = streams
        .iter()
        .filter_map(rate)
        .fold(0.0, |sum, rate| sum + rate);
    let mut lines = vec![format!(
        "sent {} to {}, at {} in total",
        plural(sent as f64, "datagram", "datagrams"),
        plural(streams.len() as f64, "group", "groups"),
        megabits(rate),
    )];
    if let (Some(p50), Some(p99), Some(max)) = (
        pacing.lateness_p50_seconds,
        pacing.lateness_p99_seconds,
        pacing.lateness_max_seconds,
    ) {
        lines.push(format!(
            "pacing: half of the datagrams left within {} of their due time, 99 % within {}, the latest after {}; {}",
            seconds(p50),
            seconds(p99),
            seconds(max),
            bursts(pacing)
        ));
    }
    lines
}
