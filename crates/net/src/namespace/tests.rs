use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::*;

/// Creates a namespace. Returns `None` and prints the reason if that is not permitted.
fn new_namespace() -> Option<Namespace> {
    match Namespace::new() {
        Ok(space) => Some(space),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // On purpose: readers of the test output must know.
            let why = "making a network namespace needs the capability CAP_SYS_ADMIN";
            let _ = writeln!(io::stderr(), "left out: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns the identity of the calling thread's namespace.
fn namespace_id() -> String {
    let link = fs::read_link("/proc/thread-self/ns/net").expect("Linux has namespaces");
    link.to_string_lossy().into_owned()
}

/// Returns the interfaces that the calling thread sees.
fn interfaces() -> Vec<String> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").expect("Linux has it");
    let names = table
        .lines()
        .skip(2)
        .filter_map(|line| line.split(':').next());
    names.map(|name| name.trim().to_owned()).collect()
}

/// Sends a datagram to a group and returns what a member of it receives.
fn receive_multicast(group: Ipv4Addr, sender: &str, at: &str) -> io::Result<Vec<u8>> {
    let receiver = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    receiver.set_read_timeout(Some(Duration::from_secs(10)))?;
    receiver.join_multicast_v4(&group, &at.parse().expect("an address"))?;
    let port = receiver.local_addr()?.port();
    let sender = UdpSocket::bind((sender, 0))?;
    sender.send_to(b"to all", (group, port))?;
    let mut bytes = [0; 16];
    let (length, _) = receiver.recv_from(&mut bytes)?;
    Ok(bytes[..length].to_vec())
}

#[test]
fn new_namespace_supports_loopback_multicast() {
    let Some(space) = new_namespace() else { return };
    let before = namespace_id();
    space.route_multicast_to_loopback().expect("may be set up");
    let (inside, seen, heard) = space
        .run_in(|| {
            let group = Ipv4Addr::new(239, 81, 0, 1);
            Ok((
                namespace_id(),
                interfaces(),
                receive_multicast(group, "127.0.0.1", "127.0.0.1")?,
            ))
        })
        .expect("what is sent is heard");
    assert_ne!(inside, before);
    assert_eq!(namespace_id(), before, "this thread has stayed");
    assert!(seen.contains(&"lo".to_owned()), "{seen:?}");
    assert_eq!(heard, b"to all");
}

#[test]
fn thread_enters_a_namespace_and_returns() {
    let Some(space) = new_namespace() else { return };
    // A separate thread, so that other tests stay in their namespace.
    std::thread::spawn(move || {
        let before = namespace_id();
        let back = Namespace::current().expect("it is somewhere");
        space.enter().expect("it may");
        assert_ne!(namespace_id(), before);
        let child = std::thread::spawn(namespace_id).join().expect("no panic");
        assert_eq!(child, namespace_id(), "what it starts is there too");
        back.enter().expect("it may");
        assert_eq!(namespace_id(), before);
    })
    .join()
    .expect("no panic");
}

#[test]
fn connected_namespaces_reach_only_each_other() {
    let (Some(one), Some(two)) = (new_namespace(), new_namespace()) else {
        return;
    };
    let before = interfaces();
    let v4 = |last: u8| (IpAddr::from([10, 81, 7, last]), 24);
    let v6 = |last: u16| (IpAddr::from([0xfd81, 0, 0, 7, 0, 0, 0, last]), 64);
    let (ours, theirs) = ([v4(1), v6(1)], [v4(2), v6(2)]);
    let own = InterfaceConfig {
        interface: "to-two",
        addresses: &ours,
    };
    let other = InterfaceConfig {
        interface: "to-one",
        addresses: &theirs,
    };
    one.connect_by_veth(&own, &two, &other)
        .expect("they can be connected");
    assert_eq!(interfaces(), before);
    two.route_multicast_through("to-one")
        .expect("a route can be added");
    for address in theirs.map(|(address, _)| address) {
        let listener = two.run_in(|| TcpListener::bind((address, 0)));
        let listener = match listener {
            Ok(listener) => listener,
            // Without IPv6 this address does not exist.
            Err(_) if address.is_ipv6() => continue,
            Err(error) => panic!("{error}"),
        };
        let port = listener.local_addr().expect("bound").port();
        let to = SocketAddr::new(address, port);
        let within = Duration::from_secs(10);
        one.run_in(|| TcpStream::connect_timeout(&to, within))
            .expect("the one reaches the other");
        let _ = listener.accept().expect("it came");
    }
    let (group, port) = (Ipv4Addr::new(239, 81, 0, 1), 4056);
    let receiver = one.run_in(|| {
        let receiver = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
        receiver.set_read_timeout(Some(Duration::from_secs(10)))?;
        receiver.join_multicast_v4(&group, &Ipv4Addr::new(10, 81, 7, 1))?;
        Ok(receiver)
    });
    let receiver = receiver.expect("it can join");
    two.run_in(|| UdpSocket::bind("0.0.0.0:0")?.send_to(b"to all", (group, port)))
        .expect("there is a route");
    let mut bytes = [0; 16];
    let (length, from) = receiver.recv_from(&mut bytes).expect("it comes");
    assert_eq!(&bytes[..length], b"to all");
    assert_eq!(from.ip(), IpAddr::from([10, 81, 7, 2]));
}

#[test]
fn isolated_end_sends_through_its_own_interface_only() {
    let (Some(one), Some(two)) = (new_namespace(), new_namespace()) else {
        return;
    };
    for (interface, network) in [("short", 7), ("own", 8)] {
        let addresses = [1, 2].map(|last| [(IpAddr::from([10, 81, network, last]), 24)]);
        let [ours, theirs] = addresses.each_ref().map(|addresses| InterfaceConfig {
            interface,
            addresses,
        });
        one.connect_by_veth(&ours, &two, &theirs)
            .expect("they can be connected");
    }
    let socket = |space: &Namespace, network, last| {
        let socket = space.run_in(|| {
            let socket = UdpSocket::bind((IpAddr::from([10, 81, network, last]), 0))?;
            socket.set_read_timeout(Some(Duration::from_secs(10)))?;
            Ok(socket)
        });
        socket.expect("it is its address")
    };
    let our_own = socket(&one, 8, 1);
    let [their_short, their_own] = [7, 8].map(|network| socket(&two, network, 2));
    let mut bytes = [0; 16];
    let mut sends = |from: &UdpSocket, to: &UdpSocket| {
        from.send_to(b"hello", to.local_addr()?)?;
        to.recv(&mut bytes)
    };
    // The kernel takes the shortest path, whatever the source address.
    assert_eq!(sends(&our_own, &their_short).expect("it comes"), 5);
    for (space, last) in [(&one, 1), (&two, 2)] {
        let addresses = [(IpAddr::from([10, 81, 8, last]), 24)];
        let end = InterfaceConfig {
            interface: "own",
            addresses: &addresses,
        };
        space.isolate(&end, 8).expect("it can be isolated");
    }
    // The other address does not exist on the end's own interface, and the kernel reports that.
    for (space, from, to) in [
        (&one, [10, 81, 8, 1], [10, 81, 7, 2]),
        (&two, [10, 81, 8, 2], [10, 81, 7, 1]),
    ] {
        let connected = space.run_in(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&SocketAddr::from((from, 0)).into())?;
            socket.connect(&SocketAddr::from((to, 4056)).into())
        });
        let refused = connected.map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::HostUnreachable));
    }
    assert_eq!(sends(&our_own, &their_own).expect("it comes"), 5);
    assert_eq!(sends(&their_own, &our_own).expect("it comes"), 5);
}

