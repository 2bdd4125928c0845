//! Runs every command that the documents show, shortened, against a server of its kind. Commands
//! for servers that streamgauge does not have are at least parsed: a renamed option fails here
//! instead of at a reader's.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};

use crate::namespace::Namespace;
use crate::support::{Process, RUN_TIMEOUT, folder, have, streamgauge, wait_for, wrap_command};

/// Programs in documents other than streamgauge. They are not run: they are foreign, or do too
/// much.
const OTHERS: [&str; 25] = [
    "./test",
    "apt-get",
    "cargo",
    "cd",
    "curl",
    "docs/pictures.py",
    "export",
    "ffmpeg",
    "fuzz/run",
    "install",
    "ip",
    "journalctl",
    "mdbook",
    "packaging/container/context",
    "packaging/deb",
    "packaging/release",
    "podman",
    "setcap",
    "sha256sum",
    "sudoedit",
    "sysctl",
    "systemctl",
    "tar",
    "tshark",
    "unshare",
];

/// Number of commands that run at a time: they wait most of the time.
const AT_A_TIME: usize = 8;

/// A command of a document.
#[derive(Debug)]
struct DocumentedCommand {
    /// Document and line.
    position: String,
    /// Words of the command, with the program first.
    words: Vec<String>,
    /// File for standard input.
    input: Option<String>,
}

fn root() -> PathBuf {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    found
        .canonicalize()
        .expect("the workspace is two folders up")
}

/// Returns the documents that show commands, sorted by path.
fn documents() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    for folder in ["docs", "docs/tutorials"] {
        let entries = fs::read_dir(root().join(folder)).expect("it is in the repository");
        let paths = entries.map(|entry| entry.expect("it can be read").path());
        found.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    found.sort();
    found
}

/// Splits a line into words as a shell does, up to its comment.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Returns the commands in the `sh` blocks of a document.
fn commands(position: &str, text: &str) -> Vec<DocumentedCommand> {
    let (mut found, mut inside, mut line) = (Vec::new(), false, String::new());
    for (number, written) in text.lines().enumerate() {
        if let Some(language) = written.trim_start().strip_prefix("```") {
            inside = language == "sh";
            continue;
        }
        if !inside {
            continue;
        }
        line.push_str(written);
        if line.ends_with('\\') {
            line.pop();
            continue;
        }
        let mut words = words(&std::mem::take(&mut line));
        words.retain(|word| !matches!(word.as_str(), "sudo" | "&"));
        let input = words.iter().position(|word| word == "<").map(|at| {
            let file = words.remove(at + 1);
            words.remove(at);
            file
        });
        if let Some(at) = words.iter().position(|word| word == ">") {
            words.truncate(at);
        }
        if !words.is_empty() {
            let position = format!("{position}:{}", number + 1);
            found.push(DocumentedCommand {
                position,
                words,
                input,
            });
        }
    }
    found
}

/// Returns the commands of streamgauge in all documents, without the program's name.
fn shown() -> Vec<DocumentedCommand> {
    let mut found = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).expect("documents are UTF-8");
        let path_text = path.strip_prefix(root()).expect("it is in the workspace");
        for mut shown in commands(&path_text.display().to_string(), &text) {
            let program = shown.words.remove(0);
            if program.ends_with("streamgauge") {
                found.push(shown);
            } else {
                let known = OTHERS.contains(&program.as_str());
                assert!(known, "{}: what is {program}?", shown.position);
            }
        }
    }
    found
}

/// How a command is tested, shortened so that it ends soon.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// Only its options and their values are parsed.
    Read,
    /// The command runs to its end, with a server if it plays.
    Run(Vec<String>),
    /// The command serves until it is stopped.
    Serve(Vec<String>),
}

/// Sets the value of an option. Returns `false` if the option is absent.
fn set(words: &mut [String], options: [&str; 2], value: &str) -> bool {
    let at = words
        .iter()
        .position(|word| options.contains(&word.as_str()));
    let value_word = at.and_then(|at| words.get_mut(at + 1));
    value_word.map(|found| value.clone_into(found)).is_some()
}

