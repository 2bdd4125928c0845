//! Rooms: who is in each, and what they publish there.

use std::collections::BTreeMap;
use std::sync::Arc;

use slab::Slab;

use super::playing::Feed;
use super::relay::Publication;
use crate::webrtc::sdp::Transport;
use crate::webrtc::url::Id;

/// The most rooms there may be, and people in one of them: whenever somebody comes or leaves, each
/// looks who is there.
const ROOMS_MAX: usize = 10_000;
const PEOPLE_MAX: usize = 1_000;

/// What is said where somebody came or left: who hears it looks who is there.
pub(super) const CHANGED: &str = "changed";

/// Why somebody cannot come in, or a room not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// It is there already.
    Exists,
    /// There are as many as may be.
    Full,
}

/// What a PeerConnection is to do beside what it does.
#[derive(Debug)]
pub(super) enum More {
    /// To play that.
    Plays(Feed),
    /// To play no more what it sends with that source.
    Stops(u32),
}

/// A room.
#[derive(Debug)]
pub(super) struct Room {
    /// Its place among all, by which it is spoken of: later another's, for topics are never given
    /// back.
    place: usize,
    /// Whether it stays when nobody is in it.
    stays: bool,
    people: BTreeMap<u64, Person>,
}

/// Somebody in a room.
#[derive(Debug, Default)]
struct Person {
    /// The name of what they publish.
    stream: Option<String>,
    /// The same, once its media comes.
    comes: Option<Arc<Publication>>,
}

impl Room {
    /// Those whose media comes.
    pub(super) fn feeds(&self) -> BTreeMap<u64, Arc<Publication>> {
        let people = self.people.iter();
        let feeds = people.filter_map(|(id, person)| Some((*id, person.comes.clone()?)));
        feeds.collect()
    }

    /// Where it is said that somebody came, or left.
    pub(super) fn topic(&self) -> String {
        format!("webrtc-server/room/{}", self.place)
    }

    /// Whether somebody is in it.
    pub(super) fn has(&self, person: u64) -> bool {
        self.people.contains_key(&person)
    }
}

/// All rooms.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    rooms: BTreeMap<Id, Room>,
    /// The places that are taken.
    places: Slab<()>,
    /// How many people there ever were, and how often somebody published.
    came: u64,
    published: u64,
    /// Where those are who publish, by the names of their streams.
    streams: BTreeMap<String, (Id, u64)>,
    /// Answers to what was offered, by the numbers of the PeerConnections.
    answers: BTreeMap<u64, Transport>,
    /// What PeerConnections have more to play, by their numbers.
    more: BTreeMap<u64, Vec<More>>,
}

impl Rooms {
    /// Makes a room, which stays when nobody is in it.
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

    /// The room of that name.
    pub(super) fn find(&self, id: &Id) -> Option<&Room> {
        self.rooms.get(id)
    }

    /// Ends a room; where that is said, if there was one.
    pub(super) fn destroy(&mut self, id: &Id) -> Option<String> {
        let room = self.rooms.remove(id)?;
        self.places.try_remove(room.place);
        for stream in room.people.values().filter_map(|own| own.stream.as_ref()) {
            self.streams.remove(stream);
        }
        Some(room.topic())
    }

    /// Somebody comes into a room, which is made where it is not there; gives the number that is
    /// drawn for them.
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

    /// Somebody leaves; where that is said.
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

    /// Somebody is to publish under the name that this gives, which nobody had before: what they
    /// published until then may still be on its way out. None who is not there.
    pub(super) fn publishes(&mut self, id: &Id, person: u64) -> Option<String> {
        let own = self.rooms.get_mut(id)?.people.get_mut(&person)?;
        self.published += 1;
        // No path of HTTP has a blank in it.
        let name = format!("room {id}/{person}/{}", self.published);
        if let Some(before) = own.stream.replace(name.clone()) {
            self.streams.remove(&before);
        }
        own.comes = None;
        self.streams.insert(name.clone(), (id.clone(), person));
        Some(name)
    }

    /// Somebody publishes no more; where that is said.
    pub(super) fn unpublishes(&mut self, id: &Id, person: u64) -> Option<String> {
        let room = self.rooms.get_mut(id)?;
        let own = room.people.get_mut(&person)?;
        own.comes = None;
        if let Some(stream) = own.stream.take() {
            self.streams.remove(&stream);
        }
        Some(room.topic())
    }

    /// The media of a stream comes from now on, or no more. Where that is said, if it is one of a
    /// room.
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

    /// A PeerConnection that has begun is answered.
    pub(super) fn answered(&mut self, number: u64, theirs: Transport) {
        self.answers.insert(number, theirs);
    }

    /// The answer to a PeerConnection, once.
    pub(super) fn take_answer(&mut self, number: u64) -> Option<Transport> {
        self.answers.remove(&number)
    }

    /// A PeerConnection has more to play.
    pub(super) fn plays_more(&mut self, number: u64, more: Vec<More>) {
        self.more.entry(number).or_default().extend(more);
    }

    /// What a PeerConnection has more to play.
    pub(super) fn take_more(&mut self, number: u64) -> Vec<More> {
        self.more.remove(&number).unwrap_or_default()
    }

    /// Whether nothing waits to be done by a PeerConnection.
    #[cfg(test)]
    pub(super) fn has_nothing_to_do(&self) -> bool {
        self.more.is_empty() && self.answers.is_empty()
    }

    /// A PeerConnection plays no more.
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
    fn who_publishes_is_there_from_the_first_media_until_they_leave() {
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
        // They publish anew, while the end of what was before has not been heard of.
        assert_eq!(rooms.unpublishes(&id, one), topic);
        assert!(feeds(&rooms).is_empty());
        let again = rooms.publishes(&id, one).expect("they are there");
        assert_ne!(again, name);
        rooms.comes(&again, &publication(2), true);
        assert_eq!(rooms.comes(&name, &publication(1), false), None);
        assert_eq!(feeds(&rooms), [one]);
        // The same without a word of an end in between.
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
        // A room that is made anew has nobody of the one before, and its place.
        assert_eq!(rooms.destroy(&id), topic);
        assert_eq!(rooms.leave(&id, other), None);
        let again = rooms.enter(&id).expect("it is made");
        let room = rooms.find(&id).expect("it is there");
        assert!(room.has(again) && !room.has(other) && Some(room.topic()) == topic);
        // Nobody has made this one: it goes with the last of them.
        assert_eq!(rooms.leave(&id, again), topic);
        assert!(rooms.find(&id).is_none() && rooms.places.is_empty() && rooms.streams.is_empty());
    }
}
