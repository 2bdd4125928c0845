//! Seed inputs: test vectors of unit tests, examples, and the output of our own writers.

use std::path::{Path, PathBuf};

use kit::media::rtcp::{self, ReportBlock, SenderInfo};
use kit::media::rtp::header::Header;
use measure::Histogram;
use kit::mediagen::time_code::TimeCode;
use rtmp::codec::amf0::Value;
use rtmp::codec::message::{Command, MessageType, UserControlEvent};
use rtmp::codec::write::{self, MessageHeader};

/// Returns an IVF file with two VP8 frames.
fn ivf() -> Vec<u8> {
    let mut file = b"\0DKIF\0\0\x20\0VP80\x10\0\x10\0\x19\0\0\0\x01\0\0\0".to_vec();
    file.resize(33, 0);
    for (time, byte) in [(0, 0x10), (1, 0x11)] {
        file.extend([2, 0, 0, 0, time, 0, 0, 0, 0, 0, 0, 0, byte, 0]);
    }
    file
}

/// Returns the seeds of a target.
pub(crate) fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "apart_lines" => apart()
            .into_iter()
            .map(|text| join(&[&[255, 0], &text]))
            .collect(),
        "apart_session" => apart()
            .into_iter()
            .map(|text| join(&[&[1, 0], &text]))
            .collect(),
        "exporter_text" => texts(&[
            "# HELP node_cpu_seconds_total Seconds the CPUs spent in each mode.\n# TYPE node_cpu_seconds_total counter\n\
             node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} 23267.2\nnode_memory_MemTotal_bytes 2.5276514304e+10\n",
            "namedprocess_namegroup_num_procs{groupname=\"a } \\\"b\\\"\\\\\"} 9 1395066363000\n\
             go_gc_duration_seconds{quantile=\"0.5\"} NaN\nbroken{a=\"b\" 3\n\n",
        ]),
        "frames" => frames(),
        "websocket" => websocket(),
        "hls_client" => hls_client(),
        "hls_playlist" => texts(&HLS_PLAYLISTS),
        "hls_server" => hls_server(),
        "http1" => http1(),
        "media_file" => vec![
            mp4(),
            join(&[&[4], &transport_stream()]),
            ivf(),
            b"\0\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\xff\xae\x80\xd7\x81\x01\x86\x85V_VP8\xae\x80\xd7\x81\x02\
              \x86\x86A_OPUS\x1f\x43\xb6\x75\xff\xe7\x81\x05\xa3\x86\x81\0\0\x80\x10\0\xa3\x85\x82\0\x02\0\x07"
                .to_vec(),
            b"\0MJR00002\0\x0b{\"c\":\"vp8\"}MEET\0\0\0\0\0\x0e\x80\x60\0\x01\0\0\0\0\0\0\0\x07\x10\0MEET\0\0\0\x09\0\x0e\x80\
              \xe0\0\x02\0\0\x0b\xb8\0\0\0\x07\x10\x01"
                .to_vec(),
        ],
        "netlink" => netlink(),
        "relay_request" => texts(&[
            "\x05GET /udp/239.81.0.1:4056 HTTP/1.1\r\nHost: a\r\n\r\nmore",
            "\x00GET /rtp/[ff15::1]:5000?x=1 HTTP/1.0\r\n\r\n",
            "\x10HEAD / HTTP/1.0\r\n\r\n",
            "\x02POST / HTTP/2\r\n\r\n",
        ]),
        "rtcp" => rtcp_seeds(),
        "rtmp_amf" => rtmp_amf(),
        "rtmp_chunks" => rtmp_chunks(),
        "rtmp_handshake" => vec![vec![0, 2, 255, 9, 3, 0, 0], vec![1, 0, 3], vec![0, 0, 6], vec![1, 1, 0]],
        "rtmp_session" => rtmp_session(),
        "rtp" => rtp(),
        "rtsp" => rtsp(),
        "rtsp_headers" => texts(FIELDS),
        "runfile" => vec![
            vec![0],
            vec![0, 0, 0x10, 0, 4, 1, 2, 3, 4],
            vec![7, 1, 2, 3],
        ],
        "runfile_blob" => blobs(),
        "scenario" => [files("examples"), testdata()].concat(),
        "sdp" => texts(SDP),
        "server_entry" => files("crates/sut/catalogue"),
        "srt_handshake" => srt_handshake(),
        "srt_packets" => srt_packets(),
        "srt_receiver" => [0, 2, 0x3a].map(|settings| srt_peer(settings, &[])).into(),
        "srt_session" => [0, 1].map(|role| srt_peer(role, &[])).into(),
        "srt_sender" => [0, 0x11, 0xfe].map(|settings| srt_peer(settings, &[3])).into(),
        "templates" => [
            "",
            "n={counter} {counter:4} at {time} {{x}} {random:3}!",
            "{random:200}",
        ]
        .iter()
        .map(|text| join(&[&[1, 2, 3, 4], text.as_bytes()]))
        .collect(),
        "thresholds" => texts(THRESHOLDS),
        "ts" => vec![join(&[&[0, 2, 20, 250], &transport_stream()])],
        "ts_file" => vec![
            join(&[&[0], &transport_stream()]),
            join(&[&[0x51], &transport_stream()]),
        ],
        "ts_sections" => vec![
            section(0, &[0, 1, 0xc1, 0, 0, 0, 7, 0xf0, 0]),
            section(2, MAP),
        ],
        "urls" => texts(URLS),
        "webrtc_client" => webrtc_client(),
        "webrtc_feedback" => webrtc_feedback(),
        // Alternately, each side receives what the other sent and 20 ms pass.
        "webrtc_peer" => vec![[0x38, 0x39].repeat(20), [0x29, 0x38, 0x2e, 0x39].repeat(15)],
        "webrtc_room" => vec![webrtc_room()],
        "webrtc_sdp" => captures("crates/webrtc/src/sdp/testdata"),
        "webrtc_server" => captures("crates/webrtc/src/sdp/testdata")
            .into_iter()
            .flat_map(|offer| [1u8, 2].map(|how| [&[how][..], &offer].concat()))
            .chain([[&[0][..], b"OPTIONS /whep/a HTTP/1.1\r\n\r\n"].concat()])
            .collect(),
        "webrtc_srtp" => (0..3).map(webrtc_srtp).collect(),
        "webrtc_turn" => vec![webrtc_turn()],
        _ => Vec::new(),
    }
}

