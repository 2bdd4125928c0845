//! Choice of the publishers whose video is received, with `last_n`: those who talked last.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::signalling::FEEDS_MAX;
use crate::url::JanusId;

/// Maximum number of streams of a publisher that are considered.
const STREAMS_MAX: usize = 16;

/// Streams of a publisher, by the names (`mid`) that Janus gives them.
#[derive(Clone, Debug, Default, PartialEq)]
struct PublisherStreams {
    /// Audio, and other streams that are no video.
    non_video: Vec<String>,
    video: Vec<String>,
}

/// Publishers of a room, and those whose video is received.
#[derive(Debug, Default)]
pub(super) struct LastSpeakers {
    /// Maximum number of publishers whose video is received.
    videos_max: usize,
    /// Publishers. The last speaker comes first. Those who have not talked follow in the order in
    /// which they came.
    order: Vec<JanusId>,
    streams: BTreeMap<JanusId, PublisherStreams>,
    /// Publishers whose video was requested.
    shown: BTreeSet<JanusId>,
}

/// Change of the streams that are received.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SubscriptionChange {
    pub(super) subscribe: Vec<Value>,
    pub(super) unsubscribe: Vec<Value>,
    /// Number of videos that take the place of another.
    pub(super) switched_videos: u64,
    /// True if it adds or removes videos.
    pub(super) changes_videos: bool,
}

impl LastSpeakers {
    pub(super) fn new(videos_max: usize) -> LastSpeakers {
        LastSpeakers {
            videos_max,
            ..LastSpeakers::default()
        }
    }

    /// Adds a publisher with its streams.
    pub(super) fn add(&mut self, id: &JanusId, streams: &Value) {
        if self.order.len() >= FEEDS_MAX || self.streams.contains_key(id) {
            return;
        }
        let mut own = PublisherStreams::default();
        let all = streams.as_array().into_iter().flatten();
        for stream in all.take(STREAMS_MAX) {
            let Some(mid) = stream["mid"].as_str() else {
                continue;
            };
            match stream["type"].as_str() {
                Some("video") => own.video.push(mid.to_owned()),
                _ => own.non_video.push(mid.to_owned()),
            }
        }
        self.order.push(id.clone());
        self.streams.insert(id.clone(), own);
    }

    /// Removes a publisher. Janus removes its streams without a request.
    pub(super) fn remove(&mut self, id: &JanusId) {
        self.order.retain(|own| own != id);
        self.streams.remove(id);
        self.shown.remove(id);
    }

    /// Handles a publisher that talks. Returns `true` if its video, if it has one, is to be
    /// received now.
    pub(super) fn handle_talking(&mut self, id: &JanusId) -> bool {
        let Some(at) = self.order.iter().position(|own| own == id) else {
            return false;
        };
        self.order[..=at].rotate_right(1);
        !self.shown.contains(id)
    }

    fn videos(&self, id: &JanusId) -> impl Iterator<Item = &String> {
        self.streams.get(id).into_iter().flat_map(|own| &own.video)
    }

    /// Returns the next change, which includes the audio of the `new` publishers. The change counts
    /// as made.
    pub(super) fn take_change(
        &mut self,
        new: &BTreeSet<JanusId>,
        layer: Option<u64>,
    ) -> SubscriptionChange {
        let mut change = SubscriptionChange::default();
        for id in new {
            change.subscribe.extend(self.non_video_subscriptions(id));
        }
        let order = self.order.iter();
        let wanted = order
            .filter(|id| self.videos(id).next().is_some())
            .take(self.videos_max);
        let wanted: BTreeSet<JanusId> = wanted.cloned().collect();
        for id in self.shown.difference(&wanted) {
            let videos = self.videos(id).map(|mid| subscription(id, mid));
            change.unsubscribe.extend(videos);
            change.switched_videos += 1;
        }
        for id in wanted.difference(&self.shown) {
            change.subscribe.extend(self.videos(id).map(|mid| {
                let mut stream = subscription(id, mid);
                if let Some(layer) = layer {
                    stream["substream"] = layer.into();
                }
                stream
            }));
        }
        change.changes_videos = self.shown != wanted;
        self.shown = wanted;
        change
    }

    /// Returns the requests for all streams of a publisher except its video.
    pub(super) fn non_video_subscriptions(&self, id: &JanusId) -> Vec<Value> {
        let own = self
            .streams
            .get(id)
            .into_iter()
            .flat_map(|own| &own.non_video);
        own.map(|mid| subscription(id, mid)).collect()
    }

