//! Tests of the client with odd servers that players tolerate, message by message.

use std::collections::VecDeque;

use measure::{CounterId, Recorder};

use super::CATALOGUE;
use crate::client::*;
use crate::codec::message::MessageType;
use crate::codec::write::MessageHeader;
use kit::media::frames::metrics as frames;
use session::{Flows, Outbox};

const KEY: &[u8] = &[0x17, 1, 0, 0, 0];
const PICTURE: &[u8] = &[0x27, 1, 0, 0, 0];
const VIDEO_CONFIG: &[u8] = &[0x17, 0, 0, 0, 0];
const SOUND: &[u8] = &[0xaf, 1];

/// A client, and the script of a server.
struct Bench {
    client: Client,
    recorder: Recorder,
    now: Time,
    sinks: Sinks,
    flows: Flows,
    /// Message stream in which media is sent.
    stream: u32,
    /// Time of the first media.
    begun: Time,
    notes: Vec<Note>,
    outcome: Option<Outcome>,
}

impl Bench {
    /// A client that has started.
    fn new() -> Bench {
        let client = Client::new(ClientConfig::default(), "rtmp://10.0.0.2/live/x", 1);
        let mut bench = Bench {
            client: client.expect("a URL"),
            recorder: Recorder::new(CATALOGUE),
            now: Time::from_nanos(1_000_000_000),
            sinks: Sinks::default(),
            flows: Flows::default(),
            stream: 1,
            begun: Time::ZERO,
            notes: Vec::new(),
            outcome: None,
        };
        bench.input(Input::Start { due: bench.now });
        bench
    }

    fn input(&mut self, input: Input<'_>) -> Vec<u8> {
        let mut out = VecDeque::new();
        let mut cx = Context {
            now: self.now,
            recorder: &mut self.recorder,
            sinks: &mut self.sinks,
            flows: &mut self.flows,
            out: &mut out,
            outbox: &mut Outbox::default(),
        };
        self.client.handle(&mut cx, input);
        let mut sent = Vec::new();
        for output in out {
            match output {
                Output::Send { bytes, .. } => sent.extend(bytes),
                Output::Note(note) => self.notes.push(note),
                Output::Ended(outcome) => self.outcome = Some(outcome),
                _ => {}
            }
        }
        sent
    }

    fn receives(&mut self, bytes: &[u8]) {
        let at = self.now;
        self.input(Input::Bytes {
            channel: CHANNEL,
            bytes,
            at,
            runs: &[],
        });
    }

    /// Performs the handshake with a server whose S2 echoes C1 or not.
    fn shakes_hands(mut self, echo: bool) -> Bench {
        let hello = self.input(Input::Opened {
            channel: CHANNEL,
            local: "10.0.0.1:4000".parse().expect("an address"),
            remote: None,
        });
        let Ok(HandshakeStep::Send(mut answer)) = Handshake::server(2).receive(&hello, &mut 0)
        else {
            panic!("a hello is answered");
        };
        if !echo && let Some(last) = answer.last_mut() {
            *last = !*last;
        }
        self.receives(&answer);
        self
    }

    fn sends_command(&mut self, name: &str, transaction: f64, arguments: Vec<Value>) {
        let command = Command {
            name: name.to_owned(),
            transaction,
            arguments,
        };
        let mut bytes = Vec::new();
        write::command(&command, 0, 128, &mut bytes);
        self.receives(&bytes);
    }

    fn status(&mut self, code: &str) {
        let information = vec![
            ("level".to_owned(), Value::string("status")),
            ("code".to_owned(), Value::string(code)),
        ];
        self.sends_command(
            "onStatus",
            0.0,
            vec![Value::Null, Value::Object(information)],
        );
    }

    /// A client that plays from a server whose S2 echoes C1 or not.
    fn plays(echo: bool) -> Bench {
        let mut bench = Bench::new().shakes_hands(echo);
        bench.sends_command("_result", 1.0, vec![Value::Null]);
        bench.sends_command("_result", 2.0, vec![Value::Null, Value::Number(1.0)]);
        bench.status("NetStream.Play.Start");
        bench.begun = bench.now;
        bench
    }

