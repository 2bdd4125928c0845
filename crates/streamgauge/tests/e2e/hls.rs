//! HLS: counts equal those of a real server's log, for segments that ffmpeg made.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{
    Process, RUN_TIMEOUT, Report, folder, free_port, have, number, run, streamgauge, wait_for,
};

const RTMP_MODULE: &str = "/usr/lib/nginx/modules/ngx_rtmp_module.so";

/// Starts nginx with the files of this folder. It logs path, status and bytes of each request.
fn nginx(folder: &Path, port: u16) -> Process {
    let site = format!(
        "server {{ listen 127.0.0.1:{port}; root {}; }}",
        folder.display()
    );
    nginx_with(folder, port, "", "", &site)
}

/// Starts nginx with this site, and further settings before and after those of its events.
fn nginx_with(folder: &Path, port: u16, before: &str, after: &str, site: &str) -> Process {
    let own = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {own}/{name};"))
        .concat();
    let config = format!(
        "{before}\n\
         daemon off; master_process off; pid {own}/pid; error_log {own}/error.log;\n\
         events {{ worker_connections 256; }}\n{after}\n\
         http {{ log_format plain '$uri $status $body_bytes_sent'; access_log {own}/access.log plain;\n\
         gzip on; gzip_types *; gzip_min_length 1;\n\
         {temporary} {site} }}\n"
    );
    let path = folder.join("nginx.conf");
    fs::write(&path, config).expect("the folder can be written to");
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(path);
    let mut process = Process::start(command, folder);
    process.listen(port);
    process
}

/// Starts ffmpeg, which writes a playlist and its segments to the folder.
fn ffmpeg(folder: &Path, input: &[&str], output: &[&str]) -> Process {
    let mut command = Command::new("ffmpeg");
    command
        .args(["-nostdin", "-hide_banner", "-loglevel", "error"])
        .args(input)
        .args(["-f", "lavfi", "-i", "testsrc2=s=320x180:r=25"])
        .args(["-f", "lavfi", "-i", "sine=440"])
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-g", "25"])
        .args(["-c:a", "aac", "-f", "hls", "-hls_time", "1"])
        .args(output);
    Process::start(command, folder)
}

/// Requests in nginx's log whose path ends so: their number, and the bytes of their bodies.
fn logged(folder: &Path, end: &str) -> (u64, u64) {
    let text = fs::read_to_string(folder.join("access.log")).unwrap_or_default();
    let (mut count, mut bytes) = (0, 0);
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [path, status, length] = fields[..] else {
            panic!("{line}");
        };
        if path.ends_with(end) {
            assert_eq!(status, "200", "{line}");
            count += 1;
            bytes += length.parse::<u64>().expect("a number");
        }
    }
    (count, bytes)
}

#[test]
fn recorded_segments_are_played_once_and_to_the_end() {
    if !have("nginx") || !have("ffmpeg") {
        return;
    }
    let folder = folder();
    let made = ffmpeg(
        folder.path(),
        &[],
        &[
            "-t",
            "4",
            "-hls_playlist_type",
            "vod",
            "-hls_segment_type",
            "fmp4",
            "index.m3u8",
        ],
    );
    made.finish(Duration::from_secs(60)).expect(0);
    let segments = fs::read_to_string(folder.path().join("index.m3u8")).expect("it was made");
    let segments = segments.matches(".m4s").count() as u64;
    assert!(segments >= 4);
    let port = free_port();
    let _nginx = nginx(folder.path(), port);
    let url = format!("http://127.0.0.1:{port}/index.m3u8");
    run(
        folder.path(),
        ["load", &url, "-c", "3", "--json", "out.json"],
    )
    .expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(report.clients("completed"), 3);
    // Players read at once, so a ring is of no use, whether there is one or not.
    let tester = &report.0["tester"];
    assert_eq!(tester["receive_path"], "sockets");
    assert!(tester["receive_hint"].is_null(), "{tester}");
    let metric = |name: &str| number(report.metric(name));
    assert_eq!(metric("segments"), 3 * segments);
    assert_eq!(metric("segments_due"), metric("segments"));
    assert_eq!(metric("playlists"), 3);
    assert_eq!(metric("playlists_odd"), 0, "{}", report.0["events"]);
    assert_eq!(
        (metric("segments_damaged"), metric("durations_wrong")),
        (0, 0)
    );
    let (fragments, bytes) = logged(folder.path(), ".m4s");
    let (sections, section_bytes) = logged(folder.path(), ".mp4");
    assert_eq!((fragments, sections), (3 * segments, 3));
    assert_eq!(metric("payload_bytes"), bytes + section_bytes);
    assert_eq!(metric("requests"), logged(folder.path(), "").0);
    assert!(report.metric("live_latency")["count"].is_null());
}

