//! Tests of groups without a worker: sharing of memberships, and the receivers of datagrams.

use net::Waker;

use super::*;

const CHANNEL: ChannelId = ChannelId(3);

/// A receiver report, which only receivers send, and a sender report.
const OF_RECEIVER: [u8; 8] = [0x80, 201, 0, 1, 0, 0, 0, 1];
const OF_SENDER: [u8; 28] = {
    let mut report = [0; 28];
    (report[0], report[1], report[3]) = (0x80, 200, 6);
    report
};

fn session(serial: u64) -> SessionKey {
    let index = 1;
    SessionKey { index, serial }
}

fn runtime() -> Runtime {
    let waker = Waker::new().expect("linux has it");
    let (reports, _) = crossbeam_channel::unbounded();
    Runtime::new(&waker, reports).expect("linux has it")
}

fn join(groups: &mut Groups, runtime: &Runtime, serial: u64, port: u16) -> usize {
    let open = Open::Multicast {
        group: Ipv4Addr::new(239, 255, 77, 1).into(),
        port,
        control: port + 1,
        sources: Vec::new(),
        interface: Interface::Address(Ipv4Addr::LOCALHOST.into()),
        ttl: 0,
        sink: None,
    };
    let joined = groups.join(runtime, session(serial).channel(CHANNEL), 0, open, 0);
    joined.expect("loopback takes part").0
}

fn report<'a>(bytes: &'a [u8], source: IpAddr) -> ReceivedDatagram<'a> {
    ReceivedDatagram {
        from: SocketAddr::new(source, 9),
        to: None,
        at: Time::ZERO,
        bytes,
        length: bytes.len(),
    }
}

#[test]
fn membership_is_shared_until_the_last_session_leaves() {
    let (mut groups, mut runtime) = (Groups::default(), runtime());
    let first = join(&mut groups, &runtime, 1, 31_400);
    assert_eq!(join(&mut groups, &runtime, 2, 31_400), first);
    let other = join(&mut groups, &runtime, 3, 31_402);
    assert_ne!(other, first);
    assert_eq!((groups.count(), groups.media().len()), (4, 2));
    // A channel that has not joined ends nobody's membership.
    groups.leave(
        first,
        session(1).channel(ChannelId(CHANNEL.0 + 1)),
        &mut runtime,
    );
    groups.leave(first, session(2).channel(CHANNEL), &mut runtime);
    assert_eq!(groups.count(), 4);
    groups.leave(first, session(1).channel(CHANNEL), &mut runtime);
    assert_eq!((groups.count(), groups.media_of(first)), (2, None));
    assert_ne!(groups.next_read(), Time::NEVER);
    groups.leave(other, session(3).channel(CHANNEL), &mut runtime);
    assert_eq!(groups.next_read(), Time::NEVER);
}

#[test]
fn sender_reports_reach_all_and_receiver_reports_the_first() {
    let (mut groups, mut runtime) = (Groups::default(), runtime());
    let source = IpAddr::from([10, 0, 0, 1]);
    let mut index = 0;
    for serial in 1..=3 {
        index = join(&mut groups, &runtime, serial, 31_410);
        // The third member has not begun.
        if serial < 3 {
            groups.begin(
                index,
                session(serial).channel(CHANNEL),
                source,
                &mut runtime,
            );
        }
    }
    let media = groups.media_of(index).expect("it was joined");
    let who = |bytes: &[u8], from| {
        let recipients = groups.hearers_of_control(media, &report(bytes, from));
        let serials = recipients.iter().map(|member| member.session.serial);
        serials.collect::<Vec<_>>()
    };
    assert_eq!(who(&OF_SENDER, source), [1, 2]);
    assert_eq!(who(&OF_RECEIVER, source), [1]);
    assert_eq!(who(&OF_SENDER, IpAddr::from([10, 0, 0, 9])), [0; 0]);
}

#[test]
fn media_of_another_source_or_before_joining_is_ignored() {
    let (mut groups, mut runtime) = (Groups::default(), runtime());
    let source = IpAddr::from([10, 0, 0, 1]);
    let index = join(&mut groups, &runtime, 1, 31_420);
    groups.begin(index, session(1).channel(CHANNEL), source, &mut runtime);
    let media = groups.media_of(index).expect("it was joined");
    let [hearer] = groups.hearers(media)[..] else {
        panic!("it counts for itself");
    };
    let (before, later) = (Time::ZERO, runtime.clock.now());
    for (from, at, takes) in [
        (source, later, true),
        (source, before, false),
        (IpAddr::from([10, 0, 0, 9]), later, false),
    ] {
        let datagram = ReceivedDatagram {
            at,
            ..report(&OF_SENDER, from)
        };
        assert_eq!(hearer.takes(&datagram, &mut runtime), takes);
    }
    let window = runtime.tester.take_window();
    let foreign = window.counters[usize::from(tester::FOREIGN_PACKETS.0)];
    assert_eq!(foreign, 1);
}
