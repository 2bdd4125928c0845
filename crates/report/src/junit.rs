//! JUnit XML report for continuous integration: a test suite for each run, a test case for each
//! threshold, and one for the fitness of the tester.
//!
//! Each suite has the start, the length and the run file of its run, and the cause of its verdict.
//! A threshold that did not hold is a failure. A measurement that cannot be trusted is an error of
//! the case `tester`, as is a run that the user stopped. Any other reason for a failed run, such as
//! the end of the server, is a failure of the case `run`.

use std::io::{self, Write};
use std::time::Duration;

use measure::VerdictResult;
use measure::comparison::Word;
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use crate::ReportError;
use crate::cause::{all_reasons, cause};
use crate::human::figure;
use crate::model::{Report, Threshold};
use crate::sanitize;
use crate::series::search::SearchState;
use crate::series::{Row, RowOutcome, Series, comparison_words, search_words, words};
use crate::terminal::one_line;

/// Name of the root element. It distinguishes the file from those of other programs.
pub const NAME: &str = "streamgauge";

/// Writes the report of one run.
pub fn write(report: &Report, out: &mut dyn Write) -> Result<(), ReportError> {
    write_suites(vec![suite(report, &report.run.name)], out)
}

/// Writes the report of a series: a suite for each of its runs, in order. `report_of` reads the run
/// file with that name, and returns `None` if the run has none.
pub fn write_series(
    series: &Series,
    report_of: impl Fn(&str) -> Option<Report>,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let mut suites: Vec<TestSuite> = Vec::new();
    let compares = !series.comparisons.is_empty();
    let searches = !series.found.is_empty() || !series.searches.is_empty() || compares;
    for row in &series.runs {
        let name = name_of(series, row);
        suites.push(match report_of(&row.file) {
            // Failed runs are part of a search. Only its result counts.
            Some(_) if searches && row.outcome == RowOutcome::Fail => search_suite(row, &name),
            Some(report) => suite(&report, &name),
            // A trial beyond the limits of this machine.
            None if searches && row.outcome == RowOutcome::NotBegun => search_suite(row, &name),
            None => without_run_file(row, &name),
        });
    }
    if searches {
        let mut suite = TestSuite::new(sanitize::single_line(&series.name).into_owned());
        let mut add = |name: &str, status| {
            suite.add_test_case(case(name, &series.name, status));
        };
        for found in &series.found {
            let text = words::found(found);
            let status = match found.passed.is_some() && found.finished {
                true => TestCaseStatus::success(),
                false => not_passed(NonSuccessKind::Failure, &text),
            };
            add(&text, status);
        }
        for found in &series.searches {
            let text = search_words::answer(found);
            let status = match found.state {
                SearchState::BelowMin => not_passed(NonSuccessKind::Failure, &text),
                SearchState::Found | SearchState::AboveMax => TestCaseStatus::success(),
                SearchState::Budget | SearchState::Trials if found.capacity.is_some() => {
                    TestCaseStatus::success()
                }
                _ => not_passed(NonSuccessKind::Error, &text),
            };
            add(&format!("capacity: {text}"), status);
        }
        let compared = series.capacity_comparisons.iter();
        for found in compared.filter(|_| series.is_of_files) {
            let text = comparison_words::capacities(found);
            let status = of_word(found.result, &text);
            add(&format!("capacity: {text}"), status);
        }
        for found in &series.comparisons {
            let variants = format!(
                "{}{} against {}",
                words::with(&found.with),
                found.b,
                found.a
            );
            let names = found.without_data.iter().cloned();
            let nothing = found.metrics.iter().all(|metric| !metric.judged);
            let names = names.chain(nothing.then(|| "comparison".to_owned()));
            for name in names {
                let status = not_passed(NonSuccessKind::Error, "cannot tell: no data");
                add(&format!("{variants}: {name}"), status);
            }
            for metric in found.metrics.iter().filter(|metric| metric.judged) {
                let word = metric.result.text();
                let text = format!("{word}: {}", comparison_words::figures(metric));
                let status = of_word(metric.result, &text);
                add(&format!("{variants}: {}", metric.title), status);
            }
        }
        suites.push(suite);
    }
    write_suites(suites, out)
}

fn of_word(word: Word, text: &str) -> TestCaseStatus {
    match word {
        Word::Better | Word::Same => TestCaseStatus::success(),
        Word::Worse => not_passed(NonSuccessKind::Failure, text),
        Word::CannotTell => not_passed(NonSuccessKind::Error, text),
    }
}

/// Returns the suite of a run that is part of a search, which alone is judged.
fn search_suite(row: &Row, name: &str) -> TestSuite {
    let mut status = TestCaseStatus::skipped();
    status.set_message(sanitize::single_line(&row.reasons.join("; ")).into_owned());
    suite_of_run(name, status)
}