#[test]
fn encrypted_segments_of_ffmpeg_are_tried_with_their_key() {
    if !have("nginx") || !have("ffmpeg") {
        return;
    }
    let folder = folder();
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.path().join(name), bytes).expect("the folder can be written to");
    };
    write("right.key", b"0123456789abcdef");
    write("wrong.key", b"0123456789abcdeF");
    // The URI of the key, and the file with it. Without a vector, segments have their number.
    write("info", b"right.key\nright.key\n");
    let options = [
        "-t",
        "4",
        "-hls_playlist_type",
        "vod",
        "-hls_key_info_file",
        "info",
    ];
    let made = ffmpeg(
        folder.path(),
        &[],
        &[&options[..], &["right.m3u8"]].concat(),
    );
    made.finish(Duration::from_secs(60)).expect(0);
    let right = fs::read_to_string(folder.path().join("right.m3u8")).expect("it was made");
    let segments = right.matches(".ts").count() as u64;
    assert!(segments >= 4);
    write(
        "wrong.m3u8",
        right.replace("right.key", "wrong.key").as_bytes(),
    );
    let port = free_port();
    let _nginx = nginx(folder.path(), port);
    let load = |name: &str, code| {
        let url = format!("http://127.0.0.1:{port}/{name}.m3u8");
        let arguments = ["load", &url, "-c", "2", "--json", "out.json"];
        run(folder.path(), arguments).expect(code);
        Report::read(&folder.path().join("out.json"))
    };
    let report = load("right", 0);
    let metric = |name: &str| number(report.metric(name));
    assert_eq!((metric("keys"), metric("segments")), (2, 2 * segments));
    assert_eq!(metric("payload_bytes"), logged(folder.path(), ".ts").1);
    // nginx compressed the playlist, and nothing else.
    assert!(logged(folder.path(), ".m3u8").1 < 2 * right.len() as u64);
    let report = load("wrong", 99);
    assert_eq!(report.clients("failed"), 2);
    assert_eq!(report.failures("not_media"), 2);
}

#[test]
fn live_playlist_of_ffmpeg_is_followed() {
    if !have("nginx") || !have("ffmpeg") {
        return;
    }
    let folder = folder();
    let port = free_port();
    let _nginx = nginx(folder.path(), port);
    let flags = "delete_segments+program_date_time+temp_file";
    let _encoder = ffmpeg(
        folder.path(),
        &["-re"],
        &["-hls_list_size", "10", "-hls_flags", flags, "index.m3u8"],
    );
    wait_for("there are segments", Duration::from_secs(60), || {
        let text = fs::read_to_string(folder.path().join("index.m3u8")).ok()?;
        (text.matches(".ts").count() >= 4).then_some(())
    });
    let url = format!("hls+http://127.0.0.1:{port}/index.m3u8");
    let arguments = ["load", &url, "-c", "3", "-d", "5s", "--json", "out.json"];
    run(folder.path(), arguments).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    assert_whole(&report);
    let metric = |name: &str| number(report.metric(name));
    assert_eq!(metric("durations_wrong"), 0);
    // Each client begins three segments before the end, and gets one a second.
    assert!(metric("segments") >= 3 * 4, "{}", metric("segments"));
    assert_eq!(metric("segments_due"), metric("segments"));
    wait_for("nginx has logged all", RUN_TIMEOUT, || {
        (logged(folder.path(), "").0 == metric("requests")).then_some(())
    });
    // Requests that were answered when the clients were stopped may not have been read.
    let (segments, bytes) = logged(folder.path(), ".ts");
    assert!((metric("segments")..=metric("segments") + 3).contains(&segments));
    assert!(metric("payload_bytes") <= bytes);
    let latency = report.metric("live_latency");
    assert_eq!(latency["count"], metric("segments"));
    // Encoder and clients share a clock: a segment that begins three before the end is complete
    // three seconds after it began.
    let median = latency["p50"].as_f64().expect("a number");
    assert!((2.0..60.0).contains(&median), "{median}");
}

