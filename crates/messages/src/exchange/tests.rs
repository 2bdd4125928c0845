use proptest::prelude::*;

use super::super::config::PENDING_MAX;
use super::super::server::{MessageServerConfig, Mode, ServerExchange};
use super::*;
use crate::PROTOCOL;
use kit::faults::FaultSet as _;

const SERVED: measure::Catalogue = MessageServerConfig::CATALOGUE;

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn caller(keys: &str) -> ClientExchange {
    let config: ClientConfig = serde_json::from_str(keys).expect("the keys are good");
    config.check().expect("they make sense");
    let script = ClientScript::new(&config, false, Duration::from_secs(1_700_000_000))
        .expect("it was checked");
    ClientExchange::new(Arc::new(script), 9)
}

/// Surroundings of an exchange, and its output.
struct Bench {
    recorder: Recorder,
    out: Vec<u8>,
    scratch: Vec<u8>,
}

impl Bench {
    fn new(catalogue: measure::Catalogue) -> Bench {
        Bench {
            recorder: Recorder::new(catalogue),
            out: Vec::new(),
            scratch: Vec::new(),
        }
    }

    fn of_client() -> Bench {
        Bench::new(PROTOCOL.catalogue)
    }

    fn with<R>(&mut self, now: Time, run: impl FnOnce(&mut ExchangeContext<'_>) -> R) -> R {
        self.out.clear();
        run(&mut ExchangeContext {
            now,
            recorder: &mut self.recorder,
            out: &mut self.out,
            scratch: &mut self.scratch,
        })
    }

    /// Sends the next message of `caller`, and returns it.
    fn message(&mut self, caller: &mut ClientExchange, now: Time) -> Vec<u8> {
        let mut out = Vec::new();
        caller.write_next(now, &mut out);
        caller.record_sent(now, now, out.len(), &mut self.recorder);
        out
    }
}

#[test]
fn answers_in_order_are_answered_and_timed() {
    let mut bench = Bench::of_client();
    let mut caller = caller(
        r#"{"message":"{counter} {time} {random:5}","framing":{"delimiter":"\n"},"plan":{"rate":"1/s"},"answers":"echo"}"#,
    );
    let stream: Vec<u8> = (0..20)
        .flat_map(|at| bench.message(&mut caller, ms(at)))
        .collect();
    for part in stream.chunks(7) {
        let after = bench.with(ms(100), |tools| caller.received(part, ms(50), tools));
        assert_eq!(after, Ok(NextStep::Continue));
    }
    assert_eq!(bench.recorder.counter(m::ANSWERED), 20);
    assert_eq!(bench.recorder.counter(m::ANSWERS_WRONG), 0);
    let trips = bench
        .recorder
        .histogram(m::ROUND_TRIP)
        .expect("answers came");
    assert_eq!(trips.count(), 20);
    caller.ended(&ExchangeEnd::ClosedByUs, &mut bench.recorder);
    assert_eq!(bench.recorder.counter(m::UNANSWERED), 0);
    assert_eq!(bench.recorder.counter(m::LOST_IN_FLIGHT), 20);
}

#[test]
fn pending_messages_are_unanswered_at_the_end() {
    let mut bench = Bench::of_client();
    let mut caller =
        caller(r#"{"framing":{"length":{"bytes":1}},"plan":{"rate":"1/s"},"answers":"echo"}"#);
    let messages: Vec<Vec<u8>> = (0..5).map(|_| bench.message(&mut caller, ms(0))).collect();
    let stream = messages[..2].concat();
    bench
        .with(ms(5), |tools| caller.received(&stream, ms(5), tools))
        .expect("it is framed");
    caller.ended(&ExchangeEnd::ClosedByUs, &mut bench.recorder);
    let counted = [m::ANSWERED, m::UNANSWERED, m::ANSWERS_WRONG];
    assert_eq!(counted.map(|id| bench.recorder.counter(id)), [2, 3, 0]);
}

#[test]
fn missing_wrong_late_and_extra_answers_are_distinguished() {
    let mut bench = Bench::of_client();
    let mut caller = caller(
        r#"{"framing":{"length":{"bytes":1}},"plan":{"rate":"1/s"},"answers":"echo","answer_timeout":"1s"}"#,
    );
    let messages: Vec<Vec<u8>> = (0..6).map(|_| bench.message(&mut caller, ms(0))).collect();
    let mut wrong = messages[3].clone();
    wrong[20] ^= 1;
    // The first answer is missing, and the fourth is wrong.
    let stream = [&messages[1][..], &messages[2], &wrong, &messages[4]].concat();
    bench
        .with(ms(5), |tools| caller.received(&stream, ms(5), tools))
        .expect("it is framed");
    // The sixth answer arrives after its timeout.
    bench.with(ms(2000), |tools| caller.check_timeouts(tools));
    let more = bench.message(&mut caller, ms(2000));
    let stream = [&messages[5][..], &more, &more].concat();
    bench
        .with(ms(2001), |tools| caller.received(&stream, ms(2001), tools))
        .expect("it is framed");
    let counted = [
        m::ANSWERED,
        m::ANSWERS_MISSED,
        m::ANSWERS_WRONG,
        m::ANSWERS_TIMED_OUT,
        m::UNASKED,
    ]
    .map(|counter| bench.recorder.counter(counter));
    assert_eq!(counted, [4, 1, 1, 1, 2]);
}

#[test]
fn answers_trigger_messages_up_to_the_in_flight_limit() {
    let mut bench = Bench::of_client();
    let mut exchange = caller(r#"{"size":10,"plan":{"in_flight":3},"messages":5}"#);
    bench.with(ms(0), |tools| exchange.start(tools));
    let first = bench.out.clone();
    assert_eq!(first.len(), 30);
    let after = bench.with(ms(1), |tools| exchange.received(&first[..20], ms(1), tools));
    assert_eq!((after, bench.out.len()), (Ok(NextStep::Continue), 20));
    let last = [&first[20..], &bench.out].concat();
    let after = bench.with(ms(2), |tools| exchange.received(&last, ms(2), tools));
    assert_eq!((after, bench.out.len()), (Ok(NextStep::Finish), 0));
    assert_eq!(bench.recorder.counter(m::ANSWERED), 5);
}

/// A WebSocket client that has sent two messages, of which the first was answered.
fn of_websocket(bench: &mut Bench) -> ClientExchange {
    let keys = r#"{"size":3,"plan":{"in_flight":2},"messages":2}"#;
    let config: ClientConfig = serde_json::from_str(keys).expect("the keys are good");
    let script = ClientScript::new(&config, true, Duration::ZERO).expect("it makes sense");
    let mut exchange = ClientExchange::new(Arc::new(script), 9);
    bench.with(ms(0), |tools| exchange.start(tools));
    let after = bench.with(ms(1), |tools| {
        exchange.received(b"\x81\x03001", ms(1), tools)
    });
    assert_eq!(after, Ok(NextStep::Continue));
    exchange
}

#[test]
fn websocket_is_closed_by_both_sides() {
    let mut bench = Bench::of_client();
    let mut exchange = of_websocket(&mut bench);
    exchange.finish();
    assert_eq!(exchange.answer_timeout(), Some(Duration::from_secs(1)));
    bench
        .with(ms(2), |tools| {
            exchange.received(b"\x81\x03002", ms(2), tools)
        })
        .expect("it is framed");
    assert_eq!(
        (exchange.answer_timeout(), exchange.awaits_close_answer()),
        (None, false)
    );
    bench.with(ms(3), |tools| exchange.write_close(tools.out));
    // Masked and with a code (RFC 6455, 5.5.1), but only once.
    assert_eq!((bench.out.len(), &bench.out[..2]), (8, &b"\x88\x82"[..]));
    assert!(exchange.awaits_close_answer());
    exchange.acknowledged(8, 0, &mut bench.recorder);
    assert_eq!(bench.recorder.counter(m::ACKNOWLEDGED), 2);
    bench.with(ms(3), |tools| exchange.write_close(tools.out));
    assert!(bench.out.is_empty());
    let after = bench.with(ms(4), |tools| {
        exchange.received(b"\x88\x02\x03\xe8", ms(4), tools)
    });
    assert_eq!(
        (after, exchange.awaits_close_answer()),
        (Ok(NextStep::Finish), false)
    );
}

#[test]
fn websocket_closed_by_the_server_fails_the_client() {
    let mut bench = Bench::of_client();
    let mut exchange = of_websocket(&mut bench);
    let after = bench.with(ms(4), |tools| {
        exchange.received(b"\x88\x02\x03\xe9", ms(4), tools)
    });
    let failure = after.expect_err("messages were to come");
    assert_eq!(failure.reason, "closed_by_server");
    assert!(failure.detail.contains("1001"), "{}", failure.detail);
    assert_eq!(bench.out.len(), 8);
}

#[test]
fn pending_messages_are_bounded_without_answers() {
    let mut bench = Bench::of_client();
    let mut caller =
        caller(r#"{"plan":{"rate":"1/s"},"answers":"any","framing":{"length":{"bytes":4}}}"#);
    let mut sent = 0;
    while caller.may_send() {
        bench.message(&mut caller, ms(0));
        sent += 1;
    }
    assert_eq!(sent, PENDING_MAX);
    let huge = bench.with(ms(0), |tools| {
        caller.received(b"\xff\xff\xff\xff", ms(0), tools)
    });
    assert_eq!(
        huge.expect_err("4 GiB are not taken").reason,
        "malformed_answer"
    );
}

#[test]
fn unsent_bytes_are_converted_to_messages() {
    let mut bench = Bench::of_client();
    // 5 bytes, and the digits of the counter.
    let mut caller =
        caller(r#"{"message":"abcd{counter}","framing":{"delimiter":"\n"},"plan":{"rate":"1/s"}}"#);
    let mut lengths = Vec::new();
    for _ in 0..1200 {
        lengths.push(bench.message(&mut caller, ms(0)).len() as u64);
    }
    for waiting in [0, 1, 9, 10, 1800, 5000, 100_000] {
        let mut left: u64 = waiting;
        let expected = lengths.iter().rev().take_while(|&&length| {
            let more = left > 0;
            left = left.saturating_sub(length);
            more
        });
        assert_eq!(
            caller.messages_in_last_bytes(waiting, 0),
            expected.count() as u64,
            "{waiting}"
        );
    }
    caller.acknowledged(100_000, 0, &mut bench.recorder);
    assert_eq!(bench.recorder.counter(m::ACKNOWLEDGED), 0);
    caller.acknowledged(18, 0, &mut bench.recorder);
    assert_eq!(bench.recorder.counter(m::ACKNOWLEDGED), 1198);
    caller.ended(&ExchangeEnd::ClosedByUs, &mut bench.recorder);
    assert_eq!(bench.recorder.counter(m::LOST_IN_FLIGHT), 2);
}

#[test]
fn state_of_a_connection_is_small() {
    for size in [size_of::<ClientExchange>(), size_of::<ServerExchange>()] {
        assert!(size <= 200, "{size}");
    }
}

/// Server's side of a connection, without a network.
fn answerer(framing: Framing, mode: Mode, faults: &[&str]) -> ServerExchange {
    let mut config = MessageServerConfig {
        mode,
        framing,
        size: 36,
        faults: Default::default(),
        seed: 3,
    };
    for fault in faults {
        config.faults.add(fault).expect("it is known");
    }
    ServerExchange::new(Arc::new(config), 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn each_fault_of_the_server_is_counted_by_the_client(
        framing in prop::sample::select(vec!["\"none\"", r#"{"length":{"bytes":2}}"#, r#"{"delimiter":"\r\n"}"#]),
        faults in prop::sample::subsequence(vec!["drop=20%", "wrong=20%", "delay=3ms"], 0..=3),
        cut in 1usize..200,
    ) {
        let mut client = Bench::of_client();
        let mut server = Bench::new(SERVED);
        let mut caller = caller(&format!(r#"{{"framing":{framing},"plan":{{"rate":"1/s"}},"answers":"echo"}}"#));
        let mut answerer = answerer(caller.script.framing.clone(), Mode::Echo, &faults);
        let mut up = Vec::new();
        let mut down = Vec::new();
        for at in 0..200 {
            up.extend(client.message(&mut caller, ms(at)));
            for part in std::mem::take(&mut up).chunks(cut) {
                server.with(ms(at), |tools| answerer.received(part, ms(at), tools)).expect("it is framed");
                down.append(&mut server.out);
            }
            server.with(ms(at), |tools| answerer.run_scheduled(tools));
            down.append(&mut server.out);
            for part in std::mem::take(&mut down).chunks(cut) {
                client.with(ms(at), |tools| caller.received(part, ms(at), tools)).expect("it is framed");
            }
        }
        server.with(ms(1000), |tools| answerer.run_scheduled(tools));
        let rest = std::mem::take(&mut server.out);
        client.with(ms(1000), |tools| caller.received(&rest, ms(1000), tools)).expect("it is framed");
        caller.ended(&ExchangeEnd::ClosedByUs, &mut client.recorder);
        use crate::metrics as m;
        let counted = |counter| client.recorder.counter(counter);
        let did = |counter| server.recorder.counter(counter);
        prop_assert_eq!(did(m::RECEIVED), 200);
        prop_assert_eq!(did(m::ANSWERS) + did(m::DROPPED), 200);
        prop_assert_eq!(counted(m::ANSWERS_WRONG) + counted(m::ANSWERED), did(m::ANSWERS));
        prop_assert_eq!(counted(m::ANSWERS_MISSED) + counted(m::UNANSWERED), did(m::DROPPED));
        if !faults.contains(&"drop=20%") {
            prop_assert_eq!(counted(m::ANSWERS_WRONG), did(m::CORRUPTED));
        }
    }
}
