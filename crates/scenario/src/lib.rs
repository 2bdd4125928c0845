//! What to do: a scenario file, one line of arguments and `--set` become one validated [`Scenario`].
//!
//! Every way of writing a scenario makes the same tree, in which every piece knows where it was
//! written: file, line and column, an argument, an environment variable. Settings are put over the
//! tree, then it is decoded, and whatever is wrong is said at its place, several things at once
//! where they do not follow from each other. What a protocol may be told is the protocol's to know:
//! its keys are read through its entry in [`protocol::registry`].

mod describe;
mod error;
mod fields;
mod keys;
mod model;
mod nearest;
mod node;
mod one_liner;
mod overrides;
mod population;
mod read;
mod schema;
mod server;
mod source;
mod tester;
mod urls;
mod yaml;

use std::fs::File;
use std::io::Read;
use std::path::Path;

pub use describe::{Description, PopulationPlan};
pub use error::{Problem, ScenarioError};
pub use model::{
    Clips, DEFAULT_READY_TIMEOUT, DEFAULT_RECEIVE_BUFFER, DEFAULT_RING, DEFAULT_STOP_TIMEOUT,
    Leave, Pick, Population, Priority, Ready, Receive, Scenario, Server, ServerStart, Tester,
    Threshold,
};
pub use one_liner::{ONE_LINER_POPULATION, OneLiner};
pub use overrides::{ENVIRONMENT_PREFIX, OptionSetting, Overrides};
pub use schema::schema;

use crate::node::Node;
use crate::source::{Origin, Source, SourceKind};

impl Scenario {
    /// Reads the scenario file at `path`. What it names relative to itself is resolved.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Scenario, ScenarioError> {
        let shown = path.display().to_string();
        let unreadable = |error: std::io::Error| {
            let help = match error.kind() {
                std::io::ErrorKind::NotFound => "is the path right, seen from where you are?",
                std::io::ErrorKind::PermissionDenied => "you may not read it",
                _ => "",
            };
            Problem::nowhere(format!("cannot read the scenario {shown}: {error}")).help(help)
        };
        let mut bytes = Vec::new();
        // One byte more than allowed, so that the parser sees that it is too large.
        let most = yaml::MAX_BYTES as u64 + 1;
        File::open(path)
            .and_then(|file| file.take(most).read_to_end(&mut bytes))
            .map_err(unreadable)?;
        if bytes.len() > yaml::MAX_BYTES {
            return Err(
                Problem::nowhere(format!("the scenario {shown} is larger than 1 MiB"))
                    .help("is it the right file?")
                    .into(),
            );
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count()
                + 1;
            Problem::nowhere(format!("the scenario {shown} is not UTF-8 in line {line}"))
                .help("save it as UTF-8")
        })?;
        let mut scenario = Scenario::parse(&shown, &text, overrides)?;
        if let (Some(server), Some(parent)) = (&mut scenario.server, path.parent()) {
            if let Some(clips) = &mut server.clips {
                clips.directory = parent.join(&clips.directory);
            }
            if let Some(directory) = &mut server.directory {
                *directory = parent.join(&*directory);
            }
        }
        Ok(scenario)
    }

    /// Reads a scenario from a text. `source_name` is what messages call it; a scenario without a
    /// name is named after it.
    pub fn parse(
        source_name: &str,
        text: &str,
        overrides: &Overrides,
    ) -> Result<Scenario, ScenarioError> {
        let source = Source::new(SourceKind::File, source_name, text);
        let root = yaml::parse(&source, 0)?;
        let name = Path::new(source_name).file_stem().map_or_else(
            || source_name.to_owned(),
            |stem| stem.to_string_lossy().into_owned(),
        );
        decode(root, &name, overrides)
    }

    /// Makes a scenario of one line of arguments.
    pub fn from_one_liner(
        line: &OneLiner,
        overrides: &Overrides,
    ) -> Result<Scenario, ScenarioError> {
        if line.urls.is_empty() {
            return Err(Problem::nowhere("a URL is missing")
                .help("say what to play, such as `streamgauge load rtsp://127.0.0.1:8554/a`")
                .into());
        }
        let name = line.urls.join(" ");
        decode(line.tree(), &name, overrides)
    }
}

fn decode(mut root: Node, name: &str, overrides: &Overrides) -> Result<Scenario, ScenarioError> {
    let mut problems = Vec::new();
    overrides.apply(&mut root, &mut problems);
    let scenario = read::scenario(&root, name, overrides, &mut problems);
    match scenario {
        Some(scenario) if problems.is_empty() => Ok(scenario),
        _ if problems.is_empty() => Err(Problem::new(
            &Origin::whole(&root.origin.source),
            "the scenario cannot be read",
        )
        .into()),
        _ => Err(ScenarioError::new(problems)),
    }
}
