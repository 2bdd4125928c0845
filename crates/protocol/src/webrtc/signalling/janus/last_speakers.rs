//! Choice of the publishers whose video is received, with `last_n`: those who talked last.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::webrtc::signalling::FEEDS_MAX;
use crate::webrtc::url::Id;

/// Maximum number of streams of a publisher that are considered.
const STREAMS_MAX: usize = 16;

/// Streams of a publisher, by the names (`mid`) that Janus gives them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Streams {
    /// Audio, and other streams that are no video.
    others: Vec<String>,
    video: Vec<String>,
}

/// Publishers of a room, and those whose video is received.
#[derive(Debug)]
pub(super) struct LastSpeakers {
    /// Maximum number of publishers whose video is received.
    most: usize,
    /// Publishers. The last speaker comes first. Those who have not talked follow in the order in
    /// which they came.
    order: Vec<Id>,
    streams: BTreeMap<Id, Streams>,
    /// Publishers whose video was requested.
    shown: BTreeSet<Id>,
}

/// Change of the streams that are received.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Change {
    pub(super) subscribe: Vec<Value>,
    pub(super) unsubscribe: Vec<Value>,
    /// Number of videos that take the place of another.
    pub(super) switched: u64,
    /// True if it adds or removes videos.
    pub(super) videos: bool,
}

impl LastSpeakers {
    pub(super) fn new(most: usize) -> LastSpeakers {
        LastSpeakers {
            most,
            order: Vec::new(),
            streams: BTreeMap::new(),
            shown: BTreeSet::new(),
        }
    }

    /// Adds a publisher with its streams.
    pub(super) fn came(&mut self, id: &Id, streams: &Value) {
        if self.order.len() >= FEEDS_MAX || self.streams.contains_key(id) {
            return;
        }
        let mut own = Streams::default();
        let all = streams.as_array().into_iter().flatten();
        for stream in all.take(STREAMS_MAX) {
            let Some(mid) = stream["mid"].as_str() else {
                continue;
            };
            match stream["type"].as_str() {
                Some("video") => own.video.push(mid.to_owned()),
                _ => own.others.push(mid.to_owned()),
            }
        }
        self.order.push(id.clone());
        self.streams.insert(id.clone(), own);
    }

    /// Removes a publisher. Janus removes its streams without a request.
    pub(super) fn left(&mut self, id: &Id) {
        self.order.retain(|own| own != id);
        self.streams.remove(id);
        self.shown.remove(id);
    }

    /// Handles a publisher that talks. Returns `true` if its video, if it has one, is to be
    /// received now.
    pub(super) fn talks(&mut self, id: &Id) -> bool {
        let Some(at) = self.order.iter().position(|own| own == id) else {
            return false;
        };
        self.order[..=at].rotate_right(1);
        !self.shown.contains(id)
    }

    fn has_video(&self, id: &Id) -> bool {
        let own = self.streams.get(id);
        own.is_some_and(|own| !own.video.is_empty())
    }

    /// Returns the next change, which includes the audio of the `new` publishers. The change counts
    /// as made.
    pub(super) fn change(&mut self, new: &BTreeSet<Id>, layer: Option<u64>) -> Change {
        let mut change = Change::default();
        for id in new {
            change.subscribe.extend(self.sounds(id));
        }
        let order = self.order.iter();
        let wanted = order.filter(|id| self.has_video(id)).take(self.most);
        let wanted: BTreeSet<Id> = wanted.cloned().collect();
        for id in self.shown.difference(&wanted) {
            let own = self.streams.get(id).into_iter().flat_map(|own| &own.video);
            change.unsubscribe.extend(own.map(|mid| stream(id, mid)));
            change.switched += 1;
        }
        for id in wanted.difference(&self.shown) {
            let own = self.streams.get(id).into_iter().flat_map(|own| &own.video);
            change.subscribe.extend(own.map(|mid| {
                let mut stream = stream(id, mid);
                if let Some(layer) = layer {
                    stream["substream"] = layer.into();
                }
                stream
            }));
        }
        change.videos = self.shown != wanted;
        self.shown = wanted;
        change
    }

