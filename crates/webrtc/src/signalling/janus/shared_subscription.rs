//! Shared PeerConnection over which a subscriber receives all other publishers of a room. Changes
//! to its streams are made one at a time: each is requested, offered by Janus, and answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use measure::Time;
use serde_json::{Value, json};

use super::last_speakers::{LastSpeakers, SubscriptionChange};
use super::{Janus, Role, SignallingContext};
use crate::metrics as m;
use crate::url::JanusId;

/// Shared PeerConnection, and the publishers that it receives.
#[derive(Debug, Default)]
pub(super) struct SharedSubscription {
    /// Index of its handle, and whether it has joined.
    handle: Option<(usize, bool)>,
    /// Publishers that are to be requested.
    unrequested: BTreeSet<JanusId>,
    /// Publishers that are requested one by one, because one of several in a request had left.
    one_by_one: VecDeque<JanusId>,
    /// Change in progress.
    pending_change: Option<PendingChange>,
    /// Choice of videos. `None` if every video is received.
    last_speakers: Option<LastSpeakers>,
    /// Speakers whose video is due and was not requested yet, with the time since which they talk.
    due_speakers: BTreeMap<JanusId, Time>,
}

/// Change that is not complete yet.
#[derive(Debug)]
struct PendingChange {
    stage: Stage,
    /// Publishers that it adds.
    added: BTreeSet<JanusId>,
    /// True if it also adds or removes videos of other publishers.
    changes_videos: bool,
    /// Number of videos that take the place of another.
    switched_videos: u64,
    /// Publishers whose video was received before.
    shown_before: BTreeSet<JanusId>,
    /// Speakers whose video it adds, with the time since which they talk.
    due_speakers: Vec<(JanusId, Time)>,
    /// True if a publisher has left since the request.
    publisher_left: bool,
}

/// Progress of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Requested,
    /// Janus has queued it behind an offer that is not answered yet (`updating`). The next offer is
    /// that of this change.
    Queued,
    /// Janus has offered it. The next answer that it accepts (`started`) is the one to this offer.
    Offered,
}

impl SharedSubscription {
    pub(super) fn new(last_n: Option<usize>) -> SharedSubscription {
        SharedSubscription {
            last_speakers: last_n.map(LastSpeakers::new),
            ..SharedSubscription::default()
        }
    }

    /// Adds a publisher with its streams.
    pub(super) fn add(&mut self, id: JanusId, streams: &Value) {
        if let Some(speakers) = &mut self.last_speakers {
            speakers.add(&id, streams);
        }
        self.unrequested.insert(id);
    }

    /// Removes a publisher. Returns `true` if another video may take its place.
    pub(super) fn remove(&mut self, id: &JanusId) -> bool {
        self.unrequested.remove(id);
        self.one_by_one.retain(|own| own != id);
        self.due_speakers.remove(id);
        if let Some(change) = &mut self.pending_change {
            change.publisher_left = true;
        }
        match &mut self.last_speakers {
            Some(speakers) => {
                speakers.remove(id);
                true
            }
            None => false,
        }
    }

    /// Handles a publisher that talks. Returns `true` if its video is to be received from now on.
    pub(super) fn handle_talking(&mut self, id: &JanusId, now: Time) -> bool {
        let is_due =
            (self.last_speakers.as_mut()).is_some_and(|speakers| speakers.handle_talking(id));
        if is_due {
            self.due_speakers.entry(id.clone()).or_insert(now);
        }
        is_due
    }

    /// Returns the publishers whose video is received or requested.
    fn shown(&self) -> BTreeSet<JanusId> {
        let speakers = self.last_speakers.as_ref();
        speakers.map(LastSpeakers::shown).unwrap_or_default()
    }

    /// Takes the speakers whose video is requested now. The others are no longer among the last
    /// speakers.
    fn take_due(&mut self) -> Vec<(JanusId, Time)> {
        let shown = self.shown();
        let due = std::mem::take(&mut self.due_speakers).into_iter();
        due.filter(|(id, _)| shown.contains(id)).collect()
    }
}

impl Janus {
    /// Requests new publishers over the shared PeerConnection, which is created if it does not
    /// exist.
    pub(super) fn request_new_publishers(&mut self, scope: &mut SignallingContext<'_>) {
        match self.room.shared.handle {
            None => {
                self.room.shared.handle = Some((self.handles.len(), false));
                self.attach(scope, Role::AllPublishers);
            }
            Some(_) => self.request_next_change(scope),
        }
    }

