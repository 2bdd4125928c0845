//! Sources and networks of a scenario: their defaults and their mistakes.

use measure::units::BitRate;
use scenario::{Network, Overrides, Problem, Scenario, ServerStart, schema};

const CLIENTS: &str = "clients: {viewers: {urls: ['http://{server}:8080/rtp/239.81.0.{1..2}:4056'], load: {clients: 2}}}\n";

/// Reads a scenario with `text` before its clients.
fn read(text: &str) -> Result<Scenario, Vec<Problem>> {
    protocols::install();
    let text = format!("{text}\n{CLIENTS}");
    Scenario::parse("dir/relay.yaml", &text, &Overrides::default())
        .map_err(|error| error.problems().to_vec())
}

fn parse(text: &str) -> Scenario {
    read(text).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// Returns the only problem.
fn wrong(text: &str) -> Problem {
    let problems = read(text).expect_err("something is wrong");
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems.into_iter().next().expect("it is there")
}

#[test]
fn sources_are_read_with_their_defaults() {
    let scenario = parse(
        "sources:\n  channels: {to: 'rtp://239.81.0.{1..8}:4056', bitrate: 40Mbps}\n  other: {to: ['udp://[ff15::1]:5000'], file: a.ts, interface: 10.0.0.1, ttl: 4}",
    );
    let [channels, other] = scenario.sources.as_slice() else {
        panic!("{:?}", scenario.sources);
    };
    assert_eq!(channels.name, "channels");
    assert_eq!(channels.to.len(), 8);
    assert_eq!(channels.to[7].to_string(), "rtp://239.81.0.8:4056");
    assert_eq!(channels.rate(), Some(BitRate(40_000_000)));
    assert_eq!((channels.interface.as_str(), channels.ttl), ("lo", 1));
    assert_eq!((other.interface.as_str(), other.ttl), ("10.0.0.1", 4));
    assert_eq!((other.rate(), other.bitrate), (None, None));
    let described = scenario.describe().lines().join("\n");
    for line in [
        "source channels: a generated programme at 40Mbps each to rtp://239.81.0.1:4056 to rtp://239.81.0.8:4056, 8 groups, through lo, TTL 1",
        "source other: a.ts in a loop at its own bit rate to udp://[ff15::1]:5000, through 10.0.0.1, TTL 4",
    ] {
        assert!(described.contains(line), "{described}");
    }
}

#[test]
fn source_mistakes_are_reported_at_their_position() {
    for (text, message, position) in [
        ("sources: 1", "`sources` must be a mapping", (1, 10)),
        ("sources: {}", "`sources` needs 1 to 100 sources", (1, 10)),
        (
            "sources: {a: {ttl: 1}}",
            "`to` is missing in `sources.a`",
            (1, 14),
        ),
        (
            "sources: {a: {to: 'udp://10.0.0.1:5000'}}",
            "not a multicast group",
            (1, 19),
        ),
        (
            "sources:\n  a: {to: 'udp://239.81.0.1:5000'}\n  b: {to: 'rtp://239.81.0.1:5000'}",
            "two streams are sent to 239.81.0.1:5000",
            (3, 11),
        ),
        (
            "sources: {a: {to: 'udp://239.81.0.1:5000', bitrate: 1kbps}}",
            "a source cannot send 1kbps",
            (1, 53),
        ),
        (
            "sources: {a: {to: 'udp://239.81.0.1:5000', ttl: 256}}",
            "`sources.a.ttl: 256` is out of range",
            (1, 49),
        ),
        (
            "sources: {a: {to: 'udp://239.81.0.1:5000', bit_rate: 1Mbps}}",
            "unknown key `bit_rate` in `sources.a`",
            (1, 44),
        ),
        (
            "sources: {a: {to: 'udp://239.{81..82}.{0..99}.{1..9}:5000'}}",
            "at most 1000 groups",
            (1, 19),
        ),
        (
            "sources: {A: {to: 'udp://239.81.0.1:5000'}}",
            "`A` is not a valid name of a source",
            (1, 11),
        ),
    ] {
        let problem = wrong(text);
        assert!(problem.message().contains(message), "{problem:#?}");
        assert_eq!(problem.line_column(), Some(position), "{text}");
    }
}

#[test]
fn server_placeholder_becomes_its_address() {
    let urls = |text: &str| parse(text).populations[0].urls.clone();
    assert_eq!(urls("")[1], "http://127.0.0.1:8080/rtp/239.81.0.2:4056");
    let server = "server: {command: [relay]}\n";
    assert_eq!(
        urls(&format!("{server}network: veth"))[0],
        "http://10.81.0.2:8080/rtp/239.81.0.1:4056"
    );
}

#[test]
fn default_interfaces_depend_on_the_network() {
    let scenario = |network: &str, sources: &str| {
        parse(&format!(
            "server: {{launch: rtp2httpd}}\nnetwork: {network}\n{sources}"
        ))
    };
    let sources = "sources: {channels: {to: 'rtp://239.81.0.1:4056'}}";
    for (network, from, by) in [
        ("own", None, "lo"),
        ("loopback", Some("lo"), "lo"),
        ("veth", Some("sources"), "server"),
    ] {
        let read = scenario(network, sources);
        assert_eq!(read.network.name(), network);
        let server = read.server.expect("there is one");
        assert_eq!(server.interface.as_deref(), from, "{network}");
        assert_eq!(read.sources[0].interface, by, "{network}");
    }
    let server = scenario("veth", "").server.expect("there is one");
    assert_eq!(server.interface.as_deref(), Some("clients"));
    let named = parse("server: {launch: udpxy, interface: clients}\nnetwork: loopback");
    let server = named.server.expect("there is one");
    assert_eq!(server.interface.as_deref(), Some("clients"));
    assert!(matches!(server.start, ServerStart::Launch { .. }));
    assert_eq!(parse("").network, Network::Own);
}

#[test]
fn created_network_needs_server_and_receivers_in_it() {
    protocols::install();
    for (text, message) in [
        ("network: veth", "the run starts no server"),
        (
            "network: loopback\nserver: {observe: {pid: 1}}",
            "only observed",
        ),
    ] {
        let problem = wrong(text);
        assert!(problem.message().contains(message), "{problem:#?}");
        assert_eq!(problem.line_column(), Some((1, 10)), "{text}");
    }
    let problem = wrong("network: lopback\nserver: {command: [relay]}");
    assert_eq!(problem.line_column(), Some((1, 10)));
    let help = problem.help_text().expect("it can be mended");
    assert!(help.contains("loopback"), "{help}");
    let text = "network: veth\nserver: {command: [s]}\nclients: {v: {urls: ['rtsp://{server}/a'], load: {clients: 1}, media: {address: 10.0.0.2}}}";
    let error = Scenario::parse("a", text, &Overrides::default()).expect_err("it is elsewhere");
    let message = error.problems()[0].message();
    assert!(message.contains("`clients.v.media`"), "{message}");
}

#[test]
fn schema_accepts_sources_and_networks() {
    protocols::install();
    let validator = jsonschema::validator_for(&schema()).expect("it is a schema");
    let scenario = |network: &str, source: serde_json::Value| {
        serde_json::json!({
            "network": network,
            "sources": {"channels": source},
            "clients": {"viewers": {"urls": ["http://{server}:1/a"], "load": {"clients": 1}}},
        })
    };
    let good = serde_json::json!({
        "to": ["rtp://239.81.0.{1..8}:4056"], "bitrate": "40Mbps", "file": "a.ts", "interface": "lo", "ttl": 1
    });
    for network in ["own", "loopback", "veth"] {
        let written = scenario(network, good.clone());
        assert!(validator.is_valid(&written), "{written}");
    }
    assert!(!validator.is_valid(&scenario("bridge", good)));
    let bad = serde_json::json!({"to": "udp://239.81.0.1:1", "rate": "1Mbps"});
    assert!(!validator.is_valid(&scenario("own", bad)));
}

#[test]
fn congestion_control_of_a_network_is_read() {
    protocols::install();
    let server = "server: {command: [relay]}\n";
    let read = parse(&format!("{server}network: {{congestion: bbr}}"));
    assert_eq!(read.network, Network::Veth);
    assert_eq!(read.congestion.as_deref(), Some("bbr"));
    let lines = read.describe().lines().join("\n");
    assert!(lines.contains("TCP congestion control bbr"), "{lines}");
    let read = parse(&format!("{server}network: {{kind: loopback}}"));
    assert_eq!((read.network, read.congestion), (Network::Loopback, None));
    for (text, message, position) in [
        (
            "network: {kind: own, congestion: bbr}",
            "`congestion` cannot be set",
            (1, 22),
        ),
        (
            "network: {kind: vlan}",
            "`network.kind` cannot be `vlan`",
            (1, 17),
        ),
        (
            "network: {congestion: 'b b r'}",
            "not a valid name of a congestion control",
            (1, 23),
        ),
        (
            "network: {control: bbr}",
            "unknown key `control` in `network`",
            (1, 11),
        ),
    ] {
        let problem = wrong(&format!("{text}\n{server}"));
        assert!(problem.message().contains(message), "{problem:#?}");
        assert_eq!(problem.line_column(), Some(position), "{text}");
    }
    let validator = jsonschema::validator_for(&schema()).expect("it is a schema");
    let scenario = |network: serde_json::Value| {
        serde_json::json!({
            "network": network,
            "clients": {"viewers": {"urls": ["http://{server}:1/a"], "load": {"clients": 1}}},
        })
    };
    for (network, good) in [
        (serde_json::json!("veth"), true),
        (
            serde_json::json!({"kind": "veth", "congestion": "bbr"}),
            true,
        ),
        (serde_json::json!({"congestion": "b b r"}), false),
        (serde_json::json!({"kind": "bridge"}), false),
    ] {
        assert_eq!(
            validator.is_valid(&scenario(network.clone())),
            good,
            "{network}"
        );
    }
}
