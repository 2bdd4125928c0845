//! `streamgauge run`: runs a scenario file.

use std::io::{self, Read};
use std::path::Path;

use scenario::{Overrides, Plan};

use crate::args::{self, new_seed};
use crate::commands::link::HOST_VARIABLE;
use crate::commands::play::{Play, play};
use crate::commands::series;
use crate::exit::{Exit, Failure};
use crate::live::view_server::TOKEN_VARIABLE;
use crate::output::runs_folder::{FOLDER_VARIABLE, RunsFolder};
use crate::output::unfinished_run::UnfinishedRun;
use crate::ui::console::Console;

/// Name of a scenario from standard input in messages.
const STANDARD_INPUT: &str = "standard input";

/// Maximum length of a scenario, in bytes.
const SCENARIO_MAX: u64 = 1 << 20;

pub(crate) fn run(arguments: &args::Run, console: Console) -> Result<Exit, Failure> {
    let resume = arguments.resuming.resume.as_deref();
    let resume = resume.map(|path| RunsFolder::of_environment().find(path));
    let resume = resume.as_deref();
    let unfinished = match resume {
        Some(path) if !path.exists() => {
            return Err(Failure::bad(format_args!(
                "--resume {}: there is no such file or folder",
                path.display()
            )));
        }
        Some(path) if path.is_file() => Some(UnfinishedRun::open(path)?),
        _ => None,
    };
    let mut overrides = overrides();
    if let Some(run) = &unfinished {
        // Without a seed of its own, each run of a scenario has another one.
        overrides.default_seed = run.state.seed;
    }
    overrides.set.clone_from(&arguments.set);
    overrides.options = arguments.receiving.settings();
    let seed = arguments.seed.map(|seed| seed.to_string());
    overrides
        .options
        .extend(args::given([("--seed", "seed", &seed)]));
    let plan = load(&arguments.scenario, &overrides)?;
    let (results, tracing) = (&arguments.results, &arguments.tracing);
    let runners = &arguments.runners;
    let may_go_on = match &plan {
        Plan::Run(_) => unfinished.is_some(),
        Plan::Series(_) => false,
        Plan::Capacity(_) => unfinished.is_none(),
    };
    if let (Some(path), false) = (resume, may_go_on) {
        return Err(Failure::bad(format_args!(
            "--resume {}: a search for a capacity can go on with its folder, and a run over runners \
             that wait (`--at`) with its run file; this is neither",
            path.display()
        )));
    }
    match &plan {
        Plan::Run(scenario) => {
            let play_it = Play {
                scenario,
                results,
                tracing,
                runners,
                unfinished,
            };
            play(play_it, console)
        }
        Plan::Series(all) => {
            let play_it = series::Play {
                series: all,
                results,
                tracing,
                runners,
            };
            series::play(&play_it, console)
        }
        Plan::Capacity(search) => {
            let play_it = series::capacity::Play {
                search,
                results,
                tracing,
                runners,
                resume,
            };
            series::capacity::play(&play_it, console)
        }
    }
}

/// Reads a scenario file, or standard input if `path` is `-`, and applies these settings.
pub(crate) fn load(path: &Path, overrides: &Overrides) -> Result<Plan, Failure> {
    if path == Path::new("-") {
        // Relative paths in it start at the current folder.
        let text = standard_input()?;
        return Plan::parse(STANDARD_INPUT, &text, overrides).map_err(Failure::diagnostic);
    }
    Plan::load(path, overrides).map_err(Failure::diagnostic)
}

/// Reads a scenario from standard input. Stops one byte after the maximum length, so that a longer
/// text is detected.
fn standard_input() -> Result<String, Failure> {
    let wrong = |why: &str| {
        Failure::bad(format_args!(
            "cannot read the scenario from {STANDARD_INPUT}: {why}"
        ))
    };
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .take(SCENARIO_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(&report::io_reason(&error)))?;
    if bytes.len() as u64 > SCENARIO_MAX {
        return Err(wrong("it is larger than 1 MiB: is it the right file?"));
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(wrong("it is empty: `streamgauge run - < scenario.yaml`"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let read = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = read.iter().filter(|byte| **byte == b'\n').count() + 1;
        wrong(&format!("it is not UTF-8 in line {line}: save it as UTF-8"))
    })
}

/// Returns the settings from the environment, the known servers and a seed for scenarios without
/// one.
pub(crate) fn overrides() -> Overrides {
    // An unreadable folder of the user's own servers is reported when a server is looked up.
    let known_servers = sut::catalogue::names().unwrap_or_default();
    let overrides = Overrides {
        default_seed: new_seed(),
        known_servers,
        ..Overrides::default()
    };
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let reserved = [
        sut::catalogue::FOLDER_VARIABLE,
        HOST_VARIABLE,
        TOKEN_VARIABLE,
        FOLDER_VARIABLE,
    ];
    overrides.with_environment(variables, &reserved)
}
