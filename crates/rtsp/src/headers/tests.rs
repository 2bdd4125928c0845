use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
fn text_in_a_transport_cannot_add_parameters() {
    let value = "RTP/AVP;unicast;destination=\"10.0.0.1;source=10.0.0.9\"";
    let transport = Transport::parse(value).expect("a transport");
    assert_eq!(transport.source, None);
    assert_eq!(Transport::parse(&transport.to_string()), Some(transport));
    let torn = Transport::parse("RTP/AVP;destination=a\"b").expect("a transport");
    assert_eq!(torn.destination, None);
}

#[test]
fn cseq_is_parsed_leniently() {
    assert_eq!(parse_cseq(" 7 "), Some(7));
    assert_eq!(parse_cseq("7\tx"), Some(7));
    assert_eq!(parse_cseq("x"), None);
    assert_eq!(parse_cseq("99999999999"), None);
}

#[test]
fn method_lists_are_parsed_and_written() {
    let vlc = parse_methods("DESCRIBE,SETUP,TEARDOWN,PLAY,PAUSE,GET_PARAMETER");
    assert_eq!(vlc.len(), 6);
    assert!(vlc.contains(&Method::GetParameter));
    assert_eq!(
        parse_methods("options, Describe ,, X"),
        [Method::Options, Method::Describe, Method::Other("X".into())]
    );
    assert_eq!(
        write_methods(&[Method::Options, Method::Play]),
        "OPTIONS, PLAY"
    );
}

#[test]
fn session_headers_of_real_servers_are_parsed() {
    for (value, id, timeout) in [
        ("8e3a0b1c2d;timeout=60", "8e3a0b1c2d", Some(60)),
        ("Wq$+.-_; Timeout = 30 ", "Wq$+.-_", Some(30)),
        (" 12345678", "12345678", None),
        ("abc;timeout=", "abc", None),
        ("abc;x=1;timeout=5;y", "abc", Some(5)),
    ] {
        let session = SessionHeader::parse(value).expect(value);
        assert_eq!((session.id.as_str(), session.timeout), (id, timeout));
        assert_eq!(SessionHeader::parse(&session.to_string()), Some(session));
    }
    assert_eq!(SessionHeader::parse(" ;timeout=3"), None);
}

#[test]
fn transport_headers_of_real_servers_are_parsed() {
    // VLC
    let vlc = Transport::parse(
        "RTP/AVP/UDP;unicast;source=127.0.0.1;client_port=5004-5005;server_port=39256-39257;\
         ssrc=0BADCAFE;mode=play",
    )
    .expect("a transport");
    assert_eq!(vlc.lower, LowerTransport::Udp);
    assert_eq!(vlc.cast, Some(Delivery::Unicast));
    assert_eq!(vlc.source.as_deref(), Some("127.0.0.1"));
    assert_eq!(vlc.client_port, Some(Ports::new(5004, 5005)));
    assert_eq!(vlc.server_port, Some(Ports::new(39256, 39257)));
    assert_eq!(vlc.ssrc, Some(0x0bad_cafe));
    assert_eq!(vlc.mode.as_deref(), Some("PLAY"));
    // GStreamer
    let gst = Transport::parse("RTP/AVP/TCP;unicast;interleaved=2-3;ssrc=1F00BA5;mode=\"PLAY\"")
        .expect("a transport");
    assert_eq!(gst.lower, LowerTransport::Tcp);
    assert_eq!(gst.interleaved, Some(Ports::new(2, 3)));
    assert_eq!(gst.ssrc, Some(0x01f0_0ba5));
    // Cameras: one port only, odd blanks, no cast
    let camera = Transport::parse("rtp/avp/udp; client_port=6000 ; server_port = 8000;timeout=60")
        .expect("a transport");
    assert_eq!(camera.cast, None);
    assert_eq!(camera.client_port, Some(Ports::new(6000, 6001)));
    assert_eq!(camera.server_port, Some(Ports::new(8000, 8001)));
    // Multicast
    let multicast =
        Transport::parse("RTP/AVP;multicast;destination=239.1.2.3;port=5000-5001;ttl=16")
            .expect("a transport");
    assert_eq!(multicast.cast, Some(Delivery::Multicast));
    assert_eq!(multicast.port, Some(Ports::new(5000, 5001)));
    assert_eq!(multicast.ttl, Some(16));
    assert_eq!(multicast.destination.as_deref(), Some("239.1.2.3"));
}

#[test]
fn offered_transports_are_parsed_in_order() {
    let all = Transport::parse_all(
        "MP2T/H2221/UDP;unicast, RTP/SAVPF;unicast;client_port=1-2,RTP/AVP/TCP;interleaved=0-1,RTP/AVP/DCCP",
    );
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].profile, "SAVPF");
    assert_eq!(all[1].interleaved, Some(Ports::new(0, 1)));
    assert_eq!(Transport::parse("RTP"), None);
    assert_eq!(
        Transport::parse("RTP/AVP/TCP;interleaved=300-301").and_then(|t| t.interleaved),
        None
    );
    assert_eq!(
        Transport::udp(Ports::new(5000, 5001)).to_string(),
        "RTP/AVP;unicast;client_port=5000-5001"
    );
    assert_eq!(
        Transport::tcp(Ports::new(0, 1)).to_string(),
        "RTP/AVP/TCP;unicast;interleaved=0-1"
    );
}

