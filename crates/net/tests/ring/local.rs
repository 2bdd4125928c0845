//! Rings on the loopback interface of this machine, between sockets of the test.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use net::ReceiveBatch;
use net::options::{drop_all, drops};
use net::ring::{Counters, Family, WANTED_BYTES};
use rustix::event::{PollFd, PollFlags, epoll, poll};

use crate::support::{Namespace, Tap, port, set_option, socket, wait_for};

const LOCAL: [(Family, &str); 2] = [(Family::V4, "127.0.0.1:0"), (Family::V6, "[::1]:0")];

/// Returns a receiver that keeps its datagrams, a sender, and a ring for the receiver's port.
fn receiver_sender_and_tap(family: Family, local: &str) -> Option<(UdpSocket, UdpSocket, Tap)> {
    let (receiver, sender) = (socket(local), socket(local));
    let tap = Tap::open(family, port(&receiver)..=port(&receiver), |_| {})?;
    sender
        .connect(receiver.local_addr().expect("it is bound"))
        .expect("there is nothing to fail");
    Some((receiver, sender, tap))
}

/// Returns a datagram in which every byte is derived from its number.
fn payload(number: usize, length: usize) -> Vec<u8> {
    vec![u8::try_from(number % 251).expect("it is less"); length]
}

/// Makes the kernel split what is sent into datagrams of `bytes` bytes.
fn send_in_segments(sender: &UdpSocket, bytes: u16) {
    set_option(
        sender,
        libc::SOL_UDP,
        libc::UDP_SEGMENT,
        &i32::from(bytes).to_ne_bytes(),
    );
}

