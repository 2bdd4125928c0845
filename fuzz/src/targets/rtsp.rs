//! RTSP: the byte stream of a connection, header fields and session descriptions.

use kit::auth::{
    AcceptedScheme, Algorithm, Authenticator, ChallengeOutcome, Verifier, parse_challenges,
    parse_params,
};
use kit::media::sdp::Description;
use rtsp::codec::{
    BUFFER_KEPT_MAX, Decoder, Headers, Item, MAX_BODY, MAX_HEAD, Request, Response,
    SPLIT_FRAME_KEPT, cseq,
};
use rtsp::headers::{Range, RtpInfo, SessionHeader, Transport, parse_cseq, parse_methods};
use rtsp::url::Url;

use crate::input::{Input, text};

/// An item without borrows. Adjacent garbage is merged.
#[derive(Debug, PartialEq)]
enum Owned {
    Frame(u8, Vec<u8>, usize),
    Request(Request),
    Response(Response),
    Garbage(usize),
    Malformed(&'static str),
}

/// Decodes a stream that arrives in these pieces. Returns the items, and `true` if the decoder gave
/// up.
fn decode(pieces: &[&[u8]]) -> (Vec<Owned>, bool) {
    let mut decoder = Decoder::new();
    let mut items = Vec::new();
    for piece in pieces {
        let fed = decoder.feed(piece, |item| {
            let item = match item {
                Item::Frame {
                    channel,
                    payload,
                    length,
                } => frame(channel, payload, length),
                Item::Request(request) => Owned::Request(request),
                Item::Response(response) => Owned::Response(response),
                Item::Garbage { bytes } => Owned::Garbage(bytes),
                Item::Malformed(malformed) => Owned::Malformed(malformed.reason),
            };
            match (items.last_mut(), item) {
                (Some(Owned::Garbage(sum)), Owned::Garbage(bytes)) => *sum += bytes,
                (_, item) => items.push(item),
            }
        });
        if fed.is_err() {
            return (items, true);
        }
        assert!(decoder.buffered() <= MAX_HEAD + MAX_BODY + BUFFER_KEPT_MAX);
    }
    (items, false)
}

/// Returns the part of a frame that does not depend on where reads end.
fn frame(channel: u8, payload: &[u8], length: usize) -> Owned {
    assert!(payload.len() <= length);
    let in_part = length > SPLIT_FRAME_KEPT
        && payload[0] & 0xe0 == 0x80
        && !(192..=223).contains(&payload[1]);
    let kept_length = if in_part { SPLIT_FRAME_KEPT } else { length };
    Owned::Frame(channel, payload[..kept_length].to_vec(), length)
}

/// Decodes a connection: pieces give the same result as the whole. What was read can be written and
/// read back.
pub(super) fn rtsp(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let cuts = input.cuts();
    let stream = input.rest();
    let (mut items, given_up) = decode(&[stream]);
    let (mut in_pieces, in_pieces_given_up) = decode(&cuts.pieces(stream));
    assert_eq!(given_up, in_pieces_given_up);
    // The amount of trailing garbage that was already reported depends on the reads.
    for items in [&mut items, &mut in_pieces] {
        if matches!(items.last(), Some(Owned::Garbage(_))) {
            items.pop();
        }
    }
    assert_eq!(items, in_pieces);
    for item in &items {
        match item {
            Owned::Request(request) => {
                let expected = Owned::Request(Request {
                    headers: writable(&request.headers),
                    ..request.clone()
                });
                is_read_as(&request.encode(), &expected);
                fields(&request.headers);
            }
            Owned::Response(response) => {
                let expected = Owned::Response(Response {
                    headers: writable(&response.headers),
                    ..response.clone()
                });
                is_read_as(&response.encode(), &expected);
                fields(&response.headers);
            }
            _ => {}
        }
    }
}

fn is_read_as(written: &[u8], expected: &Owned) {
    let (again, _) = decode(&[written]);
    assert_eq!(again.first(), Some(expected), "{:?}", text(written));
}

/// Returns the header fields as they are written: line ends in a value become spaces.
fn writable(headers: &Headers) -> Headers {
    let mut all = Headers::new();
    for (name, value) in headers.iter() {
        all.push(name, value.replace(['\r', '\n', '\0'], " ").trim());
    }
    all
}

fn fields(headers: &Headers) {
    let _ = cseq(headers);
    for (name, value) in headers.iter() {
        assert!(headers.get(name).is_some());
        field(value);
    }
}

/// Parses a value as every known header field.
fn field(value: &str) {
    let _ = (parse_cseq(value), parse_params(value), parse_methods(value));
    for transport in Transport::parse_all(value) {
        let written = transport.to_string();
        assert_eq!(Transport::parse(&written), Some(transport), "{written}");
    }
    if let Some(range) = Range::parse(value) {
        let _ = range.length();
        let written = range.to_string();
        let again = Range::parse(&written).map(|range| range.to_string());
        assert_eq!(again, Some(written));
    }
    if let Some(session) = SessionHeader::parse(value) {
        let written = session.to_string();
        assert_eq!(SessionHeader::parse(&written), Some(session), "{written}");
    }
    for info in RtpInfo::parse_all(value) {
        let written = info.to_string();
        assert_eq!(RtpInfo::parse_all(&written), [info], "{written}");
    }
    for challenge in parse_challenges(value) {
        let _ = challenge.param("realm");
    }
}

/// Header fields: parsed as every known field, and as input of both sides of an authentication.
pub(super) fn headers(bytes: &[u8]) {
    // A decoder never returns line ends in a value.
    let value = text(bytes).replace('\r', " ");
    for line in value.split('\n') {
        field(line);
    }
    let url = Url::parse("rtsp://user:secret@h/a").expect("a URL");
    let credentials = url.credentials().expect("it has some").clone();
    let accepts = vec![
        AcceptedScheme::Digest(Algorithm::Sha256),
        AcceptedScheme::Digest(Algorithm::Md5),
        AcceptedScheme::Basic,
    ];
    let verifier = Verifier::new("a realm", credentials.clone(), accepts);
    verifier.verify(Some(&value), "PLAY", "rtsp://h/a", "nonce");
    let mut client = Authenticator::new(Some(credentials), 1);
    let mut headers = Headers::new();
    for line in value.split('\n') {
        headers.push("WWW-Authenticate", line);
    }
    if client.handle_challenges(&headers, false, false) == ChallengeOutcome::Retry {
        let answer = client
            .authorize("PLAY", "rtsp://h/a")
            .expect("the client has an answer");
        assert!(!answer.contains(['\r', '\n']), "{answer:?}");
    }
}

/// Parses a session description.
pub(super) fn sdp(bytes: &[u8]) {
    let Ok(description) = Description::parse(bytes) else {
        return;
    };
    let _ = description.length();
    assert!(description.medias.len() <= bytes.len() / 2);
    for media in &description.medias {
        let _ = (
            media.clock_rate(),
            media.is_h264(),
            media.refuses_receiver_reports(),
        );
        assert!(media.payload_types().len() <= bytes.len());
    }
}
