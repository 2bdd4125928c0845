//! Streams that a client publishes, or begins to publish.

use super::*;

const SDP: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.2\r\ns=x\r\nc=IN IP4 127.0.0.2\r\nt=0 0\r\n\
    m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:streamid=0\r\n\
    m=audio 0 RTP/AVP 0\r\na=control:streamid=1\r\n";

fn announce(talk: &mut ScriptedClient) -> u16 {
    talk.cseq += 1;
    let text = format!(
        "ANNOUNCE rtsp://h/live RTSP/1.0\r\nCSeq: {}\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{SDP}",
        talk.cseq,
        SDP.len()
    );
    talk.bytes(text.as_bytes());
    talk.response().status
}

#[test]
fn record_requires_setup_of_all_announced_media() {
    let mut talk = ScriptedClient::new(config());
    assert_eq!(announce(&mut talk), 200);
    for stream in 0..2 {
        assert_eq!(
            talk.ask("RECORD rtsp://h/live", &[]).status,
            455,
            "{stream}"
        );
        let setup = format!("SETUP rtsp://h/live/streamid={stream}");
        let transport = "Transport: RTP/AVP/TCP;unicast;mode=RECORD";
        assert_eq!(talk.ask(&setup, &[transport]).status, 200);
    }
    assert_eq!(talk.ask("RECORD rtsp://h/live", &[]).status, 200);
}

#[test]
fn leaving_before_record_frees_the_path() {
    let server = Server::new(config()).unwrap();
    let mut first = ScriptedClient::with(&server, 1);
    let mut second = ScriptedClient::with(&server, 2);
    assert_eq!(announce(&mut first), 200);
    assert_eq!(announce(&mut second), 403);
    first.input(Input::Closed {
        channel: CONTROL,
        reason: CloseReason::Reset,
    });
    assert_eq!(announce(&mut second), 200);
}

#[test]
fn player_ends_with_its_publisher() {
    let server = Server::new(config()).unwrap();
    let publish = |number| {
        let mut talk = ScriptedClient::with(&server, number);
        assert_eq!(announce(&mut talk), 200);
        for stream in 0..2 {
            let setup = format!("SETUP rtsp://h/live/streamid={stream}");
            let transport = "Transport: RTP/AVP/TCP;unicast;mode=RECORD";
            assert_eq!(talk.ask(&setup, &[transport]).status, 200);
        }
        assert_eq!(talk.ask("RECORD rtsp://h/live", &[]).status, 200);
        talk
    };
    let mut first = publish(1);
    let mut player = ScriptedClient::with(&server, 2);
    let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1";
    assert_eq!(
        player
            .ask("SETUP rtsp://h/live/track1", &[transport])
            .status,
        200
    );
    assert_eq!(player.ask("PLAY rtsp://h/live", &[]).status, 200);
    first.input(Input::Closed {
        channel: CONTROL,
        reason: CloseReason::End,
    });
    // The end is delivered only after another publisher has started.
    let _second = publish(3);
    let [topic] = &player.listens[..] else {
        panic!("{:?}", player.listens);
    };
    let topic = topic.clone();
    player.input(Input::TopicMessage {
        topic: &topic,
        message: &"gone".into(),
    });
    assert_eq!(player.outcome, Some(Outcome::Completed));
}
