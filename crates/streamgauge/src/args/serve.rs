//! The reference servers' flags, as their protocols declare them.

use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
use kit::reference::{Configured, ReferenceServer};
use protocols::PROTOCOLS;

/// A reference server and the flags given for it.
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) server: &'static ReferenceServer,
    /// The error names the flag that contradicts another one.
    pub(crate) configured: Result<Configured, String>,
}

impl Subcommand for Serve {
    fn augment_subcommands(command: Command) -> Command {
        PROTOCOLS.iter().fold(command, |command, protocol| {
            let Some(server) = protocol.server else {
                return command;
            };
            let own = Command::new(protocol.name).aliases(server.aliases.iter().copied());
            command.subcommand(server.add_flags(own))
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Serve::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        kit::registry::find(name).is_some_and(|protocol| protocol.server.is_some())
    }
}

impl FromArgMatches for Serve {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Serve, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let server = kit::registry::find(name).and_then(|protocol| protocol.server);
        let server = server.ok_or_else(missing)?;
        Ok(Serve {
            server,
            configured: server.read(matches),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Serve::from_arg_matches(matches)?;
        Ok(())
    }
}
