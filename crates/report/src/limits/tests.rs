use measure::server::LogComplaint;

use super::*;

/// A run of one-second windows. `of` sets the values of each window from its index.
fn run(windows: u32, of: impl Fn(f64, &mut WindowValues)) -> Evidence {
    let points = (0..windows).map(|number| {
        let mut point = WindowValues {
            start: f64::from(number),
            playing: 100.0,
            bit_rate: 100e6,
            cpu: Some(0.5),
            hottest_thread: Some(0.4),
            tester_cpu: Some(0.1),
            uss: Some(50e6),
            ..WindowValues::default()
        };
        of(f64::from(number), &mut point);
        point
    });
    Evidence {
        points: points.collect(),
        is_short: false,
        sends_media: true,
    }
}

#[test]
fn feedback_drops_are_named_as_such() {
    let drops = |sends_media| {
        let mut evidence = run(20, |at, point| point.socket_drops = f64::from(at == 7.0));
        evidence.sends_media = sends_media;
        limits(&evidence).remove(0).text
    };
    assert!(drops(false).contains("limit nothing that it sends"));
    assert!(!drops(true).contains("feedback"));
}

#[test]
fn partial_second_is_added_to_the_previous_window() {
    let catalogue = measure::SERVER_CATALOGUE;
    let window = |cores, drops| {
        let mut recorder = measure::Recorder::new(catalogue);
        recorder.set(measure::server::CPU_HOTTEST_THREAD, cores);
        recorder.add(measure::server::SOCKET_DROPS, drops);
        recorder.take_window()
    };
    let mut evidence = Evidence::default();
    for second in 0..20u8 {
        evidence.window(f64::from(second), 1.0);
        evidence.add(SubjectKind::Server, catalogue, &window(0.2, 0), 1.0);
    }
    evidence.window(20.0, 0.012);
    evidence.add(SubjectKind::Server, catalogue, &window(0.99, 3), 0.012);
    assert_eq!(evidence.points.len(), 20);
    assert_eq!(evidence.points[19].hottest_thread, Some(0.2));
    assert_eq!(evidence.points[19].socket_drops, 3.0);
}

fn kinds(evidence: &Evidence) -> Vec<LimitKind> {
    limits(evidence).iter().map(|limit| limit.kind).collect()
}

fn limits(evidence: &Evidence) -> Vec<Limit> {
    evidence.limits(2, &ServerLog::default())
}

#[test]
fn server_with_reserves_has_no_limits() {
    assert_eq!(kinds(&run(120, |_, _| {})), []);
    assert_eq!(kinds(&Evidence::default()), []);
    // A server without measurements has none, either.
    let blind = run(120, |_, point| *point = WindowValues::default());
    assert_eq!(kinds(&blind), []);
}

#[test]
fn saturated_thread_and_saturated_cores_are_distinguished() {
    let hot = |windows: f64| {
        run(60, move |at, point| {
            if at >= 60.0 - windows {
                point.hottest_thread = Some(0.99);
            }
        })
    };
    assert_eq!(kinds(&hot(2.0)), [], "two windows may be anything");
    let limits = hot(5.0).limits(2, &ServerLog::default());
    assert_eq!(limits.len(), 1);
    assert_eq!((limits[0].kind, limits[0].windows), (LimitKind::Thread, 5));
    assert!(
        limits[0]
            .text
            .contains("0.99 cores) in 5 of 60 windows, first at 55 s with 100")
    );
    let cores = run(60, |_, point| {
        point.cpu = Some(1.5);
        point.tester_cpu = Some(0.45);
    });
    assert_eq!(kinds(&cores), [LimitKind::Cores]);
    assert_eq!(cores.limits(4, &ServerLog::default()), [], "there are more");
}

#[test]
fn restricted_server_is_judged_by_its_allowed_cores() {
    let kept = |allowed: Option<f64>, cpu: f64| {
        run(60, move |_, point| {
            (point.allowed, point.cpu) = (allowed, Some(cpu));
        })
    };
    let limits = kept(Some(1.0), 0.99).limits(4, &ServerLog::default());
    assert_eq!(limits.len(), 1);
    assert_eq!((limits[0].kind, limits[0].windows), (LimitKind::Cores, 60));
    let text = &limits[0].text;
    assert!(
        text.contains("1 of the machine's 4 cores, and used all of that (up to 0.99) in 60 of 60"),
        "{text}"
    );
    assert_eq!(kinds(&kept(Some(0.5), 0.49)), [LimitKind::Cores]);
    // The server may use all cores, or was far below its limit, or the limit is unknown.
    for (allowed, cpu) in [(Some(2.0), 1.7), (Some(1.0), 0.9), (None, 0.99)] {
        assert_eq!(kinds(&kept(allowed, cpu)), [], "{allowed:?} {cpu}");
    }
    let all = kept(Some(2.0), 1.99).limits(2, &ServerLog::default());
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].text.contains("by the tester up to"), "{all:?}");
    // The limit of a remote server is unknown.
    let mut remote = kept(None, 1.0);
    remote
        .points
        .iter_mut()
        .for_each(|p| p.machine_cpu = Some(1.0));
    assert_eq!(kinds(&remote), []);
}

