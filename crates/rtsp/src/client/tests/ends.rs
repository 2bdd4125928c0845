//! Detection of the end of the media, and the end of a session.

use std::sync::Arc;

use super::*;
use kit::media::rtp::StreamSummary;
use kit::media::rtp::summaries;

/// Answers the TEARDOWN that must come next. Returns the outcome.
fn answer_teardown(bench: &mut ClientBench) -> Outcome {
    while matches!(
        bench.out.front(),
        Some(
            Output::Playing { .. }
                | Output::Note(_)
                | Output::Send {
                    port: Port::Control,
                    ..
                }
        )
    ) {
        bench.next();
    }
    let teardown = bench.asked(Method::Teardown);
    bench.answer(&teardown, 200, &[], "");
    bench.ended().1
}

/// Plays without reports, and without keep-alives within the time of the test.
fn play_without_timers(sdp: &str, streams: u16) -> ClientBench {
    let mut bench = ClientBench::udp();
    Arc::make_mut(&mut bench.client.config).receiver_reports = false;
    bench.play_udp(sdp, streams);
    bench.client.conversation.keep_alive_due = None;
    bench
}

/// Asserts that the server ended media of unknown length.
fn assert_ended_by_server(outcome: &Outcome) {
    let Outcome::EndedByServer { failure, .. } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(failure.reason, "ended_by_server");
    assert!(failure.detail.contains(": BYE ("), "{}", failure.detail);
}

#[test]
fn bye_of_every_stream_ends_the_media() {
    let mut bench = play_without_timers(&TWO.replace("a=range:npt=0-30\r\n", ""), 2);
    bench.packet(0, 1);
    bench.packet(1, 1);
    bench.after(1000);
    bench.rtcp(0, &bye());
    bench.after(50);
    bench.rtcp(1, &bye());
    let at = bench.now;
    bench.deadline();
    assert_eq!(bench.now, at + Duration::from_millis(200));
    assert_ended_by_server(&answer_teardown(&mut bench));
}

#[test]
fn bye_as_sent_by_vlc_ends_the_media() {
    let mut bench = play_without_timers(&TWO.replace("a=range:npt=0-30\r\n", ""), 2);
    let mut packet = Vec::new();
    rtcp::write_sender_report(&mut packet, &rtcp::SenderInfo::default(), &[]);
    rtcp::write_cname(&mut packet, 0, "127.0.0.1");
    rtcp::write_bye(&mut packet, &[0], None);
    for stream in 0..2 {
        bench.packet(stream, 1);
        bench.rtcp(stream, &packet);
    }
    bench.deadline();
    assert_ended_by_server(&answer_teardown(&mut bench));
}

#[test]
fn bye_of_another_source_is_ignored() {
    let mut bench = play_without_timers(ONE, 1);
    bench.packet(0, 1);
    let mut other = Vec::new();
    rtcp::write_bye(&mut other, &[1234], None);
    bench.rtcp(0, &other);
    bench.rtcp(0, b"\x00nonsense");
    bench.after(5000);
    bench.input(Input::Deadline);
    assert!(matches!(bench.next(), Output::Playing { .. }));
    assert!(bench.out.is_empty());
}

#[test]
fn a_new_source_cancels_the_bye() {
    let mut bench = play_without_timers(ONE, 1);
    bench.packet(0, 1);
    bench.rtcp(0, &bye());
    let sink = bench.client.streams[0].sink;
    let event = session::MediaEvent::SourceChanged { ssrc: 10 };
    bench.input(Input::Media { sink, event });
    bench.after(5000);
    bench.input(Input::Deadline);
    assert!(matches!(bench.next(), Output::Playing { .. }));
    assert!(bench.out.is_empty());
}

#[test]
fn silence_at_the_known_end_completes() {
    let mut bench = play_without_timers(TWO, 2);
    let first = bench.now;
    for seq in 0..295 {
        bench.packet(0, seq);
        bench.packet(1, seq);
        bench.after(100);
        bench.input(Input::Deadline);
    }
    let last = bench.now - Duration::from_millis(100);
    assert!(matches!(bench.next(), Output::Playing { .. }));
    while bench.out.is_empty() {
        bench.deadline();
    }
    // 30 s of media less 1 s of slack have played, and 1 s of silence has passed.
    assert_eq!(
        bench.now,
        (last + Duration::from_secs(1)).max(first + Duration::from_secs(29))
    );
    assert_eq!(answer_teardown(&mut bench), Outcome::Completed);
}

