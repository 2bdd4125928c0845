//! Tests of channel changes.

use super::*;
use kit::media::ts::flow::{TsFlow, TsFlowSettings};
use kit::mediagen::ts::looped_stream::LoopedStream;

fn url(channel: usize) -> String {
    format!("http://10.0.0.1/udp/239.81.0.{channel}:4056")
}

fn channels_of(urls: &[String], in_turn: bool) -> Channels<Url> {
    let urls = urls.iter().map(|url| Url::parse(url).expect("a URL"));
    Channels::new(urls.collect(), in_turn)
}

/// A client that begins on channel 1 of `channels`.
fn zapping(keys: &str, channels: usize, in_turn: bool, seed: u64) -> Bench {
    let config: ClientConfig = serde_json::from_str(keys).expect("valid");
    assert_eq!(config.check(), Ok(()));
    let urls: Vec<String> = (1..=channels).map(url).collect();
    let channels = channels_of(&urls, in_turn);
    let mut bench = Bench::new(config, &urls[0]);
    bench.client = bench.client.zapping(Arc::new(channels), seed);
    bench
}

/// First datagrams of a channel, up to a picture.
fn media(channel: usize, datagrams: usize) -> Vec<u8> {
    let mut flow = TsFlow::new(TsFlowSettings {
        looped: Arc::new(LoopedStream::synthetic(1_000_000).expect("a bit rate")),
        group: format!("239.81.0.{channel}:4056").parse().expect("a group"),
        source: 7,
        rtp: None,
        wall_clock: Duration::from_secs(1_700_000_000),
        length: None,
    });
    flow.start(Time::ZERO);
    let mut bytes = Vec::new();
    for _ in 0..datagrams {
        let due = flow.next_due().expect("it is endless");
        let packet = flow.next_packet(due).expect("it is due");
        bytes.extend_from_slice(&packet.header);
        bytes.extend_from_slice(&packet.payload);
    }
    bytes
}

/// Number of datagrams that include a picture.
const PICTURE_DATAGRAMS: usize = 60;

impl Bench {
    /// Returns the requested channel, after the connection to the previous one was closed.
    fn requested_channel(&mut self) -> usize {
        while matches!(
            self.out.front(),
            Some(Output::Close { .. } | Output::Note(_))
        ) {
            self.out.pop_front();
        }
        let request = self.accept();
        let group = request
            .strip_prefix("GET /udp/239.81.0.")
            .and_then(|rest| rest.split(':').next());
        group
            .and_then(|group| group.parse().ok())
            .expect("a channel")
    }

    /// Waits until the next change is due, and starts it `late` ms later.
    fn change(&mut self, late: u64) {
        self.out.clear();
        self.now = self.client.deadline().expect("a change is to come");
        self.after(late);
        self.input(Input::Deadline);
    }

    fn plays(&mut self, channel: usize) {
        self.bytes(b"HTTP/1.1 200 OK\r\n\r\n");
        self.bytes(&media(channel, PICTURE_DATAGRAMS));
    }

    /// Number of values of a distribution, and the largest in milliseconds.
    fn delays(&self, histogram: measure::HistogramId) -> (u64, u64) {
        self.recorder.histogram(histogram).map_or((0, 0), |found| {
            (found.count(), found.max().unwrap_or(0) / 1_000_000)
        })
    }

    fn zaps(&self) -> (u64, u64, u64) {
        let count = |counter| self.count(counter);
        (
            count(clients::ZAPS),
            count(clients::ZAPS_FAILED),
            count(clients::ZAPS_UNFINISHED),
        )
    }
}

