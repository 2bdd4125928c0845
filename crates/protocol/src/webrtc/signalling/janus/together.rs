//! The PeerConnection of a subscriber that brings all others of a room, and how it is changed: one
//! change after the other, each asked for, offered by Janus and agreed upon.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use measure::Time;
use serde_json::{Value, json};

use super::last_speakers::{Change, LastSpeakers};
use super::{Janus, Role, Scope};
use crate::webrtc::metrics as m;
use crate::webrtc::url::Id;

/// It, and whom it brings.
#[derive(Debug, Default)]
pub(super) struct Together {
    /// Its handle, and whether it has been joined with.
    handle: Option<(usize, bool)>,
    /// Those whom it is to bring and was not asked for yet.
    waiting: BTreeSet<Id>,
    /// Who is asked for alone, because some of many that were asked for had left.
    alone: VecDeque<Id>,
    /// What is being changed.
    change: Option<UnderWay>,
    /// Whose video is received, where only that of those is who talked last.
    speakers: Option<LastSpeakers>,
    /// Since when those talk whose video is due for that and was not asked for yet.
    talking: BTreeMap<Id, Time>,
}

/// A change that is not agreed upon yet.
#[derive(Debug)]
struct UnderWay {
    stage: Stage,
    /// Who is new in it.
    new: BTreeSet<Id>,
    /// Whether it changes videos of others too; how many take the place of another, whose were
    /// received before, and whose are due since when.
    videos: bool,
    switched: u64,
    shown_before: BTreeSet<Id>,
    due: Vec<(Id, Time)>,
    /// Whether anybody has left since it was asked for.
    somebody_left: bool,
}

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asked,
    /// Janus has put it behind an offer that is not answered yet (`updating`): the next is its own.
    Queued,
    /// Janus has offered it: the next answer that it takes (`started`) is that to it.
    Offered,
}

impl Together {
    pub(super) fn new(last_n: Option<usize>) -> Together {
        Together {
            speakers: last_n.map(LastSpeakers::new),
            ..Together::default()
        }
    }

    /// Somebody publishes these streams.
    pub(super) fn came(&mut self, id: Id, streams: &Value) {
        if let Some(speakers) = &mut self.speakers {
            speakers.came(&id, streams);
        }
        self.waiting.insert(id);
    }

    /// Somebody publishes no more. Whether another may be seen in place of that one.
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

    /// Somebody talks. Whether the video of that one is to be received from now on.
    pub(super) fn talks(&mut self, id: &Id, now: Time) -> bool {
        let is_due = (self.speakers.as_mut()).is_some_and(|speakers| speakers.talks(id));
        if is_due {
            self.talking.entry(id.clone()).or_insert(now);
        }
        is_due
    }

    /// Whose video is received, or is to be.
    fn shown(&self) -> BTreeSet<Id> {
        let speakers = self.speakers.as_ref();
        speakers.map(LastSpeakers::shown).unwrap_or_default()
    }

    /// Of those who talk the ones whose video was asked for now. The others are none of the last
    /// any more.
    fn due(&mut self) -> Vec<(Id, Time)> {
        let shown = self.shown();
        let talking = std::mem::take(&mut self.talking).into_iter();
        talking.filter(|(id, _)| shown.contains(id)).collect()
    }
}

impl Janus {
    /// Has those who came brought by the common PeerConnection, which is made where there is none.
    pub(super) fn ask_for_those_who_came(&mut self, scope: &mut Scope<'_>) {
        match self.room.together.handle {
            None => {
                self.room.together.handle = Some((self.handles.len(), false));
                self.attach(scope, Role::Everybody);
            }
            Some(_) => self.ask_for_waiting(scope),
        }
    }

    /// Has the common PeerConnection bring those that it does not yet, unless a change is being
    /// agreed upon: then after that.
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
            // What is asked for alone leaves the videos as they are.
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

    /// What is to be asked for next, and whose is new in it.
    fn next_change(&mut self) -> Option<(BTreeSet<Id>, Change)> {
        while let Some(one) = self.room.together.alone.pop_front() {
            let whole = self.whole(&one);
            let subscribe = match &self.room.together.speakers {
                // With a video of somebody else it could be refused because of that one.
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

    /// Somebody who was asked for has left: the others are asked for one by one, where there were
    /// any. With videos of others it may have been one of those. Says whether anybody was asked
    /// for.
    pub(super) fn asked_in_vain(&mut self, scope: &mut Scope<'_>) -> bool {
        let Some(change) = self.room.together.change.take() else {
            return false;
        };
        let together = &mut self.room.together;
        if let Some(speakers) = &mut together.speakers {
            speakers.refused(change.shown_before);
        }
        let feeds = &self.room.feeds;
        // It is due since then, still, if that one is there.
        for (id, since) in change.due {
            if feeds.contains(&id) {
                together.talking.insert(id, since);
            }
        }
        if change.new.len() > 1 || change.videos {
            let there = change.new.into_iter().filter(|id| feeds.contains(id));
            together.alone.extend(there);
        }
        // Nothing was joined with yet.
        let (handle, _) = together.handle.unwrap_or((0, false));
        let stands = self.handles.get(handle).is_some_and(|own| own.answered);
        together.handle = Some((handle, stands));
        // Else the same would be asked for over and over, until Janus tells who has left.
        if change.somebody_left || !together.alone.is_empty() || !together.waiting.is_empty() {
            self.ask_for_waiting(scope);
        }
        true
    }

    /// Something is said of the common PeerConnection, in answer to the request of that name.
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
            // Nothing had to be changed.
            Stage::Asked if is_asked && how == Some("updated") => {}
            _ => return,
        }
        // What has come meanwhile is asked for now.
        self.room.together.change = None;
        self.ask_for_waiting(scope);
    }
}