#[test]
fn segments_that_nginx_refuses_for_a_while_are_requested_again() {
    if !have("nginx") || !have("ffmpeg") {
        return;
    }
    let folder = folder();
    let (port, own) = (free_port(), folder.path().display());
    // Segments are refused as long as there is a file `down`.
    let site = format!(
        "server {{ listen 127.0.0.1:{port}; root {own};\n\
         location ~ \\.ts$ {{ if (-f {own}/down) {{ return 503; }} }} }}"
    );
    let _nginx = nginx_with(folder.path(), port, "", "", &site);
    let _encoder = ffmpeg(
        folder.path(),
        &["-re"],
        &["-hls_list_size", "60", "index.m3u8"],
    );
    wait_for("there are segments", Duration::from_secs(60), || {
        let text = fs::read_to_string(folder.path().join("index.m3u8")).ok()?;
        (text.matches(".ts").count() >= 4).then_some(())
    });
    let url = format!("hls+http://127.0.0.1:{port}/index.m3u8");
    let arguments = ["load", &url, "-c", "3", "-d", "15s", "--json", "out.json"];
    let ran = Process::start(streamgauge(arguments), folder.path());
    let count = |status: &str| {
        let log = fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
        let of_segments = log.lines().filter(|line| line.contains(".ts "));
        of_segments.filter(|line| line.contains(status)).count() as u64
    };
    let wait_for_answers = |status: &str, least: u64| {
        wait_for("nginx has answered", Duration::from_secs(60), || {
            (count(status) >= least).then_some(())
        });
    };
    wait_for_answers(" 200 ", 12);
    fs::write(folder.path().join("down"), "").expect("the folder can be written to");
    // The first attempt of each player, and the second.
    wait_for_answers(" 503 ", 6);
    fs::remove_file(folder.path().join("down")).expect("it was made");
    ran.finish(RUN_TIMEOUT).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    let metric = |name: &str| number(report.metric(name));
    assert_eq!(metric("segments_due"), metric("segments"));
    assert_eq!(metric("responses_5xx"), count(" 503 "));
    assert_eq!(metric("segments_retried"), count(" 503 "));
    // Each player waited for one segment, at least from the first attempt to the third.
    assert_eq!(metric("segments_late"), 3);
}

/// Checks what a viewer of live media must find on any server whose segments are whole.
fn assert_whole(report: &Report) {
    let metric = |name: &str| number(report.metric(name));
    assert_eq!(report.clients("failed"), 0);
    assert_eq!(metric("segments_due"), metric("segments"));
    assert_eq!(metric("segments_damaged"), 0);
    assert!(metric("ts_packets") > 0);
    assert_eq!(metric("playlists_stale"), 0);
    assert_eq!(metric("playlists_odd"), 0, "{}", report.0["events"]);
}

