//! Streams that are silent while others of the same session play.

use std::sync::Arc;
use std::time::Duration;

use crate::client::tests::{ClientBench, TWO, bye};
use kit::media::rtp::metrics::STREAMS_SILENT;
use session::{Input, Outcome, Output};

/// Without a known end.
fn live() -> String {
    TWO.replace("a=range:npt=0-30\r\n", "")
}

/// Plays for `seconds`, with ten packets a second on the first stream, and on the second up to
/// `second`; then stops the client. Returns the number of silent streams and the notes about them.
fn stopped_after(sdp: &str, seconds: u16, second: u16, says_bye: bool) -> (u64, Vec<String>) {
    let mut bench = ClientBench::udp();
    Arc::make_mut(&mut bench.client.config).receiver_reports = false;
    bench.play_udp(sdp, 2);
    bench.client.conversation.keep_alive_due = None;
    for seq in 0..seconds * 10 {
        bench.packet(0, seq);
        if seq < second * 10 {
            bench.packet(1, seq);
        } else if says_bye && seq == second * 10 {
            bench.rtcp(1, &bye());
        }
        bench.input(Input::Deadline);
        bench.after(100);
    }
    let until = bench.now + Duration::from_secs(1);
    bench.input(Input::Stop { until });
    bench.after(1000);
    bench.input(Input::Deadline);
    let (before, outcome) = bench.ended();
    assert_eq!(outcome, Outcome::Stopped);
    let notes = before.into_iter().filter_map(|output| match output {
        Output::Note(note) if note.kind == "silent_stream" => Some(note.text),
        _ => None,
    });
    (bench.count(STREAMS_SILENT), notes.collect())
}

#[test]
fn stream_without_packets_is_counted() {
    let (count, notes) = stopped_after(TWO, 5, 0, false);
    assert_eq!(count, 1);
    assert!(notes[0].starts_with("no packet of audio"), "{notes:?}");
    assert_eq!(stopped_after(&live(), 5, 0, false).0, 1);
    // Too early to judge.
    assert_eq!(stopped_after(TWO, 0, 0, false).0, 0);
    // Both streams received packets.
    assert_eq!(stopped_after(TWO, 5, 5, false), (0, Vec::new()));
}

#[test]
fn a_live_stream_that_stops_is_counted() {
    let (count, notes) = stopped_after(&live(), 12, 8, false);
    assert_eq!(count, 1);
    assert!(notes[0].starts_with("no packet for 4.1"), "{notes:?}");
    // No longer than a gap may be.
    assert_eq!(stopped_after(&live(), 10, 9, false), (0, Vec::new()));
    // After a BYE; and in a file, where audio may be shorter than video.
    assert_eq!(stopped_after(&live(), 12, 8, true), (0, Vec::new()));
    assert_eq!(stopped_after(TWO, 12, 8, false), (0, Vec::new()));
}

#[test]
fn silent_text_is_noted_but_not_counted() {
    let text = live()
        .replace("m=audio", "m=text")
        .replace("L16/44100", "t140/1000");
    let (count, notes) = stopped_after(&text, 5, 0, false);
    assert_eq!(count, 0);
    assert!(notes[0].starts_with("no packet of text"), "{notes:?}");
}
