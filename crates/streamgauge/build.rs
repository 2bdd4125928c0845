//! Passes the commit and the target of this build to the program.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Commit of the source, for builds without the repository, such as in a container. Names that
/// begin with STREAMGAUGE_ are settings of runs, and cargo passes these also to the programs it
/// runs.
const COMMIT: &str = "SOURCE_COMMIT";
/// Suffix of a commit for a source with further changes.
const MODIFIED: &str = "-modified";
/// File that `cargo package` adds. Its only field with this name is the commit.
const PACKAGED: &str = ".cargo_vcs_info.json";
const PACKAGED_FIELD: &str = "\"sha1\": \"";

struct Source {
    commit: String,
    modified: bool,
}

fn main() {
    println!("cargo::rerun-if-env-changed={COMMIT}");
    println!("cargo::rerun-if-changed=build.rs");
    let source = named().or_else(packaged).or_else(committed);
    if let Some(source) = source {
        println!("cargo::rustc-env=PROGRAM_COMMIT={}", source.commit);
        if source.modified {
            println!("cargo::rustc-env=PROGRAM_MODIFIED=1");
        }
    }
    let target = env::var("TARGET").expect("cargo sets it for build scripts");
    println!("cargo::rustc-env=PROGRAM_TARGET={target}");
}

fn named() -> Option<Source> {
    let text = env::var(COMMIT).ok()?;
    let (commit, modified) = match text.strip_suffix(MODIFIED) {
        Some(commit) => (commit, true),
        None => (text.as_str(), false),
    };
    is_commit(commit).then(|| Source {
        commit: commit.to_owned(),
        modified,
    })
}

/// Reads the commit of a package of crates.io.
fn packaged() -> Option<Source> {
    let text = fs::read_to_string(PACKAGED).ok()?;
    let (_, rest) = text.split_once(PACKAGED_FIELD)?;
    let (commit, _) = rest.split_once('"')?;
    is_commit(commit).then(|| Source {
        commit: commit.to_owned(),
        modified: text.contains("\"dirty\": true"),
    })
}

/// Reads the commit of the repository, if this workspace is one.
fn committed() -> Option<Source> {
    let root = Path::new("../..").canonicalize().ok()?;
    if Path::new(&git(&root, &["rev-parse", "--show-toplevel"])?) != root {
        return None;
    }
    for folder in ["crates", "vendor"] {
        watch_sources(&root.join(folder));
    }
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    // Each commit would rebuild the program and its tests. A test build names the commit that it
    // was made from; a release names the newest, also if the sources are the same.
    if env::var("PROFILE").as_deref() == Ok("release") {
        let log = git(&root, &["rev-parse", "--git-path", "logs/HEAD"])?;
        let log = root.join(log);
        if log.exists() {
            println!("cargo::rerun-if-changed={}", log.display());
        }
    }
    let commit = git(&root, &["rev-parse", "HEAD"])?;
    let sources = ["crates", "vendor", "Cargo.toml", "Cargo.lock"];
    let status = ["status", "--porcelain", "--untracked-files=all", "--"];
    let changes = git(&root, &[&status[..], &sources[..]].concat())?;
    is_commit(&commit).then_some(Source {
        commit,
        modified: !changes.is_empty(),
    })
}

/// Lets cargo run this script again if the sources of a crate change.
fn watch_sources(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        for part in ["src", "Cargo.toml"] {
            let path = entry.path().join(part);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(["--no-optional-locks", "-C"])
        .arg(folder)
        .args(arguments)
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned())
}

fn is_commit(text: &str) -> bool {
    text.len() >= 7 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
