//! Clocks that run at different speeds.

use super::*;
use crate::codec::packet::HEADER;

const EVERY: Duration = Duration::from_millis(10);
const DELAY: Duration = Duration::from_millis(20);
const LATENCY: Duration = Duration::from_millis(120);

/// Error of the due time in microseconds, for the last packet of ten minutes and for the worst one
/// of the second half, if the sender's clock gains `gains` millionths.
fn due_time_errors(gains: i64, answers: bool) -> (i64, i64) {
    let start = Time::from_start(Duration::from_secs(1));
    let theirs = |at: Time| {
        let micros = at.nanos_from(start) / 1000;
        (micros + micros * gains / 1_000_000) as u32
    };
    let tsbpd = TsbpdConfig {
        reference: start + DELAY,
        timestamp: 0,
        latency: LATENCY,
    };
    let config = ReceiverConfig::live(CONFIG_FIRST, 8, SocketClock::new(start), tsbpd);
    let mut receiver = Receiver::new(config);
    let (mut out, mut last, mut worst) = (Vec::new(), 0, 0);
    for step in 0..60_000 {
        let sent = start + EVERY * step;
        let mut bytes = [0; HEADER];
        let sequence = CONFIG_FIRST.plus(step);
        bytes[..4].copy_from_slice(&sequence.value().to_be_bytes());
        bytes[8..12].copy_from_slice(&theirs(sent).to_be_bytes());
        let Ok(Packet::Data(header, _)) = Packet::parse(&bytes) else {
            panic!("it is data");
        };
        let arrives = sent + DELAY;
        let PacketStatus::New { due: Some(due), .. } = receiver.data(&header, b"", arrives) else {
            panic!("it is new");
        };
        last = due.nanos_from(arrives + LATENCY) / 1000;
        if step >= 30_000 {
            worst = worst.max(last.abs());
        }
        out.clear();
        while receiver.write_next(arrives, &mut out) {
            if let (true, Ok(Packet::Control(_, Control::Ack(ack)))) =
                (answers, Packet::parse(&out))
            {
                let answered = arrives + DELAY;
                let control = Control::AckAck { number: ack.number };
                receiver.control(&control, theirs(answered), answered + DELAY);
            }
            out.clear();
        }
    }
    (last, worst)
}

#[test]
fn drift_is_followed_if_the_peer_sends_ackacks() {
    for gains in [-100, 0, 100] {
        // A ten-thousandth of ten minutes is 60 ms.
        let (last, _) = due_time_errors(gains, false);
        assert!((last - gains * 600).abs() < 100, "{gains} {last}");
        // The mean of ten seconds is five seconds old when it is known, and is used for ten: less
        // than 2 ms.
        let (_, worst) = due_time_errors(gains, true);
        assert!(worst < 2000, "{gains} {worst}");
    }
}
