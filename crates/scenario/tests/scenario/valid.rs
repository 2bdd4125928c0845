//! Valid scenarios, from a file, from settings and from a one-liner.

use std::path::{Path, PathBuf};
use std::time::Duration;

use measure::load::{Shape, Stage};
use measure::units::BitRate;
use proptest::prelude::*;
use scenario::{
    Clips, Leave, OneLiner, OptionSetting, Overrides, Pick, Ready, Receive, Scenario, ServerStart,
    Tester, schema,
};

const FULL: &str = r#"
name: VLC on demand, everybody at once
server:
  launch: vlc
  port: 8554
  clips: { directory: clips, count: 10, length: 1m, video: 1Mbps, audio: 128kbps, frame_rate: 25 }
clients:
  viewers:
    protocol: rtsp
    urls: ["rtsp://127.0.0.1:8554/clip{1..10}"]
    transport: tcp
    pick: in_turn
    leave: { after: 60s }
    load: { clients: 240, start: at_once }
  guests: &guests
    urls: rtsp://127.0.0.1:8554/clip1
    rejoin: true
    load: { stages: [ {clients: 100, over: 30s}, {clients: 0, over: 0s} ] }
  more:
    <<: *guests
    load: { arrivals: 30/m, max_clients: 50 }
    rejoin: false
duration: 1m30s
warm_up: 10s
thresholds: [ "viewers.loss < 7%", "server.cpu < 95%", "tester.lag.p99 < 50ms" ]
seed: 42
stop_timeout: 2s
workers: 2
"#;

fn parse(text: &str) -> Scenario {
    parse_with(text, &Overrides::default())
}

fn parse_with(text: &str, overrides: &Overrides) -> Scenario {
    protocols::install();
    match Scenario::parse("dir/vod.yaml", text, overrides) {
        Ok(scenario) => scenario,
        Err(error) => panic!("{:#?}", error.problems()),
    }
}

const SMALL: &str = "clients: {viewers: {urls: [rtsp://h/a], load: {clients: 10}}}\n";

#[test]
fn complete_scenario_is_read() {
    let scenario = parse(FULL);
    assert_eq!(scenario.name, "VLC on demand, everybody at once");
    let server = scenario.server.as_ref().expect("it has one");
    assert_eq!(
        server.start,
        ServerStart::Launch {
            name: "vlc".to_owned(),
            port: Some(8554)
        }
    );
    assert_eq!(
        server.clips,
        Some(Clips {
            directory: PathBuf::from("clips"),
            count: 10,
            length: Duration::from_secs(60),
            video: BitRate(1_000_000),
            audio: Some(BitRate(128_000)),
            frame_rate: 25
        })
    );
    let [viewers, guests, more] = scenario.populations.as_slice() else {
        panic!("three populations");
    };
    assert_eq!(viewers.urls.len(), 10);
    assert_eq!(viewers.urls[9], "rtsp://127.0.0.1:8554/clip10");
    assert_eq!(viewers.pick, Pick::InTurn);
    assert_eq!(viewers.leave, Leave::After(Duration::from_secs(60)));
    assert_eq!(viewers.load.shape, Shape::AtOnce { clients: 240 });
    assert_eq!(viewers.config.sockets_per_client(1).descriptors, 1);
    assert!(guests.load.rejoin);
    assert_eq!(guests.config.protocol().name, "rtsp");
    assert_eq!(
        guests.load.shape,
        Shape::Stages(vec![
            Stage {
                clients: 100,
                over: Duration::from_secs(30)
            },
            Stage {
                clients: 0,
                over: Duration::ZERO
            }
        ])
    );
    assert_eq!(more.urls, guests.urls);
    assert!(!more.load.rejoin);
    assert_eq!(
        more.load.shape,
        Shape::Arrivals {
            per_second: 0.5,
            max_clients: 50
        }
    );
    assert_eq!(scenario.duration, Some(Duration::from_secs(90)));
    assert_eq!(scenario.warm_up, Duration::from_secs(10));
    assert_eq!(scenario.stop_timeout, Duration::from_secs(2));
    assert_eq!((scenario.seed, scenario.workers), (42, Some(2)));
    assert_eq!(scenario.thresholds[0].text, "viewers.loss < 7%");
    assert!(scenario.thresholds[0].origin.starts_with("dir/vod.yaml:"));
    let json = serde_json::to_value(&scenario).expect("it is plain data");
    assert_eq!(json["populations"][0]["config"]["rtsp"]["transport"], "tcp");
    assert_eq!(json["populations"][0]["leave"], "after: 60s");
    assert_eq!(json["populations"][0]["load"]["shape"]["clients"], 240);
    assert_eq!(json["duration"], "90s");
}

