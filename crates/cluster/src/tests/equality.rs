//! Several runners measure what one does: in virtual time, against the reference server of each
//! protocol, every count and every histogram is equal bucket by bucket.
//!
//! Each client has a server and a seeded network of its own, so what it measures depends on its
//! identity alone. Its figures go the way of a runner's: they are merged into windows, encoded,
//! decoded, and merged over runners by the coordinator's merger.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{
    Dealing, MergedWindow, RunnerFigures, RunnerReport, TesterPart, WindowMerger, client_identity,
};
use kit::clients::Clients;
use kit::descriptor::{PopulationPlan, Protocol, RunContext};
use measure::{Catalogue, Time, Window, tester};
use protocols::PROTOCOLS;
use scenario::{Overrides, Pick, Scenario};
use session::testing::{Pair, PairSettings, SessionNumber, Side};
use session::{ChannelId, Context, Input, Outcome, Output, Port, Session};

use crate::reports::{Decoder, Encoder};

/// Number of clients, and the time in which they start.
const CLIENTS: u64 = 9;
const RAMP: &str = "3s";

/// Time that each client plays.
const PLAYS: Duration = Duration::from_secs(3);

const SEED: u64 = 41;

/// A protocol whose reference server needs no network besides that of its clients.
struct Subject {
    protocol: &'static Protocol,
    url: String,
    keys: &'static str,
    port: u16,
}

fn subjects() -> Vec<Subject> {
    let of = |protocol: &'static Protocol| {
        let server = protocol.server?;
        let (url, keys, port) = match (server.demo.as_ref(), protocol.name) {
            (Some(demo), _) => (demo.url, "", 8_000),
            (None, "messages") => (
                "tcp://127.0.0.1:{port}",
                "plan: {rate: 20/s}, answers: echo",
                8_000,
            ),
            (None, "proof") => ("proof://127.0.0.1:{port}", "", 8_000),
            // The reference server relays multicast groups, which the virtual network lacks.
            (None, "http-ts") => ("http://127.0.0.1:{port}/a.ts", "", 8_000),
            (None, _) => return None,
        };
        Some(Subject {
            protocol,
            url: url.replace("{port}", &port.to_string()),
            keys,
            port,
        })
    };
    PROTOCOLS
        .iter()
        .filter_map(|protocol| of(protocol))
        .collect()
}

/// A server that sends a transport stream in which packets are missing.
#[derive(Default)]
struct TransportStream {
    next: Option<Time>,
    packets: u32,
}

impl Session for TransportStream {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        let channel = ChannelId(0);
        match input {
            Input::Bytes { .. } if self.next.is_none() => {
                let head = b"HTTP/1.1 200 OK\r\nContent-Type: video/mp2t\r\n\r\n".to_vec();
                cx.out.push_back(Output::Send {
                    channel,
                    port: Port::Media,
                    bytes: head,
                });
                self.next = Some(cx.now);
            }
            Input::Deadline if self.next.is_some() => {
                let packets = (0..7).flat_map(|_| {
                    self.packets += 1 + u32::from(self.packets % 50 == 7);
                    let mut packet = [0xff; 188];
                    let counter = 0x10 | (self.packets % 16) as u8;
                    packet[..4].copy_from_slice(&[0x47, 0x01, 0x00, counter]);
                    packet
                });
                cx.out.push_back(Output::Send {
                    channel,
                    port: Port::Media,
                    bytes: packets.collect(),
                });
                self.next = Some(cx.now + Duration::from_millis(20));
            }
            Input::Closed { .. } | Input::Stop { .. } => {
                self.next = None;
                cx.out.push_back(Output::Ended(Outcome::Completed));
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.next
    }
}

impl Subject {
    fn scenario(&self) -> Scenario {
        protocols::install();
        let text = format!(
            "clients: {{viewers: {{urls: ['{}'], pick: in_turn, load: {{clients: {CLIENTS}, ramp: {RAMP}}}, {}}}}}\n\
             duration: 20s\nseed: {SEED}\n",
            self.url, self.keys
        );
        Scenario::parse("test", &text, &Overrides::default())
            .unwrap_or_else(|error| panic!("{}: {error:?}", self.protocol.name))
    }