#[test]
fn silence_long_before_the_known_end_is_a_failure() {
    let mut bench = play_without_timers(TWO, 2);
    bench.packet(0, 1);
    let last = bench.now;
    while bench
        .out
        .iter()
        .all(|o| matches!(o, Output::Playing { .. }))
    {
        bench.deadline();
    }
    assert_eq!(bench.now, last + Duration::from_secs(10));
    let sent = bench
        .out
        .iter()
        .filter(|o| matches!(o, Output::Send { .. }))
        .count();
    assert_eq!(sent, 1, "TEARDOWN is still sent");
    let (before, outcome) = bench.ended();
    assert!(
        matches!(outcome, Outcome::Failed(f) if f.reason == "media_stopped" && f.detail.contains("30.000 s"))
    );
    assert!(
        before
            .iter()
            .any(|o| matches!(o, Output::Note(n) if n.kind == "silent_stream"))
    );
}

/// Sends ten packets a second for this number of seconds, then none until the session ends.
fn plays_then_falls_silent(bench: &mut ClientBench, seconds: u16) -> Outcome {
    for seq in 0..seconds * 10 + 1 {
        bench.packet(0, seq);
        bench.input(Input::Deadline);
        bench.after(100);
    }
    assert!(matches!(bench.next(), Output::Playing { .. }));
    while bench.out.is_empty() {
        bench.deadline();
    }
    let is_teardown_answered = matches!(bench.out.back(), Some(Output::Ended(_)));
    if is_teardown_answered {
        bench.ended().1
    } else {
        answer_teardown(bench)
    }
}

#[test]
fn silence_does_not_advance_media_to_its_end() {
    // Silent from 22 s of 30 s on: the end passes before the silence limit of 10 s.
    for (seconds, stopped) in [(22, true), (28, true), (29, false), (30, false)] {
        let mut bench = play_without_timers(TWO, 2);
        let outcome = plays_then_falls_silent(&mut bench, seconds);
        match outcome {
            Outcome::Failed(f) if stopped => assert_eq!(f.reason, "media_stopped"),
            Outcome::Completed if !stopped => {}
            other => panic!("{seconds} s: {other:?}"),
        }
    }
    // The last twentieth of long media may be missing.
    let long = TWO.replace("npt=0-30", "npt=0-100");
    for (seconds, stopped) in [(94, true), (95, false)] {
        let mut bench = play_without_timers(&long, 2);
        let outcome = plays_then_falls_silent(&mut bench, seconds);
        assert_eq!(
            matches!(outcome, Outcome::Failed(_)),
            stopped,
            "{seconds} s: {outcome:?}"
        );
    }
}

#[test]
fn late_wake_up_does_not_turn_silence_into_an_end() {
    // The client may be called only after all its due times.
    let mut bench = play_without_timers(TWO, 2);
    bench.packet(0, 1);
    bench.after(60_000);
    bench.input(Input::Deadline);
    let Outcome::Failed(failure) = bench.ended().1 else {
        panic!("one packet is not 30 s of media");
    };
    assert_eq!(failure.reason, "media_stopped");
}

#[test]
fn close_after_silence_is_a_failure() {
    let mut bench = play_without_timers(TWO, 2);
    Arc::make_mut(&mut bench.client.config).silence = TimeSpan(Duration::from_secs(100));
    bench.packet(0, 1);
    bench.after(40_000);
    let channel = bench.tcp;
    bench.input(Input::Closed {
        channel,
        reason: CloseReason::End,
    });
    assert_eq!(bench.failed().0, "closed_in_play");
}

#[test]
fn bye_without_a_packet_fails_with_no_media() {
    let mut bench = play_without_timers(TWO, 2);
    bench.rtcp(0, &bye());
    bench.after(1000);
    bench.input(Input::Deadline);
    assert!(bench.out.is_empty(), "the other stream may still begin");
    bench.rtcp(1, &bye());
    let at = bench.now;
    bench.deadline();
    assert_eq!(bench.now, at + Duration::from_millis(200));
    assert_eq!(bench.failed().0, "no_media");

    // All due times have passed at once.
    let mut bench = play_without_timers(TWO, 2);
    bench.rtcp(0, &bye());
    bench.rtcp(1, &bye());
    bench.after(60_000);
    bench.input(Input::Deadline);
    assert_eq!(bench.failed().0, "no_media");

    // The other stream stays silent.
    let mut bench = play_without_timers(TWO, 2);
    bench.rtcp(0, &bye());
    bench.after(60_000);
    bench.input(Input::Deadline);
    assert_eq!(bench.failed().0, "no_media");

    // The server closes the connection right after the BYE.
    let mut bench = play_without_timers(ONE, 1);
    bench.rtcp(0, &bye());
    let channel = bench.tcp;
    bench.input(Input::Closed {
        channel,
        reason: CloseReason::End,
    });
    assert_eq!(bench.failed().0, "no_media");
}

