use std::net::UdpSocket;

use super::*;

fn socket(address: &str) -> UdpSocket {
    UdpSocket::bind(address).expect("a free port")
}

/// Returns all datagrams that a plain socket received so far: loopback delivers within the send
/// call.
fn received(socket: &UdpSocket) -> Vec<Vec<u8>> {
    socket.set_nonblocking(true).expect("linux can");
    let mut buffer = [0; 65_536];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|n| buffer[..n].to_vec())).collect()
}

/// Returns datagrams of these lengths, each with different bytes.
fn datagrams(lengths: &[usize]) -> Vec<([u8; 12], Vec<u8>)> {
    let numbered = lengths.iter().enumerate();
    numbered
        .map(|(number, &length)| {
            let byte = |at: usize| (number * 31 + at * 7) as u8;
            (
                std::array::from_fn(|at| byte(at + 100)),
                (0..length - 12).map(byte).collect(),
            )
        })
        .collect()
}

fn whole(datagrams: &[([u8; 12], Vec<u8>)]) -> Vec<Vec<u8>> {
    let join = |(header, payload): &([u8; 12], Vec<u8>)| [&header[..], payload].concat();
    datagrams.iter().map(join).collect()
}

#[test]
fn same_datagrams_arrive_with_and_without_gso() {
    let clock = Clock::start();
    for local in ["127.0.0.1:0", "[::1]:0"] {
        let (sender, receiver) = (socket(local), socket(local));
        let to = receiver.local_addr().expect("bound").into();
        for lengths in [
            &[1200; 64][..],
            &[1200, 1200, 1200, 300, 1200, 1200, 7, 1200].map(|length: usize| length.max(13)),
            &[100, 200, 300, 300, 200, 100, 100, 100],
            &[9000; 12],
            &[20; 64],
            &[1500, 1499],
            &[40_000, 40_000],
            &[13],
        ] {
            let datagrams = datagrams(lengths);
            for gso in [true, false] {
                let mut batch = SendBatch::new().with_gso(gso);
                for (header, payload) in &datagrams {
                    batch.push(to, header, payload);
                }
                let mut told = Vec::new();
                batch.send(&sender, &clock, |index, at| {
                    assert!(at.is_some(), "{lengths:?} {index}");
                    told.push(index);
                });
                assert!(batch.is_empty());
                assert_eq!(told, (0..lengths.len()).collect::<Vec<_>>());
                let received = received(&receiver);
                assert!(
                    received == whole(&datagrams),
                    "{local} {gso} {lengths:?}: {:?}",
                    received.iter().map(Vec::len).collect::<Vec<_>>()
                );
                assert_eq!(batch.gso, gso, "loopback takes it");
            }
        }
    }
}

#[test]
fn gso_needs_one_destination_equal_lengths_and_a_long_packet() {
    let here: Address = "127.0.0.1:9".parse::<SocketAddr>().expect("one").into();
    let there: Address = "127.0.0.1:7".parse::<SocketAddr>().expect("one").into();
    let entry = |to, length| Entry {
        to,
        header: [0; HEADER_MAX],
        header_length: 12,
        payload: (),
        length,
    };
    let entries = |lengths: &[usize]| -> Vec<Entry<()>> {
        lengths.iter().map(|&length| entry(here, length)).collect()
    };
    for (lengths, count) in [
        (&[800, 800][..], 2),
        // Exactly 1600 bytes with its headers: it could be one ordinary packet.
        (&[786, 786], 1),
        (&[786, 787], 1),
        (&[787, 786], 2),
        (&[787, 1500], 1),
        (&[1200, 1200, 300, 300], 3),
        (&[1200, 1300], 1),
        (&[30_000, 30_000, 30_000], 2),
        (&[1700], 1),
    ] {
        assert_eq!(count_combinable(&entries(lengths)), count, "{lengths:?}");
    }
    assert_eq!(
        count_combinable(&[entry(here, 1200), entry(there, 1200)]),
        1
    );
}

