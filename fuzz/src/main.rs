//! One program for all fuzz targets; `STREAMGAUGE_FUZZ` names the target to run. See
//! docs/fuzzing.md.
#![no_main]

mod input;
mod seeds;
mod targets;

use std::path::Path;
use std::sync::OnceLock;

use targets::{TARGETS, Target};

static TARGET: OnceLock<Target> = OnceLock::new();

/// Selects the target. Two special uses exit here: the name `list` prints the names, and
/// `STREAMGAUGE_FUZZ_SEED=FOLDER` writes the target's seeds to a folder.
fn choose() {
    protocols::install();
    let name = std::env::var("STREAMGAUGE_FUZZ").unwrap_or_default();
    if name == "list" {
        for (name, _) in TARGETS {
            println!("{name}");
        }
        std::process::exit(0);
    }
    let Some((_, target)) = TARGETS.into_iter().find(|(known, _)| *known == name) else {
        eprintln!("fuzz: STREAMGAUGE_FUZZ={name} is not a target; `fuzz/run list` prints them");
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
