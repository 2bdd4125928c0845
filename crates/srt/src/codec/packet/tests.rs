//! Round trips of valid packets, and rejection of malformed ones.

use proptest::prelude::*;

use super::*;

fn seq() -> impl Strategy<Value = SeqNumber> {
    any::<u32>().prop_map(SeqNumber::new)
}

fn range() -> impl Strategy<Value = LossRange> {
    (seq(), prop_oneof![Just(0u32), 1u32..5000]).prop_map(|(first, more)| LossRange {
        first,
        last: first.plus(more),
    })
}

fn data_header() -> impl Strategy<Value = DataHeader> {
    let position = prop_oneof![
        Just(Position::Middle),
        Just(Position::Last),
        Just(Position::First),
        Just(Position::Solo),
    ];
    let key = prop_oneof![
        Just(KeyFlag::None),
        Just(KeyFlag::Even),
        Just(KeyFlag::Odd),
        Just(KeyFlag::Both),
    ];
    let flags = (position, any::<bool>(), key, any::<bool>());
    (seq(), flags, 0..=MESSAGE_MAX, any::<[u32; 2]>()).prop_map(
        |(
            sequence,
            (position, in_order, key, retransmitted),
            message,
            [timestamp, destination],
        )| {
            DataHeader {
                sequence,
                position,
                in_order,
                key,
                retransmitted,
                message,
                timestamp,
                destination,
            }
        },
    )
}

fn control() -> impl Strategy<Value = Control<'static>> {
    let cif: &[u8] = b"twelve bytes";
    let rates = any::<[u32; 3]>().prop_map(|[packets, capacity, bytes]| AckRates {
        packets,
        capacity,
        bytes,
    });
    let report = (any::<[u32; 3]>(), prop::option::of(rates)).prop_map(
        |([rtt, rtt_variance, room], rates)| AckReport {
            rtt,
            rtt_variance,
            free_packets: room,
            rates,
        },
    );
    prop_oneof![
        Just(Control::Handshake(cif)),
        Just(Control::KeepAlive),
        (any::<u32>(), seq(), prop::option::of(report)).prop_map(|(number, next, report)| {
            Control::Ack(Ack {
                number,
                next,
                report,
            })
        }),
        Just(Control::CongestionWarning),
        Just(Control::Shutdown),
        any::<u32>().prop_map(|number| Control::AckAck { number }),
        (any::<u32>(), range()).prop_map(|(message, range)| Control::DropRequest {
            message,
            first: range.first,
            last: range.last,
        }),
        any::<u32>().prop_map(|code| Control::PeerError { code }),
        (any::<u16>(), any::<u32>()).prop_map(move |(subtype, info)| Control::UserDefined {
            subtype,
            info,
            cif,
        }),
        (9u16..0x7fff, any::<u32>()).prop_map(|(kind, info)| Control::Unknown { kind, info }),
    ]
}

const HEAD: ControlHeader = ControlHeader {
    timestamp: 7,
    destination: 9,
};

