//! The emulated link of a scenario.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Serialize;
use session::link::{LinkConfig, SettingsTimeline};

/// Default MTU of a link: 1,500 bytes, IP header included.
pub const DEFAULT_MTU: u16 = 1500;

/// Maximum size of a trace, in bytes.
const TRACE_BYTES_MAX: u64 = 16 << 20;

/// An emulated link between clients and server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Link {
    /// Settings of the link. With a trace it has no stages.
    #[serde(flatten)]
    pub config: LinkConfig,
    /// File with changes over time. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<PathBuf>,
}

impl Link {
    /// Returns the settings and changes of each direction: from the clients to the server, and
    /// back. Reads the trace, if any.
    ///
    /// # Errors
    /// If the trace cannot be read or the settings are invalid, the reason.
    pub fn timelines(&self) -> Result<[SettingsTimeline; 2], String> {
        let Some(path) = &self.trace else {
            return self.config.timelines();
        };
        let of_trace = |error: String| format!("{}: {error}", path.display());
        let text = read_trace(path).map_err(of_trace)?;
        let stages = LinkConfig::stages_of_trace(&text).map_err(of_trace)?;
        LinkConfig {
            stages,
            ..self.config.clone()
        }
        .timelines()
    }

    /// Returns the maximum packet size in bytes, IP header included. Default: [`DEFAULT_MTU`].
    pub fn mtu(&self) -> u16 {
        self.config.mtu.unwrap_or(DEFAULT_MTU)
    }

    /// Describes the link in one line.
    pub fn line(&self) -> String {
        let line = self.config.summary();
        match &self.trace {
            Some(path) => format!("{line}, changes as in {}", path.display()),
            None => line,
        }
    }
}

fn read_trace(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let read = file.take(TRACE_BYTES_MAX + 1).read_to_string(&mut text);
    match read.map_err(|error| error.to_string())? as u64 {
        0..=TRACE_BYTES_MAX => Ok(text),
        _ => Err("it is larger than 16 MiB".to_owned()),
    }
}