/// Returns an IPv4 packet (RFC 791, 3.1) with a UDP datagram.
fn datagram(from: [u8; 4], to: ([u8; 4], u16), text: &[u8]) -> Vec<u8> {
    let udp = 8 + text.len() as u16;
    let mut packet = vec![0x45, 0];
    packet.extend((20 + udp).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(from.into_iter().chain(to.0));
    let words = packet.chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    // No UDP checksum (RFC 768).
    for word in [7, to.1, udp, 0] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend(text);
    packet
}

/// An interface without link-layer addresses, such as that of a link, sends no ARP requests.
#[test]
fn isolated_end_drops_packets_from_other_interfaces() {
    let Some(space) = new_namespace() else { return };
    let [by_own, by_other] = [(8, "own"), (4, "other")].map(|(network, name)| {
        let made = space.run_in(|| {
            let tun = crate::tun::Tun::open(name)?;
            tun.set_up(1400)?;
            Ok(tun)
        });
        let tun = match made {
            Ok(tun) => tun,
            // This machine may lack /dev/net/tun.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => panic!("{error}"),
        };
        let addresses = [(IpAddr::from([10, 9, network, 1]), 30)];
        let interface = InterfaceConfig {
            interface: name,
            addresses: &addresses,
        };
        space.set_up(&interface).expect("it is there");
        Some((tun, network))
    });
    let (Some((by_own, own)), Some((by_other, other))) = (by_own, by_other) else {
        return;
    };
    let socket = space.run_in(|| {
        let socket = UdpSocket::bind((IpAddr::from([10, 9, own, 1]), 0))?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(socket)
    });
    let socket = socket.expect("it is its address");
    let to = (
        [10, 9, own, 1],
        socket.local_addr().expect("it is bound").port(),
    );
    let come = || {
        let [round, right] = [other, own].map(|network| [10, 9, network, 2]);
        let came = by_other.write(&datagram(round, to, b"round"));
        came.and_then(|()| by_own.write(&datagram(right, to, b"right")))
            .expect("they are packets");
    };
    let next = || {
        let mut bytes = [0; 16];
        let length = socket.recv(&mut bytes).expect("one comes");
        bytes[..length].to_vec()
    };
    come();
    assert_eq!([next(), next()], [b"round", b"right"]);
    for (interface, network) in [("own", own), ("other", other)] {
        let addresses = [(IpAddr::from([10, 9, network, 1]), 30)];
        let end = InterfaceConfig {
            interface,
            addresses: &addresses,
        };
        space.isolate(&end, network).expect("it can be isolated");
    }
    come();
    assert_eq!(next(), b"right");
}
