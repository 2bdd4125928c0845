//! How long media that has come before may be silent when its client is stopped.

use std::time::Duration;

/// Media that is silent for less has not stopped: packets are read up to 0.4 s late, and servers
/// send in bursts.
const SHORTEST: Duration = Duration::from_secs(2);

/// So many times the longest gap before are no more of the same.
const GAPS: u32 = 4;

/// Media that has come for less time may have been one burst: it does not tell how often packets
/// come.
const TELLS: Duration = Duration::from_millis(500);

/// From which silence on media has stopped that came for the time `came`, with at most
/// `longest_gap` between two packets. `silence` is the configured time after which media counts as
/// stopped while its client goes on.
pub(crate) fn bound(came: Duration, longest_gap: Duration, silence: Duration) -> Duration {
    let usual = SHORTEST.max(longest_gap * GAPS);
    match came < TELLS {
        true => usual.max(silence / 2),
        false => usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_grows_with_the_gaps_before() {
        let ms = Duration::from_millis;
        assert_eq!(bound(ms(1000), ms(40), ms(10_000)), ms(2000));
        assert_eq!(bound(ms(9000), ms(3000), ms(10_000)), ms(12_000));
        // One packet, or one burst.
        assert_eq!(bound(ms(0), ms(0), ms(10_000)), ms(5000));
        assert_eq!(bound(ms(100), ms(1), ms(1000)), ms(2000));
    }
}