fn write_suites(suites: Vec<TestSuite>, out: &mut dyn Write) -> Result<(), ReportError> {
    let mut all = quick_junit::Report::new(NAME);
    all.set_time(suites.iter().filter_map(|suite| suite.time).sum());
    all.add_test_suites(suites);
    let text = all.to_string().map_err(io::Error::other)?;
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Returns the name of the scenario with the varied values of the run.
fn name_of(series: &Series, row: &Row) -> String {
    let settings = series.varied.iter().zip(&row.values);
    let settings: Vec<String> = settings
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    format!("{} ({})", series.name, settings.join(", "))
}

fn suite(report: &Report, name: &str) -> TestSuite {
    let name = sanitize::single_line(name).into_owned();
    let mut suite = TestSuite::new(name.clone());
    suite.set_time(Duration::from_secs_f64(report.run.duration.max(0.0)));
    let began = &report.run.started_at;
    suite
        .extra
        .insert("timestamp".into(), began.as_str().into());
    let file = report.path.file_name();
    let file = file.map(|file| sanitize::single_line(&file.to_string_lossy()).into_owned());
    let text = one_line(&all_reasons(report).join("; "));
    if !text.is_empty() {
        suite.add_property(("cause", text.as_str()));
    }
    suite.add_property(("seed", report.run.seed.to_string().as_str()));
    suite.add_property(("streamgauge", report.streamgauge.as_str()));
    suite.add_property(("verdict", report.verdict.result.name()));
    for threshold in &report.thresholds {
        suite.add_test_case(of_threshold(threshold, &name));
    }
    let others = reasons_without_threshold(report);
    if report.verdict.result == VerdictResult::Fail && !others.is_empty() {
        let status = not_passed(NonSuccessKind::Failure, &others.join("; "));
        suite.add_test_case(case("run", &name, status));
    }
    let status = match report.verdict.result {
        VerdictResult::Pass | VerdictResult::Fail => TestCaseStatus::success(),
        VerdictResult::Invalid => {
            not_passed(NonSuccessKind::Error, &report.verdict.reasons.join("; "))
        }
        VerdictResult::Stopped => {
            let cause = cause(report).unwrap_or_default();
            not_passed(NonSuccessKind::Error, &cause)
        }
    };
    let mut tester = case("tester", &name, status);
    // The sum over all cases is then that of the suite.
    tester.set_time(Duration::from_secs_f64(report.run.duration.max(0.0)));
    suite.add_test_case(tester);
    for case in &mut suite.test_cases {
        if let Some(file) = &file {
            case.extra.insert("file".into(), file.as_str().into());
        }
        if !text.is_empty() {
            case.status.set_description(text.as_str());
        }
    }
    if let Some(file) = file {
        suite.extra.insert("file".into(), file.into());
    }
    suite
}

fn without_run_file(row: &Row, name: &str) -> TestSuite {
    let status = match row.outcome {
        RowOutcome::Planned => TestCaseStatus::skipped(),
        _ => not_passed(NonSuccessKind::Error, &row.reasons.join("; ")),
    };
    suite_of_run(name, status)
}

/// Returns a suite with the case `run` alone.
fn suite_of_run(name: &str, status: TestCaseStatus) -> TestSuite {
    let name = sanitize::single_line(name).into_owned();
    let mut suite = TestSuite::new(name.clone());
    suite.add_test_case(case("run", &name, status));
    suite
}

fn of_threshold(threshold: &Threshold, suite: &str) -> TestCase {
    let shown = |value| figure(threshold.unit, value);
    let limit = shown(threshold.limit);
    let status = match threshold.passed {
        true => TestCaseStatus::success(),
        false if threshold.undecided => {
            let error = threshold.clock_error;
            let error = error.map_or_else(|| "unknown".to_owned(), shown);
            let text = format!(
                "undecided: measured {}; the limit is {limit}, the clock error {error}",
                threshold.value_text()
            );
            not_passed(NonSuccessKind::Error, &text)
        }
        false => {
            let text = match threshold.value {
                Some(_) => format!("measured {}; the limit is {limit}", threshold.value_text()),
                None => format!("no data; the limit is {limit}"),
            };
            not_passed(NonSuccessKind::Failure, &text)
        }
    };
    case(&threshold.threshold, suite, status)
}

fn case(name: &str, suite: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(sanitize::single_line(name), status);
    case.set_classname(suite);
    case
}

fn not_passed(kind: NonSuccessKind, text: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(sanitize::single_line(text).into_owned());
    status
}

/// Returns the reasons of the verdict other than thresholds.
fn reasons_without_threshold(report: &Report) -> Vec<&str> {
    let of_threshold = |reason: &str| {
        let thresholds = report.thresholds.iter();
        thresholds
            .filter(|threshold| !threshold.passed)
            .any(|threshold| reason.contains(&format!("`{}`", threshold.threshold)))
    };
    let reasons = report.verdict.reasons.iter().map(String::as_str);
    reasons.filter(|reason| !of_threshold(reason)).collect()
}
