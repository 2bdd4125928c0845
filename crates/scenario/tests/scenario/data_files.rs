//! Files with URLs, and with values for URLs and tokens.

use std::path::Path;

use scenario::{Overrides, Plan, Scenario, ScenarioError};

/// Loads a scenario whose only population has these keys, next to these files.
fn load(keys: &str, files: &[(&str, &str)]) -> Result<Scenario, ScenarioError> {
    protocols::install();
    let folder = tempfile::tempdir().expect("a folder for the test");
    write(folder.path(), keys, files);
    Scenario::load(&folder.path().join("s.yaml"), &Overrides::default())
}

fn write(folder: &Path, keys: &str, files: &[(&str, &str)]) {
    let text = format!("clients:\n  viewers:\n    {keys}\n    load: {{clients: 2}}\n");
    for (name, text) in files.iter().chain(&[("s.yaml", &*text)]) {
        std::fs::write(folder.join(name), text).expect("the folder can be written to");
    }
}

fn urls(keys: &str, files: &[(&str, &str)]) -> Vec<String> {
    let scenario = load(keys, files).unwrap_or_else(|error| panic!("{error:?}"));
    scenario.populations[0].urls.clone()
}

/// Position without its folder, message and help of each problem.
fn refusals(keys: &str, files: &[(&str, &str)]) -> Vec<String> {
    let error = load(keys, files).expect_err("it is wrong");
    let problems = error.problems().iter();
    let lines = problems.map(|problem| {
        let position = problem.position().unwrap_or_default();
        let file = position.rsplit('/').next().unwrap_or_default();
        let help = problem.help_text().unwrap_or("-");
        format!("{file}: {} | {help}", problem.message())
    });
    lines.collect()
}

const FILE: &str = "urls: {file: urls.txt}";

#[test]
fn urls_of_a_file_are_expanded_and_comments_skipped() {
    let text = "# cameras\r\n\nrtsp://h/a # the gate\r\n  rtsp://h/b{1..2}\n";
    let urls = urls(FILE, &[("urls.txt", text)]);
    assert_eq!(urls, ["rtsp://h/a", "rtsp://h/b1", "rtsp://h/b2"]);
}

#[test]
fn wrong_lines_are_reported_with_their_position() {
    for (text, expected) in [
        (
            "rtsp://h/a\n\n  rtps://h/b\n",
            "urls.txt:3:3: `rtps://h/b` has an unsupported URL scheme | did you mean `rtsp://h/b`?",
        ),
        (
            "rtsp://h/a rtsp://h/b\n",
            "urls.txt:1:1: the line has more than a URL | write one URL in each line, and comments \
             after `#`",
        ),
        (
            "rtsp://h/{1..\n",
            "urls.txt:1:1: an unmatched brace | write a range as `{1..10}`, or `{01..10}` to keep \
             leading zeros; other braces as %7B and %7D",
        ),
    ] {
        assert_eq!(refusals(FILE, &[("urls.txt", text)]), [expected], "{text}");
    }
    let empty = refusals(FILE, &[("urls.txt", "# none\n")]);
    assert!(
        empty[0].starts_with("s.yaml:3:18: the file `urls.txt` has no URL"),
        "{empty:?}"
    );
    let missing = refusals(FILE, &[]);
    assert!(
        missing[0].starts_with("s.yaml:3:18: cannot read the file"),
        "{missing:?}"
    );
    assert!(missing[0].ends_with("| a relative path starts in the folder of the scenario"));
    let typo = refusals("urls: {fiel: urls.txt}", &[]);
    assert!(
        typo[1].starts_with("s.yaml:3:12: unknown key `fiel`"),
        "{typo:?}"
    );
}

#[test]
fn number_of_urls_is_limited() {
    let text = "rtsp://h/a\n".repeat(10_001);
    let refused = refusals(FILE, &[("urls.txt", &text)]);
    assert!(
        refused[0].starts_with("urls.txt:10001:1: there are more than 10000 URLs"),
        "{refused:?}"
    );
    let large = "#".repeat((4 << 20) + 1);
    let refused = refusals(FILE, &[("urls.txt", &large)]);
    assert!(refused[0].contains("is larger than 4 MiB"), "{refused:?}");
}

