//! Live view of a run on a terminal.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Process, RUN_TIMEOUT, Report, Server, folder, free_port, have, number, run, streamgauge,
    wait_for,
};

/// A terminal that keeps its contents, as far as the command uses its features.
struct Screen {
    lines: Vec<String>,
    row: usize,
    column: usize,
    /// Contents of the screen each time before it was overwritten.
    seen: Vec<Vec<String>>,
}

impl Screen {
    /// Returns the screen of a terminal of this many columns after this output.
    fn of(output: &str, columns: usize) -> Screen {
        let mut screen = Screen {
            lines: vec![String::new()],
            row: 0,
            column: 0,
            seen: Vec::new(),
        };
        let mut characters = output.chars();
        while let Some(character) = characters.next() {
            match character {
                '\r' => screen.column = 0,
                '\n' => {
                    screen.row += 1;
                    if screen.row == screen.lines.len() {
                        screen.lines.push(String::new());
                    }
                }
                '\u{1b}' => {
                    assert_eq!(characters.next(), Some('['), "{output:?}");
                    let mut argument = String::new();
                    let end = loop {
                        match characters.next() {
                            Some(digit @ ('0'..='9' | '?')) => argument.push(digit),
                            other => break other,
                        }
                    };
                    screen.obey(end, &argument);
                }
                character => screen.put(character, columns),
            }
        }
        screen
    }

    fn put(&mut self, character: char, columns: usize) {
        assert!(
            self.column < columns,
            "a line of the live view would wrap: {}",
            self.lines[self.row]
        );
        let line = &mut self.lines[self.row];
        let mut characters: Vec<char> = line.chars().collect();
        characters.resize(characters.len().max(self.column + 1), ' ');
        characters[self.column] = character;
        *line = characters.into_iter().collect();
        self.column += 1;
    }

    fn obey(&mut self, end: Option<char>, argument: &str) {
        match (end, argument) {
            (Some('A'), up) => {
                self.seen.push(self.lines.clone());
                let up: usize = up.parse().expect("so many rows");
                self.row = self.row.checked_sub(up).expect("no higher than the first");
            }
            (Some('K'), _) => {
                let line = &mut self.lines[self.row];
                *line = line.chars().take(self.column).collect();
            }
            (Some('J'), _) => {
                self.lines.truncate(self.row + 1);
                let line = &mut self.lines[self.row];
                *line = line.chars().take(self.column).collect();
            }
            (Some('h' | 'l'), "?2026") => {}
            other => panic!("{other:?} is not known here"),
        }
    }
}

/// Starts the command in a terminal of 40 columns. Only the summary is wider, and it is written
/// elsewhere.
fn in_terminal(folder: &Path, arguments: &str) -> Process {
    in_terminal_of((40, 20), folder, arguments)
}

/// Starts the command in a terminal of this many columns and rows. Text written to `keys` is its
/// input. `tty.txt` has the path of the terminal, `modes.txt` the modes in which it is left.
fn in_terminal_of((columns, rows): (u32, u32), folder: &Path, arguments: &str) -> Process {
    let program = env!("CARGO_BIN_EXE_streamgauge");
    let line = format!(
        "tty > tty.txt; stty cols {columns} rows {rows}; \
         sh -c 'echo $$ > pid; exec \"$@\"' sh '{program}' {arguments} --out x.run > summary.txt; \
         code=$?; stty -a > modes.txt; exit $code"
    );
    let keys = folder.join("keys");
    let made = Command::new("mkfifo").arg(&keys).status();
    assert!(made.expect("there is a mkfifo").success());
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "exec script -q -e -f -c \"$1\" terminal.txt <> keys",
            "sh",
            &line,
        ])
        .env("NO_COLOR", "1")
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh");
    Process::start(command, folder)
}

/// Returns what the terminal was sent, without the first and the last line of `script`.
fn sent(folder: &Path) -> String {
    let text = std::fs::read_to_string(folder.join("terminal.txt")).unwrap_or_default();
    let begun = text.split_once('\n').map_or("", |(_, rest)| rest);
    let ended = begun
        .split_once("\nScript done")
        .map_or(begun, |(text, _)| text);
    ended.to_owned()
}

