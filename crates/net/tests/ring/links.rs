//! Rings on virtual links between network namespaces that end with the test.

use std::net::{Ipv4Addr, UdpSocket};

use net::ReceiveBatch;
use net::ring::Family;

use crate::support::{Namespace, Tap, port, socket, wait_for};

/// Two namespaces connected by virtual Ethernet: 10.0.0.1 here, 10.0.0.2 there.
fn pair() -> Option<(Namespace, Namespace)> {
    let (here, there) = (Namespace::new()?, Namespace::new()?);
    here.join("here", &there, "there");
    here.ip("addr add 10.0.0.1/24 dev here");
    here.ip("addr add fd00::1/64 dev here nodad");
    there.ip("addr add 10.0.0.2/24 dev there");
    there.ip("addr add fd00::2/64 dev there nodad");
    Some((here, there))
}

/// Returns the lengths of the datagrams that a plain socket received, in order of arrival.
fn received(socket: &UdpSocket, tap: &Tap, count: usize) -> Vec<usize> {
    let mut batch = ReceiveBatch::new();
    let mut lengths = Vec::new();
    wait_for("the datagrams at the socket", || {
        if batch.receive(socket).is_ok() {
            lengths.extend(batch.datagrams(&tap.clock).map(|datagram| datagram.length));
        }
        lengths.len() >= count
    });
    lengths
}

/// Sends datagrams of several lengths and checks that ring and socket saw each once.
fn exchange(sender: &UdpSocket, receiver: &UdpSocket, tap: &mut Tap, to: &str) {
    let lengths = [0, 100, 1200, 1472];
    tap.datagrams.clear();
    for length in lengths {
        sender
            .send_to(&vec![7; length], to)
            .unwrap_or_else(|error| panic!("sending to {to}: {error}"));
    }
    assert_eq!(received(receiver, tap, lengths.len()), lengths);
    tap.drain_until(lengths.len());
    assert_eq!(tap.lengths(), lengths);
}

#[test]
fn veth_packet_is_seen_once_and_only_by_its_receiver() {
    let Some((here, there)) = pair() else { return };
    for (family, local, remote) in [
        (Family::V4, "10.0.0.1", "10.0.0.2"),
        (Family::V6, "[fd00::1]", "[fd00::2]"),
    ] {
        let (receiver, sender) = (
            here.socket(&format!("{local}:5000")),
            there.socket(&format!("{remote}:5001")),
        );
        let Some(mut tap) = here.tap(family, 5000..=5001, |_| {}) else {
            return;
        };
        let Some(mut far) = there.tap(family, 5000..=5001, |_| {}) else {
            return;
        };
        exchange(&sender, &receiver, &mut tap, &format!("{local}:5000"));
        let expected = sender.local_addr().expect("bound");
        assert!(tap.datagrams.iter().all(|seen| seen.from == expected));
        // A ring does not see packets that its own machine sends.
        assert_eq!(far.drain().frames, 0);
    }
}

/// Adds addresses in 10.0.NUMBER.0/24 to both interfaces, and exchanges packets over them.
fn exchange_over(sides: [(&Namespace, &str); 2], number: u8, receiver: &UdpSocket, tap: &mut Tap) {
    for ((namespace, name), host) in sides.iter().zip(1..) {
        namespace.ip(&format!("link set {name} up"));
        namespace.ip(&format!("addr add 10.0.{number}.{host}/24 dev {name}"));
    }
    let sender = sides[1].0.socket(&format!("10.0.{number}.2:0"));
    exchange(&sender, receiver, tap, &format!("10.0.{number}.1:5000"));
    assert_eq!(tap.ring.counters(), net::ring::Counters::default());
}

#[test]
fn packet_through_a_later_vlan_is_seen_once() {
    let Some((here, there)) = pair() else { return };
    let Some(mut tap) = here.tap(Family::V4, 5000..=5000, |_| {}) else {
        return;
    };
    let receiver = here.socket("0.0.0.0:5000");
    // Once with the tag removed from the packet, as usual, and once with the tag left in it.
    for (number, name, option) in [(7, "tagged", ""), (8, "kept", "reorder_hdr off")] {
        for (namespace, own) in [(&here, "here"), (&there, "there")] {
            let link = format!("link {own} name {name} type vlan id {number} {option}");
            if !namespace.add_link(&link) {
                return;
            }
        }
        exchange_over([(&here, name), (&there, name)], number, &receiver, &mut tap);
    }
}

#[test]
fn packet_through_a_later_bridge_is_seen_once() {
    let Some((here, there)) = pair() else { return };
    let Some(mut tap) = here.tap(Family::V4, 5000..=5000, |_| {}) else {
        return;
    };
    let receiver = here.socket("0.0.0.0:5000");
    if !here.add_link("bridge type bridge") {
        return;
    }
    here.join("port", &there, "far");
    here.ip("link set port master bridge");
    exchange_over([(&here, "bridge"), (&there, "far")], 9, &receiver, &mut tap);
}