#[test]
fn streams_are_reported_while_they_play() {
    let mut bench = play_without_timers(TWO, 2);
    for seq in [1, 2, 5] {
        bench.packet(0, seq);
    }
    let now = summaries(&bench.client.streams(&mut bench.sinks));
    assert_eq!(now.len(), 2);
    assert_eq!((now[0].counts.expected, now[0].counts.received), (5, 3));
    assert_eq!(now[1].counts.received, 0);
    bench.rtcp(0, &bye());
    bench.deadline();
    assert!(matches!(bench.next(), Output::Playing { .. }));
    let teardown = bench.asked(Method::Teardown);
    bench.answer(&teardown, 200, &[], "");
    let (before, _) = bench.ended();
    let last = before.iter().find_map(|output| match output {
        Output::Streams(streams) => Some(summaries(streams)),
        _ => None,
    });
    // The last frames are judged only at the end.
    let counts = |streams: &[StreamSummary]| streams.iter().map(|s| s.counts).collect::<Vec<_>>();
    assert_eq!(last.map(|streams| counts(&streams)), Some(counts(&now)));
    assert!(bench.client.streams(&mut bench.sinks).is_empty());
}

#[test]
fn silence_of_live_media_is_a_failure() {
    let mut bench = play_without_timers(ONE, 1);
    bench.packet(0, 1);
    bench.after(4000);
    bench.packet(0, 2);
    let last = bench.now;
    assert!(matches!(bench.next(), Output::Playing { .. }));
    while bench.out.is_empty() {
        bench.deadline();
    }
    assert_eq!(bench.now, last + Duration::from_secs(10));
    let Outcome::Failed(failure) = bench.ended().1 else {
        panic!("media without a known end has none that silence could be");
    };
    assert_eq!(failure.reason, "media_stopped");
    let text = format!("no packet for 10s, and no BYE, 10.0.0.2:40000 to {SERVER}");
    assert_eq!(failure.detail, text);
}

#[test]
fn client_awaits_nothing_while_media_flows() {
    let mut bench = play_without_timers(ONE, 1);
    let mut deadlines = 0;
    for seq in 0..600 {
        bench.packet(0, seq);
        bench.after(100);
        if let Some(deadline) = bench.client.deadline()
            && deadline <= bench.now
        {
            // The checks after the first packet and after the answer to PLAY are not at deadlines.
            deadlines += 1;
            assert!(!bench.client.awaits_input(bench.now), "at {:?}", bench.now);
            bench.input(Input::Deadline);
        }
    }
    assert!(deadlines > 4, "{deadlines} looks in a minute");
    let last = bench.now - Duration::from_millis(100);
    bench.out.clear();
    let mut awaited = false;
    while bench.out.is_empty() {
        let deadline = bench.client.deadline().expect("silence");
        awaited = bench.client.awaits_input(deadline);
        bench.deadline();
    }
    assert!(awaited, "what came before the end is heard first");
    assert_eq!(bench.now, last + Duration::from_secs(10));
}

#[test]
fn close_after_a_bye_is_an_end_by_the_server() {
    let mut bench = play_without_timers(ONE, 1);
    bench.packet(0, 1);
    bench.rtcp(0, &bye());
    let channel = bench.tcp;
    bench.input(Input::Closed {
        channel,
        reason: CloseReason::End,
    });
    assert_ended_by_server(&bench.ended().1);
}

#[test]
fn stop_after_a_long_wait_is_the_servers_failure() {
    let stop = |bench: &mut ClientBench| {
        bench.out.clear();
        let until = bench.now + Duration::from_secs(5);
        bench.input(Input::Stop { until });
    };
    let mut connecting = ClientBench::udp();
    let due = connecting.now;
    connecting.input(Input::Start { due });
    connecting.after(1000);
    stop(&mut connecting);
    assert_eq!(connecting.failed().0, "connect_timeout");

    for (wait, reason) in [(999, None), (1000, Some("timeout_describe"))] {
        let mut describing = ClientBench::udp();
        describing.connect();
        describing.options();
        describing.after(wait);
        stop(&mut describing);
        match reason {
            None => assert_eq!(describing.ended().1, Outcome::Stopped),
            Some(reason) => assert_eq!(describing.failed().0, reason),
        }
    }

    let mut silent = play_without_timers(ONE, 1);
    silent.after(1000);
    stop(&mut silent);
    assert_eq!(silent.failed().0, "no_media");

    let mut playing = play_without_timers(ONE, 1);
    playing.packet(0, 1);
    playing.after(1000);
    stop(&mut playing);
    assert_eq!(answer_teardown(&mut playing), Outcome::Stopped);
}