#[test]
fn omitted_keys_have_defaults() {
    let overrides = Overrides {
        default_seed: 7,
        ..Overrides::default()
    };
    let scenario = parse_with(SMALL, &overrides);
    assert_eq!(scenario.name, "vod");
    assert_eq!(scenario.seed, 7);
    assert_eq!(scenario.server, None);
    assert_eq!(scenario.duration, None);
    assert_eq!(scenario.warm_up, Duration::ZERO);
    assert_eq!(scenario.stop_timeout, Duration::from_secs(5));
    let viewers = &scenario.populations[0];
    assert_eq!(viewers.pick, Pick::Random);
    assert_eq!(viewers.leave, Leave::WithRun);
    assert!(!viewers.load.rejoin);
    assert_eq!(viewers.config, viewers.config.protocol().default_config());
}

#[test]
fn keys_of_custom_servers_are_read() {
    let server = |text: &str| {
        parse(&format!("{SMALL}server: {text}\n"))
            .server
            .expect("it has one")
    };
    let command = server(
        "{command: [./server, --port, 8554], ready: {port: 8554}, ready_timeout: 1s, environment: {A: 1}}",
    );
    assert_eq!(
        command.start,
        ServerStart::Command(["./server", "--port", "8554"].map(str::to_owned).to_vec())
    );
    assert_eq!(command.ready, Some(Ready::Port(8554)));
    let udp = server("{command: [./server], ready: {udp: 9000}}");
    assert_eq!(udp.ready, Some(Ready::Udp(9000)));
    assert_eq!(command.ready_timeout, Duration::from_secs(1));
    assert_eq!(command.stop_timeout, Duration::from_secs(5));
    assert_eq!(command.environment["A"], "1");
    assert_eq!(command.user, None);
    for (written, user) in [("nobody", "nobody"), ("65534", "65534"), ("'root'", "root")] {
        let with = server(&format!("{{command: [s], user: {written}}}"));
        assert_eq!(with.user.as_deref(), Some(user));
        let with = server(&format!("{{launch: vlc, user: {written}}}"));
        assert_eq!(with.user.as_deref(), Some(user));
    }
    let line = server("{command: [s], ready: {line: 'up: yes'}}");
    assert_eq!(line.ready, Some(Ready::Line("up: yes".to_owned())));
    assert_eq!(line.ready_timeout, Duration::from_secs(30));
    assert_eq!(
        server("{observe: {pid: 123}}").start,
        ServerStart::Observe { pid: 123 }
    );
}

#[test]
fn only_servers_of_the_catalogue_can_be_launched() {
    protocols::install();
    let overrides = Overrides {
        known_servers: vec!["vlc".to_owned(), "gstreamer".to_owned()],
        ..Overrides::default()
    };
    let error = Scenario::parse(
        "s.yaml",
        &format!("{SMALL}server: {{launch: vcl}}\n"),
        &overrides,
    )
    .expect_err("there is none");
    assert_eq!(error.problems()[0].help_text(), Some("did you mean `vlc`?"));
}

#[test]
fn launch_path_is_relative_to_the_scenario() {
    protocols::install();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("s.yaml");
    let text = format!(
        "{SMALL}server: {{launch: mine.yaml, interface: eth7, groups: \"rtp://239.0.0.{{1..2}}:5000\"}}\n"
    );
    std::fs::write(&path, text).expect("it can be written");
    let overrides = Overrides {
        known_servers: vec!["vlc".to_owned()],
        ..Overrides::default()
    };
    let scenario = Scenario::load(&path, &overrides).expect("it is good");
    let server = scenario.server.expect("it has one");
    let name = folder.path().join("mine.yaml").display().to_string();
    assert_eq!(server.start, ServerStart::Launch { name, port: None });
    assert_eq!(server.interface.as_deref(), Some("eth7"));
    let groups: Vec<&str> = server.groups.iter().map(|group| &*group.address).collect();
    assert_eq!(groups, ["239.0.0.1", "239.0.0.2"]);
}

