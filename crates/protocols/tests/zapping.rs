//! Clients of each protocol that change channel, against its reference server in virtual time.

use std::time::Duration;

use measure::{CounterId, HistogramId, Time};
use serde_json::{Value, json};
use session::link::Loss;

use kit::descriptor::{ClientIdentity, PopulationPlan, Protocol, RunContext};
use kit::metrics as m;
use protocols::{RTMP_PROTOCOL, RTSP_PROTOCOL, SRT_PROTOCOL, WEBRTC_PROTOCOL};
use session::testing::{Pair, PairSettings, RunEnd, SessionNumber, Side};
use session::{Context, Input, Outcome, Output, Service, Session, Start};

const CLIENT: SessionNumber = SessionNumber(0);
const WALL_CLOCK: Duration = Duration::from_secs(1_700_000_000);

/// A client that changes between these URLs in turn. It begins with the first one.
fn client(protocol: &Protocol, keys: Value, urls: &[&str]) -> Box<dyn Session> {
    let config = protocol.read_keys(keys).expect("the keys are good");
    assert_eq!(config.check(), Ok(()));
    let context = RunContext::default();
    context.set_wall_clock(WALL_CLOCK);
    let urls: Vec<String> = urls.iter().map(|&url| url.to_owned()).collect();
    let mut clients = config.clients(None, &context).expect("they can be made");
    let plan = PopulationPlan {
        urls: &urls,
        in_turn: true,
        may_change_url: false,
        clients: 1,
    };
    clients.set_population(&plan).expect("the URLs are good");
    let identity = ClientIdentity {
        seed: 7,
        ..ClientIdentity::default()
    };
    let client = clients.client(&urls[0], identity);
    client.expect("the URL is good")
}

fn settings(protocol: &Protocol, port: u16) -> PairSettings {
    PairSettings {
        port,
        ..PairSettings::new(1, protocol.catalogue)
    }
}

fn count(pair: &mut Pair, counter: CounterId) -> u64 {
    pair.recorder(Side::Client).counter(counter)
}

/// Number of values of a distribution, and the largest one.
fn delays(pair: &mut Pair, histogram: HistogramId) -> (u64, Duration) {
    let recorder = pair.recorder(Side::Client);
    recorder
        .histogram(histogram)
        .map_or_else(Default::default, |own| {
            (own.count(), Duration::from_nanos(own.max().unwrap_or(0)))
        })
}

/// Runs a client that makes two changes, and checks that both showed a picture within `longest`.
fn two_changes_succeed(pair: &mut Pair, longest: Duration) {
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    assert_eq!(
        pair.outcome(CLIENT),
        Some(&Outcome::Stopped),
        "{:?}",
        notes(pair)
    );
    let counters = [m::ZAPS, m::ZAPS_FAILED, m::ZAPS_UNFINISHED];
    assert_eq!(counters.map(|counter| count(pair, counter)), [2, 0, 0]);
    let (pictures, picture) = delays(pair, m::ZAP_DELAY);
    let (first_bytes, first_byte) = delays(pair, m::ZAP_FIRST_BYTE_DELAY);
    assert_eq!((pictures, first_bytes), (2, 2));
    assert!(Duration::ZERO < first_byte && first_byte <= picture && picture <= longest);
    // The delays of a start belong to the first channel.
    for start in [
        m::STARTUP_DELAY,
        m::STARTUP_DELAY_FROM_SENT,
        m::CONNECT_DELAY,
    ] {
        assert_eq!(delays(pair, start).0, 1);
    }
    let said: Vec<_> = pair
        .outputs()
        .iter()
        .filter(|said| said.0 == CLIENT)
        .collect();
    let count_of = |is: fn(&Output) -> bool| said.iter().filter(|said| is(&said.1)).count();
    assert_eq!(count_of(|said| matches!(said, Output::Playing { .. })), 1);
    assert_eq!(services(pair), [SERVED_WELL]);
    let rows = said.iter().find_map(|(_, said)| match said {
        Output::Streams(rows) => Some(rows.iter().map(|row| row.to_json())),
        _ => None,
    });
    let rows: Vec<Value> = rows.expect("it has played").collect();
    let urls: Vec<&str> = rows.iter().filter_map(|row| row["url"].as_str()).collect();
    let (left, last) = urls.split_last().expect("there are rows");
    assert_eq!(*left, "the 2 previous channels");
    assert!(last.iter().all(|url| url.contains("stream3")), "{urls:?}");
}

const SERVED_WELL: Service = Service {
    start: Start::InTime,
    stalled: false,
    lossy: false,
};

