//! `streamgauge compare`: compares two runs or series that exist, and a run that has just ended with
//! an earlier one.

use std::path::Path;

use measure::comparison::MIN_EFFECT;
use report::series::{CompareError, Series, WordName, side_by_side};

use crate::args;
use crate::commands::series_output::write_out;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::output::Outputs;
use crate::overwrite::Force;

pub(crate) fn compare(arguments: &args::Compare, console: Console) -> Result<Exit, Failure> {
    let outputs = Outputs::claim(&arguments.reports, Force::Unknown)?;
    let found = open(
        &arguments.a,
        &arguments.b,
        arguments.min_effect,
        arguments.anyway,
    )?;
    write_out(&found, Path::new(""), outputs, console)?;
    Ok(exit_of(&found))
}

/// Checks that a run can be compared with this baseline later.
pub(crate) fn check_baseline(baseline: &Path) -> Result<(), Failure> {
    open(baseline, baseline, None, true).map(|_| ())
}

/// Divides the outputs into those of a run alone and those of its comparison with a baseline.
pub(crate) fn split(baseline: Option<&Path>, outputs: Outputs) -> (Outputs, Outputs) {
    match baseline {
        None => (outputs, Outputs::default()),
        Some(_) => (Outputs::default(), outputs),
    }
}

/// Compares a run or series that has just ended with an earlier one. `own` is its exit code.
pub(crate) fn with_baseline(
    baseline: &Path,
    path: &Path,
    own: Exit,
    outputs: Outputs,
    console: Console,
) -> Result<Exit, Failure> {
    if !matches!(own, Exit::Pass | Exit::Failed | Exit::Invalid) {
        return Ok(own);
    }
    let found = open(baseline, path, None, false)?;
    write_out(&found, Path::new(""), outputs, console)?;
    Ok(match (exit_of(&found), own) {
        (Exit::Pass, own) => own,
        (compared, _) => compared,
    })
}

fn open(a: &Path, b: &Path, min_effect: Option<f64>, anyway: bool) -> Result<Series, Failure> {
    let least = min_effect.unwrap_or(MIN_EFFECT);
    let found = side_by_side(a, b, least, anyway, engine::catalogue_of).map_err(refused)?;
    let mut differences = found.comparisons.iter().map(|one| &one.differences);
    let mut others = found
        .capacity_comparisons
        .iter()
        .map(|one| &one.differences);
    let differences = differences.next().or(others.next());
    match differences.filter(|all| !anyway && !all.is_empty()) {
        None => Ok(found),
        Some(all) => Err(Failure::bad(format_args!(
            "{} and {} are not comparable:\n  {}\nuse `--anyway` to compare them all the same",
            a.display(),
            b.display(),
            all.join("\n  ")
        ))),
    }
}

/// A baseline that no run can be trusted of is an invalid measurement; anything else is wrong input.
fn refused(error: CompareError) -> Failure {
    let exit = match &error {
        CompareError::Invalid { .. } => Exit::Invalid,
        _ => Exit::Bad,
    };
    Failure {
        exit,
        ..Failure::bad(error)
    }
}

/// Returns the exit code of comparisons: failed if any metric is worse, invalid if any cannot be
/// judged.
pub(crate) fn exit_of(found: &Series) -> Exit {
    let results = found.comparisons.iter().map(|one| one.result);
    let capacities = found.capacity_comparisons.iter().map(|one| one.result);
    let results: Vec<WordName> = results.chain(capacities).collect();
    let any = |word| results.contains(&word);
    let is_worse = any(WordName::Worse);
    Exit::of_run(
        false,
        results.is_empty() || any(WordName::CannotTell) && !is_worse,
        is_worse,
    )
}