#[test]
fn settings_override_variables_override_the_file() {
    let overrides = Overrides {
        set: [
            "clients.viewers.load.clients=500",
            "clients.viewers.urls=[rtsp://h/b, \"rtsp://h/c\"]",
            "clients.viewers.urls.2=rtsp://h/d?x=#y",
            "warm_up=",
            "seed=3",
        ]
        .map(str::to_owned)
        .to_vec(),
        environment: [
            ("STREAMGAUGE_SEED", "2"),
            ("STREAMGAUGE_DURATION", "20s"),
            ("STREAMGAUGE_CLIENTS__VIEWERS__TRANSPORT", "tcp"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
        thresholds: vec!["viewers.loss < 1%".to_owned()],
        ..Overrides::default()
    };
    let scenario = parse_with(&format!("{SMALL}seed: 1\nwarm_up: 5s\n"), &overrides);
    assert_eq!(scenario.seed, 3);
    assert_eq!(scenario.warm_up, Duration::ZERO);
    assert_eq!(scenario.duration, Some(Duration::from_secs(20)));
    let viewers = &scenario.populations[0];
    assert_eq!(viewers.load.shape, Shape::AtOnce { clients: 500 });
    assert_eq!(viewers.config.sockets_per_client(1).descriptors, 1);
    assert_eq!(
        viewers.urls,
        ["rtsp://h/b", "rtsp://h/c", "rtsp://h/d?x=#y"]
    );
    assert_eq!(
        scenario.thresholds[0].origin,
        "--threshold viewers.loss < 1%"
    );
}

#[test]
fn tester_keys_are_read_from_all_origins() {
    protocols::install();
    let text = format!(
        "{SMALL}tester:\n  receive: ring\n  receive_buffer: 4KiB\n  ring: 16MiB\n  \
         health: {{lag_p99: 50ms, longest_stall: 2s, worker_cpu: 80%, windows: 10%}}\n"
    );
    let tester = parse(&text).tester;
    assert_eq!(tester.receive, Receive::Ring);
    assert_eq!((tester.receive_buffer, tester.ring), (4096, 16 << 20));
    let wanted = measure::HealthBounds {
        lag_p99: Duration::from_millis(50),
        longest_stall: Duration::from_secs(2),
        worker_cpu: 0.8,
        windows: 0.1,
        ..measure::HealthBounds::default()
    };
    assert_eq!(tester.health, wanted);
    assert_eq!(parse(SMALL).tester, Tester::default());

    let overrides = Overrides {
        set: vec![
            "tester.receive=auto".to_owned(),
            "tester.ring=1MiB".to_owned(),
        ],
        environment: vec![(
            "STREAMGAUGE_TESTER__HEALTH__STEAL".to_owned(),
            "5%".to_owned(),
        )],
        options: vec![option_setting("--receive", "tester.receive", "sockets")],
        ..Overrides::default()
    };
    let tester = parse_with(&text, &overrides).tester;
    assert_eq!(tester.receive, Receive::Sockets);
    assert_eq!(tester.ring, 1 << 20);
    assert_eq!(tester.health.steal, 0.05);
    assert_eq!(tester.health.windows, 0.1);

    let overrides = Overrides {
        options: vec![option_setting("--receive", "tester.receive", "rnig")],
        ..Overrides::default()
    };
    let error = Scenario::parse("s.yaml", SMALL, &overrides).expect_err("a typo");
    let position = error.problems()[0].position();
    assert!(position.is_some_and(|position| position.starts_with("--receive")));
}

fn option_setting(option: &str, key: &str, value: &str) -> OptionSetting {
    OptionSetting {
        option: option.to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

#[test]
fn one_liner_makes_a_scenario() {
    protocols::install();
    let line = OneLiner {
        urls: vec!["rtsp://127.0.0.1:8554/clip{1..3}".to_owned()],
        clients: Some("200".to_owned()),
        ramp: Some("20s".to_owned()),
        duration: Some("60s".to_owned()),
        transport: Some("tcp".to_owned()),
        leave: Some("30s".to_owned()),
        rejoin: true,
        thresholds: vec!["viewers.loss < 1%".to_owned()],
        ..OneLiner::default()
    };
    let scenario = Scenario::from_one_liner(&line, &Overrides::default()).expect("valid");
    let viewers = &scenario.populations[0];
    assert_eq!(viewers.name, "viewers");
    assert_eq!(viewers.urls.len(), 3);
    assert_eq!(
        viewers.load.shape,
        Shape::Ramp {
            clients: 200,
            over: Duration::from_secs(20)
        }
    );
    assert!(viewers.load.rejoin);
    assert_eq!(viewers.leave, Leave::After(Duration::from_secs(30)));
    assert_eq!(scenario.thresholds.len(), 1);

    let line = OneLiner {
        urls: vec!["rtsp://h/a".to_owned()],
        ..OneLiner::default()
    };
    let scenario = Scenario::from_one_liner(&line, &Overrides::default()).expect("valid");
    assert_eq!(
        scenario.populations[0].load.shape,
        Shape::AtOnce { clients: 1 }
    );
}

#[test]
fn paths_are_relative_to_the_scenario() {
    protocols::install();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("vod.yaml");
    std::fs::write(
        &path,
        format!("{SMALL}server: {{command: [s], directory: run, clips: {{directory: media}}}}\n"),
    )
    .expect("the folder can be written to");
    let server = Scenario::load(&path, &Overrides::default())
        .expect("valid")
        .server
        .expect("it has one");
    assert_eq!(server.directory, Some(folder.path().join("run")));
    assert_eq!(
        server.clips.map(|clips| clips.directory),
        Some(folder.path().join("media"))
    );
}

#[test]
fn room_participants_need_ports_per_participant() {
    let room = |keys: &str| {
        parse(&format!(
            "clients:\n  people:\n    protocol: webrtc\n    \
             urls: [\"janus+ws://127.0.0.1:8188/videoroom/1\"]\n    {keys}\n    \
             load: {{ clients: 40, start: at_once }}\nduration: 20s\n"
        ))
        .describe()
    };
    let takes_part = "participate: { bitrate: 64kbps }";
    for (keys, pairs) in [
        (takes_part, 2),
        (&format!("{takes_part}\n    subscribe: each"), 1 + 39),
        (&format!("{takes_part}\n    subscribe: nobody"), 1),
        ("subscribe: together", 1),
        ("subscribe: each", 39),
    ] {
        let description = room(keys);
        assert_eq!(description.udp_ports, 2 * pairs * 40, "{keys}");
        // The signalling may have two connections.
        assert_eq!(description.file_descriptors, (2 + pairs) * 40, "{keys}");
    }
}

#[test]
fn description_lists_plan_and_resources() {
    let scenario = parse(FULL);
    let description = scenario.describe();
    assert_eq!(description.clients_max, 240 + 100 + 50);
    // TCP: one socket; UDP: the connection and two pairs.
    assert_eq!(description.file_descriptors, 240 + 5 * 150);
    assert_eq!(description.udp_ports, 4 * 150);
    assert_eq!(description.ends, Some(Duration::from_secs(90)));
    let text = description.lines().join("\n");
    for part in [
        "server: launches vlc on port 8554",
        "viewers: 240 clients at once; they leave after 60s",
        "and 9 more",
        "guests: clients in stages: 1 at 0s, 0 at 30s",
        "0.5 clients arrive per second, at most 50 at a time",
        "threshold: viewers.loss < 7%",
        "threshold: viewers.failed == 0 (implied)",
        "ends: after 90s",
        "warm-up: the first 10s",
        "needs: 990 file descriptors and 600 UDP ports for 390 clients",
    ] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    let open = parse(SMALL).describe();
    assert_eq!(open.ends, None);
    let bounded = SMALL.replace("load:", "leave: {after: 5s}, load:");
    assert_eq!(
        parse(&bounded).describe().ends,
        Some(Duration::from_secs(5))
    );
    let secret = SMALL.replace("rtsp://h/a", "rtsp://me:secret@h/a");
    let lines = parse(&secret).describe().lines().join("\n");
    assert!(lines.contains("rtsp://me:***@h/a"), "{lines}");
    assert!(!lines.contains("viewers: each"), "{lines}");
    let acting = SMALL.replace(
        "load:",
        "actions: [{wait: 5s..20s}, {pause: 3s}, {leave: {}}], load:",
    );
    let lines = parse(&acting).describe().lines().join("\n");
    let words = "viewers: each plays on for 5s..20s, pauses for 3s, leaves\n";
    assert!(lines.contains(words), "{lines}");
    assert!(!lines.contains("secret"));
}

#[test]
fn schema_accepts_every_key() {
    protocols::install();
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).expect("it is a schema");
    let good = serde_json::json!({
        "name": "a",
        "server": {"launch": "vlc", "clips": {"directory": "c", "video": "1Mbps"}},
        "clients": {"viewers": {
            "urls": ["rtsp://h/a"], "transport": "tcp", "silence": "5s", "leave": {"after": "1m"},
            "load": {"clients": 10, "ramp": "20s"}
        }},
        "duration": "60s", "thresholds": ["viewers.loss < 1%"], "seed": 1,
        "tester": {"receive": "ring", "ring": "16MiB", "health": {"lag_p99": "50ms", "windows": "5%"}}
    });
    if let Err(error) = validator.validate(&good) {
        panic!("{error} at {}", error.instance_path());
    }
    for (pointer, value) in [
        ("/duration", serde_json::json!(60)),
        ("/duration", serde_json::json!("60")),
        ("/clients/viewers/load/ramp", serde_json::json!("20")),
        ("/clients/viewers/transport", serde_json::json!("tpc")),
        ("/clients/viewers/leave", serde_json::json!("never")),
        ("/clients", serde_json::json!({})),
        (
            "/clients",
            serde_json::json!({"Big": good["clients"]["viewers"]}),
        ),
        ("/server", serde_json::json!({})),
        ("/server/clips/video", serde_json::json!("1MB")),
        ("/tester/receive", serde_json::json!("rings")),
        ("/tester/ring", serde_json::json!("16MB/s")),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).expect("it is there") = value;
        assert!(!validator.is_valid(&bad), "{pointer}: {bad}");
    }
    for (pointer, key) in [
        ("", "duraton"),
        ("/clients/viewers", "tranport"),
        ("/clients/viewers/load", "cleints"),
        ("/server", "lunch"),
        ("/tester", "recieve"),
        ("/tester/health", "lag"),
    ] {
        let mut bad = good.clone();
        bad.pointer_mut(pointer).expect("it is there")[key] = serde_json::json!("1s");
        assert!(!validator.is_valid(&bad), "{pointer}/{key}");
    }
}

/// An editor shows the errors of a schema: they should name the wrong key, and nothing else.
#[test]
fn schema_names_the_wrong_key_of_a_population() {
    protocols::install();
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).expect("it is a schema");
    for protocol in protocols::PROTOCOLS {
        let url = format!("{}://h/a", protocol.schemes[0]);
        for population in [
            serde_json::json!({"urls": [url], "load": {"clients": 1}, "tranport": "tcp"}),
            serde_json::json!({"urls": url, "load": {"clients": 1}, "tranport": "tcp"}),
            serde_json::json!({
                "protocol": protocol.name, "urls": ["{server}"], "load": {"clients": 1}, "tranport": "tcp"
            }),
        ] {
            let scenario = serde_json::json!({"clients": {"viewers": population}});
            let errors: Vec<String> = validator
                .iter_errors(&scenario)
                .map(|error| error.to_string())
                .collect();
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(
                errors[0].contains("'tranport' was unexpected"),
                "{errors:?}"
            );
        }
    }
    // Neither key nor scheme names the protocol.
    let unknown = serde_json::json!({
        "clients": {"viewers": {"urls": ["{server}"], "load": {"clients": 1}, "tranport": "tcp"}}
    });
    assert!(!validator.is_valid(&unknown));
}

#[test]
fn path_of_a_url_shows_its_protocol_unless_a_key_does() {
    protocols::install();
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).expect("it is a schema");
    let playlist = "http://h/a.M3U8?b=c";
    for (url, protocol, key, fits) in [
        (playlist, None, "variant: lowest", true),
        (playlist, None, "http_version: '1.0'", false),
        (playlist, Some("http-ts"), "http_version: '1.0'", true),
        (playlist, Some("http-ts"), "variant: lowest", false),
        ("http://h/a.ts?b=.m3u8", None, "http_version: '1.0'", true),
        ("http://h/a", Some("hls"), "variant: lowest", true),
        ("hls+http://h/a", None, "variant: lowest", true),
    ] {
        let protocol = protocol.map(|name| format!(", protocol: {name}"));
        let protocol = protocol.unwrap_or_default();
        let text = format!(
            "duration: 5s\nclients: {{v: {{urls: '{url}'{protocol}, load: {{clients: 1}}, {key}}}}}\n"
        );
        let read = Scenario::parse("s.yaml", &text, &Overrides::default());
        assert_eq!(read.is_ok(), fits, "{text} {read:?}");
        let (name, value) = key.split_once(": ").expect("a key");
        let mut population = serde_json::json!({"urls": url, "load": {"clients": 1}});
        population[name] = value.trim_matches('\'').into();
        if let Some((_, name)) = protocol.split_once(": ") {
            population["protocol"] = name.into();
        }
        let scenario = serde_json::json!({"clients": {"v": population}, "duration": "5s"});
        assert_eq!(validator.is_valid(&scenario), fits, "{scenario}");
    }
}

