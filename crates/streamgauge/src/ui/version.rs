//! Version and build of this program.

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
