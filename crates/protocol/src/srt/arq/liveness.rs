//! Keep-alives, and detection of a lost peer (SRT, 3.2.3; libsrt's EXP timer).

use std::time::Duration;

use measure::Time;

/// Time without a packet to the peer after which a keep-alive is sent.
pub const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(1);

/// Default time without a packet from the peer after which the peer is lost: `SRTO_PEERIDLETIMEO`
/// of libsrt.
pub const PEER_IDLE: Duration = Duration::from_secs(5);

/// Times of the last packet in each direction.
#[derive(Clone, Copy, Debug)]
pub struct Liveness {
    heard: Time,
    said: Time,
    peer_idle: Duration,
}

impl Liveness {
    /// State of a connection established at `now`. The peer is lost after `peer_idle` without a
    /// packet: see [`PEER_IDLE`].
    pub fn new(now: Time, peer_idle: Duration) -> Liveness {
        Liveness {
            heard: now,
            said: now,
            peer_idle,
        }
    }

    /// Records a packet of any kind from the peer.
    #[inline]
    pub fn heard(&mut self, at: Time) {
        self.heard = self.heard.max(at);
    }

    /// Records a packet of any kind to the peer.
    #[inline]
    pub fn said(&mut self, at: Time) {
        self.said = self.said.max(at);
    }

    /// Time at which [`Liveness::keepalive`] or [`Liveness::is_lost`] may change its result.
    pub fn due(&self) -> Time {
        (self.said + KEEP_ALIVE_AFTER).min(self.heard + self.peer_idle)
    }

    /// True if a keep-alive must be sent now. The keep-alive then counts as sent.
    pub fn keepalive(&mut self, now: Time) -> bool {
        let due = now >= self.said + KEEP_ALIVE_AFTER;
        if due {
            self.said = now;
        }
        due
    }

    pub fn is_lost(&self, now: Time) -> bool {
        now >= self.heard + self.peer_idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_triggers_keepalives_and_a_lost_peer() {
        let start = Time::from_start(Duration::from_secs(7));
        let at = |millis| start + Duration::from_millis(millis);
        let mut liveness = Liveness::new(start, PEER_IDLE);
        assert_eq!(liveness.due(), at(1000));
        assert!(!liveness.keepalive(at(999)));
        assert!(liveness.keepalive(at(1000)) && !liveness.keepalive(at(1000)));
        liveness.said(at(4500));
        assert_eq!(liveness.due(), at(5000));
        assert!(!liveness.is_lost(at(4999)) && liveness.is_lost(at(5000)));
        liveness.heard(at(3000));
        assert!(!liveness.is_lost(at(7999)) && liveness.is_lost(at(8000)));
        // A packet that is read late does not move the last arrival back.
        liveness.heard(at(1000));
        assert!(liveness.is_lost(at(8000)));
    }
}
