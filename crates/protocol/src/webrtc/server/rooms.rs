//! Rooms: participants and the streams that they publish.

use std::collections::BTreeMap;
use std::sync::Arc;

use slab::Slab;

use super::playing::Feed;
use super::relay::Publication;
use crate::webrtc::sdp::Transport;
use crate::webrtc::url::Id;

/// Maximum number of rooms, and of participants per room. The latter is bounded because each join
/// and each leave makes every participant read the room again.
const ROOMS_MAX: usize = 10_000;
const PEOPLE_MAX: usize = 1_000;

/// Message on a room's topic that the room changed. Receivers read the room again.
pub(super) const CHANGED: &str = "changed";

/// Reason why a room cannot be created or entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// The room already exists.
    Exists,
    /// The limit of rooms, or of participants in the room, is reached.
    Full,
}

/// Change to the streams that a PeerConnection plays.
#[derive(Debug)]
pub(super) enum More {
    /// Start playing this stream.
    Plays(Feed),
    /// Stop the stream that is sent with this SSRC.
    Stops(u32),
}

#[derive(Debug)]
pub(super) struct Room {
    /// Slot of the room. The room's topic is named after it. A later room reuses the slot, because
    /// topics are never released.
    place: usize,
    /// True if the room remains when it is empty.
    stays: bool,
    people: BTreeMap<u64, Person>,
}

/// Participant of a room.
#[derive(Debug, Default)]
struct Person {
    /// Name of the stream that the participant publishes.
    stream: Option<String>,
    /// Publication of that stream, while its media arrives.
    comes: Option<Arc<Publication>>,
}

impl Room {
    /// Returns the publications whose media arrives, by participant.
    pub(super) fn feeds(&self) -> BTreeMap<u64, Arc<Publication>> {
        let people = self.people.iter();
        let feeds = people.filter_map(|(id, person)| Some((*id, person.comes.clone()?)));
        feeds.collect()
    }

    /// Topic on which changes of the room are announced.
    pub(super) fn topic(&self) -> String {
        format!("webrtc-server/room/{}", self.place)
    }

    /// Returns true if the participant is in the room.
    pub(super) fn has(&self, person: u64) -> bool {
        self.people.contains_key(&person)
    }
}

#[derive(Debug, Default)]
pub(super) struct Rooms {
    rooms: BTreeMap<Id, Room>,
    /// Slots in use.
    places: Slab<()>,
    /// Number of participants so far, and number of streams published so far.
    came: u64,
    published: u64,
    /// Room and participant of each published stream, by stream name.
    streams: BTreeMap<String, (Id, u64)>,
    /// Answers to the server's offers, by PeerConnection number.
    answers: BTreeMap<u64, Transport>,
    /// Pending changes to what is played, by PeerConnection number.
    more: BTreeMap<u64, Vec<More>>,
}

impl Rooms {
    /// Creates a room that remains when it is empty.
    pub(super) fn make(&mut self, id: &Id) -> Result<(), NoRoom> {
        self.make_one(id, true)
    }

    fn make_one(&mut self, id: &Id, stays: bool) -> Result<(), NoRoom> {
        if self.rooms.contains_key(id) {
            return Err(NoRoom::Exists);
        }
        if self.rooms.len() >= ROOMS_MAX {
            return Err(NoRoom::Full);
        }
        let room = Room {
            place: self.places.insert(()),
            stays,
            people: BTreeMap::new(),
        };
        self.rooms.insert(id.clone(), room);
        Ok(())
    }

    pub(super) fn find(&self, id: &Id) -> Option<&Room> {
        self.rooms.get(id)
    }

    /// Removes a room. Returns its topic if the room existed.
    pub(super) fn destroy(&mut self, id: &Id) -> Option<String> {
        let room = self.rooms.remove(id)?;
        self.places.try_remove(room.place);
        for stream in room.people.values().filter_map(|own| own.stream.as_ref()) {
            self.streams.remove(stream);
        }
        Some(room.topic())
    }

    /// Adds a participant to a room, which is created if needed. Returns the participant's number.
    pub(super) fn enter(&mut self, id: &Id) -> Result<u64, NoRoom> {
        match self.make_one(id, false) {
            Ok(()) | Err(NoRoom::Exists) => {}
            Err(full) => return Err(full),
        }
        let room = self.rooms.get_mut(id).expect("it is there now");
        if room.people.len() >= PEOPLE_MAX {
            return Err(NoRoom::Full);
        }
        self.came += 1;
        room.people.insert(self.came, Person::default());
        Ok(self.came)
    }

    /// Removes a participant. Returns the room's topic.
    pub(super) fn leave(&mut self, id: &Id, person: u64) -> Option<String> {
        let room = self.rooms.get_mut(id)?;
        let gone = room.people.remove(&person)?;
        if let Some(stream) = gone.stream {
            self.streams.remove(&stream);
        }
        match room.people.is_empty() && !room.stays {
            true => self.destroy(id),
            false => Some(room.topic()),
        }
    }

