//! A stream over HTTP allocates nothing for a packet, however it is framed and split.

use std::collections::VecDeque;
use std::time::Duration;

use http_ts::PROTOCOL as HTTP_TS_PROTOCOL;
use http_ts::client::Client;
use http_ts::config::ClientConfig;
use kit::media::ts::metrics as ts;
use kit::mediagen::ts::packet::{PACKET_LEN, SYNC};
use kit::mediagen::ts::stamp::Stamp;
use measure::{Recorder, Time};
use session::{ChannelId, Context, Flows, Input, Session, Sinks};

/// A chunk with one stamped datagram.
fn chunk(number: u64) -> Vec<u8> {
    let mut rest = [0u8; 6 * PACKET_LEN];
    for (n, packet) in rest.chunks_mut(PACKET_LEN).enumerate() {
        let continuity = (number * 6 + n as u64) % 16;
        packet[..4].copy_from_slice(&[SYNC, 1, 0, 0x10 | continuity as u8]);
    }
    let stamp = Stamp {
        packets: 7,
        group: "239.81.0.1:4056".parse().expect("an address"),
        source: 7,
        number,
        due: 1_000_000_000,
        check: crc32fast::hash(&rest),
    };
    [b"524\r\n", &stamp.write()[..], &rest, b"\r\n"].concat()
}

#[test]
fn media_allocates_nothing() {
    let mut client = Client::new(
        ClientConfig::default(),
        "http://10.0.0.1/udp/239.81.0.1:4056",
    )
    .expect("a URL")
    .with_wall_clock(Duration::from_secs(1));
    let mut recorder = Recorder::new(HTTP_TS_PROTOCOL.catalogue);
    let (mut sinks, mut flows, mut out) = (Sinks::default(), Flows::default(), VecDeque::new());
    let mut millis = 0;
    let mut hear = |input: Input<'_>| {
        millis += 1;
        let mut cx = Context {
            now: Time::from_start(Duration::from_millis(millis)),
            recorder: &mut recorder,
            sinks: &mut sinks,
            flows: &mut flows,
            out: &mut out,
            outbox: &mut session::Outbox::default(),
        };
        client.handle(&mut cx, input);
        recorder.counter(ts::RECEIVED)
    };
    let at = Time::from_start(Duration::from_millis(1));
    let channel = ChannelId(0);
    let bytes = |bytes| Input::Bytes {
        channel,
        bytes,
        at,
        runs: &[],
    };
    hear(Input::Start { due: Time::ZERO });
    hear(Input::Opened {
        channel,
        local: "10.0.0.2:40000".parse().expect("an address"),
        remote: None,
    });
    hear(bytes(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ));
    let media: Vec<u8> = (0..2000).flat_map(chunk).collect();
    let (beginning, rest) = media.split_at(media.len() / 10);
    // One-time allocations happen here.
    for piece in beginning.chunks(1000) {
        hear(bytes(piece));
    }
    let mut received = 0;
    let spent = allocation_counter::measure(|| {
        for piece in rest.chunks(1000) {
            received = hear(bytes(piece));
        }
    });
    assert_eq!((received, spent.count_total), (2000, 0));
}
