//! What the sessions of a run tell each other, by topic.

use std::collections::HashMap;
use std::sync::Arc;

use super::keys::SessionKey;

/// How many topics a run may have: a server's answer must not make the tester grow without end.
pub(super) const TOPICS: usize = 100_000;

/// A topic more than there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

#[derive(Default)]
struct Topic {
    last: Option<Arc<str>>,
    listeners: Vec<SessionKey>,
}

/// The topics that a worker knows.
#[derive(Default)]
pub(super) struct Topics {
    topics: HashMap<Arc<str>, Topic>,
}

impl Topics {
    /// Whether a topic of that name is there, or there is room for it.
    pub(super) fn has_room_for(&self, name: &str) -> bool {
        self.topics.len() < TOPICS || self.topics.contains_key(name)
    }

    /// A session listens from now on; gives what was told last.
    pub(super) fn listen(&mut self, key: SessionKey, name: Arc<str>) -> Option<Arc<str>> {
        let topic = self.topics.entry(name).or_default();
        topic.listeners.push(key);
        topic.last.clone()
    }

    /// Keeps what is told; gives those who listen.
    pub(super) fn tell(
        &mut self,
        name: &Arc<str>,
        message: &Arc<str>,
    ) -> Result<&[SessionKey], Full> {
        if !self.has_room_for(name) {
            return Err(Full);
        }
        let topic = self.topics.entry(name.clone()).or_default();
        topic.last = Some(message.clone());
        Ok(&topic.listeners)
    }

    /// A session listens no more.
    pub(super) fn leave(&mut self, key: SessionKey, names: &[Arc<str>]) {
        for name in names {
            if let Some(topic) = self.topics.get_mut(name) {
                topic.listeners.retain(|&listener| listener != key);
                // What was said on it is kept for those who are yet to come.
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
        place: 1,
        serial: 1,
    };

    #[test]
    fn who_listens_late_hears_what_was_told_last() {
        let mut topics = Topics::default();
        let name: Arc<str> = "stream".into();
        assert_eq!(topics.tell(&name, &"begun".into()), Ok(&[][..]));
        assert_eq!(topics.listen(ONE, name.clone()).as_deref(), Some("begun"));
        assert_eq!(topics.tell(&name, &"ended".into()), Ok(&[ONE][..]));
        topics.leave(ONE, std::slice::from_ref(&name));
        assert_eq!(topics.tell(&name, &"again".into()), Ok(&[][..]));
    }

    #[test]
    fn topics_are_bounded_and_one_on_which_nothing_was_told_goes_with_its_listener() {
        let mut topics = Topics::default();
        let name = |number: usize| -> Arc<str> { number.to_string().into() };
        for number in 0..TOPICS {
            topics.listen(ONE, name(number));
        }
        assert!(topics.has_room_for("0") && !topics.has_room_for("more"));
        assert_eq!(topics.tell(&name(TOPICS), &"".into()), Err(Full));
        topics.leave(ONE, &[name(5)]);
        assert!(topics.has_room_for("more"));
    }
}
