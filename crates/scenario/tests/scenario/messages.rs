//! Messages about a wrong scenario: position, message, help.

use scenario::{OneLiner, Overrides, Scenario, ScenarioError};

/// Formats every problem in one line: position, message, help.
fn lines(error: &ScenarioError) -> String {
    error
        .problems()
        .iter()
        .map(|problem| {
            format!(
                "{}: {} | {}\n",
                problem.position().unwrap_or_else(|| "-".to_owned()),
                problem.message(),
                problem.help_text().unwrap_or("-")
            )
        })
        .collect()
}

fn refuse(text: &str, overrides: &Overrides) -> String {
    protocols::install();
    match Scenario::parse("s.yaml", text, overrides) {
        Ok(scenario) => panic!("it was taken: {scenario:?}"),
        Err(error) => lines(&error),
    }
}

/// Returns the cases of the file: title, scenario, and expected messages.
fn cases() -> Vec<(&'static str, &'static str, &'static str)> {
    include_str!("testdata/messages.txt")
        .split("=== ")
        .skip(1)
        .map(|case| {
            let (title, rest) = case.split_once('\n').expect("a title");
            let (text, expected) = rest
                .rsplit_once("---\n")
                .expect("a scenario and its message");
            (title, text, expected)
        })
        .collect()
}

