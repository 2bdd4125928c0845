//! RTMP: chunks, AMF, the handshake, and a client that receives anything from its server.

use std::collections::VecDeque;

use measure::{Recorder, Time};
use protocols::RTMP_PROTOCOL;
use rtmp::client::Client;
use rtmp::codec::Malformed;
use rtmp::codec::amf0::{Value, read_all};
use rtmp::codec::chunk::{
    ChunkReader, HEAD_BYTES_MAX, MEDIA_BYTES_MAX, MESSAGE_BYTES_MAX, ReadMessage,
};
use rtmp::codec::connection::parse_metadata;
use rtmp::codec::handshake::{Handshake, HandshakeStep};
use rtmp::codec::media::{MediaHeader, find_time_code};
use rtmp::codec::message::{Command, MessageType, UserControlEvent};
use rtmp::codec::write::MessageHeader;
use rtmp::config::ClientConfig;
use session::{ChannelId, Context, Flows, Input as Event, Outbox, Output, Session, Sinks};

use crate::input::{Cuts, Input};

/// A message: type, timestamp, stream, length, size on the wire, and the bytes that were kept.
type Row = (u8, u32, u32, u32, u32, Vec<u8>);

/// Maximum memory of a reader without media and of one that keeps media: unfinished messages and
/// the state of the chunk streams.
const MEMORY_MAX: usize = 256 * 1024 + 4096 + 64 * 512;
const MEMORY_WITH_MEDIA_MAX: usize = (8 << 20) + 4096 + 64 * 512;

fn read(pieces: &[&[u8]], keeps_media: bool) -> (Vec<Row>, Option<Malformed>) {
    let mut reader = ChunkReader::new(keeps_media);
    let mut rows = Vec::new();
    for piece in pieces {
        let mut at = 0;
        loop {
            match reader.next_message(piece, &mut at) {
                Ok(Some(ReadMessage::Media(media))) => {
                    assert!(media.head.len() <= HEAD_BYTES_MAX.min(media.length as usize));
                    let tag = MediaHeader::parse(media.video, media.head);
                    if let Some(tag) = tag {
                        let _ = (
                            media.head.get(tag.data..).and_then(find_time_code),
                            tag.codec.map(|codec| codec.to_string()),
                        );
                    }
                    if keeps_media {
                        assert!(
                            media.length <= MEDIA_BYTES_MAX
                                && media.body.len() == media.length as usize
                        );
                    }
                    let kept = if keeps_media {
                        media.body
                    } else {
                        media.head.to_vec()
                    };
                    let kind = if media.video { 9 } else { 8 };
                    rows.push((
                        kind,
                        media.timestamp,
                        media.stream,
                        media.length,
                        media.wire,
                        kept,
                    ));
                }
                Ok(Some(ReadMessage::Message(message))) => {
                    assert!(message.payload.len() <= MESSAGE_BYTES_MAX as usize);
                    let length = message.payload.len() as u32;
                    let row = (
                        message.type_id,
                        message.timestamp,
                        message.message_stream,
                        length,
                        message.wire_bytes,
                        message.payload,
                    );
                    rows.push(row);
                }
                Ok(None) => break,
                Err(malformed) => return (rows, Some(malformed)),
            }
            let max = if keeps_media {
                MEMORY_WITH_MEDIA_MAX
            } else {
                MEMORY_MAX
            };
            assert!(reader.memory() <= max, "{}", reader.memory());
        }
        assert_eq!(at, piece.len());
    }
    (rows, None)
}

/// Checks that pieces give the same result as the whole, that written messages are read back
/// unchanged, and that memory is bounded.
pub(crate) fn chunks(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let choice = input.byte();
    let cuts = input.cuts();
    let keeps_media = choice & 1 != 0;
    if choice & 2 == 0 {
        let stream = input.rest();
        assert_eq!(
            read(&[stream], keeps_media),
            read(&cuts.pieces(stream), keeps_media)
        );
        return;
    }
    let (mut stream, mut written) = (Vec::new(), Vec::new());
    // Both sides start with a chunk size of 128.
    while !input.is_empty() {
        let kind = [
            MessageType::Audio,
            MessageType::Video,
            MessageType::Data,
            MessageType::Command,
        ][usize::from(input.byte() % 4)];
        let timestamp =
            u32::from_be_bytes([input.byte(), input.byte(), input.byte(), input.byte()]);
        let payload = input.piece();
        let head = MessageHeader {
            chunk_stream: 3 + input.byte() % 60,
            kind,
            timestamp,
            stream: input.byte().into(),
        };
        let before = stream.len();
        head.write(&[payload], 128, &mut stream);
        assert_eq!(stream.len() - before, head.wire_bytes(payload.len(), 128));
        written.push((kind.id(), timestamp, head.stream, payload.len(), payload));
    }
    let (rows, wrong) = read(&cuts.pieces(&stream), true);
    assert_eq!(wrong, None);
    assert_eq!(rows.len(), written.len());
    for (row, (kind, timestamp, number, length, payload)) in rows.iter().zip(written) {
        assert_eq!(
            (row.0, row.1, row.2, row.3 as usize),
            (kind, timestamp, number, length)
        );
        assert_eq!(row.5, payload);
    }
}