    /// Starts a publication of a participant and returns its stream name. Each name is new, because
    /// the participant's earlier stream may still be ending. Returns `None` if the participant is
    /// not in the room.
    pub(super) fn publishes(&mut self, id: &Id, person: u64) -> Option<String> {
        let own = self.rooms.get_mut(id)?.people.get_mut(&person)?;
        self.published += 1;
        // HTTP paths contain no space, so no client of WHIP can take this name.
        let name = format!("room {id}/{person}/{}", self.published);
        if let Some(before) = own.stream.replace(name.clone()) {
            self.streams.remove(&before);
        }
        own.comes = None;
        self.streams.insert(name.clone(), (id.clone(), person));
        Some(name)
    }

    /// Ends a participant's publication. Returns the room's topic.
    pub(super) fn unpublishes(&mut self, id: &Id, person: u64) -> Option<String> {
        let room = self.rooms.get_mut(id)?;
        let own = room.people.get_mut(&person)?;
        own.comes = None;
        if let Some(stream) = own.stream.take() {
            self.streams.remove(&stream);
        }
        Some(room.topic())
    }

    /// Records that the media of a stream starts to arrive, or has ended. Returns the room's topic
    /// if the stream belongs to a room.
    pub(super) fn comes(
        &mut self,
        name: &str,
        publication: &Arc<Publication>,
        comes: bool,
    ) -> Option<String> {
        let (id, person) = self.streams.get(name)?;
        let room = self.rooms.get_mut(id)?;
        let own = room.people.get_mut(person)?;
        own.comes = comes.then(|| publication.clone());
        Some(room.topic())
    }

    /// Stores the client's answer for a PeerConnection that has already started.
    pub(super) fn answered(&mut self, number: u64, theirs: Transport) {
        self.answers.insert(number, theirs);
    }

    /// Takes the client's answer for a PeerConnection.
    pub(super) fn take_answer(&mut self, number: u64) -> Option<Transport> {
        self.answers.remove(&number)
    }

    /// Adds changes to what a PeerConnection plays.
    pub(super) fn plays_more(&mut self, number: u64, more: Vec<More>) {
        self.more.entry(number).or_default().extend(more);
    }

    /// Takes the pending changes to what a PeerConnection plays.
    pub(super) fn take_more(&mut self, number: u64) -> Vec<More> {
        self.more.remove(&number).unwrap_or_default()
    }

    /// Returns true if no answer and no change is pending.
    #[cfg(test)]
    pub(super) fn has_nothing_to_do(&self) -> bool {
        self.more.is_empty() && self.answers.is_empty()
    }

    /// Discards the pending answer and changes of a PeerConnection.
    pub(super) fn forget_more(&mut self, number: u64) {
        self.answers.remove(&number);
        self.more.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publication(number: u64) -> Arc<Publication> {
        Arc::new(Publication {
            number,
            name: String::new(),
            slot: 0,
            index: 0,
            tracks: Vec::new(),
        })
    }

    #[test]
    fn publisher_is_listed_from_first_media_until_it_leaves() {
        let mut rooms = Rooms::default();
        let id = Id::Number(7);
        assert_eq!(rooms.make(&id), Ok(()));
        assert_eq!(rooms.make(&id), Err(NoRoom::Exists));
        let [one, other] = [(); 2].map(|()| rooms.enter(&id).expect("there is room"));
        let feeds = |rooms: &Rooms| {
            let feeds = rooms.find(&id).map(Room::feeds).unwrap_or_default();
            feeds.into_keys().collect::<Vec<_>>()
        };
        let name = rooms.publishes(&id, one).expect("they are there");
        assert!(feeds(&rooms).is_empty());
        let topic = rooms.comes(&name, &publication(1), true);
        assert!(topic.is_some());
        assert_eq!(feeds(&rooms), [one]);
        // Publish again before the end of the first stream is reported.
        assert_eq!(rooms.unpublishes(&id, one), topic);
        assert!(feeds(&rooms).is_empty());
        let again = rooms.publishes(&id, one).expect("they are there");
        assert_ne!(again, name);
        rooms.comes(&again, &publication(2), true);
        assert_eq!(rooms.comes(&name, &publication(1), false), None);
        assert_eq!(feeds(&rooms), [one]);
        // Publish again without unpublishing first.
        let third = rooms.publishes(&id, one).expect("they are there");
        assert!(feeds(&rooms).is_empty());
        assert_eq!(rooms.comes(&again, &publication(2), true), None);
        rooms.comes(&third, &publication(4), true);
        assert_eq!(feeds(&rooms), [one]);
        assert_eq!(rooms.comes(&third, &publication(4), false), topic);
        assert!(feeds(&rooms).is_empty());
        assert_eq!(rooms.leave(&id, one), topic);
        assert_eq!(rooms.publishes(&id, one), None);
        assert_eq!(rooms.comes("somebody's", &publication(3), true), None);
        // A room that is created again has the old slot, but none of the old participants.
        assert_eq!(rooms.destroy(&id), topic);
        assert_eq!(rooms.leave(&id, other), None);
        let again = rooms.enter(&id).expect("it is made");
        let room = rooms.find(&id).expect("it is there");
        assert!(room.has(again) && !room.has(other) && Some(room.topic()) == topic);
        // This room was created by a participant, so it is removed with the last one.
        assert_eq!(rooms.leave(&id, again), topic);
        assert!(rooms.find(&id).is_none() && rooms.places.is_empty() && rooms.streams.is_empty());
    }
}
