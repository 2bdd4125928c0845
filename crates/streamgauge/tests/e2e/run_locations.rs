//! Paths of run files and reports: they are checked before anything starts, and nothing is lost or
//! left behind by accident.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scripted::{Answer, Scripted};
use crate::support::{Finished, Process, RUN_TIMEOUT, Report, folder, free_port, run, streamgauge};

/// Folder in which runs are kept by default.
const RUNS: &str = "streamgauge-runs";

/// Runs a short run with these additional arguments.
fn demo(folder: &Path, more: &[&str]) -> Finished {
    run(folder, demo_arguments(more))
}

fn demo_arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["demo", "-c", "2", "--ramp", "0s", "-d", "5s"];
    arguments.extend_from_slice(more);
    arguments
}

/// Returns the paths in a folder with this extension.
fn ending(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it can be read");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let wanted = |path: &PathBuf| path.extension().is_some_and(|found| found == extension);
    paths.filter(wanted).collect()
}

#[test]
fn run_file_is_replaced_only_with_force() {
    let folder = folder();
    let path = folder.path().join("x.run");
    demo(folder.path(), &["-q", "-o", "x.run"]).expect(0);
    let first = fs::read(&path).expect("it was made");
    demo(folder.path(), &["-q", "-o", "x.run"])
        .expect(104)
        .names("x.run")
        .names("--force");
    assert!(fs::read(&path).expect("it is there") == first);
    demo(folder.path(), &["-q", "-o", "x.run", "--force"]).expect(0);
    assert!(fs::read(&path).expect("it is there") != first);
    // An empty file, such as `mktemp` makes, holds nothing that could be lost.
    fs::write(folder.path().join("empty.run"), "").expect("the test's folder can be written");
    demo(folder.path(), &["-q", "-o", "empty.run"]).expect(0);
}

#[test]
fn only_a_report_is_replaced_by_a_report() {
    let folder = folder();
    let scenario = "clients: {viewers: {urls: ['rtsp://127.0.0.1:1/a'], load: {clients: 1}}}\n";
    let mine = folder.path().join("mine.yaml");
    fs::write(&mine, scenario).expect("the test's folder can be written");
    let refusal = "error: mine.yaml is not a report of streamgauge, so it is not replaced: name another file with `--json`";
    run(
        folder.path(),
        ["run", "mine.yaml", "--no-run-file", "--json", "mine.yaml"],
    )
    .expect(104)
    .names(&format!("{refusal}, or use `--force`"));
    run(folder.path(), ["report", "x.run", "--json", "mine.yaml"])
        .expect(104)
        .names(refusal);
    assert_eq!(fs::read_to_string(&mine).expect("it is there"), scenario);

    let json = folder.path().join("x.json");
    let into = |more: &[&str]| {
        let arguments = [&["-q", "--no-run-file", "--json", "x.json"], more].concat();
        demo(folder.path(), &arguments)
    };
    // An empty file, as from `mktemp`.
    fs::write(&json, "").expect("the test's folder can be written");
    into(&[]).expect(0);
    let first = fs::read(&json).expect("it was made");
    // A run that cannot begin leaves the old report unchanged.
    into(&["--receive", "nothing"]).expect(104);
    run(folder.path(), ["report", "x.run", "--json", "x.json"]).expect(104);
    assert!(fs::read(&json).expect("it is there") == first);
    into(&[]).expect(0);
    assert!(fs::read(&json).expect("it is there") != first);
    fs::write(&json, "{\"mine\": 1}").expect("the test's folder can be written");
    into(&[]).expect(104).names("x.json is not a report");
    into(&["--force"]).expect(0);
    Report::read(&json);
}

