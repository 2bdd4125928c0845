//! Silence after which media counts as stopped when its client is stopped.

use std::time::Duration;

/// A shorter silence does not mean that media stopped: packets are read up to 0.4 s late, and
/// servers send in bursts.
const SILENCE_MIN: Duration = Duration::from_secs(2);

/// A silence of this many times the longest gap so far is more than another gap.
const GAP_FACTOR: u32 = 4;

/// Media that arrived for less time may be a single burst, which says nothing about the gaps
/// between packets.
const MEDIA_MIN: Duration = Duration::from_millis(500);

/// Returns the silence after which media counts as stopped that arrived for `came`, with at most
/// `longest_gap` between two packets. `silence` is the configured silence after which media counts
/// as stopped while its client continues.
pub fn bound(came: Duration, longest_gap: Duration, silence: Duration) -> Duration {
    let usual = SILENCE_MIN.max(longest_gap * GAP_FACTOR);
    match came < MEDIA_MIN {
        true => usual.max(silence / 2),
        false => usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_grows_with_earlier_gaps() {
        let ms = Duration::from_millis;
        assert_eq!(bound(ms(1000), ms(40), ms(10_000)), ms(2000));
        assert_eq!(bound(ms(9000), ms(3000), ms(10_000)), ms(12_000));
        // One packet, or one burst.
        assert_eq!(bound(ms(0), ms(0), ms(10_000)), ms(5000));
        assert_eq!(bound(ms(100), ms(1), ms(1000)), ms(2000));
    }
}
