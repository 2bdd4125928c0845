//! Names of runners: each is claimed by one process at a time.
//!
//! A claim expires unless its runner renews it, so the name of a runner that was killed is free
//! again soon. A second process with the same name, such as another pod of the same index, cannot
//! take part.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::kv::Store;

use crate::error::ClusterError;

/// Time after which a claim expires.
pub(crate) const EXPIRES: Duration = Duration::from_secs(15);

/// Interval of renewals.
const RENEWED_EVERY: Duration = Duration::from_secs(4);

/// Longest name.
const NAME_MAX: usize = 64;

/// Returns whether a text can be the name of a runner: a word that NATS takes as part of a subject.
pub fn is_name(text: &str) -> bool {
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
#[derive(Debug)]
pub(crate) struct Claim {
    /// True if another process has the name now.
    lost: Arc<AtomicBool>,
}

impl Claim {
    /// Claims a name.
    pub(crate) async fn take(
        names: &Store,
        name: &str,
        incarnation: &str,
    ) -> Result<Claim, ClusterError> {
        if !is_ours(names, name, incarnation).await {
            return Err(taken(name));
        }
        let lost = Arc::new(AtomicBool::new(false));
        let (names, noted) = (names.clone(), lost.clone());
        let (name, incarnation) = (name.to_owned(), incarnation.to_owned());
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RENEWED_EVERY).await;
                if Arc::strong_count(&noted) == 1 {
                    // The claim was dropped: the name is free at once.
                    let _ = names.delete(&name).await;
                    return;
                }
                let owner = names.entry(&name).await;
                let other = matches!(&owner, Ok(Some(entry)) if entry.value != incarnation);
                match owner {
                    Ok(Some(_)) if other => return noted.store(true, Ordering::Relaxed),
                    Ok(Some(entry)) => {
                        let value = incarnation.clone().into();
                        let _ = names.update(&name, value, entry.revision).await;
                    }
                    // It has expired while NATS was out of reach.
                    Ok(None) if !is_ours(&names, &name, &incarnation).await => {
                        return noted.store(true, Ordering::Relaxed);
                    }
                    // Tried again.
                    Ok(None) | Err(_) => {}
                }
            }
        });
        Ok(Claim { lost })
    }

    /// Returns `true` if another process has the name now.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Claims the name if it is free. Returns `true` if this process has it.
async fn is_ours(names: &Store, name: &str, incarnation: &str) -> bool {
    if names
        .create(name, incarnation.to_owned().into())
        .await
        .is_ok()
    {
        return true;
    }
    matches!(names.entry(name).await, Ok(Some(entry)) if entry.value == incarnation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words() {
        assert!(is_name("load-1_a") && is_name("7"));
        for text in ["", "a b", "a.b", "a>", "*", "ä", &"x".repeat(65)] {
            assert!(!is_name(text), "{text}");
        }
    }
}