#[test]
fn only_a_page_is_replaced_by_a_page() {
    let folder = folder();
    let page = folder.path().join("x.html");
    demo(folder.path(), &["-q", "-o", "x.run", "--html", "x.html"]).expect(0);
    let first = fs::read_to_string(&page).expect("it was made");
    assert!(first.contains("PASS: demo"), "{first}");
    // `report` makes the same page from the run file alone.
    fs::remove_file(&page).expect("it is there");
    run(folder.path(), ["report", "x.run", "-q", "--html", "x.html"]).expect(0);
    assert!(fs::read_to_string(&page).expect("it was made") == first);
    run(folder.path(), ["report", "x.run", "-q", "--html", "x.html"]).expect(0);
    fs::write(&page, "<!doctype html>mine").expect("the test's folder can be written");
    let refusal = "x.html is not a report of streamgauge, so it is not replaced: name another file with `--html`";
    run(folder.path(), ["report", "x.run", "--html", "x.html"])
        .expect(104)
        .names(refusal);
    run(
        folder.path(),
        ["report", "x.run", "--html", "-", "--json", "-"],
    )
    .expect(104)
    .names("the same file");
}

#[test]
fn run_file_in_a_folder_gets_a_name() {
    let folder = folder();
    fs::create_dir(folder.path().join("there")).expect("the test's folder can be written");
    for name in ["there", "new/"] {
        demo(folder.path(), &["-q", "-o", name]).expect(0);
        let files = ending(&folder.path().join(name), "run");
        assert_eq!(files.len(), 1, "{files:?}");
        let name = files[0].file_name().unwrap_or_default().to_string_lossy();
        assert!(name.starts_with("streamgauge-demo-"), "{name}");
    }
}

