//! One program for all fuzz targets; `STREAMGAUGE_FUZZ` names the one that is meant. See
//! docs/fuzzing.md.
#![no_main]

mod input;
mod seeds;
mod targets;

use std::path::Path;
use std::sync::OnceLock;

use targets::{TARGETS, Target};

static TARGET: OnceLock<Target> = OnceLock::new();

/// Finds the target, or does what is asked in place of fuzzing: `list` prints the names, and with
/// `STREAMGAUGE_FUZZ_SEED=FOLDER` the target's seeds are written there.
fn choose() {
    let name = std::env::var("STREAMGAUGE_FUZZ").unwrap_or_default();
    if name == "list" {
        for (name, _) in TARGETS {
            println!("{name}");
        }
        std::process::exit(0);
    }
    let Some((_, target)) = TARGETS.into_iter().find(|(known, _)| *known == name) else {
        eprintln!("fuzz: STREAMGAUGE_FUZZ={name} is no target; `fuzz/run list` names them");
        std::process::exit(2);
    };
    if let Some(folder) = std::env::var_os("STREAMGAUGE_FUZZ_SEED") {
        for (number, seed) in seeds::of(&name).into_iter().enumerate() {
            let path = Path::new(&folder).join(format!("seed-{number:02}"));
            std::fs::write(path, seed).expect("the folder can be written");
        }
        std::process::exit(0);
    }
    TARGET.get_or_init(|| target);
}

libfuzzer_sys::fuzz_target!(init: choose(), |bytes: &[u8]| {
    if let Some(target) = TARGET.get() {
        target(bytes);
    }
});