/// To regenerate the file: `STREAMGAUGE_WRITE_SCHEMA=1 cargo test -p streamgauge-scenario`.
#[test]
fn schema_in_the_repository_is_up_to_date() {
    protocols::install();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/scenario.schema.json");
    let made = serde_json::to_string_pretty(&schema()).expect("it has string keys") + "\n";
    if std::env::var_os("STREAMGAUGE_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, &made).expect("the schema can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "regenerate it: STREAMGAUGE_WRITE_SCHEMA=1 cargo test -p streamgauge-scenario"
    );
}

#[test]
fn yaml_bombs_are_refused() {
    protocols::install();
    let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (from, to) in ["ab", "bc", "cd", "de", "ef", "fg"].map(|pair| pair.split_at(1)) {
        let items = vec![format!("*{from}"); 9].join(", ");
        laughs.push_str(&format!("{to}: &{to} [{items}]\n"));
    }
    let long = format!(
        "a: &a \"{}\"\nb: [{}]\n",
        "x".repeat(500_000),
        "*a, ".repeat(60_000)
    );
    let deep_flow = format!("a: {}", "[".repeat(5_000));
    let deep_block: String = (0..300)
        .map(|depth| format!("{}a:\n", " ".repeat(depth)))
        .collect();
    let merges = format!("a: &a {{b: c}}\nd: {{<<: [{}]}}\n", "*a, ".repeat(200_000));
    for bomb in [laughs, long, deep_flow, deep_block, merges] {
        let error = Scenario::parse("s.yaml", &bomb, &Overrides::default()).expect_err("a bomb");
        let message = error.problems()[0].message();
        assert!(
            ["values", "nested", "too large", "YAML"]
                .iter()
                .any(|word| message.contains(word)),
            "{message}"
        );
    }
    let keys: String = (0..50_000).map(|n| format!("k{n}: 1\n")).collect();
    let error = Scenario::parse("s.yaml", &keys, &Overrides::default()).expect_err("unknown");
    assert!(error.problems().len() < 30);
}

