//! VideoRoom plug-in of Janus: a client joins a room, publishes there, and receives the other
//! publishers.

use std::collections::BTreeSet;

use measure::Time;
use serde_json::{Value, json};

use super::message::plugin_error;
use super::together::Together;
use super::{Janus, Jsep, PeerNumber, Role, Scope, Subscribe, Wanted};
use crate::webrtc::failure::Failure;
use crate::webrtc::metrics as m;
use crate::webrtc::signalling::{Direction, FEEDS_MAX};
use crate::webrtc::url::{Id, Place};

/// `JANUS_VIDEOROOM_ERROR_ROOM_EXISTS`.
const ROOM_EXISTS: u64 = 427;

/// `JANUS_VIDEOROOM_ERROR_NO_SUCH_FEED`.
const NO_SUCH_FEED: u64 = 428;

/// State of the client's room.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Id by which the room relates a subscriber to a publisher.
    private_id: Option<u64>,
    /// Id of the client as a publisher.
    own: Option<Id>,
    /// Publishers that are received, or are to be received.
    pub(super) feeds: BTreeSet<Id>,
    pub(super) together: Together,
}

impl Room {
    pub(super) fn new(last_n: Option<usize>) -> Room {
        Room {
            together: Together::new(last_n),
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

    /// Returns `true` if there are publishers that this client receives or is to receive.
    pub(super) fn has_feeds(&self) -> bool {
        !self.room.feeds.is_empty()
    }

    /// Joins the room, after creating it if that is configured.
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

    /// Publishes with our offer.
    pub(super) fn publish(&mut self, scope: &mut Scope<'_>, handle: usize, jsep: Option<Jsep>) {
        self.ask_plugin(scope, handle, "publish", json!({}), jsep);
    }

    /// Handles a request that was answered at once.
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

    /// Handles an event of the plug-in. `offers` is true if it comes with an offer.
    pub(super) fn room_event(
        &mut self,
        scope: &mut Scope<'_>,
        handle: usize,
        answers: Option<(&'static str, Time)>,
        data: &Value,
        offers: bool,
    ) {
        if let Some((code, reason)) = plugin_error(data) {
            let what = answers.map_or("?", |(name, _)| name);
            return self.room_refused(scope, handle, what, code, &reason);
        }
        match self.handles[handle].role.clone() {
            Role::Participant => self.participant_event(scope, handle, answers, data),
            Role::Everybody => {
                let answers = answers.map(|(name, _)| name);
                self.everybody_event(scope, answers, data, offers);
            }
            Role::Feed(_) | Role::Mountpoint => {}
        }
    }

    /// Handles an error of the room.
    fn room_refused(
        &mut self,
        scope: &mut Scope<'_>,
        handle: usize,
        what: &str,
        code: u64,
        reason: &str,
    ) {
        // The publisher has left meanwhile.
        if code == NO_SUCH_FEED {
            match self.handles[handle].role.clone() {
                Role::Feed(_) => return self.detach(scope, handle),
                Role::Everybody if self.asked_in_vain(scope) => return,
                Role::Everybody | Role::Participant | Role::Mountpoint => {}
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
                if let Some(id) = Id::of_json(&data["id"])
                    && self.room.together.talks(&id, scope.now)
                {
                    self.ask_for_waiting(scope);
                }
            }
            Some("destroyed") => {
                let detail = format!("the room was destroyed ({})", self.url);
                self.fail(scope, Failure::HungUp, detail);
            }
            _ => {}
        }
    }

    /// Handles a list of publishers, and subscribes to the new ones.
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
            match self.settings.subscribe {
                Subscribe::Each => self.attach(scope, Role::Feed(id)),
                _ => self.room.together.came(id, &publisher["streams"]),
            }
        }
        if any && self.settings.subscribe == Subscribe::Together {
            self.ask_for_those_who_came(scope);
        }
    }

    /// Handles a participant that has stopped publishing or has left.
    fn gone(&mut self, scope: &mut Scope<'_>, id: &Id, how: &str) {
        if self.room.own.as_ref() == Some(id) && how == "kicked" {
            let detail = format!("the client was kicked out of the room ({})", self.url);
            return self.fail(scope, Failure::HungUp, detail);
        }
        if !self.room.feeds.remove(id) {
            return;
        }
        if self.room.together.left(id) {
            self.ask_for_waiting(scope);
        }
        let mut handles = self.handles.iter();
        let own = Role::Feed(id.clone());
        if let Some(handle) = handles.position(|handle| !handle.gone && handle.role == own) {
            self.detach(scope, handle);
        }
    }

    /// Subscribes with a handle that was attached for that.
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

    pub(super) fn join_as_subscriber(
        &mut self,
        scope: &mut Scope<'_>,
        handle: usize,
        streams: Value,
    ) {
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

    /// Returns the request for all streams of a publisher, in the configured layer of a simulcast.
    pub(super) fn whole(&self, id: &Id) -> Value {
        let mut stream = json!({"feed": id.to_json()});
        if let Some(layer) = self.settings.substream {
            stream["substream"] = layer.into();
        }
        stream
    }

    /// Destroys the room if the scenario has `room`, unless others publish in it or this client
    /// does not know whether they do: they would be hung up.
    pub(super) fn end_room(&mut self, scope: &mut Scope<'_>) {
        let is_of_run = self.settings.room.is_some();
        let knows_others = self.settings.subscribe != Subscribe::Nobody;
        if is_of_run && knows_others && self.room.own.is_some() && self.room.feeds.is_empty() {
            let room = self.room_id();
            self.ask_plugin(scope, 0, "destroy", json!({"room": room}), None);
        }
    }
}
