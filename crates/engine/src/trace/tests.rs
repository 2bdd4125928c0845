//! Traces are read back by a parser that shares no code with the writer.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use proptest::prelude::*;

use super::*;

const STARTED_AT: i64 = 1_700_000_000_123_456_789;

/// A packet of a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    /// Nanoseconds since the start of the run.
    at: i64,
    inbound: bool,
    from: SocketAddr,
    to: SocketAddr,
    payload: Vec<u8>,
    tcp: Option<Tcp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tcp {
    sequence: u32,
    acknowledged: u32,
    flags: u8,
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Content of a file: packets, and the counts of its last block if it has one.
struct Capture {
    packets: Vec<Packet>,
    counts: Option<[u64; 2]>,
}

fn number(bytes: &[u8]) -> u64 {
    let value = |sum: u64, &byte: &u8| sum << 8 | u64::from(byte);
    bytes.iter().rev().fold(0, value)
}

fn big(bytes: &[u8]) -> u32 {
    let value = |sum: u32, &byte: &u8| sum << 8 | u32::from(byte);
    bytes.iter().fold(0, value)
}

/// Parses a file. An incomplete block, or one with two different lengths, fails the test.
fn read(path: &Path) -> Capture {
    let file = std::fs::read(path).expect("it was written");
    let mut capture = Capture {
        packets: Vec::new(),
        counts: None,
    };
    let mut rest = &file[..];
    let mut kinds = Vec::new();
    while !rest.is_empty() {
        let (kind, length) = (number(&rest[..4]), number(&rest[4..8]) as usize);
        assert_eq!(length % 4, 0);
        assert_eq!(number(&rest[length - 4..length]) as usize, length);
        let body = &rest[8..length - 4];
        match kind {
            0x0a0d_0d0a => assert_eq!(number(&body[..4]), 0x1a2b_3c4d),
            1 => assert_eq!(number(&body[..2]), 101),
            5 => {
                let options = options(&body[12..]);
                let count = |code| {
                    let option = options.iter().find(|(found, _)| *found == code);
                    number(&option.expect("it is there").1)
                };
                capture.counts = Some([count(4), count(5)]);
            }
            6 => capture.packets.push(packet(body)),
            other => panic!("block of kind {other}"),
        }
        kinds.push(kind);
        rest = &rest[length..];
    }
    assert_eq!(
        kinds[..2.min(kinds.len())],
        [0x0a0d_0d0a, 1][..2.min(kinds.len())]
    );
    capture
}

fn options(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut options = Vec::new();
    loop {
        let (code, length) = (number(&bytes[..2]), number(&bytes[2..4]) as usize);
        if code == 0 {
            assert_eq!((length, bytes.len()), (0, 4));
            return options;
        }
        options.push((code, bytes[4..4 + length].to_vec()));
        bytes = &bytes[4 + length.next_multiple_of(4)..];
    }
}

fn packet(body: &[u8]) -> Packet {
    let at = (number(&body[4..8]) << 32 | number(&body[8..12])) as i64 - STARTED_AT;
    let (there, length) = (
        number(&body[12..16]) as usize,
        number(&body[16..20]) as usize,
    );
    let bytes = &body[20..20 + there];
    let flags = options(&body[20 + there.next_multiple_of(4)..]);
    let inbound = match &flags[..] {
        [(2, flags)] => number(flags) == 1,
        other => panic!("{other:?}"),
    };
    let (protocol, addresses, transport) = match bytes[0] >> 4 {
        4 => {
            assert_eq!(big(&bytes[2..4]) as usize, length);
            assert_eq!(ones(&[&bytes[..20]]), 0xffff, "the header's checksum");
            (bytes[9], &bytes[12..20], &bytes[20..])
        }
        _ => {
            assert_eq!(big(&bytes[4..6]) as usize, length - 40);
            (bytes[6], &bytes[8..40], &bytes[40..])
        }
    };
    if there == length {
        let pseudo = [0, protocol];
        let sum = ones(&[
            addresses,
            &pseudo,
            &(transport.len() as u32).to_be_bytes(),
            transport,
        ]);
        assert_eq!(sum, 0xffff, "the checksum");
    }
    let ip = |bytes: &[u8]| match <[u8; 4]>::try_from(bytes) {
        Ok(four) => std::net::IpAddr::from(four),
        Err(_) => <[u8; 16]>::try_from(bytes)
            .expect("one or the other")
            .into(),
    };
    let (from, to) = addresses.split_at(addresses.len() / 2);
    let (payload, tcp) = match protocol {
        17 => (&transport[8..], None),
        _ => {
            let tcp = Tcp {
                sequence: big(&transport[4..8]),
                acknowledged: big(&transport[8..12]),
                flags: transport[13],
            };
            (&transport[usize::from(transport[12] >> 4) * 4..], Some(tcp))
        }
    };
    Packet {
        at,
        inbound,
        from: SocketAddr::new(ip(from), big(&transport[..2]) as u16),
        to: SocketAddr::new(ip(to), big(&transport[2..4]) as u16),
        payload: payload.to_vec(),
        tcp,
    }
}

/// One's complement sum of 16-bit words.
fn ones(parts: &[&[u8]]) -> u32 {
    let mut bytes: Vec<u8> = parts.concat();
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    let add = |sum: u32, word: &[u8]| {
        let sum = sum + big(word);
        (sum & 0xffff) + (sum >> 16)
    };
    bytes.chunks(2).fold(0, add)
}

fn tracer(room: usize) -> (Tracer, Receiver<Record>) {
    let (records, inbox) = unbounded();
    let shared = Arc::new(Shared::new(room));
    shared.started_at.set(STARTED_AT).expect("it is new");
    (Tracer { shared, records }, inbox)
}

/// Datagrams that a trace recorded as sent.
pub(crate) fn sent_datagrams(run: impl FnOnce(Tracer)) -> Vec<Vec<u8>> {
    let (tracer, inbox) = tracer(ROOM);
    run(tracer);
    let sent = |record: &Record| matches!(record.what, RecordKind::Datagram { inbound: false, .. });
    let records = inbox.try_iter().filter(sent);
    records.map(|record| record.bytes.into_vec()).collect()
}

fn writer(tracer: &Tracer, path: &Path, limit: u64) -> Writer {
    let file = File::create(path).expect("it can be written");
    let title = ["program", "client", "comment"].map(str::to_owned);
    Writer::new(tracer.shared.clone(), file, limit, title)
}

/// Records, then writes, then reads back.
fn traced(room: usize, limit: u64, record: impl FnOnce(&Tracer)) -> (Capture, Tracer) {
    let (tracer, inbox) = tracer(room);
    record(&tracer);
    finish(&tracer.records);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.pcapng");
    let written = writer(&tracer, &path, limit).run(&inbox);
    let capture = read(&path);
    assert_eq!(written.packets, capture.packets.len() as u64);
    let length = path.metadata().expect("it is there").len();
    assert_eq!((written.bytes, length <= limit), (length, true));
    (capture, tracer)
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

const LOCAL: &str = "10.1.2.3:40000";
const REMOTE: &str = "10.9.8.7:554";
const ROOM: usize = 16 << 20;
const LIMIT: u64 = 1 << 30;

fn connection(tracer: &Tracer) -> Box<TracedConnection> {
    tracer.connection(Clock::start(), address(LOCAL), address(REMOTE))
}

#[test]
fn datagrams_keep_addresses_bytes_times_and_direction() {
    let (capture, _) = traced(ROOM, LIMIT, |tracer| {
        let mut socket = tracer.socket(address("[fe80::1]:10000"));
        socket.received(address("[fe80::2]:7"), b"abc", 3, at(5));
        socket.sent(address("[fe80::2]:8"), b"", at(9));
        // Only the beginning of the datagram is known.
        let mut socket = tracer.socket(address(LOCAL));
        socket.received(address(REMOTE), &[7; 2048], 3000, at(1_000_000_011));
    });
    let packet = |at, inbound, from, to, payload: &[u8]| Packet {
        at,
        inbound,
        from: address(from),
        to: address(to),
        payload: payload.to_vec(),
        tcp: None,
    };
    assert_eq!(
        capture.packets,
        [
            packet(5, true, "[fe80::2]:7", "[fe80::1]:10000", b"abc"),
            packet(9, false, "[fe80::1]:10000", "[fe80::2]:8", b""),
            packet(1_000_000_011, true, REMOTE, LOCAL, &[7; 2048]),
        ]
    );
    assert_eq!(capture.counts, Some([3, 0]));
}

#[test]
fn connection_has_its_handshake_and_its_end() {
    let (capture, _) = traced(ROOM, LIMIT, |tracer| {
        let mut connection = connection(tracer);
        connection.opened();
        connection.sent([b"ab", b"c"], connection.now());
        connection.received(b"answer", connection.now());
        connection.closed_by_peer();
    });
    let seen: Vec<_> = capture
        .packets
        .iter()
        .map(|packet| {
            let tcp = packet.tcp.expect("all of it is TCP");
            let flags = tcp.flags & (FIN | SYN | RST | ACK);
            (packet.inbound, flags, tcp.sequence, tcp.acknowledged)
        })
        .collect();
    assert_eq!(
        seen,
        [
            (false, SYN, 0, 0),
            (true, SYN | ACK, 0, 1),
            (false, ACK, 1, 1),
            (false, ACK, 1, 1),
            (true, ACK, 1, 4),
            (true, FIN | ACK, 7, 4),
            (false, FIN | ACK, 4, 8),
        ]
    );
    assert_eq!(capture.packets[3].payload, b"abc");
    assert_eq!(capture.packets[4].payload, b"answer");
}

#[test]
fn refused_or_abandoned_connection_has_no_handshake() {
    let flags = |record: fn(Box<TracedConnection>)| -> Vec<u8> {
        let (capture, _) = traced(ROOM, LIMIT, |tracer| record(connection(tracer)));
        let packets = capture.packets.iter();
        packets.map(|p| p.tcp.expect("it is TCP").flags).collect()
    };
    assert_eq!(flags(|mut refused| refused.broke()), [SYN, RST | ACK]);
    assert_eq!(flags(drop), [SYN]);
}

#[test]
fn late_reads_are_sorted_by_arrival_time() {
    let (capture, _) = traced(ROOM, LIMIT, |tracer| {
        let (mut first, second) = (tracer.socket(address(LOCAL)), tracer.socket(address(LOCAL)));
        second.sent(address(REMOTE), b"2", at(20));
        first.received(address(REMOTE), b"1", 1, at(10));
        second.sent(address(REMOTE), b"4", at(40));
        first.received(address(REMOTE), b"3", 1, at(30));
        // The kernel's clock went back: records of one socket keep their order.
        first.received(address(REMOTE), b"3a", 2, at(29));
    });
    let payloads: Vec<&[u8]> = capture.packets.iter().map(|p| &p.payload[..]).collect();
    assert_eq!(payloads, [&b"1"[..], b"2", b"3", b"3a", b"4"]);
}

#[test]
fn records_without_room_are_counted_and_leave_gaps() {
    // The writer is not running yet, so the queue has room for two of the reads.
    let (capture, tracer) = traced(4_700, LIMIT, |tracer| {
        let mut connection = connection(tracer);
        connection.opened();
        for byte in 0..5 {
            connection.received(&[byte; 2_000], connection.now());
        }
    });
    assert_eq!(tracer.shared.missing.load(Relaxed), 3);
    let sequences: Vec<(u32, usize)> = capture
        .packets
        .iter()
        .filter(|packet| packet.inbound)
        .map(|packet| {
            (
                packet.tcp.expect("it is TCP").sequence,
                packet.payload.len(),
            )
        })
        .collect();
    assert_eq!(sequences, [(0, 0), (1, 2_000), (2_001, 2_000)]);
    let end = capture.packets.last().and_then(|p| p.tcp).expect("our end");
    assert_eq!((end.flags, end.acknowledged), (FIN | ACK, 10_001));
    assert_eq!(capture.counts, Some([6 + 3, 3]));
    assert_eq!(tracer.shared.queued.load(Relaxed), 0);
}

#[test]
fn file_size_is_bounded() {
    let (capture, tracer) = traced(ROOM, 10_000, |tracer| {
        let mut socket = tracer.socket(address(LOCAL));
        for number in 0..100 {
            socket.received(address(REMOTE), &[0; 1_000], 1_000, at(number));
        }
    });
    assert!(tracer.shared.full.load(Relaxed));
    let kept = capture.packets.len() as u64;
    assert!((5..10).contains(&kept), "{kept}");
    assert_eq!(tracer.shared.missing.load(Relaxed), 100 - kept);
    assert_eq!(capture.counts, Some([100, 100 - kept]));
}

#[test]
fn full_disk_ends_the_trace_and_nothing_else() {
    let (tracer, inbox) = tracer(ROOM);
    let path = Path::new("/dev/full");
    let writer = writer(&tracer, path, LIMIT);
    let mut socket = tracer.socket(address(LOCAL));
    let receive = |socket: &mut TracedSocket| {
        for number in 0..1_000 {
            socket.received(address(REMOTE), &[0; 1_000], 1_000, at(number * 1_000_000));
        }
    };
    receive(&mut socket);
    let thread = std::thread::spawn(move || writer.run(&inbox));
    let deadline = Instant::now() + Duration::from_secs(20);
    while tracer.shared.broken.get().is_none() {
        assert!(Instant::now() < deadline, "it is not found out");
        std::thread::park_timeout(Duration::from_micros(100));
    }
    receive(&mut socket);
    finish(&tracer.records);
    let written = thread.join().expect("it does not panic");
    assert_eq!(written.bytes, 0);
    assert!(tracer.shared.missing.load(Relaxed) > 0);
    assert_eq!(tracer.shared.queued.load(Relaxed), 0);
}

#[test]
fn timestamp_from_the_future_holds_nothing_back() {
    let (tracer, inbox) = tracer(ROOM);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.pcapng");
    let writer = writer(&tracer, &path, LIMIT);
    let thread = std::thread::spawn(move || writer.run(&inbox));
    let (mut ahead, right) = (tracer.socket(address(LOCAL)), tracer.socket(address(LOCAL)));
    ahead.received(address(REMOTE), b"", 0, at(u64::MAX / 4));
    let begun = Instant::now();
    // The writer always has new records, but never too many.
    for millisecond in 1.. {
        ahead.received(address(REMOTE), b"", 0, at(millisecond));
        right.sent(address(REMOTE), b"", at(millisecond));
        while begun.elapsed() < Duration::from_millis(millisecond) {
            std::thread::park_timeout(Duration::from_micros(100));
        }
        if millisecond % 50 == 0 && read(&path).packets.iter().any(|packet| packet.inbound) {
            break;
        }
        assert!(millisecond < 10_000, "what came is held back");
    }
    finish(&tracer.records);
    thread.join().expect("it does not panic");
}

#[test]
fn growing_file_can_be_read() {
    let (tracer, inbox) = tracer(ROOM);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.pcapng");
    let writer = writer(&tracer, &path, LIMIT);
    let thread = std::thread::spawn(move || writer.run(&inbox));
    let mut socket = tracer.socket(address(LOCAL));
    socket.received(address(REMOTE), b"abc", 3, at(1));
    let deadline = Instant::now() + Duration::from_secs(20);
    while read(&path).packets.is_empty() {
        assert!(Instant::now() < deadline, "it is not written");
        std::thread::park_timeout(Duration::from_micros(100));
    }
    assert_eq!(read(&path).counts, None);
    finish(&tracer.records);
    thread.join().expect("it does not panic");
    assert_eq!(read(&path).counts, Some([1, 0]));
}

fn scenario(text: &str) -> Scenario {
    protocols::install();
    Scenario::parse("test", text, &scenario::Overrides::default())
        .unwrap_or_else(|error| panic!("{error:?}"))
}

#[test]
fn clients_are_found_by_name_and_errors_list_them() {
    let population = |clients: &str| {
        format!("{{protocol: rtsp, urls: ['rtsp://127.0.0.1:9/a'], load: {clients}}}")
    };
    let viewers = population("{clients: 20}");
    let one = scenario(&format!("clients: {{viewers: {viewers}}}"));
    let guests = population("{arrivals: 5/s, max_clients: 1}");
    let two = scenario(&format!(
        "clients: {{viewers: {viewers}, guests: {guests}}}\nduration: 9s"
    ));
    let found = |names: &[&str], scenario| {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let found = find(&names, scenario).map_err(|error| error.to_string());
        found.map(|clients| clients.into_iter().map(|c| c.name).collect::<Vec<_>>())
    };
    let expect = |names: &[&str]| Ok(names.iter().map(ToString::to_string).collect());
    assert_eq!(found(&["17", "viewers/17"], &one), expect(&["viewers/17"]));
    let both = found(&["viewers/0", "guests/0"], &two);
    assert_eq!(both, expect(&["viewers/0", "guests/0"]));
    for (name, scenario) in [
        ("20", &one),
        ("viewer/1", &one),
        ("", &one),
        ("viewers/", &one),
        ("+1", &one),
        ("-1", &one),
        ("99999999999999999999", &one),
        ("viewers/1/2", &one),
        ("1", &two),
        ("guests/1", &two),
    ] {
        let error = found(&[name], scenario).expect_err(name);
        assert!(error.contains("viewers/0 to viewers/19"), "{error}");
    }
    let nine: Vec<String> = (0..9).map(|number| number.to_string()).collect();
    let nine: Vec<&str> = nine.iter().map(String::as_str).collect();
    assert!(
        found(&nine, &one)
            .expect_err("too many")
            .contains("at most 8")
    );
}

#[test]
fn files_are_named_after_the_run_file() {
    let client = Client {
        population: 0,
        number: 17,
        name: "viewers/17".to_owned(),
    };
    let path = path(Path::new("/a/x.run"), &client);
    assert_eq!(path, Path::new("/a/x.run.viewers-17.pcapng"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// For any reads and writes of any length, the segments reassembled by their sequence numbers
    /// yield the bytes, and all checksums are correct (`read` checks them).
    #[test]
    fn segments_carry_every_byte_at_its_position(
        pieces in prop::collection::vec((any::<bool>(), any::<u8>(), 1..150_000_usize), 0..12),
        six in any::<bool>(),
    ) {
        let (local, remote) = match six {
            true => (address("[2001:db8::1]:1234"), address("[2001:db8::2]:554")),
            false => (address(LOCAL), address(REMOTE)),
        };
        let content = |first: u8, length: usize| -> Vec<u8> {
            (0..length).map(|offset| first.wrapping_add((offset % 249) as u8)).collect()
        };
        let (capture, _) = traced(ROOM, LIMIT, |tracer| {
            let mut connection = tracer.connection(Clock::start(), local, remote);
            connection.opened();
            for &(inbound, first, length) in &pieces {
                let bytes = content(first, length);
                match inbound {
                    true => connection.received(&bytes, connection.now()),
                    false => {
                        let (front, back) = bytes.split_at(length / 3);
                        connection.sent([front, back], connection.now());
                    }
                }
            }
        });
        let mut streams = [Vec::new(), Vec::new()];
        let mut last = i64::MIN;
        for packet in &capture.packets {
            let tcp = packet.tcp.expect("all of it is TCP");
            let ours = &mut streams[usize::from(packet.inbound)];
            let offset = usize::try_from(tcp.sequence).expect("it fits") ;
            prop_assert_eq!(offset, ours.len());
            ours.extend(&packet.payload);
            if tcp.flags & (SYN | FIN) != 0 {
                ours.push(0);
            }
            let theirs = &streams[usize::from(!packet.inbound)];
            if tcp.flags & ACK != 0 {
                prop_assert_eq!(tcp.acknowledged as usize, theirs.len());
            }
            prop_assert!(packet.at >= last);
            last = packet.at;
        }
        for (inbound, stream) in [(false, &streams[0]), (true, &streams[1])] {
            let sent = pieces.iter().filter(|piece| piece.0 == inbound);
            let whole: Vec<u8> = sent.flat_map(|&(_, first, length)| content(first, length)).collect();
            prop_assert_eq!(&stream[1..=whole.len()], &whole[..]);
        }
    }

    /// Datagrams of any length are whole and have correct checksums.
    #[test]
    fn datagrams_are_whole(
        datagrams in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..3_000), 0..u16::MAX), 0..20),
    ) {
        let (capture, _) = traced(ROOM, LIMIT, |tracer| {
            let mut socket = tracer.socket(address(LOCAL));
            for (order, (inbound, bytes, port)) in datagrams.iter().enumerate() {
                let peer = SocketAddr::new(address(REMOTE).ip(), *port);
                match inbound {
                    true => socket.received(peer, bytes, bytes.len(), at(order as u64)),
                    false => socket.sent(peer, bytes, at(order as u64)),
                }
            }
        });
        prop_assert_eq!(capture.packets.len(), datagrams.len());
        for (packet, (inbound, bytes, port)) in capture.packets.iter().zip(&datagrams) {
            prop_assert_eq!((packet.inbound, &packet.payload), (*inbound, bytes));
            let peer = if *inbound { packet.from } else { packet.to };
            prop_assert_eq!(peer.port(), *port);
        }
    }
}

#[test]
fn trace_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("a.pcapng");
    let mode = || {
        let found = std::fs::metadata(&path).expect("it is there");
        found.permissions().mode() & 0o777
    };
    create(&path, false).expect("it can be made");
    assert_eq!(mode(), 0o600);
    let open = Permissions::from_mode(0o644);
    std::fs::set_permissions(&path, open).expect("it is ours");
    std::fs::write(&path, "old").expect("it is ours");
    create(&path, true).expect("it can be overwritten");
    assert_eq!(
        (mode(), std::fs::read(&path).expect("ours").len()),
        (0o600, 0)
    );
    assert!(create(&path, false).is_err());
}
