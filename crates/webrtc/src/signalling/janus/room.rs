//! VideoRoom plug-in of Janus: a client joins a room, publishes there, and receives the other
//! publishers.

use std::collections::BTreeSet;

use measure::Time;
use serde_json::{Value, json};

use super::message::{janus_failure, plugin_error};
use super::shared_subscription::SharedSubscription;
use super::{Janus, PeerNumber, Role, SignallingAction, SignallingContext, Subscribe};
use crate::failure::Failure;
use crate::metrics as m;
use crate::signalling::{Direction, FEEDS_MAX};
use crate::url::{JanusId, Resource};

/// `JANUS_VIDEOROOM_ERROR_ROOM_EXISTS`.
const ROOM_EXISTS: u64 = 427;

/// `JANUS_VIDEOROOM_ERROR_NO_SUCH_FEED`.
const NO_SUCH_FEED: u64 = 428;

/// State of the client's room.
#[derive(Debug, Default)]
pub(super) struct RoomState {
    /// Id by which the room relates a subscriber to a publisher.
    private_id: Option<u64>,
    /// Id of the client as a publisher.
    own_id: Option<JanusId>,
    /// Publishers that are received, or are to be received.
    pub(super) feeds: BTreeSet<JanusId>,
    pub(super) shared: SharedSubscription,
}

impl RoomState {
    pub(super) fn new(last_n: Option<usize>) -> RoomState {
        RoomState {
            shared: SharedSubscription::new(last_n),
            ..RoomState::default()
        }
    }
}

impl Janus {
    fn room_id(&self) -> Value {
        match &self.place {
            Resource::Room(id) => id.to_json(),
            _ => Value::Null,
        }
    }

    /// Returns the layer of a simulcast that is received, in Janus' numbering.
    pub(super) fn substream(&self) -> Option<u64> {
        let layer = self.config.layer?;
        Some(u64::from(layer.number()))
    }

    /// Returns `true` if there are publishers that this client receives or is to receive.
    pub(super) fn has_publishers(&self) -> bool {
        !self.room.feeds.is_empty()
    }

    /// Joins the room, after creating it if that is configured.
    pub(super) fn create_or_join(&mut self, scope: &mut SignallingContext<'_>, handle: usize) {
        match self.config.room_request() {
            Some(mut body) => {
                body["room"] = self.room_id();
                self.send_plugin_request(scope, handle, "create", body, None);
            }
            None => self.join(scope, handle),
        }
    }

    fn join(&mut self, scope: &mut SignallingContext<'_>, handle: usize) {
        let body = self.with_pin(json!({"room": self.room_id(), "ptype": "publisher"}));
        self.send_plugin_request(scope, handle, "join", body, None);
    }

    /// Handles a request that was answered at once.
    pub(super) fn plugin_done(
        &mut self,
        scope: &mut SignallingContext<'_>,
        handle: usize,
        name: &'static str,
        data: &Value,
    ) {
        match (name, plugin_error(data)) {
            ("create", None | Some((ROOM_EXISTS, _))) => self.join(scope, handle),
            ("destroy", _) | (_, None) => {}
            (name, Some((code, reason))) => {
                self.refused(scope, janus_failure(code), name, code, &reason)
            }
        }
    }