fn plan(shown: &DocumentedCommand) -> Plan {
    // A variable of the reader's shell.
    let words = shown.words.iter().map(|word| word.replace("$CLIENTS", "2"));
    let mut words: Vec<String> = words.collect();
    let has = |name: &str| shown.words.iter().any(|word| word == name);
    for word in &mut words {
        if word.starts_with("--dashboard-linger") {
            "--dashboard-linger=1s".clone_into(word);
        }
    }
    match words[0].as_str() {
        "check" => words.push("--offline".to_owned()),
        // tests/e2e/compare.rs makes the runs that are compared.
        "compare" => return Plan::Read,
        "run" if has("--baseline") => return Plan::Read,
        // tests/e2e/cluster.rs has runners and a NATS server.
        "run" if has("--at") => return Plan::Read,
        // tests/e2e/cluster_ssh.rs has hosts.
        "run" if shown.words.iter().any(|word| word.starts_with("ssh:")) => return Plan::Read,
        // The reader's server; tests/e2e/observed_process.rs has one.
        "load" if has("--pid") => return Plan::Read,
        "runner" => return Plan::Read,
        "run" if words[1].starts_with("examples/") => {
            let mut check = vec!["check".to_owned(), words[1].clone(), "--offline".to_owned()];
            for (at, _) in words
                .iter()
                .enumerate()
                .filter(|(_, word)| *word == "--set")
            {
                check.extend_from_slice(&words[at..at + 2]);
            }
            words = check;
        }
        "demo" => words.extend(["-c", "4", "-d", "4s"].map(str::to_owned)),
        // Janus has no network of its own here; tests/e2e/webrtc.rs plays from it. LiveKit is not
        // packaged.
        "load"
            if ["janus+", "livekit+"]
                .iter()
                .any(|own| words[1].starts_with(own)) =>
        {
            return Plan::Read;
        }
        "load" => {
            // The traced client has to exist.
            let clients = if has("--trace") { "18" } else { "4" };
            set(&mut words, ["-c", "--clients"], clients);
            set(&mut words, ["--ramp", "--ramp"], "500ms");
            if !set(&mut words, ["-d", "--duration"], "4s") {
                words.extend(["-d", "4s"].map(str::to_owned));
            }
        }
        "link" if Path::new("/dev/net/tun").exists() => {
            let command = words.iter().position(|word| word == "--");
            words.truncate(command.expect("a link is before a command") + 1);
            words.push("true".to_owned());
        }
        "link" => return Plan::Read,
        "calibrate" => {
            let all = [
                ("--quick", ""),
                ("--skip-capacity", ""),
                ("--protocol", "rtsp"),
            ];
            let missing = all.iter().filter(|(option, _)| !has(option));
            let more = missing.flat_map(|(option, value)| [*option, *value]);
            words.extend(more.filter(|word| !word.is_empty()).map(str::to_owned));
        }
        "man" => drop(set(&mut words, ["--folder", "--folder"], "results")),
        "send" => {
            let rate = match has("--file") {
                true => "2Mbps",
                false => "1Mbps",
            };
            set(&mut words, ["-b", "--bitrate"], rate);
            if !set(&mut words, ["-d", "--duration"], "1s") {
                words.extend(["-d", "1s"].map(str::to_owned));
            }
        }
        "serve" | "receive" => return Plan::Serve(words),
        _ => {}
    }
    Plan::Run(words)
}

/// A network namespace for one command and its servers.
struct TestSetup {
    namespace: Namespace,
    folder: tempfile::TempDir,
    servers: Vec<Process>,
}

