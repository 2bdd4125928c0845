//! Markdown report for a pull request or an issue: the verdict with its cause, thresholds, and the
//! figures of the summary.

use std::io::Write;

use crate::ReportError;
use crate::cause::{cause, other_reasons};
use crate::head;
use crate::human::{count, plural, short_duration};
use crate::link;
use crate::metrics::MetricFigures;
use crate::model::{Population, Report, Threshold};
use crate::paint::Paint;
use crate::rows::{RenderedRow, rows};
use crate::sanitize;
use crate::series::Series;
use crate::terminal::Layout;

/// First line of the report: a comment that identifies the file as ours.
pub const BEGINS: &str = "<!-- streamgauge report -->";

/// Maximum number of failures that are listed for a population.
const FAILURES: usize = 5;

/// Maximum width of the table of a series.
const SERIES_WIDTH: usize = 160;

/// Writes the report of one run.
pub fn write(report: &Report, out: &mut dyn Write) -> Result<(), ReportError> {
    let run = &report.run;
    let result = report.verdict.result.name().to_uppercase();
    writeln!(out, "{BEGINS}\n")?;
    writeln!(out, "### {result}: {}\n", safe(&run.name))?;
    let target = head::target(run).map_or_else(String::new, |target| safe(&target) + ", ");
    let (began, lasted) = (head::began(run), short_duration(run.duration));
    writeln!(out, "{target}{began}, {lasted}")?;
    if let Some(cause) = cause(report) {
        writeln!(out, "\n{}", safe(&cause))?;
    }
    for (index, reason) in other_reasons(report).into_iter().enumerate() {
        if index == 0 {
            writeln!(out)?;
        }
        writeln!(out, "- {}", safe(reason))?;
    }
    let (lines, _) = head::populations(report);
    for (name, line) in lines {
        writeln!(out, "\n**{}**: {}", safe(name), safe(&line))?;
    }
    write_thresholds(report, out)?;
    for population in &report.populations {
        write_population(population, report.server.is_some(), out)?;
    }
    for link in &report.links {
        let (name, asked) = (safe(&link.name), safe(&link.link));
        writeln!(out, "\n**{name}** ({asked}): {}", link::line(&link.metrics))?;
    }
    if let Some(server) = &report.server {
        let parts = [("CPU", "cpu"), ("RSS", "rss")]
            .into_iter()
            .filter_map(|(label, name)| {
                let unit = server.find(name)?.unit;
                Some(format!("{label} {}", server.level(name)?.with_peak(unit)))
            });
        let parts: Vec<String> = parts.collect();
        if !parts.is_empty() {
            writeln!(out, "\n**server**: {}", parts.join(", "))?;
        }
    }
    for limit in &report.server_limits {
        writeln!(out, "\n{}", safe(&limit.text))?;
    }
    if let Some(text) = report.delay_note() {
        writeln!(out, "\n{}", safe(&text))?;
    }
    if let Some(text) = run.held_in_words() {
        writeln!(out, "\n{}", safe(&text))?;
    }
    writeln!(
        out,
        "\nstreamgauge {}, seed {}{}",
        safe(&report.version_text()),
        run.seed,
        received_by(report)
    )?;
    if let Some(hint) = &report.tester.receive_hint {
        writeln!(out, "\n{}", safe(hint))?;
    }
    out.flush()?;
    Ok(())
}

/// Writes the report of a series: its table.
pub fn write_series(series: &Series, out: &mut dyn Write) -> Result<(), ReportError> {
    let layout = Layout {
        width: SERIES_WIDTH,
        paint: Paint::default(),
        ..Layout::default()
    };
    writeln!(out, "{BEGINS}\n\n### {}\n", safe(&series.name))?;
    let table = crate::series::table(series, layout);
    // Backticks in the table must not end the block.
    let table = table.replace("```", "'''");
    writeln!(out, "```text\n{}\n```", table.trim_end())?;
    out.flush()?;
    Ok(())
}

fn received_by(report: &Report) -> String {
    let path = report.tester.receive_path.as_deref();
    path.map_or_else(String::new, |path| format!("; read by {}", safe(path)))
}

fn write_thresholds(report: &Report, out: &mut dyn Write) -> Result<(), ReportError> {
    let is_folded = |threshold: &&Threshold| threshold.implied && threshold.passed;
    let (folded, shown): (Vec<&Threshold>, Vec<&Threshold>) =
        report.thresholds.iter().partition(is_folded);
    if !shown.is_empty() {
        writeln!(out, "\n| | threshold | measured |\n|---|---|--:|")?;
    }
    for threshold in shown {
        let mark = match threshold.passed {
            true => "ok",
            false if threshold.undecided => "undecided",
            false => "**FAILED**",
        };
        let mut measured = safe(&threshold.value_text());
        if let Some(statistic) = &threshold.statistic {
            measured += &format!(" ({})", safe(statistic));
        }
        writeln!(
            out,
            "| {mark} | {} | {measured} |",
            safe(&threshold.threshold)
        )?;
    }
    if !folded.is_empty() {
        let held = plural(
            folded.len() as f64,
            "implied threshold held",
            "implied thresholds held",
        );
        let texts = folded.iter().map(|one| safe(&one.threshold));
        writeln!(out, "\n{held}: {}", texts.collect::<Vec<_>>().join(", "))?;
    }
    Ok(())
}

fn write_population(
    population: &Population,
    server_is_here: bool,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let clients = &population.clients;
    writeln!(
        out,
        "\n**{}**: {}, {} failed\n\n| | |\n|---|---|",
        safe(&population.name),
        plural(clients.started as f64, "client", "clients"),
        count(clients.failed as f64)
    )?;
    for (row, shown) in rows(population, server_is_here) {
        let text = match shown {
            RenderedRow::Text(text) => text.split("   ").collect::<Vec<_>>().join("; "),
            RenderedRow::Distribution(named, first) => {
                let MetricFigures::Distribution(Some(found)) = named.figures else {
                    continue;
                };
                let all = found.row_texts(named.unit, first);
                all.map(|(name, value)| format!("{name} {value}"))
                    .join(", ")
            }
        };
        writeln!(out, "| {} | {} |", safe(row.label), safe(&text))?;
    }
    for failure in clients.failures.iter().take(FAILURES) {
        let example = failure.example.as_deref().unwrap_or_default();
        let what = match example {
            "" => failure.reason.clone(),
            example => format!("{}, such as: {example}", failure.reason),
        };
        writeln!(
            out,
            "| failed | {} × {} |",
            count(failure.count as f64),
            safe(&what)
        )?;
    }
    Ok(())
}

/// Escapes a text for Markdown: it cannot become a link, a mention, HTML or a further cell.
fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 8);
    for c in sanitize::single_line(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '@' => safe.push_str("&#64;"),
            '|' => safe.push_str("&#124;"),
            '#' => safe.push_str("&#35;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '!' | '~' | '$' => {
                safe.push('\\');
                safe.push(c);
            }
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::safe;

    #[test]
    fn foreign_text_is_escaped() {
        for (text, expected) in [
            ("a|b", "a&#124;b"),
            ("<img src=x>", "&lt;img src=x&gt;"),
            ("[x](y) @me #1", "\\[x\\](y) &#64;me &#35;1"),
            ("a\u{1b}[31mb", "a\u{241b}\\[31mb"),
        ] {
            assert_eq!(safe(text), expected);
        }
    }
}
