//! The reference servers' flags, as their protocols declare them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, Subcommand};
use kit::reference::{Flag, FlagValue, Flags, Occurrence, ReferenceServer, Section};
use protocols::PROTOCOLS;

use super::help;

/// A reference server and the flags given for it.
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) server: &'static ReferenceServer,
    /// Flags whose values are text.
    pub(crate) flags: Flags,
    /// Flags that name files, whose paths need not be UTF-8.
    pub(crate) files: BTreeMap<&'static str, PathBuf>,
}

impl Subcommand for Serve {
    fn augment_subcommands(command: Command) -> Command {
        PROTOCOLS.iter().fold(command, |command, protocol| {
            let Some(server) = protocol.server else {
                return command;
            };
            let own = Command::new(protocol.name)
                .aliases(server.aliases.iter().copied())
                .about(server.about)
                .args(server.flags.iter().map(argument));
            command.subcommand(own)
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Serve::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        protocols::find(name).is_some_and(|protocol| protocol.server.is_some())
    }
}

impl FromArgMatches for Serve {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Serve, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let server = protocols::find(name).and_then(|protocol| protocol.server);
        let server = server.ok_or_else(missing)?;
        let (mut flags, mut files) = (Flags::default(), BTreeMap::new());
        for &Flag {
            name, value: takes, ..
        } in server.flags
        {
            match takes {
                FlagValue::Nothing if matches.get_flag(name) => {
                    flags = flags.set(name, vec![String::new()]);
                }
                FlagValue::Nothing => {}
                FlagValue::File => {
                    let file = matches.get_one::<PathBuf>(name).cloned();
                    files.extend(file.map(|file| (name, file)));
                }
                FlagValue::OneOf(..) | FlagValue::Number(..) | FlagValue::Text(..) => {
                    if let Some(values) = matches.get_many::<String>(name) {
                        flags = flags.set(name, values.cloned().collect());
                    }
                }
            }
        }
        Ok(Serve {
            server,
            flags,
            files,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Serve::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(flag: &'static Flag) -> Arg {
    let mut argument = Arg::new(flag.name)
        .long(flag.name)
        .help(flag.help)
        .help_heading(match flag.section {
            Section::Listening => help::LISTENING,
            Section::Media => help::MEDIA,
            Section::Service => help::SERVICE,
            Section::Faults => help::FAULTS,
            Section::Output => help::OUTPUT,
        })
        .requires_all(flag.requires)
        .conflicts_with_all(flag.conflicts)
        .action(match flag.occurrence {
            _ if matches!(flag.value, FlagValue::Nothing) => ArgAction::SetTrue,
            Occurrence::Once => ArgAction::Set,
            Occurrence::Any | Occurrence::Listed => ArgAction::Append,
        });
    if flag.occurrence == Occurrence::Listed {
        argument = argument.value_delimiter(',');
    }
    if let Some(bare) = flag.bare_value {
        argument = argument.num_args(0..=1).default_missing_value(bare);
    }
    if let Some(default) = flag.default {
        argument = argument.default_value(default);
    }
    match flag.value {
        FlagValue::Nothing => argument,
        FlagValue::File => argument
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf)),
        FlagValue::OneOf(name, values) => {
            let values = values
                .iter()
                .map(|&(value, help)| PossibleValue::new(value).help(help));
            argument
                .value_name(name)
                .value_parser(PossibleValuesParser::new(values))
        }
        FlagValue::Number(name, min, max) => {
            argument.value_name(name).value_parser(number(min, max))
        }
        FlagValue::Text(name, check) => argument
            .value_name(name)
            .value_parser(move |text: &str| check(text).map(|()| text.to_owned())),
    }
}

/// Returns a parser of whole numbers within these bounds, whose values stay text.
fn number(min: u64, max: u64) -> ValueParser {
    use clap::builder::TypedValueParser;
    match (i64::try_from(min), i64::try_from(max)) {
        (Ok(min), Ok(max)) => clap::value_parser!(i64)
            .range(min..=max)
            .map(|number| number.to_string())
            .into(),
        _ => clap::value_parser!(u64)
            .range(min..=max)
            .map(|number| number.to_string())
            .into(),
    }
}
