//! SRT as tshark sees it: each packet between libsrt's program and streamgauge is parsed as its
//! dissector parses it, and counts equal those of the capture.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use srt::codec::handshake::Handshake;
use srt::codec::packet::{Control, Packet};

use crate::srt::{free_port, serve, sockets, wait_for_port, write};
use crate::support::{
    Process, RUN_TIMEOUT, Report, folder, have, number, run, streamgauge, wait_for,
};

/// Compared fields: those that both sides know of a packet.
const FIELDS: [&str; 24] = [
    "srt.iscontrol",
    "srt.type",
    "srt.seqno",
    "srt.pb",
    "srt.msg.order",
    "srt.msg.enc",
    "srt.msg.rexmit",
    "srt.msgno",
    "srt.timestamp",
    "srt.id",
    "srt.ackno",
    "srt.ack_seqno",
    "srt.rtt",
    "srt.rttvar",
    "srt.bufavail",
    "srt.rate",
    "srt.bw",
    "srt.rcvrate",
    "srt.nak_seqno",
    "srt.hs.version",
    "srt.hs.isn",
    "srt.hs.reqtype",
    "srt.hs.id",
    "srt.hs.cookie",
];

/// Length of a media packet: its header and seven transport packets.
const PACKET: usize = 16 + 7 * 188;

/// Last packet of the capture.
const END: &[u8] = b"nothing of interest comes behind this";

type Fields = Vec<(&'static str, String)>;

/// A packet in a capture.
struct Seen {
    from: u16,
    to: u16,
    payload: Vec<u8>,
    /// Fields as the dissector reads them.
    fields: Fields,
}

fn capture(folder: &Path, ports: &[u16]) -> Process {
    let filters: Vec<String> = ports
        .iter()
        .map(|port| format!("udp port {port}"))
        .collect();
    let mut command = Command::new("tshark");
    // A large buffer: packets that the capture lost could not be compared.
    command.args(["-i", "lo", "-B", "64", "-w", "capture.pcapng", "-f"]);
    command.arg(filters.join(" or "));
    let capture = Process::start(command, folder);
    wait_for("tshark captures", Duration::from_secs(60), || {
        capture.stderr_text().contains("Capturing on").then_some(())
    });
    // tshark prints this before the kernel has its filter. It is ready when it has captured a
    // probe.
    let probe = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
    wait_for("tshark sees packets", Duration::from_secs(60), || {
        let _ = probe.send_to(b"?", ("127.0.0.1", ports[0]));
        let file = folder.join("capture.pcapng");
        let length = fs::metadata(file).map_or(0, |file| file.len());
        (length > 1000).then_some(())
    });
    capture
}

/// Returns an attribute of an element of PDML.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let begin = line.find(&format!(" {name}=\""))? + name.len() + 3;
    line[begin..].split('"').next()
}

/// Returns tshark's reading of each SRT packet.
fn dissected(folder: &Path, ports: &[u16]) -> Vec<Seen> {
    let mut command = Command::new("tshark");
    command.args([
        "-r",
        "capture.pcapng",
        "--disable-protocol",
        "udt",
        "-T",
        "pdml",
    ]);
    for port in ports {
        command.args(["-d", &format!("udp.port=={port},srt")]);
    }
    let text = Process::start(command, folder);
    let text = text.finish(RUN_TIMEOUT).expect(0).stdout;
    let mut all = Vec::new();
    for packet in text.split("<packet>").skip(1) {
        let mut seen = Seen {
            from: 0,
            to: 0,
            payload: Vec::new(),
            fields: Vec::new(),
        };
        for line in packet.lines().filter(|line| line.contains("<field ")) {
            let name = attribute(line, "name").unwrap_or_default();
            let show = attribute(line, "show").unwrap_or_default();
            match name {
                "udp.srcport" => seen.from = show.parse().expect("a port"),
                "udp.dstport" => seen.to = show.parse().expect("a port"),
                "udp.payload" => {
                    let bytes = show.split(':').map(|byte| u8::from_str_radix(byte, 16));
                    seen.payload = bytes.collect::<Result<_, _>>().expect("bytes");
                }
                _ => {}
            }
            // The version of SRT in an extension has the same field name as the version of the
            // handshake.
            let mut before = seen.fields.iter();
            let again = name != "srt.nak_seqno" && before.any(|(field, _)| *field == name);
            if let Some(&field) = FIELDS.iter().find(|field| **field == name && !again) {
                let shown = match field {
                    // Its value is only in the text.
                    "srt.nak_seqno" => attribute(line, "showname").unwrap_or_default(),
                    _ => show,
                };
                seen.fields.push((field, shown.to_owned()));
            }
        }
        // Leaves out the probes.
        if seen.payload != b"?" && seen.payload != END {
            all.push(seen);
        }
    }
    all
}

