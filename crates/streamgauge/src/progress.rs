//! The run as it goes: a few lines redrawn once a second in a terminal, else one plain line now and
//! then.

use std::time::Duration;

use engine::{Phase, PopulationProgress, Progress};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use measure::Unit;
use report::human::{count, figure, figure_or_dash, span};
use report::paint::Paint;

use crate::console::Console;

/// How often a plain line is written where nobody watches.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Shows how a run goes.
pub(crate) struct Display {
    console: Console,
    planned: Option<Duration>,
    shown: Shown,
}

enum Shown {
    Nothing,
    Lines {
        group: MultiProgress,
        lines: Vec<ProgressBar>,
    },
    Plain {
        last: Option<Duration>,
        phase: String,
    },
}

impl Display {
    /// A display of a run that is planned to last so long, where that is known.
    pub(crate) fn new(console: Console, planned: Option<Duration>) -> Display {
        let shown = if console.quiet {
            Shown::Nothing
        } else if console.live() {
            Shown::Lines {
                group: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
                lines: Vec::new(),
            }
        } else {
            Shown::Plain {
                last: None,
                phase: String::new(),
            }
        };
        Display {
            console,
            planned,
            shown,
        }
    }

    /// Shows how it stands.
    pub(crate) fn update(&mut self, progress: &Progress) {
        let phase = phase_text(&progress.phase);
        match &mut self.shown {
            Shown::Nothing => {}
            Shown::Lines { group, lines } => {
                let texts = lines_of(progress, self.planned, self.console.paint_stderr());
                while lines.len() < texts.len() {
                    lines.push(group.add(ProgressBar::new_spinner().with_style(line_style())));
                }
                for (line, text) in lines.iter().zip(texts) {
                    line.set_message(text);
                }
            }
            Shown::Plain {
                last,
                phase: before,
            } => {
                let due = last.is_none_or(|last| progress.elapsed >= last + PLAIN_EVERY);
                if due || *before != phase {
                    *last = Some(progress.elapsed);
                    *before = phase;
                    let line = lines_of(progress, self.planned, Paint::default()).join("; ");
                    self.console.say(&line);
                }
            }
        }
    }

    /// Takes the lines away, to make room for the summary.
    pub(crate) fn finish(self) {
        if let Shown::Lines { group, lines } = self.shown {
            for line in lines {
                line.finish_and_clear();
            }
            let _ = group.clear();
        }
    }
}

fn phase_text(phase: &Phase) -> String {
    match phase {
        Phase::Launching(what) => what.clone(),
        Phase::Running => "running".to_owned(),
        Phase::Stopping => "stopping (Ctrl-C to stop at once)".to_owned(),
        Phase::Lingering => "what the server gives back".to_owned(),
    }
}

/// The lines of a display: time, then each population, then server and tester.
fn lines_of(progress: &Progress, planned: Option<Duration>, paint: Paint) -> Vec<String> {
    let elapsed = span(progress.elapsed.as_secs_f64());
    let of = planned.map_or_else(String::new, |planned| {
        format!(" of {}", span(planned.as_secs_f64()))
    });
    let time = format!("{elapsed}{of}, {}", phase_text(&progress.phase));
    let mut lines = vec![paint.strong(&time)];
    for (name, population) in &progress.populations {
        lines.push(population_line(name, population, paint));
    }
    if !progress.populations.is_empty() {
        lines.push(machines_line(progress, paint));
    }
    lines
}

fn population_line(name: &str, population: &PopulationProgress, paint: Paint) -> String {
    let loss = match population.expected {
        // Packets given up for lost in the last window may have come in this one.
        expected if expected > 0 => {
            let lost = (expected - population.received).max(0);
            Some(lost as f64 / expected as f64)
        }
        _ => None,
    };
    let loss_text = format!("loss {}", figure_or_dash(Unit::Ratio, loss));
    let loss_text = match loss {
        Some(loss) if loss > 0.0 => paint.bad(&loss_text),
        _ => loss_text,
    };
    let publishes = population.sent_bitrate > 0.0 && population.expected == 0;
    let (does, rest) = match publishes {
        _ if let Some((sent, answered)) = population.messages => {
            let answered = match answered > 0.0 {
                true => format!(", {} answered/s", count(answered.round())),
                false => String::new(),
            };
            (
                "sending",
                format!("{} messages/s{answered}", count(sent.round())),
            )
        }
        true => {
            let sent = figure(Unit::BitsPerSecond, population.sent_bitrate);
            ("publishing", format!("{sent} sent"))
        }
        false => {
            let came = figure(Unit::BitsPerSecond, population.bitrate);
            ("playing", format!("{came}, {loss_text}"))
        }
    };
    let mut line = format!(
        "{name}: {} active, {} {does}, {rest}",
        count(population.active as f64),
        count(population.playing as f64),
    );
    if population.failed > 0 {
        let failed = format!(", {} failed", count(population.failed as f64));
        line.push_str(&paint.bad(&failed));
    }
    line
}

