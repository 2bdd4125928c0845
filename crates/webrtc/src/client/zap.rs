//! The client as the player of one of several channels.

use measure::Time;

use super::Client;
use crate::tracks::Tracks;
use kit::zapping::Viewer;
use session::Sinks;

impl Client {
    /// Makes the client play a later channel of a client that changes channel.
    pub fn for_later_channel(mut self) -> Client {
        self.startup.is_later_channel = true;
        self
    }
}

impl Viewer for Client {
    fn first_picture(&self, sinks: &mut Sinks) -> Option<Time> {
        let sinks_of_links = self.links.iter().filter_map(|link| link.sink);
        let pictures = sinks_of_links.filter_map(|sink| sinks.get::<Tracks>(sink).first_picture());
        pictures.min()
    }
}
