//! TLS and IPv6: media is counted exactly, and untrusted peers have a failure reason of their own.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use crate::support::{Process, RUN_TIMEOUT, Report, Server, folder, number, run, streamgauge};

/// Number of clients.
const CLIENTS: u64 = 6;

/// Writes a certificate for a name and its key to a folder.
fn certificate(folder: &Path, name: &str, expired: bool) -> (PathBuf, PathBuf) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a good name");
    if expired {
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(2001, 1, 1);
    }
    let signed = params.self_signed(&key).expect("it signs itself");
    let file = |kind: &str, text: &str| {
        let path = folder.join(format!("{name}-{expired}-{kind}.pem").replace(':', "_"));
        fs::write(&path, text).expect("the test's folder can be written");
        path
    };
    (
        file("cert", &signed.pem()),
        file("key", &key.serialize_pem()),
    )
}

fn text(path: &Path) -> &str {
    path.to_str().expect("made of ASCII")
}

/// Starts a TLS server whose media lasts three seconds.
fn serve_briefly(folder: &Path) -> Server {
    let (cert, key) = certificate(folder, "localhost", false);
    let files = ["--tls-cert", text(&cert), "--tls-key", text(&key)];
    Server::start(folder, &[&files[..], &["--length", "3s"]].concat())
}

/// Plays all media of a server with the arguments `serving` from `url`, in which `PORT` is
/// replaced, and checks that every count is exact.
fn plays(url: &str, transport: &str, folder: &Path, serving: &[&str], playing: &[&str]) -> Report {
    let media = ["--length", "2s", "--bitrate", "400kbps", "--seed", "5"];
    let faults = ["--fault", "loss=2%", "--fault", "duplicate=1%"];
    let server = Server::start(folder, &[&media, &faults[..], serving].concat());
    let url = url.replace("PORT", &server.port.to_string());
    let clients = CLIENTS.to_string();
    let load = [
        "load",
        &url,
        "-c",
        &clients,
        "--one-every",
        "100ms",
        "--transport",
        transport,
        "--json",
        "load.json",
    ];
    let mut load = streamgauge([&load, playing].concat());
    // A server that a busy machine interrupts has not ended its media.
    load.env("STREAMGAUGE_CLIENTS__VIEWERS__END_SILENCE", "8s");
    Process::start(load, folder).finish(RUN_TIMEOUT).expect(0);
    let (streams, done) = server.stop();
    let report = Report::read(&folder.join("load.json"));
    report.tester_was_fit();
    assert_eq!(streams.len() as u64, CLIENTS);
    assert_eq!(report.clients("completed"), CLIENTS);
    assert!(done.lost > 0 && done.duplicated > 0, "{done:?}");
    assert_eq!(report.counts(), done);
    report
}

#[test]
fn media_over_tls_is_counted_exactly() {
    for transport in ["tcp", "udp"] {
        let folder = folder();
        let (cert, key) = certificate(folder.path(), "localhost", false);
        let serving = ["--tls-cert", text(&cert), "--tls-key", text(&key)];
        let playing = ["--tls-ca", text(&cert), "--tls-server-name", "localhost"];
        let url = "rtsps://127.0.0.1:PORT/1";
        let report = plays(url, transport, folder.path(), &serving, &playing);
        let delay = report.metric("tls_handshake_delay");
        assert_eq!(number(&delay["count"]), CLIENTS);
        assert!(delay["p50"].as_f64() > Some(0.0), "{delay}");
        assert_eq!(number(report.metric("tls_cut_off")), 0);
    }
}

#[test]
fn media_over_ipv6_is_counted_exactly() {
    for (scheme, transport) in [("rtsp", "udp"), ("rtsp", "tcp"), ("rtsps", "tcp")] {
        let folder = folder();
        let (cert, key) = certificate(folder.path(), "::1", false);
        let mut serving = vec!["--listen", "::1"];
        let mut playing = Vec::new();
        if scheme == "rtsps" {
            serving.extend(["--tls-cert", text(&cert), "--tls-key", text(&key)]);
            playing.extend(["--tls-ca", text(&cert)]);
        }
        let url = format!("{scheme}://[::1]:PORT/1");
        plays(&url, transport, folder.path(), &serving, &playing);
    }
}

/// Checks that a client of `url`, with `tls` below `tls:` in its scenario, fails for this reason.
fn fails(folder: &Path, url: &str, tls: &str, reason: &str) {
    // A server of a busy machine may take some seconds.
    let connect = match reason {
        "tls_timeout" => "5s",
        _ => "20s",
    };
    let scenario = format!(
        "clients:\n  viewers:\n    urls: [\"{url}\"]\n    transport: tcp\n    \
         connect_timeout: {connect}\n    request_timeout: 20s\n    tls: {{{tls}}}\n    \
         load: {{clients: 1}}\n"
    );
    fs::write(folder.join("fails.yaml"), scenario).expect("the test's folder can be written");
    let finished = run(folder, ["run", "fails.yaml", "--json", "fails.json"]).expect(99);
    let report = Report::read(&folder.join("fails.json"));
    assert_eq!(report.failures(reason), 1, "{}", report.0["populations"]);
    assert!(finished.stdout.contains(reason), "{}", finished.stdout);
}

