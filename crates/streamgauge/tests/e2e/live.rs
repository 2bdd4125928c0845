//! What a terminal shows of a run while it goes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{Process, RUN_WITHIN, Server, a_little, folder, have, wait_for};

/// A terminal that keeps what it shows, as far as the command makes use of one.
struct Screen {
    lines: Vec<String>,
    row: usize,
    column: usize,
    /// How the screen looked each time before something was written over it.
    seen: Vec<Vec<String>>,
}

impl Screen {
    /// What a terminal of so many columns shows of this output.
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

/// Starts the command in a terminal of 40 columns. Its output is wider than that only in the
/// summary, which is written elsewhere.
fn in_terminal(folder: &Path, arguments: &str) -> Process {
    let program = env!("CARGO_BIN_EXE_streamgauge");
    let line = format!(
        "stty cols 40 rows 20; echo $$ > pid; exec '{program}' {arguments} --out x.run > summary.txt"
    );
    let mut command = Command::new("script");
    command
        .args(["-q", "-e", "-f", "-c", &line, "terminal.txt"])
        .env("NO_COLOR", "1")
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh");
    Process::start(command, folder)
}

/// What the terminal was sent, without script's own first and last line.
fn sent(folder: &Path) -> String {
    let text = std::fs::read_to_string(folder.join("terminal.txt")).unwrap_or_default();
    let begun = text.split_once('\n').map_or("", |(_, rest)| rest);
    let ended = begun
        .split_once("\nScript done")
        .map_or(begun, |(text, _)| text);
    ended.to_owned()
}

#[test]
fn terminal_shows_one_block_that_is_gone_at_the_end() {
    if !have("script") {
        return;
    }
    let _media = a_little();
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
    let url = server.url();
    let load = in_terminal(folder.path(), &format!("load {url} -c 5 -d 3500ms"));
    load.finish(RUN_WITHIN).expect(0);

    let screen = Screen::of(&sent(folder.path()), 40);
    let drawn: Vec<String> = screen.seen.iter().map(|lines| lines.join("\n")).collect();
    let running: Vec<&String> = drawn.iter().filter(|text| text.contains(" left")).collect();
    assert!(running.len() >= 2, "{drawn:?}");
    for text in &running {
        assert!(
            text.contains('━') && text.contains("viewers: 5 playing"),
            "{text}"
        );
        assert!(
            text.contains("loss 0 %") && text.contains("kbit/s"),
            "{text}"
        );
    }
    // The last half second is no whole window.
    assert!(
        drawn.iter().all(|text| !text.contains(" 0 bit/s")),
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
    let _media = a_little();
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
    let load = in_terminal(folder.path(), &format!("load {} -c 5", server.url()));
    wait_for("the live view", Duration::from_secs(20), || {
        sent(folder.path())
            .contains("endless, Ctrl-C to finish")
            .then_some(())
    });
    let pid = std::fs::read_to_string(folder.path().join("pid")).expect("it was written");
    let pid = pid.trim();
    let told = Command::new("kill").args(["-INT", pid]).status();
    assert!(told.expect("there is a kill").success());
    load.finish(RUN_WITHIN).expect(105);
    let screen = Screen::of(&sent(folder.path()), 40);
    assert_eq!(screen.lines.concat().trim(), "", "{:?}", screen.lines);

    let folder = crate::support::folder();
    let scenario = "server: {command: [sh, -c, 'exit 3'], ready: {port: 1}}\n\
                    clients: {viewers: {urls: ['rtsp://127.0.0.1:1/a'], load: {clients: 1}}}\n";
    std::fs::write(folder.path().join("s.yaml"), scenario).expect("the folder is the test's own");
    let load = in_terminal(folder.path(), "run s.yaml");
    load.finish(RUN_WITHIN).expect(104);
    let output = sent(folder.path());
    assert!(output.contains("starting"), "{output:?}");
    let left = output.rsplit("\u{1b}[J").next().unwrap_or_default();
    assert!(left.contains("error: "), "{output:?}");
}
