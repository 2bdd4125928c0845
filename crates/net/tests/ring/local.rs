//! On the loopback interface of this machine, between sockets of the test itself.

use std::time::Duration;

use net::ReceiveBatch;
use net::ring::Family;

use crate::support::{Tap, port, socket};

#[test]
fn the_ring_and_a_socket_tell_the_same() {
    for (family, local) in [(Family::V4, "127.0.0.1:0"), (Family::V6, "[::1]:0")] {
        let (sender, receiver, stranger) = (socket(local), socket(local), socket(local));
        let Some(mut tap) = Tap::open(family, port(&receiver)..=port(&receiver), |_| {}) else {
            return;
        };
        let to = receiver.local_addr().expect("bound");
        for number in 0..50u8 {
            let length = [0, 1, 12, 100, 1200, 1472, 9000][usize::from(number) % 7];
            sender
                .send_to(&vec![number; length], to)
                .expect("loopback takes it");
            let other = stranger.local_addr().expect("bound");
            sender.send_to(&[number], other).expect("loopback takes it");
        }
        let taken = tap.drain();
        assert_eq!((taken.frames, taken.datagrams), (50, 50));
        let mut batch = ReceiveBatch::new();
        assert_eq!(batch.receive(&receiver).expect("they are there").count, 50);
        for (seen, truth) in tap.datagrams.iter().zip(batch.datagrams(&tap.clock)) {
            assert_eq!((seen.from, seen.length), (truth.from, truth.length));
            assert_eq!(seen.to, to);
            // Each keeps as much as it likes.
            let kept = truth.bytes.len().min(seen.bytes.len());
            assert_eq!(truth.bytes[..kept], seen.bytes[..kept]);
            assert!(seen.bytes.len() >= truth.length.min(76));
            assert_eq!(seen.overhead, if family == Family::V4 { 28 } else { 48 });
            let (early, late) = (seen.at.min(truth.at), seen.at.max(truth.at));
            assert!(
                late <= early + Duration::from_micros(100),
                "{early:?} {late:?}"
            );
        }
        assert_eq!(tap.ring.counters(), net::ring::Counters::default());
    }
}
