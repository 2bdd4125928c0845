//! Emulated links in scenarios.

use std::time::Duration;

use scenario::{Network, Overrides, Plan, Problem, Scenario, schema};

const SERVER: &str = "server: {command: [s]}\n";
const CLIENTS: &str = "clients: {v: {urls: ['rtsp://{server}/a'], load: {clients: 1}}}\n";

fn parse(text: &str) -> Scenario {
    protocols::install();
    let text = format!("{text}\n{SERVER}{CLIENTS}");
    Scenario::parse("a", &text, &Overrides::default())
        .unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

/// Returns the first problem.
fn wrong(text: &str) -> Problem {
    protocols::install();
    let whole = match text.contains("server:") {
        true => format!("{text}\n{CLIENTS}"),
        false => format!("{text}\n{SERVER}{CLIENTS}"),
    };
    let error = Scenario::parse("a", &whole, &Overrides::default()).expect_err(text);
    error.problems()[0].clone()
}

#[test]
fn link_keys_are_read_and_imply_veth() {
    let scenario = parse(
        "link: {rtt: 178ms, jitter: 3ms normal, loss: 0.5%, rate: 20Mbps, queue: 100ms codel, \
         mtu: 1400, outages: [10s..12s], up: {loss: every 100}, down: {delay: 70ms}, \
         stages: [{at: 20s, rtt: 20ms, down: {loss: 0%}}]}",
    );
    assert_eq!(scenario.network, Network::Veth);
    assert_eq!(scenario.populations[0].urls, ["rtsp://10.81.0.2/a"]);
    let link = scenario.link.as_ref().expect("there is one");
    assert_eq!(link.mtu(), 1400);
    let [up, down] = link.timelines().expect("it can be");
    let ms = Duration::from_millis;
    assert_eq!((up.settings.delay, down.settings.delay), (ms(89), ms(70)));
    assert_eq!(up.settings.loss, session::link::Loss::Every(100));
    assert_eq!(down.settings.loss, session::link::Loss::Random(0.005));
    assert_eq!(up.settings.rate, Some(20_000_000));
    assert_eq!(down.settings.outages.len(), 1);
    assert_eq!(down.changes[0].1.loss, session::link::Loss::None);
    assert_eq!(down.changes[0].1.delay, ms(10));
    let placed: Vec<[String; 2]> = scenario.links().map(|one| one.subjects()).collect();
    assert_eq!(placed, [["uplink".to_owned(), "downlink".to_owned()]]);
    let lines = scenario.describe().lines().join("\n");
    assert!(
        lines.contains("link: between clients and the server: RTT 178ms, jitter 3ms normal"),
        "{lines}"
    );
}

#[test]
fn population_can_have_its_own_link() {
    protocols::install();
    let text = format!(
        "{SERVER}link: {{rtt: 20ms}}
clients:
  near: {{urls: ['rtsp://{{server}}/a'], load: {{clients: 1}}}}
  far: {{urls: ['rtsp://{{server}}/a'], load: {{clients: 1}}, link: {{rtt: 178ms}}}}
thresholds: ['far_downlink.lost == 0', 'uplink.lateness.p99 < 1ms']
"
    );
    let read = |text: &str| Scenario::parse("a", text, &Overrides::default());
    let scenario = read(&text).expect("it can be");
    assert_eq!(scenario.populations[0].urls, ["rtsp://10.81.0.2/a"]);
    assert_eq!(scenario.populations[1].urls, ["rtsp://10.81.3.2/a"]);
    for (address, is) in [
        ("10.81.0.2", true),
        ("10.81.3.2", true),
        ("10.81.2.2", false),
        ("127.0.0.1", false),
    ] {
        let address = address.parse().expect("an address");
        assert_eq!(scenario.is_created_server_address(address), is, "{address}");
    }
    let names: Vec<String> = scenario.links().flat_map(|one| one.subjects()).collect();
    assert_eq!(names, ["uplink", "downlink", "far_uplink", "far_downlink"]);
    // A link of a single population needs networks, too.
    let alone = read(
        &text
            .replace("link: {rtt: 20ms}\n", "")
            .replace(", 'uplink.lateness.p99 < 1ms'", ""),
    );
    let alone = alone.expect("it can be");
    assert_eq!((alone.network, alone.link), (Network::Veth, None));
    let past = read(
        &text
            .replace("link: {rtt: 178ms}", "link: {rtt: 178ms}, protocol: rtsp")
            .replace(
                "far: {urls: ['rtsp://{server}/a']",
                "far: {urls: ['rtsp://10.81.0.2/a']",
            ),
    );
    let past = past.expect_err("its packets would pass the other link");
    let problem = &past.problems()[0];
    assert!(
        problem.message().contains("not behind this link"),
        "{problem:#?}"
    );
    let taken = read(&text.replace("near:", "far_uplink:"));
    let taken = taken.expect_err("thresholds would not know which");
    let message = taken.problems()[0].message();
    assert!(message.contains("`far_uplink` is a direction"), "{message}");
}

#[test]
fn link_mistakes_are_reported_at_their_position() {
    for (text, message, position) in [
        ("link: {los: 1%}", "unknown key `los` in `link`", (1, 8)),
        ("link: {loss: 0.5}", "0.5%", (1, 14)),
        (
            "link: {down: {jitter: fast}}",
            "`fast` is not a number with a unit",
            (1, 23),
        ),
        ("link: {queue: 100ms}", "without a rate", (1, 7)),
        (
            "link: {rtt: 20ms, delay: 10ms}",
            "write one of them",
            (1, 7),
        ),
        (
            "link: {stages: [{at: 2s, loss: 1%}, {at: 1s}]}",
            "in order of time",
            (1, 7),
        ),
        ("link: {stages: [{loss: 1%}]}", "`at` is missing", (1, 17)),
        (
            "link: {outages: [3s..1s]}",
            "must end after its begin",
            (1, 18),
        ),
        ("link: {mtu: 100}", "`link.mtu: 100`", (1, 13)),
        (
            "link: {trace: a.csv, stages: []}",
            "both `stages` and a `trace`",
            (1, 8),
        ),
        (
            "network: loopback\nlink: {rtt: 20ms}",
            "`network: loopback` is only one",
            (2, 1),
        ),
        (
            "link: {rtt: 20ms}\nserver: {observe: {pid: 1}}",
            "only observed",
            (1, 7),
        ),
    ] {
        let problem = wrong(text);
        let text_of_problem = format!("{} {:?}", problem.message(), problem.help_text());
        assert!(text_of_problem.contains(message), "{text}: {problem:#?}");
        assert_eq!(
            problem.line_column(),
            Some(position),
            "{text}: {problem:#?}"
        );
    }
    let problem = wrong("thresholds: ['downlink.lost == 0']");
    assert!(problem.message().contains("has no `link`"), "{problem:#?}");
    let problem = wrong("link: {rtt: 1ms}\nthresholds: ['downlink.lots == 0']");
    assert!(
        problem.message().contains("no metric `lots`"),
        "{problem:#?}"
    );
}

#[test]
fn link_keys_can_be_set_and_varied() {
    protocols::install();
    let text = format!("link: {{rtt: 20ms}}\n{SERVER}{CLIENTS}");
    let overrides = Overrides {
        set: vec!["link.loss=1%".to_owned(), "link.down.rate=5Mbps".to_owned()],
        ..Overrides::default()
    };
    let scenario = Scenario::parse("a", &text, &overrides).expect("it can be");
    let [up, down] = scenario.link.expect("set").timelines().expect("it can be");
    assert_eq!(up.settings.loss, session::link::Loss::Random(0.01));
    assert_eq!(
        (up.settings.rate, down.settings.rate),
        (None, Some(5_000_000))
    );
    let vary =
        format!("{text}vary: {{link.rtt: [17ms, 178ms], link.loss: [0%, 1% in bursts of 4]}}\n");
    let Plan::Series(series) = Plan::parse("a", &vary, &Overrides::default()).expect("it can be")
    else {
        panic!("several runs");
    };
    assert_eq!(series.runs(), 4);
    let last = series.scenario(3).expect("it can be");
    let line = last.link.expect("it has one").line();
    assert_eq!(line, "RTT 178ms, loss 1% in bursts of 4");
    assert_eq!(last.varied[1].value, "1% in bursts of 4");
    let gone = Overrides {
        set: vec!["link=".to_owned()],
        ..Overrides::default()
    };
    let scenario = Scenario::parse("a", &text, &gone).expect("it can be");
    assert_eq!((scenario.network, scenario.link), (Network::Own, None));
}

#[test]
fn trace_path_is_relative_to_the_scenario() {
    protocols::install();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.yaml");
    let text = format!("link: {{loss: 1%, trace: t.csv}}\n{SERVER}{CLIENTS}");
    std::fs::write(&path, text).expect("there is room");
    let scenario = Scenario::load(&path, &Overrides::default()).expect("it can be");
    let link = scenario.link.expect("there is one");
    let error = link.timelines().expect_err("there is no trace");
    assert!(error.contains("t.csv: "), "{error}");
    let trace = "time,rate,delay,loss\n2,1000000,0.2,\n";
    std::fs::write(folder.path().join("t.csv"), trace).expect("there is room");
    let [_, down] = link.timelines().expect("it can be");
    assert_eq!(down.changes.len(), 1);
    assert_eq!(down.changes[0].1.loss, session::link::Loss::Random(0.01));
    assert!(link.line().starts_with("loss 1%, changes as in /"));
}

#[test]
fn schema_accepts_links() {
    protocols::install();
    let validator = jsonschema::validator_for(&schema()).expect("it is a schema");
    let scenario = |link: serde_json::Value| {
        serde_json::json!({
            "link": link,
            "clients": {"v": {"urls": ["rtsp://{server}/a"], "load": {"clients": 1}, "link": link}},
        })
    };
    let good = serde_json::json!({
        "rtt": "178ms", "jitter": "3ms", "loss": "0.5%", "rate": "20Mbps", "queue": "100ms",
        "duplicate": "1%", "reorder": "1% by 10ms", "corrupt": "0.1%", "outages": ["1s..2s"],
        "mtu": 1400, "up": {"delay": "1ms"}, "down": {"loss": "every 3"},
        "stages": [{"at": "3s", "rtt": "1ms", "up": {"loss": "1%"}}]
    });
    assert!(validator.is_valid(&scenario(good)));
    for bad in [
        serde_json::json!({"lost": "1%"}),
        serde_json::json!({"mtu": 100}),
        serde_json::json!({"up": {"rtt": "1ms"}}),
    ] {
        assert!(!validator.is_valid(&scenario(bad.clone())), "{bad}");
    }
}
