//! GStreamer's RTSP server, run by a small Python program of ours.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{Built, Entry, Request, bring_clips, find_program, scratch, url, write};
use crate::error::SutError;
use crate::spec::Launch;

/// The program: see its beginning for what it does.
const PROGRAM: &str = include_str!("gstreamer.py");

pub(super) static ENTRY: Entry = Entry {
    name: "gstreamer",
    summary: "GStreamer's RTSP server, clips and a live stream",
    details: "Serves each clip at rtsp://127.0.0.1:PORT/clipN, from its start for every client, and one live test \
              stream shared by all its clients at rtsp://127.0.0.1:PORT/live; over UDP and TCP, the live one \
              over multicast too. Needs no clips for the live stream.",
    install: "apt-get install python3-gi gir1.2-gst-rtsp-server-1.0 gstreamer1.0-plugins-base \
              gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-plugins-ugly gstreamer1.0-libav",
    port: 8554,
    build,
};

fn build(request: &Request<'_>) -> Result<Built, SutError> {
    let python = python().ok_or_else(|| {
        request
            .entry
            .missing("GStreamer's RTSP server for Python 3")
    })?;
    let scratch = scratch()?;
    let clips = bring_clips(request.clips, scratch.path(), None)?;
    let program = scratch.path().join("server.py");
    write(&program, PROGRAM)?;
    let mut launch =
        Launch::new([python.as_os_str(), program.as_os_str()]).ready_on_port(request.port);
    launch
        .command
        .extend(["--port".into(), request.port.to_string().into()]);
    if request.audio {
        launch.command.push("--audio".into());
    }
    launch.command.push("--".into());
    launch
        .command
        .extend(clips.iter().map(|clip| clip.clone().into_os_string()));
    launch.directory = Some(scratch.path().to_owned());
    let urls = (1..=clips.len())
        .map(|number| format!("clip{number}"))
        .chain(["live".to_owned()])
        .map(|path| url(request.port, &path))
        .collect();
    Ok(Built {
        launch,
        urls,
        scratch,
    })
}

/// A Python that has the bindings: the system's, which the packages install them for, or the user's.
fn python() -> Option<PathBuf> {
    const PROBE: &str = "import gi\n\
        gi.require_version('Gst', '1.0')\n\
        gi.require_version('GstRtspServer', '1.0')\n\
        from gi.repository import Gst, GstRtspServer\n";
    [
        Some(PathBuf::from("/usr/bin/python3")),
        find_program("python3"),
    ]
    .into_iter()
    .flatten()
    .find(|python| {
        Command::new(python)
            .args(["-c", PROBE])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    })
}