#[test]
fn stop_ends_the_session_in_every_phase() {
    let stop = |bench: &mut ClientBench| {
        bench.out.clear();
        let until = bench.now + Duration::from_secs(1);
        bench.input(Input::Stop { until });
    };
    let mut idle = ClientBench::udp();
    stop(&mut idle);
    assert_eq!(idle.ended().1, Outcome::Stopped);

    let mut connecting = ClientBench::udp();
    let due = connecting.now;
    connecting.input(Input::Start { due });
    stop(&mut connecting);
    let (before, outcome) = connecting.ended();
    assert_eq!(outcome, Outcome::Stopped);
    assert!(matches!(
        before[..],
        [Output::Close { .. }, Output::Viewed(_)]
    ));

    let mut describing = ClientBench::udp();
    describing.connect();
    describing.options();
    stop(&mut describing);
    assert_eq!(describing.ended().1, Outcome::Stopped);

    // With a session, the client waits for the answer to TEARDOWN, but not forever.
    let mut playing = ClientBench::udp();
    playing.set_up_udp(TWO, 2);
    stop(&mut playing);
    playing.asked(Method::Teardown);
    assert!(playing.out.is_empty());
    playing.deadline();
    assert_eq!(playing.ended().1, Outcome::Stopped);

    // A server may close the connection instead of answering.
    let mut closing = ClientBench::udp();
    closing.play_udp(ONE, 1);
    stop(&mut closing);
    let channel = closing.tcp;
    closing.input(Input::Closed {
        channel,
        reason: CloseReason::Reset,
    });
    assert_eq!(closing.ended().1, Outcome::Stopped);

    // Further inputs have no effect.
    let until = closing.now;
    closing.input(Input::Stop { until });
    closing.input(Input::Deadline);
    assert!(closing.out.is_empty());
}

#[test]
fn ports_that_open_too_late_are_ignored() {
    let mut bench = ClientBench::udp();
    bench.connect();
    bench.options();
    bench.describe(ONE);
    let Output::Open { channel, .. } = bench.next() else {
        panic!("a pair of ports is wanted");
    };
    let until = bench.now + Duration::from_secs(1);
    bench.input(Input::Stop { until });
    let (before, outcome) = bench.ended();
    assert_eq!(outcome, Outcome::Stopped);
    assert!(
        before
            .iter()
            .any(|o| matches!(o, Output::Close { channel: c } if *c == channel))
    );
    let local = "10.0.0.2:5000".parse().expect("an address");
    bench.input(Input::Opened {
        channel,
        local,
        remote: None,
    });
    assert!(bench.out.is_empty());
}

/// Sends a packet every `step` ms for `ms`, none for `silent` ms, and then stops the client.
fn stopped_after_silence(bench: &mut ClientBench, (step, ms): (u64, u64), silent: u64) {
    for seq in 0..=ms / step {
        if seq > 0 {
            bench.after(step);
        }
        bench.packet(0, seq as u16);
    }
    bench.after(silent);
    bench.out.clear();
    let until = bench.now + Duration::from_secs(5);
    bench.input(Input::Stop { until });
}

#[test]
fn stop_after_media_stopped_is_the_servers_failure() {
    for (played, silent, fails) in [
        ((40, 1000), 7000, true),
        ((40, 1000), 1999, false),
        // A slow stream has long gaps, but has not stopped.
        ((3000, 9000), 2900, false),
        ((3000, 9000), 6000, false),
        // One packet does not show how often packets arrive.
        ((1, 0), 4000, false),
        ((1, 0), 6000, true),
    ] {
        let mut bench = play_without_timers(ONE, 1);
        stopped_after_silence(&mut bench, played, silent);
        if !fails {
            assert_eq!(answer_teardown(&mut bench), Outcome::Stopped, "{played:?}");
            continue;
        }
        let (reason, detail) = bench.failed();
        assert_eq!(reason, "media_stopped");
        let text = format!(
            "no packet for {}.000 s until the client was stopped (10.0.0.2:40000 to {SERVER})",
            silent / 1000
        );
        assert_eq!(detail, text);
        // The silence is a gap, and a stall if a frame preceded it.
        assert_eq!(bench.delay(kit::media::rtp::metrics::LONGEST_GAP), silent);
        assert_eq!(bench.count(kit::media::rtp::metrics::STALLS), 1);
    }
}

