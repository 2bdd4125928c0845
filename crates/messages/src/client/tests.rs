use measure::Recorder;

use super::*;
use crate::PROTOCOL;
use kit::descriptor::PopulationKeys as _;
use session::{Flows, Sinks};

/// A client with its surroundings.
struct Bench {
    client: Client,
    now: Time,
    recorder: Recorder,
    sinks: Sinks,
    flows: Flows,
}

impl Bench {
    fn new(keys: &str, url: &str) -> Bench {
        let config: ClientConfig = serde_json::from_str(keys).expect("the keys are good");
        config.check().expect("they make sense");
        let plan =
            ClientPlan::new(&config, url, Duration::from_secs(1_700_000_000)).expect("a URL");
        let mut bench = Bench {
            client: Client::new(Arc::new(plan), 5),
            now: Time::ZERO,
            recorder: Recorder::new(PROTOCOL.catalogue),
            sinks: Sinks::default(),
            flows: Flows::default(),
        };
        let first = bench.input(Input::Start { due: Time::ZERO });
        assert!(matches!(first[..], [Output::Open { .. }]), "{first:?}");
        bench
    }

    fn input(&mut self, input: Input<'_>) -> Vec<Output> {
        let mut out = VecDeque::new();
        let mut cx = Context {
            now: self.now,
            recorder: &mut self.recorder,
            sinks: &mut self.sinks,
            flows: &mut self.flows,
            out: &mut out,
            outbox: &mut session::Outbox::default(),
        };
        self.client.handle(&mut cx, input);
        out.into()
    }

    fn open(&mut self) -> Vec<Output> {
        self.input(Input::Opened {
            channel: CHANNEL,
            local: "127.0.0.1:5".parse().expect("an address"),
            remote: None,
        })
    }

    fn bytes(&mut self, bytes: &[u8]) -> Vec<Output> {
        self.input(Input::Bytes {
            channel: CHANNEL,
            bytes,
            at: self.now,
            runs: &[],
        })
    }

    fn after(&mut self, time: Duration, input: Input<'_>) -> Vec<Output> {
        self.now += time;
        self.input(input)
    }
}

fn is_handed_over(out: &[Output]) -> bool {
    matches!(out, [.., Output::Playing { .. }, Output::Exchange { .. }])
}

fn sent(out: &[Output]) -> Vec<String> {
    let text = |output: &Output| match output {
        Output::Send { bytes, .. } => Some(bytes.escape_ascii().to_string()),
        _ => None,
    };
    out.iter().filter_map(text).collect()
}

fn reason(out: &[Output]) -> &'static str {
    match out {
        [.., Output::Ended(Outcome::Failed(failure))] => failure.reason,
        [.., Output::Ended(Outcome::Stopped)] => "stopped",
        [.., Output::Ended(Outcome::Completed)] => "completed",
        other => panic!("it has not ended: {other:?}"),
    }
}

#[test]
fn connection_without_greeting_is_handed_over_at_once() {
    let mut bench = Bench::new("{}", "tcp://h:1");
    assert!(is_handed_over(&bench.open()));
    let out = bench.input(Input::Stop {
        until: bench.now + Duration::from_secs(9),
    });
    assert!(matches!(out[..], [Output::FinishExchange { .. }]));
    let out = bench.input(Input::ExchangeEnded {
        channel: CHANNEL,
        reason: ExchangeEnd::Finished,
    });
    assert_eq!(reason(&out), "stopped");
}

#[test]
fn client_ends_without_a_close_by_the_server() {
    let mut bench = Bench::new("{}", "tcp://h:1");
    bench.open();
    bench.input(Input::Stop {
        until: bench.now + Duration::from_secs(9),
    });
    assert_eq!(
        bench.client.deadline(),
        Some(bench.now + Duration::from_secs(2))
    );
    let out = bench.after(Duration::from_secs(2), Input::Deadline);
    assert_eq!(reason(&out), "stopped");
}

#[test]
fn greeting_proceeds_with_any_fragmentation() {
    let keys = r#"{"framing":{"length":{"bytes":2}},"greeting":[{"expect":"READY"},{"send":"LOGIN"},{"expect_hex":"4f4b"},{"send_hex":"00"}]}"#;
    let mut bench = Bench::new(keys, "tcp://h:1");
    assert!(bench.open().is_empty());
    assert!(bench.bytes(b"\0\x05BUSY!\0\x09RE").is_empty());
    assert!(bench.bytes(b"ADY 1.").is_empty());
    assert_eq!(sent(&bench.bytes(b"0\0")), ["\\x00\\x05LOGIN"]);
    let out = bench.bytes(b"\x02OK");
    assert_eq!(sent(&out), ["\\x00\\x01\\x00"]);
    assert!(is_handed_over(&out));
    assert_eq!(bench.recorder.counter(m::GREETINGS_SENT), 2);
    assert!(bench.recorder.histogram(m::GREETING_DELAY).is_some());
}