/// How the client was served, once for each time that it said so.
fn services(pair: &Pair) -> Vec<Service> {
    let said = pair.outputs().iter().filter(|said| said.0 == CLIENT);
    let services = said.filter_map(|(_, said)| match said {
        Output::Viewed(service) => Some(*service),
        _ => None,
    });
    services.collect()
}

fn notes(pair: &Pair) -> Vec<String> {
    let said = pair.outputs().iter();
    let notes = said.filter_map(|(_, said)| match said {
        Output::Note(note) => Some(format!("{}: {}", note.kind, note.text)),
        _ => None,
    });
    notes.collect()
}

#[test]
fn rtsp_clients_tear_down_and_play_another_stream() {
    const URLS: [&str; 3] = [
        "rtsp://server/stream1",
        "rtsp://server/stream2",
        "rtsp://server/stream3",
    ];
    for transport in ["udp", "tcp"] {
        let keys = json!({"transport": transport, "zap": {"every": "3s", "count": 2}});
        let server = rtsp::server::ServerConfig {
            audio: true,
            gop: Some(25),
            ..Default::default()
        };
        let server = rtsp::server::Server::new(server).expect("it can be made");
        let client = client(&RTSP_PROTOCOL, keys, &URLS);
        let settings = settings(&RTSP_PROTOCOL, 554);
        let mut pair = Pair::new(settings, client, move |number| {
            server.session(number.0 as u64)
        });
        two_changes_succeed(&mut pair, Duration::from_millis(1_200));
        let sessions = pair.sessions(Side::Server).collect::<Vec<_>>();
        assert_eq!(sessions.len(), 3, "{transport}");
        for session in sessions {
            assert_eq!(
                pair.outcome(session),
                Some(&Outcome::Completed),
                "{transport}"
            );
        }
        let loss = [
            kit::media::rtp::metrics::EXPECTED,
            kit::media::rtp::metrics::RECEIVED,
        ];
        let [expected, received] = loss.map(|counter| count(&mut pair, counter));
        assert!(
            expected > 1_000 && expected == received,
            "{received} of {expected}"
        );
    }
}

#[test]
fn viewer_is_judged_once_for_all_its_channels() {
    let urls = ["rtsp://server/stream1", "rtsp://server/stream2"];
    let served = |bounds: Value, loss: f64| {
        let keys = json!({"zap": {"every": "2s", "count": 2}, "served_well": bounds});
        let server = rtsp::server::ServerConfig::default();
        let server = rtsp::server::Server::new(server).expect("it can be made");
        let client = client(&RTSP_PROTOCOL, keys, &urls);
        let mut settings = settings(&RTSP_PROTOCOL, 554);
        settings.down.loss = Loss::Random(loss);
        let mut pair = Pair::new(settings, client, move |number| {
            server.session(number.0 as u64)
        });
        assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
        assert_eq!(count(&mut pair, m::ZAPS), 2);
        services(&pair)
    };
    // A round trip takes 2 ms, so media cannot arrive within 1 ms.
    let late = Service {
        start: Start::Late,
        ..SERVED_WELL
    };
    assert_eq!(served(json!({"start": "1ms"}), 0.0), [late]);
    assert_eq!(served(json!({}), 0.0), [SERVED_WELL]);
    let [lossy] = served(json!({"loss": "1%", "stalled": "60s"}), 0.05)[..] else {
        panic!("it was judged more than once, or not at all");
    };
    assert!(lossy.lossy && !lossy.stalled, "{lossy:?}");
    assert_eq!(
        served(json!({"loss": "50%", "stalled": "60s"}), 0.05),
        [SERVED_WELL]
    );
}

#[test]
fn rtsp_change_to_a_missing_stream_fails_and_the_client_goes_on() {
    let urls = ["rtsp://server/stream1", "rtsp://server/stream2"];
    let server = rtsp::server::ServerConfig {
        streams: Some(1),
        ..Default::default()
    };
    let server = rtsp::server::Server::new(server).expect("it can be made");
    let client = client(
        &RTSP_PROTOCOL,
        json!({"zap": {"every": "2s", "count": 2}}),
        &urls,
    );
    let settings = settings(&RTSP_PROTOCOL, 554);
    let mut pair = Pair::new(settings, client, move |number| {
        server.session(number.0 as u64)
    });
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    assert_eq!(pair.outcome(CLIENT), Some(&Outcome::Stopped));
    let counters = [
        m::ZAPS,
        m::ZAPS_FAILED,
        m::ZAPS_FAILED_STATUS,
        m::ZAPS_UNFINISHED,
    ];
    assert_eq!(
        counters.map(|counter| count(&mut pair, counter)),
        [2, 1, 1, 0]
    );
    assert_eq!(delays(&mut pair, m::ZAP_DELAY).0, 1);
    // The first channel decides whether the start was late. Failed changes count elsewhere.
    assert_eq!(services(&pair), [SERVED_WELL]);
    let notes = notes(&pair);
    let expected = "zap_failed: rtsp://server/stream2: status_404: ";
    assert!(
        notes.iter().any(|note| note.starts_with(expected)),
        "{notes:?}"
    );
}

