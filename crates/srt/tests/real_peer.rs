//! Handshakes and encryption against `srt-live-transmit` over loopback sockets. With
//! STREAMGAUGE_TEST_WITHOUT_TOOLS the tests are skipped if it is not installed.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use measure::Time;
use srt::arq::sender::PayloadCipher as _;
use srt::codec::handshake::{Extension, Rejection};
use srt::codec::packet::{
    Ack, AckReport, Control, ControlHeader, DataHeader, KeyFlag, Packet, Position,
    destination_socket_id,
};
use srt::codec::stream_id::StreamId;
use srt::crypto::{KeyLength, Secret};
use srt::handshake::{
    Caller, HandshakeFailure, HandshakeSettings, Listener, ListenerConfig, ListenerResult,
    Negotiated, Rendezvous, Security,
};
use srt::seq::{SeqNumber, SocketClock};

const PASSPHRASE: &str = "a passphrase of the test";
const OWN: u32 = 0x1234_5678;

/// A running `srt-live-transmit`. It is killed at the end of the test.
struct RealPeer(Child);

impl RealPeer {
    fn start(input: &str, output: &str) -> RealPeer {
        let child = Command::new("srt-live-transmit")
            .args(["-q", "-t", "10", input, output])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        RealPeer(child.expect("srt-live-transmit is installed"))
    }
}

impl Drop for RealPeer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns `true` if the program is installed. It must be, unless the environment variable is set.
fn is_installed() -> bool {
    let tried = Command::new("srt-live-transmit")
        .arg("-version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if let Err(error) = &tried {
        assert!(
            std::env::var_os("STREAMGAUGE_TEST_WITHOUT_TOOLS").is_some(),
            "srt-live-transmit does not start ({error}); set STREAMGAUGE_TEST_WITHOUT_TOOLS to \
             skip these tests"
        );
    }
    tried.is_ok()
}

struct Wire {
    socket: UdpSocket,
    start: Instant,
}

impl Wire {
    fn bind(address: &str) -> Wire {
        let socket = UdpSocket::bind(address).expect("a free port");
        let timeout = Some(Duration::from_millis(10));
        socket.set_read_timeout(timeout).expect("it is not zero");
        let start = Instant::now();
        Wire { socket, start }
    }

    fn port(&self) -> u16 {
        self.socket.local_addr().expect("it is bound").port()
    }

    fn now(&self) -> Time {
        Time::from_start(self.start.elapsed() + Duration::from_secs(1))
    }

    /// Receives a datagram that arrives soon. An unreachable port is not an error.
    fn receive(&self) -> Option<(Vec<u8>, SocketAddr)> {
        let mut buffer = [0; 2048];
        let (length, from) = self.socket.recv_from(&mut buffer).ok()?;
        Some((buffer[..length].to_vec(), from))
    }

    fn wait_for<T>(&self, mut found: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(8);
        while Instant::now() < end {
            if let Some(found) = found() {
                return found;
            }
        }
        panic!("timed out");
    }
}

fn free_port() -> u16 {
    Wire::bind("127.0.0.1:0").port()
}

fn settings(secret: Option<Secret>) -> HandshakeSettings {
    let clock = SocketClock::new(Time::from_start(Duration::from_secs(1)));
    let ip = [127, 0, 0, 1].into();
    HandshakeSettings {
        secret,
        timeout: Duration::from_secs(6),
        ..HandshakeSettings::live(OWN, SeqNumber::new(1000), clock, ip, 42)
    }
}

fn secret(passphrase: &str, length: KeyLength) -> Secret {
    Secret::new(passphrase).unwrap().with_key_length(length)
}

fn call(
    wire: &Wire,
    port: u16,
    settings: HandshakeSettings,
    id: &str,
) -> Result<Negotiated, HandshakeFailure> {
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let mut caller = Caller::new(settings, StreamId::new(id).ok(), wire.now());
    wire.wait_for(|| {
        let mut out = Vec::new();
        while caller.write_next(wire.now(), &mut out) {
            let _ = wire.socket.send_to(&out, to);
            out.clear();
        }
        if let Some((datagram, _)) = wire.receive() {
            caller.handle(&datagram, wire.now());
        }
        caller.outcome()
    })
}

