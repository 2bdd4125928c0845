//! Requests to VideoRoom.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::subscriber::Subscriber;
use super::{HandleUse, JanusConnection, JanusError, JoinedParticipant, Jsep, code, janus_error};
use crate::server::add;
use crate::server::negotiation::NegotiationError;
use crate::server::publication::{Publication, Track};
use crate::server::rooms::{Publications, Room, RoomError, announce_change};
use crate::url::JanusId;
use session::{Context, Output};

/// Result of a request.
enum Reply {
    /// The request is answered at once.
    Success(Value),
    /// The request is acknowledged, and an event with the answer follows.
    Event(Value, Jsep),
}

type ReplyResult = Result<Reply, JanusError>;

/// Returns a publisher's streams in the JSON form of VideoRoom.
pub(super) fn streams_json(tracks: &[Track]) -> Value {
    let stream = |(index, track): (usize, &Track)| {
        json!({
            "type": track.kind.name(),
            "mindex": index,
            "mid": index.to_string(),
            "codec": track.codec.name.to_lowercase(),
        })
    };
    tracks.iter().enumerate().map(stream).collect()
}

fn publishers_json(feeds: &Publications, without: u64) -> Value {
    let others = feeds.iter().filter(|(id, _)| **id != without);
    let one = |(id, own): (&u64, &Arc<Publication>)| {
        let streams = streams_json(&own.tracks);
        json!({"id": id, "streams": streams})
    };
    others.map(one).collect()
}

fn peer_numbers(feeds: &Publications) -> BTreeMap<u64, u64> {
    let numbers = feeds.iter().map(|(feed, own)| (*feed, own.number));
    numbers.collect()
}

fn room_id(body: &Value) -> Result<JanusId, JanusError> {
    let id = JanusId::from_json(&body["room"]);
    id.ok_or_else(|| janus_error(code::INVALID_ELEMENT, "`room` must be a number or a string"))
}

impl JanusConnection {
    /// Handles a message for the plug-in.
    pub(super) fn plugin_message(&mut self, cx: &mut Context<'_>, id: u64, message: &Value) {
        let body = &message["body"];
        let sdp = message["jsep"]["sdp"].as_str();
        let request = body["request"].as_str().unwrap_or_default();
        let result = match request {
            "create" => self.create(body),
            "destroy" => self.destroy(cx, body),
            "join" | "joinandconfigure" => self.join(cx, id, body),
            "publish" | "configure" => self.publish(cx, id, sdp),
            "unpublish" => self.unpublish(cx, id),
            "leave" => self.leave_room(cx, id),
            "start" => self.start(cx, id, sdp),
            "subscribe" | "unsubscribe" | "update" => {
                self.update_subscriptions(cx, id, request, body)
            }
            _ => Err(janus_error(code::INVALID_REQUEST, "unknown request")),
        };
        let reply = result.unwrap_or_else(|(code, why)| {
            add(&self.shared.counters.refused, 1);
            let data = json!({"videoroom": "event", "error_code": code, "error": why});
            match request {
                "create" | "destroy" => Reply::Success(data),
                _ => Reply::Event(data, None),
            }
        });
        match reply {
            Reply::Success(data) => {
                let data = json!({"plugin": "janus.plugin.videoroom", "data": data});
                let answer = json!({"janus": "success", "sender": id, "plugindata": data});
                self.answer(cx, message, answer);
            }
            Reply::Event(data, sdp) => {
                self.answer(cx, message, json!({"janus": "ack"}));
                self.event(cx, id, message, data, sdp);
            }
        }
    }

    fn create(&self, body: &Value) -> ReplyResult {
        let room = room_id(body)?;
        match self.shared.rooms().create(&room, true) {
            Ok(()) => Ok(Reply::Success(
                json!({"videoroom": "created", "room": room.to_json(), "permanent": false}),
            )),
            Err(RoomError::Exists) => {
                Err(janus_error(code::ROOM_EXISTS, "the room already exists"))
            }
            Err(RoomError::Full) => Err(janus_error(code::PUBLISHERS_FULL, "too many rooms")),
        }
    }

    /// Removes a room. Its participants are notified when they find it missing.
    fn destroy(&mut self, cx: &mut Context<'_>, body: &Value) -> ReplyResult {
        let room = room_id(body)?;
        let topic = self.shared.rooms().destroy(&room);
        if topic.is_none() {
            return Err(janus_error(code::NO_SUCH_ROOM, "no such room"));
        }
        announce_change(cx, topic);
        let data = json!({"videoroom": "destroyed", "room": room.to_json()});
        Ok(Reply::Success(data))
    }