fn machines_line(progress: &Progress, paint: Paint) -> String {
    let server = progress.server_cpu.map_or_else(String::new, |cpu| {
        format!("server {}, ", figure(Unit::Cores, cpu))
    });
    let tester = &progress.tester;
    let health = if tester.healthy {
        paint.good("fit")
    } else {
        paint.doubtful("AT ITS END")
    };
    let overflow = if tester.overflow > 0 {
        paint.bad(&format!(
            ", {} packets lost here",
            count(tester.overflow as f64)
        ))
    } else {
        String::new()
    };
    format!(
        "{server}tester {}, late by {}{overflow}: {health}",
        figure_or_dash(Unit::Cores, tester.cpu),
        figure_or_dash(Unit::Seconds, tester.lag_p99),
    )
}

/// One line that says how something stands, redrawn in a terminal; nothing where there is none.
pub(crate) struct Status(Option<ProgressBar>);

impl Status {
    pub(crate) fn new(console: Console) -> Status {
        let shown = !console.quiet && console.live();
        Status(shown.then(|| {
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
                .with_style(line_style())
        }))
    }

    /// Shows how it stands.
    pub(crate) fn update(&self, text: &str) {
        if let Some(line) = &self.0 {
            line.set_message(text.to_owned());
        }
    }

    /// Takes the line away.
    pub(crate) fn finish(self) {
        if let Some(line) = self.0 {
            line.finish_and_clear();
        }
    }
}

fn line_style() -> ProgressStyle {
    ProgressStyle::with_template("{wide_msg}")
        .expect("the template is a constant that the library accepts")
}

#[cfg(test)]
mod tests {
    use engine::TesterProgress;

    use super::*;

    fn progress() -> Progress {
        let population = PopulationProgress {
            active: 1200,
            playing: 1190,
            started: 1210,
            failed: 10,
            bitrate: 120e6,
            wire_bitrate: 130e6,
            sent_bitrate: 0.0,
            messages: None,
            expected: 10_000,
            received: 9_990,
        };
        Progress {
            elapsed: Duration::from_secs(75),
            phase: Phase::Running,
            populations: vec![("viewers".to_owned(), population)],
            server_cpu: Some(0.5),
            tester: TesterProgress {
                cpu: Some(0.25),
                lag_p99: Some(0.0012),
                overflow: 3,
                healthy: false,
            },
        }
    }

    #[test]
    fn the_lines_say_how_it_stands() {
        let planned = Some(Duration::from_secs(120));
        assert_eq!(
            lines_of(&progress(), planned, Paint::default()),
            [
                "1 min 15 s of 2 min, running",
                "viewers: 1,200 active, 1,190 playing, 120 Mbit/s, loss 0.1 %, 10 failed",
                "server 0.5 cores, tester 0.25 cores, late by 1.2 ms, 3 packets lost here: AT ITS END",
            ]
        );
    }

    #[test]
    fn of_publishers_it_says_what_they_send() {
        let publishers = PopulationProgress {
            active: 3,
            playing: 2,
            sent_bitrate: 4e6,
            ..PopulationProgress::default()
        };
        assert_eq!(
            population_line("cameras", &publishers, Paint::default()),
            "cameras: 3 active, 2 publishing, 4 Mbit/s sent"
        );
    }

    #[test]
    fn while_a_server_is_launched_nothing_is_said_of_clients() {
        let launching = Progress {
            phase: Phase::Launching("waiting for port 8554".to_owned()),
            populations: Vec::new(),
            ..progress()
        };
        let lines = lines_of(&launching, None, Paint::default());
        assert_eq!(lines, ["1 min 15 s, waiting for port 8554"]);
    }

    #[test]
    fn packets_that_came_late_are_no_negative_loss() {
        let mut progress = progress();
        progress.populations[0].1.received = 10_500;
        let lines = lines_of(&progress, None, Paint::default());
        assert!(lines[1].contains("loss 0 %"), "{lines:?}");
    }
}