const USERS: &str = "user,pass,path\nann,a@1,live/a\nbob,b,b\n";

#[test]
fn each_row_makes_a_url() {
    let keys = "data: users.csv\n    urls: [\"rtsp://{user}:{pass}@h/{path}{1..2}\", rtsp://h/c]";
    assert_eq!(
        urls(keys, &[("users.csv", USERS)]),
        [
            "rtsp://ann:a%401@h/live/a1",
            "rtsp://ann:a%401@h/live/a2",
            "rtsp://bob:b@h/b1",
            "rtsp://bob:b@h/b2",
            "rtsp://h/c",
        ]
    );
    let keys = "data: users.csv\n    urls: {file: urls.txt}";
    let files = [("users.csv", USERS), ("urls.txt", "rtsp://h/{path}\n")];
    assert_eq!(urls(keys, &files), ["rtsp://h/live/a", "rtsp://h/b"]);
}

/// Tokens of the population.
fn tokens(keys: &str) -> Vec<String> {
    let scenario = load(keys, &[("users.csv", USERS)]).unwrap_or_else(|error| panic!("{error:?}"));
    let config = serde_json::to_value(&scenario.populations[0].config).expect("plain data");
    let tokens = config["tokens"].as_array().expect("a list").iter();
    tokens
        .map(|token| token.as_str().expect("text").to_owned())
        .collect()
}

#[test]
fn each_row_has_a_token() {
    let each =
        "data: users.csv\n    urls: [\"whep+http://h/{user}/whep\"]\n    token: \"t-{pass}\"";
    assert_eq!(tokens(each), ["t-a@1", "t-b"]);
    let in_turn = "data: users.csv\n    urls: [\"whep+http://h/a/whep\"]\n    token: \"{pass}\"";
    assert_eq!(tokens(in_turn), ["a@1", "b"]);
}

#[test]
fn mistakes_in_data_have_positions_and_hide_values() {
    let with = |urls: &str| format!("data: users.csv\n    urls: [\"{urls}\"]");
    for (keys, text, expected) in [
        (
            with("rtsp://{user}@h/a"),
            "user\nann\n\"secret\n",
            "users.csv:3:1: this quote is not closed",
        ),
        (
            with("{user}://h/a"),
            "user\nrtsp\nsecret\n",
            "users.csv:3:1: `secret://h/a` has an unsupported URL scheme",
        ),
        (
            with("rtsp://h/a"),
            "user\nann\n",
            "s.yaml:3:11: no URL names a column of the data | write a column as `{user}`",
        ),
        (
            with("rtsp://h/{usr}"),
            "user\nann\n",
            "s.yaml:3:11: no URL names a column of the data",
        ),
        (
            format!(
                "{}\n    token: \"{{user}}\"",
                with("whep+http://h/{user}{1..2}")
            ),
            "user\nann\n",
            "s.yaml:5:12: it is unknown which row `token` is to use",
        ),
    ] {
        let refused = refusals(&keys, &[("users.csv", text)]);
        assert!(refused[0].starts_with(expected), "{refused:?}");
    }
    let secret = with("rtsp://ann:{user}@h:0/a");
    let error = load(&secret, &[("users.csv", "user\nhush-value\n")]).expect_err("a port of 0");
    let mut picture = String::new();
    for problem in error.problems() {
        let report = miette::Report::new(problem.clone());
        picture += &format!("{report:?}");
    }
    assert!(
        picture.contains("users.csv") && !picture.contains("hush"),
        "{picture}"
    );
}

#[test]
fn plans_read_the_files_too() {
    protocols::install();
    let folder = tempfile::tempdir().expect("a folder for the test");
    write(folder.path(), FILE, &[("urls.txt", "rtsp://h/a\n")]);
    let plan = Plan::load(&folder.path().join("s.yaml"), &Overrides::default());
    let Ok(Plan::Run(scenario)) = plan else {
        panic!("{plan:?}");
    };
    assert_eq!(scenario.populations[0].urls, ["rtsp://h/a"]);
    // A runner on another machine needs no file.
    let portable = serde_json::to_string(&scenario.portable()).expect("plain data");
    assert!(portable.contains("rtsp://h/a") && !portable.contains("urls.txt"));
}
