//! The client as the player of one of several channels.

use measure::Time;

use super::Client;
use kit::lifecycle;
use kit::zapping::Viewer;
use session::{Context, Sinks};

impl Client {
    /// Makes the client play a later channel of a client that changes channel.
    pub fn for_later_channel(mut self) -> Client {
        self.is_later_channel = true;
        self
    }

    /// Records the delays of a start, whose first media arrived at `at`.
    pub(super) fn record_startup(&self, cx: &mut Context<'_>, at: Time) {
        if !self.is_later_channel {
            lifecycle::record_startup(cx.recorder, at, self.planned_start, self.started);
        }
    }
}

impl Viewer for Client {
    fn first_picture(&self, sinks: &mut Sinks) -> Option<Time> {
        self.receiver(sinks)?.checker()?.random_access()
    }
}
