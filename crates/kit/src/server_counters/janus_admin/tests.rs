use super::*;
use crate::websocket::ServerHandshake;

/// A Janus server with these PeerConnections: session, handle, packets in and out of each medium.
type Peers = [(u64, u64, &'static [(u64, u64)])];

fn frame_of(assembly: &mut Reassembler, mut bytes: &[u8]) -> Value {
    match assembly
        .next(true, &LIMITS, &mut bytes)
        .expect("well-formed")
    {
        Some(Received::Message(frame)) => {
            serde_json::from_slice(frame.body.expect("short")).expect("JSON")
        }
        other => panic!("{other:?}"),
    }
}

/// Response of Janus.
fn respond(asked: &Value, peers: &Peers) -> Value {
    assert_eq!(asked["admin_secret"], "s3cret");
    let success = |key: &str, value: Value| json!({"janus": "success", key: value});
    let mut answer = match asked["janus"].as_str().expect("a request") {
        "list_sessions" => {
            let sessions: BTreeSet<u64> = peers.iter().map(|peer| peer.0).collect();
            success("sessions", json!(sessions))
        }
        "list_handles" => {
            let own = peers.iter().filter(|peer| asked["session_id"] == peer.0);
            let handles: Vec<u64> = own.map(|peer| peer.1).collect();
            success("handles", json!(handles))
        }
        "handle_info" => {
            let key = (asked["session_id"].as_u64(), asked["handle_id"].as_u64());
            let mut own = peers.iter();
            match own.find(|peer| (Some(peer.0), Some(peer.1)) == key) {
                Some((_, _, media)) => success("info", info(media)),
                None => json!({"janus": "error", "error": {"code": 459, "reason": "gone"}}),
            }
        }
        other => panic!("{other}"),
    };
    answer["transaction"] = asked["transaction"].clone();
    answer
}

fn info(media: &[(u64, u64)]) -> Value {
    let mut all = serde_json::Map::new();
    for (mid, (packets_in, packets_out)) in media.iter().enumerate() {
        let stats = json!({
            "in": {"packets": packets_in, "bytes": packets_in * 100, "nacks": 3},
            "out": {"packets": packets_out, "bytes": packets_out * 100, "nacks": 1},
        });
        let rtcp = json!({"main": {"lost": 2, "lost-by-remote": 4}});
        all.insert(mid.to_string(), json!({"stats": stats, "rtcp": rtcp}));
    }
    json!({"queued-packets": 5, "webrtc": {"ice": {}, "media": all}})
}

fn text(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    websocket::write_message(
        websocket::TEXT,
        value.to_string().as_bytes(),
        None,
        &mut out,
    );
    out
}

fn open() -> JanusAdmin {
    let url = websocket::parse_url("ws://127.0.0.1:7188/").expect("a URL");
    let (mut admin, request) = JanusAdmin::begin(&url, "s3cret", 1);
    let mut server = ServerHandshake::new(&[SUBPROTOCOL]);
    let answer = server.read_request(&mut &request[..]).expect("well-formed");
    let answer = answer.expect("it is whole");
    // Split, as it may arrive.
    assert_eq!(admin.received(&answer[..20]), Ok(Step::Wait));
    assert_eq!(admin.received(&answer[20..]), Ok(Step::Open));
    admin
}

fn query(admin: &mut JanusAdmin, peers: &Peers) -> Result<CounterSnapshot, String> {
    let mut assembly = Reassembler::default();
    let mut sent = admin.start_query();
    loop {
        let answer = text(&respond(&frame_of(&mut assembly, &sent), peers));
        sent = match admin.received(&answer)? {
            Step::Send(bytes) => bytes,
            Step::Done(query) => return Ok(query),
            other => panic!("{other:?}"),
        };
    }
}

#[test]
fn totals_include_peer_connections_that_have_ended() {
    let mut admin = open();
    let first = query(
        &mut admin,
        &[(1, 10, &[(7, 0), (5, 0)]), (1, 11, &[(0, 9)]), (2, 20, &[])],
    );
    let first = first.expect("all answer");
    assert_eq!((first.counts.packets_in, first.counts.packets_out), (12, 9));
    assert_eq!((first.counts.bytes_in, first.counts.nacked_in), (1200, 9));
    assert_eq!((first.counts.lost_in, first.counts.lost_out), (6, 12));
    assert_eq!((first.peers, first.ended, first.queued), (3, 0, 15));
    // One session has ended, and one handle has a new PeerConnection.
    let second = query(&mut admin, &[(1, 10, &[(1, 0)]), (2, 20, &[(0, 4)])]);
    let second = second.expect("all answer");
    assert_eq!(
        (second.counts.packets_in, second.counts.packets_out),
        (13, 13)
    );
    assert_eq!((second.peers, second.ended), (2, 1));
    let third = query(&mut admin, &[]).expect("it answers");
    assert_eq!(
        (third.counts.packets_in, third.counts.packets_out),
        (13, 13)
    );
    assert_eq!((third.peers, third.ended), (0, 3));
}

#[test]
fn refusals_and_malformed_responses_are_errors() {
    let refusal = json!({
        "janus": "error", "transaction": "1", "error": {"code": 403, "reason": "Unauthorized"},
    });
    let mut admin = open();
    admin.start_query();
    let error = admin.received(&text(&refusal)).expect_err("refused");
    assert!(error.contains("Unauthorized"), "{error}");
    let mut admin = open();
    admin.start_query();
    let mut out = Vec::new();
    websocket::write_message(websocket::TEXT, b"{", None, &mut out);
    assert!(admin.received(&out).is_err());
    let mut admin = open();
    admin.start_query();
    // The response to an earlier request, and values of unexpected types.
    let late = json!({"janus": "success", "transaction": "0", "sessions": [1]});
    assert_eq!(admin.received(&text(&late)), Ok(Step::Wait));
    let odd = json!({"janus": "success", "transaction": "1", "sessions": {"a": -1}});
    assert!(matches!(admin.received(&text(&odd)), Ok(Step::Done(query)) if query.peers == 0));
}

#[test]
fn negative_loss_does_not_count_as_millions() {
    // -7 lost packets as Janus shows them: 24 bits without a sign.
    let rtcp = json!({"main": {"lost": -3, "lost-by-remote": 16_777_209}});
    let counts = counts_of(&json!({"rtcp": rtcp}));
    assert_eq!((counts.lost_in, counts.lost_out), (0, 0));
}
