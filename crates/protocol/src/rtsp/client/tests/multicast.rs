//! Multicast: which group is joined, from when on packets count, who reports.

use super::*;
use crate::session::Interface;

const GROUP: &str = "v=0\r\nc=IN IP4 239.1.2.3/7\r\na=source-filter: incl IN IP4 * 10.0.0.9\r\n\
    m=video 5004 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:track1\r\n";

fn bench(interface: Option<&str>) -> Bench {
    let config = ClientConfig {
        transport: Transport::Multicast,
        interface: interface.map(str::to_owned),
        ..ClientConfig::default()
    };
    Bench::new(config, URL)
}

/// Up to the answer to SETUP.
fn set_up(interface: Option<&str>, sdp: &str, answer: &str) -> Bench {
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

/// What it wants to join.
fn wanted(bench: &mut Bench) -> Open {
    let Output::Open { channel, open } = bench.next() else {
        panic!("a membership is wanted");
    };
    bench.pairs.push(channel);
    open
}

/// Up to playing.
fn play(sdp: &str, answer: &str) -> Bench {
    let mut bench = set_up(None, sdp, answer);
    wanted(&mut bench);
    assert!(bench.out.is_empty(), "the membership comes first");
    let channel = bench.pairs[0];
    bench.input(Input::Opened {
        channel,
        local: "239.1.2.3:5004".parse().expect("an address"),
        remote: None,
    });
    // Packets count before PLAY is on its way, not after.
    assert!(matches!(bench.next(), Output::Peer { .. }));
    let request = bench.asked(Method::Play);
    bench.answer(&request, 200, &[], "");
    bench
}

#[test]
fn the_group_is_that_of_the_answer_else_of_the_description() {
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
            interface: Interface::Named("eth7".to_owned()),
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
                interface: Interface::With(address("10.0.0.2")),
                ttl: 7,
                sink,
            },
            "{answer}"
        );
    }
}

#[test]
fn answers_that_name_no_group() {
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
fn a_membership_that_is_not_granted_says_which_limit() {
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

/// Whether it reports within half a minute.
fn reports(bench: &mut Bench) -> bool {
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
fn reports_go_to_a_group_of_any_source_alone() {
    let any = "RTP/AVP;multicast;destination=239.9.9.9;port=5000-5001";
    assert!(reports(&mut play(ONE, any)));
    assert!(!reports(&mut play(GROUP, "")));
    // Of those that run a link.
    let link = "RTP/AVP;multicast;destination=224.0.0.251;port=5352-5353";
    assert!(!reports(&mut play(ONE, link)));
}

#[test]
fn others_that_leave_end_nothing() {
    let answer = "RTP/AVP;multicast;destination=239.9.9.9;port=5000-5001";
    let mut bench = play(ONE, answer);
    let mut other = Vec::new();
    rtcp::write_receiver_report(&mut other, 77, &[]);
    rtcp::write_bye(&mut other, &[77], None);
    bench.rtcp(0, &other);
    bench.packet(0, 1);
    bench.rtcp(0, &other);
    assert!(bench.client.streams[0].bye.is_none());
    bench.rtcp(0, &bye());
    assert!(bench.client.streams[0].bye.is_some());
}

#[test]
fn many_others_make_reports_rare() {
    let answer = "RTP/AVP;multicast;destination=239.9.9.9;port=5000-5001";
    let mut bench = play(ONE, answer);
    let group = bench.client.streams[0].group.as_mut().expect("it has one");
    assert_eq!(
        group.interval(false).deterministic(),
        Duration::from_secs(5)
    );
    for ssrc in 0..100_000 {
        group.others.heard(ssrc);
    }
    // 4096 and the two of us, of whom all but one only receive, share three quarters of 6250 bytes
    // a second.
    let interval = group.interval(false).deterministic();
    assert!(interval > Duration::from_secs(80), "{interval:?}");
    // Who is not heard any more has left.
    for _ in 0..20 {
        group.interval(false);
    }
    assert_eq!(group.interval(false).members, 2);
}
