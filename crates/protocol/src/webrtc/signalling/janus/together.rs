//! Common PeerConnection over which a subscriber receives all other publishers of a room. Changes
//! to its streams are made one at a time: each is requested, offered by Janus, and answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use measure::Time;
use serde_json::{Value, json};

use super::last_speakers::{Change, LastSpeakers};
use super::{Janus, Role, Scope};
use crate::webrtc::metrics as m;
use crate::webrtc::url::Id;

/// Common PeerConnection, and the publishers that it receives.
#[derive(Debug, Default)]
pub(super) struct Together {
    /// Index of its handle, and whether it has joined.
    handle: Option<(usize, bool)>,
    /// Publishers that are to be requested.
    waiting: BTreeSet<Id>,
    /// Publishers that are requested one by one, because one of several in a request had left.
    alone: VecDeque<Id>,
    /// Change in progress.
    change: Option<UnderWay>,
    /// Choice of videos. `None` if every video is received.
    speakers: Option<LastSpeakers>,
    /// Speakers whose video is due and was not requested yet, with the time since which they talk.
    talking: BTreeMap<Id, Time>,
}

/// Change that is not complete yet.
#[derive(Debug)]
struct UnderWay {
    stage: Stage,
    /// Publishers that it adds.
    new: BTreeSet<Id>,
    /// True if it also adds or removes videos of other publishers.
    videos: bool,
    /// Number of videos that take the place of another.
    switched: u64,
    /// Publishers whose video was received before.
    shown_before: BTreeSet<Id>,
    /// Speakers whose video it adds, with the time since which they talk.
    due: Vec<(Id, Time)>,
    /// True if a publisher has left since the request.
    somebody_left: bool,
}

/// Progress of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asked,
    /// Janus has queued it behind an offer that is not answered yet (`updating`). The next offer is
    /// that of this change.
    Queued,
    /// Janus has offered it. The next answer that it accepts (`started`) is the one to this offer.
    Offered,
}

impl Together {
    pub(super) fn new(last_n: Option<usize>) -> Together {
        Together {
            speakers: last_n.map(LastSpeakers::new),
            ..Together::default()
        }
    }

    /// Adds a publisher with its streams.
    pub(super) fn came(&mut self, id: Id, streams: &Value) {
        if let Some(speakers) = &mut self.speakers {
            speakers.came(&id, streams);
        }
        self.waiting.insert(id);
    }

    /// Removes a publisher. Returns `true` if another video may take its place.
    pub(super) fn left(&mut self, id: &Id) -> bool {
        self.waiting.remove(id);
        self.alone.retain(|own| own != id);
        self.talking.remove(id);
        if let Some(change) = &mut self.change {
            change.somebody_left = true;
        }
        match &mut self.speakers {
            Some(speakers) => {
                speakers.left(id);
                true
            }
            None => false,
        }
    }

    /// Handles a publisher that talks. Returns `true` if its video is to be received from now on.
    pub(super) fn talks(&mut self, id: &Id, now: Time) -> bool {
        let is_due = (self.speakers.as_mut()).is_some_and(|speakers| speakers.talks(id));
        if is_due {
            self.talking.entry(id.clone()).or_insert(now);
        }
        is_due
    }

    /// Returns the publishers whose video is received or requested.
    fn shown(&self) -> BTreeSet<Id> {
        let speakers = self.speakers.as_ref();
        speakers.map(LastSpeakers::shown).unwrap_or_default()
    }

    /// Takes the speakers whose video is requested now. The others are no longer among the last
    /// speakers.
    fn due(&mut self) -> Vec<(Id, Time)> {
        let shown = self.shown();
        let talking = std::mem::take(&mut self.talking).into_iter();
        talking.filter(|(id, _)| shown.contains(id)).collect()
    }
}

impl Janus {
    /// Requests new publishers over the common PeerConnection, which is created if it does not
    /// exist.
    pub(super) fn ask_for_those_who_came(&mut self, scope: &mut Scope<'_>) {
        match self.room.together.handle {
            None => {
                self.room.together.handle = Some((self.handles.len(), false));
                self.attach(scope, Role::Everybody);
            }
            Some(_) => self.ask_for_waiting(scope),
        }
    }

