//! RTMP: counts equal what a reference server did, real servers are played, and other programs play
//! and publish.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::scrape::get;
use crate::support::{
    Process, RUN_TIMEOUT, Report, established, folder, free_port, have, number, run, streamgauge,
    wait_for,
};

/// Starts nginx with its RTMP module and its files in this folder.
fn nginx(folder: &Path, port: u16) -> Process {
    let own = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {own}/{name};"))
        .concat();
    let config = format!(
        "load_module /usr/lib/nginx/modules/ngx_rtmp_module.so;\n\
         daemon off; master_process off; pid {own}/pid; error_log {own}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; {temporary} }}\n\
         rtmp {{ access_log off; server {{ listen 127.0.0.1:{port}; chunk_size 4096;\n\
         application live {{ live on; record off; }} }} }}\n"
    );
    let path = folder.join("nginx.conf");
    fs::write(&path, config).expect("the folder can be written to");
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(path);
    let mut process = Process::start(command, folder);
    process.listen(port);
    process
}

fn have_nginx_rtmp() -> bool {
    let module = Path::new("/usr/lib/nginx/modules/ngx_rtmp_module.so");
    let left_out = std::env::var_os("STREAMGAUGE_TEST_WITHOUT_TOOLS").is_some();
    assert!(
        module.exists() || left_out,
        "nginx's module for RTMP is missing: ./test installs it"
    );
    have("nginx") && module.exists() && have("ffmpeg")
}

fn ffmpeg(folder: &Path, arguments: &[&str]) -> Process {
    let mut command = Command::new("ffmpeg");
    command
        .args(["-nostdin", "-hide_banner", "-loglevel", "error"])
        .args(arguments);
    Process::start(command, folder)
}

/// Makes a clip of pictures and sound. Returns the number of packets of each, as ffprobe counts
/// them.
fn clip(folder: &Path) -> [u64; 2] {
    let made = ffmpeg(
        folder,
        &[
            "-f",
            "lavfi",
            "-i",
            "testsrc2=s=320x180:r=25",
            "-f",
            "lavfi",
            "-i",
            "sine=440",
            "-t",
            "4",
            "-c:v",
            "libx264",
            "-preset",
            "ultrafast",
            "-g",
            "25",
            "-c:a",
            "aac",
            "clip.mp4",
        ],
    );
    made.finish(Duration::from_secs(60)).expect(0);
    ["v", "a"].map(|kind| {
        let mut command = Command::new("ffprobe");
        command
            .args([
                "-loglevel",
                "error",
                "-count_packets",
                "-select_streams",
                kind,
            ])
            .args(["-show_entries", "stream=nb_read_packets", "-of", "csv=p=0"])
            .arg("clip.mp4");
        let counted = Process::start(command, folder).finish(Duration::from_secs(60));
        let text = counted.expect(0).stdout;
        text.trim().parse().expect("it is a number")
    })
}

#[test]
fn every_frame_that_ffmpeg_publishes_comes_through_nginx() {
    if !have_nginx_rtmp() {
        return;
    }
    let folder = folder();
    let [video, audio] = clip(folder.path());
    let port = free_port();
    let _nginx = nginx(folder.path(), port);
    let url = format!("rtmp://127.0.0.1:{port}/live/one");
    let metrics = free_port();
    let mut load = streamgauge(["load", &url, "-c", "3", "--json", "out.json"]);
    load.args(["--metrics", &metrics.to_string()]);
    load.env("STREAMGAUGE_CLIENTS__VIEWERS__NO_MEDIA", "60s");
    let load = Process::start(load, folder.path());
    // Players that join before the stream is published receive all of it.
    wait_for("the players have joined", Duration::from_secs(60), || {
        // `play` leaves as soon as `createStream` is answered.
        let text = get(metrics, "/metrics")?;
        let mut lines = text.lines();
        let answered = "streamgauge_create_stream_delay_seconds_count{";
        let line = lines.find(|line| line.starts_with(answered))?;
        line.ends_with(" 3").then_some(())
    });
    let publisher = ffmpeg(
        folder.path(),
        &["-re", "-i", "clip.mp4", "-c", "copy", "-f", "flv", &url],
    );
    publisher.finish(RUN_TIMEOUT).expect(0);
    load.finish(RUN_TIMEOUT).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(report.clients("completed"), 3);
    let metric = |name: &str| number(report.metric(name));
    assert_eq!(metric("video_frames"), 3 * video);
    assert_eq!(metric("audio_frames"), 3 * audio);
    assert_eq!((metric("malformed"), metric("clock_jumps")), (0, 0));
    for delay in [
        "handshake_delay",
        "connect_command_delay",
        "play_delay",
        "key_frame_delay",
    ] {
        assert_eq!(report.metric(delay)["count"], 3, "{delay}");
    }
}