#[test]
fn refused_datagram_does_not_block_later_ones() {
    let clock = Clock::start();
    let (sender, receiver) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    let to: Address = receiver.local_addr().expect("bound").into();
    // Broadcast is refused with EACCES unless the socket enabled it; an IPv6 address on an IPv4
    // socket is refused with EAFNOSUPPORT.
    let broadcast = "127.255.255.255:9".parse::<SocketAddr>();
    let broadcast: Address = broadcast.expect("an address").into();
    let other: Address = "[::1]:9".parse::<SocketAddr>().expect("an address").into();
    let gone = socket("127.0.0.1:0").local_addr().expect("bound").into();
    let places = [to, broadcast, to, other, to, gone, to, broadcast, broadcast];
    let mut batch = SendBatch::new();
    for (number, place) in (0..).zip(places) {
        batch.push(place, &[number; 12], vec![number; 1000]);
    }
    let mut told = Vec::new();
    batch.send(&sender, &clock, |_, at| told.push(at.is_some()));
    let left = [true, false, true, false, true, true, true, false, false];
    assert_eq!(told, left);
    let numbers: Vec<u8> = received(&receiver).iter().map(|d| d[0]).collect();
    assert_eq!(numbers, [0, 2, 4, 6]);
}

/// A connected socket receives the ICMP error and reports it at a later send, which must not lose
/// that datagram.
#[test]
fn error_of_an_earlier_datagram_loses_no_other() {
    let clock = Clock::start();
    let (sender, receiver) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    let gone = socket("127.0.0.1:0").local_addr().expect("bound");
    sender.connect(gone).expect("any address will do");
    let to = receiver.local_addr().expect("bound").into();
    let mut batch = SendBatch::new();
    for number in 0..20 {
        let to = if number % 5 == 0 { gone.into() } else { to };
        batch.push(to, &[number; 12], vec![number; 10]);
    }
    let mut left = 0;
    batch.send(&sender, &clock, |_, at| left += usize::from(at.is_some()));
    assert_eq!(left, 20);
    assert_eq!(received(&receiver).len(), 16);
}

#[test]
fn gso_is_disabled_after_a_refusal() {
    let clock = Clock::start();
    let (sender, receiver) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    // Datagrams without a checksum cannot be split: the kernel refuses them like a kernel without
    // GSO.
    set_no_check(&sender);
    let to = receiver.local_addr().expect("bound").into();
    let datagrams = datagrams(&[1200; 20]);
    let mut batch = SendBatch::new();
    for round in 0..2 {
        for (header, payload) in &datagrams {
            batch.push(to, header, payload);
        }
        let before = clock.now();
        let mut left = 0;
        batch.send(&sender, &clock, |_, at| {
            let at = at.expect("in parts it leaves");
            let (began, ended) = at;
            assert!(before <= began && began <= ended && ended <= clock.now());
            left += 1;
        });
        assert_eq!(left, 20);
        assert!(!batch.gso, "round {round}");
        assert!(received(&receiver) == whole(&datagrams));
    }
}

fn set_no_check(socket: &impl AsRawFd) {
    let one: libc::c_int = 1;
    // SAFETY: `one` is valid for reads of its size for the duration of the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            (&raw const one).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0);
}

#[test]
fn connected_socket_ignores_the_address() {
    let clock = Clock::start();
    let (sender, receiver, other) = (
        socket("127.0.0.1:0"),
        socket("127.0.0.1:0"),
        socket("127.0.0.1:0"),
    );
    sender
        .connect(receiver.local_addr().expect("bound"))
        .expect("any address will do");
    // Another address shows that the address is ignored.
    let named = Address::from(other.local_addr().expect("bound")).connected();
    for lengths in [&[100, 200][..], &[1200; 4]] {
        let datagrams = datagrams(lengths);
        let mut batch = SendBatch::new();
        for (header, payload) in &datagrams {
            batch.push(named, header, payload);
        }
        batch.send(&sender, &clock, |_, at| assert!(at.is_some()));
        assert_eq!(received(&receiver), whole(&datagrams));
    }
    assert!(received(&other).is_empty());
}