fn rtmp_server() -> rtmp::server::Server {
    let config = rtmp::server::ServerConfig {
        wall_clock: WALL_CLOCK,
        ..Default::default()
    };
    rtmp::server::Server::new(config).expect("it can be made")
}

fn rtmp_keys() -> Value {
    json!({"zap": {"every": "4s", "count": 2}})
}

#[test]
fn rtmp_clients_change_stream_on_one_connection() {
    let urls = [
        "rtmp://server/live/stream1",
        "rtmp://server/live/stream2",
        "rtmp://server/live/stream3",
    ];
    let server = rtmp_server();
    let client = client(&RTMP_PROTOCOL, rtmp_keys(), &urls);
    let settings = settings(&RTMP_PROTOCOL, 1935);
    let mut pair = Pair::new(settings, client, move |number| {
        server.session(number.0 as u64)
    });
    two_changes_succeed(&mut pair, Duration::from_millis(2_500));
    assert_eq!(pair.sessions(Side::Server).count(), 1);
}

#[test]
fn rtmp_clients_change_application_on_a_new_connection() {
    let urls = [
        "rtmp://server/a/stream1",
        "rtmp://server/b/stream2",
        "rtmp://server/c/stream3",
    ];
    let server = rtmp_server();
    let client = client(&RTMP_PROTOCOL, rtmp_keys(), &urls);
    let settings = settings(&RTMP_PROTOCOL, 1935);
    let mut pair = Pair::new(settings, client, move |number| {
        server.session(number.0 as u64)
    });
    two_changes_succeed(&mut pair, Duration::from_millis(2_500));
    assert_eq!(pair.sessions(Side::Server).count(), 3);
}

/// Behaviour of a server that plays one stream in a connection, when its client leaves that.
#[derive(Clone, Copy, PartialEq)]
enum AfterStream {
    /// The server closes the connection.
    Closes,
    /// The server ignores the client after that.
    Ignores,
}

/// A server's session that plays only one stream in a connection.
struct OneStream {
    session: Box<dyn Session>,
    after: AfterStream,
    is_left: bool,
}

impl Session for OneStream {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if let Input::Bytes { bytes, .. } = &input {
            let name = b"deleteStream";
            self.is_left |= bytes.windows(name.len()).any(|window| window == name);
        }
        match (&input, self.is_left, self.after) {
            (Input::Bytes { .. }, true, AfterStream::Closes) => {
                self.session.handle(cx, Input::Stop { until: cx.now });
            }
            (Input::Bytes { .. }, true, AfterStream::Ignores) => {}
            _ => self.session.handle(cx, input),
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.session.deadline()
    }
}

#[test]
fn rtmp_servers_that_play_one_stream_get_new_connections() {
    let urls = [
        "rtmp://server/live/stream1",
        "rtmp://server/live/stream2",
        "rtmp://server/live/stream3",
    ];
    for (after, longest) in [(AfterStream::Closes, 2_500), (AfterStream::Ignores, 3_500)] {
        let server = rtmp_server();
        let client = client(&RTMP_PROTOCOL, rtmp_keys(), &urls);
        let settings = settings(&RTMP_PROTOCOL, 1935);
        let mut pair = Pair::new(settings, client, move |number| {
            Box::new(OneStream {
                session: server.session(number.0 as u64),
                after,
                is_left: false,
            })
        });
        two_changes_succeed(&mut pair, Duration::from_millis(longest));
        // The second change does not try the old connection again.
        assert_eq!(pair.sessions(Side::Server).count(), 3);
    }
}