/// Returns the steps of two participants in a room. One publishes. The other subscribes to it,
/// answers, and leaves. A step is a participant, a handle, a number, and a message type.
fn webrtc_room() -> Vec<u8> {
    let steps: [[u8; 4]; 15] = [
        [0, 0, 0, 1],
        [1, 0, 0, 1],
        [0, 0, 0, 2],
        [1, 0, 0, 2],
        [1, 0, 0, 2],
        [0, 0, 1, 9],
        [1, 0, 1, 9],
        [0, 0, 1, 12],
        [1, 1, 4, 11],
        [1, 1, 0, 13],
        [1, 1, 1, 14],
        [1, 1, 0, 13],
        [1, 1, 2, 15],
        [0, 0, 1, 16],
        [1, 1, 0, 3],
    ];
    steps.concat()
}

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Returns the YAML files in a folder of the repository.
fn files(folder: &str) -> Vec<Vec<u8>> {
    files_named(folder, "yaml")
}

/// Returns the session descriptions in a folder of the repository.
fn captures(folder: &str) -> Vec<Vec<u8>> {
    files_named(folder, "sdp")
}

fn files_named(folder: &str, end: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(folder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder is in the repository")
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|name| name == end))
        .collect();
    paths.sort();
    let read = |path: &PathBuf| std::fs::read(path).expect("the file can be read");
    paths.iter().map(read).collect()
}

/// Scenarios that once caused failures.
fn testdata() -> Vec<Vec<u8>> {
    texts(&[
        "clients: {viewers: {urls: ['rtsp://h/a'], load: {clients: 10, ramp: 5s}}}\nduration: 10s\nthresholds: ['viewers.loss < 7%']\n",
        "#set clients.viewers.load.clients=5\nclients:\n  viewers:\n    urls: [\"rtsp://h/{a,b}{1..9}\"]\n    transport: tcp\n    media: {address: 127.0.0.2, ports: 4000..}\n",
        "vary: {clients.v.load.clients: [5, 10]}\nclients: {v: {protocol: messages, urls: ['tcp://h:1'], message: {size: 36}}}\n",
        "server: {launch: gstreamer, clips: {count: 2}}\nclients: {v: {urls: ['{server}/x']}}\n",
        "a: &x [1, 2]\nb: *x\n? c\n: |\n  text\n",
    ])
}

fn apart() -> Vec<Vec<u8>> {
    texts(&[
        "{\"open\":{\"stream\":0,\"clock_rate\":90000,\"payload_types\":[96],\"playout_buffer\":1000000000,\"reports\":true,\"every\":200000000}}\n\
         {\"peer\":{\"stream\":0,\"media\":\"10.0.0.1:5000\",\"control\":\"[::1]:0\"}}\n{\"base\":{\"stream\":0,\"sequence\":65535}}\n\"close\"\n",
        "{\"proof\":{\"proof\":\"ab\"}}\n\"close\"\n",
        "{\"hello\":{\"version\":1,\"challenge\":\"abc\"}}\n{\"opened\":{\"stream\":0,\"address\":\"10.0.0.3\",\"port\":40000}}\n\
         {\"first\":{\"stream\":0,\"age\":5}}\n{\"seen\":{\"stream\":0,\"ages\":[5,3],\"counts\":{\"expected\":5}}}\n\
         {\"bye\":{\"stream\":0,\"age\":1}}\n{\"closed\":{\"streams\":[]}}\n{\"refused\":{\"why\":\"full\"}}\n",
    ])
}

fn frames() -> Vec<Vec<u8>> {
    vec![
        join(&[&[0, 16, 255, 0], b"\x03abc\x00\x01x"]),
        join(&[&[18, 16, 255, 1, 2], b"\x00\x05abc"]),
        join(&[&[12, 16, 255, 2, 1, 5], b"\x03\0\0\0abc"]),
        join(&[&[0x86, 16, 255, 1, 3], b"\x01\x02\x03abc\x04defg\x00"]),
        join(&[&[3, b'\r', b'\n', 16, 255, 1, 2], b"abc\r\n\r\nx\ry\r\n"]),
        join(&[
            &[9, b'-', b'-', b'e', b'n', b'd', 1, 3, 1, 4],
            b"a---end0123456789ab--endxy--end",
        ]),
        join(&[
            &[0x83, b'\r', b'\n', 16, 255, 1, 2],
            b"\x01\x02\x03abc\x04defg",
        ]),
    ]
}

