//! Publishing to a scripted server.

use std::sync::Arc;

use measure::units::BitRate;

use super::*;
use crate::config::Transport as By;
use kit::media::source::{MediaSource, SourceConfig};
use session::Handover;

fn bench(transport: By, url: &str) -> ClientBench {
    let config = ClientConfig {
        transport,
        ..ClientConfig::default()
    };
    let media = SourceConfig {
        bitrate: Some(BitRate(300_000)),
        audio: Some(true),
        ..SourceConfig::default()
    };
    let source = MediaSource::new(&media, None);
    let mut bench = ClientBench::new(config, url);
    bench.client = Client::new(bench.client.config.clone(), url, 7)
        .expect("a URL")
        .with_source(Arc::new(source.expect("valid")))
        .with_wall_clock(Duration::from_secs(1_700_000_000));
    bench
}

impl ClientBench {
    /// Runs up to the first SETUP.
    fn announce(&mut self) {
        self.connect();
        let request = self.asked(Method::Options);
        self.answer(&request, 200, &[("Public", "ANNOUNCE, RECORD")], "");
        let request = self.asked(Method::Announce);
        assert_eq!(request.uri, URL);
        assert_eq!(request.headers.get("Content-Type"), Some("application/sdp"));
        let sdp = String::from_utf8(request.body.clone()).expect("text");
        assert!(sdp.contains("o=- 1 1 IN IP4 10.0.0.2\r\n"), "{sdp}");
        assert!(sdp.contains("m=video 0 RTP/AVP 96\r\n"), "{sdp}");
        assert!(sdp.contains("sprop-parameter-sets="), "{sdp}");
        assert!(sdp.contains("m=audio 0 RTP/AVP 0\r\n"), "{sdp}");
        self.answer(&request, 200, &[], "");
    }

    /// Runs up to RECORD, interleaved.
    fn set_up_to_record(&mut self) -> Request {
        self.announce();
        for (track, channels) in [(1, "0-1"), (2, "2-3")] {
            let request = self.asked(Method::Setup);
            assert_eq!(request.uri, format!("{URL}/track{track}"));
            let transport = request.headers.get("Transport").expect("one");
            assert_eq!(
                transport,
                format!("RTP/AVP/TCP;unicast;interleaved={channels};mode=\"RECORD\"")
            );
            let headers = [("Session", "abc;timeout=20"), ("Transport", transport)];
            self.answer(&request, 200, &headers, "");
        }
        let request = self.asked(Method::Record);
        assert_eq!(request.uri, URL);
        assert_eq!(request.headers.get("Session"), Some("abc"));
        request
    }

