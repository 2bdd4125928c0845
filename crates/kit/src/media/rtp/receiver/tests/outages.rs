//! Outages within one source, and events that only resemble an outage.

use super::*;

impl Bench {
    /// Sends a packet of a stream with `per_second` packets per second, at its due time.
    fn on_time(&mut self, number: u64, per_second: u64) -> Option<MediaEvent> {
        self.at = Time::from_start(Duration::from_micros(
            1_000_000 * (per_second + number) / per_second,
        ));
        let ticks = number * 90_000 / per_second;
        let header = self.header(
            number as u16,
            4_294_900_000u32.wrapping_add(ticks as u32),
            true,
        );
        self.send(&header)
    }
}

#[test]
fn outage_of_any_length_is_a_loss() {
    // 20 Mb/s in packets of 1250 bytes, without the packets from 1000 to `next`.
    for next in [4000, 5000, 33_767, 33_768, 40_000, 64_400, 66_535] {
        let mut bench = Bench::new();
        let numbers = (0..1000).chain(next..next + 3000);
        let received = numbers.clone().count() as u64;
        for number in numbers {
            assert!(bench.on_time(number, 2000).is_none() || number == 0);
        }
        assert_eq!(
            bench.counts(),
            [next + 3000, received, 0, 0, 0, 0, 0],
            "{next}"
        );
        assert_eq!(bench.receiver.highest_sequence(), Some(next as u32 + 2999));
        // The packets after the outage are distinguished from their duplicates.
        bench.on_time(next + 2000, 2000);
        assert_eq!(bench.counts()[2], 1);
        bench.finish();
        let bursts = bench.recorder.histogram(m::LOSS_BURST_LENGTH).unwrap();
        let lost = next - 1000;
        assert_eq!((bursts.count(), bench.count(m::LOSS_BURSTS)), (1, 1));
        assert!(bursts.max().unwrap().abs_diff(lost) <= lost / 500);
        // The outage is not a delay: no packet was late.
        assert!(bench.receiver.jitter() < Duration::from_micros(20));
        let playout = bench.receiver.playout_buffer().unwrap();
        assert!(playout < Duration::from_millis(1), "{playout:?}");
    }
    // Whole cycles cannot be detected.
    let mut bench = Bench::new();
    for number in (0..1000).chain(70_000..70_100) {
        bench.on_time(number, 2000);
    }
    assert_eq!(bench.counts(), [70_100 - 65_536, 1100, 0, 0, 0, 0, 0]);
}

#[test]
fn the_last_packet_after_an_outage_counts() {
    let mut bench = Bench::new();
    for number in (0..1000).chain([5000]) {
        bench.on_time(number, 2000);
    }
    assert_eq!(bench.counts()[..2], [1000, 1000]);
    bench.finish();
    assert_eq!(bench.counts(), [5001, 1001, 0, 0, 0, 0, 0]);
    assert_eq!(bench.count(m::LOSS_BURSTS), 1);
}

#[test]
fn single_stray_packet_is_no_outage() {
    for stray in [4000, 30_000, 64_000] {
        let mut bench = Bench::new();
        for number in (0..1000).chain([stray]).chain(1000..2000) {
            bench.on_time(number, 2000);
        }
        bench.finish();
        let [expected, received, .., late, malformed, restarts] = bench.counts();
        assert_eq!([expected, received, restarts], [2000, 2000, 0], "{stray}");
        assert_eq!(late + malformed, 1);
    }
}

#[test]
fn old_packets_are_no_outage() {
    // So fast that the packets are from the same second as the highest.
    let mut bench = Bench::new();
    for number in 0..30_000 {
        bench.on_time(number, 20_000);
    }
    let now = bench.at;
    for number in [27_000u64, 27_001, 27_002] {
        let ticks = number * 90_000 / 20_000;
        let header = bench.header(
            number as u16,
            4_294_900_000u32.wrapping_add(ticks as u32),
            true,
        );
        bench.at = now;
        bench.send(&header);
    }
    assert_eq!(bench.counts(), [30_003, 30_003, 0, 0, 0, 0, 1]);
    // Copies of recent packets after a silence are not an outage either.
    let mut bench = Bench::new();
    for number in 0..100 {
        bench.on_time(number, 50);
    }
    bench.at += Duration::from_secs(4);
    for number in [99u16, 98, 97] {
        let ticks = u32::from(number) * 1800;
        let header = bench.header(number, 4_294_900_000u32.wrapping_add(ticks), true);
        bench.send(&header);
    }
    assert_eq!(bench.counts(), [100, 100, 3, 0, 0, 0, 0]);
}

#[test]
fn jump_to_another_media_time_is_a_restart() {
    let mut bench = Bench::new();
    for number in 0..1000 {
        bench.on_time(number, 2000);
    }
    bench.at += Duration::from_secs(2);
    for number in 5000..5100u16 {
        let header = bench.header(number, 7_000_000, true);
        bench.send(&header);
    }
    assert_eq!(bench.counts(), [1100, 1100, 0, 0, 0, 0, 1]);
}