fn websocket() -> Vec<Vec<u8>> {
    vec![
        join(&[&[0, 16, 255, 1, 2], b"\x82\x03abc\x01\x01a\x80\x01b\x89\x02hi\x88\x02\x03\xe8"]),
        join(&[&[1, 16, 255, 0], b"\x81\x83\x01\x02\x03\x04abc"]),
        join(&[&[0, 16, 255, 0], b"\x82\x7e\x00\x80"]),
        join(&[&[0x81, 16, 255, 1, 3], b"\x01\x02\x03abc\x7fdefg"]),
        join(&[&[0xc0, 16, 255, 1, 9], b"GET /a HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"]),
        join(&[&[0xc0, 16, 255, 1, 9], b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
            Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"]),
    ]
}

fn rtmp_amf() -> Vec<Vec<u8>> {
    let answer = Command {
        name: "_result".to_owned(),
        transaction: 1.0,
        arguments: vec![
            Value::Object(vec![("capabilities".to_owned(), Value::Number(31.0))]),
            Value::EcmaArray(vec![(
                "code".to_owned(),
                Value::string("NetConnection.Connect.Success"),
            )]),
            Value::Array(vec![
                Value::Null,
                Value::Undefined,
                Value::Boolean(true),
                Value::Date(5.0),
            ]),
            Value::Typed(
                "c".to_owned(),
                vec![("x".to_owned(), Value::Xml("<a/>".to_owned()))],
            ),
        ],
    };
    vec![
        answer.to_bytes(),
        join(&[&[0], &answer.to_bytes()]),
        vec![
            17, 4, 255, 255, 255, 255, 17, 6, 5, b'h', b'i', 17, 5, 63, 240, 0, 0, 0, 0, 0, 0,
        ],
        vec![0, 6, 0, 0, 0, 7],
        vec![0, 3, 0, 0, 0, 1, 0, 0, 11, 184],
    ]
}

/// Returns the messages of a server, starting with the response to `connect`.
fn rtmp_server() -> Vec<u8> {
    let mut out = Vec::new();
    write::window_size(2_500_000, &mut out);
    write::peer_bandwidth(2_500_000, &mut out);
    write::set_chunk_size(4096, &mut out);
    let mut answer = |name: &str, transaction: f64, arguments: Vec<Value>, stream| {
        let name = name.to_owned();
        let command = Command {
            name,
            transaction,
            arguments,
        };
        write::command(&command, stream, 4096, &mut out);
    };
    let code = |code: &str| {
        let level = ("level".to_owned(), Value::string("status"));
        Value::Object(vec![level, ("code".to_owned(), Value::string(code))])
    };
    answer(
        "_result",
        1.0,
        vec![Value::Null, code("NetConnection.Connect.Success")],
        0,
    );
    answer("_result", 2.0, vec![Value::Null, Value::Number(1.0)], 0);
    answer(
        "onStatus",
        0.0,
        vec![Value::Null, code("NetStream.Play.Start")],
        1,
    );
    write::event(UserControlEvent::StreamBegin(1), &mut out);
    write::event(UserControlEvent::PingRequest(5), &mut out);
    for (kind, payload) in [
        (MessageType::Video, &[0x17, 0, 0, 0, 0, 1][..]),
        (MessageType::Video, &[0x17, 1, 0, 0, 0, 0, 0, 0, 2, 0x65, 0]),
        (MessageType::Audio, &[0xaf, 1, 0x21]),
        (MessageType::Audio, b"\x91Opus\x01"),
        (MessageType::Video, b"\xa3hvc1\x01"),
    ] {
        let head = MessageHeader {
            chunk_stream: 4,
            kind,
            timestamp: 40,
            stream: 1,
        };
        head.write(&[payload], 4096, &mut out);
    }
    write::event(UserControlEvent::StreamEof(1), &mut out);
    out
}

fn rtmp_chunks() -> Vec<Vec<u8>> {
    let mut aggregate = vec![];
    let part = [9, 0, 0, 2, 0, 0, 40, 0, 0, 0, 0, 0x27, 1, 0, 0, 0, 13];
    let head = MessageHeader {
        chunk_stream: 6,
        kind: MessageType::Aggregate,
        timestamp: 16_777_300,
        stream: 1,
    };
    head.write(&[&part, &part], 20, &mut aggregate);
    let server = rtmp_server();
    let begun = [
        6, 0, 0, 0, 0, 0, 200, 9, 1, 0, 0, 0, 1, 2, 2, 0, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 0, 6,
    ];
    vec![
        join(&[&[0, 2, 3, 255], &server]),
        join(&[&[1, 1, 30], &server]),
        join(&[&[1, 3, 1, 2, 9], &aggregate]),
        join(&[&[0, 0], &begun]),
        vec![
            2, 1, 9, 1, 255, 255, 255, 255, 3, 1, 2, 3, 5, 1, 0, 0, 0, 0, 40, 1, 7, 9, 2,
        ],
    ]
}

fn rtmp_session() -> Vec<Vec<u8>> {
    let server = rtmp_server();
    let mut refused = Vec::new();
    let code = (
        "code".to_owned(),
        Value::string("NetConnection.Connect.Rejected"),
    );
    let command = Command {
        name: "_error".to_owned(),
        transaction: 1.0,
        arguments: vec![Value::Null, Value::Object(vec![code])],
    };
    write::command(&command, 0, 128, &mut refused);
    vec![
        join(&[&[0], &server]),
        join(&[&[1, 30], &server]),
        join(&[&[1, 9], &refused]),
        [2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0].to_vec(),
    ]
}

/// Datagrams of `srt-live-transmit`: each handshake and key message alone, and all of them for each
/// kind of endpoint.
fn srt_handshake() -> Vec<Vec<u8>> {
    let capture = include_str!("../../crates/srt/src/testdata/srt-live-transmit_encrypted.txt");
    let datagrams = capture.lines().filter_map(|line| {
        let digits = line.split_once(' ')?.1.as_bytes();
        let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        let pairs = digits.as_chunks::<2>().0.iter();
        pairs
            .map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?))
            .collect::<Option<Vec<u8>>>()
    });
    let control: Vec<Vec<u8>> = datagrams
        .filter(|datagram| datagram[0] == 0x80 || datagram[0] == 0xff)
        .collect();
    let mut seeds: Vec<Vec<u8>> = control
        .iter()
        .map(|datagram| join(&[&[if datagram[0] == 0x80 { 0 } else { 1 }], &datagram[16..]]))
        .collect();
    for end in 2..5 {
        let mut seed = vec![end];
        for datagram in &control {
            seed.extend([1, datagram.len() as u8]);
            seed.extend(datagram);
        }
        seeds.push(seed);
    }
    seeds
}

