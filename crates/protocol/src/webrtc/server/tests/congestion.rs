//! Publishers over a path that carries less than they would send.

use super::passing_on::made;
use super::*;
use crate::media::source::MediaSource;
use crate::webrtc::config::Control;

const SECONDS: u64 = 60;

/// What a publisher of 1 Mb/s with sound did over a path of that rate, in the second half of its
/// time: the bit rate of its payload, and the share that was lost.
fn publish(rate: u64, congestion: Control, transport_cc: bool, seed: u64) -> (f64, f64) {
    let mut settings = settings(seed);
    settings.up = LinkSettings {
        delay: Duration::from_millis(20),
        rate: Some(rate),
        ..LinkSettings::default()
    };
    let keys = ClientConfig {
        congestion,
        retransmit: false,
        // The server's word comes too late where the queue is full of media.
        silence: measure::units::TimeSpan(Duration::from_secs(60)),
        ..ClientConfig::default()
    };
    let config = ServerConfig {
        transport_cc,
        ..server(&[])
    };
    let source = MediaSource::live(&made(), None).expect("it can be made");
    let publisher = client(keys, &url("whip", "own"), seed).publishing(Arc::new(source));
    let mut played = Played::begin(settings, publisher, config);
    let mut half = || {
        played.pair.run(Duration::from_secs(SECONDS / 2));
        let lost = played.count(m::REPORTED_LOST);
        (
            played.count(m::SENT_BYTES),
            played.count(m::SENT_PACKETS),
            lost,
        )
    };
    let (before, after) = (half(), half());
    let bits = (after.0 - before.0) as f64 * 8.0 / (SECONDS / 2) as f64;
    let lost = after.2.saturating_sub(before.2) as f64 / (after.1 - before.1) as f64;
    (bits, lost)
}

#[test]
fn a_publisher_that_follows_finds_what_its_path_carries_and_one_that_does_not_loses_the_rest() {
    for (rate, seed) in [(400_000, 1), (600_000, 2), (900_000, 3)] {
        // Headers take a tenth of it, and sound has small packets.
        let (bits, lost) = publish(rate, Control::Follow, true, seed);
        let share = bits / rate as f64;
        assert!(
            (0.6..1.0).contains(&share) && lost < 0.02,
            "{rate}: {share} {lost}"
        );
        let (bits, lost) = publish(rate, Control::Ignore, true, seed);
        assert!(bits > 1e6 && lost > 0.1, "{rate}: {bits} {lost}");
    }
}

#[test]
fn a_publisher_with_room_sends_all() {
    let (bits, lost) = publish(5_000_000, Control::Follow, true, 1);
    assert!(bits > 1_040_000.0 && lost == 0.0, "{bits} {lost}");
}

#[test]
fn without_word_of_arrivals_loss_is_followed() {
    let (bits, lost) = publish(600_000, Control::Follow, false, 1);
    assert!(bits < 700_000.0 && lost < 0.15, "{bits} {lost}");
}
