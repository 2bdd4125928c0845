//! The servers of the catalogue, really started, and the clips they play.

mod common;

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{free_port, options, without};
use sut::{Clips, Origin, PortOwner, Progress, ServerSpec, Sut, SutError, Transport};

fn clips(directory: &Path) -> Clips {
    Clips {
        directory: directory.to_owned(),
        count: 2,
        length: Duration::from_secs(2),
        video: 1_000_000,
        audio: Some(128_000),
        frame_rate: 25,
    }
}

fn spec(name: &str, port: u16, clips: Option<Clips>) -> ServerSpec {
    let mut spec = ServerSpec::new(Origin::Catalogue {
        name: name.to_owned(),
        port: Some(port),
        interface: None,
        groups: Vec::new(),
    });
    spec.clips = clips;
    spec
}

/// Sends one RTSP request and returns the head and body of the answer, as far as they came.
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
    // As the scenario's folder has it: relative, and not yet there.
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
    if without("vlc") || without("ffmpeg") {
        return;
    }
    let sut = serves_clips("vlc");
    let scratch = std::fs::read_link(format!(
        "/proc/{}/cwd",
        sut.pid().expect("it is on this machine")
    ))
    .unwrap();
    assert!(scratch.join("media.vlm").exists());
    let report = sut.stop();
    assert!(report.left_over.is_empty());
    assert!(!scratch.exists());
}

#[test]
fn gstreamer_serves_clips_and_a_live_stream() {
    if without("ffmpeg") {
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
    if without("vlc") {
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
fn an_unknown_server_names_the_known() {
    let error =
        Sut::start_with(&spec("vcl", 1, None), Path::new(""), &options(), &|_| ()).unwrap_err();
    assert!(matches!(error, SutError::UnknownServer { .. }), "{error}");
}

#[test]
fn clips_are_made_once_and_anew_when_they_change() {
    if without("ffmpeg") || without("ffprobe") {
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
    // Bit rates as asked for, and the index in front.
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
