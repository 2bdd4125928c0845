//! Keep-alives, and detection of a lost peer (SRT, 3.2.3; libsrt's EXP timer).

use std::time::Duration;

use measure::Time;

/// Time without a packet to the peer after which a keep-alive is sent.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Default time without a packet from the peer after which the peer is lost: `SRTO_PEERIDLETIMEO`
/// of libsrt.
pub const PEER_IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Times of the last packet in each direction.
#[derive(Clone, Copy, Debug)]
pub struct Liveness {
    last_received_at: Time,
    last_sent_at: Time,
    peer_idle: Duration,
}

impl Liveness {
    /// State of a connection established at `now`. The peer is lost after `peer_idle` without a
    /// packet: see [`PEER_IDLE_TIMEOUT`].
    pub fn new(now: Time, peer_idle: Duration) -> Liveness {
        Liveness {
            last_received_at: now,
            last_sent_at: now,
            peer_idle,
        }
    }

    /// Records a packet of any kind from the peer.
    #[inline]
    pub fn record_received(&mut self, at: Time) {
        self.last_received_at = self.last_received_at.max(at);
    }

    /// Records a packet of any kind to the peer.
    #[inline]
    pub fn record_sent(&mut self, at: Time) {
        self.last_sent_at = self.last_sent_at.max(at);
    }

    /// Time at which [`Liveness::take_keepalive_due`] or [`Liveness::is_lost`] may change its
    /// result.
    pub fn due(&self) -> Time {
        (self.last_sent_at + KEEP_ALIVE_INTERVAL).min(self.last_received_at + self.peer_idle)
    }

    /// True if a keep-alive must be sent now. The keep-alive then counts as sent.
    pub fn take_keepalive_due(&mut self, now: Time) -> bool {
        let due = now >= self.last_sent_at + KEEP_ALIVE_INTERVAL;
        if due {
            self.last_sent_at = now;
        }
        due
    }

    pub fn is_lost(&self, now: Time) -> bool {
        now >= self.last_received_at + self.peer_idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_triggers_keepalives_and_a_lost_peer() {
        let start = Time::from_start(Duration::from_secs(7));
        let at = |millis| start + Duration::from_millis(millis);
        let mut liveness = Liveness::new(start, PEER_IDLE_TIMEOUT);
        assert_eq!(liveness.due(), at(1000));
        assert!(!liveness.take_keepalive_due(at(999)));
        assert!(liveness.take_keepalive_due(at(1000)) && !liveness.take_keepalive_due(at(1000)));
        liveness.record_sent(at(4500));
        assert_eq!(liveness.due(), at(5000));
        assert!(!liveness.is_lost(at(4999)) && liveness.is_lost(at(5000)));
        liveness.record_received(at(3000));
        assert!(!liveness.is_lost(at(7999)) && liveness.is_lost(at(8000)));
        // A packet that is read late does not move the last arrival back.
        liveness.record_received(at(1000));
        assert!(liveness.is_lost(at(8000)));
    }
}
