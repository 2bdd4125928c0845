//! Declarations of the protocols agree with each other: those of reference servers, of the trials
//! of `calibrate`, and of the columns of streams.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use kit::descriptor::Protocol;
use kit::media::rtp::{ReceiverConfig, RtpReceiver, StreamSummary, TsSummary};
use kit::media::sdp::MediaKind;
use kit::media::ts::checker::{DatagramCounts, TsCounts};
use kit::reference::{FlagValue, Flags, ReferenceServer, common};
use protocols::{HTTP_TS_PROTOCOL, PROTOCOLS, RTSP_PROTOCOL};
use serde_json::Value;
use session::StreamRow;

fn servers() -> impl Iterator<Item = (&'static Protocol, &'static ReferenceServer)> {
    let with_server = |&protocol: &&'static Protocol| Some((protocol, protocol.server?));
    PROTOCOLS.iter().filter_map(with_server)
}

fn is_good(value_type: FlagValue, value: &str) -> bool {
    match value_type {
        FlagValue::Nothing => false,
        FlagValue::File => true,
        FlagValue::OneOf(_, values) => values.iter().any(|(name, _)| *name == value),
        FlagValue::Number(_, min, max) => value
            .parse()
            .is_ok_and(|number: u64| (min..=max).contains(&number)),
        FlagValue::Text(_, check) => check(value).is_ok(),
    }
}

#[test]
fn every_server_can_be_made_without_flags() {
    for (protocol, server) in servers() {
        let usual = Flags::defaults(server.flags);
        let settings = (server.read)(&usual).expect("defaults are valid");
        let made = settings.server(Duration::ZERO).expect("defaults agree");
        assert_eq!(made.seed(), 1, "{}", protocol.name);
        for name in [common::LISTEN, common::PORT] {
            assert!(usual.has(name), "--{name} of {}", protocol.name);
        }
    }
}

#[test]
fn flags_name_each_other_and_have_good_defaults() {
    for (_, server) in servers() {
        let flags = server.flags;
        let known = |name: &str| flags.iter().filter(|flag| flag.name == name).count();
        for flag in flags {
            assert_eq!(known(flag.name), 1, "--{}", flag.name);
            for other in flag.requires.iter().chain(flag.conflicts) {
                assert_eq!(known(other), 1, "--{other} of --{}", flag.name);
            }
            for value in flag.default.iter().chain(flag.bare_value.iter()) {
                assert!(is_good(flag.value, value), "{value} of --{}", flag.name);
            }
        }
    }
}

#[test]
fn schemes_of_servers_are_those_of_their_protocol() {
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    for (protocol, server) in servers() {
        let usual = Flags::defaults(server.flags);
        let settings = (server.read)(&usual).expect("defaults are valid");
        let made = settings.server(Duration::ZERO).expect("defaults agree");
        for tls in [false, true] {
            let url = made.url(address, tls);
            let (scheme, _) = url.split_once("://").expect("it is a URL");
            assert!(protocol.schemes.contains(&scheme), "{url}");
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
            let flags = Flags::defaults(server.flags);
            for word in trial.server.iter().filter_map(|w| w.strip_prefix("--")) {
                let mut known = server.flags.iter();
                assert!(known.any(|flag| flag.name == word), "--{word}");
            }
            let faults = trial.server.windows(2).filter(|pair| pair[0] == "--fault");
            let faults: Vec<String> = faults.map(|pair| pair[1].to_owned()).collect();
            (server.read)(&flags.set("fault", faults)).expect("faults of trials are valid");
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