#[test]
fn a_paused_client_has_not_gone_silent() {
    for (pauses, fails) in [(true, false), (false, true)] {
        let config = ClientConfig {
            actions: serde_json::from_str(r#"[{"wait":"1s"},{"pause":"60s"}]"#).expect("actions"),
            receiver_reports: false,
            ..ClientConfig::default()
        };
        let mut bench = ClientBench::new(
            if pauses {
                config
            } else {
                ClientConfig::default()
            },
            URL,
        );
        bench.play_udp(ONE, 1);
        bench.client.conversation.keep_alive_due = None;
        for seq in 0..=10 {
            bench.packet(0, seq);
            bench.after(100);
        }
        bench.input(Input::Deadline);
        if pauses {
            assert!(matches!(bench.next(), Output::Playing { .. }));
            let pause = bench.asked(Method::Pause);
            bench.answer(&pause, 200, &[], "");
        }
        bench.after(6000);
        bench.out.clear();
        let until = bench.now + Duration::from_secs(5);
        bench.input(Input::Stop { until });
        match fails {
            true => assert_eq!(bench.failed().0, "media_stopped"),
            false => assert_eq!(answer_teardown(&mut bench), Outcome::Stopped),
        }
    }
}

#[test]
fn a_stop_after_the_known_end_or_a_bye_is_no_failure() {
    let mut over = play_without_timers(TWO, 2);
    stopped_after_silence(&mut over, (100, 29_500), 5000);
    assert_eq!(answer_teardown(&mut over), Outcome::Stopped);
    let mut over = play_without_timers(TWO, 2);
    stopped_after_silence(&mut over, (100, 15_000), 5000);
    assert_eq!(over.failed().0, "media_stopped");
    let mut gone = play_without_timers(ONE, 1);
    gone.packet(0, 1);
    gone.after(1000);
    gone.packet(0, 2);
    gone.rtcp(0, &bye());
    gone.after(4000);
    gone.out.clear();
    let until = gone.now + Duration::from_secs(5);
    gone.input(Input::Stop { until });
    assert_eq!(answer_teardown(&mut gone), Outcome::Stopped);
}

#[test]
fn a_bye_long_before_the_known_end_is_a_failure() {
    for (plays, early) in [
        (1500, Some("28.5 s")),
        (27_900, Some("2.1 s")),
        (28_000, None),
    ] {
        for closes in [false, true] {
            let mut bench = play_without_timers(TWO, 2);
            for seq in 0..=plays / 100 {
                if seq > 0 {
                    bench.after(100);
                }
                bench.packet(0, seq as u16);
                bench.packet(1, seq as u16);
            }
            bench.out.clear();
            bench.rtcp(0, &bye());
            bench.rtcp(1, &bye());
            if closes {
                let channel = bench.tcp;
                let how = CloseReason::End;
                bench.input(Input::Closed {
                    channel,
                    reason: how,
                });
            } else {
                bench.deadline();
            }
            let Some(early) = early else {
                let outcome = match closes {
                    true => bench.ended().1,
                    false => answer_teardown(&mut bench),
                };
                assert_eq!(outcome, Outcome::Completed);
                continue;
            };
            let (reason, detail) = bench.failed();
            assert_eq!(reason, "media_stopped");
            let text =
                format!("BYE {early} before the media's known end (10.0.0.2:40000 to {SERVER})");
            assert_eq!(detail, text);
        }
    }
}

#[test]
fn bye_of_media_sent_ahead_is_its_end() {
    // Sent within 20 s, as by servers that fill a buffer first.
    for (packets, complete) in [(700, false), (701, true)] {
        let mut bench = play_without_timers(&format!("{ONE}a=range:npt=0-30\r\n"), 1);
        for seq in 0..packets {
            bench.packet(0, seq);
            bench.input(Input::Deadline);
            bench.after(27);
        }
        bench.out.clear();
        bench.rtcp(0, &bye());
        while bench.out.is_empty() {
            bench.deadline();
        }
        if complete {
            assert_eq!(answer_teardown(&mut bench), Outcome::Completed);
        } else {
            let (reason, detail) = bench.failed();
            assert_eq!(reason, "media_stopped");
            assert!(detail.starts_with("BYE 2.0 s before"), "{detail}");
        }
    }
}
