//! Rooms: participants and the streams that they publish.

use std::collections::BTreeMap;
use std::sync::Arc;

use slab::Slab;

use super::publication::Publication;
use super::stream_sender::PlannedStream;
use crate::sdp::TransportParameters;
use crate::url::JanusId;
use session::{Context, Output};

/// Maximum number of rooms, and of participants per room. The latter is bounded because each join
/// and each leave makes every participant read the room again.
const ROOMS_MAX: usize = 10_000;
const PARTICIPANTS_MAX: usize = 1_000;

/// Message on a room's topic that the room changed. Receivers read the room again.
const ROOM_CHANGED: &str = "changed";

/// Announces a change of the room with this topic. Does nothing without a topic.
pub(super) fn announce_change(cx: &mut Context<'_>, topic: Option<String>) {
    let announcement = |topic| Output::Publish {
        topic,
        message: ROOM_CHANGED.into(),
    };
    cx.out.extend(topic.map(announcement));
}

/// Reason why a room cannot be created or joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoomError {
    /// The room already exists.
    Exists,
    /// The limit of rooms, or of participants in the room, is reached.
    Full,
}

/// Change to the streams that a PeerConnection plays.
#[derive(Debug)]
pub(super) enum PlayChange {
    /// Start playing this stream.
    Start(PlannedStream),
    /// Stop the stream that is sent with this SSRC.
    Stop(u32),
}

/// Publications in a room, by participant.
pub(super) type Publications = BTreeMap<u64, Arc<Publication>>;

#[derive(Debug)]
pub(super) struct Room {
    /// Slot of the room. The room's topic is named after it. A later room reuses the slot, because
    /// topics are never released.
    slot: usize,
    /// True if the room remains when it is empty.
    is_permanent: bool,
    participants: BTreeMap<u64, Participant>,
}

/// Participant of a room.
#[derive(Debug, Default)]
struct Participant {
    /// Name of the stream that the participant publishes.
    stream: Option<String>,
    /// Publication of that stream, while its media arrives.
    active_publication: Option<Arc<Publication>>,
}

impl Room {
    /// Returns the publications whose media arrives, by participant.
    pub(super) fn active_publications(&self) -> Publications {
        let participants = self.participants.iter();
        let publications = participants
            .filter_map(|(id, participant)| Some((*id, participant.active_publication.clone()?)));
        publications.collect()
    }

    /// Topic on which changes of the room are announced.
    pub(super) fn topic(&self) -> String {
        format!("webrtc-server/room/{}", self.slot)
    }

    /// Returns true if the participant is in the room.
    pub(super) fn contains(&self, participant: u64) -> bool {
        self.participants.contains_key(&participant)
    }
}

#[derive(Debug, Default)]
pub(super) struct Rooms {
    rooms: BTreeMap<JanusId, Room>,
    /// Slots in use.
    slots: Slab<()>,
    /// Number of participants so far, and number of streams published so far.
    participant_count: u64,
    publication_count: u64,
    /// Room and participant of each published stream, by stream name.
    stream_owners: BTreeMap<String, (JanusId, u64)>,
    /// Answers to the server's offers for PeerConnections that have already started, by number.
    pub(super) pending_answers: BTreeMap<u64, TransportParameters>,
    /// Pending changes to what is played, by PeerConnection number.
    pending_changes: BTreeMap<u64, Vec<PlayChange>>,
}

impl Rooms {
    /// Creates a room. `is_permanent` is true if it remains when it is empty.
    pub(super) fn create(&mut self, id: &JanusId, is_permanent: bool) -> Result<(), RoomError> {
        if self.rooms.contains_key(id) {
            return Err(RoomError::Exists);
        }
        if self.rooms.len() >= ROOMS_MAX {
            return Err(RoomError::Full);
        }
        let room = Room {
            slot: self.slots.insert(()),
            is_permanent,
            participants: BTreeMap::new(),
        };
        self.rooms.insert(id.clone(), room);
        Ok(())
    }

    pub(super) fn find(&self, id: &JanusId) -> Option<&Room> {
        self.rooms.get(id)
    }

    /// Returns the publications of a room whose media arrives, and its topic.
    pub(super) fn publications(&self, id: &JanusId) -> Option<(Publications, String)> {
        let room = self.find(id)?;
        Some((room.active_publications(), room.topic()))
    }

    /// Removes a room. Returns its topic if the room existed.
    pub(super) fn destroy(&mut self, id: &JanusId) -> Option<String> {
        let room = self.rooms.remove(id)?;
        self.slots.try_remove(room.slot);
        for stream in room
            .participants
            .values()
            .filter_map(|own| own.stream.as_ref())
        {
            self.stream_owners.remove(stream);
        }
        Some(room.topic())
    }

    /// Adds a participant to a room, which is created if needed. Returns the participant's number.
    pub(super) fn join(&mut self, id: &JanusId) -> Result<u64, RoomError> {
        match self.create(id, false) {
            Ok(()) | Err(RoomError::Exists) => {}
            Err(full) => return Err(full),
        }
        let room = self.rooms.get_mut(id).expect("it is there now");
        if room.participants.len() >= PARTICIPANTS_MAX {
            return Err(RoomError::Full);
        }
        self.participant_count += 1;
        room.participants
            .insert(self.participant_count, Participant::default());
        Ok(self.participant_count)
    }

    /// Removes a participant. Returns the room's topic.
    pub(super) fn leave(&mut self, id: &JanusId, participant: u64) -> Option<String> {
        let room = self.rooms.get_mut(id)?;
        let left = room.participants.remove(&participant)?;
        if let Some(stream) = left.stream {
            self.stream_owners.remove(&stream);
        }
        match room.participants.is_empty() && !room.is_permanent {
            true => self.destroy(id),
            false => Some(room.topic()),
        }
    }

