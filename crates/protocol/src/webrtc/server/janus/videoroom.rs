//! Requests to VideoRoom.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::attending::Attending;
use super::{Door, Jsep, Person, Refused, Work, code, refused, tell_room};
use crate::session::{Context, Output};
use crate::webrtc::server::add;
use crate::webrtc::server::relay::{Publication, Track};
use crate::webrtc::server::rooms::{NoRoom, Room};
use crate::webrtc::url::Id;

/// Result of a request.
enum Done {
    /// The request is answered at once.
    Success(Value),
    /// The request is acknowledged, and an event with the answer follows.
    Event(Value, Jsep),
}

/// Returns a publisher's streams in the JSON form of VideoRoom.
pub(super) fn streams_of(tracks: &[Track]) -> Value {
    let stream = |(place, track): (usize, &Track)| {
        json!({
            "type": track.kind.name(),
            "mindex": place,
            "mid": place.to_string(),
            "codec": track.codec.name.to_lowercase(),
        })
    };
    tracks.iter().enumerate().map(stream).collect()
}

fn publishers(feeds: &BTreeMap<u64, Arc<Publication>>, without: u64) -> Value {
    let others = feeds.iter().filter(|(id, _)| **id != without);
    let one = |(id, own): (&u64, &Arc<Publication>)| {
        let streams = streams_of(&own.tracks);
        json!({"id": id, "streams": streams})
    };
    others.map(one).collect()
}

fn numbers_of(feeds: &BTreeMap<u64, Arc<Publication>>) -> BTreeMap<u64, u64> {
    let numbers = feeds.iter().map(|(feed, own)| (*feed, own.number));
    numbers.collect()
}

fn room_of(body: &Value) -> Result<Id, Refused> {
    let id = Id::of_json(&body["room"]);
    id.ok_or_else(|| refused(code::INVALID_ELEMENT, "`room` must be a number or a string"))
}

impl Door {
    /// Handles a message for the plug-in.
    pub(super) fn plugin_message(&mut self, cx: &mut Context<'_>, id: u64, message: &Value) {
        let body = &message["body"];
        let sdp = message["jsep"]["sdp"].as_str();
        let request = body["request"].as_str().unwrap_or_default();
        let done = match request {
            "create" => self.make(body),
            "destroy" => self.destroy(cx, body),
            "join" | "joinandconfigure" => self.join(cx, id, body),
            "publish" | "configure" => self.publish(cx, id, sdp),
            "unpublish" => self.unpublish(cx, id),
            "leave" => self.leave_room(cx, id),
            "start" => self.start(cx, id, sdp),
            "subscribe" | "unsubscribe" | "update" => self.change(cx, id, request, body),
            _ => Err(refused(code::INVALID_REQUEST, "unknown request")),
        };
        let plugin = |data| json!({"plugin": "janus.plugin.videoroom", "data": data});
        match done {
            Ok(Done::Success(data)) => {
                let answer = json!({"janus": "success", "sender": id, "plugindata": plugin(data)});
                self.answer(cx, message, answer);
            }
            Ok(Done::Event(data, sdp)) => {
                self.answer(cx, message, json!({"janus": "ack"}));
                self.event(cx, id, message, data, sdp);
            }
            Err((code, why)) => {
                add(&self.shared.door.refused, 1);
                let data = json!({"videoroom": "event", "error_code": code, "error": why});
                match request {
                    "create" | "destroy" => {
                        let plugin = plugin(data);
                        let answer =
                            json!({"janus": "success", "sender": id, "plugindata": plugin});
                        self.answer(cx, message, answer);
                    }
                    _ => {
                        self.answer(cx, message, json!({"janus": "ack"}));
                        self.event(cx, id, message, data, None);
                    }
                }
            }
        }
    }

    fn make(&self, body: &Value) -> Result<Done, Refused> {
        let room = room_of(body)?;
        match self.shared.rooms().make(&room) {
            Ok(()) => Ok(Done::Success(
                json!({"videoroom": "created", "room": room.to_json(), "permanent": false}),
            )),
            Err(NoRoom::Exists) => Err(refused(code::ROOM_EXISTS, "the room already exists")),
            Err(NoRoom::Full) => Err(refused(code::PUBLISHERS_FULL, "too many rooms")),
        }
    }

    /// Removes a room. Its participants are notified when they find it missing.
    fn destroy(&mut self, cx: &mut Context<'_>, body: &Value) -> Result<Done, Refused> {
        let room = room_of(body)?;
        let topic = self.shared.rooms().destroy(&room);
        if topic.is_none() {
            return Err(refused(code::NO_SUCH_ROOM, "no such room"));
        }
        tell_room(cx, topic);
        let done = json!({"videoroom": "destroyed", "room": room.to_json()});
        Ok(Done::Success(done))
    }