    /// Requests the publishers that the shared PeerConnection does not receive yet. Does nothing
    /// while a change is in progress: they are requested when it ends.
    pub(super) fn request_next_change(&mut self, scope: &mut SignallingContext<'_>) {
        let Some((handle, joined)) = self.room.shared.handle else {
            return;
        };
        let ready = self.handles.get(handle).is_some_and(|own| own.id.is_some());
        if !ready || self.room.shared.pending_change.is_some() {
            return;
        }
        let shown_before = self.room.shared.shown();
        let Some((new, change)) = self.next_change() else {
            self.room.shared.due_speakers.clear();
            return;
        };
        let shared = &mut self.room.shared;
        shared.pending_change = Some(PendingChange {
            stage: Stage::Requested,
            added: new,
            changes_videos: change.changes_videos,
            switched_videos: change.switched_videos,
            shown_before,
            // A request for a single publisher leaves the videos unchanged.
            due_speakers: match change.changes_videos {
                true => shared.take_due(),
                false => Vec::new(),
            },
            publisher_left: false,
        });
        shared.handle = Some((handle, true));
        let (subscribe, unsubscribe) = (change.subscribe, change.unsubscribe);
        if !joined {
            return self.join_as_subscriber(scope, handle, subscribe.into());
        }
        let (request, body) = match (subscribe.is_empty(), unsubscribe.is_empty()) {
            (_, true) => ("subscribe", json!({"streams": subscribe})),
            (true, false) => ("unsubscribe", json!({"streams": unsubscribe})),
            (false, false) => (
                "update",
                json!({"subscribe": subscribe, "unsubscribe": unsubscribe}),
            ),
        };
        self.send_plugin_request(scope, handle, request, body, None);
    }

    /// Returns the next change, and the publishers that it adds. `None` if there is nothing to
    /// change.
    fn next_change(&mut self) -> Option<(BTreeSet<JanusId>, SubscriptionChange)> {
        while let Some(one) = self.room.shared.one_by_one.pop_front() {
            let whole = self.publisher_subscription(&one);
            let subscribe = match &self.room.shared.last_speakers {
                // A request with the video of another publisher could be refused because of that
                // one.
                Some(speakers) => speakers.non_video_subscriptions(&one),
                None => vec![whole],
            };
            if !subscribe.is_empty() {
                let change = SubscriptionChange {
                    subscribe,
                    ..SubscriptionChange::default()
                };
                return Some((BTreeSet::from([one]), change));
            }
        }
        let new = std::mem::take(&mut self.room.shared.unrequested);
        let layer = self.substream();
        let change = match &mut self.room.shared.last_speakers {
            Some(speakers) => speakers.take_change(&new, layer),
            None => SubscriptionChange {
                subscribe: new
                    .iter()
                    .map(|id| self.publisher_subscription(id))
                    .collect(),
                ..SubscriptionChange::default()
            },
        };
        let nothing = change.subscribe.is_empty() && change.unsubscribe.is_empty();
        (!nothing).then_some((new, change))
    }

    /// Handles a request that was refused because a publisher has left. If it was for several
    /// publishers, or included videos of others, it does not show which one left: its publishers
    /// are then requested one by one. Returns `true` if a request was pending.
    pub(super) fn handle_refused_change(&mut self, scope: &mut SignallingContext<'_>) -> bool {
        let Some(change) = self.room.shared.pending_change.take() else {
            return false;
        };
        let shared = &mut self.room.shared;
        if let Some(speakers) = &mut shared.last_speakers {
            speakers.restore_shown(change.shown_before);
        }
        let feeds = &self.room.feeds;
        // The video is still due since then, if its publisher is still in the room.
        for (id, since) in change.due_speakers {
            if feeds.contains(&id) {
                shared.due_speakers.insert(id, since);
            }
        }
        if change.added.len() > 1 || change.changes_videos {
            let present = change.added.into_iter().filter(|id| feeds.contains(id));
            shared.one_by_one.extend(present);
        }
        // Only an answered description shows that the handle has joined.
        let (handle, _) = shared.handle.unwrap_or((0, false));
        let has_joined = self.handles.get(handle).is_some_and(|own| own.has_answered);
        shared.handle = Some((handle, has_joined));
        // Otherwise the same request would be repeated until Janus reports which publisher has
        // left.
        if change.publisher_left || !shared.one_by_one.is_empty() || !shared.unrequested.is_empty()
        {
            self.request_next_change(scope);
        }
        true
    }

    /// Handles an event of the shared PeerConnection. `answers` is the name of the request that it
    /// answers.
    pub(super) fn handle_shared_event(
        &mut self,
        scope: &mut SignallingContext<'_>,
        answers: Option<&'static str>,
        data: &Value,
        offers: bool,
    ) {
        let Some(change) = &mut self.room.shared.pending_change else {
            return;
        };
        let started = data["started"].as_str() == Some("ok") || answers == Some("start");
        let answers_request = change.stage == Stage::Requested && answers.is_some() && !started;
        let how = data["videoroom"].as_str();
        match change.stage {
            Stage::Offered if started => {
                scope
                    .recorder
                    .add(m::VIDEO_SWITCHES, change.switched_videos);
                for (_, since) in &change.due_speakers {
                    scope.record_delay(m::SWITCH_DELAY, *since);
                }
            }
            Stage::Queued if offers => return change.stage = Stage::Offered,
            Stage::Requested if answers_request && offers => return change.stage = Stage::Offered,
            Stage::Requested if answers_request && how == Some("updating") => {
                return change.stage = Stage::Queued;
            }
            // No change was needed.
            Stage::Requested if answers_request && how == Some("updated") => {}
            _ => return,
        }
        // Publishers that came meanwhile are requested now.
        self.room.shared.pending_change = None;
        self.request_next_change(scope);
    }
}