#[test]
fn every_frame_of_the_reference_server_is_counted() {
    let folder = folder();
    let port = free_port();
    let number_of_port = port.to_string();
    let mut server = Process::start(
        streamgauge([
            "serve",
            "rtmp",
            "--port",
            &number_of_port,
            "--audio",
            "--fault",
            "lose=5%",
            "--report",
            "served.jsonl",
        ]),
        folder.path(),
    );
    server.listen(port);
    let scenario = format!(
        "name: lossy\nduration: 8s\nclients:\n  viewers:\n    protocol: rtmp\n    time_codes: true\n    \
         urls: [\"rtmp://127.0.0.1:{port}/live/one\"]\n    \
         load: {{ clients: 5, start: at_once }}\n"
    );
    fs::write(folder.path().join("run.yaml"), scenario).expect("the folder can be written to");
    run(folder.path(), ["run", "run.yaml", "--json", "out.json"]).expect(0);
    server.signal("TERM");
    server.finish(Duration::from_secs(60));
    let text = fs::read_to_string(folder.path().join("served.jsonl")).expect("it was written");
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let lines: Vec<Value> = lines.map(|line| line.expect("a line of JSON")).collect();
    let sum = |name: &str| -> u64 {
        let counts = lines.iter().filter_map(|line| line["sent"][name].as_u64());
        counts.sum()
    };
    let report = Report::read(&folder.path().join("out.json"));
    report.tester_was_fit();
    let metric = |name: &str| number(report.metric(name));
    // Frames that leave in the last moment are not waited for. A busy server sends those of two
    // seconds before it notices that a client has left.
    let (clients, seconds) = (5, 2);
    assert!(sum("video_frames") - metric("video_frames") <= clients * seconds * 30);
    assert!(sum("audio_frames") - metric("audio_frames") <= clients * seconds * 60);
    let lost = metric("frames_published") - metric("frames_delivered");
    assert!(lost > 0 && lost <= sum("left_out"), "{lost}");
    assert_eq!(metric("frames_delivered"), metric("video_frames"));
}

#[test]
fn published_frames_return_through_nginx_with_their_delays() {
    if !have_nginx_rtmp() {
        return;
    }
    let folder = folder();
    let port = free_port();
    let _nginx = nginx(folder.path(), port);
    let urls = format!("[\"rtmp://127.0.0.1:{port}/live/own{{1..3}}\"]");
    let scenario = format!(
        "name: there and back\nduration: 12s\nclients:\n  publishers:\n    protocol: rtmp\n    \
         publish: {{ bitrate: 3Mbps, frame_rate: 30, audio: true }}\n    handshake: digest\n    \
         urls: {urls}\n    load: {{ clients: 3, start: at_once }}\n  viewers:\n    \
         protocol: rtmp\n    acknowledge: at_once\n    urls: {urls}\n    pick: in_turn\n    \
         load: {{ clients: 6, start: at_once }}\n"
    );
    fs::write(folder.path().join("run.yaml"), scenario).expect("the folder can be written to");
    run(folder.path(), ["run", "run.yaml", "--json", "out.json"]).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    let metric = |population: &str, name: &str| {
        let metrics = &report.0["populations"][population]["metrics"];
        metrics[name].clone()
    };
    let sent = number(&metric("publishers", "sent_frames"));
    // 30 pictures and 47 frames of sound a second, for up to twelve seconds.
    assert!(sent > 3 * 390, "{sent}");
    assert_eq!(number(&metric("publishers", "not_taken")), 0);
    let pictures = number(&metric("viewers", "video_frames"));
    // nginx begins with a key frame, of which there is one every two seconds.
    assert!(pictures > 6 * 90, "{pictures}");
    // Each picture has two viewers, and most frames are sound.
    assert!(pictures < sent, "{pictures} {sent}");
    assert_eq!(number(&metric("viewers", "frames_delivered")), pictures);
    assert_eq!(number(&metric("viewers", "frames_published")), pictures);
    assert_eq!(number(&metric("viewers", "malformed")), 0);
    assert!(metric("publishers", "send_queue_delay")["count"].as_u64() > Some(1000));
    let delay = metric("viewers", "frame_delay");
    assert!(delay["p50"].as_f64() < Some(5.0), "{delay}");
}

