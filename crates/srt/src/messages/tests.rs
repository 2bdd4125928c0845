use proptest::prelude::*;

use super::assembly::MessageAssembly;
use super::*;
use crate::codec::packet::KeyFlag;

const FIRST: SeqNumber = SeqNumber::MAX;

fn at(millis: u64) -> Time {
    Time::from_start(Duration::from_millis(millis))
}

/// Packets of messages with these numbers of packets.
fn packets(sizes: &[u32], in_order: bool) -> Vec<DataHeader> {
    let mut all: Vec<DataHeader> = Vec::new();
    for (message, &size) in sizes.iter().enumerate() {
        for place in 0..size {
            all.push(DataHeader {
                sequence: FIRST.plus(all.len() as u32),
                position: match (place, size - 1 - place) {
                    (0, 0) => Position::Solo,
                    (0, _) => Position::First,
                    (_, 0) => Position::Last,
                    _ => Position::Middle,
                },
                in_order,
                key: KeyFlag::None,
                retransmitted: false,
                // Across the wrap.
                message: (MESSAGE_MAX - 1 + message as u32) & MESSAGE_MAX,
                timestamp: 0,
                destination: 1,
            });
        }
    }
    all
}

/// Sequence number after the packets that arrived without a gap.
fn acknowledged(came: &[bool]) -> SeqNumber {
    let gap = came.iter().position(|came| !came);
    FIRST.plus(gap.unwrap_or(came.len()) as u32)
}

fn outcomes_of(sizes: &[u32], in_order: bool, order: &[usize]) -> Vec<MessageOutcome> {
    let all = packets(sizes, in_order);
    let (mut came, mut outcomes) = (vec![false; all.len()], Vec::new());
    let mut messages = MessageTracker::default();
    for (millis, &index) in order.iter().enumerate() {
        came[index] = true;
        let behind = acknowledged(&came);
        messages.add_packet(
            &all[index],
            100,
            at(millis as u64),
            behind,
            &mut |outcome| {
                outcomes.push(plain(outcome));
            },
        );
    }
    outcomes
}

fn whole(bytes: u64, millis: u64, is_early: bool) -> MessageOutcome {
    MessageOutcome::Whole(Message {
        number: 0,
        first: FIRST,
        packets: 0,
        bytes,
        completion_time: Duration::from_millis(millis),
        is_early,
    })
}

/// Outcome without the identity of the message.
fn plain(outcome: MessageOutcome) -> MessageOutcome {
    match outcome {
        MessageOutcome::Whole(message) => MessageOutcome::Whole(Message {
            number: 0,
            first: FIRST,
            packets: 0,
            ..message
        }),
        other => other,
    }
}

#[test]
fn ordered_message_waits_for_the_messages_before_it() {
    let order = [2, 3, 4, 0, 1, 5];
    let expected = [
        whole(200, 1, false),
        whole(300, 4, false),
        whole(100, 0, false),
    ];
    assert_eq!(outcomes_of(&[2, 3, 1], true, &order), expected);
}

#[test]
fn unordered_message_does_not_wait() {
    let order = [2, 3, 4, 0, 1, 5];
    let expected = [
        whole(300, 2, true),
        whole(200, 1, false),
        whole(100, 0, false),
    ];
    assert_eq!(outcomes_of(&[2, 3, 1], false, &order), expected);
}

#[test]
fn given_up_packets_leave_messages_incomplete_or_missing() {
    for in_order in [false, true] {
        let all = packets(&[3, 1, 1, 3, 2], in_order);
        let mut messages = MessageTracker::default();
        let mut outcomes = Vec::new();
        // The end of the first message, all of the next two, and the start of the fourth are
        // missing.
        for index in [0, 1, 6, 7, 8, 9] {
            let (header, behind) = (&all[index], FIRST.plus(2.min(index as u32 + 1)));
            messages.add_packet(header, 1, at(0), behind, &mut |outcome| {
                outcomes.push(outcome)
            });
        }
        let early = if in_order { 0 } else { 1 };
        assert_eq!(outcomes.len(), early, "{outcomes:?}");
        messages.settle(at(9), FIRST.plus(10), &mut |outcome| outcomes.push(outcome));
        let incomplete = outcomes
            .iter()
            .filter(|outcome| **outcome == MessageOutcome::Incomplete);
        assert_eq!(incomplete.count(), 2);
        assert!(
            outcomes.contains(&MessageOutcome::Missing(2)),
            "{outcomes:?}"
        );
        let wholes = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, MessageOutcome::Whole(_)));
        assert_eq!(wholes.count(), 1);
        assert_eq!(messages.open_count(), 0);
    }
}

