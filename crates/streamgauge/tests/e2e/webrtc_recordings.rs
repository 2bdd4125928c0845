//! Files that WebRTC clients publish: WebM of another program, and Janus' recording of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::janus::{Over, configure};
use crate::namespace::Namespace;
use crate::support::{Report, assert_most_arrived, folder, have, number, run};

/// Makes five seconds of VP8 and Opus. Returns `false` if ffmpeg cannot make them.
pub(crate) fn webm(folder: &Path) -> bool {
    let options = "-v error -y -f lavfi -i testsrc2=size=320x240:rate=25 -f lavfi -i \
                   sine=sample_rate=48000 -t 5 -c:v libvpx -deadline realtime -cpu-used 8 -g 25 \
                   -b:v 400k -c:a libopus -b:a 32k talk.webm";
    let made = Command::new("ffmpeg")
        .args(options.split_ascii_whitespace())
        .current_dir(folder)
        .status();
    made.is_ok_and(|status| status.success())
}

/// Runs a client that publishes this file in the room, and two that watch it.
fn publish(folder: &Path, file: &str) -> Report {
    let place = folder.display();
    let scenario = format!(
        "network: veth
server:
  command: [janus, -C, '{place}/janus.jcfg', -F, '{place}', --disable-colors]
  ready: {{ port: 8188 }}
clients:
  speaker:
    protocol: webrtc
    urls: ['janus+ws://{{server}}:8188/videoroom/77']
    participate: {{ file: '{file}' }}
    subscribe: nobody
    leave: {{ after: 7s }}
    load: {{ clients: 1, start: at_once }}
  viewers:
    protocol: webrtc
    urls: ['janus+ws://{{server}}:8188/videoroom/77']
    receive: decrypted
    load: {{ clients: 2, start: at_once }}
duration: 9s
"
    );
    fs::write(folder.join("room.yaml"), scenario).expect("there is room");
    run(
        folder,
        ["run", "room.yaml", "--json", "room.json", "--force"],
    )
    .expect(0);
    Report::read(&folder.join("room.json"))
}

#[test]
fn file_and_its_recording_by_janus_are_published_in_a_room() {
    if !have("janus") || Namespace::with_multicast().is_none() {
        return;
    }
    let folder = folder();
    if !webm(folder.path()) {
        return;
    }
    configure(folder.path(), "10.81.0.2", Over::WebSockets);
    let room = format!(
        "room-77: {{ description = \"r\", publishers = 10, videocodec = \"vp8\", audiocodec = \
         \"opus\", record = true, rec_dir = \"{}\" }}\n",
        folder.path().display()
    );
    let rooms = folder.path().join("janus.plugin.videoroom.jcfg");
    fs::write(rooms, room).expect("there is room");
    let report = publish(folder.path(), "talk.webm");
    looks_right(&report, 5 * 25 + 5 * 50);
    let entries = fs::read_dir(folder.path()).expect("it is there");
    let of_video = |path: &PathBuf| {
        let name = path.to_string_lossy();
        // All names begin with the name of the plug-in, `videoroom`.
        name.ends_with(".mjr") && name.contains("-video-")
    };
    let mut paths = entries.map(|entry| entry.expect("it can be read").path());
    let recorded = paths.find(of_video).expect("Janus has recorded it");
    let report = publish(folder.path(), &recorded.to_string_lossy());
    looks_right(&report, 5 * 25);
}

/// Checks that the number of sent frames fits a file that has `five` frames in five seconds, and
/// that packets arrived.
fn looks_right(report: &Report, five: u64) {
    let of = |population: &str, name: &str| {
        number(&report.0["populations"][population]["metrics"][name])
    };
    let frames = of("speaker", "sent_frames");
    assert!((five / 2..=five * 2).contains(&frames), "{frames}");
    let (sent, received) = (of("speaker", "sent_packets"), of("viewers", "received"));
    assert_most_arrived(received, of("viewers", "expected"));
    assert_eq!(of("viewers", "unauthentic"), 0);
    assert!(
        received > sent && received <= 2 * sent,
        "{received} of {sent}"
    );
    // Each second begins with a key frame.
    assert!(of("viewers", "key_frames") >= 2 * 2);
}