#[test]
fn runs_are_kept_in_one_folder_where_reports_find_them() {
    let folder = folder();
    let finished = demo(folder.path(), &[]).expect(0);
    let first = ending(&folder.path().join(RUNS), "run");
    assert_eq!(first.len(), 1, "{first:?}");
    let first = first[0].strip_prefix(folder.path()).expect("it is in it");
    // The report names its place.
    let named = format!("run file  {}", first.display());
    assert!(finished.stdout.contains(&named), "{}", finished.stdout);
    let only = run(folder.path(), ["report"]).expect(0);
    assert_eq!(only.stdout, finished.stdout);

    let mut command = streamgauge(demo_arguments(&["--seed", "77"]));
    command.env("STREAMGAUGE_RUNS", "elsewhere");
    Process::start(command, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(0);
    assert_eq!(ending(&folder.path().join(RUNS), "run").len(), 1);
    assert_eq!(ending(&folder.path().join("elsewhere"), "run").len(), 1);
    let mut command = streamgauge(["report"]);
    command.env("STREAMGAUGE_RUNS", "elsewhere");
    let there = Process::start(command, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(0);
    assert!(there.stdout.contains("seed      77"), "{}", there.stdout);

    // A name alone is enough.
    let name = first.file_name().unwrap_or_default();
    let alone = run(folder.path(), [OsStr::new("report"), name]).expect(0);
    assert_eq!(alone.stdout, finished.stdout);
    let both = [OsStr::new("compare"), name, name];
    // Both are found, and one run of each cannot tell.
    run(folder.path(), both).expect(110);
    fs::remove_dir_all(folder.path().join(RUNS)).expect("it is the test's own");
    run(folder.path(), ["report"])
        .expect(104)
        .names("streamgauge-runs: there is no run to report");
}

#[test]
fn run_that_cannot_begin_leaves_and_replaces_nothing() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    demo(folder.path(), &["-q", "-o", "x.run"]).expect(0);
    let old = fs::read(path("x.run")).expect("it was made");
    // A trace cannot be written to a folder, which is known only when the run is about to begin.
    fs::create_dir(path("x.run.viewers-0.pcapng")).expect("the test's folder can be written");
    let arguments = ["--trace", "0", "-o", "x.run", "--force"];
    demo(folder.path(), &arguments).expect(104).names("pcapng");
    assert!(fs::read(path("x.run")).expect("it is there") == old);
    fs::remove_file(path("x.run")).expect("it is there");
    demo(folder.path(), &arguments).expect(104);
    assert_eq!(ending(folder.path(), "run").len(), 0);

    let scenario = "server: {command: [sh, -c, 'exit 3'], ready: {port: 1}}\n\
                    clients: {viewers: {urls: ['rtsp://127.0.0.1:1/a'], load: {clients: 1}}}\n";
    fs::write(path("s.yaml"), scenario).expect("the test's folder can be written");
    run(folder.path(), ["run", "s.yaml"]).expect(104);
    run(folder.path(), ["run", "s.yaml", "-o", "new/"]).expect(104);
    let varied = ["--set", "vary={clients.viewers.load.clients: [1, 2]}"];
    let series = ["run", "s.yaml"].into_iter().chain(varied);
    let finished = run(folder.path(), series).expect(104);
    assert!(finished.stdout.contains("not kept"), "{}", finished.stdout);
    for made in [RUNS, "new"] {
        assert!(!path(made).exists(), "{made}");
    }
}

#[test]
fn nothing_is_sent_if_the_run_cannot_be_kept() {
    let folder = folder();
    let server = Scripted::start(|_| Answer::Good);
    let url = server.url();
    fs::write(folder.path().join("thesis.txt"), "mine").expect("the test's folder can be written");
    fs::write(folder.path().join("y.run.viewers-0.pcapng"), "").expect("and this");
    for (arguments, names) in [
        ("-o -", "standard output; name a file"),
        ("-o missing/x.run", "missing: there is no such folder"),
        ("-o missing/x/", "missing/x/: there is no such folder"),
        ("-o thesis.txt", "thesis.txt: this is not a run file"),
        (
            "-o thesis.txt --force",
            "thesis.txt: this is not a run file",
        ),
        ("-o /dev/null --force", "/dev/null: this is not a run file"),
        ("-o thesis.txt/x.run", "a part of its path is a file"),
        ("-o x.run --json x.run", "cannot be the same file"),
        ("-o x.run --html x.run", "cannot be the same file"),
        (
            "-o y.run --trace 0",
            "error: y.run.viewers-0.pcapng: a trace already exists",
        ),
        ("--no-run-file -o x.run", "--no-run-file"),
        ("--no-run-file --trace 0", "--no-run-file"),
        ("--force", "--out"),
        ("--json missing/x.json", "name another place with `--json`"),
        ("--html missing/x.html", "name another place with `--html`"),
    ] {
        let line = format!("load {url} -d 60s {arguments}");
        run(folder.path(), line.split(' ')).expect(104).names(names);
    }
    assert_eq!(server.seen("OPTIONS") + server.seen("DESCRIBE"), 0);
    assert_eq!(ending(folder.path(), "run").len(), 0);
    assert!(!folder.path().join(RUNS).exists());
    let thesis = fs::read_to_string(folder.path().join("thesis.txt"));
    assert_eq!(thesis.expect("it is there"), "mine");
}

#[test]
fn no_run_file_leaves_nothing_but_the_report() {
    let folder = folder();
    let scratch = folder.path().join("scratch");
    fs::create_dir(&scratch).expect("the test's folder can be written");
    let arguments = demo_arguments(&["--no-run-file", "--json", "x.json"]);
    let mut command = streamgauge(arguments);
    command.env("TMPDIR", &scratch);
    let finished = Process::start(command, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(0);
    assert!(
        finished.stdout.contains("run file  not kept"),
        "{}",
        finished.stdout
    );
    let report = Report::read(&folder.path().join("x.json"));
    assert_eq!(report.clients("started"), 2);
    assert_eq!(ending(folder.path(), "run").len(), 0);
    assert!(!folder.path().join(RUNS).exists());
    assert_eq!(fs::read_dir(&scratch).expect("it is there").count(), 0);
}

/// A file system that is unmounted when it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    /// Returns `None` if mounting is not permitted.
    fn new(path: PathBuf, options: &str) -> Option<Mounted> {
        fs::create_dir(&path).expect("the test's folder can be written");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(&path)
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Mounted(path))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn run_continues_with_a_warning_in_a_read_only_folder() {
    let folder = folder();
    let path = folder.path().join("read-only");
    // Only root can mount. For other users this folder would not be read-only.
    let Some(_mounted) = Mounted::new(path, "ro") else {
        return;
    };
    let scratch = folder.path().join("scratch");
    fs::create_dir(&scratch).expect("the test's folder can be written");
    let within = |arguments: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "cd read-only && exec \"$0\" \"$@\""]);
        command
            .arg(env!("CARGO_BIN_EXE_streamgauge"))
            .args(arguments);
        command.env("NO_COLOR", "1").env("TMPDIR", &scratch);
        Process::start(command, folder.path()).finish(RUN_TIMEOUT)
    };
    let finished = within(&demo_arguments(&[]))
        .expect(0)
        .names("warning: no run file is kept")
        .names("read-only")
        .names("`-o`");
    assert!(finished.stdout.contains("not kept"), "{}", finished.stdout);
    assert_eq!(fs::read_dir(&scratch).expect("it is there").count(), 0);
    // A trace that is not kept is useless, so this is an error.
    within(&demo_arguments(&["--trace", "0"]))
        .expect(104)
        .names("`-o`");
    // A path that the user named is an error instead of a warning.
    let mut command = Command::new("sh");
    command.args(["-c", "cd read-only && exec \"$0\" demo"]);
    command.arg(env!("CARGO_BIN_EXE_streamgauge"));
    command.env("STREAMGAUGE_RUNS", "x");
    Process::start(command, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(104)
        .names("read-only")
        .names("`-o`");
    for out in ["x.run", ".", "x/"] {
        within(&demo_arguments(&["-o", out]))
            .expect(104)
            .names("read-only")
            .names("`-o`");
    }
}

