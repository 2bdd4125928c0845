//! Topic messages between clients of different runners.
//!
//! Topic messages are sent outside the log, so that they arrive at once. They may be lost, so each
//! is repeated several times, unless a newer one of its topic has replaced it. Receivers recognise
//! repeated messages by their number.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Weak;
use std::time::{Duration, Instant};

use async_nats::Client;
use bytes::Bytes;
use crossbeam_channel::{Receiver, bounded};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::signs::Signs;
use crate::background::Background;
use crate::orders::{TopicMessage, encode, listen};

/// Times from a message to its repetitions. Runners stop their clients after a longer outage.
const REPEATED_AFTER: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(7),
    Duration::from_secs(12),
];

/// Messages of other runners that may wait.
const WAITING_MAX: usize = 1 << 14;

/// Topics of a run.
const TOPICS_MAX: usize = 100_000;

/// Interval between checks whether the part has ended.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Topic messages of one part of a run.
pub(super) struct Topics {
    runner: usize,
    /// Number of the last message.
    number: u64,
    /// Last own message of each topic, by its number.
    own: HashMap<u64, (String, Bytes)>,
    latest: HashMap<String, u64>,
    /// Repetitions that are due, with the number of the message and of the repetition.
    repeats: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    /// Number of the last message of each topic, by runner.
    seen: HashMap<(usize, String), u64>,
    outbox: UnboundedSender<Bytes>,
    inbox: Receiver<TopicMessage>,
}

impl Topics {
    /// Begins to send to the first of two subjects, and to listen to the second.
    pub(super) fn start(
        background: &Background,
        client: &Client,
        own: String,
        all: String,
        runner: usize,
        signs: Weak<Signs>,
    ) -> Topics {
        let (sender, inbox) = bounded(WAITING_MAX);
        let receive = move |_: &str, message, _: &Signs| {
            // If there is no room, the message is repeated.
            let _ = sender.try_send(message);
        };
        let receiving = listen(client.clone(), all, signs, CHECK_INTERVAL, receive);
        background.spawn(receiving);
        let (outbox, outgoing) = unbounded_channel();
        background.spawn(send(client.clone(), own, outgoing));
        Topics {
            runner,
            number: 0,
            own: HashMap::new(),
            latest: HashMap::new(),
            repeats: BinaryHeap::new(),
            seen: HashMap::new(),
            outbox,
            inbox,
        }
    }

    /// Sends a message to the other runners.
    pub(super) fn send(&mut self, topic: &str, message: &str, now: Instant) {
        self.number += 1;
        let number = self.number;
        let bytes = encode(&TopicMessage {
            runner: self.runner,
            number,
            topic: topic.to_owned(),
            message: message.to_owned(),
        });
        // The task ends with this.
        let _ = self.outbox.send(bytes.clone());
        if let Some(replaced) = self.latest.insert(topic.to_owned(), number) {
            self.own.remove(&replaced);
        }
        self.own.insert(number, (topic.to_owned(), bytes));
        self.repeats
            .push(Reverse((now + REPEATED_AFTER[0], number, 0)));
    }

    /// Repeats the messages that are due.
    pub(super) fn repeat(&mut self, now: Instant) {
        while let Some(Reverse((due, number, count))) = self.repeats.peek().copied()
            && due <= now
        {
            self.repeats.pop();
            // A newer message may have replaced it.
            let Some((_, bytes)) = self.own.get(&number) else {
                continue;
            };
            let _ = self.outbox.send(bytes.clone());
            let begun = due - REPEATED_AFTER[count];
            match REPEATED_AFTER.get(count + 1) {
                Some(after) => self
                    .repeats
                    .push(Reverse((begun + *after, number, count + 1))),
                None => {
                    if let Some((topic, _)) = self.own.remove(&number) {
                        self.latest.remove(&topic);
                    }
                }
            }
        }
    }

    /// Next message of another runner that is new.
    pub(super) fn take(&mut self) -> Option<TopicMessage> {
        loop {
            let message = self.inbox.try_recv().ok()?;
            if self.is_new(&message) {
                return Some(message);
            }
        }
    }

    fn is_new(&mut self, message: &TopicMessage) -> bool {
        let key = (message.runner, message.topic.clone());
        let has_room = self.seen.len() < TOPICS_MAX || self.seen.contains_key(&key);
        if message.runner == self.runner || !has_room {
            return false;
        }
        let last = self.seen.entry(key).or_insert(0);
        let is_new = message.number > *last;
        *last = message.number.max(*last);
        is_new
    }
}

async fn send(client: Client, subject: String, mut outgoing: UnboundedReceiver<Bytes>) {
    while let Some(message) = outgoing.recv().await {
        let _ = client.publish(subject.clone(), message).await;
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::Sender;

    use super::*;
    use crate::orders::decode;

    fn topics(runner: usize) -> (Topics, UnboundedReceiver<Bytes>, Sender<TopicMessage>) {
        let (sender, inbox) = bounded(10);
        let (outbox, outgoing) = unbounded_channel();
        let topics = Topics {
            runner,
            number: 0,
            own: HashMap::new(),
            latest: HashMap::new(),
            repeats: BinaryHeap::new(),
            seen: HashMap::new(),
            outbox,
            inbox,
        };
        (topics, outgoing, sender)
    }

    fn sent(outgoing: &mut UnboundedReceiver<Bytes>) -> Vec<String> {
        let all = std::iter::from_fn(|| outgoing.try_recv().ok());
        let messages = all.filter_map(|bytes| decode::<TopicMessage>(&bytes));
        messages.map(|one| one.message).collect()
    }

    #[test]
    fn message_is_repeated_until_a_newer_one_replaces_it() {
        let (mut topics, mut outgoing, _inbox) = topics(0);
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        topics.send("stream", "live", at(0));
        assert_eq!(sent(&mut outgoing), ["live"]);
        topics.repeat(at(2));
        assert_eq!(sent(&mut outgoing), ["live"]);
        topics.send("stream", "gone", at(2));
        topics.repeat(at(60));
        // Once at first, and four times again.
        assert_eq!(sent(&mut outgoing), ["gone"; 5]);
        topics.repeat(at(600));
        assert!(sent(&mut outgoing).is_empty());
        assert!(topics.own.is_empty() && topics.latest.is_empty());
    }

    #[test]
    fn repeated_and_own_messages_are_taken_once_or_never() {
        let (mut topics, _outgoing, sender) = topics(1);
        let message = |runner, number, text: &str| TopicMessage {
            runner,
            number,
            topic: "stream".to_owned(),
            message: text.to_owned(),
        };
        for one in [
            message(0, 1, "live"),
            message(0, 1, "live"),
            message(1, 9, "own"),
            message(0, 2, "gone"),
            message(0, 1, "live"),
            message(2, 1, "live"),
        ] {
            sender.try_send(one).expect("there is room");
        }
        let taken = std::iter::from_fn(|| topics.take());
        let taken: Vec<String> = taken.map(|one| one.message).collect();
        assert_eq!(taken, ["live", "gone", "live"]);
    }
}
