//! Reports of a runner on their way into the log: in order, each until the log has it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use engine::RunnerReport;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::background::Background;
use crate::reports::Encoder;

/// Header by which the log recognises a repeated message (ADR-4 of NATS, "Nats-Msg-Id").
const MESSAGE_ID: &str = "Nats-Msg-Id";

/// Header with the number of a message among those of its runner.
pub(crate) const SEQUENCE: &str = "Sg-Sequence";

/// Time for which the log is waited for before a message is repeated.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(5);

/// Pause before a message is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Reports that fit into one batch.
const BATCH_REPORTS: usize = 500;

/// Time after which reports leave without waiting for more.
const BATCH_WITHIN: Duration = Duration::from_millis(250);

/// Time for which the log is tried after the runner has left the run.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);

/// Maximum length of a reason, in characters.
const REASON_MAX: usize = 200;

/// Reason for which NATS did not take the last report. `None` if it took it, or did not answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusal(Arc<Mutex<Option<String>>>);

impl Refusal {
    pub(crate) fn get(&self) -> Option<String> {
        let reason = self.0.lock();
        reason.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, reason: Option<String>) {
        let reason = reason.map(|reason| reason.chars().take(REASON_MAX).collect());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
}

/// The reports of one runner on their way.
pub(crate) struct Outbox {
    encoder: Encoder,
    batch: Vec<RunnerReport>,
    begun: Instant,
    pieces: UnboundedSender<Vec<u8>>,
    /// Time at which each piece was queued, for the pieces that the log may not have yet.
    waiting: VecDeque<Instant>,
    /// Number of pieces that were sent, and that the log has.
    sent: usize,
    acknowledged: Arc<AtomicUsize>,
}

impl Outbox {
    /// Starts to send. `id` identifies the run, the runner and its process. `refusal` has the
    /// reason if NATS does not take a report.
    pub(crate) fn start(
        background: &Background,
        context: Context,
        subject: String,
        id: String,
        encoder: Encoder,
        refusal: Refusal,
    ) -> Outbox {
        let (pieces, inbox) = unbounded_channel();
        let acknowledged = Arc::new(AtomicUsize::new(0));
        background.spawn(publish(
            context,
            subject,
            id,
            inbox,
            acknowledged.clone(),
            refusal,
        ));
        Outbox {
            encoder,
            batch: Vec::new(),
            begun: Instant::now(),
            pieces,
            waiting: VecDeque::new(),
            sent: 0,
            acknowledged,
        }
    }

    /// Adds a report. A batch leaves with a window, with the last report, or when it is full.
    pub(crate) fn add(&mut self, report: RunnerReport) {
        if self.batch.is_empty() {
            self.begun = Instant::now();
        }
        let completes = matches!(report, RunnerReport::Window(_) | RunnerReport::Ended);
        self.batch.push(report);
        if completes || self.batch.len() >= BATCH_REPORTS {
            self.flush();
        }
    }

    /// Lets reports leave that have waited long enough.
    pub(crate) fn tick(&mut self) {
        if !self.batch.is_empty() && self.begun.elapsed() >= BATCH_WITHIN {
            self.flush();
        }
    }

    fn flush(&mut self) {
        for piece in self.encoder.encode(&self.batch) {
            self.waiting.push_back(Instant::now());
            self.sent += 1;
            // The task ends only with the sender.
            let _ = self.pieces.send(piece);
        }
        self.batch.clear();
    }

    /// Returns `true` if the log has all reports.
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.sent == self.acknowledged.load(Ordering::Relaxed)
    }

    /// Time for which the oldest piece has waited for the log.
    pub(crate) fn oldest_wait(&mut self) -> Duration {
        let waits = self.sent - self.acknowledged.load(Ordering::Relaxed);
        let has = self.waiting.len().saturating_sub(waits);
        self.waiting.drain(..has);
        let oldest = self.waiting.front();
        oldest.map_or(Duration::ZERO, Instant::elapsed)
    }
}

async fn publish(
    context: Context,
    subject: String,
    id: String,
    mut pieces: UnboundedReceiver<Vec<u8>>,
    acknowledged: Arc<AtomicUsize>,
    refusal: Refusal,
) {
    let mut number: u64 = 0;
    while let Some(piece) = pieces.recv().await {
        let bytes = bytes::Bytes::from(piece);
        let mut headers = HeaderMap::new();
        headers.insert(MESSAGE_ID, format!("{id}/{number}"));
        headers.insert(SEQUENCE, number.to_string());
        let mut left_at = None;
        loop {
            let sent = async {
                let published =
                    context.publish_with_headers(subject.clone(), headers.clone(), bytes.clone());
                published.await?.await
            };
            // Only an acknowledgement counts: messages sent during an outage may be lost.
            match tokio::time::timeout(ACKNOWLEDGED_WITHIN, sent).await {
                Ok(Ok(_)) => break,
                Ok(Err(error)) => refusal.set(Some(error.to_string())),
                Err(_) => refusal.set(None),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
            if pieces.is_closed() {
                let left_at = left_at.get_or_insert_with(Instant::now);
                if left_at.elapsed() >= GIVEN_UP_AFTER {
                    return;
                }
            }
        }
        refusal.set(None);
        number += 1;
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}
