//! Declarations of the protocols agree with each other: those of reference servers, of the trials
//! of `calibrate`, and of the columns of streams.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Command;
use kit::descriptor::Protocol;
use kit::media::rtp::{ReceiverConfig, RtpReceiver, StreamSummary, TsSummary};
use kit::media::sdp::MediaKind;
use kit::media::ts::checker::{DatagramCounts, TsCounts};
use kit::reference::{ReferenceServer, RunningServer};
use protocols::{HTTP_TS_PROTOCOL, PROTOCOLS, RTSP_PROTOCOL};
use serde_json::Value;
use session::StreamRow;

fn servers() -> impl Iterator<Item = (&'static Protocol, &'static ReferenceServer)> {
    let with_server = |&protocol: &&'static Protocol| Some((protocol, protocol.server?));
    PROTOCOLS.iter().filter_map(with_server)
}

/// Makes a server without any flags.
fn usual(server: &ReferenceServer) -> Box<dyn RunningServer> {
    let configured = server.parse::<&str>(&[]).expect("defaults are valid");
    let made = configured.settings.server(Duration::ZERO);
    made.expect("defaults agree")
}

#[test]
fn every_server_can_be_made_without_flags() {
    for (protocol, server) in servers() {
        assert_eq!(usual(server).seed(), 1, "{}", protocol.name);
        let configured = server.parse::<&str>(&[]).expect("defaults are valid");
        let port = server.port.default.parse().expect("it is a port");
        let local = SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(configured.listen, [local], "{}", protocol.name);
    }
}

#[test]
fn flags_of_servers_are_consistent() {
    for (_, server) in servers() {
        server.add_flags(Command::new("serve")).debug_assert();
    }
}

#[test]
fn addresses_and_ports_can_be_repeated() {
    let two = [
        "--listen",
        "127.0.0.2,127.0.0.3",
        "--listen=::1",
        "--port=9",
    ];
    for (protocol, server) in servers() {
        let configured = server.parse(&two).expect("the flags are valid");
        let expected = ["127.0.0.2:9", "127.0.0.3:9", "[::1]:9"].map(|text| text.parse().unwrap());
        assert_eq!(configured.listen, expected, "{}", protocol.name);
        for ports in [&["--port=9", "--port=10"][..], &["--port=9,10"]] {
            let is_valid = server.parse(ports).is_ok();
            assert_eq!(is_valid, server.port.many, "{} {ports:?}", protocol.name);
        }
    }
}

#[test]
fn invalid_secrets_are_not_quoted() {
    protocols::install();
    for (name, flag, secret) in [
        ("rtsp", "--user", "hunter2"),
        ("srt", "--passphrase", "hunter2"),
        ("webrtc", "--token", "hunter 2"),
    ] {
        let protocol = kit::registry::find(name).expect("it is registered");
        let server = protocol.server.expect("it has one");
        let error = server.parse(&[flag, secret]).expect_err(flag);
        assert!(error.contains(flag), "{error}");
        assert!(!error.contains(secret), "{error}");
    }
}

#[test]
fn urls_of_servers_are_those_of_their_protocol() {
    protocols::install();
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    for (protocol, server) in servers() {
        let made = usual(server);
        for tls in [false, true] {
            let url = made.url(address, tls);
            let found = kit::registry::find_by_url(&url).expect("a protocol has this URL");
            assert_eq!(found.name, protocol.name, "{url}");
        }
    }
}

#[test]
fn trials_name_only_existing_metrics_and_flags() {
    for protocol in PROTOCOLS {
        let mut names = BTreeSet::new();
        for trial in protocol.trials {
            for clients in trial.clients {
                assert!(names.insert(clients.name), "{} twice", clients.name);
                let url = clients.url.replace("{address}", "127.0.0.1:9");
                assert_eq!(protocol.check_url(&url), Ok(()), "{url}");
            }
            for check in trial.checks {
                let mut clients = trial.clients.iter();
                assert!(
                    clients.any(|clients| clients.name == check.clients),
                    "{check:?}"
                );
                let mut metrics = protocol.catalogue.metrics();
                assert!(
                    metrics.any(|metric| metric.name == check.metric),
                    "{check:?}"
                );
            }
            let server = protocol.server.expect("calibration needs a server");
            let flags = trial.server.replace("{length}", "10s");
            let flags: Vec<&str> = flags.split_whitespace().collect();
            server.parse(&flags).expect("flags of trials are valid");
        }
    }
}

/// Collects the JSON pointers of all values that are not objects.
fn pointers(value: &Value, before: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                pointers(value, &format!("{before}/{name}"), found);
            }
        }
        _ => found.push(before.to_owned()),
    }
}

#[test]
fn rows_have_the_columns_that_their_protocol_declares() {
    let receiver = RtpReceiver::new(&ReceiverConfig {
        clock_rate: 90_000,
        payload_types: Vec::new(),
        playout_buffer: Duration::ZERO,
    });
    let of_rtp = StreamSummary::from_receiver(MediaKind::Video, "", &receiver);
    let of_ts = StreamSummary {
        ts: Some(Box::new(TsSummary {
            counts: TsCounts::default(),
            datagrams: Some(DatagramCounts::default()),
            pids: Vec::new(),
        })),
        ..of_rtp.clone()
    };
    for (summary, protocol) in [(of_rtp, &RTSP_PROTOCOL), (of_ts, &HTTP_TS_PROTOCOL)] {
        let row = StreamRow::new(summary.clone());
        assert_eq!(row.downcast_ref(), Some(&summary));
        let mut found = Vec::new();
        pointers(&row.to_json(), "", &mut found);
        let declared = protocol.stream_columns.concat();
        let mut names = declared.clone();
        names.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, names, "{}", protocol.name);
        for name in declared
            .iter()
            .filter_map(|pointer| pointer.rsplit('/').next())
        {
            let own = ["kind", "url", "ssrc", "pids"].contains(&name);
            let all = [&RTSP_PROTOCOL, &HTTP_TS_PROTOCOL];
            let is_metric = all
                .iter()
                .any(|protocol| protocol.catalogue.find(name).is_some());
            assert!(own || is_metric, "{name}");
        }
    }
}
