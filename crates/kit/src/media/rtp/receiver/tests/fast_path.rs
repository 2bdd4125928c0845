//! The fast path that most packets take has the same results as the general path.

use super::*;

/// Next action of a server, and its number of repetitions.
#[derive(Clone, Copy, Debug)]
enum Step {
    Go(u16),
    Lose(u16),
    Repeat,
    Swap,
    Jump(u16),
    Restart(u32),
    Rest(u64),
    Odd(u8),
    PayloadType(u8),
    Short,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u16..900).prop_map(Step::Go),
        2 => (1u16..40).prop_map(Step::Lose),
        1 => Just(Step::Repeat),
        2 => Just(Step::Swap),
        1 => any::<u16>().prop_map(Step::Jump),
        1 => any::<u32>().prop_map(Step::Restart),
        1 => (1u64..3_000_000_000).prop_map(Step::Rest),
        1 => any::<u8>().prop_map(Step::Odd),
        1 => any::<u8>().prop_map(Step::PayloadType),
        1 => Just(Step::Short),
    ]
}

/// Feeds two receivers with the same packets; one of them always takes the general path.
struct BothPaths {
    usual: Bench,
    long: Bench,
    sequence: u16,
    sent: u32,
}

impl BothPaths {
    fn raw(&mut self, bytes: &[u8]) {
        let usual = self.usual.raw(bytes);
        let arrival = Arrival {
            at: self.long.at,
            bytes,
            length: bytes.len(),
            overhead: 28,
        };
        let (receiver, recorder) = (&mut self.long.receiver, &mut self.long.recorder);
        assert_eq!(usual, receiver.general_path(&arrival, recorder));
    }

    fn send(&mut self, sequence: u16, change: impl FnOnce(&mut [u8])) {
        // Five packets per picture, at irregular times.
        let picture = u32::from(sequence / 5);
        let header = self
            .usual
            .header(sequence, picture * 3600, sequence % 5 == 4);
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(60 + usize::from(sequence % 7), 1);
        change(&mut bytes);
        self.sent = self.sent.wrapping_mul(0x9e37_79b1).wrapping_add(1);
        let gap = Duration::from_nanos(u64::from(self.sent >> 8));
        self.usual.at += gap;
        self.long.at += gap;
        self.raw(&bytes);
    }

    fn next(&mut self) -> u16 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    fn step(&mut self, step: Step) {
        let next = self.next();
        match step {
            Step::Go(count) => {
                self.send(next, |_| {});
                for _ in 1..count {
                    let next = self.next();
                    self.send(next, |_| {});
                }
            }
            Step::Lose(count) => self.sequence = next.wrapping_add(count),
            Step::Repeat => {
                self.send(next, |_| {});
                self.send(next, |_| {});
            }
            Step::Swap => {
                let after = self.next();
                self.send(after, |_| {});
                self.send(next, |_| {});
            }
            Step::Jump(by) => self.sequence = next.wrapping_add(by),
            Step::Restart(ssrc) => {
                self.usual.ssrc = ssrc;
                self.long.ssrc = ssrc;
                self.send(next, |_| {});
            }
            Step::Rest(nanos) => {
                self.usual.at += Duration::from_nanos(nanos);
                self.long.at += Duration::from_nanos(nanos);
                self.send(next, |_| {});
            }
            Step::Odd(first) => self.send(next, |bytes| bytes[0] = first),
            Step::PayloadType(second) => self.send(next, |bytes| bytes[1] = second),
            Step::Short => self.raw(&[0x80, 96, 0]),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn fast_path_matches_general_path(
        first in any::<u16>(),
        base in proptest::option::of(0u16..4000),
        clock_rate in prop_oneof![9 => Just(90_000u32), 1 => Just(0)],
        steps in proptest::collection::vec(step(), 1..30),
    ) {
        let bench = || Bench::with(&ReceiverConfig {
            clock_rate,
            payload_types: vec![96],
            playout_buffer: Duration::from_millis(100),
        });
        let mut both = BothPaths { usual: bench(), long: bench(), sequence: first, sent: 1 };
        if let Some(base) = base {
            both.usual.set_base(first.wrapping_sub(base));
            both.long.set_base(first.wrapping_sub(base));
        }
        for step in steps {
            both.step(step);
            prop_assert_eq!(
                format!("{:?}", both.usual.receiver),
                format!("{:?}", both.long.receiver),
            );
        }
        both.usual.finish();
        both.long.finish();
        prop_assert_eq!(both.usual.receiver.counts(), both.long.receiver.counts());
        prop_assert_eq!(
            both.usual.recorder.take_window(),
            both.long.recorder.take_window()
        );
    }
}

#[test]
fn next_packet_takes_the_fast_path() {
    let mut bench = Bench::new();
    bench.packets(0..5000);
    let header = bench.header(5000, 5000 * 3600, true);
    let mut bytes = header.to_bytes().to_vec();
    bytes.resize(12 + PAYLOAD, 0);
    let arrival = Arrival {
        at: bench.at,
        bytes: &bytes,
        length: bytes.len(),
        overhead: 28,
    };
    assert!(bench.receiver.try_fast_path(&arrival, &mut bench.recorder));
}