proptest! {
    #[test]
    fn data_packets_round_trip(header in data_header()) {
        let mut bytes = header.write().to_vec();
        bytes.extend(b"media");
        prop_assert_eq!(Packet::parse(&bytes), Ok(Packet::Data(header, b"media")));
        prop_assert_eq!(destination_socket_id(&bytes), Some(header.destination));
        prop_assert!(is_data(&bytes));
    }

    #[test]
    fn control_packets_round_trip(
        control in control(),
        [timestamp, to] in any::<[u32; 2]>(),
    ) {
        let header = ControlHeader { timestamp, destination: to };
        let mut bytes = Vec::new();
        control.write(header, &mut bytes);
        prop_assert_eq!(Packet::parse(&bytes), Ok(Packet::Control(header, control)));
        prop_assert_eq!(destination_socket_id(&bytes), Some(to));
        prop_assert!(!is_data(&bytes));
    }

    #[test]
    fn loss_lists_round_trip(
        ranges in prop::collection::vec(range(), 1..400),
    ) {
        let mut bytes = b"before".to_vec();
        let named = write_nak(HEAD, ranges.iter().copied(), &mut bytes);
        let bytes = &bytes[6..];
        prop_assert!(bytes.len() <= HEADER + PAYLOAD_MAX);
        let Ok(Packet::Control(HEAD, Control::Nak(list))) = Packet::parse(bytes) else {
            return Err(TestCaseError::fail("it is a NAK"));
        };
        let read: Vec<LossRange> = list.ranges().collect();
        prop_assert_eq!(&read[..], &ranges[..read.len()]);
        // All ranges, or as many as fit.
        prop_assert!(read.len() == ranges.len() || bytes.len() + 8 > HEADER + PAYLOAD_MAX);
        prop_assert_eq!(named, read.iter().map(|range| u64::from(range.count())).sum::<u64>());
    }

    /// No input panics, and a parsed packet is written back unchanged, except for padding.
    #[test]
    fn arbitrary_input_never_panics(
        kind in 0u8..10,
        control in any::<bool>(),
        bytes in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = if control { 0x80 } else { 0 };
        }
        if let Some(second) = bytes.get_mut(1) {
            *second = kind;
        }
        match Packet::parse(&bytes) {
            Ok(Packet::Data(header, payload)) => {
                prop_assert_eq!(&header.write()[..], &bytes[..HEADER]);
                prop_assert_eq!(payload, &bytes[HEADER..]);
            }
            Ok(Packet::Control(header, control)) => {
                let mut again = Vec::new();
                control.write(header, &mut again);
                let same = Packet::Control(header, control);
                prop_assert_eq!(Packet::parse(&again), Ok(same));
                if let Control::Nak(list) = control {
                    let ranges: Vec<LossRange> = list.ranges().collect();
                    prop_assert!((1..=bytes.len() / 4).contains(&ranges.len()));
                    prop_assert!(ranges.iter().all(|r| !r.last.is_before(r.first)));
                }
            }
            Err(_) => {}
        }
    }
}

/// Datagram of a control packet of type `kind`.
fn raw(kind: u8, words: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0x80, kind];
    bytes.resize(HEADER, 0);
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    bytes
}

#[test]
fn malformed_ranges_are_rejected() {
    let range = |first: u32| first | RANGE_BIT;
    for (words, error) in [
        // The range ends before it begins; has no end; ends with the start of another range.
        (vec![range(5), 4], Malformed::Range { first: 5 }),
        (vec![3, range(5)], Malformed::Range { first: 5 }),
        (vec![range(5), range(7), 9], Malformed::Range { first: 5 }),
        (vec![], Malformed::ControlLength { kind: 3, length: 0 }),
    ] {
        assert_eq!(Packet::parse(&raw(3, &words)), Err(error), "{words:?}");
    }
    let mut odd = raw(3, &[5]);
    odd.push(0);
    let error = Malformed::ControlLength { kind: 3, length: 5 };
    assert_eq!(Packet::parse(&odd), Err(error));
    // A range across the wrap is valid.
    assert!(Packet::parse(&raw(3, &[range(0x7fff_ffff), 0])).is_ok());
    assert_eq!(
        Packet::parse(&raw(7, &[9, 8])),
        Err(Malformed::Range { first: 9 })
    );
}

#[test]
fn short_packets_are_rejected() {
    assert_eq!(Packet::parse(&[]), Err(Malformed::Short(0)));
    assert_eq!(Packet::parse(&[0; 15]), Err(Malformed::Short(15)));
    assert!(Packet::parse(&[0; 16]).is_ok());
    for (kind, words) in [(2, &[][..]), (7, &[1])] {
        let bytes = raw(kind, words);
        let length = words.len() * 4;
        let kind = kind.into();
        let error = Malformed::ControlLength { kind, length };
        assert_eq!(Packet::parse(&bytes), Err(error));
    }
}

#[test]
fn acknowledgements_have_three_lengths() {
    let parse = |words: &[u32]| match Packet::parse(&raw(2, words)) {
        Ok(Packet::Control(_, Control::Ack(ack))) => ack,
        other => panic!("{other:?}"),
    };
    assert_eq!(parse(&[5]).report, None);
    assert_eq!(parse(&[5, 1, 2]).report, None);
    let small = parse(&[5, 1, 2, 3]).report.expect("it has one");
    assert_eq!((small.free_packets, small.rates), (3, None));
    let full = |words| parse(words).report.and_then(|report| report.rates);
    let rates = |bytes| AckRates {
        packets: 4,
        capacity: 5,
        bytes,
    };
    assert_eq!(full(&[5, 1, 2, 3, 4, 5]), Some(rates(0)));
    assert_eq!(full(&[5, 1, 2, 3, 4, 5, 6]), Some(rates(6)));
    // libsrt 1.0.2 sent an additional word.
    assert_eq!(full(&[5, 1, 2, 3, 4, 5, 6, 7]), Some(rates(6)));
}