#[test]
fn unframed_greeting_waits_for_its_text() {
    let mut bench = Bench::new(
        r#"{"greeting":[{"expect":"220"},{"send":"HI"},{"expect":"250"}]}"#,
        "unix:///run/s",
    );
    assert!(bench.open().is_empty());
    assert!(bench.bytes(b"2").is_empty());
    assert_eq!(sent(&bench.bytes(b"20 ready 25")), ["HI"]);
    assert!(is_handed_over(&bench.bytes(b"0")));
    // However the bytes are split: both texts in one read are found.
    let mut bench = Bench::new(
        r#"{"greeting":[{"expect":"A"},{"expect":"B"}]}"#,
        "tcp://h:1",
    );
    bench.open();
    assert!(is_handed_over(&bench.bytes(b"A, B")));
}

#[test]
fn missing_greetings_fail_with_their_reason() {
    let keys = r#"{"greeting":[{"expect":"OK"}]}"#;
    let mut bench = Bench::new(keys, "tcp://h:1");
    bench.open();
    assert_eq!(
        bench.client.deadline(),
        Some(Time::ZERO + Duration::from_secs(10))
    );
    assert_eq!(
        reason(&bench.after(Duration::from_secs(10), Input::Deadline)),
        "timeout_greeting"
    );
    let mut bench = Bench::new(keys, "tcp://h:1");
    bench.open();
    assert_eq!(
        reason(&bench.bytes(&[b'x'; GREETING_BYTES_MAX + 1])),
        "wrong_greeting"
    );
    let mut bench = Bench::new(keys, "tcp://h:1");
    bench.open();
    let closed = Input::Closed {
        channel: CHANNEL,
        reason: CloseReason::End,
    };
    assert_eq!(reason(&bench.input(closed)), "closed_in_greeting");
    let stop = Input::Stop {
        until: Time::ZERO + Duration::from_secs(9),
    };
    let mut bench = Bench::new(keys, "tcp://h:1");
    bench.open();
    assert_eq!(
        reason(&bench.after(Duration::from_secs(3), stop)),
        "timeout_greeting"
    );
}

#[test]
fn websocket_is_requested_first() {
    let mut bench = Bench::new("{}", "ws://h/chat");
    let request = sent(&bench.open());
    assert!(request[0].starts_with("GET /chat HTTP/1.1"), "{request:?}");
    assert_eq!(
        reason(&bench.bytes(b"HTTP/1.1 403 No\r\n\r\n")),
        "websocket_refused"
    );
}

#[test]
fn end_of_a_connection_determines_the_reason() {
    for (end, expected) in [
        (ExchangeEnd::Finished, "completed"),
        (ExchangeEnd::Closed(CloseReason::End), "closed_by_server"),
        (ExchangeEnd::Closed(CloseReason::Reset), "reset"),
        (
            ExchangeEnd::Failed(Failure::MalformedAnswer.with("x")),
            "malformed_answer",
        ),
    ] {
        let mut bench = Bench::new("{}", "tcp://h:1");
        bench.open();
        assert_eq!(
            reason(&bench.input(Input::ExchangeEnded {
                channel: CHANNEL,
                reason: end
            })),
            expected
        );
    }
}

#[test]
fn websocket_request_has_subprotocols_and_headers() {
    let keys =
        r#"{"subprotocols":["chat.v2","chat"],"headers":{"Origin":"https://o","X-Key":"k"}}"#;
    let mut bench = Bench::new(keys, "ws://h/chat");
    let request = sent(&bench.open()).concat();
    for field in [
        "Sec-WebSocket-Protocol: chat.v2, chat",
        "Origin: https://o",
        "X-Key: k",
    ] {
        assert!(
            request.contains(&format!("\\r\\n{field}\\r\\n")),
            "{request}"
        );
    }
    let config: ClientConfig = serde_json::from_str(keys).expect("the keys are good");
    let (key, error) = config.check_url("tcp://h:1").expect_err("no WebSocket");
    assert_eq!(key, "headers");
    assert!(error.contains("`headers` needs"), "{error}");
    assert_eq!(config.check_url("wss://h/chat"), Ok(()));
}

#[test]
fn choice_of_a_subprotocol_is_counted_and_reported_once() {
    let keys = r#"{"subprotocols":["chat.v2","chat"]}"#;
    for (known, text, counts) in [
        (&["chat"][..], "`chat`", (2, 0)),
        (&[], "none of the offered", (0, 2)),
    ] {
        let mut bench = Bench::new(keys, "ws://h/chat");
        let mut noted = Vec::new();
        for _ in 0..2 {
            let request = bench.open().into_iter().find_map(|output| match output {
                Output::Send { bytes, .. } => Some(bytes),
                _ => None,
            });
            let mut server = ws::ServerHandshake::new(known);
            let answer = server.read_request(&mut &request.expect("a request")[..]);
            let answer = answer.expect("a request").expect("it is whole");
            noted.extend(
                bench
                    .bytes(&answer)
                    .into_iter()
                    .filter_map(|output| match output {
                        Output::Note(note) => Some(note),
                        _ => None,
                    }),
            );
            let next = Client::new(bench.client.plan.clone(), 6);
            bench.client = next;
            bench.input(Input::Start { due: Time::ZERO });
        }
        assert_eq!(noted.len(), 1, "{noted:?}");
        assert_eq!(noted[0].kind, "subprotocol");
        assert!(noted[0].text.contains(text), "{noted:?}");
        let count = |counter| bench.recorder.counter(counter);
        let counted = (
            count(m::SUBPROTOCOLS_CHOSEN),
            count(m::SUBPROTOCOLS_DECLINED),
        );
        assert_eq!(counted, counts);
    }
}
