//! Names of runners: each is claimed by one process at a time.
//!
//! A claim expires unless its runner renews it, so the name of a runner that was killed is free
//! again soon. A second process with the same name, such as another pod of the same index, cannot
//! take part.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::jetstream::kv::{Entry, Operation, Store};

use crate::error::ClusterError;

/// Time after which a claim expires.
pub(crate) const EXPIRES: Duration = Duration::from_secs(15);

/// Interval of renewals.
const RENEWED_EVERY: Duration = Duration::from_secs(2);

/// Interval between attempts to claim a name that another process had.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Name of the coordinator as a client of NATS.
pub(crate) const COORDINATOR: &str = "coordinator";

/// Longest name.
const NAME_MAX: usize = 64;

/// Returns whether a text can be the name of a runner: one word of a subject of NATS, except
/// `coordinator`.
pub fn is_name(text: &str) -> bool {
    is_word(text) && text != COORDINATOR
}

/// Returns whether NATS takes a text as one word of a subject.
pub(crate) fn is_word(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=NAME_MAX).contains(&text.len()) && text.chars().all(allowed)
}

/// Error of a runner whose name another one has.
pub(crate) fn taken(name: &str) -> ClusterError {
    ClusterError::NameTaken {
        name: name.to_owned(),
        expires: EXPIRES,
    }
}

/// A name that this process has.
pub(crate) struct Claim {
    names: Store,
    name: String,
    /// True if another process has the name now.
    lost: Arc<AtomicBool>,
}

/// Owner of a name.
enum Owner {
    /// This process.
    Us,
    /// Another process, whose claim has this revision.
    Other(u64),
    /// NATS did not say.
    Unknown,
}

impl Claim {
    /// Claims a name. If another process has claimed it and does not renew the claim, waits until
    /// it expires.
    pub(crate) async fn take(
        names: &Store,
        name: &str,
        incarnation: &str,
    ) -> Result<Claim, ClusterError> {
        let mut first_seen = None;
        loop {
            match claim(names, name, incarnation).await {
                Owner::Us => break,
                Owner::Other(revision) if *first_seen.get_or_insert(revision) != revision => {
                    return Err(taken(name));
                }
                Owner::Other(_) | Owner::Unknown => {}
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        let lost = Arc::new(AtomicBool::new(false));
        let renewing = renew(
            names.clone(),
            name.to_owned(),
            incarnation.to_owned(),
            Arc::downgrade(&lost),
        );
        tokio::spawn(renewing);
        Ok(Claim {
            names: names.clone(),
            name: name.to_owned(),
            lost,
        })
    }

    /// Returns `true` if another process has the name now.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Frees the name at once.
    pub(crate) async fn release(self) {
        if !self.is_lost() {
            // If this fails, the claim expires.
            let _ = self.names.delete(&self.name).await;
        }
    }
}

/// Renews a claim until it is dropped or lost.
async fn renew(names: Store, name: String, incarnation: String, lost: Weak<AtomicBool>) {
    loop {
        tokio::time::sleep(RENEWED_EVERY).await;
        let Some(lost) = lost.upgrade() else {
            return;
        };
        let owner = names.entry(&name).await;
        match owner {
            Ok(Some(entry)) if is_live(&entry) && entry.value != incarnation => {
                return lost.store(true, Ordering::Relaxed);
            }
            Ok(Some(entry)) if is_live(&entry) => {
                let value = incarnation.clone().into();
                let _ = names.update(&name, value, entry.revision).await;
            }
            // The claim has expired while NATS was unreachable.
            Ok(_) => {
                if let Owner::Other(_) = claim(&names, &name, &incarnation).await {
                    return lost.store(true, Ordering::Relaxed);
                }
            }
            // Tried again.
            Err(_) => {}
        }
    }
}

/// Returns `true` unless the entry marks that the name was freed.
fn is_live(entry: &Entry) -> bool {
    entry.operation == Operation::Put
}

/// Claims the name if it is free.
async fn claim(names: &Store, name: &str, incarnation: &str) -> Owner {
    let created = names.create(name, incarnation.to_owned().into()).await;
    if created.is_ok() {
        return Owner::Us;
    }
    match names.entry(name).await {
        Ok(Some(entry)) if is_live(&entry) && entry.value == incarnation => Owner::Us,
        Ok(Some(entry)) if is_live(&entry) => Owner::Other(entry.revision),
        _ => Owner::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words() {
        assert!(is_name("load-1_a") && is_name("7"));
        for text in [
            "",
            "coordinator",
            "a b",
            "a.b",
            "a>",
            "*",
            "ä",
            &"x".repeat(65),
        ] {
            assert!(!is_name(text), "{text}");
        }
    }
}