#[test]
fn terminal_shows_one_block_and_removes_it_at_the_end() {
    if !have("script") {
        return;
    }
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
    let url = server.url();
    let threshold = "--threshold 'viewers.received > 0'";
    let load = in_terminal(
        folder.path(),
        &format!("load {url} -c 5 -d 7500ms {threshold}"),
    );
    load.finish(RUN_TIMEOUT).expect(0);

    let screen = Screen::of(&sent(folder.path()), 40);
    let drawn: Vec<String> = screen.seen.iter().map(|lines| lines.join("\n")).collect();
    let running: Vec<&String> = drawn.iter().filter(|text| text.contains(" left")).collect();
    assert!(running.len() >= 2, "{drawn:?}");
    let parts = [
        "━",
        "viewers: 5 of 5 playing, 0 failed",
        &url,
        "loss 0 %",
        "kbit/s",
        "✓",
        "viewers.received > 0",
    ];
    // On a busy machine clients may begin late, and a second may have no media.
    let is_full = |text: &&String| parts.iter().all(|part| text.contains(part));
    assert!(running.iter().any(is_full), "{drawn:?}");
    run(folder.path(), ["report", "x.run", "--json", "x.json"]).expect(0);
    let report = Report::read(&folder.path().join("x.json")).0;
    let windows = report["windows"].as_array().expect("a list");
    let is_idle = |window: &Value| {
        let received = &window["populations"]["viewers"]["metrics"]["received"];
        window["seconds"].as_f64() > Some(0.9) && received.as_f64() == Some(0.0)
    };
    // The last half second is not a whole window.
    assert!(
        windows.iter().any(is_idle) || drawn.iter().all(|text| !text.contains(" 0 bit/s")),
        "{drawn:?}"
    );
    let left: String = screen.lines.concat();
    assert_eq!(left.trim(), "", "{:?}", screen.lines);
    let summary = std::fs::read_to_string(folder.path().join("summary.txt")).expect("a summary");
    assert!(summary.contains("PASS"), "{summary}");
}

#[test]
fn terminal_is_clean_after_ctrl_c_and_after_an_error() {
    if !have("script") {
        return;
    }
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
    let load = in_terminal(folder.path(), &format!("load {} -c 5", server.url()));
    wait_for("the live view", Duration::from_secs(60), || {
        sent(folder.path())
            .contains("endless, Ctrl-C to finish")
            .then_some(())
    });
    let pid = std::fs::read_to_string(folder.path().join("pid")).expect("it was written");
    let pid = pid.trim();
    let told = Command::new("kill").args(["-INT", pid]).status();
    assert!(told.expect("there is a kill").success());
    load.finish(RUN_TIMEOUT).expect(105);
    let screen = Screen::of(&sent(folder.path()), 40);
    assert_eq!(screen.lines.concat().trim(), "", "{:?}", screen.lines);

    let folder = crate::support::folder();
    let scenario = "server: {command: [sh, -c, 'exit 3'], ready: {port: 1}}\n\
                    clients: {viewers: {urls: ['rtsp://127.0.0.1:1/a'], load: {clients: 1}}}\n";
    std::fs::write(folder.path().join("s.yaml"), scenario).expect("the folder is the test's own");
    let load = in_terminal(folder.path(), "run s.yaml");
    load.finish(RUN_TIMEOUT).expect(104);
    let output = sent(folder.path());
    assert!(output.contains("starting"), "{output:?}");
    let left = output.rsplit("\u{1b}[J").next().unwrap_or_default();
    assert!(left.contains("error: "), "{output:?}");
}

#[test]
fn large_terminal_shows_curves_and_q_ends_the_run() {
    if !have("script") {
        return;
    }
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
    let arguments = format!("load {} -c 5", server.url());
    let load = in_terminal_of((90, 30), folder.path(), &arguments);
    wait_for("curves", Duration::from_secs(60), || {
        let sent = sent(folder.path());
        let is_dot = |c: char| ('\u{2801}'..='\u{28ff}').contains(&c);
        (sent.contains("q: stop and report") && sent.contains(is_dot)).then_some(())
    });
    std::fs::write(folder.path().join("keys"), "xqq").expect("it is read");
    load.finish(RUN_TIMEOUT).expect(105);
    let screen = Screen::of(&sent(folder.path()), 90);
    assert_eq!(screen.lines.concat().trim(), "", "{:?}", screen.lines);
    let summary = std::fs::read_to_string(folder.path().join("summary.txt")).expect("a summary");
    assert!(summary.contains("STOPPED"), "{summary}");
    // Every client left gracefully: the second `q` did not end the run at once.
    assert!(summary.contains("5 stopped"), "{summary}");
    let modes = std::fs::read_to_string(folder.path().join("modes.txt")).expect("it was asked");
    for mode in ["icanon", "echo", "isig"] {
        let is_set = |word: &str| word.trim_end_matches(';') == mode;
        assert!(modes.split_whitespace().any(is_set), "{mode}: {modes}");
    }
}