#[test]
fn time_codes_of_a_publisher_arrive_through_nginx_rtmp() {
    if !have("nginx") || !Path::new(RTMP_MODULE).exists() {
        return;
    }
    let folder = folder();
    let (http, rtmp) = (free_port(), free_port());
    let own = folder.path().display();
    let server = format!(
        "rtmp {{ access_log off; server {{ listen 127.0.0.1:{rtmp}; application live {{ live on;\n\
         hls on; hls_path {own}/live; hls_fragment 1s; hls_playlist_length 20s; }} }} }}"
    );
    let module = format!("load_module {RTMP_MODULE}; user root;");
    let site = format!("server {{ listen 127.0.0.1:{http}; root {own}; }}");
    let mut nginx = nginx_with(folder.path(), http, &module, &server, &site);
    nginx.listen(rtmp);
    let text = format!(
        "duration: 16s\nclients:\n  publishers:\n    urls: [\"rtmp://127.0.0.1:{rtmp}/live/a\"]\n    \
         publish: {{ bitrate: 1Mbps, gop: 25, audio: true }}\n    \
         load: {{ clients: 1, start: at_once }}\n  viewers:\n    \
         urls: [\"http://127.0.0.1:{http}/live/a.m3u8\"]\n    join_after: 8s\n    \
         load: {{ clients: 3, start: at_once }}\n"
    );
    fs::write(folder.path().join("run.yaml"), text).expect("the folder can be written to");
    run(folder.path(), ["run", "run.yaml", "--json", "out.json"]).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    assert_whole(&report);
    let segments = number(report.metric("segments"));
    assert!(segments >= 3 * 5, "{segments}");
    assert_eq!(number(report.metric("durations_wrong")), 0);
    // The playlist states no dates, but the pictures have the time at which they were sent.
    assert!(report.metric("live_latency")["count"].is_null());
    let latency = report.metric("picture_latency");
    assert_eq!(latency["count"], segments);
    let median = latency["p50"].as_f64().expect("a number");
    assert!((1.0..30.0).contains(&median), "{median}");
}

#[test]
fn hits_of_a_cache_are_counted_as_by_nginx() {
    if !have("nginx") || !have("ffmpeg") {
        return;
    }
    let (origin, cache) = (folder(), folder());
    let (origin_port, port) = (free_port(), free_port());
    let _origin = nginx(origin.path(), origin_port);
    let flags = "delete_segments+temp_file";
    let _encoder = ffmpeg(
        origin.path(),
        &["-re"],
        &["-hls_list_size", "10", "-hls_flags", flags, "index.m3u8"],
    );
    wait_for("there are segments", Duration::from_secs(60), || {
        let text = fs::read_to_string(origin.path().join("index.m3u8")).ok()?;
        (text.matches(".ts").count() >= 4).then_some(())
    });
    let own = cache.path().display();
    let site = format!(
        "proxy_cache_path {own}/cache keys_zone=z:1m; \
         log_format status '$upstream_cache_status';\n\
         server {{ listen 127.0.0.1:{port}; access_log {own}/status.log status;\n\
         location / {{ proxy_pass http://127.0.0.1:{origin_port}; proxy_cache z;\n\
         proxy_cache_valid 200 1s; add_header X-Cache-Status $upstream_cache_status; }} }}"
    );
    let _cache = nginx_with(cache.path(), port, "", "", &site);
    let url = format!("http://127.0.0.1:{port}/index.m3u8");
    let arguments = ["load", &url, "-c", "4", "-d", "5s", "--json", "out.json"];
    run(cache.path(), arguments).expect(0);
    let report = Report::read(&cache.path().join("out.json"));
    let metric = |name: &str| number(report.metric(name));
    let answered = wait_for("nginx has logged all", RUN_TIMEOUT, || {
        let text = fs::read_to_string(cache.path().join("status.log")).ok()?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() as u64 == metric("requests")).then_some(lines)
    });
    let hits = ["HIT", "STALE", "UPDATING", "REVALIDATED"];
    let logged = answered.iter().filter(|line| hits.contains(&line.as_str()));
    let logged = logged.count() as u64;
    assert!(logged > 0);
    // The last responses may be logged without having been read.
    let unread = metric("requests") - metric("responses");
    assert!((logged - unread.min(logged)..=logged).contains(&metric("cache_hits")));
    assert_eq!(
        metric("cache_hits") + metric("cache_misses"),
        metric("responses")
    );
}