#[test]
fn remote_server_is_judged_by_the_cores_of_its_machine() {
    let remote = |cores: f64| {
        run(60, move |_, point| {
            point.cpu = Some(1.9);
            point.machine_cpu = Some(3.9);
            point.machine_cores = Some(cores);
            point.receive_errors = if cores > 4.0 { 1.0 } else { 0.0 };
        })
    };
    let limits = remote(4.0).limits(2, &ServerLog::default());
    assert_eq!(limits.len(), 1);
    assert!(
        limits[0]
            .text
            .contains("the 4 cores of the server's machine"),
        "{}",
        limits[0].text
    );
    let limits = remote(8.0).limits(2, &ServerLog::default());
    assert_eq!(limits.len(), 1);
    assert!(
        limits[0].text.contains("dropped 60 datagrams"),
        "{}",
        limits[0].text
    );
}

#[test]
fn flat_bit_rate_is_distinguished_from_a_rising_one() {
    let ramp = |ends: f64| {
        run(120, move |at, point| {
            point.playing = (at * 2.0).min(200.0);
            point.bit_rate = point.playing.min(ends) * 1e6;
        })
    };
    assert_eq!(kinds(&ramp(200.0)), []);
    let limits = ramp(145.0).limits(2, &ServerLog::default());
    assert_eq!(limits.len(), 1);
    assert_eq!(limits[0].kind, LimitKind::FlatBitRate);
    assert!(limits[0].text.contains("Mbit/s (+"), "{}", limits[0].text);
    // All clients begin at once: there is nothing to compare with.
    assert_eq!(kinds(&run(60, |_, point| point.bit_rate = 1.0)), []);
    // Windows in which clients leave are not compared.
    let leaving = run(120, |at, point| {
        point.playing = 200.0 - at;
        point.bit_rate = 100e6;
    });
    assert_eq!(kinds(&leaving), []);
}

#[test]
fn descriptors_are_reported_only_near_their_limit() {
    let with = |share: f64| {
        run(60, move |at, point| {
            point.descriptors = Some(1000.0);
            point.descriptors_share = Some(if at < 20.0 { 0.1 } else { share });
        })
    };
    assert_eq!(kinds(&with(0.94)), []);
    let limits = limits(&with(1.0));
    assert_eq!(limits.len(), 1);
    assert_eq!(limits[0].kind, LimitKind::FileDescriptors);
    assert_eq!((limits[0].first_at, limits[0].windows), (20.0, 40));
    let text = &limits[0].text;
    assert!(
        text.contains("up to 100 %") && text.contains("(1000 in all"),
        "{text}"
    );
    let once = |share: f64| {
        run(60, move |at, point| {
            point.descriptors_share = Some(if at == 20.0 { share } else { 0.5 })
        })
    };
    assert_eq!(kinds(&once(0.99)), []);
    assert_eq!(kinds(&once(1.0)), [LimitKind::FileDescriptors]);
}

#[test]
fn log_complaints_are_quoted() {
    let evidence = run(60, |at, point| {
        point.log_complaints = if at >= 50.0 { 4.0 } else { 0.0 };
    });
    let complaint = |lines, first: &str| LogComplaint {
        pattern: String::new(),
        lines,
        first: first.to_owned(),
    };
    let log = ServerLog {
        complaints: vec![complaint(38, "too old"), complaint(2, "no files")],
        more: false,
    };
    let limits_of = limits;
    let limits = evidence.limits(2, &log);
    assert_eq!(limits.len(), 1);
    assert_eq!((limits[0].kind, limits[0].first_at), (LimitKind::Log, 50.0));
    assert!(
        limits[0].text.contains("40 lines, in 10 of 60 windows, first at 50 s with 100 clients playing: 38 such as \u{201c}too old\u{201d}; 2 such as"),
        "{}",
        limits[0].text
    );
    // A run that was cut off only has the count.
    assert_eq!(limits_of(&evidence).len(), 1);
}

#[test]
fn drops_are_summed() {
    let evidence = run(60, |at, point| {
        point.socket_drops = if at == 7.0 || at == 9.0 { 21.0 } else { 0.0 };
    });
    let limits = evidence.limits(2, &ServerLog::default());
    assert_eq!(limits.len(), 1);
    assert!(
        limits[0].text.contains("dropped 42 datagrams"),
        "{}",
        limits[0].text
    );
    assert_eq!((limits[0].first_at, limits[0].windows), (7.0, 2));
}

#[test]
fn memory_growth_is_reported_only_with_constant_clients() {
    let sampled = |at: f64| (at / 5.0).floor() * 5.0;
    let leak = run(120, move |at, point| {
        point.uss = Some(50e6 + sampled(at) * 200e3)
    });
    let limits = leak.limits(2, &ServerLog::default());
    assert_eq!(limits.len(), 1);
    assert_eq!(limits[0].kind, LimitKind::MemoryGrowth);
    assert!(
        limits[0].text.contains("11.4 MiB a minute"),
        "{}",
        limits[0].text
    );
    let with_clients = run(120, |at, point| {
        point.playing = at;
        point.bit_rate = at * 1e6;
        point.uss = Some(50e6 + at * 200e3);
    });
    assert_eq!(kinds(&with_clients), []);
    let noise = run(120, move |at, point| {
        point.uss = Some(50e6 + 30e6 * (sampled(at) * 1.7).sin());
    });
    assert_eq!(kinds(&noise), []);
    let short = run(30, move |at, point| {
        point.uss = Some(50e6 + sampled(at) * 2e6)
    });
    assert_eq!(kinds(&short), []);
}