    /// Returns the requests for all streams of a publisher except its video.
    pub(super) fn sounds(&self, id: &Id) -> Vec<Value> {
        let own = self.streams.get(id).into_iter().flat_map(|own| &own.others);
        own.map(|mid| stream(id, mid)).collect()
    }

    /// Restores the publishers whose video was received before, because a request was refused.
    pub(super) fn refused(&mut self, shown: BTreeSet<Id>) {
        self.shown = shown;
        self.shown.retain(|id| self.streams.contains_key(id));
    }

    pub(super) fn shown(&self) -> BTreeSet<Id> {
        self.shown.clone()
    }
}

/// Returns a stream as a request names it.
fn stream(id: &Id, mid: &str) -> Value {
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

    fn feeds(of: &[Value]) -> Vec<(u64, &str)> {
        let feed = |own: &Value| own["feed"].as_u64().expect("a number");
        of.iter()
            .map(|own| (feed(own), own["mid"].as_str().expect("a name")))
            .collect()
    }

    #[test]
    fn speaker_replaces_the_one_silent_for_longest() {
        let mut speakers = LastSpeakers::new(2);
        let id = Id::Number;
        let all: BTreeSet<Id> = (1..=4).map(id).collect();
        for own in &all {
            speakers.came(own, &streams());
        }
        let first = speakers.change(&all, Some(1));
        let sounds = [(1, "1"), (2, "1"), (3, "1"), (4, "1")];
        assert_eq!(feeds(&first.subscribe)[..4], sounds);
        assert_eq!(feeds(&first.subscribe)[4..], [(1, "0"), (2, "0")]);
        assert_eq!(first.subscribe[4]["substream"], 1);
        assert_eq!((first.unsubscribe.len(), first.switched), (0, 0));
        let none = BTreeSet::new();
        // A speaker whose video is shown changes nothing.
        assert!(!speakers.talks(&id(1)));
        assert_eq!(speakers.change(&none, None), Change::default());
        assert!(speakers.talks(&id(4)));
        let next = speakers.change(&none, None);
        assert_eq!(feeds(&next.subscribe), [(4, "0")]);
        assert_eq!(feeds(&next.unsubscribe), [(2, "0")]);
        assert_eq!(next.switched, 1);
        // A speaker that leaves makes room for the publisher whose video it replaced.
        speakers.left(&id(4));
        let next = speakers.change(&none, None);
        assert_eq!(feeds(&next.subscribe), [(2, "0")]);
        assert_eq!((next.unsubscribe.len(), next.switched), (0, 0));
        // An unknown publisher is ignored.
        assert!(!speakers.talks(&id(9)));
    }

    proptest! {
        #[test]
        fn shown_videos_are_those_of_the_last_speakers(
            most in 1_usize..5,
            steps in proptest::collection::vec((0_u8..3, 0_u64..9), 0..60),
        ) {
            let mut speakers = LastSpeakers::new(most);
            let (mut seen, mut heard) = (BTreeSet::new(), BTreeSet::new());
            let mut talked: Vec<u64> = Vec::new();
            for (what, number) in steps {
                let id = Id::Number(number);
                let mut new = BTreeSet::new();
                match what {
                    0 => {
                        if heard.insert(number) {
                            speakers.came(&id, &streams());
                            new.insert(id);
                        }
                    }
                    1 => {
                        speakers.left(&id);
                        seen.remove(&number);
                        heard.remove(&number);
                        talked.retain(|own| *own != number);
                    }
                    _ if heard.contains(&number) => {
                        speakers.talks(&id);
                        talked.retain(|own| *own != number);
                        talked.push(number);
                    }
                    _ => prop_assert!(!speakers.talks(&id)),
                }
                let change = speakers.change(&new, None);
                for (number, mid) in feeds(&change.unsubscribe) {
                    prop_assert_eq!(mid, "0");
                    prop_assert!(seen.remove(&number), "it was seen");
                }
                for (number, _) in feeds(&change.subscribe).iter().filter(|own| own.1 == "0") {
                    prop_assert!(seen.insert(*number), "it was not seen");
                }
                prop_assert_eq!(seen.len(), most.min(heard.len()));
                let last = talked.iter().rev().take(most);
                prop_assert!(last.into_iter().all(|own| seen.contains(own)));
            }
        }
    }
}
