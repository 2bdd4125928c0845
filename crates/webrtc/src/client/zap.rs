//! The client as the player of one of several channels.

use measure::Time;

use super::Client;
use crate::tracks::Tracks;
use kit::metrics as clients;
use kit::zapping::Viewer;
use session::{Context, Sinks};

impl Client {
    /// Makes the client play a later channel of a client that changes channel.
    pub fn for_later_channel(mut self) -> Client {
        self.is_later_channel = true;
        self
    }

    /// Records the delay of the first connection.
    pub(super) fn record_connected(&self, cx: &mut Context<'_>) {
        if !self.is_later_channel {
            let delay = cx.now.since(self.started);
            cx.recorder
                .record(clients::CONNECT_DELAY, delay.as_nanos() as u64);
        }
    }
}

impl Viewer for Client {
    fn first_picture(&self, sinks: &mut Sinks) -> Option<Time> {
        let sinks_of_links = self.links.iter().filter_map(|link| link.sink);
        let pictures = sinks_of_links.filter_map(|sink| sinks.get::<Tracks>(sink).first_picture());
        pictures.min()
    }
}