/// Accepts one caller. Returns its address too.
fn accept(
    wire: &Wire,
    settings: &HandshakeSettings,
) -> (Result<Negotiated, HandshakeFailure>, SocketAddr) {
    let listener = Listener::new(ListenerConfig {
        secret: 7,
        clock: settings.clock,
        advertised_key: None,
    });
    wire.wait_for(|| {
        let (datagram, from) = wire.receive()?;
        let mut answer = Vec::new();
        let ended = match listener.handle(from, &datagram, wire.now(), &mut answer) {
            ListenerResult::Request(request) => {
                let accepted = request.accept(settings, wire.now(), &mut answer);
                Some((accepted.map(|(negotiated, _)| negotiated), from))
            }
            _ => None,
        };
        wire.socket.send_to(&answer, from).unwrap();
        ended
    })
}

/// Payload of seven transport stream packets.
fn media(number: u8) -> Vec<u8> {
    let mut payload = vec![number; 1316];
    for packet in payload.chunks_mut(188) {
        packet[0] = 0x47;
    }
    payload
}

fn feed(wire: &Wire, port: u16, number: u8) {
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let _ = wire.socket.send_to(&media(number), to);
}

/// Acknowledges all packets up to `last`. libsrt 1.5.1 checks the age of its key when it receives
/// an acknowledgement.
fn acknowledge(wire: &Wire, to: SocketAddr, destination: u32, last: &DataHeader) {
    let header = ControlHeader {
        timestamp: 0,
        destination,
    };
    let mut out = Vec::new();
    Control::Ack(Ack {
        number: last.message,
        next: last.sequence.next(),
        report: Some(AckReport {
            rtt: 1000,
            rtt_variance: 100,
            free_packets: 8192,
            rates: None,
        }),
    })
    .write(header, &mut out);
    wire.socket.send_to(&out, to).unwrap();
}

/// Receives media until there are `count` first transmissions, and checks that it is the media that
/// was fed. Answers key changes. Returns the keys that were used.
fn receive_media(wire: &Wire, ended: &mut Negotiated, input: u16, count: usize) -> Vec<KeyFlag> {
    let feeder = Wire::bind("127.0.0.1:0");
    let mut keys = Vec::new();
    let mut number = 0u8;
    let mut server = None;
    wire.wait_for(|| {
        feed(&feeder, input, number);
        number = number.wrapping_add(1);
        let (datagram, from) = wire.receive()?;
        assert_eq!(destination_socket_id(&datagram), Some(OWN));
        server.get_or_insert(from);
        match Packet::parse(&datagram).unwrap() {
            Packet::Data(header, payload) => {
                let payload = match &mut ended.decryptor {
                    Some(decryptor) => decryptor.decrypt_copy(&header, payload).unwrap(),
                    None => payload,
                };
                assert_eq!(payload.len(), 1316);
                assert!(payload.chunks(188).all(|packet| packet[0] == 0x47));
                assert!(payload[1..188].iter().all(|byte| *byte == payload[1]));
                if !header.retransmitted {
                    keys.push(header.key);
                }
                acknowledge(wire, from, ended.peer_socket_id, &header);
            }
            Packet::Control(_, Control::UserDefined { subtype, cif, .. }) => {
                assert_eq!(subtype, Extension::KM_REQUEST);
                let (mut reply, mut out) = (Vec::new(), Vec::new());
                let decryptor = ended.decryptor.as_mut().unwrap();
                assert!(decryptor.key_request(cif, &mut reply));
                let header = ControlHeader {
                    timestamp: 0,
                    destination: ended.peer_socket_id,
                };
                let info = 0;
                let (subtype, cif) = (Extension::KM_RESPONSE, reply.as_slice());
                Control::UserDefined { subtype, info, cif }.write(header, &mut out);
                wire.socket.send_to(&out, from).unwrap();
            }
            Packet::Control(..) => {}
        }
        (keys.len() >= count).then_some(())
    });
    keys
}