/// Returns a data packet and one control packet of each type, written by hand.
fn srt_packets() -> Vec<Vec<u8>> {
    let control = |kind: u8, info: u8, words: &[u32]| {
        let mut packet = vec![0x80, kind, 0, 0, 0, 0, 0, info, 0, 0, 1, 0, 0, 0, 0, 8];
        packet.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        packet
    };
    let mut data = vec![
        0x7f, 0xff, 0xff, 0xeb, 0xc4, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 8,
    ];
    data.extend(b"media");
    let mut packets: Vec<Vec<u8>> = [0, 1, 4, 5, 6, 8, 9]
        .map(|kind| control(kind, 1, &[0]))
        .into();
    packets.extend([
        data,
        control(2, 0, &[0x7fff_ffec]),
        control(2, 1, &[0x7fff_fff0, 40_000, 5_000, 8000, 245, 900, 330_000]),
        control(3, 0, &[0x7fff_ffed, 0xffff_ffee, 2, 0x7fff_ffec]),
        control(7, 0, &[0x7fff_fff0, 3]),
    ]);
    packets
}

/// Returns the input of a peer: the settings, and for each packet `before`, a time step, whether
/// the packet is near the expected sequence number, and the packet with its length.
fn srt_peer(settings: u8, before: &[u8]) -> Vec<u8> {
    let mut input = vec![settings];
    for (number, packet) in (0u8..).zip(srt_packets().iter().cycle().take(40)) {
        input.extend(before);
        input.extend([5, number << 1 | 1, packet.len() as u8]);
        input.extend(packet);
    }
    input
}

/// Multivariant playlists, live ones, one with byte ranges, and odd ones.
const HLS_PLAYLISTS: [&str; 7] = [
    "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"b\",DEFAULT=YES,URI=\"c.m3u8\"\n\
     #EXT-X-STREAM-INF:BANDWIDTH=2000000,AUDIO=\"a\"\nd.m3u8\n",
    "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:7\n\
     #EXT-X-SERVER-CONTROL:HOLD-BACK=6.0\n#EXT-X-PROGRAM-DATE-TIME:2026-11-29T06:44:13.522+0000\n\
     #EXTINF:2.000000,\na.ts\n#EXT-X-DISCONTINUITY\n#EXTINF:1.920000,\nb.ts\n",
    "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MAP:URI=\"a.mp4\",BYTERANGE=\"100@0\"\n\
     #EXTINF:2.0,\n#EXT-X-BYTERANGE:1000@100\na.mp4\n#EXT-X-GAP\n#EXTINF:2.0,\nb.mp4\n\
     #EXT-X-ENDLIST\n",
    "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-PART-INF:PART-TARGET=0.5\n\
     #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.5,CAN-SKIP-UNTIL=12\n\
     #EXT-X-MEDIA-SEQUENCE:4\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x1\n\
     #EXT-X-SKIP:SKIPPED-SEGMENTS=1\n#EXT-X-PART:DURATION=0.5,URI=\"5.0\",INDEPENDENT=YES\n\
     #EXTINF:2,\n5.ts\n#EXT-X-PART:DURATION=0.5,URI=\"6\",BYTERANGE=\"50@0\"\n\
     #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"6.1\"\n\
     #EXT-X-RENDITION-REPORT:URI=\"d.m3u8\",LAST-MSN=6,LAST-PART=0\n",
    "#EXTM3U\n#EXT-X-TARGETDURATION:0\n#EXT-X-START:TIME-OFFSET=-3.5\n\
     #EXT-X-PART-INF:PART-TARGET=0.2\n#EXT-X-SERVER-CONTROL: CAN-BLOCK-RELOAD = YES\n\
     #EXTINF: 2 , a title\nb\n#EXT-X-MAP:URI=\"c\"\n#EXT-X-PART:DURATION=0.3,URI=\"d\"\n\
     #EXT-X-PRELOAD-HINT:TYPE=MAP,URI=\"e\"\n#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"f\"\n",
    "#EXTM3U\n#EXT-X-START:TIME-OFFSET=7\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"b\"\n\
     #EXT-X-STREAM-INF:PROGRAM-ID=1, BANDWIDTH=1, AUDIO=\"a\"\nc\n\
     #EXT-X-STREAM-INF:BANDWIDTH=1\nd\n",
    "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-DEFINE:NAME=\"a\",VALUE=\"b\"\n\
     #EXT-X-DEFINE:IMPORT=\"v\"\n#EXT-X-DEFINE:QUERYPARAM=\"token\"\n\
     #EXT-X-MAP:URI=\"{$a}\"\n#EXTINF:2,\n{$v}/{$a}.ts?t={$token}\n",
];

