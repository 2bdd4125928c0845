//! Memory of a WebRTC packet and client. The state of AES and HMAC in C is not included: some 600
//! bytes for each direction of media in use.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use webrtc::certificate::Certificate;
use webrtc::feedback::{Arrivals, NackTracker};
use webrtc::peer::{Peer, PeerConfig, PeerState, Received};

const START: Time = Time::from_nanos(1_000_000_000);

fn address(side: usize) -> SocketAddr {
    ([127, 0, 0, 1 + side as u8], 5000).into()
}

/// An offerer, the DTLS server, and an answerer, the DTLS client, which have exchanged
/// descriptions.
fn described_peers() -> [Peer; 2] {
    let certificate = Arc::new(Certificate::generate(1));
    let config = |seed| PeerConfig::new(certificate.clone(), seed);
    let now = START;
    let mut peers = [
        Peer::offerer(now, &config(1)),
        Peer::answerer(now, &config(2)),
    ];
    for (side, peer) in peers.iter_mut().enumerate() {
        assert!(peer.add_local_candidate(now, address(side)));
    }
    for side in [0, 1] {
        let transport = peers[side].local_transport();
        assert_eq!(peers[1 - side].set_remote(now, &transport), Ok(()));
    }
    peers
}

fn connected_peers() -> [Peer; 2] {
    let (mut peers, mut now) = (described_peers(), START);
    for _ in 0..1000 {
        for side in [0, 1] {
            let mut bytes = Vec::new();
            while peers[side].poll_transmit(&mut bytes).is_some() {
                peers[1 - side].handle_datagram(now, address(side), &bytes);
                bytes.clear();
            }
            while peers[side].poll_event().is_some() {}
        }
        if peers
            .iter()
            .all(|peer| peer.state() == PeerState::Connected)
        {
            return peers;
        }
        now += Duration::from_millis(5);
        for peer in &mut peers {
            peer.handle_timeout(now);
        }
    }
    panic!("the peers connect");
}

/// Heap memory of a value.
fn heap<T>(value: T) -> i64 {
    -allocation_counter::measure(|| drop(value)).bytes_current
}

#[test]
fn media_allocates_nothing() {
    let mut peers = connected_peers();
    let mut sealer = peers[0].rtp_sealer().expect("it is connected");
    let mut opener = peers[1].take_rtp_opener().expect("it is connected");
    let (mut missing, mut arrivals) = (NackTracker::new(Duration::ZERO), Arrivals::default());
    let mut packet = Vec::with_capacity(1500);
    let mut plain = Vec::with_capacity(1500);
    let mut sequence = 65_000u16;
    let mut play = |packets: u32| {
        for step in 0..packets {
            sequence = sequence.wrapping_add(1);
            let now = START + Duration::from_millis(u64::from(step));
            packet.clear();
            packet.extend_from_slice(&[0x80, 96]);
            packet.extend_from_slice(&sequence.to_be_bytes());
            packet.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 9]);
            packet.resize(1100, 5);
            sealer.seal(&mut packet).expect("it is RTP");
            assert_eq!(
                peers[1].handle_datagram(now, address(0), &packet),
                Received::Rtp
            );
            opener.open(&packet, &mut plain).expect("it is authentic");
            missing.record_arrival(sequence, now);
            arrivals.record_arrival(sequence, now);
        }
    };
    play(1900);
    let info = allocation_counter::measure(|| play(60));
    assert_eq!(info.count_total, 0);
}

#[test]
fn connected_peer_uses_less_than_6_kib() {
    let [server, client] = connected_peers();
    let size = size_of::<Peer>() as i64;
    let client = heap(client) + size;
    assert!(client < 6 * 1024, "{client}");
    // Before the first DTLS datagram there is no DTLS state.
    let [waiting, _client] = described_peers();
    let waiting = heap(waiting) + size;
    assert!(waiting < 7 * 1024, "{waiting}");
    // The server keeps its last flight for some time, but not the state that made it.
    let server = heap(server) + size;
    assert!(server < client + 1024, "{server}, client {client}");
}