/// While the ramp is held, no client starts and none leaves. After it the plan continues to its
/// end, later by the time that it was held.
#[test]
fn h_holds_and_resumes_the_ramp() {
    if !have("script") {
        return;
    }
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
    let arguments = format!("load {} -c 60 --ramp 12s -d 13s", server.url());
    let load = in_terminal_of((90, 30), folder.path(), &arguments);
    let press = |key: &str| std::fs::write(folder.path().join("keys"), key).expect("it is read");
    wait_for("the ramp", Duration::from_secs(60), || {
        sent(folder.path())
            .contains("h: hold the ramp")
            .then_some(())
    });
    press("h");
    wait_for(
        "the hold, for three seconds",
        Duration::from_secs(60),
        || {
            let times = sent(folder.path()).matches("held (h to resume)").count();
            (times >= 3).then_some(())
        },
    );
    press("h");
    // The verdict does not matter here.
    let code = load.finish(RUN_TIMEOUT).status.code();
    assert!(matches!(code, Some(0 | 99 | 110)), "{code:?}");
    run(folder.path(), ["report", "x.run", "--json", "x.json"]).expect(0);
    let report = Report::read(&folder.path().join("x.json")).0;
    let held = report["run"]["held"].as_array().expect("a list");
    assert_eq!(held.len(), 1, "{held:?}");
    let [from, to] = ["from", "to"].map(|end| held[0][end].as_f64().expect("a time"));
    assert!(to - from >= 1.0, "{held:?}");
    let figure = |name: &str| report["run"][name].as_f64().expect("a number");
    assert!(
        (figure("planned") - (13.0 + to - from)).abs() < 0.01,
        "{report}"
    );
    let longer = figure("duration") - figure("planned");
    assert!((-0.5..10.0).contains(&longer), "{longer}, {held:?}");
    let clients = &report["populations"]["viewers"]["clients"];
    assert_eq!(number(&clients["started"]), 60, "{clients}");
    // Five clients start per second, the first at once.
    let level = (from * 5.0).floor() + 1.0;
    let windows = report["windows"].as_array().expect("a list");
    let before_it_went_on = windows.iter().filter(|window| {
        let [start, seconds] =
            ["start", "seconds"].map(|key| window[key].as_f64().expect("a time"));
        start + seconds <= to
    });
    let started = before_it_went_on.map(|window| {
        let figures = &window["populations"]["viewers"]["metrics"];
        figures["started"].as_f64().expect("a count")
    });
    // A busy machine may start the last of them late.
    assert!(started.sum::<f64>() <= level, "{held:?}");
    let events = report["events"].as_array().expect("a list");
    let texts = events.iter().filter_map(|event| event["text"].as_str());
    let text = format!("the user held the plan: viewers at {level} of 60");
    assert!(texts.clone().any(|found| found == text), "{events:?}");
    let summary = std::fs::read_to_string(folder.path().join("summary.txt")).expect("a summary");
    let summary = summary.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        summary.contains("command and seed alone do not repeat"),
        "{summary}"
    );
}

#[test]
fn no_live_writes_plain_lines_to_a_terminal() {
    if !have("script") {
        return;
    }
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
    // A line is written after the first second, and after the sixth.
    let arguments = format!("load {} -c 2 -d 8s --no-live", server.url());
    in_terminal_of((90, 30), folder.path(), &arguments)
        .finish(RUN_TIMEOUT)
        .expect(0);
    let output = sent(folder.path());
    assert!(!output.contains('\u{1b}'), "{output:?}");
    assert!(output.contains("running; viewers: "), "{output}");
    assert!(output.contains(" of 2 playing, 0 failed"), "{output}");
    assert!(output.contains("startup_delay p95 "), "{output}");
}

