//! RTSP tunnelled over HTTP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

fn bench() -> ClientBench {
    let config = ClientConfig {
        transport: Transport::Http,
        ..ClientConfig::default()
    };
    ClientBench::new(config, "rtsp://u:p@10.0.0.1:8554/clip?a")
}

/// Opens the requested connection.
fn open(bench: &mut ClientBench) -> ChannelId {
    let Output::Open {
        channel,
        open: Open::Tcp { .. },
    } = bench.next()
    else {
        panic!("a connection is wanted");
    };
    bench.input(Input::Opened {
        channel,
        local: "10.0.0.2:40000".parse().expect("an address"),
        remote: Some(SERVER.parse().expect("an address")),
    });
    channel
}

/// Returns the next bytes sent, which must be on this channel.
fn sent(bench: &mut ClientBench, on: ChannelId) -> String {
    let Output::Send { channel, bytes, .. } = bench.next() else {
        panic!("something is to be sent");
    };
    assert_eq!(channel, on);
    String::from_utf8(bytes).expect("text")
}

fn hears(bench: &mut ClientBench, channel: ChannelId, bytes: &[u8]) {
    let at = bench.now;
    bench.input(Input::Bytes {
        channel,
        bytes,
        at,
        runs: &[],
    });
}

/// Returns a client that has sent GET.
fn asked() -> (ClientBench, ChannelId, String) {
    let mut bench = bench();
    let due = bench.now;
    bench.input(Input::Start { due });
    let get = open(&mut bench);
    let head = sent(&mut bench, get);
    (bench, get, head)
}

fn cookie(head: &str) -> &str {
    let lines = head.lines();
    let mut cookies = lines.filter_map(|line| line.strip_prefix("x-sessioncookie: "));
    cookies.next().expect("there is one")
}

fn failure(bench: &mut ClientBench) -> String {
    while let Some(output) = bench.out.pop_front() {
        if let Output::Ended(Outcome::Failed(failure)) = output {
            return failure.reason.to_owned();
        }
    }
    panic!("it has not failed");
}

#[test]
fn requests_go_by_post_and_answers_come_by_get() {
    let (mut bench, get, head) = asked();
    assert!(
        head.starts_with("GET /clip?a HTTP/1.0\r\nHost: 10.0.0.1:8554\r\n"),
        "{head}"
    );
    assert!(!head.contains("u:p"), "{head}");
    // Split at every byte, with unrelated bytes after the head.
    let answer = b"HTTP/1.0 200 OK\r\nContent-Type: application/x-rtsp-tunnelled\r\n\r\n";
    for byte in &answer[..answer.len() - 1] {
        hears(&mut bench, get, &[*byte]);
        assert!(bench.out.is_empty());
    }
    hears(&mut bench, get, b"\nxyz");
    let post = open(&mut bench);
    assert_ne!(post, get);
    let second = sent(&mut bench, post);
    assert!(second.starts_with("POST /clip?a HTTP/1.0\r\n"), "{second}");
    assert_eq!(cookie(&second), cookie(&head));
    let request = STANDARD
        .decode(sent(&mut bench, post))
        .expect("it is base64");
    assert!(request.starts_with(b"OPTIONS rtsp://10.0.0.1:8554/clip?a RTSP/1.0\r\nCSeq: 1\r\n"));
    hears(&mut bench, get, b"RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\n");
    let request = STANDARD
        .decode(sent(&mut bench, post))
        .expect("it is base64");
    assert!(request.starts_with(b"DESCRIBE "));
    hears(
        &mut bench,
        get,
        b"RTSP/1.0 404 Not Found\r\nCSeq: 2\r\n\r\n",
    );
    let closed: Vec<ChannelId> = (0..2)
        .map(|_| match bench.next() {
            Output::Close { channel } => channel,
            other => panic!("both are to be closed: {other:?}"),
        })
        .collect();
    assert_eq!(closed, [get, post]);
    assert_eq!(failure(&mut bench), "status_404");
}

#[test]
fn additional_fields_are_in_get_and_post() {
    let config = ClientConfig {
        transport: Transport::Http,
        headers: serde_json::from_str(r#"{"X-Key":"a"}"#).expect("fields"),
        ..ClientConfig::default()
    };
    let mut bench = ClientBench::new(config, URL);
    let due = bench.now;
    bench.input(Input::Start { due });
    let get = open(&mut bench);
    assert!(sent(&mut bench, get).contains("\r\nX-Key: a\r\n"));
    hears(&mut bench, get, b"HTTP/1.0 200 OK\r\n\r\n");
    let post = open(&mut bench);
    assert!(sent(&mut bench, post).contains("\r\nX-Key: a\r\n"));
}

#[test]
fn two_clients_have_two_cookies() {
    let (_, _, one) = asked();
    let mut bench = ClientBench {
        client: Client::new(bench().client.config, URL, 8).expect("a URL"),
        ..bench()
    };
    let due = bench.now;
    bench.input(Input::Start { due });
    let get = open(&mut bench);
    assert_ne!(cookie(&sent(&mut bench, get)), cookie(&one));
}

#[test]
fn servers_without_tunnels_fail_the_client() {
    for (answer, reason) in [
        (&b"HTTP/1.0 404 Not Found\r\n\r\n"[..], "status_404"),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "status_503"),
        (b"RTSP/1.0 400 Bad Request\r\n\r\n", "malformed_response"),
        (b"\r\n\r\n", "malformed_response"),
        (b"HTTP/1.0 100 Continue\r\n\r\n", "malformed_response"),
        (&[b'a'; 20_000], "message_too_large"),
    ] {
        let (mut bench, get, _) = asked();
        hears(&mut bench, get, answer);
        assert_eq!(failure(&mut bench), reason);
    }
    let (mut bench, _, _) = asked();
    bench.deadline();
    assert_eq!(failure(&mut bench), "timeout_tunnel");
}

#[test]
fn a_failing_post_connection_ends_the_session() {
    let (mut bench, get, _) = asked();
    hears(&mut bench, get, b"HTTP/1.0 200 OK\r\n\r\n");
    let Output::Open { channel, .. } = bench.next() else {
        panic!("a second connection is wanted");
    };
    let error = ChannelError::Refused;
    bench.input(Input::OpenFailed { channel, error });
    assert_eq!(failure(&mut bench), "refused");

    let (mut bench, get, _) = asked();
    hears(&mut bench, get, b"HTTP/1.0 200 OK\r\n\r\n");
    let channel = open(&mut bench);
    let how = CloseReason::End;
    bench.input(Input::Closed {
        channel,
        reason: how,
    });
    assert_eq!(failure(&mut bench), "closed_in_options");
}