    /// Starts a publication of a participant and returns its stream name. Each name is new, because
    /// the participant's earlier stream may still be ending. Returns `None` if the participant is
    /// not in the room.
    pub(super) fn start_publishing(&mut self, id: &JanusId, participant: u64) -> Option<String> {
        let own = self.rooms.get_mut(id)?.participants.get_mut(&participant)?;
        self.publication_count += 1;
        // HTTP paths contain no space, so no client of WHIP can take this name.
        let name = format!("room {id}/{participant}/{}", self.publication_count);
        if let Some(previous) = own.stream.replace(name.clone()) {
            self.stream_owners.remove(&previous);
        }
        own.active_publication = None;
        self.stream_owners
            .insert(name.clone(), (id.clone(), participant));
        Some(name)
    }

    /// Ends a participant's publication. Returns the room's topic.
    pub(super) fn stop_publishing(&mut self, id: &JanusId, participant: u64) -> Option<String> {
        let room = self.rooms.get_mut(id)?;
        let own = room.participants.get_mut(&participant)?;
        own.active_publication = None;
        if let Some(stream) = own.stream.take() {
            self.stream_owners.remove(&stream);
        }
        Some(room.topic())
    }

    /// Records that the media of a stream starts to arrive, or has ended. Returns the room's topic
    /// if the stream belongs to a room.
    pub(super) fn set_media_active(
        &mut self,
        name: &str,
        publication: &Arc<Publication>,
        is_active: bool,
    ) -> Option<String> {
        let (id, participant) = self.stream_owners.get(name)?;
        let room = self.rooms.get_mut(id)?;
        let own = room.participants.get_mut(participant)?;
        own.active_publication = is_active.then(|| publication.clone());
        Some(room.topic())
    }

    /// Adds changes to what a PeerConnection plays.
    pub(super) fn add_changes(&mut self, number: u64, changes: Vec<PlayChange>) {
        self.pending_changes
            .entry(number)
            .or_default()
            .extend(changes);
    }

    /// Takes the pending changes to what a PeerConnection plays.
    pub(super) fn take_changes(&mut self, number: u64) -> Vec<PlayChange> {
        self.pending_changes.remove(&number).unwrap_or_default()
    }

    /// Returns true if no answer and no change is pending.
    #[cfg(test)]
    pub(super) fn has_nothing_pending(&self) -> bool {
        self.pending_changes.is_empty() && self.pending_answers.is_empty()
    }

    /// Discards the pending answer and changes of a PeerConnection.
    pub(super) fn discard_pending(&mut self, number: u64) {
        self.pending_answers.remove(&number);
        self.pending_changes.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publication(number: u64) -> Arc<Publication> {
        Arc::new(Publication {
            number,
            name: String::new(),
            publisher_slot: 0,
            stream_index: 0,
            tracks: Vec::new(),
        })
    }

    #[test]
    fn publisher_is_listed_from_first_media_until_it_leaves() {
        let mut rooms = Rooms::default();
        let id = JanusId::Number(7);
        assert_eq!(rooms.create(&id, true), Ok(()));
        assert_eq!(rooms.create(&id, true), Err(RoomError::Exists));
        let [one, other] = [(); 2].map(|()| rooms.join(&id).expect("there is room"));
        let feeds = |rooms: &Rooms| {
            let feeds = rooms
                .find(&id)
                .map(Room::active_publications)
                .unwrap_or_default();
            feeds.into_keys().collect::<Vec<_>>()
        };
        let name = rooms.start_publishing(&id, one).expect("they are there");
        assert!(feeds(&rooms).is_empty());
        let topic = rooms.set_media_active(&name, &publication(1), true);
        assert!(topic.is_some());
        assert_eq!(feeds(&rooms), [one]);
        // Publish again before the end of the first stream is reported.
        assert_eq!(rooms.stop_publishing(&id, one), topic);
        assert!(feeds(&rooms).is_empty());
        let again = rooms.start_publishing(&id, one).expect("they are there");
        assert_ne!(again, name);
        rooms.set_media_active(&again, &publication(2), true);
        assert_eq!(rooms.set_media_active(&name, &publication(1), false), None);
        assert_eq!(feeds(&rooms), [one]);
        // Publish again without unpublishing first.
        let third = rooms.start_publishing(&id, one).expect("they are there");
        assert!(feeds(&rooms).is_empty());
        assert_eq!(rooms.set_media_active(&again, &publication(2), true), None);
        rooms.set_media_active(&third, &publication(4), true);
        assert_eq!(feeds(&rooms), [one]);
        assert_eq!(
            rooms.set_media_active(&third, &publication(4), false),
            topic
        );
        assert!(feeds(&rooms).is_empty());
        assert_eq!(rooms.leave(&id, one), topic);
        assert_eq!(rooms.start_publishing(&id, one), None);
        assert_eq!(
            rooms.set_media_active("somebody's", &publication(3), true),
            None
        );
        // A room that is created again has the old slot, but none of the old participants.
        assert_eq!(rooms.destroy(&id), topic);
        assert_eq!(rooms.leave(&id, other), None);
        let again = rooms.join(&id).expect("it is made");
        let room = rooms.find(&id).expect("it is there");
        assert!(room.contains(again) && !room.contains(other) && Some(room.topic()) == topic);
        // This room was created by a participant, so it is removed with the last one.
        assert_eq!(rooms.leave(&id, again), topic);
        assert!(
            rooms.find(&id).is_none() && rooms.slots.is_empty() && rooms.stream_owners.is_empty()
        );
    }
}