    fn join(&mut self, cx: &mut Context<'_>, id: u64, body: &Value) -> Result<Done, Refused> {
        if !matches!(self.handles.get(&id), Some(Work::Nothing)) {
            return Err(refused(
                code::ALREADY_JOINED,
                "the handle has already joined a room",
            ));
        }
        if let Some(status) = self.shared.config.faults.answer {
            let why = format!("refused on purpose ({status})");
            return Err((code::PUBLISHERS_FULL, why));
        }
        let room = room_of(body)?;
        match body["ptype"].as_str() {
            Some("publisher") => self.enter(cx, id, room),
            Some("subscriber") => self.attend(cx, id, room, body),
            _ => Err(refused(
                code::INVALID_ELEMENT,
                "`ptype` must be `publisher` or `subscriber`",
            )),
        }
    }

    fn enter(&mut self, cx: &mut Context<'_>, id: u64, room: Id) -> Result<Done, Refused> {
        let mut rooms = self.shared.rooms();
        let entered = rooms.enter(&room);
        let number = entered.map_err(|_| refused(code::PUBLISHERS_FULL, "the room is full"))?;
        let (feeds, topic) = rooms
            .find(&room)
            .map(|room| (room.feeds(), room.topic()))
            .unwrap_or_default();
        drop(rooms);
        cx.out.push_back(Output::Listen {
            topic: topic.clone(),
        });
        let data = json!({
            "videoroom": "joined",
            "room": room.to_json(),
            "id": number,
            "private_id": number,
            "publishers": publishers(&feeds, number),
        });
        let person = Person {
            room,
            number,
            topic,
            publishes: None,
            known: numbers_of(&feeds),
        };
        self.handles.insert(id, Work::Person(Box::new(person)));
        Ok(Done::Event(data, None))
    }

    fn person(&mut self, id: u64) -> Result<&mut Person, Refused> {
        match self.handles.get_mut(&id) {
            Some(Work::Person(person)) => Ok(person),
            _ => Err(refused(code::JOIN_FIRST, "join the room first")),
        }
    }

    fn publish(
        &mut self,
        cx: &mut Context<'_>,
        id: u64,
        sdp: Option<&str>,
    ) -> Result<Done, Refused> {
        let (shared, local) = (self.shared.clone(), self.local);
        let person = self.person(id)?;
        let configured = json!({"videoroom": "event", "configured": "ok"});
        let Some(sdp) = sdp else {
            return Ok(Done::Event(configured, None));
        };
        if person.publishes.is_some() {
            return Err(refused(
                code::ALREADY_PUBLISHED,
                "the handle already publishes a stream",
            ));
        }
        let agreed = shared
            .begin_to_answer(cx.now, local, sdp)
            .map_err(|refused| (code::INVALID_SDP, refused.why))
            .and_then(|(offer, begun)| {
                let name = shared.rooms().publishes(&person.room, person.number);
                let gone = || refused(code::NO_SUCH_ROOM, "the room was removed");
                let name = name.ok_or_else(gone)?;
                let agreed = shared.agree_to_publish(&offer, &name, begun);
                agreed.map_err(|refused| (code::INVALID_SDP, refused.why))
            })?;
        person.publishes = Some(agreed.id);
        let answer = agreed.answer.to_string();
        Ok(Done::Event(configured, Some(("answer", answer))))
    }

    fn unpublish(&mut self, cx: &mut Context<'_>, id: u64) -> Result<Done, Refused> {
        let shared = self.shared.clone();
        let person = self.person(id)?;
        let own = person.publishes.take();
        let own =
            own.ok_or_else(|| refused(code::NOT_PUBLISHED, "the handle publishes no stream"))?;
        let topic = shared.rooms().unpublishes(&person.room, person.number);
        tell_room(cx, topic);
        shared.end_peer(cx, &own);
        let data = json!({"videoroom": "event", "unpublished": "ok"});
        Ok(Done::Event(data, None))
    }

    fn leave_room(&mut self, cx: &mut Context<'_>, id: u64) -> Result<Done, Refused> {
        self.person(id)?;
        let work = self.handles.insert(id, Work::Nothing);
        self.leave(cx, work.unwrap_or(Work::Nothing));
        let data = json!({"videoroom": "event", "leaving": "ok"});
        Ok(Done::Event(data, None))
    }