impl TestSetup {
    /// Returns `None` if namespaces are not permitted, and prints why.
    fn new() -> Option<TestSetup> {
        let namespace = Namespace::with_multicast()?;
        namespace.ip("address add 10.0.0.1/32 dev lo");
        namespace.ip("address add 10.0.0.3/32 dev lo");
        namespace.ip("link add eth1 type veth peer name eth2");
        namespace.ip("address add 10.0.1.1/24 dev eth1");
        namespace.ip("link set eth2 up");
        namespace.ip("link set eth1 up");
        let stage = TestSetup {
            namespace,
            folder: folder(),
            servers: Vec::new(),
        };
        let folder = stage.path();
        std::os::unix::fs::symlink(root().join("examples"), folder.join("examples"))
            .expect("the folder is the test's");
        fs::create_dir(folder.join("results")).expect("the folder is the test's");
        fs::write(folder.join("scenario.yaml"), SCENARIO).expect("the folder is the test's");
        Some(stage)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn start<S: AsRef<str>>(&self, words: &[S], input: Option<&str>) -> Process {
        let mut command = self
            .namespace
            .within(&streamgauge(words.iter().map(AsRef::as_ref)));
        if let Some(input) = input {
            // `nsenter` passes its standard input on.
            let script = format!("exec \"$@\" < {input}");
            let mut shell = Command::new("sh");
            shell.args(["-c", &script, "sh"]);
            command = wrap_command(shell, &command);
        }
        command.env("NO_COLOR", "1");
        Process::start(command, self.path())
    }

    /// Starts a server that runs until the command has ended.
    fn serve(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let mut server = self.start(&words, None);
        let begun = match words[0] {
            "send" => "sending ",
            _ => "listening on",
        };
        wait_for(line, Duration::from_secs(60), || {
            assert!(server.runs(), "{line}: {}", server.stderr_text());
            let output = server.stdout_text() + &server.stderr_text();
            output.contains(begun).then_some(())
        });
        self.servers.push(server);
    }

    /// Makes a recorded playlist at this path, and serves it with its segments.
    fn serve_playlist(&mut self, path: &str) {
        let path = self.path().join(path);
        let folder = path.parent().expect("it is a file in a folder");
        fs::create_dir_all(folder).expect("the folder is the test's");
        let mut command = Command::new("ffmpeg");
        command.args("-v error -f lavfi -i testsrc2=s=320x180:r=25:d=4 -c:v libx264".split(' '));
        command.args("-preset ultrafast -g 25 -f hls -hls_time 1".split(' '));
        command.args(["-hls_playlist_type", "vod"]).arg(&path);
        let made = Process::start(command, folder).finish(RUN_TIMEOUT);
        made.expect(0);
        let mut command = Command::new("python3");
        command.args("-u -m http.server 7000 --bind 127.0.0.1".split(' '));
        let server = Process::start(self.namespace.within(&command), self.path());
        wait_for("serving files", Duration::from_secs(60), || {
            server.stdout_text().contains("Serving HTTP").then_some(())
        });
        self.servers.push(server);
    }

    /// Starts the server that a command plays from, and puts its URL into the command.
    fn serve_for(&mut self, words: &mut [String]) {
        let url = words
            .iter_mut()
            .skip(1)
            .find(|word| word.contains("://") || *word == "URL");
        let url = url.expect("a load has a URL");
        let (scheme, rest) = url.split_once("://").unwrap_or(("rtsp", "host/stream"));
        let path = rest.split_once('/').map_or("", |(_, path)| path);
        let query = rest.split_once('?').map_or("", |(_, query)| query);
        let here = match scheme {
            "rtsp" => {
                self.serve("serve rtsp --port 7000");
                format!("rtsp://127.0.0.1:7000/{path}")
            }
            "rtsps" => {
                let key = KeyPair::generate().expect("a key");
                let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]);
                let signed = params.expect("a good name").self_signed(&key);
                let signed = signed.expect("it signs itself").pem();
                for (name, text) in [("cam.pem", signed), ("key.pem", key.serialize_pem())] {
                    fs::write(self.path().join(name), text).expect("the folder is the test's");
                }
                self.serve("serve rtsp --port 7000 --tls-cert cam.pem --tls-key key.pem");
                format!("rtsps://127.0.0.1:7000/{path}")
            }
            "rtmp" => {
                self.serve("serve rtmp --port 7000");
                format!("rtmp://127.0.0.1:7000/{path}")
            }
            "srt" => {
                let passphrase = query
                    .split('&')
                    .find_map(|one| one.strip_prefix("passphrase="));
                let passphrase = passphrase.map(|secret| format!(" --passphrase {secret}"));
                self.serve(&format!(
                    "serve srt --port 7000{}",
                    passphrase.unwrap_or_default()
                ));
                // With its usual latency SRT gives up what a busy machine keeps for a second.
                format!("srt://127.0.0.1:7000?{query}&latency=4000")
            }
            "tcp" => {
                self.serve("serve messages --mode echo --port 7000");
                "tcp://127.0.0.1:7000".to_owned()
            }
            "whep+http" => {
                self.serve("serve webrtc --port 7000");
                "whep+http://127.0.0.1:7000/whep/live".to_owned()
            }
            "http" | "hls+http" if path.ends_with(".m3u8") => {
                let path = path.to_owned();
                self.serve_playlist(&path);
                format!("{scheme}://127.0.0.1:7000/{path}")
            }
            "http" => {
                self.serve("send rtp://239.81.0.{1..8}:4056 --bitrate 1Mbps --interface lo");
                self.serve("serve http-ts --interface lo --port 7000");
                format!("http://127.0.0.1:7000/{path}")
            }
            other => panic!("no server for {other}://"),
        };
        *url = here;
    }

    /// Makes the file that a command sends. Returns `false` without ffmpeg.
    fn make_file(&self, name: &str) -> bool {
        if !have("ffmpeg") {
            return false;
        }
        let mut command = Command::new("ffmpeg");
        command.args("-v error -f lavfi -i testsrc2=s=320x180:r=25:d=2 -c:v libx264".split(' '));
        command.args("-preset ultrafast -g 25 -b:v 500k -f mpegts".split(' '));
        let made = command.arg(name).current_dir(self.path()).status();
        assert!(made.expect("it is installed").success());
        true
    }

    /// Makes the run file or the series that a command reports: this, or one in the folder of runs.
    fn make_report(&self, name: Option<&str>) {
        let mut words = vec!["run", "scenario.yaml", "-q"];
        words.extend(name.into_iter().flat_map(|name| ["-o", name]));
        if name.is_some_and(|name| !name.ends_with(".run")) {
            words.extend(["--set", "vary={clients.viewers.load.clients: [1, 2]}"]);
            words.extend(["--set", "settle=0s"]);
        }
        self.start(&words, None).finish(RUN_TIMEOUT).expect(0);
    }
}