    /// Plays one client, and returns its figures by second.
    fn play(&self, scenario: &Scenario, slot: u64) -> Vec<Window> {
        let population = &scenario.populations[0];
        let context = RunContext::default();
        context.set_wall_clock(Duration::from_secs(1_000));
        let clients = Clients::new(&population.config, None, &context)
            .and_then(|clients| {
                clients.among(&PopulationPlan {
                    urls: &population.urls,
                    in_turn: population.pick != Pick::Random,
                    may_change_url: false,
                    clients: CLIENTS,
                })
            })
            .unwrap_or_else(|error| panic!("{}: {error}", self.protocol.name));
        let identity = client_identity(scenario.seed, 0, slot, 0);
        let client = clients.client(&population.urls[0], identity);
        let client = client.unwrap_or_else(|error| panic!("{}: {error}", self.protocol.name));
        let reference = self.protocol.server.expect("it has one");
        let configured = reference.parse::<&str>(&[]);
        let server = configured.and_then(|own| own.settings.server(Duration::ZERO));
        let server = server.unwrap_or_else(|error| panic!("{}: {error}", self.protocol.name));
        let mut settings = PairSettings::new(identity.seed, self.protocol.catalogue);
        settings.port = self.port;
        settings.down.loss = session::link::Loss::Random(0.02);
        let endpoint = server.endpoint(0);
        let sends_by_itself = self.protocol.name == "http-ts";
        let mut pair = Pair::new(settings, client, move |number| match sends_by_itself {
            true => Box::new(TransportStream::default()),
            false => server.session(number.0 as u64),
        });
        if let Some(endpoint) = endpoint {
            pair.set_endpoint(endpoint);
        }
        let mut windows = Vec::new();
        for second in 0..PLAYS.as_secs() + 2 {
            if second == PLAYS.as_secs() {
                pair.stop(SessionNumber(0), Duration::from_secs(1));
            }
            pair.run(Duration::from_secs(1));
            windows.push(pair.recorder(Side::Client).take_window());
        }
        windows
    }

    /// Plays all clients of a runner, and returns its figures by second of the run.
    fn runner(&self, scenario: &Scenario, dealing: &Dealing, runner: usize) -> Vec<Window> {
        let mut windows: BTreeMap<u64, Window> = BTreeMap::new();
        let mut share =
            measure::load::Share::of(&scenario.populations[0].load, dealing.slots(0, runner));
        while let Some(measure::load::Action::Start { slot, due, .. }) =
            share.next_action(Time::NEVER)
        {
            let first = due.as_nanos() / 1_000_000_000;
            for (second, window) in (first..).zip(self.play(scenario, slot)) {
                let catalogue = self.protocol.catalogue;
                let whole = windows
                    .entry(second)
                    .or_insert_with(|| Window::empty(catalogue));
                whole.merge(&window, catalogue);
            }
        }
        let last = windows.keys().next_back().copied().unwrap_or(0);
        let empty = || Window::empty(self.protocol.catalogue);
        (0..=last)
            .map(|second| windows.remove(&second).unwrap_or_else(empty))
            .collect()
    }

    /// Plays a run with runners of these weights, and returns its figures by second.
    fn run(&self, weights: &[u32]) -> Vec<Window> {
        let scenario = self.scenario();
        let dealing = Dealing::new(&scenario, weights);
        let populations: Vec<(String, Catalogue)> =
            vec![("viewers".to_owned(), self.protocol.catalogue)];
        let mut merger: WindowMerger<RunnerFigures> =
            WindowMerger::new(weights.len(), vec![self.protocol.catalogue]);
        let mut all = Vec::new();
        for runner in 0..weights.len() {
            let windows = self.runner(&scenario, &dealing, runner);
            let encoder = Encoder::new(vec!["viewers".to_owned()]);
            let mut decoder = Decoder::new(&populations);
            let member = u32::try_from(runner).expect("there are few");
            for (index, window) in (0..).zip(windows) {
                let figures = RunnerFigures {
                    workers: Vec::new(),
                    process: Window::empty(tester::TESTER_CATALOGUE),
                };
                let report = RunnerReport::Window(Box::new(MergedWindow {
                    index,
                    begins: Time::from_start(Duration::from_secs(index)),
                    seconds: 1.0,
                    populations: vec![window],
                    testers: vec![TesterPart {
                        member: 0,
                        seconds: 1.0,
                        figures,
                    }],
                }));
                for piece in encoder.encode(&[report]) {
                    for report in decoder.add(&piece).expect("as written") {
                        let RunnerReport::Window(window) = report else {
                            panic!("only windows were sent");
                        };
                        merger.add(member, *window);
                    }
                }
            }
            merger.member_ended(member);
        }
        while let Some(window) = merger.take() {
            all.extend(window.populations);
        }
        all
    }
}

#[test]
fn several_runners_measure_what_one_does() {
    let mut compared = 0;
    for subject in subjects() {
        let name = subject.protocol.name;
        let one = subject.run(&[1]);
        let values = |windows: &[Window]| {
            let counts = windows.iter().flat_map(|window| window.counters.clone());
            let counts = counts.filter(|count| *count != 0).count();
            let histograms = windows
                .iter()
                .map(|window| window.histograms.len())
                .sum::<usize>();
            (counts, histograms)
        };
        let (counts, histograms) = values(&one);
        assert!(
            counts > 20 && histograms > 5,
            "{name}: {counts} {histograms}"
        );
        for weights in [&[1, 1][..], &[1, 1, 1, 1], &[1; 7], &[3, 1]] {
            let several = subject.run(weights);
            assert_eq!(several.len(), one.len(), "{name} {weights:?}");
            for (second, (one, several)) in one.iter().zip(&several).enumerate() {
                assert_eq!(one, several, "{name}, {weights:?}, second {second}");
            }
        }
        compared += 1;
    }
    assert!(compared >= 6, "{compared} protocols");
}
