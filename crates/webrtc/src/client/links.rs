//! PeerConnections of a client.

use std::ops::{Deref, DerefMut};

use super::link::PeerLink;
use crate::signalling::PeerNumber;
use session::ChannelId;

/// PeerConnections of a client, in the order of their creation and of their channels.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<PeerLink>);

impl Links {
    pub(super) fn push(&mut self, link: PeerLink) {
        // Nearly all clients have one link. Without this, the first push would reserve room for
        // four.
        self.0.reserve_exact(usize::from(self.0.is_empty()));
        self.0.push(link);
    }

    fn index(&self, id: ChannelId) -> Option<usize> {
        self.0.binary_search_by_key(&id, |link| link.channel).ok()
    }

    pub(super) fn get_mut(&mut self, id: ChannelId) -> Option<&mut PeerLink> {
        let index = self.index(id)?;
        self.0.get_mut(index)
    }

    pub(super) fn remove(&mut self, id: ChannelId) -> Option<PeerLink> {
        let index = self.index(id)?;
        Some(self.0.remove(index))
    }

    pub(super) fn id_of(&self, number: PeerNumber) -> Option<ChannelId> {
        let mut links = self.0.iter();
        links
            .find(|link| link.number == number)
            .map(|link| link.channel)
    }
}

impl Deref for Links {
    type Target = [PeerLink];

    fn deref(&self) -> &[PeerLink] {
        &self.0
    }
}

impl DerefMut for Links {
    fn deref_mut(&mut self) -> &mut [PeerLink] {
        &mut self.0
    }
}
