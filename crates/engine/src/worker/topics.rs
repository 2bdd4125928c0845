//! Topic messages between the sessions of a run.

use std::collections::HashMap;
use std::sync::Arc;

use super::ids::SessionKey;

/// Maximum number of topics in a run: answers of a server must not make the tester grow without
/// bound.
pub(super) const TOPICS_MAX: usize = 100_000;

#[derive(Default)]
struct Topic {
    last: Option<Arc<str>>,
    listeners: Vec<SessionKey>,
}

/// Topics known to a worker.
#[derive(Default)]
pub(super) struct Topics {
    topics: HashMap<Arc<str>, Topic>,
}

impl Topics {
    /// Returns `true` if the topic exists or can be created.
    pub(super) fn has_room_for(&self, name: &str) -> bool {
        self.topics.len() < TOPICS_MAX || self.topics.contains_key(name)
    }

    /// Subscribes a session to a topic. Returns the last message on it.
    pub(super) fn subscribe(&mut self, key: SessionKey, name: Arc<str>) -> Option<Arc<str>> {
        let topic = self.topics.entry(name).or_default();
        topic.listeners.push(key);
        topic.last.clone()
    }

    /// Stores a message as the last one of its topic. Returns the subscribers, or `None` if the
    /// limit of topics is reached.
    pub(super) fn publish(&mut self, name: &Arc<str>, message: &Arc<str>) -> Option<&[SessionKey]> {
        if !self.has_room_for(name) {
            return None;
        }
        let topic = self.topics.entry(name.clone()).or_default();
        topic.last = Some(message.clone());
        Some(&topic.listeners)
    }

    /// Unsubscribes a session.
    pub(super) fn unsubscribe(&mut self, key: SessionKey, names: &[Arc<str>]) {
        for name in names {
            if let Some(topic) = self.topics.get_mut(name) {
                topic.listeners.retain(|&listener| listener != key);
                // The last message is kept for later subscribers.
                if topic.listeners.is_empty() && topic.last.is_none() {
                    self.topics.remove(name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionKey = SessionKey {
        index: 1,
        serial: 1,
    };

    #[test]
    fn late_subscriber_receives_the_last_message() {
        let mut topics = Topics::default();
        let name: Arc<str> = "stream".into();
        assert_eq!(topics.publish(&name, &"begun".into()), Some(&[][..]));
        assert_eq!(
            topics.subscribe(ONE, name.clone()).as_deref(),
            Some("begun")
        );
        assert_eq!(topics.publish(&name, &"ended".into()), Some(&[ONE][..]));
        topics.unsubscribe(ONE, std::slice::from_ref(&name));
        assert_eq!(topics.publish(&name, &"again".into()), Some(&[][..]));
    }

    #[test]
    fn topics_are_bounded_and_empty_ones_are_removed() {
        let mut topics = Topics::default();
        let name = |number: usize| -> Arc<str> { number.to_string().into() };
        for number in 0..TOPICS_MAX {
            topics.subscribe(ONE, name(number));
        }
        assert!(topics.has_room_for("0") && !topics.has_room_for("more"));
        assert_eq!(topics.publish(&name(TOPICS_MAX), &"".into()), None);
        topics.unsubscribe(ONE, &[name(5)]);
        assert!(topics.has_room_for("more"));
    }
}
