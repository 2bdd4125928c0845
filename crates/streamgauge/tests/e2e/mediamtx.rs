//! MediaMTX over RTMP and SRT, in both roles, and over low-latency HLS. It is not packaged, so
//! these tests run only if it is in PATH.

use std::process::Command;
use std::time::Duration;

use crate::srt::{self, write};
use crate::support::{
    Process, Report, folder, free_port, have_built, listens, number, run, wait_for,
};

/// Starts MediaMTX with RTMP and SRT on these ports. Returns `None` if it is not installed.
fn start(folder: &std::path::Path, rtmp: u16, srt: u16) -> Option<Process> {
    if !have_built("mediamtx") {
        return None;
    }
    let config = format!(
        "logLevel: warn\nrtsp: no\nhls: no\nwebrtc: no\nrtmp: yes\nrtmpAddress: 127.0.0.1:{rtmp}\n\
         srt: yes\nsrtAddress: 127.0.0.1:{srt}\npaths:\n  all_others:\n"
    );
    write(folder, "mediamtx.yml", &config);
    let mut command = Command::new("mediamtx");
    // Versions that have MOQ would need a port for it.
    command.arg("mediamtx.yml").env("MTX_MOQ", "no");
    let server = Process::start(command, folder);
    wait_for("MediaMTX listens", Duration::from_secs(60), || {
        listens(rtmp).then_some(())
    });
    srt::wait_for_port(srt);
    Some(server)
}

/// Returns a scenario of publishers, and of viewers who join this many seconds after them, for ten
/// seconds.
fn scenario(protocol: &str, publish: &str, after: u32, [to, from]: [String; 2]) -> String {
    let duration = after + 10;
    format!(
        "name: mediamtx\nduration: {duration}s\nclients:\n  publishers:\n    protocol: {protocol}\n    \
         publish: {publish}\n    urls: [\"{to}\"]\n    pick: in_turn\n    \
         load: {{ clients: 2, start: at_once }}\n  viewers:\n    protocol: {protocol}\n    \
         join_after: {after}s\n    urls: [\"{from}\"]\n    pick: in_turn\n    \
         load: {{ clients: 4, start: at_once }}\n"
    )
}

#[test]
fn mediamtx_passes_on_what_rtmp_and_srt_publish() {
    let folder = folder();
    let (rtmp, srt) = (free_port(), srt::free_port());
    let Some(_server) = start(folder.path(), rtmp, srt) else {
        return;
    };
    let url = format!("rtmp://127.0.0.1:{rtmp}/one{{1..2}}");
    let publish = "{ bitrate: 2Mbps, frame_rate: 30, audio: true }";
    let text = scenario("rtmp", publish, 2, [url.clone(), url]);
    write(folder.path(), "rtmp.yaml", &text);
    run(folder.path(), ["run", "rtmp.yaml", "--json", "rtmp.json"]).expect(0);
    let report = Report::read(&folder.path().join("rtmp.json"));
    let count = |name: &str| number(report.metric(name));
    // Each viewer begins with a key frame, of which there is one every two seconds.
    let pictures = count("video_frames");
    assert!(pictures > 4 * 60, "{pictures}");
    assert_eq!(count("frames_delivered"), pictures);
    assert_eq!(count("frames_published"), pictures);
    assert!(count("audio_frames") > 4 * 90);
    assert_eq!((count("malformed"), count("clock_jumps")), (0, 0));

    // The latency is longer than a busy machine keeps anybody waiting. MediaMTX offers a stream
    // once its latency has passed.
    let url = |way: &str| format!("srt://127.0.0.1:{srt}?latency=3000&streamid={way}:two{{1..2}}");
    let publish = "{ bitrate: 3Mbps, audio: true }";
    let text = scenario("srt", publish, 6, [url("publish"), url("read")]);
    write(folder.path(), "srt.yaml", &text);
    run(folder.path(), ["run", "srt.yaml", "--json", "srt.json"]).expect(0);
    let report = Report::read(&folder.path().join("srt.json"));
    let count = |name: &str| number(report.metric(name));
    assert!(count("non_null_packets") > 1000);
    for name in ["pkt_rcv_drop", "continuity_errors", "pkt_malformed"] {
        assert_eq!(count(name), 0, "{name}");
    }
    assert_eq!(report.metric("random_access_delay")["count"], 4);
    // MediaMTX remultiplexes the media: stamps are lost, time codes are kept.
    let pictures = count("frames_published");
    assert!(pictures > 100, "{pictures}");
    assert_eq!(
        (count("frames_delivered"), count("expected")),
        (pictures, 0)
    );
    let delay = report.metric("frame_delay");
    assert!(delay["p50"].as_f64() > Some(2.0), "{delay}");
}

