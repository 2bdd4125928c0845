//! `streamgauge run`: plays a scenario file.

use std::path::Path;

use scenario::{OptionSetting, Overrides, Plan};

use crate::args::{self, new_seed};
use crate::commands::play::{Play, play};
use crate::commands::series;
use crate::console::Console;
use crate::exit::{Exit, Failure};

pub(crate) fn run(arguments: &args::Run, console: Console) -> Result<Exit, Failure> {
    let plan = load(
        &arguments.scenario,
        &arguments.set,
        arguments.seed,
        arguments.receiving.settings(),
    )?;
    let (results, tracing) = (&arguments.results, &arguments.tracing);
    match &plan {
        Plan::Run(scenario) => {
            let play_it = Play {
                scenario,
                results,
                tracing,
            };
            play(play_it, console)
        }
        Plan::Series(all) => {
            let play_it = series::Play {
                series: all,
                results,
                tracing,
            };
            series::play(&play_it, console)
        }
    }
}

/// Reads a scenario file, with what the command line and the environment set of it.
pub(crate) fn load(
    path: &Path,
    set: &[String],
    seed: Option<u64>,
    options: Vec<OptionSetting>,
) -> Result<Plan, Failure> {
    let mut overrides = overrides();
    overrides.set = set.to_vec();
    overrides.options = options;
    let seed = seed.map(|seed| OptionSetting::new("--seed", "seed", &seed.to_string()));
    overrides.options.extend(seed);
    Plan::load(path, &overrides).map_err(Failure::diagnostic)
}

/// What is set by the environment, and what the command knows that no file says.
pub(crate) fn overrides() -> Overrides {
    // What is wrong with the folder of the user's own entries is said where one is looked for.
    let known_servers = sut::catalogue::names().unwrap_or_default();
    let overrides = Overrides {
        default_seed: new_seed(),
        known_servers,
        ..Overrides::default()
    };
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    overrides.with_environment(variables, &[sut::catalogue::FOLDER_VARIABLE])
}
