//! Signs of life between a runner and its coordinator.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use async_nats::Client;
use futures_util::StreamExt;
use net::clock::monotonic_nanos;

use super::COORDINATOR_LOST;
use crate::orders::{Beat, encode};
use crate::outbox::Refusal;
use crate::storage::is_sent_by_a_client;

/// Interval between signs of life.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Signs of life, in both directions.
pub(super) struct Signs {
    coordinator_seen: Mutex<Instant>,
    pub(super) clients: AtomicU64,
    /// Lateness of the start, in nanoseconds; negative before it.
    pub(super) late: AtomicI64,
    pub(super) made: AtomicU64,
    pub(super) has_ended: AtomicBool,
    /// Last turn of the thread that carries out orders, by the monotonic clock.
    pub(super) turned: AtomicI64,
    /// Reason for which NATS refuses reports.
    pub(super) refusal: Refusal,
}

impl Signs {
    pub(super) fn new() -> Signs {
        Signs {
            coordinator_seen: Mutex::new(Instant::now()),
            clients: AtomicU64::new(0),
            late: AtomicI64::new(-1),
            made: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            turned: AtomicI64::new(monotonic_nanos()),
            refusal: Refusal::default(),
        }
    }

    pub(super) fn silence(&self) -> Duration {
        let seen = self.coordinator_seen.lock();
        seen.unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn beat(&self) -> Beat {
        let stuck = monotonic_nanos().saturating_sub(self.turned.load(Ordering::Relaxed));
        Beat {
            clients: self.clients.load(Ordering::Relaxed),
            late: u64::try_from(self.late.load(Ordering::Relaxed)).ok(),
            made: self.made.load(Ordering::Relaxed),
            has_ended: self.has_ended.load(Ordering::Relaxed),
            stuck: u64::try_from(stuck / 1_000_000).unwrap_or(0),
            refused: self.refusal.get(),
        }
    }
}

/// Sends signs of life until the part ends.
pub(super) async fn give_signs(client: Client, subject: String, signs: Weak<Signs>) {
    while let Some(beat) = signs.upgrade().map(|signs| signs.beat()) {
        let _ = client.publish(subject.clone(), encode(&beat)).await;
        tokio::time::sleep(BEAT_INTERVAL).await;
    }
}

/// Notes signs of life of the coordinator until the part ends.
pub(super) async fn see_coordinator(client: Client, subject: String, signs: Weak<Signs>) {
    let Ok(mut messages) = client.subscribe(subject).await else {
        return;
    };
    loop {
        let message = tokio::time::timeout(COORDINATOR_LOST, messages.next()).await;
        let Some(signs) = signs.upgrade() else {
            return;
        };
        match message {
            Ok(Some(message)) if !is_sent_by_a_client(message.headers.as_ref()) => {}
            Ok(Some(_)) => {
                let seen = signs.coordinator_seen.lock();
                *seen.unwrap_or_else(PoisonError::into_inner) = Instant::now();
            }
            Ok(None) => return,
            // Silence is judged by the runner.
            Err(_) => {}
        }
    }
}