    fn media(&mut self, kind: MessageType, payload: &[u8]) {
        let timestamp = self.now.since(self.begun).as_millis() as u32;
        let head = MessageHeader {
            chunk_stream: if kind == MessageType::Video { 6 } else { 4 },
            kind,
            timestamp,
            stream: self.stream,
        };
        let mut bytes = Vec::new();
        head.write(&[payload, &[7; 20]], 128, &mut bytes);
        self.receives(&bytes);
    }

    /// Sends both 25 times a second for `seconds`; the payloads begin with the given bytes.
    fn sends_media_for(&mut self, seconds: u64, video: Option<&[u8]>, audio: Option<&[u8]>) {
        for _ in 0..seconds * 25 {
            if let Some(video) = video {
                self.media(MessageType::Video, video);
            }
            if let Some(audio) = audio {
                self.media(MessageType::Audio, audio);
            }
            self.now += Duration::from_millis(40);
        }
    }

    /// Lets time pass without any input.
    fn waits(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while let Some(due) = self.client.deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.input(Input::Deadline);
        }
        self.now = end;
    }

    /// Returns when the server ended the stream, relative to the answer to play, and the
    /// description.
    fn ended_by_server(&self) -> (Duration, &str) {
        match &self.outcome {
            Some(Outcome::EndedByServer {
                at,
                in_order: true,
                failure,
            }) => {
                assert_eq!(failure.reason, "ended_by_server");
                (at.since(self.begun), &failure.detail)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Stops the client. Returns the reason and the detail of its failure.
    fn stops(&mut self) -> Option<(&'static str, String)> {
        let until = self.now;
        self.input(Input::Stop { until });
        match self.outcome.as_ref().expect("it has ended") {
            Outcome::Failed(failure) => Some((failure.reason, failure.detail.clone())),
            _ => None,
        }
    }

    fn count(&self, counter: CounterId) -> u64 {
        self.recorder.counter(counter)
    }

    fn most(&self, histogram: measure::HistogramId) -> f64 {
        let most = self.recorder.histogram(histogram).and_then(|all| all.max());
        Duration::from_nanos(most.expect("measured")).as_secs_f64()
    }

    fn notes(&self, kind: &str) -> Vec<&str> {
        let notes = self.notes.iter().filter(|note| note.kind == kind);
        notes.map(|note| &*note.text).collect()
    }
}

#[test]
fn frozen_video_is_counted_while_audio_plays() {
    let mut bench = Bench::plays(true);
    bench.sends_media_for(3, Some(KEY), Some(SOUND));
    bench.sends_media_for(5, None, Some(SOUND));
    assert_eq!(bench.stops(), None);
    assert_eq!(bench.count(m::STREAMS_SILENT), 1);
    assert_eq!(bench.count(frames::STALLS), 1);
    let gap = bench.most(frames::LONGEST_GAP);
    assert!((4.9..5.1).contains(&gap), "{gap}");
    let notes = bench.notes("silent_stream");
    assert!(notes[0].starts_with("no video for 5.0"), "{notes:?}");
}

#[test]
fn single_picture_counts_as_frozen_video() {
    let mut bench = Bench::plays(true);
    bench.media(MessageType::Video, KEY);
    bench.sends_media_for(4, None, Some(SOUND));
    assert_eq!(bench.stops(), None);
    assert_eq!(bench.count(m::STREAMS_SILENT), 1);
    assert_eq!(bench.count(frames::STALLS), 1);
}

#[test]
fn stopped_audio_is_counted_while_video_plays() {
    let mut bench = Bench::plays(true);
    bench.sends_media_for(3, Some(KEY), Some(SOUND));
    bench.sends_media_for(5, Some(KEY), None);
    assert_eq!(bench.stops(), None);
    assert_eq!(bench.count(m::STREAMS_SILENT), 1);
}

#[test]
fn audio_only_streams_and_short_gaps_are_not_counted() {
    let mut bench = Bench::plays(true);
    bench.sends_media_for(5, None, Some(SOUND));
    assert_eq!(bench.stops(), None);
    assert_eq!(bench.count(m::STREAMS_SILENT), 0);
    let mut bench = Bench::plays(true);
    bench.sends_media_for(3, Some(KEY), Some(SOUND));
    bench.sends_media_for(1, None, Some(SOUND));
    assert_eq!(bench.stops(), None);
    assert_eq!(bench.count(m::STREAMS_SILENT), 0);
}

#[test]
fn viewer_without_a_key_frame_fails() {
    for video in [PICTURE, VIDEO_CONFIG, &[0x1d, 1]] {
        let mut bench = Bench::plays(true);
        bench.sends_media_for(4, Some(video), Some(SOUND));
        let (reason, detail) = bench.stops().expect("it saw nothing");
        assert_eq!(reason, "no_picture", "{detail}");
    }
    // Too short for a failure.
    let mut bench = Bench::plays(true);
    bench.sends_media_for(1, Some(PICTURE), Some(SOUND));
    assert_eq!(bench.stops(), None);
}

#[test]
fn hevc_without_enhanced_rtmp_waits_for_its_key_frame() {
    let mut bench = Bench::plays(true);
    bench.media(MessageType::Video, &[0x1c, 0, 0, 0, 0]);
    bench.sends_media_for(3, Some(&[0x2c, 1, 0, 0, 0]), None);
    bench.sends_media_for(1, Some(&[0x1c, 1, 0, 0, 0]), None);
    assert_eq!(bench.stops(), None);
    assert_eq!(bench.count(m::VIDEO_FRAMES), 100);
    assert!((2.9..3.1).contains(&bench.most(m::KEY_FRAME_DELAY)));
}

#[test]
fn only_the_first_track_is_measured() {
    let track = |number: u8| [&b"\x95\x01mp4a"[..], &[number]].concat();
    let mut bench = Bench::plays(true);
    bench.sends_media_for(2, None, Some(&track(1)));
    assert_eq!(bench.stops(), None);
    assert_eq!(bench.count(m::AUDIO_FRAMES), 50);
    let mut bench = Bench::plays(true);
    for _ in 0..50 {
        bench.media(MessageType::Audio, SOUND);
        bench.media(MessageType::Audio, &track(1));
        bench.now += Duration::from_millis(40);
    }
    assert_eq!(bench.stops(), None);
    assert_eq!(bench.count(m::AUDIO_FRAMES), 50);
    assert_eq!(bench.count(m::OTHER_TRACKS), 50);
}

#[test]
fn media_of_unknown_format_is_no_frame_and_is_named() {
    let mut bench = Bench::plays(true);
    bench.sends_media_for(2, Some(&[0x1d, 1]), None);
    let (reason, detail) = bench.stops().expect("nothing came");
    assert_eq!(reason, "no_media");
    let words = "50 video messages of an unknown format: video 13";
    assert!(detail.contains(words), "{detail}");
    assert_eq!(bench.count(m::UNKNOWN_MEDIA), 50);
    assert_eq!(bench.count(frames::FRAMES), 0);
}

#[test]
fn server_without_echo_is_played() {
    for (echo, without) in [(true, 0), (false, 1)] {
        let mut bench = Bench::plays(echo);
        bench.sends_media_for(2, Some(KEY), Some(SOUND));
        assert_eq!(bench.stops(), None);
        assert_eq!(bench.count(frames::FRAMES), 100);
        assert_eq!(bench.count(m::HANDSHAKES_WITHOUT_ECHO), without);
    }
}

#[test]
fn media_in_another_message_stream_is_played() {
    for stream in [0, 5] {
        let mut bench = Bench::plays(true);
        bench.stream = stream;
        bench.sends_media_for(2, Some(KEY), Some(SOUND));
        assert_eq!(bench.stops(), None);
        assert_eq!(bench.count(frames::FRAMES), 100);
        assert_eq!(bench.count(m::OTHER_STREAM_MEDIA), 100);
    }
}

#[test]
fn unreadable_command_does_not_end_the_client() {
    let mut bench = Bench::plays(true);
    bench.sends_media_for(1, Some(KEY), None);
    // No name; a truncated name; a name without a transaction ID.
    for payload in [&[5][..], &[2, 0, 9, b'o'], &[2, 0, 1, b'o', 5]] {
        let head = MessageHeader {
            chunk_stream: 3,
            kind: MessageType::Command,
            timestamp: 0,
            stream: 0,
        };
        let mut bytes = Vec::new();
        head.write(&[payload], 128, &mut bytes);
        bench.receives(&bytes);
    }
    bench.sends_media_for(1, Some(KEY), None);
    assert_eq!(bench.stops(), None);
    assert_eq!(bench.count(frames::FRAMES), 50);
    assert_eq!(bench.count(m::UNREADABLE_COMMANDS), 2);
}

#[test]
fn redirect_target_of_connect_is_reported() {
    let mut bench = Bench::new().shakes_hands(true);
    let text = |name: &str, value: &str| (name.to_owned(), Value::string(value));
    let ex = vec![
        ("code".to_owned(), Value::Number(302.0)),
        text("redirect", "rtmp://10.0.0.9:1936/live"),
    ];
    let information = vec![
        text("level", "error"),
        text("code", "NetConnection.Connect.Rejected"),
        ("ex".to_owned(), Value::Object(ex)),
    ];
    bench.sends_command("_error", 1.0, vec![Value::Null, Value::Object(information)]);
    let Some(Outcome::Failed(failure)) = &bench.outcome else {
        panic!("{:?}", bench.outcome);
    };
    assert_eq!(failure.reason, "redirect_refused");
    let detail = &failure.detail;
    assert!(detail.contains("rtmp://10.0.0.9:1936/live"), "{detail}");
}

#[test]
fn end_by_the_server_is_noted() {
    let mut bench = Bench::plays(true);
    bench.sends_media_for(3, Some(KEY), Some(SOUND));
    bench.status("NetStream.Play.Complete");
    // This status ends a file.
    assert_eq!(bench.outcome, Some(Outcome::Completed));
    let notes = bench.notes("ended_by_server");
    assert!(notes[0].contains("NetStream.Play.Complete"), "{notes:?}");
    assert!(notes[0].contains("3.000 s of media"), "{notes:?}");
    // Video that froze before is still reported when the publisher leaves.
    let mut bench = Bench::plays(true);
    bench.sends_media_for(3, Some(KEY), Some(SOUND));
    bench.sends_media_for(5, None, Some(SOUND));
    bench.status("NetStream.Play.UnpublishNotify");
    bench.waits(3);
    assert_eq!(bench.count(m::STREAMS_SILENT), 1);
}

#[test]
fn unpublish_notify_means_live_despite_stream_is_recorded() {
    let mut bench = Bench::plays(true);
    let mut recorded = Vec::new();
    write::event(UserControlEvent::StreamIsRecorded(1), &mut recorded);
    bench.receives(&recorded);
    bench.sends_media_for(3, Some(KEY), Some(SOUND));
    bench.status("NetStream.Play.UnpublishNotify");
    bench.waits(3);
    assert_eq!(bench.ended_by_server().0, Duration::from_secs(3));
    // Without a publisher it is a file.
    let mut bench = Bench::plays(true);
    bench.receives(&recorded);
    bench.sends_media_for(3, Some(KEY), Some(SOUND));
    bench.status("NetStream.Play.Stop");
    assert_eq!(bench.outcome, Some(Outcome::Completed));
}

#[test]
fn live_stream_ends_unless_republished_within_three_seconds() {
    for code in ["NetStream.Play.UnpublishNotify", "NetStream.Play.Stop"] {
        let unpublished = |seconds| {
            let mut bench = Bench::plays(true);
            bench.sends_media_for(3, Some(KEY), Some(SOUND));
            bench.status(code);
            bench.waits(seconds);
            bench
        };
        let three = Duration::from_secs(3);
        let bench = unpublished(3);
        let (at, words) = bench.ended_by_server();
        assert_eq!(at, three);
        assert!(words.contains(code), "{words}");
        // The connection ends as well, or the client is stopped.
        let mut bench = unpublished(2);
        assert_eq!(bench.outcome, None);
        let (channel, how) = (CHANNEL, CloseReason::End);
        bench.input(Input::Closed {
            channel,
            reason: how,
        });
        assert_eq!(bench.ended_by_server().0, three);
        let mut bench = unpublished(2);
        assert_eq!(bench.stops(), None);
        assert_eq!(bench.ended_by_server().0, three);
        // Another report of the server does not postpone the end.
        let mut bench = unpublished(2);
        bench.status("NetStream.Play.UnpublishNotify");
        bench.waits(1);
        assert_eq!(bench.ended_by_server().0, three);
        assert_eq!(bench.notes("ended_by_server").len(), 1);
        // The publisher comes back.
        let mut bench = unpublished(2);
        bench.status("NetStream.Play.PublishNotify");
        bench.sends_media_for(5, Some(KEY), Some(SOUND));
        bench.waits(1);
        assert_eq!(bench.outcome, None);
        assert_eq!(bench.stops(), None);
        assert_eq!(bench.outcome, Some(Outcome::Stopped));
    }
}