/// Compares the ring's datagrams with those that a socket holds.
fn compare(tap: &Tap, receiver: &UdpSocket, overhead: usize) {
    let to = receiver.local_addr().expect("it is bound");
    let mut batch = ReceiveBatch::new();
    let mut seen = tap.datagrams.iter();
    wait_for("the socket to have what the ring has", || {
        if batch.receive(receiver).is_err() {
            return seen.len() == 0;
        }
        for truth in batch.datagrams(&tap.clock) {
            let seen = seen.next().expect("the ring saw it as well");
            assert_eq!((seen.from, seen.to), (truth.from, to));
            assert_eq!((seen.length, seen.overhead), (truth.length, overhead));
            // Ring and socket capture different numbers of bytes.
            let kept = truth.bytes.len().min(seen.bytes.len());
            assert_eq!(truth.bytes[..kept], seen.bytes[..kept]);
            assert!(seen.bytes.len() >= truth.length.min(WANTED_BYTES));
            let (early, late) = (seen.at.min(truth.at), seen.at.max(truth.at));
            let apart = late.as_nanos() - early.as_nanos();
            assert!(apart <= 100_000, "{apart} ns apart");
        }
        false
    });
    let more = batch.receive(receiver).expect_err("there is no more");
    assert_eq!(more.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn ring_and_socket_agree() {
    for (family, local) in LOCAL {
        let Some((receiver, sender, mut tap)) = receiver_sender_and_tap(family, local) else {
            return;
        };
        let stranger = socket(local);
        let other = stranger.local_addr().expect("it is bound");
        for number in 0..50 {
            let length = [0, 1, 12, 100, 1200, 1472, 9000][number % 7];
            sender.send(&payload(number, length)).expect("it is sent");
            stranger.send_to(&[1], other).expect("it is sent");
        }
        let taken = tap.drain_until(50);
        assert_eq!((taken.frames, taken.datagrams), (50, 50));
        compare(&tap, &receiver, if family == Family::V4 { 28 } else { 48 });
        assert_eq!(tap.ring.counters(), Counters::default());
    }
}

#[test]
fn gso_packet_is_split_as_the_kernel_splits_it() {
    for (family, local) in LOCAL {
        let Some((receiver, sender, mut tap)) = receiver_sender_and_tap(family, local) else {
            return;
        };
        send_in_segments(&sender, 1200);
        for (segments, rest) in [(40, 700), (2, 1), (1, 1199), (30, 0), (1, 0)] {
            let mut bytes: Vec<u8> = (0..segments).flat_map(|n| payload(n, 1200)).collect();
            bytes.extend(payload(99, rest));
            sender.send(&bytes).expect("it is sent");
        }
        let taken = tap.drain_until(77);
        assert_eq!(taken.datagrams, 41 + 3 + 2 + 30 + 1);
        assert!(taken.frames <= 5);
        compare(&tap, &receiver, if family == Family::V4 { 28 } else { 48 });
        assert_eq!(tap.ring.counters(), Counters::default());
    }
}

#[test]
fn cut_segments_are_counted_and_then_captured_whole() {
    let (family, local) = LOCAL[0];
    let Some((receiver, sender, mut tap)) = receiver_sender_and_tap(family, local) else {
        return;
    };
    send_in_segments(&sender, 400);
    let bytes: Vec<u8> = (0..3).flat_map(|number| payload(number, 400)).collect();
    sender.send(&bytes).expect("it is sent");
    tap.drain_until(3);
    assert_eq!(tap.lengths(), [400, 400, 400]);
    assert_eq!(tap.ring.counters().truncated, 2);
    let kept: Vec<bool> = tap.datagrams.iter().map(|d| d.bytes.is_empty()).collect();
    assert_eq!(kept, [false, true, true]);

    let mut batch = ReceiveBatch::new();
    assert_eq!(batch.receive(&receiver).expect("they are there").count, 3);
    tap.datagrams.clear();
    for _ in 0..100 {
        sender.send(&bytes).expect("it is sent");
    }
    tap.drain_until(300);
    assert_eq!(tap.datagrams.len(), 300);
    compare(&tap, &receiver, 28);
    assert_eq!(tap.ring.counters().truncated, 2);
}

#[test]
fn ring_sees_exactly_what_a_drop_all_socket_drops() {
    for (family, local) in LOCAL {
        let Some((refusing, sender, mut tap)) = receiver_sender_and_tap(family, local) else {
            return;
        };
        drop_all(&refusing).expect("a filter can be attached");
        let dropped = || drops(&refusing).expect("linux tells");
        for number in 0..3000 {
            sender.send(&payload(number, 1200)).expect("nobody says no");
            if number % 100 == 0 {
                tap.drain();
            }
        }
        tap.drain_until(3000);
        send_in_segments(&sender, 1000);
        for number in 0..30 {
            sender
                .send(&payload(number, 20_500))
                .expect("nobody says no");
            tap.drain();
        }
        tap.drain_until(3000 + 30 * 21);
        assert_eq!(tap.datagrams.len(), 3000 + 30 * 21);
        wait_for("the socket's count", || {
            dropped() as usize >= tap.datagrams.len()
        });
        assert_eq!(dropped() as usize, tap.datagrams.len());
        let mut batch = ReceiveBatch::new();
        let nothing = batch.receive(&refusing).expect_err("nothing is queued");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let mut woken = [PollFd::new(&refusing, PollFlags::IN)];
        assert_eq!(
            poll(&mut woken, Some(&Duration::ZERO.try_into().expect("0"))),
            Ok(0)
        );
    }
}

#[test]
fn ip_options_and_extension_headers_are_skipped() {
    // Filters accept IPv6 extension headers whatever the port, so the rings of other tests would
    // see them.
    let Some(space) = Namespace::new() else {
        return;
    };
    space.run(pass_over_headers);
}

fn pass_over_headers() {
    let pad = [0, 0, 1, 4, 0, 0, 0, 0];
    let variants: [(usize, i32, i32, &[u8], usize); 3] = [
        (0, libc::IPPROTO_IP, libc::IP_OPTIONS, &[1, 1, 1, 1], 28 + 4),
        (1, libc::IPPROTO_IPV6, libc::IPV6_HOPOPTS, &pad, 48 + 8),
        (1, libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS, &pad, 48 + 8),
    ];
    for (which, level, name, value, overhead) in variants {
        let (family, local) = LOCAL[which];
        let Some((receiver, sender, mut tap)) = receiver_sender_and_tap(family, local) else {
            return;
        };
        set_option(&sender, level, name, value);
        let stranger = socket(local);
        set_option(&stranger, level, name, value);
        let other = stranger.local_addr().expect("it is bound");
        for number in 0..10 {
            sender.send(&payload(number, 1200)).expect("it is sent");
            stranger.send_to(&[1], other).expect("it is sent");
        }
        tap.drain_until(10);
        let foreign = if family == Family::V4 { 0 } else { 10 };
        wait_for("the stranger's packets", || {
            tap.drain();
            tap.ring.counters().foreign >= foreign
        });
        assert_eq!(tap.datagrams.len(), 10);
        compare(&tap, &receiver, overhead);
        // The filter does not look behind IPv6 extension headers; the ring does so later.
        let expected = Counters {
            foreign,
            ..Counters::default()
        };
        assert_eq!(tap.ring.counters(), expected);
    }
}

#[test]
fn full_ring_counts_drops_and_recovers() {
    let (family, local) = LOCAL[0];
    let receiver = socket(local);
    let Some(mut tap) = Tap::open(family, port(&receiver)..=port(&receiver), |settings| {
        settings.bytes = 2 * settings.block_bytes;
    }) else {
        return;
    };
    let sender = socket(local);
    let to = receiver.local_addr().expect("it is bound");
    for number in 0..5000 {
        sender
            .send_to(&payload(number, 1200), to)
            .expect("it is sent");
    }
    wait_for("all to arrive", || {
        tap.drain();
        tap.ring.kernel_counts().expect("the kernel tells").arrived >= 5000
    });
    let seen = tap.ring.kernel_counts().expect("the kernel tells");
    assert_eq!(seen.arrived, 5000);
    assert!(seen.dropped > 3000, "two blocks hold about 1000");
    assert_eq!(tap.datagrams.len() as u64, seen.arrived - seen.dropped);
    assert_eq!(tap.ring.handled(), seen.arrived - seen.dropped);
    tap.datagrams.clear();
    wait_for("the ring to take packets again", || {
        sender.send_to(&[1; 100], to).expect("it is sent");
        tap.drain();
        !tap.datagrams.is_empty()
    });
}

#[test]
fn receive_takes_at_most_blocks_max_blocks() {
    let (family, local) = LOCAL[0];
    let receiver = socket(local);
    let Some(mut tap) = Tap::open(family, port(&receiver)..=port(&receiver), |settings| {
        // Blocks are handed over only when they are full, however slowly this test sends.
        settings.block_timeout = Duration::from_secs(1);
    }) else {
        return;
    };
    let sender = socket(local);
    let to = receiver.local_addr().expect("it is bound");
    for number in 0..2000 {
        sender
            .send_to(&payload(number, 1200), to)
            .expect("it is sent");
    }
    wait_for("all to arrive", || {
        tap.ring.kernel_counts().expect("the kernel tells").arrived == 2000
    });
    let mut count = 0;
    let first = tap.ring.receive(&tap.clock, 1, |_| count += 1);
    assert_eq!((first.blocks, first.more), (1, true));
    assert_eq!(first.datagrams, count);
    let rest = tap.drain();
    assert_eq!(first.frames + rest.frames, 2000);
    assert_eq!(first.datagrams + rest.datagrams, 2000);
}

#[test]
fn edge_triggered_poll_wakes_once_per_block() {
    let (family, local) = LOCAL[0];
    let Some((_receiver, sender, mut tap)) = receiver_sender_and_tap(family, local) else {
        return;
    };
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC).expect("it can be made");
    let wanted = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&poller, &tap.ring, epoll::EventData::new_u64(1), wanted).expect("it can wait");
    let wait = |timeout: Duration| {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(4);
        let timeout = timeout.try_into().expect("it is short");
        loop {
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&poller, room, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => {}
                other => return other.expect("it waits"),
            }
        }
    };
    for round in 1..=20 {
        sender.send(&[1; 500]).expect("it is sent");
        assert_eq!(wait(Duration::from_secs(10)), 1, "round {round}");
        tap.drain();
        assert_eq!(tap.datagrams.len(), round);
        // No block is pending, so the poll does not wake.
        assert_eq!(wait(Duration::ZERO), 0, "round {round}");
    }
}