    fn join(&mut self, cx: &mut Context<'_>, id: u64, body: &Value) -> ReplyResult {
        if !matches!(self.handles.get(&id), Some(HandleUse::Unused)) {
            return Err(janus_error(
                code::ALREADY_JOINED,
                "the handle has already joined a room",
            ));
        }
        if let Some(status) = self.shared.config.faults.answer {
            let why = format!("refused on purpose ({status})");
            return Err((code::PUBLISHERS_FULL, why));
        }
        let room = room_id(body)?;
        match body["ptype"].as_str() {
            Some("publisher") => self.join_as_publisher(cx, id, room),
            Some("subscriber") => self.join_as_subscriber(cx, id, room, body),
            _ => Err(janus_error(
                code::INVALID_ELEMENT,
                "`ptype` must be `publisher` or `subscriber`",
            )),
        }
    }

    fn join_as_publisher(&mut self, cx: &mut Context<'_>, id: u64, room: JanusId) -> ReplyResult {
        let mut rooms = self.shared.rooms();
        let joined = rooms.join(&room);
        let number = joined.map_err(|_| janus_error(code::PUBLISHERS_FULL, "the room is full"))?;
        let (feeds, topic) = rooms.publications(&room).unwrap_or_default();
        drop(rooms);
        cx.out.push_back(Output::Subscribe {
            topic: topic.clone(),
        });
        let data = json!({
            "videoroom": "joined",
            "room": room.to_json(),
            "id": number,
            "private_id": number,
            "publishers": publishers_json(&feeds, number),
        });
        let participant = JoinedParticipant {
            room,
            number,
            topic,
            peer_id: None,
            known_publishers: peer_numbers(&feeds),
        };
        self.handles
            .insert(id, HandleUse::Participant(Box::new(participant)));
        Ok(Reply::Event(data, None))
    }

    fn participant(&mut self, id: u64) -> Result<&mut JoinedParticipant, JanusError> {
        match self.handles.get_mut(&id) {
            Some(HandleUse::Participant(participant)) => Ok(participant),
            _ => Err(janus_error(code::JOIN_FIRST, "join the room first")),
        }
    }

    fn publish(&mut self, cx: &mut Context<'_>, id: u64, sdp: Option<&str>) -> ReplyResult {
        let (shared, local) = (self.shared.clone(), self.local);
        let participant = self.participant(id)?;
        let configured = json!({"videoroom": "event", "configured": "ok"});
        let Some(sdp) = sdp else {
            return Ok(Reply::Event(configured, None));
        };
        if participant.peer_id.is_some() {
            return Err(janus_error(
                code::ALREADY_PUBLISHED,
                "the handle already publishes a stream",
            ));
        }
        let invalid = |refused: NegotiationError| (code::INVALID_SDP, refused.text);
        let answerer = shared.create_answerer(cx.now, local, sdp);
        let (offer, negotiating) = answerer.map_err(invalid)?;
        let mut rooms = shared.rooms();
        let name = rooms.start_publishing(&participant.room, participant.number);
        drop(rooms);
        let gone = || janus_error(code::NO_SUCH_ROOM, "the room was removed");
        let negotiated = shared.negotiate_publisher(&offer, &name.ok_or_else(gone)?, negotiating);
        let negotiated = negotiated.map_err(invalid)?;
        participant.peer_id = Some(negotiated.id);
        let answer = negotiated.answer.to_string();
        Ok(Reply::Event(configured, Some(("answer", answer))))
    }

    fn unpublish(&mut self, cx: &mut Context<'_>, id: u64) -> ReplyResult {
        let shared = self.shared.clone();
        if !self.participant(id)?.unpublish(cx, &shared) {
            let why = "the handle publishes no stream";
            return Err(janus_error(code::NOT_PUBLISHED, why));
        }
        let data = json!({"videoroom": "event", "unpublished": "ok"});
        Ok(Reply::Event(data, None))
    }

    fn leave_room(&mut self, cx: &mut Context<'_>, id: u64) -> ReplyResult {
        self.participant(id)?;
        let handle_use = self.handles.insert(id, HandleUse::Unused);
        self.release(cx, handle_use.unwrap_or(HandleUse::Unused));
        let data = json!({"videoroom": "event", "leaving": "ok"});
        Ok(Reply::Event(data, None))
    }

    /// Subscribes a handle to participants of a room.
    fn join_as_subscriber(
        &mut self,
        cx: &mut Context<'_>,
        id: u64,
        room: JanusId,
        body: &Value,
    ) -> ReplyResult {
        let shared = self.shared.clone();
        let found = shared.rooms().publications(&room);
        let (feeds, topic) =
            found.ok_or_else(|| janus_error(code::NO_SUCH_ROOM, "no such room"))?;
        let negotiating = shared.create_peer(cx.now, self.local, true);
        let negotiating = negotiating.map_err(|refused| (code::PUBLISHERS_FULL, refused.text))?;
        let mut subscriber = Subscriber::new(shared, room, topic.clone(), negotiating);
        match subscriber.select_tracks(&feeds, &body["streams"]) {
            Ok(wanted) => subscriber.subscribe(wanted),
            Err(error) => {
                self.shared.end_peer(cx, &subscriber.id);
                return Err(error);
            }
        }
        let (data, offer) = subscriber.create_offer("attached");
        cx.out.push_back(Output::Subscribe { topic });
        self.handles
            .insert(id, HandleUse::Subscriber(Box::new(subscriber)));
        Ok(Reply::Event(data, offer))
    }