/// Answers to a player: pieces of at most 255 bytes, each after its length.
fn hls_client() -> Vec<Vec<u8>> {
    let answers = HLS_PLAYLISTS.map(|playlist| {
        let length = playlist.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let answer = (head + playlist).into_bytes();
        pieces_of(&answer)
    });
    // The first byte chooses the settings: adaptive, with hints.
    let answers = answers.map(|answer| [&[5], &answer[..]].concat());
    answers.into_iter().chain([hls_dialogue()]).collect()
}

/// Answers to a player that requests the rest of a segment by its hint: a playlist, a part, the
/// rest, and a playlist that lists it.
fn hls_dialogue() -> Vec<u8> {
    let playlist = |parts: u32| {
        let mut text = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-PART-INF:PART-TARGET=0.5\n\
                        #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.5\n"
            .to_owned();
        for part in 0..parts {
            let offset = 8 * part;
            text += &format!("#EXT-X-PART:DURATION=0.5,URI=\"a\",BYTERANGE=\"8@{offset}\"\n");
        }
        let start = 8 * parts;
        text += &format!("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"a\",BYTERANGE-START={start}\n");
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        )
    };
    let part = "\0\0\0\x08styp";
    let first = format!("HTTP/1.1 206 OK\r\nContent-Length: 8\r\n\r\n{part}");
    let rest = format!(
        "HTTP/1.1 206 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{part}\r\n8\r\n{part}\r\n"
    );
    // The playlists arrive in the first connection, media in the second.
    let media = |text: &str| [&[4, text.len() as u8][..], text.as_bytes()].concat();
    [
        vec![5],
        pieces_of(playlist(1).as_bytes()),
        media(&first),
        media(&rest),
        pieces_of(playlist(3).as_bytes()),
        media("0\r\n\r\n"),
    ]
    .concat()
}

/// A stream in pieces of at most 255 bytes, each after a zero and its length.
fn pieces_of(stream: &[u8]) -> Vec<u8> {
    let pieces = stream.chunks(255);
    pieces
        .flat_map(|piece| [&[0, piece.len() as u8][..], piece].concat())
        .collect()
}

/// Requests to a server, after each of which its body is taken, or time passes.
fn hls_server() -> Vec<Vec<u8>> {
    let requests = [
        ("/a/index.m3u8", &[][..]),
        (
            "/a/0/index.m3u8?_HLS_msn=10&_HLS_part=2&_HLS_skip=YES",
            &[3],
        ),
        ("/a/0/10.0.ts", &[3, 2]),
        ("/a/0/9.ts", &[2]),
        ("/a/0/wrong-10.1.ts", &[3]),
    ];
    let all = requests.map(|(path, after)| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        [&pieces_of(request.as_bytes()), after].concat()
    });
    let together = all.concat();
    all.into_iter().chain([together]).collect()
}

fn http1() -> Vec<Vec<u8>> {
    let answers: [&[u8]; 6] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef",
        b"HTTP/1.0 200 Fine so far\nX: y\n\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\nContent-Length: 9\r\n\r\n3;x=y\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\nmore",
        b"\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLOCATION: /x\r\nA: 1\r\n  2\r\na: 3\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
    ];
    answers
        .iter()
        .map(|answer| join(&[&[2, 4, 30], answer]))
        .collect()
}

fn netlink() -> Vec<Vec<u8>> {
    let message = |length: u32, kind: u16, sequence: u32, error: i32| {
        join(&[
            &length.to_ne_bytes(),
            &kind.to_ne_bytes(),
            &[0, 0],
            &sequence.to_ne_bytes(),
            &[0; 4],
            &error.to_ne_bytes(),
            &[0; 16],
        ])
    };
    let seven = 7u32.to_ne_bytes();
    vec![
        join(&[&seven, &message(36, 16, 0, 0), &message(36, 2, 7, 0)]),
        join(&[&seven, &message(36, 2, 6, 0), &message(36, 2, 7, -1)]),
        join(&[&seven, &message(3, 2, 9, 5), &message(u32::MAX, 2, 7, -22)]),
    ]
}

fn rtcp_seeds() -> Vec<Vec<u8>> {
    let info = SenderInfo {
        ssrc: 1,
        ntp_time: 1 << 40,
        rtp_time: 5,
        packet_count: 6,
        octet_count: 7,
    };
    let block = ReportBlock {
        ssrc: 9,
        cumulative_lost: -5,
        ..ReportBlock::default()
    };
    let mut first = Vec::new();
    rtcp::write_sender_report(&mut first, &info, &[block]);
    rtcp::write_cname(&mut first, 1, "a name");
    let mut second = Vec::new();
    rtcp::write_receiver_report(&mut second, 1, &[block, block]);
    rtcp::write_bye(&mut second, &[1, 2], Some("why"));
    rtcp::write_bye(&mut second, &[], None);
    // An application-defined packet (APP) with padding.
    second.extend_from_slice(&[
        0xa1, 204, 0, 3, 0, 0, 0, 1, b'n', b'a', b'm', b'e', 0, 0, 0, 4,
    ]);
    vec![first, second]
}