/// While the server starts, nothing but a key or a new size draws the view again.
#[test]
fn keys_are_shown_on_request_and_a_new_size_redraws() {
    if !have("script") {
        return;
    }
    let folder = folder();
    let scenario = format!(
        "server: {{command: [sleep, '600'], ready: {{port: {}}}, ready_timeout: 599s}}\n\
         clients: {{viewers: {{urls: ['rtsp://127.0.0.1:1/a'], load: {{clients: 1}}}}}}\n",
        free_port()
    );
    std::fs::write(folder.path().join("s.yaml"), scenario).expect("the folder is the test's own");
    let load = in_terminal_of((90, 30), folder.path(), "run s.yaml");
    let patience = Duration::from_secs(60);
    let drawn = |text: &str| {
        let sent = sent(folder.path());
        sent.contains(text).then_some(sent)
    };
    let before = wait_for("the launch", patience, || drawn("waiting up to 599 s"));
    assert!(!before.contains("hide the keys"), "{before:?}");
    std::fs::write(folder.path().join("keys"), "?").expect("it is read");
    let before = wait_for("the keys", patience, || drawn("hide the keys"));
    let terminal = std::fs::read_to_string(folder.path().join("tty.txt")).expect("it was written");
    let resized = Command::new("stty")
        .args(["-F", terminal.trim(), "cols", "30"])
        .status();
    assert!(resized.expect("there is an stty").success());
    let after = wait_for("a drawing of 30 columns", patience, || {
        let sent = sent(folder.path());
        let after = sent.strip_prefix(before.as_str())?.to_owned();
        after.contains("hide the keys").then_some(after)
    });
    // The terminal has wrapped the first line and those of two keys.
    let up = after.find("\u{1b}[8A").expect("to the first of eight rows");
    let redrawn = Screen::of(&after[up + 4..], 30);
    assert!(redrawn.lines[0].starts_with("waiting up to"), "{after:?}");
    assert_eq!(redrawn.lines.len(), 6, "{:?}", redrawn.lines);
    std::fs::write(folder.path().join("keys"), "q").expect("it is read");
    load.finish(RUN_TIMEOUT).expect(105);
}

#[test]
fn key_ends_a_lingering_dashboard() {
    if !have("script") {
        return;
    }
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
    let (url, port) = (server.url(), free_port());
    let arguments = format!("load {url} -c 2 -d 4s --dashboard={port} --dashboard-linger");
    let load = in_terminal_of((90, 30), folder.path(), &arguments);
    wait_for("the end of the run", RUN_TIMEOUT, || {
        sent(folder.path())
            .contains("press a key to end it")
            .then_some(())
    });
    std::fs::write(folder.path().join("keys"), "x").expect("it is read");
    load.finish(RUN_TIMEOUT).expect(0);
    let modes = std::fs::read_to_string(folder.path().join("modes.txt")).expect("it was asked");
    for mode in ["icanon", "echo"] {
        let is_set = |word: &str| word.trim_end_matches(';') == mode;
        assert!(modes.split_whitespace().any(is_set), "{mode}: {modes}");
    }
}

#[test]
fn publisher_in_a_room_shows_what_it_sends() {
    let folder = folder();
    let port = free_port();
    let server = streamgauge(["serve", "webrtc", "--port", &port.to_string()]);
    let mut _server = Process::start(server, folder.path());
    _server.listen(port);
    let scenario = format!(
        "duration: 8s\nclients:\n  cameras:\n    urls: ['janus+ws://127.0.0.1:{port}/videoroom/1']\n    \
         participate: {{}}\n    subscribe: nobody\n    load: {{clients: 2, start: at_once}}\n"
    );
    std::fs::write(folder.path().join("s.yaml"), scenario).expect("the folder is the test's own");
    let finished = run(folder.path(), ["run", "s.yaml", "--no-live"]).expect(0);
    let output = finished.stderr;
    assert!(output.contains("cameras: "), "{output}");
    assert!(output.contains(" of 2 publishing, 0 failed"), "{output}");
    assert!(output.contains("bit/s sent"), "{output}");
    assert!(!output.contains("loss"), "{output}");
}