    fn subscriber(&mut self, id: u64) -> Result<&mut Subscriber, JanusError> {
        match self.handles.get_mut(&id) {
            Some(HandleUse::Subscriber(subscriber)) => Ok(subscriber),
            _ => Err(janus_error(
                code::JOIN_FIRST,
                "join the room as a subscriber first",
            )),
        }
    }

    /// Handles a subscriber's answer.
    fn start(&mut self, cx: &mut Context<'_>, id: u64, sdp: Option<&str>) -> ReplyResult {
        let subscriber = self.subscriber(id)?;
        subscriber.handle_answer(cx, sdp)?;
        let next = subscriber.next_offer();
        let data = json!({"videoroom": "event", "started": "ok"});
        if let Some((updated, offer)) = next {
            // Changes since the last offer follow in a new one.
            self.event(cx, id, &Value::Null, updated, offer);
        }
        Ok(Reply::Event(data, None))
    }

    /// Changes the subscriptions of a handle.
    fn update_subscriptions(
        &mut self,
        cx: &mut Context<'_>,
        id: u64,
        request: &str,
        body: &Value,
    ) -> ReplyResult {
        let shared = self.shared.clone();
        let subscriber = self.subscriber(id)?;
        let found = shared.rooms().publications(&subscriber.room);
        let (feeds, _) =
            found.ok_or_else(|| janus_error(code::NO_SUCH_ROOM, "the room was removed"))?;
        let (added, removed) = match request {
            "subscribe" => (&body["streams"], &Value::Null),
            "unsubscribe" => (&Value::Null, &body["streams"]),
            _ => (&body["subscribe"], &body["unsubscribe"]),
        };
        let wanted = subscriber.select_tracks(&feeds, added)?;
        subscriber.unsubscribe(cx, removed);
        subscriber.subscribe(wanted);
        match subscriber.next_offer() {
            Some((data, offer)) => Ok(Reply::Event(data, offer)),
            None if subscriber.offer_pending => {
                Ok(Reply::Event(json!({"videoroom": "updating"}), None))
            }
            None => Ok(Reply::Event(json!({"videoroom": "updated"}), None)),
        }
    }

    /// Notifies a handle of changes in its room.
    pub(super) fn notify_changes(&mut self, cx: &mut Context<'_>, id: u64, topic: &str) {
        let shared = self.shared.clone();
        match self.handles.get_mut(&id) {
            Some(HandleUse::Participant(participant)) if participant.topic == topic => {
                let feeds = {
                    let rooms = shared.rooms();
                    let own = participant.number;
                    let room = rooms.find(&participant.room);
                    let room = room.filter(|room| room.topic() == topic && room.contains(own));
                    room.map(Room::active_publications)
                };
                let (room, number) = (participant.room.to_json(), participant.number);
                let Some(feeds) = feeds else {
                    // Later messages on this topic concern another room.
                    participant.topic.clear();
                    let data = json!({"videoroom": "destroyed", "room": room});
                    return self.event(cx, id, &Value::Null, data, None);
                };
                let now = peer_numbers(&feeds);
                let known = std::mem::replace(&mut participant.known_publishers, now.clone());
                let differs = |one: &BTreeMap<u64, u64>, feed: &u64, of: u64| {
                    one.get(feed) != Some(&of) && *feed != number
                };
                let gone = known.iter().filter(|(feed, of)| differs(&now, feed, **of));
                for (gone, _) in gone {
                    let data = json!({"videoroom": "event", "room": room, "unpublished": gone});
                    self.event(cx, id, &Value::Null, data, None);
                }
                let mut new = feeds;
                new.retain(|feed, own| differs(&known, feed, own.number));
                let new = publishers_json(&new, number);
                if new.as_array().is_some_and(|new| !new.is_empty()) {
                    let data = json!({"videoroom": "event", "room": room, "publishers": new});
                    self.event(cx, id, &Value::Null, data, None);
                }
            }
            Some(HandleUse::Subscriber(subscriber)) => {
                let found = shared.rooms().publications(&subscriber.room);
                let Some((feeds, _)) = found.filter(|(_, own)| own == topic) else {
                    return;
                };
                subscriber.unsubscribe_departed(&feeds);
                if let Some((data, offer)) = subscriber.next_offer() {
                    self.event(cx, id, &Value::Null, data, offer);
                }
            }
            _ => {}
        }
    }
}