#[test]
fn srt_clients_call_again_with_another_stream_id() {
    let urls = [
        "srt://10.0.0.2:554?streamid=stream1",
        "srt://10.0.0.2:554?streamid=stream2",
        "srt://10.0.0.2:554?streamid=stream3",
    ];
    let client = client(
        &SRT_PROTOCOL,
        json!({"zap": {"every": "3s", "count": 2}}),
        &urls,
    );
    let settings = settings(&SRT_PROTOCOL, 554);
    let mut pair = Pair::new(settings, client, |_| unreachable!("it is UDP"));
    let config = srt::server::ServerConfig {
        wall_clock: WALL_CLOCK,
        ..Default::default()
    };
    let server = srt::server::Server::new(config).expect("it can be made");
    pair.set_endpoint(server.endpoint(0));
    two_changes_succeed(&mut pair, Duration::from_millis(1_500));
    assert_eq!(pair.sessions(Side::Server).count(), 3);
    assert_eq!(count(&mut pair, srt::metrics::PKT_RCV_DROP), 0);
    // Time codes in the pictures of all three channels: 1 ms on the way, and the time in which the
    // packets of a picture leave.
    let (pictures, longest) = delays(&mut pair, kit::media::ts::metrics::FRAME_DELAY);
    let delivered = count(&mut pair, kit::media::ts::metrics::FRAMES_DELIVERED);
    assert!((150..=250).contains(&pictures), "{pictures}");
    assert_eq!(pictures, delivered);
    assert!(
        (Duration::from_millis(1)..Duration::from_millis(150)).contains(&longest),
        "{longest:?}"
    );
}

#[test]
fn srt_change_to_a_missing_stream_fails() {
    let urls = [
        "srt://10.0.0.2:554?streamid=stream1",
        "srt://10.0.0.2:554?streamid=stream2",
    ];
    let client = client(
        &SRT_PROTOCOL,
        json!({"zap": {"every": "2s", "count": 1}}),
        &urls,
    );
    let settings = settings(&SRT_PROTOCOL, 554);
    let mut pair = Pair::new(settings, client, |_| unreachable!("it is UDP"));
    let config = srt::server::ServerConfig {
        streams: Some(1),
        wall_clock: WALL_CLOCK,
        ..Default::default()
    };
    let server = srt::server::Server::new(config).expect("it can be made");
    pair.set_endpoint(server.endpoint(0));
    assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
    assert_eq!(pair.outcome(CLIENT), Some(&Outcome::Stopped));
    assert_eq!(
        count(&mut pair, m::ZAPS_FAILED_STATUS),
        1,
        "{:?}",
        notes(&pair)
    );
}

#[test]
fn whep_clients_begin_another_session() {
    let urls = [
        "whep+http://10.0.0.2:554/whep/stream1",
        "whep+http://10.0.0.2:554/whep/stream2",
        "whep+http://10.0.0.2:554/whep/stream3",
    ];
    let keys = json!({"receive": "decrypted", "zap": {"every": "3s", "count": 2}});
    let client = client(&WEBRTC_PROTOCOL, keys, &urls);
    let config = webrtc::server::ServerConfig {
        wall_clock: WALL_CLOCK,
        ..Default::default()
    };
    let server = webrtc::server::Server::new(config).expect("it can be made");
    let accepts = server.clone();
    let settings = settings(&WEBRTC_PROTOCOL, 554);
    let mut pair = Pair::new(settings, client, move |_| accepts.session());
    pair.set_endpoint(server.endpoint(0));
    two_changes_succeed(&mut pair, Duration::from_millis(2_500));
    let notes = notes(&pair);
    let is_unanswered = |note: &String| note.contains("goodbye_unanswered");
    assert!(!notes.iter().any(is_unanswered), "{notes:?}");
}

#[test]
fn stopped_client_says_goodbye_and_keeps_its_rows() {
    let urls = ["rtsp://server/stream1", "rtsp://server/stream2"];
    let server = rtsp::server::ServerConfig::default();
    let server = rtsp::server::Server::new(server).expect("it can be made");
    let client = client(&RTSP_PROTOCOL, json!({"zap": {"every": "60s"}}), &urls);
    let settings = settings(&RTSP_PROTOCOL, 554);
    let mut pair = Pair::new(settings, client, move |number| {
        server.session(number.0 as u64)
    });
    assert_eq!(pair.run(Duration::from_secs(5)), RunEnd::TimeUp);
    pair.stop(CLIENT, Duration::from_secs(2));
    assert_eq!(pair.run(Duration::from_secs(10)), RunEnd::Ended);
    assert_eq!(pair.outcome(CLIENT), Some(&Outcome::Stopped));
    let sessions: Vec<_> = pair.sessions(Side::Server).collect();
    assert_eq!(pair.outcome(sessions[0]), Some(&Outcome::Completed));
    let rows = pair.outputs().iter().find_map(|(_, said)| match said {
        Output::Streams(rows) => Some(rows.len()),
        _ => None,
    });
    assert_eq!(rows, Some(1));
}
