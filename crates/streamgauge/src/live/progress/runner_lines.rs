//! State of each runner of a run over several machines.

use engine::Progress;
use measure::Unit;
use measure::tester::RunnerState;
use report::human::{count, figure};

use super::line::{ScreenLine, Tone};
use super::roles::role_word;

/// Returns the state of each runner in at most this many lines. If there are more, those with a
/// fault come first. One line alone would only say how many there are.
pub(super) fn runner_lines(progress: &Progress, lines: usize) -> Vec<ScreenLine> {
    let runners = &progress.runners;
    let mut roles = progress.populations.iter().map(|(_, one)| one.role);
    let role = roles.next().unwrap_or_default();
    let role = match roles.all(|other| other == role) {
        true => role_word(role),
        false => "playing or connected",
    };
    let shown = match runners.len() {
        all if all <= lines => all,
        _ if lines < 2 => return Vec::new(),
        _ => lines - 1,
    };
    let mut order: Vec<&RunnerState> = runners.iter().collect();
    if shown < order.len() {
        // Stable, so that the others keep their order.
        order.sort_by_key(|runner| !runner.lost && runner.healthy);
    }
    let rest = order.split_off(shown);
    let mut texts: Vec<ScreenLine> = order
        .into_iter()
        .map(|runner| runner_line(runner, role))
        .collect();
    if !rest.is_empty() {
        texts.push(ScreenLine::plain(&format!("  and {} more", rest.len())));
    }
    texts
}

fn runner_line(runner: &RunnerState, role: &str) -> ScreenLine {
    let mut line = ScreenLine::plain("  ")
        .with(Tone::Strong, &runner.name)
        .with(Tone::Plain, ": ");
    // The fault comes first, because a narrow terminal cuts the end.
    let fault = match (runner.lost, runner.healthy) {
        (true, _) => Some((Tone::Bad, "LOST")),
        (false, false) => Some((Tone::Doubtful, "OVERLOADED")),
        (false, true) => None,
    };
    let clients = runner.playing.zip(runner.active);
    let clients = clients.map(|(playing, active)| match playing == active {
        true => format!("{} {role}", count(playing as f64)),
        false => format!(
            "{} of {} {role}",
            count(playing as f64),
            count(active as f64)
        ),
    });
    let cpu = runner.cpu;
    let cpu = cpu.map(|cpu| format!("CPU {}", figure(Unit::Cores, cpu)));
    let late = runner.lag_max;
    let late = late.map(|lag| format!("lag max {}", figure(Unit::Seconds, lag)));
    let known: Vec<String> = [clients, cpu, late].into_iter().flatten().collect();
    let text = match (fault, known.is_empty()) {
        (None, true) => "ended".to_owned(),
        _ => known.join(", "),
    };
    if let Some((tone, word)) = fault {
        line = line.with(tone, word);
        if !text.is_empty() {
            line = line.with(Tone::Plain, ", ");
        }
    }
    line.with(Tone::Plain, &text)
}
