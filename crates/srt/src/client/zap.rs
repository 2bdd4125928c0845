//! The client as the player of one of several channels.

use measure::Time;

use super::Client;
use super::player_sink::PlayerSink;
use kit::metrics as clients;
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
        if self.is_later_channel {
            return;
        }
        for (histogram, from) in [
            (clients::STARTUP_DELAY, self.planned_start),
            (clients::STARTUP_DELAY_FROM_SENT, self.started),
        ] {
            let delay = at.since(from);
            cx.recorder.record(histogram, delay.as_nanos() as u64);
        }
    }
}

impl Viewer for Client {
    fn first_picture(&self, sinks: &mut Sinks) -> Option<Time> {
        let player = sinks.get::<PlayerSink>(self.player?);
        player.receiver()?.checker()?.random_access()
    }
}