    /// Restores the publishers whose video was received before, because a request was refused.
    pub(super) fn restore_shown(&mut self, shown: BTreeSet<JanusId>) {
        self.shown = shown;
        self.shown.retain(|id| self.streams.contains_key(id));
    }

    pub(super) fn shown(&self) -> BTreeSet<JanusId> {
        self.shown.clone()
    }
}

/// Returns a stream as a request names it.
fn subscription(id: &JanusId, mid: &str) -> Value {
    json!({"feed": id.to_json(), "mid": mid})
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn streams() -> Value {
        json!([
            {"type": "audio", "mid": "1", "codec": "opus"},
            {"type": "video", "mid": "0", "codec": "h264"},
        ])
    }

    fn feeds(subscriptions: &[Value]) -> Vec<(u64, &str)> {
        let feed = |own: &Value| own["feed"].as_u64().expect("a number");
        subscriptions
            .iter()
            .map(|own| (feed(own), own["mid"].as_str().expect("a name")))
            .collect()
    }

    #[test]
    fn speaker_replaces_the_one_silent_for_longest() {
        let mut speakers = LastSpeakers::new(2);
        let id = JanusId::Number;
        let all: BTreeSet<JanusId> = (1..=4).map(id).collect();
        for own in &all {
            speakers.add(own, &streams());
        }
        let first = speakers.take_change(&all, Some(1));
        let audio = [(1, "1"), (2, "1"), (3, "1"), (4, "1")];
        assert_eq!(feeds(&first.subscribe)[..4], audio);
        assert_eq!(feeds(&first.subscribe)[4..], [(1, "0"), (2, "0")]);
        assert_eq!(first.subscribe[4]["substream"], 1);
        assert_eq!((first.unsubscribe.len(), first.switched_videos), (0, 0));
        let none = BTreeSet::new();
        // A speaker whose video is shown changes nothing.
        assert!(!speakers.handle_talking(&id(1)));
        assert_eq!(
            speakers.take_change(&none, None),
            SubscriptionChange::default()
        );
        assert!(speakers.handle_talking(&id(4)));
        let next = speakers.take_change(&none, None);
        assert_eq!(feeds(&next.subscribe), [(4, "0")]);
        assert_eq!(feeds(&next.unsubscribe), [(2, "0")]);
        assert_eq!(next.switched_videos, 1);
        // A speaker that leaves makes room for the publisher whose video it replaced.
        speakers.remove(&id(4));
        let next = speakers.take_change(&none, None);
        assert_eq!(feeds(&next.subscribe), [(2, "0")]);
        assert_eq!((next.unsubscribe.len(), next.switched_videos), (0, 0));
        // An unknown publisher is ignored.
        assert!(!speakers.handle_talking(&id(9)));
    }

    proptest! {
        #[test]
        fn shown_videos_are_those_of_the_last_speakers(
            most in 1_usize..5,
            steps in proptest::collection::vec((0_u8..3, 0_u64..9), 0..60),
        ) {
            let mut speakers = LastSpeakers::new(most);
            let (mut shown, mut present) = (BTreeSet::new(), BTreeSet::new());
            let mut talked: Vec<u64> = Vec::new();
            for (what, number) in steps {
                let id = JanusId::Number(number);
                let mut new = BTreeSet::new();
                match what {
                    0 => {
                        if present.insert(number) {
                            speakers.add(&id, &streams());
                            new.insert(id);
                        }
                    }
                    1 => {
                        speakers.remove(&id);
                        shown.remove(&number);
                        present.remove(&number);
                        talked.retain(|own| *own != number);
                    }
                    _ if present.contains(&number) => {
                        speakers.handle_talking(&id);
                        talked.retain(|own| *own != number);
                        talked.push(number);
                    }
                    _ => prop_assert!(!speakers.handle_talking(&id)),
                }
                let change = speakers.take_change(&new, None);
                for (number, mid) in feeds(&change.unsubscribe) {
                    prop_assert_eq!(mid, "0");
                    prop_assert!(shown.remove(&number), "it was seen");
                }
                for (number, _) in feeds(&change.subscribe).iter().filter(|own| own.1 == "0") {
                    prop_assert!(shown.insert(*number), "it was not seen");
                }
                prop_assert_eq!(shown.len(), most.min(present.len()));
                let last = talked.iter().rev().take(most);
                prop_assert!(last.into_iter().all(|own| shown.contains(own)));
            }
        }
    }
}
