//! Publishers over a path with less capacity than their media needs.

use super::forwarding::published_media;
use super::*;
use crate::config::Control;
use kit::media::source::MediaSource;

const SECONDS: u64 = 60;

/// Runs a publisher of 1 Mb/s with audio over a path of `rate`. Returns the bit rate of the payload
/// and the lost share in the second half of the run.
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
        // Feedback of the server is late if media fills the queue.
        silence: measure::units::TimeSpan(Duration::from_secs(60)),
        ..ClientConfig::default()
    };
    let config = ServerConfig {
        transport_cc,
        ..server(&[])
    };
    let source = MediaSource::adaptive(&published_media(), None).expect("it can be made");
    let publisher = client(keys, &url("whip", "own"), seed).with_source(Arc::new(source));
    let mut test = TestRun::begin(settings, publisher, config);
    let mut half = || {
        test.pair.run(Duration::from_secs(SECONDS / 2));
        let lost = test.count(m::REPORTED_LOST);
        (test.count(m::SENT_BYTES), test.count(m::SENT_PACKETS), lost)
    };
    let (before, after) = (half(), half());
    let bits = (after.0 - before.0) as f64 * 8.0 / (SECONDS / 2) as f64;
    let lost = after.2.saturating_sub(before.2) as f64 / (after.1 - before.1) as f64;
    (bits, lost)
}

#[test]
fn congestion_control_fits_the_path_and_avoids_loss() {
    for (rate, seed) in [(400_000, 1), (600_000, 2), (900_000, 3)] {
        // Headers take a tenth of the rate, and audio has small packets.
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
fn publisher_with_enough_capacity_sends_everything() {
    let (bits, lost) = publish(5_000_000, Control::Follow, true, 1);
    assert!(bits > 1_040_000.0 && lost == 0.0, "{bits} {lost}");
}

#[test]
fn publisher_follows_loss_without_arrival_feedback() {
    let (bits, lost) = publish(600_000, Control::Follow, false, 1);
    assert!(bits < 700_000.0 && lost < 0.15, "{bits} {lost}");
}
