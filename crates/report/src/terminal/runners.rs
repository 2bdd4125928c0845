//! Runners of a run over several machines.

use measure::Unit;
use measure::tester::RunnerSummary;

use super::Screen;
use crate::human::{figure, figure_or_dash, plural};

/// Number of runners that are listed one by one. Of more, only those with a fault are.
const LISTED_MAX: usize = 16;

impl Screen {
    /// Writes each runner with its clients, its resource use and its clock.
    pub(super) fn runners(&mut self, runners: &[RunnerSummary]) {
        if runners.is_empty() {
            return;
        }
        let faulty = runners.iter().filter(|one| has_fault(one)).count();
        let heading = match faulty {
            0 => plural(runners.len() as f64, "runner", "runners"),
            faulty => format!("{faulty} of {} not to be trusted", runners.len()),
        };
        self.heading("runners", &heading);
        let all = runners.len() <= LISTED_MAX || self.layout.verbose;
        for runner in runners.iter().filter(|one| all || has_fault(one)) {
            self.row(&runner.name, &in_words(runner));
            if let Some(lost) = &runner.lost {
                self.row("", lost);
            }
            for reason in &runner.unfit {
                self.row("", reason);
            }
        }
        if !all {
            let uncertain = runners.iter().filter_map(|one| one.clock_uncertainty);
            let worst = uncertain.fold(0.0, f64::max);
            let text = format!(
                "within {} of the coordinator's",
                figure(Unit::Seconds, worst)
            );
            self.row("clocks", &text);
        }
    }
}

fn has_fault(runner: &RunnerSummary) -> bool {
    runner.lost.is_some() || !runner.unfit.is_empty()
}

fn in_words(runner: &RunnerSummary) -> String {
    let figures = &runner.figures;
    let clients = plural(runner.clients_max as f64, "client", "clients");
    let clock = match runner.clock_uncertainty {
        Some(uncertainty) => format!("known to {}", figure(Unit::Seconds, uncertainty)),
        None => "unknown".to_owned(),
    };
    format!(
        "{clients} on {}; CPU {} (peak {}); lag p99 {}; began {} late; clock {clock}",
        runner.host,
        figure_or_dash(Unit::Cores, figures.cpu_mean),
        figure_or_dash(Unit::Cores, figures.cpu_max),
        figure_or_dash(Unit::Seconds, figures.lag_p99),
        figure_or_dash(Unit::Seconds, runner.began_late),
    )
}
