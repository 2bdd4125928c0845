//! `streamgauge compare`: compares two runs or series that exist, and a run that has just ended
//! with an earlier one.

use std::path::{Path, PathBuf};

use measure::comparison::{MIN_EFFECT, Word};
use report::series::{CompareError, Series, side_by_side};

use crate::args;
use crate::commands::series_output::write_out;
use crate::exit::{Exit, Failure};
use crate::output::Outputs;
use crate::output::overwrite::Force;
use crate::output::runs_folder::RunsFolder;
use crate::ui::console::Console;

/// Advice on runs that are not comparable, for the command that can follow it.
const ANYWAY: &str = "use `--anyway` to compare them all the same";
const COMPARE_ANYWAY: &str = "use `streamgauge compare --anyway` to compare them all the same";

pub(crate) fn compare(arguments: &args::Compare, console: Console) -> Result<Exit, Failure> {
    let reports = &arguments.reports;
    let outputs = Outputs::claim(&reports.reports, Force::of(reports.force))?;
    let min_effect = arguments.min_effect.unwrap_or(MIN_EFFECT);
    let runs = RunsFolder::of_environment();
    let (a, b) = (runs.find(&arguments.a), runs.find(&arguments.b));
    let found = open(&a, &b, min_effect, arguments.anyway)?;
    check_differences(&found, (&a, &b), arguments.anyway, ANYWAY)?;
    write_out(&found, Path::new(""), outputs, console)?;
    Ok(exit_of(&found))
}

/// Earlier run or series that a run is compared with.
pub(crate) struct Baseline(PathBuf);

impl Baseline {
    /// Checks, before the run at `path` begins, that it can be compared with its baseline. `search`
    /// tells whether it is a search for a capacity.
    pub(crate) fn check(
        baseline: Option<&Path>,
        path: &Path,
        search: bool,
    ) -> Result<Option<Baseline>, Failure> {
        let Some(baseline) = baseline else {
            return Ok(None);
        };
        let baseline = RunsFolder::of_environment().find(baseline);
        let same = baseline.canonicalize().ok().zip(path.canonicalize().ok());
        if same.is_some_and(|(one, other)| one == other) {
            return Err(Failure::bad(format_args!(
                "--baseline {}: this run would replace its baseline; name another place with `-o`",
                baseline.display()
            )));
        }
        let found = open(&baseline, &baseline, MIN_EFFECT, false)?;
        if found.capacity_comparisons.is_empty() == search {
            let (what, other) = match search {
                true => ("a search for a capacity", "the baseline is none"),
                false => ("no search for a capacity", "the baseline is one"),
            };
            return Err(Failure::bad(format_args!(
                "--baseline {}: this is {what}, and {other}; name a baseline of the same kind",
                baseline.display()
            )));
        }
        Ok(Some(Baseline(baseline)))
    }

    /// Compares the run or series at `path`, which ended with the exit code `own`. Returns `None`
    /// if it has nothing to compare: the user stopped it, or it could not begin.
    ///
    /// # Errors
    /// It is not comparable.
    pub(crate) fn compare(&self, path: &Path, own: Exit) -> Result<Option<Series>, Failure> {
        if !matches!(own, Exit::Pass | Exit::Failed | Exit::Invalid) {
            return Ok(None);
        }
        let found = open(&self.0, path, MIN_EFFECT, false)?;
        check_differences(&found, (&self.0, path), false, COMPARE_ANYWAY)?;
        Ok(Some(found))
    }
}

/// Ends a run or series at `path`, which ended with the exit code `own`: reports it with `report`,
/// and compares it with its baseline, if it has one. The reports are then those of the comparison.
/// `report` returns the exit code in its light. Returns the exit code of the command.
pub(crate) fn conclude(
    baseline: Option<Baseline>,
    path: &Path,
    own: Exit,
    outputs: Outputs,
    console: Console,
    report: impl FnOnce(Outputs) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let compared = baseline.map_or(Ok(None), |baseline| baseline.compare(path, own));
    let Ok(Some(found)) = compared else {
        let own = report(outputs)?;
        return compared.map(|_| own);
    };
    let own = report(Outputs::default())?;
    write_out(&found, Path::new(""), outputs, console)?;
    Ok(match (exit_of(&found), own) {
        (Exit::Pass, own) => own,
        // A failed threshold is certain, whatever the comparison cannot tell.
        (Exit::Invalid, Exit::Failed) => Exit::Failed,
        (compared, _) => compared,
    })
}

fn open(a: &Path, b: &Path, min_effect: f64, anyway: bool) -> Result<Series, Failure> {
    side_by_side(a, b, min_effect, anyway, engine::catalogue_of).map_err(refused)
}

fn check_differences(
    found: &Series,
    (a, b): (&Path, &Path),
    anyway: bool,
    advice: &str,
) -> Result<(), Failure> {
    let mut runs = found.comparisons.iter().map(|one| &one.differences);
    let mut searches = found
        .capacity_comparisons
        .iter()
        .map(|one| &one.differences);
    let differences = runs.next().or(searches.next());
    match differences.filter(|all| !anyway && !all.is_empty()) {
        None => Ok(()),
        Some(all) => Err(Failure::bad(format_args!(
            "{} and {} are not comparable:\n  {}\n{advice}",
            a.display(),
            b.display(),
            all.join("\n  ")
        ))),
    }
}

/// A run that cannot be trusted is an invalid measurement; anything else is wrong input.
fn refused(error: CompareError) -> Failure {
    let exit = match &error {
        CompareError::Invalid { .. } => Exit::Invalid,
        _ => Exit::Bad,
    };
    Failure::new(exit, error)
}

/// Returns the exit code of comparisons: failed if any metric is worse, invalid if any cannot be
/// judged.
pub(crate) fn exit_of(found: &Series) -> Exit {
    let results = found.comparisons.iter().map(|one| one.result);
    let capacities = found.capacity_comparisons.iter().map(|one| one.result);
    let results: Vec<Word> = results.chain(capacities).collect();
    let any = |word| results.contains(&word);
    let is_worse = any(Word::Worse);
    Exit::of_run(
        false,
        results.is_empty() || any(Word::CannotTell) && !is_worse,
        is_worse,
    )
}