#[test]
fn unsuitable_certificates_have_failure_reasons() {
    let folder = folder();
    let of = |name, expired| certificate(folder.path(), name, expired);
    let (good, key) = of("localhost", false);
    let (old, old_key) = of("localhost", true);
    let (other, _) = of("example.net", false);
    let serve = |cert: &Path, key: &Path| {
        let server = ["--tls-cert", text(cert), "--tls-key", text(key)];
        Server::start(folder.path(), &server)
    };
    let server = serve(&good, &key);
    let url = format!("rtsps://localhost:{}/1", server.port);
    // The paths are relative to the scenario file.
    let named = |path: &Path| format!("ca: {}", path.file_name().expect("a file").display());
    fails(folder.path(), &url, &named(&other), "tls_unknown_issuer");
    let by_address = url.replace("localhost", "127.0.0.1");
    fails(folder.path(), &by_address, &named(&good), "tls_wrong_name");
    let other_name = format!("{}, server_name: example.net", named(&good));
    fails(folder.path(), &url, &other_name, "tls_wrong_name");
    // The server hangs up on clients without TLS.
    let plain = url.replace("rtsps", "rtsp");
    fails(folder.path(), &plain, "", "closed_in_options");
    let old_server = serve(&old, &old_key);
    let old_url = format!("rtsps://localhost:{}/1", old_server.port);
    fails(folder.path(), &old_url, &named(&old), "tls_expired");
}

#[test]
fn missing_certificate_file_is_an_error() {
    let folder = folder();
    let load = ["load", "rtsps://127.0.0.1:9/1", "--tls-ca", "nowhere.pem"];
    run(folder.path(), load).expect(104).names("nowhere.pem");
    let serve = [
        "serve",
        "rtsp",
        "--tls-cert",
        "nowhere.pem",
        "--tls-key",
        "nowhere.pem",
    ];
    run(folder.path(), serve).expect(104).names("nowhere.pem");
}

/// Starts a server that reads the start of a client's first message and then does something other
/// than TLS.
fn peer(act: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut hello = [0; 5];
                if (&stream).read_exact(&mut hello).is_ok() {
                    act(stream);
                }
            });
        }
    });
    address
}

/// Waits until the other side hangs up.
fn wait(mut stream: TcpStream) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
    let _ = stream.read_to_end(&mut Vec::new());
}

fn says(stream: TcpStream, bytes: &[u8]) {
    let _ = (&stream).write_all(bytes);
    wait(stream);
}

#[test]
fn faults_in_the_tls_handshake_have_failure_reasons() {
    let folder = folder();
    for (address, reason) in [
        (peer(drop), "tls_closed"),
        (peer(wait), "tls_timeout"),
        (
            peer(|stream| says(stream, b"RTSP/1.0 400 Bad Request\r\n\r\n")),
            "tls_not_tls",
        ),
        // The head of a message without the rest.
        (
            peer(|stream| says(stream, &[22, 3, 3, 0, 100, 2, 0])),
            "tls_timeout",
        ),
        (
            peer(|stream| says(stream, &[21, 3, 3, 0, 2, 2, 112])),
            "tls_alert",
        ),
        (
            peer(|stream| says(stream, &[22, 3, 3, 0, 4, 99, 0, 0, 0])),
            "tls_broken",
        ),
    ] {
        let url = format!("rtsps://{address}/1");
        fails(folder.path(), &url, "verify: false", reason);
    }
}

#[test]
fn client_that_stops_in_the_handshake_delays_nobody() {
    let folder = folder();
    let server = serve_briefly(folder.path());
    let stopped: Vec<TcpStream> = [&b""[..], &[22, 3, 1, 2], b"OPTIONS * RTSP/1.0\r\n\r\n"]
        .into_iter()
        .map(|bytes| {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
            stream.write_all(bytes).expect("it takes them");
            stream
        })
        .collect();
    let url = format!("rtsps://127.0.0.1:{}/1", server.port);
    let load = [
        "load",
        &url,
        "-c",
        "2",
        "--tls-no-verify",
        "--json",
        "out.json",
    ];
    run(folder.path(), load).expect(0);
    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(report.clients("completed"), 2);
    // The server ends although two clients are still in the handshake.
    let (streams, _) = server.stop();
    assert_eq!(streams.len(), 2);
    drop(stopped);
}

#[test]
fn trace_over_tls_is_plain() {
    let folder = folder();
    let server = serve_briefly(folder.path());
    let url = format!("rtsps://127.0.0.1:{}/1", server.port);
    let load = [
        "load",
        &url,
        "--transport",
        "tcp",
        "--tls-no-verify",
        "--out",
        "x.run",
    ];
    run(folder.path(), load.into_iter().chain(["--trace", "0"])).expect(0);
    let capture = fs::read(folder.path().join("x.run.viewers-0.pcapng")).expect("it was written");
    let has = |text: &str| {
        capture
            .windows(text.len())
            .any(|bytes| bytes == text.as_bytes())
    };
    for text in [
        "DESCRIBE rtsps://",
        "RTSP/1.0 200 OK",
        "m=video 0 RTP/AVP",
        "TEARDOWN",
    ] {
        assert!(has(text), "{text}");
    }
}