#[test]
fn full_disk_is_an_error_before_anything_starts() {
    let folder = folder();
    let Some(_mounted) = Mounted::new(folder.path().join("full"), "size=16k") else {
        return;
    };
    let url = format!("rtsp://127.0.0.1:{}/a", free_port());
    run(folder.path(), ["load", &url, "-o", "full/x.run"])
        .expect(104)
        .names("full: the run cannot be kept in this folder: the disk is full")
        .names("`-o`");
}

/// Runs the command with a file as its standard input.
fn with_input(folder: &Path, arguments: &[&str], text: &str) -> Finished {
    fs::write(folder.join("input"), text).expect("the test's folder can be written");
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" < input"]);
    command
        .arg(env!("CARGO_BIN_EXE_streamgauge"))
        .args(arguments);
    command.env("NO_COLOR", "1");
    Process::start(command, folder).finish(RUN_TIMEOUT)
}

#[test]
fn a_scenario_can_come_from_standard_input() {
    let folder = folder();
    let text = format!(
        "clients:\n  viewers:\n    protocol: rtsp\n    urls: [\"rtsp://127.0.0.1:{}/a\"]\n    \
         load: {{ clients: 1 }}\nduration: 20s\n",
        free_port()
    );
    let arguments = ["run", "-", "--json", "x.json", "--set", "seed=5"];
    with_input(folder.path(), &arguments, &text).expect(99);
    let report = Report::read(&folder.path().join("x.json"));
    assert_eq!(report.0["run"]["seed"], 5);
    assert_eq!(ending(&folder.path().join(RUNS), "run").len(), 1);

    let check = ["check", "--offline", "-"];
    with_input(folder.path(), &check, &text).expect(0);
    let wrong = text.replace("urls", "ulrs");
    with_input(folder.path(), &check, &wrong)
        .expect(104)
        .names("standard input:4")
        .names("ulrs");
    for (text, names) in [("", "standard input: it is empty"), ("\n", "it is empty")] {
        with_input(folder.path(), &check, text)
            .expect(104)
            .names(names);
    }
    let large = "#".repeat((1 << 20) + 1);
    with_input(folder.path(), &check, &large)
        .expect(104)
        .names("larger than 1 MiB");
    // Relative paths start at the current folder.
    let launched = format!("{text}server: {{ launch: ./own.yaml }}\n");
    with_input(folder.path(), &check, &launched)
        .expect(104)
        .names("./own.yaml");
}