#[test]
fn open_reports_why_it_fails() {
    let open = |change: &dyn Fn(&mut net::RingSettings)| {
        let mut settings = net::RingSettings::new(Family::V4, 9..=9);
        change(&mut settings);
        net::PacketRing::open(&settings)
            .expect_err("it cannot be")
            .kind()
    };
    assert_eq!(open(&|s| s.block_bytes = 4096), io::ErrorKind::InvalidInput);
    assert_eq!(open(&|s| s.block_bytes += 1), io::ErrorKind::InvalidInput);
    assert_eq!(
        open(&|s| s.bytes = s.block_bytes),
        io::ErrorKind::InvalidInput
    );
    let empty = std::ops::RangeInclusive::new(2, 1);
    assert_eq!(
        open(&|s| s.ports = empty.clone()),
        io::ErrorKind::InvalidInput
    );

    // Capabilities belong to a thread, so the other tests keep theirs.
    let without = std::thread::spawn(move || {
        let none = rustix::thread::CapabilitySets {
            effective: rustix::thread::CapabilitySet::empty(),
            permitted: rustix::thread::CapabilitySet::empty(),
            inheritable: rustix::thread::CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, none).expect("less is always permitted");
        let settings = net::RingSettings::new(Family::V4, 9..=9);
        net::PacketRing::open(&settings)
            .expect_err("it is not permitted")
            .kind()
    });
    let kind = without.join().expect("it does not panic");
    assert_eq!(kind, io::ErrorKind::PermissionDenied);
}

#[test]
fn rings_of_adjacent_ranges_share_no_packets() {
    let (low, high) = loop {
        let first = socket("127.0.0.1:0");
        let next = SocketAddr::new([127, 0, 0, 1].into(), port(&first).wrapping_add(1));
        if let Ok(second) = net::ports::bind(next, 0) {
            break (first, second);
        }
    };
    let Some(mut below) = Tap::open(Family::V4, port(&low)..=port(&low), |_| {}) else {
        return;
    };
    let Some(mut above) = Tap::open(Family::V4, port(&high)..=port(&high), |_| {}) else {
        return;
    };
    let sender = socket("127.0.0.1:0");
    for number in 0..20 {
        for receiver in [&low, &high] {
            let to = receiver.local_addr().expect("it is bound");
            sender
                .send_to(&payload(number, 700), to)
                .expect("it is sent");
        }
    }
    for (tap, own) in [(&mut below, &low), (&mut above, &high)] {
        wait_for("the packets", || {
            tap.drain();
            let own = tap.datagrams.iter().filter(|d| d.to.port() == port(own));
            own.count() >= 20
        });
        let count = |port| tap.datagrams.iter().filter(|d| d.to.port() == port).count();
        assert_eq!(count(port(own)), 20);
        let other = if std::ptr::eq(own, &low) { &high } else { &low };
        assert_eq!(count(port(other)), 0);
    }
}