/// True if Debian's Python has GStreamer's module, and GStreamer its sink of HLS.
fn have_gstreamer() -> bool {
    let script = "import gi\ngi.require_version('Gst', '1.0')\nfrom gi.repository import Gst\n\
        Gst.init(None)\nassert Gst.ElementFactory.find('hlssink2')\n";
    let mut command = Command::new("/usr/bin/python3");
    let found = command.args(["-c", script]).output();
    let found = found.is_ok_and(|done| done.status.success());
    let left_out = std::env::var_os("STREAMGAUGE_TEST_WITHOUT_TOOLS").is_some();
    assert!(
        found || left_out,
        "GStreamer is missing: ./test installs it"
    );
    found
}

#[test]
fn segments_of_gstreamer_are_played() {
    if !have("nginx") || !have_gstreamer() {
        return;
    }
    let folder = folder();
    let script = "import gi, signal\n\
        gi.require_version('Gst', '1.0')\n\
        from gi.repository import Gst, GLib\n\
        Gst.init(None)\n\
        play = Gst.parse_launch('videotestsrc is-live=true ! video/x-raw,width=320,height=180,\
        framerate=25/1 ! x264enc tune=zerolatency speed-preset=ultrafast key-int-max=25 ! \
        h264parse ! hlssink2 target-duration=1 playlist-length=8 max-files=20')\n\
        play.set_state(Gst.State.PLAYING)\n\
        GLib.MainLoop().run()\n";
    // Debian's own: others do not have GStreamer's module.
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", script]);
    let _encoder = Process::start(command, folder.path());
    let port = free_port();
    let _nginx = nginx(folder.path(), port);
    wait_for("there are segments", Duration::from_secs(60), || {
        let text = fs::read_to_string(folder.path().join("playlist.m3u8")).ok()?;
        (text.matches(".ts").count() >= 5).then_some(())
    });
    let url = format!("hls+http://127.0.0.1:{port}/playlist.m3u8");
    let arguments = ["load", &url, "-c", "3", "-d", "5s", "--json", "out.json"];
    run(folder.path(), arguments).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    assert_whole(&report);
    wait_for("nginx has logged all", RUN_TIMEOUT, || {
        (logged(folder.path(), "").0 == number(report.metric("requests"))).then_some(())
    });
}

#[test]
fn ffmpeg_plays_every_picture_of_the_reference_server() {
    if !have("ffmpeg") {
        return;
    }
    for (flags, is_live) in [
        ("--format ts --recorded --length 10s", false),
        ("--format fmp4 --recorded --length 10s", false),
        ("--format ts --window 3 --length 4s", true),
        ("--format fmp4 --part 200ms --window 3 --length 4s", true),
    ] {
        let (folder, port) = (folder(), free_port());
        let port_text = port.to_string();
        let mut arguments = vec!["serve", "hls", "--port", &port_text, "--bitrate", "500kbps"];
        arguments.extend(flags.split(' '));
        let mut server = Process::start(streamgauge(arguments), folder.path());
        server.listen(port);
        let url = format!("http://127.0.0.1:{port}/live/index.m3u8");
        let mut command = Command::new("ffmpeg");
        // From the first segment of the playlist.
        let options = "-nostdin -hide_banner -v error -live_start_index 0 -i";
        command.args(options.split(' ')).arg(&url);
        command.args(["-f", "framemd5", "pictures"]);
        let player = Process::start(command, folder.path());
        let finished = player.finish(Duration::from_secs(60)).expect(0);
        assert_eq!(finished.stderr, "", "{flags}");
        let pictures = fs::read_to_string(folder.path().join("pictures")).expect("it was written");
        let lines: Vec<&str> = pictures
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        // Five segments of 50 pictures; of live ones three before the start, and two after it. A
        // player that is late has fewer, but whole ones. The times of the pictures go on.
        match is_live {
            false => assert_eq!(lines.len(), 250, "{flags}"),
            true => assert!(
                (50..=250).contains(&lines.len()) && lines.len().is_multiple_of(50),
                "{flags}: {}",
                lines.len()
            ),
        }
        let times: Vec<i64> = lines
            .iter()
            .map(|line| {
                let time = line.split(',').nth(2).expect("it has a time");
                time.trim().parse().expect("a number")
            })
            .collect();
        assert!(
            times.is_sorted_by(|one, next| *next == one + 1),
            "{times:?}"
        );
    }
}