#[test]
fn viewers_change_between_streams_of_nginx_in_their_connections() {
    if !have_nginx_rtmp() {
        return;
    }
    let folder = folder();
    let port = free_port();
    let _nginx = nginx(folder.path(), port);
    let urls = format!("[\"rtmp://127.0.0.1:{port}/live/own{{1..3}}\"]");
    // nginx begins with a key frame, so the media of a new stream takes up to two seconds.
    let scenario = format!(
        "name: zapping\nduration: 60s\nclients:\n  publishers:\n    publish: {{ gop: 50 }}\n    \
         urls: {urls}\n    load: {{ clients: 3, start: at_once }}\n  viewers:\n    \
         urls: {urls}\n    pick: in_turn\n    zap: {{ every: 5s, count: 2 }}\n    \
         load: {{ clients: 3, start: at_once }}\n"
    );
    fs::write(folder.path().join("run.yaml"), scenario).expect("the folder can be written to");
    run(folder.path(), ["run", "run.yaml", "--json", "out.json"]).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    let metrics = &report.0["populations"]["viewers"]["metrics"];
    for (name, count) in [("zaps", 6), ("zaps_failed", 0), ("zaps_unfinished", 0)] {
        assert_eq!(number(&metrics[name]), count, "{name}");
    }
    for (name, count) in [("zap_delay", 6), ("handshake_delay", 3)] {
        assert_eq!(number(&metrics[name]["count"]), count, "{name}");
    }
}

#[test]
fn ffmpeg_publishes_to_the_reference_server_and_plays_from_it() {
    if !have("ffmpeg") {
        return;
    }
    let folder = folder();
    let [video, audio] = clip(folder.path());
    let port = free_port();
    let number_of_port = port.to_string();
    let arguments = ["serve", "rtmp", "--port", &number_of_port, "--streams", "1"];
    let mut serve = streamgauge(arguments);
    serve.args(["--report", "served.jsonl"]);
    let mut server = Process::start(serve, folder.path());
    server.listen(port);
    let url = format!("rtmp://127.0.0.1:{port}/live/mine");
    let publisher = ffmpeg(
        folder.path(),
        &["-re", "-i", "clip.mp4", "-c", "copy", "-f", "flv", &url],
    );
    wait_for("ffmpeg publishes", Duration::from_secs(60), || {
        (established(port) >= 1).then_some(())
    });
    // The player decodes, and prints errors in the stream.
    let own = format!("rtmp://127.0.0.1:{port}/live/stream1");
    let player = ffmpeg(folder.path(), &["-i", &own, "-t", "2", "-f", "null", "-"]);
    let played = player.finish(RUN_TIMEOUT).expect(0);
    assert_eq!(played.stderr, "");
    publisher.finish(RUN_TIMEOUT).expect(0);
    server.signal("TERM");
    server.finish(Duration::from_secs(60));
    let text = fs::read_to_string(folder.path().join("served.jsonl")).expect("it was written");
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let lines: Vec<Value> = lines.map(|line| line.expect("a line of JSON")).collect();
    let published = lines.iter().find(|line| line["published"] == true);
    let published = published.expect("ffmpeg published");
    assert_eq!(number(&published["received_frames"]), video + audio);
    assert_eq!(published["malformed"], Value::Null);
}