#[test]
fn caller_receives_from_a_real_listener() {
    if !is_installed() {
        return;
    }
    for length in [
        None,
        Some(KeyLength::Aes128),
        Some(KeyLength::Aes192),
        Some(KeyLength::Aes256),
    ] {
        let (input, port) = (free_port(), free_port());
        let encryption = match length {
            Some(length) => format!("&passphrase={PASSPHRASE}&pbkeylen={}", length.bytes()),
            None => String::new(),
        };
        let _real = RealPeer::start(
            &format!("udp://127.0.0.1:{input}"),
            &format!("srt://127.0.0.1:{port}?mode=listener&latency=250{encryption}"),
        );
        let wire = Wire::bind("127.0.0.1:0");
        let settings = settings(length.map(|length| secret(PASSPHRASE, length)));
        let mut ended = call(&wire, port, settings, "live").unwrap();
        assert_eq!(ended.version, 0x0001_0501);
        assert_eq!(ended.receive_latency, Duration::from_millis(250));
        let keys = receive_media(&wire, &mut ended, input, 20);
        let key = length.map_or(KeyFlag::None, |_| KeyFlag::Even);
        assert!(keys.iter().all(|used| *used == key), "{length:?}");
    }
}

#[test]
fn listener_receives_from_a_real_caller_that_changes_keys() {
    if !is_installed() {
        return;
    }
    let input = free_port();
    let wire = Wire::bind("127.0.0.1:0");
    let port = wire.port();
    let _real = RealPeer::start(
        &format!("udp://127.0.0.1:{input}"),
        &format!(
            "srt://127.0.0.1:{port}?mode=caller&passphrase={PASSPHRASE}&pbkeylen=32\
             &kmrefreshrate=100&kmpreannounce=40&streamid=#!::r=one,m=publish"
        ),
    );
    let settings = settings(Some(secret(PASSPHRASE, KeyLength::Aes128)));
    let (ended, _) = accept(&wire, &settings);
    let mut ended = ended.unwrap();
    assert_eq!(ended.security, Security::Encrypted);
    let id = ended.stream_id.as_ref().unwrap().as_str();
    assert_eq!(id, "#!::r=one,m=publish");
    let keys = receive_media(&wire, &mut ended, input, 350);
    assert!(keys.contains(&KeyFlag::Even) && keys.contains(&KeyFlag::Odd));
}

#[test]
fn real_listener_decrypts_media_of_a_caller() {
    if !is_installed() {
        return;
    }
    let (port, output) = (free_port(), Wire::bind("127.0.0.1:0"));
    let _real = RealPeer::start(
        &format!("srt://127.0.0.1:{port}?mode=listener&latency=20&passphrase={PASSPHRASE}"),
        &format!("udp://127.0.0.1:{}", output.port()),
    );
    let wire = Wire::bind("127.0.0.1:0");
    let settings = settings(Some(secret(PASSPHRASE, KeyLength::Aes256)));
    let clock = settings.clock;
    let mut ended = call(&wire, port, settings, "live").unwrap();
    let mut encryptor = ended.encryptor.take().unwrap();
    encryptor.set_refresh(srt::crypto::Refresh {
        packets_per_key: 100,
        announce_before_packets: 40,
    });
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let (mut sequence, mut received) = (ended.initial_sequence, 0);
    let mut answered = 0;
    output.wait_for(|| {
        let mut out = Vec::new();
        let timestamp = clock.timestamp(wire.now());
        let destination = ended.peer_socket_id;
        let control = ControlHeader {
            timestamp,
            destination,
        };
        while encryptor.write_next(wire.now(), control, &mut out) {
            wire.socket.send_to(&out, to).unwrap();
            out.clear();
        }
        let header = DataHeader {
            sequence,
            position: Position::Solo,
            in_order: false,
            key: KeyFlag::None,
            retransmitted: false,
            message: sequence.value() & 0xffff,
            timestamp,
            destination,
        };
        sequence = sequence.next();
        let mut payload = BytesMut::from(&media(sequence.value() as u8)[..]);
        let key = encryptor.encrypt(&header, &mut payload);
        let head = DataHeader { key, ..header }.write();
        let datagram = [&head[..], &payload].concat();
        wire.socket.send_to(&datagram, to).unwrap();
        // One datagram that has arrived meanwhile, after at most 10 ms.
        if let Some((said, _)) = wire.receive()
            && let Ok(Packet::Control(_, control)) = Packet::parse(&said)
        {
            let before = encryptor.due();
            encryptor.control(&control, wire.now());
            answered += usize::from(encryptor.due() == Time::NEVER && before != Time::NEVER);
        }
        if let Some((came, _)) = output.receive() {
            assert_eq!(came, media(came[1]));
            received += 1;
        }
        (received >= 250 && answered >= 2).then_some(())
    });
}