    /// Subscribes a handle to participants of a room.
    fn attend(
        &mut self,
        cx: &mut Context<'_>,
        id: u64,
        room: Id,
        body: &Value,
    ) -> Result<Done, Refused> {
        let shared = self.shared.clone();
        let feeds = {
            let rooms = shared.rooms();
            let found = rooms.find(&room).map(|room| (room.feeds(), room.topic()));
            found.ok_or_else(|| refused(code::NO_SUCH_ROOM, "no such room"))?
        };
        let (feeds, topic) = feeds;
        let begun = shared.begin_to_offer(cx.now, self.local);
        let begun = begun.map_err(|refused| (code::PUBLISHERS_FULL, refused.why))?;
        let mut attending = Attending::new(shared, (room, topic.clone()), begun);
        match attending.wanted(&feeds, &body["streams"]) {
            Ok(wanted) => attending.subscribe(wanted),
            Err(error) => {
                self.shared.end_peer(cx, attending.id());
                return Err(error);
            }
        }
        let (offer, streams) = attending.offer();
        cx.out.push_back(Output::Listen { topic });
        self.handles.insert(id, Work::Attends(Box::new(attending)));
        let data = json!({"videoroom": "attached", "streams": streams});
        Ok(Done::Event(data, Some(("offer", offer))))
    }

    fn attending(&mut self, id: u64) -> Result<&mut Attending, Refused> {
        match self.handles.get_mut(&id) {
            Some(Work::Attends(attending)) => Ok(attending),
            _ => Err(refused(
                code::JOIN_FIRST,
                "join the room as a subscriber first",
            )),
        }
    }

    /// Handles a subscriber's answer.
    fn start(&mut self, cx: &mut Context<'_>, id: u64, sdp: Option<&str>) -> Result<Done, Refused> {
        let attending = self.attending(id)?;
        attending.answered(cx, sdp)?;
        let again = attending.offer_again();
        let data = json!({"videoroom": "event", "started": "ok"});
        if let Some((offer, streams)) = again {
            // Changes since the last offer follow in a new one.
            let updated = json!({"videoroom": "updated", "streams": streams});
            self.event(cx, id, &Value::Null, updated, Some(("offer", offer)));
        }
        Ok(Done::Event(data, None))
    }

    /// Changes the subscriptions of a handle.
    fn change(
        &mut self,
        cx: &mut Context<'_>,
        id: u64,
        request: &str,
        body: &Value,
    ) -> Result<Done, Refused> {
        let shared = self.shared.clone();
        let attending = self.attending(id)?;
        let feeds = {
            let rooms = shared.rooms();
            rooms.find(attending.room()).map(Room::feeds)
        };
        let feeds = feeds.ok_or_else(|| refused(code::NO_SUCH_ROOM, "the room was removed"))?;
        let (more, fewer) = match request {
            "subscribe" => (&body["streams"], &Value::Null),
            "unsubscribe" => (&Value::Null, &body["streams"]),
            _ => (&body["subscribe"], &body["unsubscribe"]),
        };
        let wanted = attending.wanted(&feeds, more)?;
        attending.unsubscribe(cx, fewer);
        attending.subscribe(wanted);
        match attending.offer_again() {
            Some((offer, streams)) => {
                let data = json!({"videoroom": "updated", "streams": streams});
                Ok(Done::Event(data, Some(("offer", offer))))
            }
            None if attending.is_asked() => Ok(Done::Event(json!({"videoroom": "updating"}), None)),
            None => Ok(Done::Event(json!({"videoroom": "updated"}), None)),
        }
    }

    /// Notifies a handle of changes in its room.
    pub(super) fn look_around(&mut self, cx: &mut Context<'_>, id: u64, topic: &str) {
        let shared = self.shared.clone();
        match self.handles.get_mut(&id) {
            Some(Work::Person(person)) if person.topic == topic => {
                let feeds = {
                    let rooms = shared.rooms();
                    let own = person.number;
                    let room = rooms.find(&person.room);
                    let room = room.filter(|room| room.topic() == topic && room.has(own));
                    room.map(Room::feeds)
                };
                let (room, number) = (person.room.to_json(), person.number);
                let Some(feeds) = feeds else {
                    // Later messages on this topic concern another room.
                    person.topic.clear();
                    let data = json!({"videoroom": "destroyed", "room": room});
                    return self.event(cx, id, &Value::Null, data, None);
                };
                let now = numbers_of(&feeds);
                let known = std::mem::replace(&mut person.known, now.clone());
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
                let new = publishers(&new, number);
                if new.as_array().is_some_and(|new| !new.is_empty()) {
                    let data = json!({"videoroom": "event", "room": room, "publishers": new});
                    self.event(cx, id, &Value::Null, data, None);
                }
            }
            Some(Work::Attends(attending)) => {
                let feeds = {
                    let rooms = shared.rooms();
                    let room = rooms.find(attending.room());
                    room.filter(|room| room.topic() == topic).map(Room::feeds)
                };
                let Some(feeds) = feeds else { return };
                attending.forget_who_left(&feeds);
                if let Some((offer, streams)) = attending.offer_again() {
                    let data = json!({"videoroom": "updated", "streams": streams});
                    self.event(cx, id, &Value::Null, data, Some(("offer", offer)));
                }
            }
            _ => {}
        }
    }
}