/// Stands in for a reader's scenario.
const SCENARIO: &str = "\
name: evening
server: { command: [streamgauge, serve, rtsp, --port, '7001'], ready: { port: 7001 } }
clients: { viewers: { urls: ['rtsp://127.0.0.1:7001/a'], load: { clients: 2 } } }
duration: 4s
";

/// Bounds a search for a capacity by its first load, which holds.
fn end_after_one_trial(words: &mut Vec<String>) {
    let from = words.iter().position(|word| word == "--from");
    let from = from.map_or("10", |at| &words[at + 1]).to_owned();
    let options = [
        ("--max", from.as_str()),
        ("--hold", "2s"),
        ("--ramp", "1s"),
        // A busy machine loses some and is late, which does not concern a document.
        ("--threshold", "viewers.received > 0"),
    ];
    for (option, value) in options {
        if !words.iter().any(|word| word == option) {
            words.extend([option.to_owned(), value.to_owned()]);
        }
    }
}

/// Runs one command to its end.
fn carry_out(shown: &DocumentedCommand) {
    let Some(mut stage) = TestSetup::new() else {
        return;
    };
    match plan(shown) {
        Plan::Read => {}
        Plan::Run(mut words) => {
            match words[0].as_str() {
                "load" => stage.serve_for(&mut words),
                "capacity" => {
                    stage.serve_for(&mut words);
                    end_after_one_trial(&mut words);
                }
                "report" => {
                    let named = words.get(1).filter(|word| !word.starts_with('-'));
                    stage.make_report(named.map(String::as_str));
                }
                "send" => {
                    let file = words.iter().position(|word| word == "--file");
                    if file.is_some_and(|at| !stage.make_file(&words[at + 1])) {
                        return;
                    }
                }
                _ => {}
            }
            let input = shown.input.as_deref();
            let ended = stage.start(&words, input).finish(RUN_TIMEOUT);
            let code = ended.status.code();
            let (stdout, stderr) = (ended.stdout, ended.stderr);
            // Whether figures are right also depends on how busy the machine is; `tests/health`
            // covers that.
            let judged = words[0] == "calibrate" && code == Some(110);
            assert!(
                judged || code == Some(0),
                "{}: {words:?} ended with {code:?}\n{stdout}\n{stderr}",
                shown.position
            );
        }
        Plan::Serve(words) => {
            stage.serve(&words.join(" "));
            let server = stage.servers.pop().expect("it was just started");
            server.signal("INT");
            server.finish(RUN_TIMEOUT).expect(0);
        }
    }
}

/// An unknown option or an invalid value is an error before the help is printed.
#[test]
fn every_command_in_the_documents_parses() {
    let folder = folder();
    let all = shown();
    assert!(all.len() > 50, "{} commands", all.len());
    for shown in all {
        let mut words = shown.words.clone();
        let end = words
            .iter()
            .position(|word| word == "--")
            .unwrap_or(words.len());
        words.insert(end, "--help".to_owned());
        let ended = Process::start(streamgauge(&words), folder.path()).finish(RUN_TIMEOUT);
        assert!(
            ended.status.success(),
            "{}: {}",
            shown.position,
            ended.stderr
        );
    }
}

#[test]
fn commands_in_the_documents_run() {
    if TestSetup::new().is_none() {
        return;
    }
    let waiting = Mutex::new(VecDeque::from(shown()));
    let next = || {
        waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    };
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(shown) = next() {
                    carry_out(&shown);
                }
            });
        }
    });
}

#[test]
fn commands_are_found_in_documents() {
    let text = "a\n```sh\nsudo x 'b c' \\\n  --d \"e\"  # f\n# g\ny - < h > i &\n```\nz\n```yaml\nz\n```\n";
    let found = commands("p", text);
    assert_eq!(found[0].words, ["x", "b c", "--d", "e"]);
    assert_eq!(found[1].words, ["y", "-"]);
    assert_eq!(found[1].input.as_deref(), Some("h"));
    assert_eq!((found.len(), found[0].position.as_str()), (2, "p:4"));
    let line = |text: &str| DocumentedCommand {
        position: String::new(),
        words: words(text),
        input: None,
    };
    assert_eq!(plan(&line("load janus+ws://h/a -c 5")), Plan::Read);
    assert_eq!(
        plan(&line("load rtsp://h/a -c 500 --ramp 9s")),
        Plan::Run(words("load rtsp://h/a -c 4 --ramp 500ms -d 4s"))
    );
    assert_eq!(
        plan(&line("run examples/a.yaml --html b.html --set c=1")),
        Plan::Run(words("check examples/a.yaml --offline --set c=1"))
    );
}
