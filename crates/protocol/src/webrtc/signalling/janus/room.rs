//! The VideoRoom plug-in: a client enters a room, publishes there, and receives whoever else does.

use std::collections::{BTreeSet, VecDeque};

use measure::Time;
use serde_json::{Value, json};

use super::last_speakers::{Change, LastSpeakers};
use super::message::plugin_error;
use super::{Janus, Jsep, PeerNumber, Role, Scope, Subscribe, Wanted};
use crate::webrtc::failure::Failure;
use crate::webrtc::metrics as m;
use crate::webrtc::signalling::{Direction, FEEDS_MAX};
use crate::webrtc::url::{Id, Place};

/// `JANUS_VIDEOROOM_ERROR_ROOM_EXISTS`.
const ROOM_EXISTS: u64 = 427;

/// `JANUS_VIDEOROOM_ERROR_NO_SUCH_FEED`.
const NO_SUCH_FEED: u64 = 428;

/// What a client knows of its room.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// By which the room tells which subscriber goes with which publisher.
    private_id: Option<u64>,
    own: Option<Id>,
    /// Those who publish and are to be received, or are.
    feeds: BTreeSet<Id>,
    /// Of these, those that the common PeerConnection is to bring and was not asked for yet.
    waiting: BTreeSet<Id>,
    /// The handle of the common PeerConnection, and whether it has been joined with.
    everybody: Option<(usize, bool)>,
    /// Whether a change of the common PeerConnection is being agreed upon.
    changing: bool,
    /// Who is asked for by it.
    asked: Vec<Id>,
    /// Whether videos of others are changed by it too.
    with_videos: bool,
    /// Who is asked for alone, because some of many that were asked for had left.
    alone: VecDeque<Id>,
    /// Whose video is received, where only that of those is who talked last; whose it was before the
    /// change; and since when a change has been due because somebody talks, that is not asked for yet
    /// and that is.
    speakers: Option<LastSpeakers>,
    shown_before: BTreeSet<Id>,
    talks_since: Option<Time>,
    asked_since: Option<Time>,
}

impl Room {
    pub(super) fn new(last_n: Option<usize>) -> Room {
        Room {
            speakers: last_n.map(LastSpeakers::new),
            ..Room::default()
        }
    }
}

impl Janus {
    fn room_id(&self) -> Value {
        match &self.settings.place {
            Place::Room(id) => id.to_json(),
            _ => Value::Null,
        }
    }

    /// Whether others publish whom the client is to receive.
    pub(super) fn has_feeds(&self) -> bool {
        !self.room.feeds.is_empty()
    }

    /// Enters the room, or makes it before.
    pub(super) fn enter(&mut self, scope: &mut Scope<'_>, handle: usize) {
        match self.settings.room.clone() {
            Some(mut body) => {
                body["room"] = self.room_id();
                self.ask_plugin(scope, handle, "create", body, None);
            }
            None => self.join(scope, handle),
        }
    }

    fn join(&mut self, scope: &mut Scope<'_>, handle: usize) {
        let mut body = json!({"room": self.room_id(), "ptype": "publisher"});
        if let Some(pin) = &self.settings.pin {
            body["pin"] = pin.as_str().into();
        }
        self.ask_plugin(scope, handle, "join", body, None);
    }

    /// Publishes: the offer is there.
    pub(super) fn publish(&mut self, scope: &mut Scope<'_>, handle: usize, jsep: Option<Jsep>) {
        self.ask_plugin(scope, handle, "publish", json!({}), jsep);
    }

