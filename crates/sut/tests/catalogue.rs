//! The servers of the catalogue, actually started, and the clips that they play.

mod common;

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{free_port, options, skip_without};

use measure::units::BitRate;
use scenario::{Clips, Requirement};
use sut::{Origin, PortOwner, Progress, ServerSpec, Sut, SutError, Transport, catalogue};

fn clips(directory: &Path) -> Clips {
    Clips {
        directory: directory.to_owned(),
        count: 2,
        length: Duration::from_secs(2),
        video: BitRate(1_000_000),
        audio: Some(BitRate(128_000)),
        frame_rate: 25,
    }
}

fn spec(name: &str, port: u16, clips: Option<Clips>) -> ServerSpec {
    protocols::install();
    let mut spec = ServerSpec::new(Origin::Catalogue {
        name: name.to_owned(),
        port: Some(port),
        interface: None,
        groups: Vec::new(),
    });
    spec.clips = clips;
    spec
}

/// Sends one RTSP request. Returns the head and body of the answer, as far as they were received.
fn ask(port: u16, method: &str, url: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let request = format!("{method} {url} RTSP/1.0\r\nCSeq: 1\r\nAccept: application/sdp\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&answer).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase()
                        .strip_prefix("content-length:")
                        .map(str::to_owned)
                })
                .map_or(0, |length| length.trim().parse().unwrap());
            if body.len() >= length {
                return text;
            }
        }
        match stream.read(&mut buffer).unwrap() {
            0 => return text,
            length => answer.extend_from_slice(&buffer[..length]),
        }
    }
}

fn serves_clips(name: &str) -> Sut {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    // Relative and still missing, as in a scenario's folder.
    let spec = spec(name, port, Some(clips(Path::new("media/clips"))));
    let sut = Sut::start_with(&spec, folder.path(), &options(), &|_| ()).unwrap();
    assert_eq!(sut.owns_port(port, Transport::Tcp), PortOwner::Ours);
    assert_eq!(sut.urls()[0], format!("rtsp://127.0.0.1:{port}/clip1"));
    let answer = ask(port, "OPTIONS", &sut.urls()[0]);
    assert!(
        answer.starts_with("RTSP/1.0 200"),
        "{answer}\n{}",
        sut.log_tail()
    );
    for url in &sut.urls()[..2] {
        let answer = ask(port, "DESCRIBE", url);
        assert!(
            answer.starts_with("RTSP/1.0 200"),
            "{answer}\n{}",
            sut.log_tail()
        );
        assert!(
            answer.contains("m=video") && answer.contains("m=audio"),
            "{answer}"
        );
    }
    sut
}

#[test]
fn vlc_serves_clips_out_of_a_private_folder() {
    if skip_without("vlc") || skip_without("ffmpeg") {
        return;
    }
    let sut = serves_clips("vlc");
    let scratch = folder_of(&sut);
    assert!(scratch.join("media.vlm").exists());
    let report = sut.stop();
    assert!(report.left_over.is_empty());
    assert!(!scratch.exists());
}

/// Returns the working directory of a server.
fn folder_of(sut: &Sut) -> PathBuf {
    let pid = sut.pid().expect("it is on this machine");
    std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap()
}

#[test]
fn folder_of_a_server_ends_with_it_even_without_its_supervisor() {
    if skip_without("vlc") || skip_without("ffmpeg") {
        return;
    }
    let sut = serves_clips("vlc");
    let scratch = folder_of(&sut);
    let pid = sut.pid().expect("it is on this machine");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let supervisor = parent.expect("it has a parent").trim().to_owned();
    let killed = Command::new("kill").args(["-KILL", &supervisor]).status();
    assert!(killed.unwrap().success());
    let report = sut.stop();
    assert!(report.left_over.is_empty());
    assert!(!scratch.exists(), "{}", scratch.display());
}

#[test]
fn gstreamer_serves_clips_and_a_live_stream() {
    if skip_without("ffmpeg") {
        return;
    }
    let sut = serves_clips("gstreamer");
    let live = sut.urls().last().unwrap().clone();
    let port = live
        .split(':')
        .nth(2)
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let answer = ask(port, "DESCRIBE", &live);
    assert!(
        answer.starts_with("RTSP/1.0 200"),
        "{answer}\n{}",
        sut.log_tail()
    );
    assert!(sut.stop().left_over.is_empty());
}