fn rtp() -> Vec<Vec<u8>> {
    let code = TimeCode {
        source: 3,
        number: 4,
        nanos: 1_700_000_000_000_000_000,
    };
    let nal = code.to_nal();
    let mut all = Vec::new();
    for kind in [2u8, 0x52, 0x31] {
        let mut bytes = vec![kind];
        for (number, sequence) in (0u32..).zip([1u16, 2, 2, 4, 3, 65_535, 9000, 9001, 9002, 20, 12])
        {
            let mut packet = Header::new(96, sequence, number * 3600, 7)
                .to_bytes()
                .to_vec();
            packet[1] |= (number as u8 & 1) << 7;
            packet.extend_from_slice(&nal);
            bytes.extend_from_slice(&[6, packet.len() as u8]);
            bytes.extend_from_slice(&packet);
        }
        all.push(bytes);
    }
    all
}

fn rtsp() -> Vec<Vec<u8>> {
    let streams: [&[u8]; 8] = [
        b"RTSP/1.0 200 OK\r\nCSeq: 3\r\nContent-Length: 4\r\n\r\nv=0\n",
        b"DESCRIBE rtsp://h/a RTSP/1.0\r\nCSeq: 2\r\nAccept: application/sdp\r\n\r\n",
        b"$\x00\x00\x0c\x80\x60\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03$\x01\x00\x08\x80\xc9\x00\x01\x00\x00\x00\x01RTSP/1.0 404 Not Found\r\nCSeq: 9\r\n\r\n",
        b"RTSP/1.0 401\r\nCSeq: 1\r\nWWW-Authenticate: Digest realm=\"a\", nonce=\"b\"\r\nWWW-Authenticate: Basic realm=\"a\"\r\n\r\n",
        b"garbage and $more\r\nSETUP rtsp://h/a/1 RTSP/1.0\nCSeq: 4\nTransport: RTP/AVP;unicast;client_port=5000-5001\n\n",
        b"PLAY PLAY PLAY PLAY PLAY PLAY PLAY PLAY\r\n\r\n",
        b"RTSP/1.0 200 OK\r\nCSeq: x\r\nContent-Length: 99999999\r\n\r\n",
        b"RTSP/1.0 200 OK\r\nCSeq: 5\r\nRTP-Info: url=rtsp://h/a/1;seq=5;rtptime=6\r\nRange: npt=0-10\r\n folded\r\nSession: 12;timeout=60\r\n\r\n",
    ];
    streams
        .iter()
        .map(|stream| join(&[&[3, 3, 40, 1], stream]))
        .collect()
}

fn blobs() -> Vec<Vec<u8>> {
    let mut histogram = Histogram::new();
    let mut all = vec![runfile::blob::encode(&histogram.to_sparse())];
    for value in [0, 1, 70_000, 3_000_000_000, u64::MAX] {
        histogram.record(value);
        all.push(runfile::blob::encode(&histogram.to_sparse()));
    }
    all
}

/// Messages of Janus and MediaMTX, plain and over HTTP.
fn webrtc_client() -> Vec<Vec<u8>> {
    let folder = "crates/webrtc/src/testdata";
    let read = |name| {
        std::fs::read_to_string(format!("{folder}/{name}"))
            .expect("the capture is in the repository")
    };
    let over_http = |text: &str| {
        let answer = |line| {
            format!(
                "HTTP/1.1 200 OK|Content-Length: {}||{line}\n",
                str::len(line)
            )
        };
        text.lines().map(answer).collect::<String>()
    };
    let join = read("janus_join.jsonl");
    let created = read("mediamtx_created.http")
        .replace("\r\n", "|")
        .replace('\n', "|");
    [
        (0, join.clone()),
        (1, read("janus_watch.jsonl")),
        (2, over_http(&join)),
        (3, created),
    ]
    .into_iter()
    .map(|(kind, text)| [&[kind], text.as_bytes()].concat())
    .collect()
}

fn webrtc_feedback() -> Vec<Vec<u8>> {
    use webrtc::feedback::{TransportCc, write_fir, write_nack, write_pli, write_remb};
    let mut all = Vec::new();
    write_nack(&mut all, 1, 2, &[5, 6, 40]);
    write_pli(&mut all, 1, 2);
    write_fir(&mut all, 1, 2, 3);
    write_remb(&mut all, 1, 1_000_000, &[2]);
    let arrivals = [Some(3), None, Some(-4), Some(900), None].repeat(5);
    let message = TransportCc {
        receive_deltas: arrivals,
        ..TransportCc::default()
    };
    message.write(&mut all);
    vec![all]
}

