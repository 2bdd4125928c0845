//! Keepalives, and a peer that is gone (SRT, 3.2.3; libsrt's EXP timer).

use std::time::Duration;

use measure::Time;

/// After so long without a packet of ours, a keepalive is sent.
pub const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(1);

/// After so long without a packet of the peer's it is gone, where nothing else is said:
/// `SRTO_PEERIDLETIMEO` of libsrt.
pub const PEER_IDLE: Duration = Duration::from_secs(5);

/// When something was heard and said last.
#[derive(Clone, Copy, Debug)]
pub struct Liveness {
    heard: Time,
    said: Time,
    peer_idle: Duration,
}

impl Liveness {
    /// Of a connection that stands since then. A peer is gone after `peer_idle`: see [`PEER_IDLE`].
    pub fn new(now: Time, peer_idle: Duration) -> Liveness {
        Liveness {
            heard: now,
            said: now,
            peer_idle,
        }
    }

    /// A packet of the peer's came, of any kind.
    #[inline]
    pub fn heard(&mut self, at: Time) {
        self.heard = self.heard.max(at);
    }

    /// A packet was sent, of any kind.
    #[inline]
    pub fn said(&mut self, at: Time) {
        self.said = self.said.max(at);
    }

    /// When [`Liveness::keepalive`] or [`Liveness::is_lost`] may say something else.
    pub fn due(&self) -> Time {
        (self.said + KEEP_ALIVE_AFTER).min(self.heard + self.peer_idle)
    }

    /// Whether a keepalive is to be sent now. It counts as sent.
    pub fn keepalive(&mut self, now: Time) -> bool {
        let due = now >= self.said + KEEP_ALIVE_AFTER;
        if due {
            self.said = now;
        }
        due
    }

    /// Whether the peer is gone.
    pub fn is_lost(&self, now: Time) -> bool {
        now >= self.heard + self.peer_idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_nothing_says_so_every_second_and_who_hears_nothing_goes() {
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
        // What is read late was heard before.
        liveness.heard(at(1000));
        assert!(liveness.is_lost(at(8000)));
    }
}