/// Fragments of scenarios, so that random texts get past the first line.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("clients:\n  v:\n".to_owned()),
        Just("    urls: [rtsp://h/a{1..3}]\n".to_owned()),
        Just("    load: {clients: 5, ramp: 2s}\n".to_owned()),
        Just("    load: {stages: [{clients: 5, over: 2s}]}\n".to_owned()),
        Just("    silence: *a\n".to_owned()),
        Just("server: &a {command: [x]}\n".to_owned()),
        Just("duration: 5s\n".to_owned()),
        Just("thresholds: ['v.loss < 1%', \"é\\n.x < 2\"]\n".to_owned()),
        Just("<<: {a: b}\n".to_owned()),
        "[a-z{}\\[\\]:,&*!|>'\"#%@ \t\n0-9.é-]{0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_text_and_setting_is_handled(
        pieces in proptest::collection::vec(piece(), 0..8),
        setting in "[a-z.]{0,12}=?[a-z0-9\\[{}&*:é]{0,8}",
    ) {
        protocols::install();
        let overrides = Overrides {
            set: vec![setting.clone()],
            thresholds: vec![setting],
            ..Overrides::default()
        };
        match Scenario::parse("s.yaml", &pieces.concat(), &overrides) {
            Ok(scenario) => {
                scenario.describe();
            }
            Err(error) => {
                prop_assert!(!error.problems().is_empty());
                let mut picture = String::new();
                miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::none())
                    .render_report(&mut picture, &error)
                    .expect("a text takes everything");
            }
        }
    }

    #[test]
    fn any_argument_is_handled(url in "\\PC{0,30}", ramp in "\\PC{0,8}", leave in "\\PC{0,8}") {
        protocols::install();
        let line = OneLiner {
            urls: vec![url],
            ramp: Some(ramp),
            leave: Some(leave),
            ..OneLiner::default()
        };
        // Either result is right, as long as the call returns.
        drop(Scenario::from_one_liner(&line, &Overrides::default()));
    }
}