#[test]
fn missing_streams_of_mediamtx_have_failure_reasons() {
    let folder = folder();
    let (rtmp, srt) = (free_port(), srt::free_port());
    let Some(_server) = start(folder.path(), rtmp, srt) else {
        return;
    };
    for (url, reason) in [
        (
            format!("rtmp://127.0.0.1:{rtmp}/nothing"),
            "closed_in_command",
        ),
        (
            format!("srt://127.0.0.1:{srt}?streamid=read:nothing"),
            "rejected_by_peer",
        ),
    ] {
        let arguments = ["load", &url, "-c", "1", "-d", "8s", "--json", "out.json"];
        run(folder.path(), arguments).expect(99);
        let report = Report::read(&folder.path().join("out.json"));
        assert_eq!(report.failures(reason), 1, "{url}");
        std::fs::remove_file(folder.path().join("out.json")).expect("it was written");
    }
}

#[test]
fn low_latency_hls_of_mediamtx_is_played_by_its_parts() {
    if !have_built("mediamtx") {
        return;
    }
    let folder = folder();
    let (rtmp, hls) = (free_port(), free_port());
    let config = format!(
        "logLevel: warn\nrtsp: no\nwebrtc: no\nsrt: no\nrtmp: yes\n\
         rtmpAddress: 127.0.0.1:{rtmp}\nhls: yes\nhlsAddress: 127.0.0.1:{hls}\n\
         hlsAlwaysRemux: yes\nhlsVariant: lowLatency\npaths:\n  all_others:\n"
    );
    write(folder.path(), "mediamtx.yml", &config);
    let mut command = Command::new("mediamtx");
    command.arg("mediamtx.yml").env("MTX_MOQ", "no");
    let _server = Process::start(command, folder.path());
    wait_for("MediaMTX listens", Duration::from_secs(60), || {
        (listens(rtmp) && listens(hls)).then_some(())
    });
    let text = format!(
        "duration: 16s\nclients:\n  publishers:\n    urls: [\"rtmp://127.0.0.1:{rtmp}/live\"]\n    \
         publish: {{ bitrate: 2Mbps, frame_rate: 30, audio: true }}\n    \
         load: {{ clients: 1, start: at_once }}\n  viewers:\n    \
         urls: [\"http://127.0.0.1:{hls}/live/index.m3u8\"]\n    join_after: 8s\n    \
         request_timeout: 10s\n    load: {{ clients: 4, start: at_once }}\n"
    );
    write(folder.path(), "run.yaml", &text);
    run(folder.path(), ["run", "run.yaml", "--json", "out.json"]).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    let count = |name: &str| number(report.metric(name));
    assert_eq!(report.clients("failed"), 0);
    // Two tracks of four viewers, with five parts a second each.
    assert_eq!(count("parts"), count("segments"));
    assert!(count("parts") > 4 * 2 * 5 * 6, "{}", count("parts"));
    assert_eq!(count("segments_due"), count("segments"));
    // All parts but the first ones were hinted, and each answer had only what was new.
    assert_eq!((count("hints_wasted"), count("bytes_wasted")), (0, 0));
    assert!(count("hints_used") > count("parts") / 2);
    assert_eq!(count("playlists_delta"), count("reloads"));
    assert_eq!(
        (count("reloads_short"), count("playlists_unusable")),
        (0, 0)
    );
    assert_eq!(
        (count("segments_damaged"), count("durations_wrong")),
        (0, 0)
    );
    assert_eq!(count("playlists_odd"), 0, "{}", report.0["events"]);
    // The track with video has time codes, and dates that the server made, in whole milliseconds.
    // Only the mean is exact.
    let latency = |name: &str| report.metric(name)["mean"].as_f64().expect("a number");
    let difference = latency("picture_latency") - latency("live_latency");
    let both = [
        report.metric("picture_latency"),
        report.metric("live_latency"),
    ];
    assert!(
        (-0.001..1.0).contains(&difference),
        "{difference}: {both:?}"
    );
}