#[test]
fn rtp_info_of_real_servers_is_parsed() {
    // VLC
    let vlc = RtpInfo::parse_all(
        "url=rtsp://127.0.0.1:8556/v1/trackID=0;seq=5042;rtptime=3419876, \
         url=rtsp://127.0.0.1:8556/v1/trackID=1;seq=17;rtptime=99",
    );
    assert_eq!(vlc.len(), 2);
    assert_eq!(vlc[0].url, "rtsp://127.0.0.1:8556/v1/trackID=0");
    assert_eq!((vlc[0].seq, vlc[0].rtptime), (Some(5042), Some(3_419_876)));
    assert_eq!(vlc[1].seq, Some(17));
    // Commas and semicolons in the URL, fields missing, blanks, relative, quoted
    let odd =
        RtpInfo::parse_all("url=rtsp://h/a;b,c=1;seq= 3 , url=\"trackID=2\" ; rtptime=7,url=x");
    assert_eq!(odd.len(), 3);
    assert_eq!(odd[0].url, "rtsp://h/a;b,c=1");
    assert_eq!((odd[0].seq, odd[0].rtptime), (Some(3), None));
    assert_eq!(odd[1].url, "trackID=2");
    assert_eq!((odd[1].seq, odd[1].rtptime), (None, Some(7)));
    assert_eq!(odd[2].url, "x");
    // No URL, and a time written as a signed number
    let none = RtpInfo::parse_all("seq=65535;rtptime=-1");
    assert_eq!(
        none,
        [RtpInfo {
            url: String::new(),
            seq: Some(65535),
            rtptime: Some(u32::MAX)
        }]
    );
    assert_eq!(RtpInfo::parse_all("nonsense"), []);
    // Quotation marks and blanks around a URL, in any order.
    for odd in ["url=a=\" \"", "url=\" \"a=", "url=a= \"\" \""] {
        let info = RtpInfo::parse_all(odd);
        assert_eq!(info[0].url, "a=", "{odd}");
        assert_eq!(RtpInfo::parse_all(&info[0].to_string()), info, "{odd}");
    }
}

#[test]
fn ranges_are_parsed_and_written() {
    for (value, length) in [
        ("npt=0.000-30.5", Some(30.5)),
        ("npt=10-0:01:10.25", Some(60.25)),
        ("npt=0-", None),
        ("npt=now-", None),
        ("npt:0-12", Some(12.0)),
        ("npt= 0.0 - 12.000000 ;time=19970123T143720Z", Some(12.0)),
        ("npt=-20", Some(20.0)),
        ("npt=0.000-0.000", None),
        ("clock=19961108T142300Z-19961108T143520Z", None),
        ("smpte-25=10:07:33:05.01-", None),
    ] {
        let range = Range::parse(value).expect(value);
        assert_eq!(range.length(), length.map(seconds), "{value}");
        assert_eq!(Range::parse(&range.to_string()), Some(range), "{value}");
    }
    for value in [
        "",
        "npt",
        "npt=",
        "npt=-",
        "npt=x-1",
        "npt=1:2:3:4-",
        "bytes=0-1",
    ] {
        assert_eq!(Range::parse(value), None, "{value}");
    }
    assert_eq!(Range::FROM_START.to_string(), "npt=0.000-");
}

proptest! {
    #[test]
    fn parsers_never_panic(value in "\\PC{0,60}|[a-z=;,\" 0-9/.:-]{0,60}|(npt=|url=|RTP/AVP;)[a-z=;,\" 0-9-]{0,40}") {
        parse_cseq(&value);
        parse_methods(&value);
        SessionHeader::parse(&value);
        Transport::parse_all(&value);
        RtpInfo::parse_all(&value);
        Range::parse(&value);
    }

    #[test]
    fn transports_round_trip(
        lower in prop::sample::select(vec![LowerTransport::Udp, LowerTransport::Tcp]),
        cast in prop::option::of(prop::sample::select(vec![Delivery::Unicast, Delivery::Multicast])),
        client in prop::option::of(0u16..=65535), server in prop::option::of(0u16..65535),
        channel in prop::option::of(0u8..255), ssrc in any::<Option<u32>>(), ttl in any::<Option<u8>>(),
        source in prop::option::of("[0-9.]{1,15}"), mode in prop::option::of("PLAY|RECORD"),
    ) {
        let transport = Transport {
            profile: String::new(),
            lower,
            cast,
            client_port: client.map(|port| Ports::new(port, port)),
            server_port: server.map(|port| Ports::new(port, port + 1)),
            port: None,
            interleaved: channel.map(|channel| Ports::new(channel, channel + 1)),
            ssrc,
            source,
            destination: None,
            ttl,
            mode,
        };
        prop_assert_eq!(Transport::parse(&transport.to_string()), Some(transport));
    }
}