#[test]
fn contradicting_packets_are_ignored() {
    let all = packets(&[4], true);
    let changed = |index: usize, position| DataHeader {
        position,
        ..all[index]
    };
    for wrong in [
        // A second first packet, a second last one, a packet of its own, one after the last, and
        // one with another order flag.
        changed(1, Position::First),
        changed(2, Position::Last),
        changed(2, Position::Solo),
        DataHeader {
            sequence: FIRST.plus(9),
            ..changed(3, Position::Middle)
        },
        DataHeader {
            in_order: false,
            ..all[1]
        },
    ] {
        let mut messages = MessageTracker::default();
        let mut outcomes = Vec::new();
        for header in [&all[0], &all[3], &wrong, &all[1], &all[2]] {
            let report = &mut |outcome| outcomes.push(plain(outcome));
            messages.add_packet(header, 1, at(0), FIRST, report);
        }
        let expected = [MessageOutcome::InconsistentPacket, whole(4, 0, false)];
        assert_eq!(outcomes, expected, "{wrong:?}");
    }
}

#[test]
fn content_is_assembled_in_order_and_forgotten_if_given_up() {
    let all = packets(&[3, 2, 2], true);
    let wrong = DataHeader {
        sequence: FIRST.plus(9),
        position: Position::Middle,
        ..all[3]
    };
    let (mut messages, mut assembly) = (MessageTracker::default(), MessageAssembly::default());
    let mut contents = Vec::new();
    // The first message arrives whole, and the second without its start, but with a foreign packet.
    for (header, text) in [
        (&all[2], "c"),
        (&all[0], "a"),
        (&all[4], "y"),
        (&wrong, "?"),
        (&all[1], "b"),
    ] {
        assembly.add_packet(header, text.as_bytes());
        let behind = if text == "b" { FIRST.plus(3) } else { FIRST };
        messages.add_packet(header, 1, at(0), behind, &mut |outcome| {
            if let MessageOutcome::Whole(message) = outcome {
                contents.extend(assembly.take(&message));
            }
        });
    }
    assert_eq!(contents, ["abc"]);
    assert_eq!(assembly.bytes(), 2);
    assembly.discard_settled(&messages);
    assert_eq!(assembly.bytes(), 2);
    let mut outcomes = Vec::new();
    messages.settle(at(1), FIRST.plus(10), &mut |outcome| outcomes.push(outcome));
    assert_eq!(outcomes, [MessageOutcome::Incomplete]);
    assembly.discard_settled(&messages);
    assert_eq!(assembly.bytes(), 0);
}

#[test]
fn unfinished_messages_are_bounded() {
    let mut messages = MessageTracker::default();
    let mut incomplete = 0;
    let header = packets(&[2], true)[0];
    for number in 0..5000 {
        let header = DataHeader {
            message: number,
            sequence: FIRST.plus(2 * number),
            ..header
        };
        messages.add_packet(&header, 1, at(0), FIRST, &mut |outcome| {
            incomplete += usize::from(outcome == MessageOutcome::Incomplete);
        });
        assert!(messages.open_count() <= OPEN_MAX);
    }
    assert_eq!(incomplete, 5000 - OPEN_MAX);
}

proptest! {
    #[test]
    fn each_message_is_whole_once_in_any_packet_order(
        sizes in prop::collection::vec(1u32..6, 1..12),
        in_order: bool,
        seed: u64,
    ) {
        let count: u32 = sizes.iter().sum();
        let mut order: Vec<usize> = (0..count as usize).collect();
        let mut state = seed | 1;
        for index in (1..order.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            order.swap(index, (state >> 33) as usize % (index + 1));
        }
        let outcomes = outcomes_of(&sizes, in_order, &order);
        let bytes = |outcome: &MessageOutcome| match outcome {
            MessageOutcome::Whole(message) => Some(message.bytes),
            _ => None,
        };
        let mut came: Vec<u64> = outcomes.iter().filter_map(bytes).collect();
        prop_assert_eq!(came.len(), outcomes.len());
        let mut sent: Vec<u64> = sizes.iter().map(|size| u64::from(*size) * 100).collect();
        if !in_order {
            came.sort_unstable();
            sent.sort_unstable();
        }
        prop_assert_eq!(came, sent);
    }

    #[test]
    fn arbitrary_packets_are_bounded(
        headers in prop::collection::vec((0u32..40, 0u32..12, 0u8..4, any::<bool>()), 0..200),
    ) {
        let mut messages = MessageTracker::default();
        let mut settled = FIRST;
        for (sequence, message, position, in_order) in headers {
            let header = DataHeader {
                sequence: FIRST.plus(sequence),
                message,
                position: [Position::Middle, Position::Last, Position::First, Position::Solo]
                    [usize::from(position)],
                in_order,
                ..packets(&[1], true)[0]
            };
            if settled.is_before(header.sequence) {
                settled = header.sequence;
            }
            messages.add_packet(&header, 7, at(1), settled, &mut |_| {});
            prop_assert!(messages.open_count() <= 12);
        }
    }
}
