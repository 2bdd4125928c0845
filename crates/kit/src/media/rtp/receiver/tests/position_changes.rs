//! Changes of position: which packets belong to which position, and what restarts.

use super::*;

/// Sends packets in order, each a frame of 40 ms.
struct Player {
    bench: Bench,
    sequence: u16,
    timestamp: u32,
    own_times: bool,
}

impl Player {
    fn new() -> Player {
        Player {
            bench: Bench::new(),
            sequence: 65_500,
            timestamp: 1000,
            own_times: false,
        }
    }

    fn frame(&mut self) -> Option<MediaEvent> {
        let header = self.bench.header(self.sequence, self.timestamp, true);
        let event = self.bench.send(&header);
        self.bench.at += Duration::from_millis(40);
        self.sequence = self.sequence.wrapping_add(1);
        self.timestamp = self.timestamp.wrapping_add(3600);
        event
    }

    fn frames(&mut self, count: usize) {
        for _ in 0..count {
            assert!(!matches!(
                self.frame(),
                Some(MediaEvent::Position { .. } | MediaEvent::ClockJumped { .. })
            ));
        }
    }

    fn confirm(&mut self, seq: Option<u16>, rtptime: Option<u32>) -> Option<MediaEvent> {
        let stated_at = self.bench.at;
        let position = PositionStatement {
            seq,
            rtptime,
            timestamp_per_packet: self.own_times,
            stated_at,
        };
        self.bench
            .receiver
            .position_changed(position, &mut self.bench.recorder)
    }

    /// Requests another position; the server states the next packet.
    fn change_position(&mut self) {
        self.bench.receiver.request_position();
        let event = self.confirm(Some(self.sequence), Some(self.timestamp));
        assert_eq!(event, None);
        assert_eq!(self.bench.receiver.position_arrival(), None);
    }

    fn arrives(&mut self) {
        let at = self.bench.at;
        assert_eq!(self.frame(), Some(MediaEvent::Position { at }));
        assert_eq!(self.bench.receiver.position_arrival(), Some(at));
    }

    /// Finishes, and asserts that nothing was lost, broken or late.
    fn whole(mut self, frames: u64) {
        self.bench.finish();
        assert_eq!(self.bench.counts(), [frames, frames, 0, 0, 0, 0, 0]);
        assert_eq!(self.bench.receiver.frames(), (frames, 0, 0));
        assert_eq!(self.bench.receiver.longest_gap(), Duration::from_millis(40));
        assert!(self.bench.receiver.mean_jitter() < Some(Duration::from_millis(1)));
        assert_eq!(self.bench.count(m::RTP_INFO_MISMATCH), 0);
    }
}

#[test]
fn continued_numbers_after_a_pause_lose_nothing() {
    let mut player = Player::new();
    player.frames(20);
    player.change_position();
    player.bench.at += Duration::from_secs(30);
    player.arrives();
    player.frames(19);
    player.whole(40);
}

#[test]
fn new_numbers_and_timestamps_lose_nothing() {
    for step in [700, 2999, 20_000, 65_000u16] {
        let mut player = Player::new();
        player.frames(20);
        player.bench.at += Duration::from_secs(5);
        player.sequence = player.sequence.wrapping_add(step);
        player.timestamp = player.timestamp.wrapping_sub(900_000_000);
        player.change_position();
        player.arrives();
        player.frames(19);
        player.whole(40);
    }
}

#[test]
fn another_source_takes_over() {
    let mut player = Player::new();
    player.frames(20);
    player.bench.ssrc = 9;
    player.change_position();
    player.arrives();
    player.frames(19);
    assert_eq!(player.bench.receiver.ssrc(), Some(9));
    player.whole(40);
}

#[test]
fn loss_before_the_new_position_counts() {
    let mut player = Player::new();
    player.frames(20);
    player.sequence = player.sequence.wrapping_add(3);
    player.timestamp = player.timestamp.wrapping_add(3 * 3600);
    player.bench.at += Duration::from_millis(120);
    player.change_position();
    player.arrives();
    player.frames(19);
    player.bench.finish();
    assert_eq!(player.bench.counts(), [43, 40, 0, 0, 0, 0, 0]);
    assert_eq!(player.bench.values(m::LOSS_BURST_LENGTH), [(3, 1)]);
}

#[test]
fn stragglers_belong_to_the_old_position() {
    let mut player = Player::new();
    player.frames(20);
    // Two packets are in flight when the server responds, and arrive after the response: one before
    // and one after the first packet of the new position.
    let (first, second) = (player.sequence, player.sequence.wrapping_add(1));
    let timestamp = player.timestamp;
    player.sequence = player.sequence.wrapping_add(2);
    player.timestamp = player.timestamp.wrapping_add(200_000);
    player.bench.at += Duration::from_millis(50);
    player.change_position();
    let header = player.bench.header(first, timestamp, true);
    assert_eq!(player.bench.send(&header), None);
    player.arrives();
    let header = player.bench.header(second, timestamp + 3600, true);
    assert_eq!(player.bench.send(&header), None);
    player.frames(19);
    player.bench.finish();
    assert_eq!(player.bench.counts(), [42, 42, 0, 1, 0, 0, 0]);
    assert_eq!(player.bench.receiver.frames().2, 0);
    assert!(player.bench.receiver.mean_jitter() < Some(Duration::from_millis(200)));
}

