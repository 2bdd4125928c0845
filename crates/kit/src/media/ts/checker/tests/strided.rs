//! Packets with other bytes in between.

use super::*;

/// Builds packets with a distance of `stride` bytes, `before` of the extra bytes before each.
fn strided_packets(packets: u64, stride: usize, before: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for number in 0..packets {
        out.extend(vec![b'r'; before]);
        out.extend(plain(VIDEO, number, false, b"abc"));
        out.extend(vec![b'r'; stride - PACKET_LEN - before]);
    }
    out
}

#[test]
fn packets_of_192_and_204_bytes_are_parsed() {
    for (stride, before) in [(192, 4), (204, 0)] {
        let bytes = strided_packets(20, stride, before);
        for size in [1, 3, 100, 188, 192, 204, 1000, bytes.len()] {
            let mut bench = Bench::new();
            for (number, piece) in bytes.chunks(size).enumerate() {
                bench.feed(piece, ms(200 + number as u64));
            }
            bench.checker.finish(&mut bench.recorder);
            let counts = bench.checker.counts();
            assert_eq!(counts.ts_packets, 20, "{stride} in pieces of {size}");
            assert_eq!((counts.sync_losses, counts.continuity_errors), (0, 0));
            assert_eq!(bench.checker.stride(), stride);
            assert_eq!(bench.count(m::PAYLOAD_BYTES), 20 * 188);
        }
    }
}

#[test]
fn sync_is_regained_in_either_form() {
    let (long, usual) = (strided_packets(10, 204, 0), strided_packets(10, 188, 0));
    let mut bench = Bench::new();
    for part in [&long[..], b"xx", &long, &usual, &usual] {
        bench.feed(part, ms(200));
    }
    bench.checker.finish(&mut bench.recorder);
    let counts = bench.checker.counts();
    assert!(
        counts.ts_packets >= 38 && counts.sync_losses >= 2,
        "{counts:?}"
    );
    assert_eq!(bench.checker.stride(), PACKET_LEN);
    // A stream in the usual form is not searched for another form.
    let mut bench = Bench::new();
    for part in [&usual[..], b"xx", &long] {
        bench.feed(part, ms(200));
    }
    assert_eq!(
        (bench.checker.counts().ts_packets, bench.checker.stride()),
        (10, PACKET_LEN)
    );
}

#[test]
fn hostile_forms_are_parsed_in_linear_time() {
    // Three sync bytes at a time, so that sync is found and lost repeatedly.
    for stride in [192, 204] {
        let unit = [strided_packets(3, stride, 0), vec![0; 7]].concat();
        let make = |size| unit.iter().copied().cycle().take(size).collect();
        steps::assert_linear("spaced packets", 1024, make, |pieces| {
            let mut bench = Bench::new();
            for piece in pieces {
                bench.feed(piece, ms(200));
            }
        });
    }
}
