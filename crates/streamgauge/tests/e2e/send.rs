//! `streamgauge send`: every stamp arrives, and other programs decode the stream.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kit::mediagen::ts::packet::PACKET_LEN;
use kit::mediagen::ts::stamp::Stamp;

use crate::namespace::Namespace;
use crate::support::{Process, folder, have, number, streamgauge, wait_for};

/// Time limit of everything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// 400 datagrams a second.
const RATE: &str = "4211200bps";
const EACH: u64 = 1200;
const LENGTH: &str = "3s";

/// Starts a receiver of a group, which has joined the group when this returns.
fn receiver(namespace: &Namespace, group: &str, joined: (&str, &str), folder: &Path) -> Process {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/receive_group.py");
    let mut python = Command::new("python3");
    python.args([program, group, "4056", &EACH.to_string(), group]);
    let mut receiving = Process::start(namespace.within(&python), folder);
    wait_for("the membership", PATIENCE, || {
        assert!(receiving.runs(), "{}", receiving.stderr_text());
        namespace.table(joined.0).contains(joined.1).then_some(())
    });
    receiving
}

/// Returns the datagrams that were received from a group.
fn received(folder: &Path, group: &str) -> Vec<Vec<u8>> {
    let bytes = fs::read(folder.join(group)).expect("the receiver wrote it");
    let (mut rest, mut datagrams) = (&bytes[..], Vec::new());
    while let Some((length, behind)) = rest.split_first_chunk() {
        let (datagram, behind) = behind.split_at(u16::from_be_bytes(*length).into());
        datagrams.push(datagram.to_vec());
        rest = behind;
    }
    datagrams
}

/// Checks that all datagrams arrived in order, each with the stamp of this group. Returns the
/// transport stream.
fn stream_of(datagrams: &[Vec<u8>], header: usize, group: &str) -> Vec<u8> {
    assert_eq!(datagrams.len() as u64, EACH);
    let mut stream = Vec::new();
    let mut last_due = 0;
    for (number, datagram) in (0u64..).zip(datagrams) {
        let packets = datagram[header..].as_chunks::<PACKET_LEN>().0;
        assert_eq!(packets.len(), 7);
        let stamp = Stamp::read(&packets[0]).expect("a stamp");
        assert_eq!((stamp.number, stamp.packets), (number, 7));
        assert_eq!(stamp.group.to_string(), group);
        // Due times are 2.5 ms apart.
        assert!(number == 0 || stamp.due - last_due == 2_500_000, "{number}");
        last_due = stamp.due;
        stream.extend_from_slice(packets.as_flattened());
    }
    stream
}

/// Checks that other programs find the video in a stream, and decode two seconds of it without an
/// error.
fn decodes(folder: &Path, stream: &[u8]) {
    let path = folder.join("received.ts");
    fs::write(&path, stream).expect("there is room");
    let mut ffprobe = Command::new("ffprobe");
    ffprobe.args(["-v", "error", "-show_entries", "stream=codec_name,id"]);
    let output = ffprobe.args(["-of", "csv"]).arg(&path).output();
    let output_text =
        String::from_utf8(output.expect("it is there").stdout).expect("it writes text");
    assert!(output_text.contains("stream,h264,0x100"), "{output_text}");
    assert!(
        output_text.contains("0x1ab5"),
        "the stamps are listed: {output_text}"
    );
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-xerror", "-i"]).arg(&path);
    ffmpeg.args(["-map", "0:v", "-frames:v", "50", "-f", "null", "-"]);
    let output = ffmpeg.output().expect("it is there");
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && output_text.is_empty(),
        "{output_text}"
    );
}

#[test]
fn every_stamp_arrives_and_ffmpeg_decodes_the_stream() {
    if !have("python3") || !have("ffmpeg") {
        return;
    }
    let Some(namespace) = Namespace::with_multicast() else {
        return;
    };
    let folder = folder();
    let groups = [("239.81.0.1", "010051EF"), ("239.81.0.2", "020051EF")];
    let receivers =
        groups.map(|(group, joined)| receiver(&namespace, group, ("igmp", joined), folder.path()));
    let mut send = streamgauge(["send", "udp://239.81.0.{1..2}:4056", "-b", RATE]);
    send.args(["-d", LENGTH, "--report", "sent.jsonl"]);
    let sent = Process::start(namespace.within(&send), folder.path()).finish(PATIENCE);
    sent.expect(0);
    for receiver in receivers {
        receiver.finish(PATIENCE).expect(0);
    }
    for (group, _) in groups {
        let datagrams = received(folder.path(), group);
        let stream = stream_of(&datagrams, 0, &format!("{group}:4056"));
        decodes(folder.path(), &stream);
    }
    let report = fs::read_to_string(folder.path().join("sent.jsonl")).expect("it was written");
    let lines: Vec<serde_json::Value> = report
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON each"))
        .collect();
    assert_eq!(lines.len(), 3, "{report}");
    for (group, _) in groups {
        // In the order in which their senders ended.
        let url = format!("udp://{group}:4056");
        let line = lines.iter().find(|line| line["url"] == url.as_str());
        let line = line.expect("each group has a line");
        assert_eq!((number(&line["sent"]), number(&line["refused"])), (EACH, 0));
    }
    assert_eq!(number(&lines[2]["pacing"]["packets"]), 2 * EACH);
}

