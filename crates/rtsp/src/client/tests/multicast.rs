//! Multicast: the group to join, the packets that count, and the reports.

use super::*;
use session::Interface;

const GROUP: &str = "v=0\r\nc=IN IP4 239.1.2.3/7\r\na=source-filter: incl IN IP4 * 10.0.0.9\r\n\
    m=video 5004 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:track1\r\n";

fn bench(interface: Option<&str>) -> ClientBench {
    let config = ClientConfig {
        transport: Transport::Multicast,
        interface: interface.map(str::to_owned),
        ..ClientConfig::default()
    };
    ClientBench::new(config, URL)
}

/// Runs up to the answer to SETUP.
fn set_up(interface: Option<&str>, sdp: &str, answer: &str) -> ClientBench {
    let mut bench = bench(interface);
    bench.connect();
    bench.options();
    bench.describe(sdp);
    let setup = bench.asked(Method::Setup);
    let asked = setup.headers.get("Transport");
    assert_eq!(asked, Some("RTP/AVP;multicast"));
    let mut headers = vec![("Session", "a")];
    if !answer.is_empty() {
        headers.push(("Transport", answer));
    }
    bench.answer(&setup, 200, &headers, "");
    bench
}

/// Returns the requested membership.
fn wanted(bench: &mut ClientBench) -> Open {
    let Output::Open { channel, open } = bench.next() else {
        panic!("a membership is wanted");
    };
    bench.pairs.push(channel);
    open
}

/// Runs up to playback.
fn play(sdp: &str, answer: &str) -> ClientBench {
    let mut bench = set_up(None, sdp, answer);
    wanted(&mut bench);
    assert!(bench.out.is_empty(), "the membership comes first");
    let channel = bench.pairs[0];
    bench.input(Input::Opened {
        channel,
        local: "239.1.2.3:5004".parse().expect("an address"),
        remote: None,
    });
    // Packets count before PLAY is sent.
    assert!(matches!(bench.next(), Output::Peer { .. }));
    let request = bench.asked(Method::Play);
    bench.answer(&request, 200, &[], "");
    bench
}

#[test]
fn group_comes_from_the_answer_or_the_description() {
    let answer = "RTP/AVP;multicast;destination=232.5.6.7;source=10.0.0.8;port=6000-6001;ttl=3";
    let mut bench = set_up(Some("eth7"), GROUP, answer);
    let address = |text: &str| text.parse::<std::net::IpAddr>().expect("an address");
    let sink = Some(bench.client.streams[0].sink);
    assert_eq!(
        wanted(&mut bench),
        Open::Multicast {
            group: address("232.5.6.7"),
            port: 6000,
            control: 6001,
            sources: vec![address("10.0.0.8")],
            interface: Interface::Name("eth7".to_owned()),
            ttl: 3,
            sink,
        }
    );
    for answer in ["", "RTP/AVP;multicast", "RTP/AVP"] {
        let mut bench = set_up(None, GROUP, answer);
        let sink = Some(bench.client.streams[0].sink);
        assert_eq!(
            wanted(&mut bench),
            Open::Multicast {
                group: address("239.1.2.3"),
                port: 5004,
                control: 5005,
                sources: vec![address("10.0.0.9")],
                interface: Interface::Address(address("10.0.0.2")),
                ttl: 7,
                sink,
            },
            "{answer}"
        );
    }
}

#[test]
fn answers_without_a_usable_group_are_rejected() {
    for (sdp, answer) in [
        (ONE, ""),
        (ONE, "RTP/AVP;multicast;port=5000-5001"),
        (ONE, "RTP/AVP;multicast;destination=239.1.1.1"),
        (
            GROUP,
            "RTP/AVP;multicast;destination=10.1.1.1;port=5000-5001",
        ),
        (GROUP, "RTP/AVP;multicast;destination=here;port=5000-5001"),
        (GROUP, "RTP/AVP;multicast;port=0-1"),
        (GROUP, "RTP/AVP;unicast;client_port=5000-5001"),
        (GROUP, "RTP/AVP/TCP;interleaved=0-1"),
    ] {
        let mut bench = set_up(None, sdp, answer);
        let (reason, detail) = bench.failed();
        assert_eq!(reason, "unsupported_transport_answer", "{answer}: {detail}");
    }
}

#[test]
fn refused_membership_names_the_limit() {
    for (error, word) in [
        (ChannelError::NoMembership, "igmp_max_memberships"),
        (ChannelError::NoInterface, "interface"),
    ] {
        let mut bench = set_up(None, GROUP, "");
        wanted(&mut bench);
        let channel = bench.pairs[0];
        bench.input(Input::OpenFailed { channel, error });
        let (reason, detail) = bench.failed();
        assert_eq!(reason, "local_membership");
        assert!(
            detail.contains(word) && detail.contains("239.1.2.3:5004"),
            "{detail}"
        );
    }
}

/// Returns whether the client reports within 9 s.
fn reports(bench: &mut ClientBench) -> bool {
    bench.packet(0, 1);
    let until = bench.now + Duration::from_secs(9);
    while bench
        .client
        .deadline()
        .is_some_and(|deadline| deadline < until)
    {
        bench.deadline();
        for output in bench.out.drain(..) {
            if let Output::Send {
                port: Port::Control,
                ..
            } = output
            {
                return true;
            }
        }
    }
    false
}

#[test]
fn reports_are_sent_only_to_any_source_groups() {
    let any = "RTP/AVP;multicast;destination=239.9.9.9;port=5000-5001";
    assert!(reports(&mut play(ONE, any)));
    assert!(!reports(&mut play(GROUP, "")));
    // A group that controls the link.
    let link = "RTP/AVP;multicast;destination=224.0.0.251;port=5352-5353";
    assert!(!reports(&mut play(ONE, link)));
}

#[test]
fn bye_of_another_receiver_does_not_end_the_stream() {
    let answer = "RTP/AVP;multicast;destination=239.9.9.9;port=5000-5001";
    let mut bench = play(ONE, answer);
    let mut other = Vec::new();
    rtcp::write_receiver_report(&mut other, 77, &[]);
    rtcp::write_bye(&mut other, &[77], None);
    bench.rtcp(0, &other);
    bench.packet(0, 1);
    bench.rtcp(0, &other);
    assert!(bench.client.streams[0].bye_at.is_none());
    bench.rtcp(0, &bye());
    assert!(bench.client.streams[0].bye_at.is_some());
}

#[test]
fn reports_are_rare_in_a_large_group() {
    let answer = "RTP/AVP;multicast;destination=239.9.9.9;port=5000-5001";
    let mut bench = play(ONE, answer);
    let group = bench.client.streams[0].group.as_mut().expect("it has one");
    assert_eq!(
        group.interval(false).deterministic(),
        Duration::from_secs(5)
    );
    for ssrc in 0..100_000 {
        group.others.add(ssrc);
    }
    // 4096 others and the two of us. All but one of them only receive, and share three quarters of
    // 6250 bytes a second.
    let interval = group.interval(false).deterministic();
    assert!(interval > Duration::from_secs(80), "{interval:?}");
    // A receiver that is not heard any more has left.
    for _ in 0..20 {
        group.interval(false);
    }
    assert_eq!(group.interval(false).members, 2);
}
