//! Version and build of this program.

use std::path::PathBuf;

use measure::Build;

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commit and target of this program, from `build.rs`.
pub(crate) fn build() -> Build {
    Build {
        commit: option_env!("PROGRAM_COMMIT").map(str::to_owned),
        modified: option_env!("PROGRAM_MODIFIED").is_some(),
        target: env!("PROGRAM_TARGET").to_owned(),
    }
}

/// Returns the options of a run into this file that do not depend on the user.
pub(crate) fn run_options(run_file: PathBuf) -> engine::Options {
    engine::Options {
        run_file,
        version: VERSION.to_owned(),
        build: Some(build()),
        ..engine::Options::default()
    }
}

/// Text of `--version`. Its last line says how runs of this process receive media over UDP.
pub(crate) fn text() -> String {
    let build = build();
    let path = match engine::packet_ring_available() {
        Ok(()) => "packet ring".to_owned(),
        Err(why_not) => format!("sockets; {why_not}"),
    };
    format!(
        "streamgauge {VERSION}\ncommit: {}\ntarget: {}\nreceives by: {path}\n",
        build.source(),
        build.target
    )
}