#[test]
fn vlc_without_clips_says_what_it_needs() {
    if skip_without("vlc") {
        return;
    }
    let error = Sut::start_with(
        &spec("vlc", free_port(), None),
        Path::new(""),
        &options(),
        &|_| (),
    )
    .unwrap_err();
    assert!(error.to_string().contains("clips"), "{error}");
}

#[test]
fn unknown_server_is_refused() {
    let error =
        Sut::start_with(&spec("vcl", 1, None), Path::new(""), &options(), &|_| ()).unwrap_err();
    assert!(matches!(error, SutError::UnknownServer { .. }), "{error}");
}

#[test]
fn clips_are_made_again_only_when_they_change() {
    if skip_without("ffmpeg") || skip_without("ffprobe") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let made = |clips: Clips| {
        let count = Cell::new(0);
        let mut spec = ServerSpec::new(Origin::Command(vec!["true".into()]));
        spec.clips = Some(clips);
        let _ = Sut::start_with(&spec, folder.path(), &options(), &|step| {
            if matches!(step, Progress::MakingClip { .. }) {
                count.set(count.get() + 1);
            }
        });
        count.get()
    };
    let wanted = Clips {
        length: Duration::from_secs(10),
        ..clips(Path::new("c"))
    };
    assert_eq!(made(wanted.clone()), 2);
    assert_eq!(made(wanted.clone()), 0);
    assert_eq!(
        made(Clips {
            count: 3,
            ..wanted.clone()
        }),
        1
    );
    let path = folder.path().join("c/clip1.mp4");
    let first = std::fs::read(&path).unwrap();
    assert_ne!(
        first,
        std::fs::read(folder.path().join("c/clip2.mp4")).unwrap()
    );
    // Bit rates as requested, and the index at the front.
    assert!(
        first.windows(4).position(|four| four == b"moov")
            < first.windows(4).position(|four| four == b"mdat")
    );
    for (stream, wanted) in [("v:0", 1_000_000.0), ("a:0", 128_000.0)] {
        let output = Command::new("ffprobe")
            .args([
                "-v",
                "error",
                "-select_streams",
                stream,
                "-show_entries",
                "stream=bit_rate",
                "-of",
                "csv=p=0",
            ])
            .arg(&path)
            .output()
            .unwrap();
        let rate: f64 = String::from_utf8(output.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        assert!((rate / wanted - 1.0).abs() < 0.06, "{stream}: {rate}");
    }
    assert_eq!(
        made(Clips {
            audio: None,
            count: 1,
            ..wanted
        }),
        1
    );
    let names: Vec<_> = std::fs::read_dir(folder.path().join("c"))
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 6, "nothing unfinished is left: {names:?}");
}

/// A group without a sender.
fn group() -> scenario::Group {
    scenario::Group {
        kind: "udp".to_owned(),
        address: "239.255.81.1".to_owned(),
        port: 5004,
    }
}

#[test]
fn every_installed_server_becomes_ready() {
    protocols::install();
    if skip_without("vlc") {
        return;
    }
    let mut found = Vec::new();
    for listed in catalogue::list().unwrap() {
        let entry = listed.entry.unwrap();
        // Servers that need clips have a test of their own.
        if entry.clips == Requirement::Needed || catalogue::installed(&entry).is_none() {
            continue;
        }
        let port = free_port();
        let mut spec = spec(&entry.name, port, None);
        let Origin::Catalogue { groups, .. } = &mut spec.origin else {
            unreachable!("it was just made so");
        };
        if entry.groups != Requirement::No {
            groups.push(group());
        }
        let mut sut = Sut::start_with(&spec, Path::new(""), &options(), &|_| ())
            .unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        let spoken = kit::registry::find(&entry.protocols[0]).expect("it is known");
        assert_eq!(
            sut.owns_port(port, spoken.transport),
            PortOwner::Ours,
            "{}",
            entry.name
        );
        if entry.groups != Requirement::No {
            let url = format!("http://127.0.0.1:{port}/udp/239.255.81.1:5004");
            assert_eq!(sut.urls(), [url]);
        }
        let user = std::fs::metadata(format!("/proc/{}", sut.pid().unwrap())).unwrap();
        let keeps_ours = entry.needs_root.is_some() || !rustix::process::geteuid().is_root();
        let expected = match keeps_ours {
            true => rustix::process::geteuid().as_raw(),
            false => 65534,
        };
        assert_eq!(user.uid(), expected, "{}", entry.name);
        let seen = sut.observe();
        assert!(seen.uss > Some(0) && seen.cpu.is_some(), "{seen:?}");
        let report = sut.stop();
        assert!(
            report.left_over.is_empty() && !report.ended_by_itself,
            "{}: {report:?}",
            entry.name
        );
        found.push(entry.name);
    }
    assert!(found.iter().any(|name| name == "vlc-relay"), "{found:?}");
}

