//! Messages: framing, WebSocket with its handshake, and templates.

use kit::http1;
use kit::websocket::{ClientHandshake, ServerHandshake};
use messages::framing::{
    Framing, LengthPrefix, Malformed, MessageReader, Order, ReadLimits, Received,
};
use messages::template::{PlaceholderValues, Template};

use crate::input::{Cuts, Input, text};

#[derive(Debug, PartialEq)]
enum Owned {
    Frame(u64, Option<Vec<u8>>),
    Ping(Vec<u8>),
    Close(Option<u16>),
}

fn read(
    framing: &Framing,
    limits: &ReadLimits,
    pieces: &[&[u8]],
) -> (Vec<Owned>, Option<Malformed>) {
    let mut reader = MessageReader::default();
    let mut found = Vec::new();
    for mut piece in pieces.iter().copied() {
        loop {
            let item = match reader.next_item(framing, limits, &mut piece) {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(malformed) => return (found, Some(malformed)),
            };
            found.push(match item {
                Received::Message(frame) => {
                    assert!(frame.length <= limits.length_max);
                    if let Some(body) = frame.body {
                        assert_eq!(body.len() as u64, frame.length);
                    }
                    Owned::Frame(frame.length, frame.body.map(<[u8]>::to_vec))
                }
                Received::Ping(bytes) => {
                    assert!(bytes.len() <= 125);
                    Owned::Ping(bytes.to_vec())
                }
                Received::Close(code) => Owned::Close(code),
            });
        }
        assert!(piece.is_empty());
    }
    (found, None)
}

/// Checks that pieces give the same result as the whole, except for which bodies are kept and for
/// the length of a refused frame. These depend on where reads end.
fn pieces_as_whole(framing: &Framing, limits: &ReadLimits, stream: &[u8], cuts: &Cuts) {
    let (whole, wrong) = read(framing, limits, &[stream]);
    let (in_pieces, in_pieces_wrong) = read(framing, limits, &cuts.pieces(stream));
    assert_eq!(
        wrong.is_some(),
        in_pieces_wrong.is_some(),
        "{wrong:?} {in_pieces_wrong:?}"
    );
    assert_eq!(whole.len(), in_pieces.len());
    for pair in whole.iter().zip(&in_pieces) {
        match pair {
            (Owned::Frame(length, body), Owned::Frame(other, in_pieces)) => {
                assert_eq!(length, other);
                if *length <= limits.kept_bytes_max as u64 {
                    assert!(body.is_some() && in_pieces.is_some());
                }
                if let (Some(body), Some(in_pieces)) = (body, in_pieces) {
                    assert_eq!(body, in_pieces);
                }
            }
            (one, other) => assert_eq!(one, other),
        }
    }
}

/// Checks that written messages are read back unchanged.
fn round_trip(framing: &Framing, limits: &ReadLimits, input: &mut Input<'_>, cuts: &Cuts) {
    let delimiter = match framing {
        Framing::Delimiter(delimiter) => Some(delimiter),
        _ => None,
    };
    let (mut stream, mut bodies) = (Vec::new(), Vec::new());
    let mask = u32::from_be_bytes([input.byte(), 7, input.byte(), 9]);
    while !input.is_empty() {
        let body = input.piece();
        // A body with a byte of the delimiter would end too early.
        let has_delimiter =
            delimiter.is_some_and(|bytes| body.iter().any(|byte| bytes.contains(byte)));
        if body.len() as u64 <= framing.length_max().min(limits.length_max) && !has_delimiter {
            framing.write(body, mask, &mut stream);
            bodies.push(body);
        }
    }
    let written: usize = bodies
        .iter()
        .map(|body| body.len() + framing.overhead(body.len()))
        .sum();
    assert_eq!(written, stream.len());
    // One side of a WebSocket masks its frames, and the other expects that.
    let peer_framing = match framing {
        Framing::WebSocket { masked, text } => Framing::WebSocket {
            masked: !masked,
            text: *text,
        },
        other => other.clone(),
    };
    let (found, wrong) = read(&peer_framing, limits, &cuts.pieces(&stream));
    assert_eq!(wrong, None);
    assert_eq!(found.len(), bodies.len());
    for (found, body) in found.iter().zip(bodies) {
        match found {
            Owned::Frame(length, found) => {
                assert_eq!(*length, body.len() as u64);
                assert!(found.as_deref().is_none_or(|found| found == body));
                assert!(found.is_some() || body.len() > limits.kept_bytes_max);
            }
            other => panic!("{other:?}"),
        }
    }
}

fn limits(input: &mut Input<'_>) -> ReadLimits {
    ReadLimits {
        unframed_length: 0,
        kept_bytes_max: usize::from(input.byte()) * 16,
        length_max: (u64::from(input.byte()) + 1) * 32,
    }
}