#[test]
fn next_number_continues_whatever_its_timestamp() {
    let mut player = Player::new();
    player.frames(20);
    // One packet arrives only after the new position plays, for which no time was stated.
    let (late, stamp) = (player.sequence, player.timestamp);
    player.sequence = player.sequence.wrapping_add(1);
    player.timestamp = player.timestamp.wrapping_add(3600);
    player.frames(5);
    player.timestamp = player.timestamp.wrapping_sub(900_000_000);
    player.bench.receiver.request_position();
    assert_eq!(player.confirm(Some(player.sequence), None), None);
    player.arrives();
    let header = player.bench.header(late, stamp, true);
    assert_eq!(player.bench.send(&header), None);
    player.frames(19);
    player.bench.finish();
    assert_eq!(player.bench.counts(), [46, 46, 0, 1, 0, 0, 0]);
    // The late packet does not affect the measurements of the new media clock.
    let jitter = player.bench.receiver.mean_jitter();
    assert!(jitter < Some(Duration::from_millis(10)), "{jitter:?}");
}

#[test]
fn packets_before_the_response_join_the_new_position() {
    let mut player = Player::new();
    player.frames(20);
    player.bench.receiver.request_position();
    let at = player.bench.at;
    let (seq, rtptime) = (player.sequence, player.timestamp);
    player.frames(5);
    assert_eq!(player.bench.receiver.counts().received, 20);
    let event = player.confirm(Some(seq), Some(rtptime));
    assert_eq!(event, Some(MediaEvent::Position { at }));
    player.frames(15);
    player.whole(40);
}

#[test]
fn refusal_changes_nothing_and_held_packets_are_bounded() {
    let mut player = Player::new();
    player.frames(20);
    player.bench.receiver.request_position();
    player.frames(200);
    assert_eq!(player.bench.receiver.counts().received, 220 - 64);
    player
        .bench
        .receiver
        .position_kept(&mut player.bench.recorder);
    player.frames(20);
    player.whole(240);
    // Held packets count at the end of the session as well.
    let mut player = Player::new();
    player.frames(20);
    player.bench.receiver.request_position();
    player.frames(20);
    player.whole(40);
}

#[test]
fn wrong_statement_of_the_server_is_counted() {
    let mut player = Player::new();
    player.frames(20);
    player.bench.receiver.request_position();
    let wrong = player.sequence.wrapping_add(5000);
    assert_eq!(player.confirm(Some(wrong), None), None);
    player.frames(60);
    player.bench.finish();
    assert_eq!(player.bench.counts(), [80, 80, 0, 0, 0, 0, 0]);
    assert_eq!(player.bench.count(m::RTP_INFO_MISMATCH), 1);
    assert!(player.bench.receiver.position_arrival().is_some());
}

#[test]
fn later_clock_jump_is_reported_and_is_no_stall() {
    let mut player = Player::new();
    player.frames(20);
    player.change_position();
    player.arrives();
    player.frames(19);
    // The new position really begins here.
    player.timestamp = player.timestamp.wrapping_sub(140_000);
    let at = player.bench.at;
    assert_eq!(player.frame(), Some(MediaEvent::ClockJumped { at }));
    player.frames(19);
    assert_eq!(player.bench.count(m::CLOCK_JUMPS), 1);
    player.whole(60);
}

proptest! {
    #[test]
    fn counters_balance_during_position_changes(
        packets in prop::collection::vec((0u8..6, any::<u16>(), any::<u32>(), 0u64..3000), 0..300),
    ) {
        let mut bench = Bench::new();
        for (what, sequence, timestamp, millis) in packets {
            bench.at += Duration::from_millis(millis);
            let stated_at = bench.at;
            let position = |seq, rtptime| PositionStatement { seq, rtptime, timestamp_per_packet: false, stated_at };
            match what {
                0 => bench.receiver.request_position(),
                1 => drop(bench.receiver.position_changed(position(Some(sequence), Some(timestamp)), &mut bench.recorder)),
                2 => drop(bench.receiver.position_changed(position(None, None), &mut bench.recorder)),
                3 => bench.receiver.position_kept(&mut bench.recorder),
                _ => {
                    let header = bench.header(sequence % 512, timestamp, true);
                    bench.send(&header);
                }
            }
        }
        bench.finish();
        let [expected, received, ..] = bench.counts();
        prop_assert!(received <= expected);
    }
}

#[test]
fn low_seq_of_new_position_is_no_loss_if_rtptime_matches() {
    for own_times in [true, false] {
        let mut player = Player::new();
        player.own_times = own_times;
        player.frames(50);
        player.bench.receiver.request_position();
        // GStreamer states the first packet of AAC like this: with the number before it.
        let event = player.confirm(
            Some(player.sequence.wrapping_sub(1)),
            Some(player.timestamp),
        );
        assert_eq!(event, None);
        player.arrives();
        player.frames(49);
        player.bench.finish();
        let lost = u64::from(!own_times);
        assert_eq!(player.bench.counts()[..2], [100 + lost, 100]);
        assert_eq!(player.bench.count(m::RTP_INFO_MISMATCH), 1 - lost);
    }
}