/// Sends to one group and returns what arrived.
fn sent_to(
    group: &str,
    joined: (&str, &str),
    arguments: &[&str],
    folder: &Path,
) -> Option<Vec<Vec<u8>>> {
    let namespace = Namespace::with_multicast()?;
    let receiver = receiver(&namespace, group, joined, folder);
    let mut send = streamgauge(["send", "-b", RATE, "-d", LENGTH]);
    send.args(arguments);
    let sent = Process::start(namespace.within(&send), folder).finish(PATIENCE);
    sent.expect(0);
    receiver.finish(PATIENCE).expect(0);
    Some(received(folder, group))
}

#[test]
fn over_rtp_every_datagram_has_a_header() {
    if !have("python3") {
        return;
    }
    let folder = folder();
    let arguments = ["rtp://239.81.0.3:4056", "--interface", "lo"];
    let joined = ("igmp", "030051EF");
    let Some(datagrams) = sent_to("239.81.0.3", joined, &arguments, folder.path()) else {
        return;
    };
    stream_of(&datagrams, 12, "239.81.0.3:4056");
    let sequence = |datagram: &[u8]| u16::from_be_bytes([datagram[2], datagram[3]]);
    for two in datagrams.windows(2) {
        assert_eq!(two[0][..2], [0x80, 33]);
        assert_eq!(sequence(&two[1]), sequence(&two[0]).wrapping_add(1));
    }
}

#[test]
fn over_ipv6_every_stamp_arrives() {
    if !have("python3") {
        return;
    }
    let folder = folder();
    let arguments = ["udp://[ff15::51:1]:4056", "--interface", "lo"];
    let joined = ("igmp6", "ff150000000000000000000000510001");
    let sent = sent_to("ff15::51:1", joined, &arguments, folder.path());
    if let Some(datagrams) = sent {
        stream_of(&datagrams, 0, "[ff15::51:1]:4056");
    }
}

#[test]
fn file_is_sent_in_a_loop() {
    if !have("python3") || !have("ffmpeg") {
        return;
    }
    let folder = folder();
    let path = folder.path().join("clip.ts");
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args("-v error -f lavfi -i testsrc=size=320x180:rate=25 -f lavfi -i sine".split(' '));
    ffmpeg.args("-t 1.2 -vf noise=alls=60:allf=t -c:v libx264 -g 25 -bf 2".split(' '));
    ffmpeg.args("-b:v 2M -maxrate 2M -bufsize 1M -c:a aac -f mpegts".split(' '));
    let made = ffmpeg.arg(&path).status().expect("it is there");
    assert!(made.success());
    let path = path
        .to_str()
        .expect("the test's folder has an ordinary name");
    let arguments = ["udp://239.81.0.4:4056", "--file", path];
    let joined = ("igmp", "040051EF");
    let Some(datagrams) = sent_to("239.81.0.4", joined, &arguments, folder.path()) else {
        return;
    };
    let stream = stream_of(&datagrams, 0, "239.81.0.4:4056");
    decodes(folder.path(), &stream);
    // The bit rate is too low for the file.
    let send = [
        "send",
        "udp://239.81.0.4:4056",
        "--file",
        path,
        "-d",
        "1s",
        "-b",
        "600kbps",
    ];
    let finished = Process::start(streamgauge(send), folder.path()).finish(PATIENCE);
    finished.expect(104).names("bit/s is needed");
}

#[test]
fn only_multicast_groups_are_accepted() {
    let folder = folder();
    for (url, why) in [
        ("udp://10.0.0.1:4056", "not a multicast group"),
        ("udp://224.0.0.1:4056", "reserved"),
        ("239.81.0.1:4056", "udp://GROUP:PORT"),
    ] {
        let send = streamgauge(["send", url, "-d", "1s"]);
        let finished = Process::start(send, folder.path()).finish(PATIENCE);
        finished.expect(104).names(why);
    }
}