#[test]
fn packet_through_a_later_macvlan_is_seen_once() {
    let Some((here, there)) = pair() else { return };
    let Some(mut tap) = here.tap(Family::V4, 5000..=5000, |_| {}) else {
        return;
    };
    let receiver = here.socket("0.0.0.0:5000");
    if !here.add_link("link here name above type macvlan mode bridge") {
        return;
    }
    there.ip("addr del 10.0.0.2/24 dev there");
    exchange_over(
        [(&here, "above"), (&there, "there")],
        10,
        &receiver,
        &mut tap,
    );
}

#[test]
fn fragmented_datagrams_count_once_with_their_length() {
    let Some((here, there)) = pair() else { return };
    for (family, local, remote, header, parts) in [
        (Family::V4, "10.0.0.1", "10.0.0.2", 20, 4),
        (Family::V6, "[fd00::1]", "[fd00::2]", 48, 4),
    ] {
        let receiver = here.socket(&format!("{local}:5000"));
        let refused = here.socket(&format!("{local}:5002"));
        net::options::drop_all(&refused).expect("a filter can be attached");
        let sender = there.socket(&format!("{remote}:0"));
        let Some(mut tap) = here.tap(family, 5000..=5002, |_| {}) else {
            return;
        };
        let payload: Vec<u8> = (0..5000u32).map(|byte| byte as u8).collect();
        for port in [5000, 5002] {
            for length in [5000, 10, 3000] {
                let to = format!("{local}:{port}");
                sender.send_to(&payload[..length], to).expect("it is sent");
            }
        }
        assert_eq!(received(&receiver, &tap, 3), [5000, 10, 3000]);
        tap.drain_until(6);
        assert_eq!(tap.lengths(), [5000, 10, 3000, 5000, 10, 3000]);
        assert_eq!(tap.datagrams[0].overhead, parts * header + 8);
        assert_eq!(
            tap.datagrams[0].bytes,
            payload[..tap.datagrams[0].bytes.len()]
        );
        assert!(tap.datagrams[0].bytes.len() >= 76);
        let drops = || net::options::drops(&refused).expect("linux tells");
        wait_for("the refusing socket's count", || drops() >= 3);
        assert_eq!(drops(), 3);
        assert_eq!(tap.ring.counters(), net::ring::Counters::default());
    }
}

#[test]
fn multicast_is_seen_except_a_senders_own_copy() {
    let Some((here, there)) = pair() else { return };
    let Some(mut tap) = here.tap(Family::V4, 5000..=5000, |_| {}) else {
        return;
    };
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let receiver = here.socket("0.0.0.0:5000");
    let member = |interface| {
        receiver
            .join_multicast_v4(&group, &interface)
            .expect("the group can be joined");
    };
    let send = |namespace: &Namespace, from: Ipv4Addr| {
        let sender = namespace.socket(&format!("{from}:0"));
        let choose = socket2::SockRef::from(&sender);
        choose
            .set_multicast_if_v4(&from)
            .expect("it is an own address");
        sender
            .send_to(&[1; 300], (group, 5000))
            .expect("it is sent");
    };
    here.run(|| member(Ipv4Addr::new(10, 0, 0, 1)));
    send(&there, Ipv4Addr::new(10, 0, 0, 2));
    assert_eq!(received(&receiver, &tap, 1), [300]);
    tap.drain_until(1);
    assert_eq!(tap.lengths(), [300]);

    here.run(|| member(Ipv4Addr::LOCALHOST));
    send(&here, Ipv4Addr::LOCALHOST);
    assert_eq!(received(&receiver, &tap, 1), [300]);
    tap.drain_until(2);
    assert_eq!(tap.lengths(), [300, 300]);

    // The socket receives it, and the ring does not: the documented blind spot.
    send(&here, Ipv4Addr::new(10, 0, 0, 1));
    assert_eq!(received(&receiver, &tap, 1), [300]);
    tap.drain();
    assert_eq!(tap.lengths(), [300, 300]);
}

#[test]
fn packet_for_another_machine_is_not_delivered() {
    let Some((here, there)) = pair() else { return };
    let Some(mut tap) = here.tap(Family::V4, 5000..=5000, |_| {}) else {
        return;
    };
    let receiver = here.socket("10.0.0.1:5000");
    there.ip("neigh add 10.0.0.1 lladdr 02:00:00:00:00:01 dev there nud permanent");
    let sender = there.socket("10.0.0.2:0");
    sender
        .send_to(&[1; 100], "10.0.0.1:5000")
        .expect("it is sent");
    wait_for("the packet", || {
        tap.drain();
        tap.ring.counters().other_host == 1
    });
    there.ip("neigh del 10.0.0.1 dev there");
    exchange(&sender, &receiver, &mut tap, "10.0.0.1:5000");
}

#[test]
fn ring_sees_only_its_own_namespace() {
    let Some(namespace) = Namespace::new() else {
        return;
    };
    let receiver = namespace.socket("127.0.0.1:5000");
    let Some(mut tap) = namespace.tap(Family::V4, 5000..=5000, |_| {}) else {
        return;
    };
    let sender = namespace.socket("127.0.0.1:0");
    let outside = socket("127.0.0.1:0");
    outside
        .send_to(&[1], "127.0.0.1:5000")
        .expect("loopback takes it");
    exchange(&sender, &receiver, &mut tap, "127.0.0.1:5000");
    assert_eq!(port(&receiver), 5000);
}