/// Returns the same fields as streamgauge parses them, and the kind of packet.
fn read(payload: &[u8]) -> (Fields, &'static str) {
    let mut fields: Fields = Vec::new();
    let packet = Packet::parse(payload).expect("it is one");
    let (timestamp, destination) = match packet {
        Packet::Data(header, _) => {
            fields.push(("srt.iscontrol", "0".to_owned()));
            for (field, value) in [
                ("srt.seqno", header.sequence.value()),
                ("srt.pb", header.position as u32),
                ("srt.msg.order", header.in_order.into()),
                ("srt.msg.enc", header.key as u32),
                ("srt.msg.rexmit", header.retransmitted.into()),
                ("srt.msgno", header.message),
            ] {
                fields.push((field, value.to_string()));
            }
            (header.timestamp, header.destination)
        }
        Packet::Control(header, _) => (header.timestamp, header.destination),
    };
    let common = [
        ("srt.timestamp", timestamp.to_string()),
        ("srt.id", format!("{destination:#010x}")),
    ];
    let Packet::Control(_, control) = packet else {
        fields.extend(common);
        return (fields, "data");
    };
    let (kind, code) = match control {
        Control::Handshake(_) => ("handshake", 0),
        Control::KeepAlive => ("keepalive", 1),
        Control::Ack(ack) if ack.number == 0 => ("light ack", 2),
        Control::Ack(_) => ("full ack", 2),
        Control::Nak(_) => ("nak", 3),
        Control::CongestionWarning => ("congestion warning", 4),
        Control::Shutdown => ("shutdown", 5),
        Control::AckAck { .. } => ("ackack", 6),
        Control::DropRequest { .. } => ("drop request", 7),
        Control::PeerError { .. } => ("peer error", 8),
        Control::UserDefined { .. } => ("user defined", 0x7fff),
        Control::Unknown { kind, .. } => panic!("a packet of type {kind}"),
    };
    fields.push(("srt.iscontrol", "1".to_owned()));
    fields.push(("srt.type", format!("{code:#06x}")));
    match control {
        Control::Ack(ack) => fields.push(("srt.ackno", ack.number.to_string())),
        Control::AckAck { number } => fields.push(("srt.ackno", number.to_string())),
        Control::DropRequest { message, .. } => fields.push(("srt.msgno", message.to_string())),
        _ => {}
    }
    fields.extend(common);
    match control {
        Control::Ack(ack) => {
            fields.push(("srt.ack_seqno", ack.next.value().to_string()));
            if let Some(report) = ack.report {
                for (field, value) in [
                    ("srt.rtt", report.rtt),
                    ("srt.rttvar", report.rtt_variance),
                    ("srt.bufavail", report.free_packets),
                ] {
                    fields.push((field, value.to_string()));
                }
                if let Some(rates) = report.rates {
                    for (field, value) in [
                        ("srt.rate", rates.packets),
                        ("srt.bw", rates.capacity),
                        ("srt.rcvrate", rates.bytes),
                    ] {
                        fields.push((field, value.to_string()));
                    }
                }
            }
        }
        Control::Nak(list) => {
            for range in list.ranges() {
                let (first, last) = (range.first.value(), range.last.value());
                let text = match first == last {
                    true => format!("Loss sequence: {first}"),
                    false => format!("Loss sequence range: {first}-{last}"),
                };
                fields.push(("srt.nak_seqno", text));
            }
        }
        Control::Handshake(cif) => {
            let (handshake, _) = Handshake::parse(cif).expect("it is one");
            for (field, value) in [
                ("srt.hs.version", handshake.version.to_string()),
                ("srt.hs.isn", handshake.initial_sequence.to_string()),
                ("srt.hs.reqtype", handshake.kind.to_wire().to_string()),
                ("srt.hs.id", format!("{:#010x}", handshake.socket_id)),
                ("srt.hs.cookie", format!("{:#010x}", handshake.cookie)),
            ] {
                fields.push((field, value));
            }
        }
        _ => {}
    }
    (fields, kind)
}