#[test]
fn zap_delays_are_measured_from_the_schedule() {
    let mut bench = zapping(r#"{"zap":{"every":"5s"}}"#, 3, true, 1);
    let began = bench.now;
    bench.start();
    assert_eq!(bench.requested_channel(), 1);
    bench.plays(1);
    let first = bench.delay(ts::RANDOM_ACCESS_DELAY);
    for (number, channel) in [2, 3, 1].into_iter().enumerate() {
        let due = began + Duration::from_secs(5 * (number as u64 + 1));
        assert_eq!(bench.client.deadline(), Some(due));
        bench.change(40);
        assert!(
            matches!(bench.out.front(), Some(Output::Close { channel }) if *channel == bench.channel)
        );
        assert_eq!(bench.requested_channel(), channel);
        bench.after(100);
        bench.plays(channel);
    }
    // 40 ms late, 10 ms to connect, 100 ms to the media.
    assert_eq!(bench.delays(clients::ZAP_DELAY), (3, 150));
    assert_eq!(bench.delays(clients::ZAP_FIRST_BYTE_DELAY), (3, 150));
    assert_eq!(bench.zaps(), (3, 0, 0));
    // The client started once.
    assert_eq!(bench.delay(ts::RANDOM_ACCESS_DELAY), first);
    for once in [
        ts::PAT_DELAY,
        ts::PMT_DELAY,
        m::FIRST_BYTE_DELAY,
        clients::STARTUP_DELAY,
        clients::CONNECT_DELAY,
    ] {
        assert_eq!(bench.delays(once).0, 1);
    }
    // Each channel has its own numbers, and all datagrams are accounted for.
    let whole = 4 * PICTURE_DATAGRAMS as u64;
    for (counter, wanted) in [
        (ts::EXPECTED, whole),
        (ts::RECEIVED, whole),
        (ts::FOREIGN, 0),
        (ts::CONTINUITY_ERRORS, 0),
        (ts::RESTARTS, 0),
        (ts::TS_PACKETS, 7 * whole),
    ] {
        assert_eq!(bench.count(counter), wanted, "{counter:?}");
    }
    let wire_bytes = bench.count(ts::WIRE_BYTES);
    bench.stop();
    let (before, outcome) = bench.ended();
    assert_eq!(outcome, Outcome::Stopped);
    let Some(Output::Streams(streams)) = before.last() else {
        panic!("{before:?}");
    };
    let streams = summaries(streams);
    assert_eq!(streams[0].url, "the 3 previous channels");
    assert_eq!(streams[1].url, url(1));
    let sum = |of: fn(&StreamSummary) -> u64| streams.iter().map(of).sum::<u64>();
    assert_eq!(sum(|stream| stream.counts.received), whole);
    assert_eq!(sum(|stream| stream.counts.wire_bytes), wire_bytes);
    let packets = |stream: &StreamSummary| stream.ts.as_ref().map_or(0, |ts| ts.counts.ts_packets);
    assert_eq!(sum(packets), 7 * whole);
}

#[test]
fn stays_and_channels_are_drawn_from_the_seed() {
    let play = |seed| {
        let mut bench = zapping(r#"{"zap":{"every":"2s..10s"}}"#, 8, false, seed);
        bench.start();
        bench.requested_channel();
        bench.plays(1);
        let mut last = (bench.now - Duration::from_millis(15), 1);
        let mut seen = Vec::new();
        for _ in 0..60 {
            let due = bench.client.deadline().expect("a change");
            let stay = due.since(last.0).as_millis() as u64;
            assert!((2000..=10_000).contains(&stay), "{stay}");
            bench.change(0);
            let channel = bench.requested_channel();
            assert_ne!(channel, last.1);
            bench.plays(channel);
            seen.push((stay, channel));
            last = (due, channel);
        }
        seen
    };
    let one = play(1);
    assert_eq!(one, play(1));
    assert_ne!(one, play(2));
    assert!((1..=8).all(|channel| one.iter().any(|&(_, other)| other == channel)));
}

#[test]
fn channel_listed_twice_does_not_follow_itself() {
    let urls = [url(1), url(1), url(2), url(1)];
    for in_turn in [true, false] {
        let channels = channels_of(&urls, in_turn);
        let mut random = rand_pcg::Pcg64Mcg::new(5);
        for _ in 0..100 {
            assert_eq!(channels.next_index(1, &mut random), 2);
            assert_ne!(channels.next_index(2, &mut random), 2);
        }
    }
}

#[test]
fn client_leaves_after_the_last_change() {
    let mut bench = zapping(r#"{"zap":{"every":"2s","count":2}}"#, 2, true, 1);
    bench.start();
    bench.requested_channel();
    bench.plays(1);
    for channel in [2, 1] {
        bench.change(0);
        assert_eq!(bench.requested_channel(), channel);
        bench.plays(channel);
    }
    bench.change(0);
    assert_eq!(bench.ended().1, Outcome::Stopped);
    assert_eq!(bench.zaps(), (2, 0, 0));
}

#[test]
fn failed_change_is_counted_and_the_next_one_follows() {
    let mut bench = zapping(
        r#"{"zap":{"every":"20s"},"no_media":"3s","silence":"30s"}"#,
        2,
        true,
        1,
    );
    bench.start();
    bench.requested_channel();
    bench.plays(1);
    type Fails = fn(&mut Bench);
    let ways: [(CounterId, Fails, &str); 7] = [
        (
            clients::ZAPS_FAILED_503,
            |bench| bench.bytes(b"HTTP/1.1 503 Busy\r\n\r\n"),
            "status_503",
        ),
        (
            clients::ZAPS_FAILED_STATUS,
            |bench| bench.bytes(b"HTTP/1.1 404 No\r\n\r\n"),
            "status_404",
        ),
        (
            clients::ZAPS_FAILED_NOT_TS,
            |bench| bench.bytes(b"HTTP/1.1 200 OK\r\n\r\n<!DOCTYPE html><html>"),
            "not_ts",
        ),
        (
            clients::ZAPS_FAILED_SILENT,
            |bench| {
                bench.bytes(b"HTTP/1.1 200 OK\r\n\r\n");
                bench.deadline();
            },
            "no_media",
        ),
        (
            clients::ZAPS_FAILED_BROKEN,
            Bench::closed,
            "closed_in_response",
        ),
        (
            clients::ZAPS_FAILED_BROKEN,
            |bench| {
                bench.bytes(b"HTTP/1.1 200 OK\r\n\r\n");
                bench.bytes(&packets(6));
                bench.closed();
            },
            "closed_in_media",
        ),
        (
            clients::ZAPS_FAILED_WRONG_CHANNEL,
            |bench| {
                bench.bytes(b"HTTP/1.1 200 OK\r\n\r\n");
                // Channel 3 is never requested.
                bench.bytes(&media(3, PICTURE_DATAGRAMS));
                bench.change(0);
            },
            "wrong_channel",
        ),
    ];
    let count = ways.len() as u64;
    for (counter, fails, reason) in ways {
        // The channel that fails last may be the previous one.
        bench.change(0);
        bench.requested_channel();
        let before = bench.count(counter);
        let mut notes = Vec::new();
        fails(&mut bench);
        for output in &bench.out {
            match output {
                Output::Note(note) => notes.push((note.kind, note.text.clone())),
                Output::Ended(outcome) => panic!("{reason}: {outcome:?}"),
                _ => {}
            }
        }
        assert_eq!(bench.count(counter), before + 1, "{reason}");
        let [("zap_failed", text)] = &notes[..] else {
            panic!("{reason}: {notes:?}");
        };
        assert!(
            text.starts_with("http://10.0.0.1/udp/239.81.0.") && text.contains(reason),
            "{text}"
        );
    }
    assert_eq!(bench.zaps().1, count);
    bench.stop();
    assert_eq!(bench.ended().1, Outcome::Stopped);
    // The last case had already begun a change.
    assert_eq!(bench.zaps(), (count + 1, count, 1));
    assert_eq!(bench.count(clients::FAILED), 0);
}

#[test]
fn late_error_of_an_abandoned_connection_is_ignored() {
    let mut bench = zapping(r#"{"zap":{"every":"5s"}}"#, 2, true, 1);
    bench.start();
    bench.requested_channel();
    bench.plays(1);
    bench.change(0);
    let Some(Output::Open { channel, .. }) = bench.out.pop_back() else {
        panic!("{:?}", bench.out);
    };
    let error = ChannelError::Refused;
    bench.input(Input::OpenFailed { channel, error });
    assert_eq!(bench.count(clients::ZAPS_FAILED_CONNECT), 1);
    // A second error of the same connection has no effect, nor has one of an abandoned connection.
    bench.input(Input::OpenFailed { channel, error });
    assert_eq!(bench.zaps(), (1, 1, 0));
    bench.change(0);
    let Some(Output::Open { channel, .. }) = bench.out.pop_back() else {
        panic!("{:?}", bench.out);
    };
    bench.change(0);
    assert_eq!(bench.zaps(), (3, 2, 0), "no connection for 5 s");
    bench.input(Input::OpenFailed { channel, error });
    assert_eq!(bench.requested_channel(), 2);
    bench.plays(2);
    assert_eq!(bench.delays(clients::ZAP_DELAY).0, 1);
}

#[test]
fn change_before_the_picture_counts_as_unfinished() {
    let mut bench = zapping(r#"{"zap":{"every":"500ms"}}"#, 4, true, 1);
    bench.start();
    bench.requested_channel();
    bench.plays(1);
    bench.change(0);
    bench.requested_channel();
    bench.change(0);
    bench.requested_channel();
    bench.bytes(b"HTTP/1.1 200 OK\r\n\r\n");
    bench.bytes(&packets(20));
    bench.change(0);
    assert_eq!(bench.zaps(), (3, 0, 2));
    assert_eq!(bench.delays(clients::ZAP_DELAY).0, 0);
    assert_eq!(bench.delays(clients::ZAP_FIRST_BYTE_DELAY).0, 1);
}

#[test]
fn failure_of_the_first_channel_fails_the_client() {
    let mut bench = zapping(r#"{"zap":{"every":"5s"}}"#, 2, true, 1);
    bench.start();
    bench.requested_channel();
    bench.bytes(b"HTTP/1.1 503 Busy\r\n\r\n");
    assert_eq!(bench.failed().0, "status_503");
    let mut bench = zapping(r#"{"zap":{"every":"5s"}}"#, 2, true, 1);
    bench.start();
    bench.requested_channel();
    bench.change(0);
    assert_eq!(bench.failed().0, "timeout_response");
    // So does an end after the picture had arrived.
    let mut bench = zapping(r#"{"zap":{"every":"5s"}}"#, 2, true, 1);
    bench.start();
    bench.requested_channel();
    bench.plays(1);
    bench.change(0);
    bench.requested_channel();
    bench.plays(2);
    bench.closed();
    assert_eq!(bench.ended_by_server(), "closed_in_media");
    assert_eq!(bench.zaps(), (1, 0, 0));
}

#[test]
fn datagrams_of_the_old_channel_are_detected() {
    for named in [true, false] {
        let mut bench = zapping(r#"{"zap":{"every":"5s"}}"#, 2, true, 1);
        if !named {
            let urls = [
                "http://10.0.0.1/one".to_owned(),
                "http://10.0.0.1/two".to_owned(),
            ];
            let channels = channels_of(&urls, true);
            bench.client = Client::new(bench.client.config.clone(), &urls[0])
                .expect("a URL")
                .zapping(Arc::new(channels), 1);
        }
        bench.start();
        bench.accept();
        bench.plays(1);
        bench.change(0);
        bench.out.pop_front();
        bench.accept();
        bench.after(100);
        bench.bytes(b"HTTP/1.1 200 OK\r\n\r\n");
        bench.bytes(&media(1, PICTURE_DATAGRAMS));
        // A picture, but not that of the new channel.
        assert_eq!(bench.delays(clients::ZAP_DELAY).0, 0);
        bench.after(1000);
        bench.bytes(&media(2, PICTURE_DATAGRAMS));
        assert_eq!(bench.delays(clients::ZAP_DELAY), (1, 1110));
        let counts = |bench: &Bench| {
            let count = |counter| bench.count(counter);
            (
                count(ts::FOREIGN),
                count(ts::OLD_CHANNEL),
                count(ts::RECEIVED),
            )
        };
        let each = PICTURE_DATAGRAMS as u64;
        assert_eq!(counts(&bench), (each, each, 2 * each));
        assert_eq!(bench.count(ts::CONTINUITY_ERRORS), 0);
        // With the old channel only, there is no picture, and the change fails.
        bench.change(0);
        bench.out.pop_front();
        bench.accept();
        bench.bytes(b"HTTP/1.1 200 OK\r\n\r\n");
        bench.bytes(&media(2, PICTURE_DATAGRAMS));
        bench.stop();
        assert_eq!(bench.ended().1, Outcome::Stopped);
        assert_eq!(counts(&bench), (2 * each, 2 * each, 2 * each));
        assert_eq!(bench.zaps(), (2, 1, 0));
        assert_eq!(bench.count(clients::ZAPS_FAILED_WRONG_CHANNEL), 1);
    }
}

#[test]
fn change_to_video_without_a_picture_fails() {
    let mut bench = zapping(r#"{"zap":{"every":"5s"}}"#, 2, true, 1);
    bench.start();
    bench.requested_channel();
    bench.plays(1);
    bench.change(0);
    bench.requested_channel();
    bench.bytes(b"HTTP/1.1 200 OK\r\n\r\n");
    bench.watch(3000, 3000, false);
    bench.change(0);
    assert_eq!(bench.zaps(), (2, 1, 0));
    assert_eq!(bench.count(clients::ZAPS_FAILED_NO_PICTURE), 1);
    assert_eq!(bench.requested_channel(), 1);
}