#[test]
fn truncated_file_keeps_its_urls_or_is_refused() {
    protocols::install();
    let whole = parse(FULL);
    for end in (0..FULL.len()).filter(|end| FULL.is_char_boundary(*end)) {
        if let Ok(part) = Scenario::parse("dir/vod.yaml", &FULL[..end], &Overrides::default()) {
            assert_eq!(part.populations[0].urls, whole.populations[0].urls);
        }
    }
}

#[test]
fn health_document_states_the_default_bounds() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/health.md");
    let text = std::fs::read_to_string(path).expect("it is in the repository");
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let bounds = Tester::default().health;
    assert_eq!(rows.len(), bounds.entries().len());
    let check = parse(SMALL).describe().lines().join("\n");
    for (row, (key, value)) in rows.iter().zip(bounds.entries()) {
        assert!(row.starts_with(&format!("| `{key}` | {value} |")), "{row}");
        assert!(check.contains(&format!("{key} {value}")), "{check}");
    }
}

#[test]
fn publishers_have_own_urls_and_players_wait() {
    let text = "duration: 5s\nclients:\n  cameras:\n    urls: ['rtsp://h/a', 'rtsp://h/b']\n    publish: {}\n    \
                load: {clients: 3}\n  viewers:\n    urls: ['rtsp://H:554/b', 'rtsp://h/c']\n    load: {clients: 9}\n";
    let scenario = parse(text);
    assert_eq!(scenario.populations[0].pick, Pick::Own);
    assert_eq!(scenario.populations[1].pick, Pick::Random);
    let lines = scenario.describe().lines().join("\n");
    for expected in [
        "cameras: publish over rtsp to rtsp://h/a and 1 more",
        "cameras: more clients than its 2 URLs: servers accept one publisher of each",
        "viewers: 1 of their 2 URLs are published by this scenario; their clients wait for the publisher",
    ] {
        assert!(lines.contains(expected), "{lines}");
    }
}