/// Values, commands and events are written as they were read. Metadata can be read.
pub(crate) fn amf(bytes: &[u8]) {
    let written = |values: &[Value]| {
        let mut out = Vec::new();
        values.iter().for_each(|value| value.write(&mut out));
        out
    };
    if let Ok(values) = read_all(bytes) {
        let once = written(&values);
        // A property without a name whose value starts like an object end marker is read as that
        // marker.
        if let Ok(again) = read_all(&once) {
            let twice = written(&again);
            if let Ok(third) = read_all(&twice) {
                assert_eq!(written(&third), twice);
            }
        }
    }
    for amf3 in [false, true] {
        if let Ok(command) = Command::parse(bytes, amf3) {
            let _ = (
                command.information_property("code"),
                Command::parse(&command.to_bytes(), false),
            );
        }
    }
    if let Ok(event) = UserControlEvent::parse(bytes) {
        assert_eq!(UserControlEvent::parse(&event.to_bytes()), Ok(event));
    }
    let _ = parse_metadata(bytes);
}

fn run_handshake(pieces: &[&[u8]], server: bool) -> (Vec<u8>, usize, Result<bool, Malformed>) {
    let mut handshake = match server {
        true => Handshake::server(1),
        false => Handshake::client(1),
    };
    let (mut sent, mut taken) = (Vec::new(), 0);
    for piece in pieces {
        let mut at = 0;
        loop {
            match handshake.receive(piece, &mut at) {
                Ok(HandshakeStep::Send(bytes)) => sent.extend_from_slice(&bytes),
                Ok(HandshakeStep::NeedMore) => break,
                Ok(HandshakeStep::Done) => return (sent, taken + at, Ok(true)),
                Err(malformed) => return (sent, 0, Err(malformed)),
            }
        }
        taken += at;
    }
    (sent, taken, Ok(false))
}

/// Checks that a handshake gives the same result in pieces and as a whole, on both sides, and that
/// it consumes nothing of what follows.
pub(crate) fn handshake(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let server = input.byte() & 1 != 0;
    let cuts = input.cuts();
    // Inputs are short and handshake packets are long, so the rest of what the peer would send is
    // added here.
    let mut stream = input.rest().to_vec();
    if let Some(3) = stream.first() {
        let hello = match server {
            true => Handshake::server(1).hello(),
            false => Handshake::client(1).hello(),
        };
        stream.resize(stream.len().max(1537), 7);
        stream.extend_from_slice(hello.get(1..).unwrap_or_default());
        stream.extend_from_slice(b"more");
    }
    assert_eq!(
        run_handshake(&[&stream], server),
        run_handshake(&cuts.pieces(&stream), server)
    );
}

/// Checks that a client's session ends or continues, whatever the server sends after the handshake,
/// and that the client sends little in response.
pub(crate) fn session(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let cuts: Cuts = input.cuts();
    let stream = input.rest();
    let mut client = Client::new(ClientConfig::default(), "rtmp://10.0.0.1/a/b", 1).expect("a URL");
    let mut recorder = Recorder::new(RTMP_PROTOCOL.catalogue);
    let (mut sinks, mut flows) = (Sinks::default(), Flows::default());
    let mut out = VecDeque::new();
    let mut handle = |event: Event<'_>, now: u64| -> (Vec<u8>, bool) {
        let mut cx = Context {
            now: Time::from_nanos(now),
            recorder: &mut recorder,
            sinks: &mut sinks,
            flows: &mut flows,
            out: &mut out,
            outbox: &mut Outbox::default(),
        };
        client.handle(&mut cx, event);
        let (mut sent, mut ended) = (Vec::new(), false);
        for output in out.drain(..) {
            match output {
                Output::Send { bytes, .. } => sent.extend(bytes),
                Output::Ended(_) => ended = true,
                _ => {}
            }
        }
        (sent, ended)
    };
    let channel = ChannelId(0);
    let due = Time::ZERO;
    handle(Event::Start { due }, 1);
    let local = "10.0.0.2:4000".parse().expect("an address");
    let (hello, _) = handle(
        Event::Opened {
            channel,
            local,
            remote: None,
        },
        2,
    );
    let mut server = Handshake::server(2);
    let Ok(HandshakeStep::Send(answer)) = server.receive(&hello, &mut 0) else {
        panic!("the client's hello gets a response");
    };
    let received = |bytes| Event::Bytes {
        channel,
        bytes,
        at: Time::from_nanos(3),
        runs: &[],
    };
    handle(received(&answer), 3);
    let (mut sent_bytes, mut now) = (0, 4);
    for piece in cuts.pieces(stream) {
        now += 1;
        let (sent, ended) = handle(received(piece), now);
        sent_bytes += sent.len();
        if ended {
            return;
        }
    }
    assert!(
        sent_bytes <= 4096 + 2 * stream.len() + 16 * cuts.pieces(stream).len(),
        "{sent_bytes}"
    );
    let (_, ended) = handle(Event::Stop { until: due }, now + 1);
    assert!(ended);
}
