use std::collections::VecDeque;
use std::sync::Mutex;

use measure::Recorder;

use super::*;
use crate::publication::Publication;
use session::{Flows, Outbox};

const CATALOGUE: measure::Catalogue = measure::Catalogue(&[&crate::metrics::CLIENTS]);

const VIDEO: Publication = Publication::Live {
    audio: false,
    video: true,
};

/// A client that logs its inputs.
struct LoggingClient(Arc<Mutex<Vec<String>>>);

impl Session for LoggingClient {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        let text = match input {
            Input::Start { due } => format!("start {}, due {}", at(cx.now), at(due)),
            Input::TopicMessage { message, .. } => format!("told {message}"),
            other => format!("{other:?}"),
        };
        self.0.lock().expect("no test panics with it").push(text);
    }

    fn deadline(&self) -> Option<Time> {
        None
    }
}

/// Seconds since the start of the clock.
fn at(time: Time) -> f64 {
    time.as_secs_f64()
}

struct Bench {
    waiting: WaitingClient,
    now: Time,
    inputs: Arc<Mutex<Vec<String>>>,
    listens: Vec<String>,
    outcome: Option<Outcome>,
}

impl Bench {
    /// A client that was due at 1 s and waits for "a" and "b" from 2 s on, for 10 s.
    fn new(join_after: u64) -> Bench {
        let inputs = Arc::new(Mutex::new(Vec::new()));
        let awaited = AwaitedStreams {
            url: "rtmp://h/a".to_owned(),
            topics: vec!["a".to_owned(), "b".to_owned()],
            timeout: Duration::from_secs(10),
            join_after: Duration::from_secs(join_after),
        };
        let client = Box::new(LoggingClient(inputs.clone()));
        let mut bench = Bench {
            waiting: WaitingClient::new(client, Arc::new(awaited)),
            now: Time::from_start(Duration::from_secs(2)),
            inputs,
            listens: Vec::new(),
            outcome: None,
        };
        let due = Time::from_start(Duration::from_secs(1));
        bench.input(Input::Start { due });
        assert_eq!(bench.listens, ["a", "b"]);
        bench
    }

    fn input(&mut self, input: Input<'_>) {
        let mut out = VecDeque::new();
        let mut cx = Context {
            now: self.now,
            recorder: &mut Recorder::new(CATALOGUE),
            sinks: &mut Sinks::default(),
            flows: &mut Flows::default(),
            out: &mut out,
            outbox: &mut Outbox::default(),
        };
        self.waiting.handle(&mut cx, input);
        for output in out {
            match output {
                Output::Subscribe { topic } => self.listens.push(topic),
                Output::Ended(outcome) => self.outcome = Some(outcome),
                other => panic!("{other:?}"),
            }
        }
    }

    fn topic_message(&mut self, topic: &str, said: Publication) {
        let message: Arc<str> = said.to_string().into();
        let message = &message;
        self.input(Input::TopicMessage { topic, message });
    }

    /// Advances to the deadline.
    fn deadline(&mut self) -> f64 {
        self.now = self.waiting.deadline().expect("it waits");
        self.input(Input::Deadline);
        at(self.now)
    }

    fn stop(&mut self, seconds: u64) -> Option<&'static str> {
        self.now = Time::from_start(Duration::from_secs(seconds));
        self.input(Input::Stop { until: self.now });
        let outcome = self.outcome.as_ref().expect("it has ended");
        outcome.failure().map(|failure| failure.reason)
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.lock().expect("no test panics with it").clone()
    }
}

#[test]
fn client_starts_when_its_stream_is_published() {
    let mut bench = Bench::new(0);
    bench.now = Time::from_start(Duration::from_secs(5));
    bench.topic_message("b", VIDEO);
    let started = ["told live video", "start 5, due 5"];
    assert_eq!(bench.inputs(), started);
    assert_eq!(bench.waiting.deadline(), None);
    // The client receives messages of its own stream only.
    bench.topic_message("a", Publication::GONE);
    assert_eq!(bench.inputs(), started);
    bench.topic_message("b", Publication::GONE);
    assert_eq!(bench.inputs()[2..], ["told gone"]);
}

#[test]
fn client_joins_after_the_configured_delay() {
    let mut bench = Bench::new(3);
    bench.topic_message("a", Publication::LIVE);
    assert_eq!(bench.deadline(), 5.0);
    assert_eq!(bench.inputs(), ["told live", "start 5, due 5"]);
    // The stream ends before, and returns.
    let mut bench = Bench::new(3);
    bench.topic_message("a", Publication::LIVE);
    bench.topic_message("b", Publication::GONE);
    bench.topic_message("a", Publication::GONE);
    assert_eq!(at(bench.waiting.deadline().expect("it waits")), 12.0);
    bench.now = Time::from_start(Duration::from_secs(7));
    bench.topic_message("b", Publication::LIVE);
    assert_eq!(bench.deadline(), 10.0);
    assert_eq!(bench.inputs(), ["told live", "start 10, due 10"]);
}

#[test]
fn client_fails_if_its_stream_is_never_published() {
    let mut bench = Bench::new(0);
    assert_eq!(bench.deadline(), 12.0);
    let Some(Outcome::Failed(failure)) = &bench.outcome else {
        panic!("{:?}", bench.outcome);
    };
    assert_eq!(failure.reason, NO_PUBLISHER);
    assert_eq!(failure.detail, "rtmp://h/a was not published within 10s");
    assert!(bench.inputs().is_empty());
    // Stopped earlier: only a wait of at least a second without any stream is a failure.
    assert_eq!(Bench::new(0).stop(2), None);
    assert_eq!(Bench::new(0).stop(3), Some(NO_PUBLISHER));
    let mut bench = Bench::new(9);
    bench.topic_message("a", Publication::LIVE);
    assert_eq!(bench.stop(4), None);
    let mut bench = Bench::new(9);
    bench.topic_message("a", Publication::LIVE);
    bench.topic_message("a", Publication::GONE);
    assert_eq!(bench.stop(4), None);
}