#[test]
fn real_peers_reject_with_the_expected_reason() {
    if !is_installed() {
        return;
    }
    let cases = [
        (
            Some(PASSPHRASE),
            Some("quite another one"),
            HandshakeFailure::WrongPassphrase,
        ),
        (Some(PASSPHRASE), None, HandshakeFailure::PassphraseMissing),
        (
            None,
            Some(PASSPHRASE),
            HandshakeFailure::PassphraseMissingAtPeer,
        ),
    ];
    for (theirs, ours, reason) in cases {
        let (input, port) = (free_port(), free_port());
        let encryption = theirs.map_or(String::new(), |text| format!("&passphrase={text}"));
        let _real = RealPeer::start(
            &format!("udp://127.0.0.1:{input}"),
            &format!("srt://127.0.0.1:{port}?mode=listener{encryption}"),
        );
        let wire = Wire::bind("127.0.0.1:0");
        let settings = settings(ours.map(|text| secret(text, KeyLength::Aes128)));
        let ended = call(&wire, port, settings, "live");
        assert_eq!(ended.unwrap_err(), reason);
    }
    // The other direction: this side rejects with a reason.
    let cases = [
        (
            Some("quite another one"),
            Some(PASSPHRASE),
            Rejection::BADSECRET,
        ),
        (None, Some(PASSPHRASE), Rejection::UNSECURE),
        (Some(PASSPHRASE), None, Rejection::UNSECURE),
    ];
    for (theirs, ours, code) in cases {
        let wire = Wire::bind("127.0.0.1:0");
        let encryption = theirs.map_or(String::new(), |text| format!("&passphrase={text}"));
        let _real = RealPeer::start(
            &format!("udp://127.0.0.1:{}", free_port()),
            &format!("srt://127.0.0.1:{}?mode=caller{encryption}", wire.port()),
        );
        let settings = settings(ours.map(|text| secret(text, KeyLength::Aes128)));
        let (ended, _) = accept(&wire, &settings);
        assert_eq!(ended.unwrap_err().rejection(), code);
    }
}

#[test]
fn rendezvous_with_a_real_peer_is_encrypted() {
    if !is_installed() {
        return;
    }
    // Cookies decide which side is the initiator: with these seeds, each side is at least once.
    for seed in 0..6 {
        let input = free_port();
        let wire = Wire::bind("127.0.0.2:0");
        let port = wire.port();
        let mut settings = settings(Some(secret(PASSPHRASE, KeyLength::Aes128)));
        settings.seed = seed;
        let start = || {
            RealPeer::start(
                &format!("udp://127.0.0.1:{input}"),
                &format!(
                    "srt://127.0.0.2:{port}?mode=rendezvous&adapter=127.0.0.1\
                     &passphrase={PASSPHRASE}"
                ),
            )
        };
        let _real = start();
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        let mut end = Rendezvous::new(settings, None, wire.now());
        let mut ended = wire.wait_for(|| {
            let mut out = Vec::new();
            if let Some((datagram, _)) = wire.receive() {
                end.handle(&datagram, wire.now());
            }
            while end.write_next(wire.now(), &mut out) {
                let _ = wire.socket.send_to(&out, to);
                out.clear();
            }
            end.outcome()
        });
        let ended = ended.as_mut().unwrap();
        assert_eq!(ended.security, Security::Encrypted);
        let keys = receive_media(&wire, ended, input, 10);
        assert!(keys.iter().all(|key| *key == KeyFlag::Even));
    }
}