/// Returns the responses of a TURN server: it grants an allocation, a permission and a channel.
/// Then data arrives on the channel.
fn webrtc_turn() -> Vec<u8> {
    let answer = |kind: u16, attributes: &[u8]| {
        let head = [&kind.to_be_bytes()[..], &[0, attributes.len() as u8]].concat();
        let message = [&head[..], &[0x21, 0x12, 0xa4, 0x42], &[0; 12], attributes].concat();
        [&[0, message.len() as u8][..], &message].concat()
    };
    let address = [0, 0x16, 0, 8, 0, 1, 0xe2, 0x42, 0x2b, 0x12, 0xa4, 0x4b];
    let granted = answer(0x0103, &address);
    let permitted = answer(0x0108, &[]);
    let bound = answer(0x0109, &[]);
    let data = [1, 8, 0x40, 0, 0, 4, 1, 2, 3, 4];
    [
        &[0][..],
        &granted,
        &[130],
        &permitted,
        &[180],
        &bound,
        &data,
        &[250],
    ]
    .concat()
}

/// Returns an RTP packet with a header extension, a second RTP packet, and an RTCP report.
fn webrtc_srtp(profile: u8) -> Vec<u8> {
    let media = [
        0x90, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0xbe, 0xde, 0, 1, 0x10, 5, 0, 0, 1, 2, 3,
    ];
    let next = [0x80, 96, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 4];
    let report = [0x80, 201, 0, 1, 0, 0, 0, 9];
    join(&[&[profile, 2, 23], &media, &[0, 13], &next, &[1, 8], &report])
}

const MAP: &[u8] = &[
    0, 7, 0xc1, 0, 0, 0xe1, 0, 0xf0, 0, 0x1b, 0xe1, 0, 0xf0, 0, 0x0f, 0xe1, 1, 0xf0, 0,
];

/// Returns a section with its length and its CRC (ISO/IEC 13818-1, annex A).
fn section(table: u8, data: &[u8]) -> Vec<u8> {
    let mut section = vec![table, 0xb0, (data.len() + 4) as u8];
    section.extend_from_slice(data);
    let check = section.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte) << 24, |crc, _| {
            crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    });
    section.extend_from_slice(&check.to_be_bytes());
    section
}

/// Returns the first bytes of packets, each with its length in front, as the targets expect them:
/// tables, a PCR, a picture, audio, and the end of a loop.
fn transport_stream() -> Vec<u8> {
    let mut all = Vec::new();
    let mut put = |pid: u16, start: bool, number: u8, payload: &[u8], adaptation: &[u8]| {
        let [high, low] = pid.to_be_bytes();
        let start = if start { 0x40 } else { 0 };
        let flags = if adaptation.is_empty() { 0x10 } else { 0x30 };
        all.push((3 + adaptation.len() + payload.len()) as u8);
        all.extend_from_slice(&[high | start, low, flags | number]);
        all.extend_from_slice(adaptation);
        all.extend_from_slice(payload);
    };
    let table = |table, data| join(&[&[0], &section(table, data)]);
    let association = table(0, &[0, 1, 0xc1, 0, 0, 0, 7, 0xf0, 0]);
    let map = table(2, MAP);
    for turn in 0..4u8 {
        put(0, true, turn, &association, &[]);
        put(0x1000, true, turn, &map, &[]);
        let base = u64::from(turn) * 3600 << 15 | 0x7e00;
        let clock = join(&[&[7, 0x50], &base.to_be_bytes()[2..]]);
        let stamp = [0x21, 0, 1, 0x10 * turn, 1];
        let picture = [
            &[0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5][..],
            &stamp,
            &[
                0, 0, 0, 1, 9, 0xf0, 0, 0, 1, 0x67, 66, 192, 30, 0xda, 2, 0x80, 0xf6, 0, 0, 1,
                0x68, 0xce, 0x38, 0x80, 0, 0, 1, 0x65, 0x88, 1,
            ],
        ];
        put(0x100, true, 2 * turn, &picture.concat(), &clock);
        put(0x100, false, 2 * turn + 1, &[5; 100], &[]);
        let sound = [
            &[0, 0, 1, 0xc0, 0, 20, 0x80, 0x80, 5][..],
            &stamp,
            &[0xff, 0xf1, 0x50, 0x80, 1, 0x9f, 0xfc, 1, 2, 3, 4, 5],
        ];
        put(0x101, true, turn, &sound.concat(), &[]);
    }
    all
}