#[test]
fn every_mistake_has_position_message_and_help() {
    let mut wrong = String::new();
    for (title, text, expected) in cases() {
        let got = refuse(text, &Overrides::default());
        if got != expected {
            wrong.push_str(&format!("=== {title}\nsaid:\n{got}should say:\n{expected}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn report_marks_the_word_in_its_line() {
    protocols::install();
    let text = "clients:\n  viewers:\n    urls: [rtsp://h/a]\n    tranport: tcp\n    load: {clients: 10}\n";
    let error = Scenario::parse("s.yaml", text, &Overrides::default()).expect_err("a typo");
    assert_eq!(
        picture(&error),
        "  × unknown key `tranport` in `clients.viewers`
   ╭─[s.yaml:4:5]
 3 │     urls: [rtsp://h/a]
 4 │     tranport: tcp
   ·     ────┬───
   ·         ╰── not a key here
 5 │     load: {clients: 10}
   ╰────
  help: did you mean `transport`?
"
    );
    assert_eq!(error.problems()[0].line_column(), Some((4, 5)));
}

#[test]
fn duplicate_key_shows_both_positions() {
    protocols::install();
    let error = Scenario::parse("s.yaml", "name: a\nname: b\n", &Overrides::default())
        .expect_err("it is there twice");
    let picture = picture(&error);
    assert!(picture.contains("first here"), "{picture}");
    assert!(picture.contains("and again here"), "{picture}");
}

fn picture(error: &ScenarioError) -> String {
    let mut picture = String::new();
    let theme = miette::GraphicalTheme::unicode_nocolor();
    miette::GraphicalReportHandler::new_themed(theme)
        .render_report(&mut picture, error)
        .expect("a text takes everything");
    picture
}

const BASE: &str =
    "name: a\nclients:\n  viewers:\n    urls: [rtsp://h/a]\n    load: {clients: 10}\n";

#[test]
fn wrong_setting_is_named() {
    for (setting, expected) in [
        (
            "clients.viewers.load.clients=x",
            "`clients.viewers.load.clients` must be a whole number from 0, but is `x` | -",
        ),
        (
            "clients.viewer.load.clients=5",
            "there is no population `viewer` | did you mean `viewers`?",
        ),
        (
            "clients.viewers.load.cleints=5",
            "unknown key `cleints` in `clients.viewers.load` | did you mean `clients`?",
        ),
        (
            "duration",
            "there is no `=` | write it as `--set KEY=VALUE`, such as `--set duration=60s`",
        ),
        (
            "duration=60",
            "a unit is missing | a duration is written with ns, us, ms, s, m or h, such as `500ms`, `60s` or `1m30s`",
        ),
        (
            "clients.viewers.urls.7=a",
            "`clients.viewers.urls` is a list of 1, and has no item `7` | items are numbered from 0; 1 adds one",
        ),
        (
            "name.x=[a]",
            "`name` is `a`, and has no key `x` | set `name` as a whole",
        ),
    ] {
        let overrides = Overrides {
            set: vec![setting.to_owned()],
            ..Overrides::default()
        };
        assert_eq!(
            refuse(BASE, &overrides),
            format!("--set {setting}: {expected}\n")
        );
    }
}

#[test]
fn wrong_variable_is_named() {
    let overrides = Overrides::default().with_environment(
        [
            ("STREAMGAUGE_DURATON", "5s"),
            ("STREAMGAUGE_CLIENTS__VIEWERS__LOAD__RAMP", "5"),
            ("STREAMGAUGE_LOG", "debug"),
            ("PATH", "/bin"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
        &["STREAMGAUGE_LOG"],
    );
    assert_eq!(
        refuse(BASE, &overrides),
        "environment variable STREAMGAUGE_DURATON: unknown key `duraton` | did you mean `STREAMGAUGE_DURATION`?\n\
         environment variable STREAMGAUGE_CLIENTS__VIEWERS__LOAD__RAMP: a unit is missing | a duration is written with ns, us, ms, s, m or h, such as `500ms`, `60s` or `1m30s`\n"
    );
}

#[test]
fn unknown_variable_names_the_nearest_one() {
    for (name, expected) in [
        (
            "STREAMGAUGE_TESTER_RECEIVE",
            "unknown key `tester_receive` | did you mean `STREAMGAUGE_TESTER__RECEIVE`?",
        ),
        (
            "STREAMGAUGE_TESTER_HEALTH_STEAL",
            "unknown key `tester_health_steal` | did you mean `STREAMGAUGE_TESTER__HEALTH__STEAL`?",
        ),
        (
            "STREAMGAUGE_CLIENTS_VIEWERS_LOAD",
            "unknown key `clients_viewers_load` | did you mean `STREAMGAUGE_CLIENTS__VIEWERS__LOAD`?",
        ),
        (
            "STREAMGAUGE_CATALOG",
            "unknown key `catalog` | did you mean `STREAMGAUGE_CATALOGUE`?",
        ),
        (
            "STREAMGAUGE_TEST__RECEIVE",
            "unknown key `test` | did you mean `STREAMGAUGE_TESTER__RECEIVE`?",
        ),
        (
            "STREAMGAUGE_COLOUR",
            "unknown key `colour` | write a key in capitals, with two underscores for each dot, \
             such as `STREAMGAUGE_TESTER__RECEIVE`; unset `STREAMGAUGE_COLOUR` if it is not meant for this program",
        ),
    ] {
        let variables = [(name.to_owned(), "x".to_owned())];
        let reserved = ["STREAMGAUGE_CATALOGUE"];
        let overrides = Overrides::default().with_environment(variables, &reserved);
        assert_eq!(
            refuse(BASE, &overrides),
            format!("environment variable {name}: {expected}\n")
        );
    }
}

#[test]
fn variables_of_tests_set_no_key() {
    let variables = [("STREAMGAUGE_TEST_WITHOUT_TOOLS".to_owned(), "1".to_owned())];
    let overrides = Overrides::default().with_environment(variables, &[]);
    assert_eq!(overrides.environment, []);
}

#[test]
fn wrong_argument_is_named() {
    protocols::install();
    let line = OneLiner {
        urls: vec!["rtsp://h/a".to_owned()],
        ramp: Some("20".to_owned()),
        transport: Some("upd".to_owned()),
        leave: Some("1x".to_owned()),
        clients: Some("0x".to_owned()),
        ..OneLiner::default()
    };
    let refused = |line: &OneLiner| {
        lines(&Scenario::from_one_liner(line, &Overrides::default()).expect_err("it is wrong"))
    };
    let message = refused(&line);
    for part in [
        "--ramp 20: a unit is missing | a duration",
        "--leave-after 1x: unknown unit `x` | a duration",
        "--clients 0x: it must be a whole number",
        "--transport upd: `clients.viewers.transport` cannot be `upd` | did you mean `udp`?",
    ] {
        assert!(message.contains(part), "{part} is not in:\n{message}");
    }
    assert_eq!(
        refused(&OneLiner {
            urls: vec!["ftp://h/a".to_owned()],
            ..OneLiner::default()
        }),
        "ftp://h/a: `ftp://h/a` has an unsupported URL scheme | a URL begins with rtsp://, \
         http://, hls+http://, tcp://, rtmp://, srt:// or whep+http://, for example\n"
    );
    let nobody = refused(&OneLiner {
        urls: vec!["livekit+ws://127.0.0.1/room".to_owned()],
        ..OneLiner::default()
    });
    assert!(
        nobody.contains("set `api_key` and `api_secret`"),
        "{nobody}"
    );
    assert_eq!(
        refused(&OneLiner {
            urls: vec!["rtsp://h/a".to_owned()],
            thresholds: vec!["viewers.lss < 1%".to_owned()],
            ..OneLiner::default()
        }),
        "--threshold viewers.lss < 1%: `viewers` has no metric `lss` | did you mean `loss`?\n"
    );
    assert_eq!(
        refused(&OneLiner {
            urls: vec!["rtsp://h/a".to_owned()],
            rejoin: true,
            ..OneLiner::default()
        }),
        "--rejoin: with `rejoin` the clients never end, and the run has no `duration` | add `duration: 60s` at the top of the scenario, or `-d 60s`\n"
    );
    assert!(refused(&OneLiner::default()).contains("a URL is missing"));
}

#[test]
fn header_options_are_checked_and_hide_their_values() {
    protocols::install();
    let refused = |url: &str, headers: &[&str]| {
        let line = OneLiner {
            urls: vec![url.to_owned()],
            headers: headers.iter().map(|&field| field.to_owned()).collect(),
            ..OneLiner::default()
        };
        let refused = Scenario::from_one_liner(&line, &Overrides::default());
        lines(&refused.expect_err("it is wrong"))
    };
    for (url, headers, expected) in [
        (
            "rtmp://h/a/b",
            &["Origin: https://o"][..],
            "--header Origin: https://o: `--header` does not apply to clients of these URLs | `--help` shows to which URLs each section of options applies\n",
        ),
        (
            "rtsp://h/a",
            &["secret"],
            "--header ***: there is no `:` | write it as `--header 'NAME: VALUE'`\n",
        ),
        (
            "rtsp://h/a",
            &["X-Key: secret", "X-Key: other"],
            "--header X-Key: ***: `X-Key` is given twice | leave one of them out\n",
        ),
        (
            "whep+http://h/a/whep",
            &["X-Key: secret\r\nHost: b"],
            "--header X-Key: ***: the value of `X-Key` must be one line of printable characters | -\n",
        ),
        (
            "http://h/a",
            &["content-length: 5"],
            "--header content-length: ***: the client sets `content-length` itself | remove it\n",
        ),
    ] {
        assert_eq!(refused(url, headers), expected);
    }
}

#[test]
fn option_that_does_not_fit_the_url_is_named() {
    protocols::install();
    let line = OneLiner {
        urls: vec!["tcp://127.0.0.1:9000".to_owned()],
        transport: Some("udp".to_owned()),
        ..OneLiner::default()
    };
    let refused = Scenario::from_one_liner(&line, &Overrides::default());
    assert_eq!(
        lines(&refused.expect_err("messages have no such thing")),
        "--transport udp: `--transport` does not apply to clients of these URLs | `--help` shows to which URLs each section of options applies\n"
    );
}

#[test]
fn unreadable_files_are_reported() {
    protocols::install();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let refused = |name: &str, bytes: Option<&[u8]>| {
        let path = folder.path().join(name);
        if let Some(bytes) = bytes {
            std::fs::write(&path, bytes).expect("the folder can be written to");
        }
        lines(&Scenario::load(&path, &Overrides::default()).expect_err("it cannot be read"))
    };
    assert!(refused("missing.yaml", None).contains("check the path"));
    assert!(refused("large.yaml", Some(&vec![b'#'; 2 << 20])).contains("larger than 1 MiB"));
    assert!(refused("latin1.yaml", Some(b"a: 1\nname: caf\xe9\n")).contains("not UTF-8 in line 2"));
    assert!(refused(".", None).contains("cannot read the scenario"));
}

/// Returns a scenario of message clients with these keys.
fn messages(keys: &str) -> String {
    format!(
        "clients:\n  chat:\n    urls: [\"tcp://127.0.0.1:9000\"]\n    {keys}\n    load: {{clients: 3}}\n"
    )
}

#[test]
fn plan_of_messages_has_exactly_one_key() {
    for (keys, expected) in [
        (
            "plan: {every: 1s, rate: 1/s}",
            "`clients.chat.plan`: must be one key with its value, but has 2 (every, rate) | \
             keep one, or write each on its own line that begins with `- ` if several are allowed",
        ),
        (
            "plan: {}",
            "`clients.chat.plan`: must be one key with its value, but has none | there are: every, sleep, rate, in_flight",
        ),
        (
            "plan: {evry: 1s}",
            "`clients.chat.plan` cannot be `evry` | did you mean `every`?",
        ),
        ("plan: rate", "`rate` has no value | write `rate: VALUE`"),
        (
            "plan: {every: 0s}",
            "`every` must be longer than 0s | write `{sleep: 0s}` for the highest rate",
        ),
    ] {
        let refused = refuse(&messages(keys), &Overrides::default());
        assert!(refused.contains(expected), "{keys}: {refused}");
    }
}

#[test]
fn former_keys_of_messages_say_what_to_write() {
    protocols::install();
    for (keys, expected) in [
        (
            "rounds: {every: 100ms}",
            "unknown key `rounds` in `clients.chat` | write `plan: { every: 100ms }` or `plan: { sleep: 100ms }`",
        ),
        (
            "rate: 10/s",
            "unknown key `rate` in `clients.chat` | write `plan: { rate: 10/s }`",
        ),
        (
            "echo: {}",
            "unknown key `echo` in `clients.chat` | write `plan: { in_flight: 1 }`",
        ),
    ] {
        let refused = refuse(&messages(keys), &Overrides::default());
        assert!(refused.contains(expected), "{keys}: {refused}");
    }
    // A setting of the command line replaces the plan.
    let overrides = Overrides {
        set: vec!["clients.chat.plan={rate: 5/s}".to_owned()],
        ..Overrides::default()
    };
    let text = messages("plan: {sleep: 5ms}");
    Scenario::parse("test.yaml", &text, &overrides).expect("one plan is left");
}

#[test]
fn description_of_senders_mentions_no_media() {
    protocols::install();
    let line = OneLiner {
        urls: vec!["tcp://127.0.0.1:9000".to_owned()],
        ..OneLiner::default()
    };
    let scenario = Scenario::from_one_liner(&line, &Overrides::default()).expect("it is good");
    let text = scenario.describe().lines().join("\n");
    assert!(
        text.contains("senders: 1 client at once; they stay until the run ends"),
        "{text}"
    );
    assert!(
        text.contains("ends: when it is stopped (Ctrl-C): there is no `duration`, and clients of senders do not leave"),
        "{text}"
    );
    assert!(
        !text.contains("media ends") && !text.contains("viewers"),
        "{text}"
    );

    let text = |keys: &str| {
        let read = Scenario::parse("test.yaml", &messages(keys), &Overrides::default());
        read.expect("it is good").describe().lines().join("\n")
    };
    let some = text("messages: 5");
    assert!(some.contains("they leave after 5 messages each"), "{some}");
    assert!(some.contains("ends: when every client has left"), "{some}");
    let description = text("leave: {after: 10s}");
    assert!(
        description.contains("they leave after 10s"),
        "{description}"
    );
    assert!(
        description.contains("chat: messages to tcp://"),
        "{description}"
    );
    assert!(
        description.contains("ends: after 10s at the latest"),
        "{description}"
    );
    assert!(!description.contains("with the media"), "{description}");

    let line = OneLiner {
        urls: vec!["rtsp://127.0.0.1/a".to_owned()],
        ..OneLiner::default()
    };
    let scenario = Scenario::from_one_liner(&line, &Overrides::default()).expect("it is good");
    let text = scenario.describe().lines().join("\n");
    assert!(text.contains("they leave when the media ends"), "{text}");
}

#[test]
fn misspelt_required_key_is_one_problem() {
    protocols::install();
    let problems = |text: &str| -> Vec<String> {
        let error = Scenario::parse("s.yaml", text, &Overrides::default()).expect_err(text);
        let problems = error.problems().iter();
        problems
            .map(|problem| format!("{problem} | {}", problem.help_text().unwrap_or("-")))
            .collect()
    };
    // The protocol is known by the misspelt key, and so are its keys.
    let population = "    url: srt://h:1\n    load: {clients: 10}\n";
    let unknown_urls = "unknown key `url` in `clients.viewers` | did you mean `urls`?";
    assert_eq!(
        problems(&format!(
            "clients:\n  viewers:\n{population}    latency: 1s\n"
        )),
        [unknown_urls]
    );
    let found = problems(&format!(
        "clients:\n  viewers:\n{population}    fir: true\n"
    ));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[1].starts_with("unknown key `fir`") && found[1].contains("latency"),
        "{found:?}"
    );
    assert!(!found[1].contains("transport_cc"), "{found:?}");
    // Without a URL no protocol is known. A list of the keys of all would help nobody.
    let found = problems("clients:\n  viewers:\n    load: {clients: 10}\n    colour: red\n");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|one| one.len() < 200), "{found:?}");
    // Every section follows the rule.
    assert_eq!(
        problems(
            "clients:\n  viewers:\n    urls: [rtsp://h/a]\n    load: {clients: 10}\n    leave: {afetr: 3s}\n"
        ),
        ["unknown key `afetr` in `clients.viewers.leave` | did you mean `after`?"]
    );
}

#[test]
fn several_urls_in_one_are_told_apart() {
    protocols::install();
    for urls in [
        "rtsp://h/a,rtsp://h/b",
        "rtsp://h/a, srt://h:1,rtsp://h/b",
        "rtsp://h/a rtsp://h/b",
        "rtsp://h/a\\nrtsp://h/b",
    ] {
        let text = format!("clients: {{v: {{urls: \"{urls}\", load: {{clients: 1}}}}}}\n");
        let error = Scenario::parse("s.yaml", &text, &Overrides::default()).expect_err(urls);
        let problem = &error.problems()[0];
        assert_eq!(
            problem.to_string(),
            "these are several URLs in one",
            "{urls}"
        );
        assert!(
            problem
                .help_text()
                .is_some_and(|help| help.contains("each on its own"))
        );
    }
    for one in ["rtsp://h/a,b", "rtsp://h/mix?in=rtsp://a,rtsp://b"] {
        let text = format!("clients: {{v: {{urls: '{one}', load: {{clients: 1}}}}}}\n");
        Scenario::parse("s.yaml", &text, &Overrides::default()).expect(one);
    }
}