#[test]
fn packets_are_parsed_and_counted_as_by_tshark() {
    if !have("srt-live-transmit") || !have("tshark") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "left out: only root can capture");
        return;
    }
    let folder = folder();
    let [from_us, relayed, direct] = [(); 3].map(|()| free_port());
    let ports = [from_us, relayed, direct];
    let capture = capture(folder.path(), &ports);
    // One server loses packets that libsrt requests again; the other loses packets that streamgauge
    // requests again.
    let lossy = ["--fault", "lose=8%", "--length", "8s"];
    let first = serve(folder.path(), from_us, &lossy);
    let second = folder.path().join("second");
    fs::create_dir(&second).expect("the folder can be written to");
    let encrypted = [&lossy[..], &["--passphrase", "hush-hush-hush"]].concat();
    let second = serve(&second, direct, &encrypted);
    // With 4 s of latency, retransmissions arrive in time even on a busy machine.
    let clients = |port: u16, with: &str| {
        format!(
            "name: seen\nduration: 60s\nclients:\n  viewers:\n    protocol: srt\n    \
             leave: at_end\n    urls: [\"srt://127.0.0.1:{port}?latency=4000{with}\"]\n    \
             load: {{ clients: 1, start: at_once }}\n"
        )
    };
    write(folder.path(), "relayed.yaml", &clients(relayed, ""));
    let secret = "&passphrase=hush-hush-hush";
    write(folder.path(), "direct.yaml", &clients(direct, secret));
    let mut command = Command::new("srt-live-transmit");
    command.args([
        "-q",
        "-a:no",
        &format!("srt://127.0.0.1:{from_us}?mode=caller&latency=4000"),
        &format!("srt://127.0.0.1:{relayed}?mode=listener"),
    ]);
    let relay = Process::start(command, folder.path());
    wait_for_port(relayed);
    let player = streamgauge(["run", "relayed.yaml", "--json", "relayed.json"]);
    let player = Process::start(player, folder.path());
    wait_for("the player is there", Duration::from_secs(60), || {
        (sockets(relayed, true) > 0).then_some(())
    });
    run(
        folder.path(),
        ["run", "direct.yaml", "--json", "direct.json"],
    )
    .expect(0);
    // The player leaves when the server's stream ends.
    player.finish(RUN_TIMEOUT).expect(0);
    drop(relay);
    for server in [first, second] {
        server.signal("TERM");
        server.finish(Duration::from_secs(60));
    }
    // Packets that are not in the file yet would be lost with the capture.
    wait_for("tshark has seen all", Duration::from_secs(60), || {
        let probe = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
        let _ = probe.send_to(END, ("127.0.0.1", ports[0]));
        let file = fs::read(folder.path().join("capture.pcapng")).unwrap_or_default();
        let mut places = file.windows(END.len());
        places.any(|bytes| bytes == END).then_some(())
    });
    capture.signal("INT");
    capture.finish(Duration::from_secs(60));

    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    // By source port: data packets and retransmissions; by destination port: ACKs and NAKs.
    let mut counts: BTreeMap<(u16, &str), u64> = BTreeMap::new();
    let mut ranges = 0;
    for seen in dissected(folder.path(), &ports) {
        let (fields, kind) = read(&seen.payload);
        assert_eq!(fields, seen.fields, "{kind}: {:02x?}", seen.payload);
        *kinds.entry(kind).or_default() += 1;
        ranges += u64::from(seen.fields.iter().any(|(_, text)| text.contains("range")));
        // Packets that left together are one packet in the capture, of which tshark reads the
        // first.
        let further = seen.payload.chunks(PACKET).skip(1);
        let further = further.map(|packet| read(packet).0);
        for fields in std::iter::once(seen.fields).chain(further) {
            let says = |field: &str, value: &str| {
                let mut fields = fields.iter();
                fields.any(|(name, text)| *name == field && text == value)
            };
            for (port, what, is) in [
                (seen.from, "data", says("srt.iscontrol", "0")),
                (seen.from, "again", says("srt.msg.rexmit", "1")),
                (seen.to, "acks", says("srt.type", "0x0002")),
                (seen.to, "naks", says("srt.type", "0x0003")),
            ] {
                *counts.entry((port, what)).or_default() += u64::from(is);
            }
        }
    }
    for kind in ["data", "handshake", "full ack", "ackack", "nak", "shutdown"] {
        assert!(kinds.contains_key(kind), "no {kind} among {kinds:?}");
    }
    assert!(kinds["data"] > 1500 && kinds["nak"] > 50, "{kinds:?}");
    assert!(ranges > 0, "{kinds:?}");
    for (port, report) in [(relayed, "relayed.json"), (direct, "direct.json")] {
        let report = Report::read(&folder.path().join(report));
        let count = |name: &str| number(report.metric(name));
        for (metric, what) in [
            ("pkt_recv", "data"),
            ("pkt_rcv_retrans", "again"),
            ("pkt_sent_ack", "acks"),
            ("pkt_sent_nak", "naks"),
        ] {
            assert_eq!(count(metric), counts[&(port, what)], "{metric} of {port}");
        }
        // The relay of libsrt loses nothing, so there may be nothing to request again. On a busy
        // machine its packets come in bursts, of which each 64th is acknowledged at once: that is
        // feedback too.
        let delay = &report.0["tester"]["feedback_delay"]["count"];
        let asks = counts[&(port, "naks")] > 0;
        let has_feedback = delay.as_u64().is_some_and(|count| count > 0);
        assert!(has_feedback || !asks, "{delay}");
        assert!(asks || port == relayed);
    }
}