    /// Handles an event of the plug-in. `offers` is true if it comes with an offer.
    pub(super) fn room_event(
        &mut self,
        scope: &mut SignallingContext<'_>,
        handle: usize,
        answers: Option<(&'static str, Time)>,
        data: &Value,
        offers: bool,
    ) {
        if let Some((code, reason)) = plugin_error(data) {
            // The publisher has left meanwhile.
            if code == NO_SUCH_FEED {
                match self.handles[handle].role.clone() {
                    Role::Publisher(_) => return self.detach(scope, handle),
                    Role::AllPublishers if self.handle_refused_change(scope) => return,
                    Role::AllPublishers | Role::Participant | Role::Mountpoint => {}
                }
            }
            let what = answers.map_or("?", |(name, _)| name);
            return self.refused(scope, janus_failure(code), what, code, &reason);
        }
        match self.handles[handle].role.clone() {
            Role::Participant => self.participant_event(scope, handle, answers, data),
            Role::AllPublishers => {
                let answers = answers.map(|(name, _)| name);
                self.handle_shared_event(scope, answers, data, offers);
            }
            Role::Publisher(_) | Role::Mountpoint => {}
        }
    }

    fn participant_event(
        &mut self,
        scope: &mut SignallingContext<'_>,
        handle: usize,
        answers: Option<(&'static str, Time)>,
        data: &Value,
    ) {
        match data["videoroom"].as_str() {
            Some("joined") => {
                if let Some((_, at)) = answers {
                    scope.record_delay(m::JOIN_DELAY, at);
                }
                self.room.own_id = JanusId::from_json(&data["id"]);
                self.room.private_id = data["private_id"].as_u64();
                if self.config.participate.is_some() {
                    scope.push(SignallingAction::CreateOffer {
                        peer: PeerNumber(handle as u32),
                        direction: Direction::Send,
                    });
                }
                self.handle_publishers(scope, &data["publishers"]);
                if !self.room.feeds.is_empty() {
                    scope.push(SignallingAction::ExpectMedia);
                }
            }
            Some("event") => {
                self.handle_publishers(scope, &data["publishers"]);
                for key in ["unpublished", "leaving", "kicked"] {
                    if let Some(id) = JanusId::from_json(&data[key]) {
                        self.handle_publisher_left(scope, &id, key);
                    }
                }
            }
            Some("talking") => {
                if let Some(id) = JanusId::from_json(&data["id"])
                    && self.room.shared.handle_talking(&id, scope.now)
                {
                    self.request_next_change(scope);
                }
            }
            Some("destroyed") => self.fail(scope, Failure::HungUp, "the room was destroyed"),
            _ => {}
        }
    }

    /// Handles a list of publishers, and subscribes to the new ones.
    fn handle_publishers(&mut self, scope: &mut SignallingContext<'_>, publishers: &Value) {
        if !self.config.receives_others() {
            return;
        }
        let mut any = false;
        for publisher in publishers.as_array().into_iter().flatten() {
            let Some(id) = JanusId::from_json(&publisher["id"]) else {
                continue;
            };
            if self.room.feeds.len() >= FEEDS_MAX
                || self.room.own_id.as_ref() == Some(&id)
                || !self.room.feeds.insert(id.clone())
            {
                continue;
            }
            any = true;
            match self.config.subscribe {
                Subscribe::Each => self.attach(scope, Role::Publisher(id)),
                _ => self.room.shared.add(id, &publisher["streams"]),
            }
        }
        if any && self.config.subscribe == Subscribe::Together {
            self.request_new_publishers(scope);
        }
    }

    /// Handles a participant that has stopped publishing or has left.
    fn handle_publisher_left(
        &mut self,
        scope: &mut SignallingContext<'_>,
        id: &JanusId,
        how: &str,
    ) {
        if self.room.own_id.as_ref() == Some(id) && how == "kicked" {
            let what = "the client was kicked out of the room";
            return self.fail(scope, Failure::HungUp, what);
        }
        if !self.room.feeds.remove(id) {
            return;
        }
        if self.room.shared.remove(id) {
            self.request_next_change(scope);
        }
        let mut handles = self.handles.iter();
        let own = Role::Publisher(id.clone());
        if let Some(handle) = handles.position(|handle| !handle.is_detached && handle.role == own) {
            self.detach(scope, handle);
        }
    }

    /// Subscribes with a handle that was attached for that.
    pub(super) fn subscribe(&mut self, scope: &mut SignallingContext<'_>, handle: usize) {
        match self.handles[handle].role.clone() {
            Role::Publisher(id) if self.room.feeds.contains(&id) => {
                let streams = vec![self.publisher_subscription(&id)];
                self.join_as_subscriber(scope, handle, streams.into());
            }
            Role::Publisher(_) => self.detach(scope, handle),
            _ => self.request_next_change(scope),
        }
    }

    pub(super) fn join_as_subscriber(
        &mut self,
        scope: &mut SignallingContext<'_>,
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
        let body = self.with_pin(body);
        self.send_plugin_request(scope, handle, "join", body, None);
    }

    /// Returns the request for all streams of a publisher, in the configured layer of a simulcast.
    pub(super) fn publisher_subscription(&self, id: &JanusId) -> Value {
        let mut stream = json!({"feed": id.to_json()});
        if let Some(layer) = self.substream() {
            stream["substream"] = layer.into();
        }
        stream
    }

    /// Destroys the room if the scenario has `room`, unless others publish in it or this client
    /// does not know whether they do: they would be hung up.
    pub(super) fn destroy_room(&mut self, scope: &mut SignallingContext<'_>) {
        let creates_room = self.config.room.is_some();
        let knows_others = self.config.receives_others();
        if creates_room && knows_others && self.room.own_id.is_some() && self.room.feeds.is_empty()
        {
            let room = self.room_id();
            self.send_plugin_request(scope, 0, "destroy", json!({"room": room}), None);
        }
    }
}