    /// A request was done that is answered at once.
    pub(super) fn plugin_done(
        &mut self,
        scope: &mut Scope<'_>,
        handle: usize,
        (name, _at): (&'static str, Time),
        data: &Value,
    ) {
        match (name, plugin_error(data)) {
            ("create", None | Some((ROOM_EXISTS, _))) => self.join(scope, handle),
            ("destroy", _) | (_, None) => {}
            (name, Some((code, reason))) => self.refused(scope, name, code, &reason),
        }
    }

    /// The plug-in says something.
    pub(super) fn room_event(
        &mut self,
        scope: &mut Scope<'_>,
        handle: usize,
        answers: Option<(&'static str, Time)>,
        data: &Value,
    ) {
        if let Some((code, reason)) = plugin_error(data) {
            let what = answers.map_or("?", |(name, _)| name);
            return self.room_refused(scope, handle, what, code, &reason);
        }
        match self.handles[handle].role.clone() {
            Role::Participant => self.participant_event(scope, handle, answers, data),
            Role::Everybody => self.everybody_event(scope, answers, data),
            Role::Feed(_) | Role::Mountpoint => {}
        }
    }

    /// Something was refused by the room.
    fn room_refused(
        &mut self,
        scope: &mut Scope<'_>,
        handle: usize,
        what: &str,
        code: u64,
        reason: &str,
    ) {
        // Whoever was to be received has left meanwhile.
        if code == NO_SUCH_FEED {
            match self.handles[handle].role {
                Role::Feed(_) => return self.detach(scope, handle),
                Role::Everybody => return self.asked_in_vain(scope),
                Role::Participant | Role::Mountpoint => {}
            }
        }
        self.refused(scope, what, code, reason);
    }

    fn participant_event(
        &mut self,
        scope: &mut Scope<'_>,
        handle: usize,
        answers: Option<(&'static str, Time)>,
        data: &Value,
    ) {
        match data["videoroom"].as_str() {
            Some("joined") => {
                if let Some((_, at)) = answers {
                    let waited = scope.now.since(at);
                    scope
                        .recorder
                        .record(m::JOIN_DELAY, waited.as_nanos() as u64);
                }
                self.room.own = Id::of_json(&data["id"]);
                self.room.private_id = data["private_id"].as_u64();
                if self.settings.publishes {
                    scope.want(Wanted::Offer {
                        peer: PeerNumber(handle as u32),
                        direction: Direction::Send,
                    });
                }
                self.publish_there(scope, &data["publishers"]);
                if !self.room.feeds.is_empty() {
                    scope.want(Wanted::Expect);
                }
            }
            Some("event") => {
                self.publish_there(scope, &data["publishers"]);
                for key in ["unpublished", "leaving", "kicked"] {
                    if let Some(id) = Id::of_json(&data[key]) {
                        self.gone(scope, &id, key);
                    }
                }
            }
            Some("talking") => {
                if let (Some(id), Some(speakers)) =
                    (Id::of_json(&data["id"]), &mut self.room.speakers)
                    && speakers.talks(&id)
                {
                    self.room.talks_since.get_or_insert(scope.now);
                    self.ask_for_waiting(scope);
                }
            }
            Some("destroyed") => {
                let detail = format!("the room was destroyed, by {}", self.url);
                self.fail(scope, Failure::HungUp, detail);
            }
            _ => {}
        }
    }

    /// These publish in the room.
    fn publish_there(&mut self, scope: &mut Scope<'_>, publishers: &Value) {
        if self.settings.subscribe == Subscribe::Nobody {
            return;
        }
        let mut any = false;
        for publisher in publishers.as_array().into_iter().flatten() {
            let Some(id) = Id::of_json(&publisher["id"]) else {
                continue;
            };
            if self.room.feeds.len() >= FEEDS_MAX
                || self.room.own.as_ref() == Some(&id)
                || !self.room.feeds.insert(id.clone())
            {
                continue;
            }
            any = true;
            if let Some(speakers) = &mut self.room.speakers {
                speakers.came(&id, &publisher["streams"]);
            }
            match self.settings.subscribe {
                Subscribe::Each => self.attach(scope, Role::Feed(id)),
                _ => {
                    self.room.waiting.insert(id);
                }
            }
        }
        if any && self.settings.subscribe == Subscribe::Together {
            match self.room.everybody {
                None => {
                    self.room.everybody = Some((self.handles.len(), false));
                    self.attach(scope, Role::Everybody);
                }
                Some(_) => self.ask_for_waiting(scope),
            }
        }
    }

    /// Somebody publishes no more.
    fn gone(&mut self, scope: &mut Scope<'_>, id: &Id, how: &str) {
        if self.room.own.as_ref() == Some(id) && how == "kicked" {
            let detail = format!("the client was kicked out of the room, by {}", self.url);
            return self.fail(scope, Failure::HungUp, detail);
        }
        if !self.room.feeds.remove(id) {
            return;
        }
        self.room.waiting.remove(id);
        self.room.alone.retain(|own| own != id);
        if let Some(speakers) = &mut self.room.speakers {
            speakers.left(id);
            self.ask_for_waiting(scope);
        }
        let mut handles = self.handles.iter();
        let own = Role::Feed(id.clone());
        if let Some(handle) = handles.position(|handle| !handle.gone && handle.role == own) {
            self.detach(scope, handle);
        }
    }

    /// A handle that receives is attached.
    pub(super) fn subscribe(&mut self, scope: &mut Scope<'_>, handle: usize) {
        match self.handles[handle].role.clone() {
            Role::Feed(id) if self.room.feeds.contains(&id) => {
                let streams = vec![self.whole(&id)];
                self.join_as_subscriber(scope, handle, streams.into());
            }
            Role::Feed(_) => self.detach(scope, handle),
            _ => self.ask_for_waiting(scope),
        }
    }

    fn join_as_subscriber(&mut self, scope: &mut Scope<'_>, handle: usize, streams: Value) {
        let mut body = json!({
            "room": self.room_id(),
            "ptype": "subscriber",
            "streams": streams,
        });
        if let Some(private_id) = self.room.private_id {
            body["private_id"] = private_id.into();
        }
        if let Some(pin) = &self.settings.pin {
            body["pin"] = pin.as_str().into();
        }
        self.ask_plugin(scope, handle, "join", body, None);
    }

    /// Has the common PeerConnection bring those that it does not yet, unless a change is being
    /// agreed upon: then after that.
    fn ask_for_waiting(&mut self, scope: &mut Scope<'_>) {
        let Some((handle, joined)) = self.room.everybody else {
            return;
        };
        let ready = self.handles.get(handle).is_some_and(|own| own.id.is_some());
        if !ready || self.room.changing {
            return;
        }
        let Some((new, change)) = self.next_change() else {
            self.room.talks_since = None;
            return;
        };
        // What is asked for alone leaves the videos as they are.
        self.room.asked_since = match change.videos {
            true => self.room.talks_since.take(),
            false => None,
        };
        scope.recorder.add(m::VIDEO_SWITCHES, change.switched);
        self.room.changing = true;
        self.room.with_videos = change.videos;
        self.room.asked = new.into_iter().collect();
        self.room.everybody = Some((handle, true));
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
        while let Some(one) = self.room.alone.pop_front() {
            let whole = self.whole(&one);
            let subscribe = match &mut self.room.speakers {
                // With a video of somebody else it could be refused because of that one.
                Some(speakers) => {
                    self.room.shown_before = speakers.shown();
                    speakers.sounds(&one)
                }
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
        let new = std::mem::take(&mut self.room.waiting);
        let layer = self.settings.substream;
        let change = match &mut self.room.speakers {
            Some(speakers) => {
                self.room.shown_before = speakers.shown();
                speakers.change(&new, layer)
            }
            None => Change {
                subscribe: new.iter().map(|id| self.whole(id)).collect(),
                ..Change::default()
            },
        };
        let nothing = change.subscribe.is_empty() && change.unsubscribe.is_empty();
        (!nothing).then_some((new, change))
    }

    /// All that somebody publishes, of a simulcast that layer which is wanted.
    fn whole(&self, id: &Id) -> Value {
        let mut stream = json!({"feed": id.to_json()});
        if let Some(layer) = self.settings.substream {
            stream["substream"] = layer.into();
        }
        stream
    }

    /// Somebody who was asked for has left: the others are asked for one by one, where there were
    /// any. With videos of others it may have been one of those.
    fn asked_in_vain(&mut self, scope: &mut Scope<'_>) {
        self.room.changing = false;
        let asked = std::mem::take(&mut self.room.asked);
        if let Some(speakers) = &mut self.room.speakers {
            let shown = std::mem::take(&mut self.room.shown_before);
            speakers.refused(shown);
        }
        // The change is due since then, still, if that one is there.
        if let Some(since) = self.room.asked_since.take() {
            self.room.talks_since = Some(since);
        }
        if asked.len() > 1 || self.room.with_videos {
            let feeds = &self.room.feeds;
            let there = asked.into_iter().filter(|id| feeds.contains(id));
            self.room.alone.extend(there);
        }
        // Nothing was joined with yet.
        let (handle, _) = self.room.everybody.unwrap_or((0, false));
        let stands = self.handles.get(handle).is_some_and(|own| own.answered);
        self.room.everybody = Some((handle, stands));
        if !self.room.alone.is_empty() || !self.room.waiting.is_empty() {
            self.ask_for_waiting(scope);
        }
    }

    fn everybody_event(
        &mut self,
        scope: &mut Scope<'_>,
        answers: Option<(&'static str, Time)>,
        data: &Value,
    ) {
        // Our answer was taken: what has come meanwhile is asked for now. So it is where nothing
        // had to be changed, and where the change waits behind another that Janus made by itself.
        let settled = data["started"].as_str() == Some("ok")
            || answers.is_some_and(|(name, _)| name == "start")
            || data["videoroom"].as_str() == Some("updating");
        let (handle, _) = self.room.everybody.unwrap_or((0, false));
        let answering = self.handles.get(handle).is_some_and(|own| own.answering);
        let unchanged = data["videoroom"].as_str() == Some("updated") && !answering;
        if settled || unchanged {
            self.room.changing = false;
            if let Some(since) = self.room.asked_since.take() {
                let waited = scope.now.since(since).as_nanos() as u64;
                scope.recorder.record(m::SWITCH_DELAY, waited);
            }
            self.ask_for_waiting(scope);
        }
    }

    /// Takes a room of the run away, where nobody else is known to publish in it: others would be
    /// hung up.
    pub(super) fn end_room(&mut self, scope: &mut Scope<'_>) {
        let is_of_run = self.settings.room.is_some();
        let knows_others = self.settings.subscribe != Subscribe::Nobody;
        if is_of_run && knows_others && self.room.own.is_some() && self.room.feeds.is_empty() {
            let room = self.room_id();
            self.ask_plugin(scope, 0, "destroy", json!({"room": room}), None);
        }
    }
}