    /// Runs until media is sent. Returns the reports sent with it.
    fn record(&mut self) -> Vec<Vec<u8>> {
        let request = self.set_up_to_record();
        self.answer(&request, 200, &[("RTP-Info", "x")], "");
        let mut flows = Vec::new();
        let mut reports = Vec::new();
        for output in self.out.drain(..) {
            match output {
                Output::StartFlow { flow, .. } => flows.push(flow),
                Output::Send { bytes, .. } => reports.push(bytes),
                Output::Publish { topic, message } => {
                    assert_eq!(topic, "rtsp 10.0.0.1 8554 /clip");
                    assert_eq!(&*message, "live");
                }
                Output::Playing { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((flows.len(), reports.len()), (2, 2));
        for flow in flows {
            self.flows.access(flow, |flow| {
                for _ in 0..20 {
                    let due = flow.next_due().expect("it has not ended");
                    let packet = flow.next_packet(due).expect("it is due");
                    flow.packet_sent(packet.tag, Some(Handover::at(due)));
                }
            });
        }
        reports
    }
}

#[test]
fn publisher_announces_records_and_tears_down() {
    let mut bench = bench(By::Tcp, URL);
    let reports = bench.record();
    assert_eq!(&reports[0][..2], [b'$', 1]);
    assert_eq!(&reports[1][..2], [b'$', 3]);
    // ANNOUNCE, two SETUP and RECORD, 10 ms each.
    assert_eq!(bench.delay(m::PUBLISH_DELAY), 40);
    assert_eq!(bench.delay(m::ANNOUNCE_DELAY), 10);
    assert_eq!(bench.delay(m::RECORD_DELAY), 10);
    // Keep-alives at half of 20 s, and reports before that.
    let begun = bench.now;
    let mut sent = Vec::new();
    while bench.now.since(begun) < Duration::from_millis(10_500) {
        bench.deadline();
        for output in bench.out.drain(..) {
            if let Output::Send { bytes, .. } = output {
                sent.push(bytes);
            }
        }
    }
    let signs = sent.iter().filter(|bytes| bytes.starts_with(b"OPTIONS"));
    assert_eq!(signs.count(), 1);
    assert_eq!(sent.iter().filter(|bytes| bytes[0] == b'$').count(), 4);
    let until = bench.now + Duration::from_secs(5);
    bench.input(Input::Stop { until });
    let kinds: Vec<&str> = bench
        .out
        .iter()
        .map(|output| match output {
            Output::StopFlow { .. } => "stop",
            Output::Publish { message, .. } if &**message == "gone" => "gone",
            Output::Send { bytes, .. } if bytes[0] == b'$' => "goodbye",
            Output::Send { bytes, .. } if bytes.starts_with(b"TEARDOWN") => "teardown",
            _ => "other",
        })
        .collect();
    assert_eq!(
        kinds,
        ["stop", "stop", "gone", "goodbye", "goodbye", "teardown"]
    );
    let Some(Output::Send { bytes, .. }) = bench.out.pop_back() else {
        unreachable!("just seen");
    };
    bench.out.clear();
    bench.out.push_back(Output::Send {
        channel: bench.tcp,
        port: Port::Media,
        bytes,
    });
    let request = bench.asked(Method::Teardown);
    bench.answer(&request, 200, &[], "");
    assert!(matches!(bench.ended().1, Outcome::Stopped));
}

#[test]
fn challenged_announce_is_sent_again_with_its_body() {
    let mut bench = bench(By::Tcp, "rtsp://me:secret@10.0.0.1:8554/clip");
    bench.connect();
    let request = bench.asked(Method::Options);
    bench.answer(&request, 200, &[], "");
    let request = bench.asked(Method::Announce);
    let challenge = [("WWW-Authenticate", "Digest realm=\"x\", nonce=\"y\"")];
    bench.answer(&request, 401, &challenge, "");
    let again = bench.asked(Method::Announce);
    assert_eq!(again.body, request.body);
    let value = again.headers.get("Authorization").expect("one");
    assert!(value.starts_with("Digest username=\"me\""), "{value}");
}

#[test]
fn losses_reported_by_the_server_are_counted() {
    let mut bench = bench(By::Tcp, URL);
    let reports = bench.record();
    let ssrc = u32::from_be_bytes(reports[0][8..12].try_into().expect("four"));
    let mut report = |ssrc, lost| {
        let block = rtcp::ReportBlock {
            ssrc,
            cumulative_lost: lost,
            jitter: 900,
            ..rtcp::ReportBlock::default()
        };
        let mut frame = vec![b'$', 1, 0, 32];
        rtcp::write_receiver_report(&mut frame, 5, &[block]);
        bench.bytes(&frame);
    };
    report(ssrc, 7);
    report(ssrc, 12);
    // A late packet arrived after all. The next report is about another source.
    report(ssrc, 10);
    report(ssrc ^ 1, 500);
    // Neither above the number of sent packets nor below zero.
    report(ssrc, 21);
    report(ssrc, 0x7f_ffff);
    report(ssrc, -1);
    report(ssrc, 10);
    assert_eq!(bench.count(m::RECEIVER_REPORTS), 7);
    assert_eq!(bench.count(m::REPORTED_LOST), 10);
    let jitter = bench.recorder.histogram(m::REPORTED_JITTER).expect("some");
    assert!(jitter.max().expect("some").abs_diff(10_000_000) < 100_000);
}

#[test]
fn udp_media_is_sent_only_to_the_server_itself() {
    let mut bench = bench(By::Udp, URL);
    bench.announce();
    let Output::Open {
        channel,
        open: Open::UdpPair { sink: None, .. },
    } = bench.next()
    else {
        panic!("a pair of ports is wanted");
    };
    bench.input(Input::Opened {
        channel,
        local: "10.0.0.2:5000".parse().expect("an address"),
        remote: None,
    });
    let request = bench.asked(Method::Setup);
    // Media is never sent to another host.
    let transport = "RTP/AVP;unicast;client_port=5000-5001;server_port=6000-6001;source=10.9.9.9";
    let headers = [("Session", "abc"), ("Transport", transport)];
    bench.answer(&request, 200, &headers, "");
    match bench.next() {
        Output::Peer { media, control, .. } => {
            assert_eq!(media.to_string(), "10.0.0.1:6000");
            assert_eq!(control.to_string(), "10.0.0.1:6001");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusals_and_unusable_answers_have_reasons() {
    for (status, reason) in [
        (405, "status_405"),
        (403, "status_403"),
        (500, "status_500"),
    ] {
        let mut bench = bench(By::Tcp, URL);
        let request = bench.set_up_to_record();
        bench.answer(&request, status, &[], "");
        assert_eq!(bench.failed().0, reason);
    }
    // TCP was requested, and UDP granted.
    let mut other = bench(By::Tcp, URL);
    other.announce();
    let request = other.asked(Method::Setup);
    let transport = "RTP/AVP;unicast;client_port=5000-5001;server_port=6000-6001";
    let headers = [("Session", "abc"), ("Transport", transport)];
    other.answer(&request, 200, &headers, "");
    assert_eq!(other.failed().0, "unsupported_transport_answer");
    // RECORD is not answered.
    let mut silent = bench(By::Tcp, URL);
    silent.set_up_to_record();
    silent.deadline();
    assert_eq!(silent.failed().0, "timeout_record");
    // The server closes the connection while media is sent.
    let mut cut = bench(By::Tcp, URL);
    cut.record();
    let channel = cut.tcp;
    cut.input(Input::Closed {
        channel,
        reason: CloseReason::End,
    });
    assert_eq!(cut.failed().0, "closed_in_record");
}