    /// Requests the publishers that the common PeerConnection does not receive yet. Does nothing
    /// while a change is in progress: they are requested when it ends.
    pub(super) fn ask_for_waiting(&mut self, scope: &mut Scope<'_>) {
        let Some((handle, joined)) = self.room.together.handle else {
            return;
        };
        let ready = self.handles.get(handle).is_some_and(|own| own.id.is_some());
        if !ready || self.room.together.change.is_some() {
            return;
        }
        let shown_before = self.room.together.shown();
        let Some((new, change)) = self.next_change() else {
            self.room.together.talking.clear();
            return;
        };
        let together = &mut self.room.together;
        together.change = Some(UnderWay {
            stage: Stage::Asked,
            new,
            videos: change.videos,
            switched: change.switched,
            shown_before,
            // A request for a single publisher leaves the videos unchanged.
            due: match change.videos {
                true => together.due(),
                false => Vec::new(),
            },
            somebody_left: false,
        });
        together.handle = Some((handle, true));
        let (subscribe, unsubscribe) = (change.subscribe, change.unsubscribe);
        if !joined {
            self.join_as_subscriber(scope, handle, subscribe.into());
        } else if unsubscribe.is_empty() {
            let body = json!({"streams": subscribe});
            self.ask_plugin(scope, handle, "subscribe", body, None);
        } else if subscribe.is_empty() {
            let body = json!({"streams": unsubscribe});
            self.ask_plugin(scope, handle, "unsubscribe", body, None);
        } else {
            let body = json!({"subscribe": subscribe, "unsubscribe": unsubscribe});
            self.ask_plugin(scope, handle, "update", body, None);
        }
    }

    /// Returns the next change, and the publishers that it adds. `None` if there is nothing to
    /// change.
    fn next_change(&mut self) -> Option<(BTreeSet<Id>, Change)> {
        while let Some(one) = self.room.together.alone.pop_front() {
            let whole = self.whole(&one);
            let subscribe = match &self.room.together.speakers {
                // A request with the video of another publisher could be refused because of that
                // one.
                Some(speakers) => speakers.sounds(&one),
                None => vec![whole],
            };
            if !subscribe.is_empty() {
                let change = Change {
                    subscribe,
                    ..Change::default()
                };
                return Some((BTreeSet::from([one]), change));
            }
        }
        let new = std::mem::take(&mut self.room.together.waiting);
        let layer = self.settings.substream;
        let change = match &mut self.room.together.speakers {
            Some(speakers) => speakers.change(&new, layer),
            None => Change {
                subscribe: new.iter().map(|id| self.whole(id)).collect(),
                ..Change::default()
            },
        };
        let nothing = change.subscribe.is_empty() && change.unsubscribe.is_empty();
        (!nothing).then_some((new, change))
    }

    /// Handles a request that was refused because a publisher has left. If it was for several
    /// publishers, or included videos of others, it does not show which one left: its publishers
    /// are then requested one by one. Returns `true` if a request was pending.
    pub(super) fn asked_in_vain(&mut self, scope: &mut Scope<'_>) -> bool {
        let Some(change) = self.room.together.change.take() else {
            return false;
        };
        let together = &mut self.room.together;
        if let Some(speakers) = &mut together.speakers {
            speakers.refused(change.shown_before);
        }
        let feeds = &self.room.feeds;
        // The video is still due since then, if its publisher is still in the room.
        for (id, since) in change.due {
            if feeds.contains(&id) {
                together.talking.insert(id, since);
            }
        }
        if change.new.len() > 1 || change.videos {
            let there = change.new.into_iter().filter(|id| feeds.contains(id));
            together.alone.extend(there);
        }
        // Only an answered description shows that the handle has joined.
        let (handle, _) = together.handle.unwrap_or((0, false));
        let stands = self.handles.get(handle).is_some_and(|own| own.answered);
        together.handle = Some((handle, stands));
        // Otherwise the same request would be repeated until Janus reports which publisher has
        // left.
        if change.somebody_left || !together.alone.is_empty() || !together.waiting.is_empty() {
            self.ask_for_waiting(scope);
        }
        true
    }

    /// Handles an event of the common PeerConnection. `answers` is the name of the request that it
    /// answers.
    pub(super) fn everybody_event(
        &mut self,
        scope: &mut Scope<'_>,
        answers: Option<&'static str>,
        data: &Value,
        offers: bool,
    ) {
        let Some(change) = &mut self.room.together.change else {
            return;
        };
        let started = data["started"].as_str() == Some("ok") || answers == Some("start");
        let is_asked = change.stage == Stage::Asked && answers.is_some() && !started;
        let how = data["videoroom"].as_str();
        match change.stage {
            Stage::Offered if started => {
                scope.recorder.add(m::VIDEO_SWITCHES, change.switched);
                for (_, since) in &change.due {
                    let waited = scope.now.since(*since).as_nanos() as u64;
                    scope.recorder.record(m::SWITCH_DELAY, waited);
                }
            }
            Stage::Queued if offers => return change.stage = Stage::Offered,
            Stage::Asked if is_asked && offers => return change.stage = Stage::Offered,
            Stage::Asked if is_asked && how == Some("updating") => {
                return change.stage = Stage::Queued;
            }
            // No change was needed.
            Stage::Asked if is_asked && how == Some("updated") => {}
            _ => return,
        }
        // Publishers that came meanwhile are requested now.
        self.room.together.change = None;
        self.ask_for_waiting(scope);
    }
}