#[test]
fn port_owner_is_named_before_anything_starts() {
    if skip_without("vlc") {
        return;
    }
    // Another process, like a relay that an earlier measurement left behind.
    let port = free_port();
    let listener = "import socket, sys\ns = socket.socket()\ns.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n\
                    s.bind(('127.0.0.1', int(sys.argv[1])))\ns.listen()\nprint('up', flush=True)\nsys.stdin.read()";
    let mut other = Command::new("python3")
        .args(["-c", listener, &port.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = [0; 3];
    other
        .stdout
        .take()
        .unwrap()
        .read_exact(&mut output)
        .unwrap();
    let mut spec = spec("vlc-relay", port, None);
    let Origin::Catalogue { groups, .. } = &mut spec.origin else {
        unreachable!("it was just made so");
    };
    groups.push(group());
    let started = Cell::new(false);
    let error = Sut::start_with(&spec, Path::new(""), &options(), &|step| {
        started.set(started.get() || matches!(step, Progress::Starting { .. }));
    })
    .unwrap_err()
    .to_string();
    let pid = other.id();
    // The process ends at the end of its input.
    drop(other.stdin.take());
    other.wait().unwrap();
    assert_eq!(
        error,
        format!(
            "TCP port {port} is already in use by python3 (pid {pid}): stop it or choose another port"
        )
    );
    assert!(!started.get());
}

#[test]
fn entry_ready_by_a_line_must_own_its_port() {
    protocols::install();
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let entry = |program: &str| {
        let path = folder.path().join("own.yaml");
        let text = format!(
            "summary: a server of one's own\nprotocols: [http-ts]\nprogram: python3\n\
             command: [\"{{program}}\", \"{{config}}\", \"{{port}}\"]\nconfig: |\n{program}\nport: 1\nready: {{line: up}}\n\
             urls: [\"http://{{host}}:{{port}}/\"]\nmissing: apt-get install python3\n"
        );
        std::fs::write(&path, text).unwrap();
        let mut spec = spec(path.to_str().unwrap(), port, None);
        spec.ready_timeout = Duration::from_millis(1500);
        Sut::start_with(&spec, Path::new(""), &options(), &|_| ())
    };
    let listens = "  import socket, sys, time\n  s = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n  print('up', flush=True)\n  time.sleep(1000)";
    let sut = entry(listens).unwrap();
    assert_eq!(sut.owns_port(port, Transport::Tcp), PortOwner::Ours);
    sut.stop();
    let error = entry("  import time\n  print('up', flush=True)\n  time.sleep(1000)").unwrap_err();
    assert!(matches!(error, SutError::NotReady { .. }), "{error}");
}

#[test]
fn server_that_fails_because_its_port_is_taken_names_the_owner() {
    protocols::install();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.yaml");
    // Returns nothing if another process has the port.
    let start = |program: &str| {
        let port = free_port();
        let text = format!(
            "summary: a server of one's own\nprotocols: [http-ts]\nprogram: sh\n\
             command: [\"{{program}}\", \"{{config}}\"]\nconfig: |\n  {program}\nport: 1\nready: {{line: up}}\n\
             urls: [\"http://{{host}}:{{port}}/\"]\nmissing: apt-get install dash\n"
        );
        std::fs::write(&path, text).unwrap();
        let mut spec = spec(path.to_str().unwrap(), port, None);
        spec.ready_timeout = Duration::from_millis(500);
        let listener = RefCell::new(None);
        let take = |step| {
            if matches!(step, Progress::Starting { .. }) {
                *listener.borrow_mut() = TcpListener::bind(("127.0.0.1", port)).ok();
            }
        };
        let error = Sut::start_with(&spec, Path::new(""), &options(), &take).unwrap_err();
        listener.into_inner().map(|_| error)
    };
    // One ends at once, one never becomes ready.
    for program in ["exit 3", "exec sleep 1000"] {
        let error = (0..10).find_map(|_| start(program));
        let error = error.expect("one of ten ports stays free");
        let own = std::process::id();
        assert!(
            matches!(error, SutError::PortOfAnother { pid, .. } if pid == own),
            "{program}: {error}"
        );
    }
}