/// Messages with a length prefix or a delimiter.
pub(super) fn frames(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.byte();
    let framing = if kind & 1 == 0 {
        Framing::Length(LengthPrefix {
            bytes: 1 << (kind >> 1 & 3),
            order: match kind & 8 {
                0 => Order::Big,
                _ => Order::Little,
            },
            includes_itself: kind & 16 != 0,
        })
    } else {
        let length = usize::from(kind >> 1 & 15) + 1;
        match input.take(length) {
            [] => return,
            delimiter => Framing::Delimiter(delimiter.into()),
        }
    };
    let limits = limits(&mut input);
    let cuts = input.cuts();
    if kind & 128 == 0 {
        pieces_as_whole(&framing, &limits, input.rest(), &cuts);
    } else {
        round_trip(&framing, &limits, &mut input, &cuts);
    }
}

/// Frames of a WebSocket, and both sides of its handshake.
pub(super) fn websocket(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.byte();
    let framing = Framing::WebSocket {
        masked: kind & 1 != 0,
        text: kind & 2 != 0,
    };
    let limits = limits(&mut input);
    let cuts = input.cuts();
    match kind >> 6 {
        0 | 1 => pieces_as_whole(&framing, &limits, input.rest(), &cuts),
        2 => round_trip(&framing, &limits, &mut input, &cuts),
        _ => handshake(input.rest(), &cuts),
    }
}

/// The subprotocols that both sides of a handshake support.
const PROTOCOLS: &[&str] = &["janus-protocol", "b"];

fn handshake(stream: &[u8], cuts: &Cuts) {
    let accepted = |pieces: &[&[u8]]| {
        let (mut acceptance, mut taken) = (ServerHandshake::new(PROTOCOLS), 0);
        for piece in pieces {
            let mut rest = *piece;
            let answer = acceptance.read_request(&mut rest)?;
            taken += piece.len() - rest.len();
            if let Some(answer) = answer {
                return Ok(Some((answer, taken)));
            }
        }
        Ok::<_, &'static str>(None)
    };
    let whole = accepted(&[stream]);
    assert_eq!(whole, accepted(&cuts.pieces(stream)));
    if let Ok(Some((answer, _))) = whole {
        assert_eq!(
            answer.windows(4).position(|end| end == b"\r\n\r\n"),
            Some(answer.len() - 4)
        );
    }
    let url = http1::Url::parse("http://h/a").expect("a URL");
    let (mut upgrade, request) = ClientHandshake::begin(&url, PROTOCOLS, 1);
    let (right, _) = accepted(&[&request])
        .expect("the request is valid")
        .expect("the request is complete");
    // The correct answer, in pieces and followed by other bytes. Then any other answer.
    let answer = [&right[..], stream].concat();
    let mut taken = 0;
    for piece in cuts.pieces(&answer) {
        let mut rest = piece;
        let done = upgrade
            .read_response(&mut rest)
            .expect("the answer is correct");
        taken += piece.len() - rest.len();
        if done {
            break;
        }
    }
    assert_eq!(taken, right.len());
    assert_eq!(upgrade.protocol(), Some(PROTOCOLS[0]));
    let result = |pieces: &[&[u8]]| {
        let (mut upgrade, _) = ClientHandshake::begin(&url, PROTOCOLS, 1);
        for mut piece in pieces.iter().copied() {
            match upgrade.read_response(&mut piece) {
                Ok(false) => {}
                Ok(true) => return Ok(true),
                // The text after the status depends on how much of the answer has arrived.
                Err(error) => {
                    let status = error.split_once(": ").map(|(status, _)| status.to_owned());
                    return Err(status.unwrap_or(error));
                }
            }
        }
        Ok(false)
    };
    assert_eq!(result(&[stream]), result(&cuts.pieces(stream)));
}

/// Templates: a message has the announced length.
pub(super) fn templates(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut number = [0; 8];
    number[..4].copy_from_slice(&[input.byte(), input.byte(), 0, input.byte()]);
    number.rotate_left(usize::from(input.byte() % 8));
    let filling = PlaceholderValues {
        number: u64::from_le_bytes(number),
        nanos: u64::from_be_bytes(number),
        seed: 5,
    };
    let Ok(template) = Template::parse(&text(input.rest())) else {
        return;
    };
    // Otherwise, generating megabytes of random letters would take all the time.
    if template.length_max() > 100_000 {
        return;
    }
    let mut out = Vec::new();
    template.write(&filling, &mut out);
    assert_eq!(out.len(), template.length(filling.number));
    assert!(out.len() <= template.length_max());
    assert!(!template.is_text() || std::str::from_utf8(&out).is_ok());
    if template.has_fixed_length() {
        assert_eq!(template.length(u64::MAX), out.len());
    }
    let mut again = Vec::new();
    template.write(&filling, &mut again);
    assert_eq!(again, out);
}
