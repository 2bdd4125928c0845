//! Options of `load` that only some protocols have: each protocol declares its own.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use kit::options::ClientOption;
use kit::reference::unescape;
use protocols::PROTOCOLS;
use scenario::OptionSetting;

/// Protocol options given on the command line, with their values.
#[derive(Debug)]
pub(crate) struct ProtocolOptions(Vec<(&'static ClientOption, String)>);

impl Args for ProtocolOptions {
    fn augment_args(command: Command) -> Command {
        let arguments = PROTOCOLS.iter().flat_map(|protocol| {
            let heading = protocol.options.heading;
            let options = protocol.options.options.iter();
            options.map(move |option| argument(option).help_heading(heading))
        });
        command.args(arguments)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ProtocolOptions::augment_args(command)
    }
}

impl FromArgMatches for ProtocolOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ProtocolOptions, clap::Error> {
        let given = declared().filter_map(|option| {
            let value = matches.get_one::<String>(option.name)?;
            Some((option, value.clone()))
        });
        Ok(ProtocolOptions(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ProtocolOptions::from_arg_matches(matches)?;
        Ok(())
    }
}

fn declared() -> impl Iterator<Item = &'static ClientOption> {
    let options = PROTOCOLS.iter().map(|protocol| protocol.options.options);
    options.flatten()
}

fn argument(option: &'static ClientOption) -> Arg {
    Arg::new(option.name)
        .long(option.name)
        .value_name(option.value)
        .help(option.help)
        .conflicts_with_all(option.conflicts)
        .hide_short_help(true)
}

impl ProtocolOptions {
    /// Returns them as settings of this population of the scenario, which validates them.
    pub(crate) fn settings(&self, population: &str) -> Vec<OptionSetting> {
        let settings = self.0.iter().map(|(option, value)| {
            let key = format!("clients.{population}.{}", option.key);
            let option_name = format!("--{}", option.name);
            match option.is_escaped {
                true => OptionSetting::new(&option_name, &key, &unescape(value)),
                false => OptionSetting::new(&option_name, &key, value),
            }
        });
        settings.collect()
    }
}