#[test]
fn clients_that_publish_until_they_leave_need_no_duration() {
    protocols::install();
    let text = "clients: {cameras: {urls: ['rtsp://h/a'], publish: {}, leave: {after: 5s}, \
                load: {clients: 1}}}";
    let scenario = Scenario::parse("test", text, &Overrides::default()).expect("it is good");
    assert!(scenario.populations[0].config.facts().publishes());
}

#[test]
fn clients_leave_with_the_run_by_default() {
    let leave = |rest: &str| parse(&format!("{SMALL}\n{rest}")).populations[0].leave;
    assert_eq!(leave("duration: 10s"), Leave::WithRun);
    for (word, wanted) in [("at_end", Leave::AtEnd), ("with_run", Leave::WithRun)] {
        let text = SMALL.replace("load:", &format!("leave: {word}, load:"));
        assert_eq!(parse(&text).populations[0].leave, wanted);
    }
}

#[test]
fn former_keys_for_the_end_of_media_say_what_to_write() {
    protocols::install();
    for (url, key) in [
        ("http://127.0.0.1:1/a", "at_close"),
        ("srt://127.0.0.1:1", "at_shutdown"),
    ] {
        let text = format!(
            "clients:\n  viewers:\n    urls: [\"{url}\"]\n    {key}: complete\n    load: {{ clients: 1 }}\n"
        );
        let error =
            Scenario::parse("s.yaml", &text, &Overrides::default()).expect_err("it is gone");
        let refused = format!("{:?}", error.problems());
        assert!(refused.contains("write `leave: at_end`"), "{refused}");
    }
}