/// Returns an MP4 file with one track of two pictures (ISO/IEC 14496-12).
fn mp4() -> Vec<u8> {
    let atom = |kind: &[u8; 4], parts: &[&[u8]]| {
        let body = parts.concat();
        join(&[&(body.len() as u32 + 8).to_be_bytes(), kind, &body])
    };
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect::<Vec<u8>>()
    };
    let file_type = atom(b"ftyp", &[b"isom", &words(&[512]), b"isomavc1"]);
    let nal = [0u8, 0, 0, 3, 0x65, 0x88, 1];
    let data = atom(b"mdat", &[&nal, &nal]);
    let offset = (file_type.len() + 8) as u32;
    let coding = atom(
        b"avcC",
        &[&[
            1, 66, 192, 30, 0xff, 0xe1, 0, 8, 0x67, 66, 192, 30, 0xda, 2, 0x80, 0xf6, 1, 0, 4,
            0x68, 0xce, 0x38, 0x80,
        ]],
    );
    let mut entry = vec![0; 78];
    entry[7] = 1;
    entry[24..28].copy_from_slice(&[1, 64, 0, 240]);
    entry[41] = 1;
    entry[74..78].copy_from_slice(&[0, 24, 0xff, 0xff]);
    let entry = atom(b"avc1", &[&entry, &coding]);
    let samples = atom(
        b"stbl",
        &[
            &atom(b"stsd", &[&words(&[0, 1]), &entry]),
            &atom(b"stts", &[&words(&[0, 1, 2, 3600])]),
            &atom(b"stsc", &[&words(&[0, 1, 1, 2, 1])]),
            &atom(b"stsz", &[&words(&[0, 7, 2])]),
            &atom(b"stco", &[&words(&[0, 1, offset])]),
        ],
    );
    let reference = atom(b"dref", &[&words(&[0, 1]), &atom(b"url ", &[&words(&[1])])]);
    let information = atom(
        b"minf",
        &[
            &atom(b"vmhd", &[&words(&[1, 0, 0])]),
            &atom(b"dinf", &[&reference]),
            &samples,
        ],
    );
    let media = atom(
        b"mdia",
        &[
            &atom(b"mdhd", &[&words(&[0, 0, 0, 90_000, 7200, 0x55c4_0000])]),
            &atom(
                b"hdlr",
                &[&words(&[0, 0]), b"vide", &words(&[0, 0, 0]), &[0]],
            ),
            &information,
        ],
    );
    let matrix = words(&[0x1_0000, 0, 0, 0, 0x1_0000, 0, 0, 0, 0x4000_0000]);
    let track = atom(
        b"trak",
        &[
            &atom(
                b"tkhd",
                &[
                    &words(&[3, 0, 0, 1, 0, 80, 0, 0, 0, 0]),
                    &matrix,
                    &words(&[320 << 16, 240 << 16]),
                ],
            ),
            &media,
        ],
    );
    let movie = atom(
        b"moov",
        &[
            &atom(
                b"mvhd",
                &[
                    &words(&[0, 0, 0, 1000, 80, 0x1_0000, 0x100_0000, 0, 0]),
                    &matrix,
                    &words(&[0, 0, 0, 0, 0, 0, 2]),
                ],
            ),
            &track,
        ],
    );
    join(&[&[0], &file_type, &data, &movie])
}

const FIELDS: &[&str] = &[
    "RTP/AVP;unicast;client_port=5000-5001;server_port=6000-6001;ssrc=deadbeef;mode=\"PLAY\"",
    "RTP/AVP/TCP;unicast;interleaved=0-1,RTP/AVP;multicast;destination=239.0.0.1;port=5000-5001;ttl=16;source=h",
    "npt=0-10.5\nnpt=now-\nclock=19961108T142300Z-19961108T143520Z\nsmpte=10:07:00-10:07:33:05.01",
    "url=rtsp://h/a/1;seq=5;rtptime=6,url=rtsp://h/a/2;seq=70000",
    "12345678;timeout=60\nabc",
    "Digest realm=\"a, b\", nonce=\"x\\\"y\", qop=\"auth\", algorithm=SHA-256, stale=true, opaque=\"o\"\nBasic realm=\"a\"",
    "Digest username=\"user\", realm=\"a realm\", nonce=\"nonce\", uri=\"rtsp://h/a\", response=\"00\", qop=auth, nc=00000001, cnonce=\"c\"",
    "Basic dXNlcjpzZWNyZXQ=",
    "OPTIONS, DESCRIBE, SETUP, TEARDOWN, PLAY, PAUSE\n302",
];

const SDP: &[&str] = &[
    "v=0\r\no=- 1 1 IN IP4 10.0.0.1\r\ns=x\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\na=control:*\r\na=range:npt=0-10\r\nm=video 0 RTP/AVP 96\r\nb=AS:1000\r\n\
     a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z0LAHtoCgPY=,aM44gA==\r\na=control:trackID=0\r\nm=audio 0 RTP/AVP 0\r\na=control:trackID=1\r\n",
    "v=0\no=- 1 1 IN IP6 ::1\ns=-\nc=IN IP4 239.1.1.1/16\nt=0 0\nm=video 5000 RTP/AVP 33\na=source-filter: incl IN IP4 239.1.1.1 10.0.0.1 10.0.0.2\nb=RR:0\nb=RS:0\nb=TIAS:5\n",
];

const THRESHOLDS: &[&str] = &[
    "viewers.loss < 7%\nviewers.startup_delay.p95 < 2s\nserver.cpu.worst <= 95%\nviewers.failures.refused == 0\ntester.lag.p99.9 != 1ms",
    "1h30m\n250ms\n1.5Mbps\n400 kb/s\n64KiB\n1.5 GB\n7%\n0.5\n25/s\n1e3\n12 Hz\n90%\n0.000001s\n18446744073709551615ns",
    "viewers.active.max >= 200\nviewers.bitrate > 1Mbps\nviewers.jitter.count > 5",
];

const URLS: &[&str] = &[
    "rtsp://user:pass%40word@h:8554/a/b?c=d\n/other\nrtsps://[fe80::1%25eth0]:322/x\nrtsp://h\nrtsp:relative",
    "http://u:p@h:81/a?b#c\nhttps://h/../x\n//other/y\nhttp://[::1]/",
    "tcp://127.0.0.1:9\nws://h/a\nwss://h:1/b?c\nunix:/tmp/a\ntls://h:5",
    "udp://239.81.0.1:4056\nrtp://[ff15::1]:5000\nudp://239.0.0.{1..9}:5000",
    "rtsp://h/{a,b}{01..12}/{x}",
];
