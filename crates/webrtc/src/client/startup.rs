//! Start of a client, and its start-up delays.

use measure::Time;

use super::setup::Setup;
use crate::metrics as m;
use kit::metrics as clients;
use kit::viewer::{Delivery, Viewing};
use session::{Context, Output};

/// Start of a client, and its first media.
#[derive(Debug, Default)]
pub(super) struct Startup {
    pub(super) planned: Time,
    pub(super) started: Time,
    /// True after a channel change: the delays of a start are not measured.
    pub(super) is_later_channel: bool,
    /// True if media is available from the start, so that start-up delays are recorded. False for a
    /// client that enters an empty room or only publishes.
    pub(super) expects_media: bool,
    /// True once media is received or sent.
    is_playing: bool,
    /// Arrival of the first received media.
    first_media: Option<Time>,
}

impl Startup {
    pub(super) fn new(setup: &Setup) -> Startup {
        Startup {
            expects_media: !setup.url.is_room() && setup.is_viewer(),
            ..Startup::default()
        }
    }

    /// Records the delay of the first connection.
    pub(super) fn connected(&self, cx: &mut Context<'_>) {
        if !self.is_later_channel {
            cx.recorder
                .record_duration(clients::CONNECT_DELAY, cx.now.since(self.started));
        }
    }

    /// Records the delay until media is sent.
    pub(super) fn published(&mut self, cx: &mut Context<'_>) {
        cx.recorder
            .record_duration(m::PUBLISH_DELAY, cx.now.since(self.planned));
        self.report_playing(cx, cx.now);
    }

    /// Records the start-up delays when the first media arrives.
    pub(super) fn media_began(&mut self, cx: &mut Context<'_>, at: Time) {
        let is_first = self.first_media.is_none();
        self.first_media.get_or_insert(at);
        if is_first && self.expects_media && !self.is_later_channel {
            cx.recorder
                .record_duration(clients::STARTUP_DELAY, at.since(self.planned));
            cx.recorder
                .record_duration(clients::STARTUP_DELAY_FROM_SENT, at.since(self.started));
        }
        self.report_playing(cx, at);
    }

    /// Reports that the client plays, once it first receives or sends media.
    fn report_playing(&mut self, cx: &mut Context<'_>, at: Time) {
        if !std::mem::replace(&mut self.is_playing, true) {
            cx.out.push_back(Output::Playing { at });
        }
    }

    /// State of the viewer at its end. Its start cannot be late if no one published when it
    /// entered the room.
    pub(super) fn viewing(&self, now: Time, delivery: Delivery) -> Viewing {
        let due = self.planned;
        let (first_media, ended) = match self.expects_media {
            true => (self.first_media, now),
            false => (self.first_media.map(|_| due), due),
        };
        Viewing {
            due,
            first_media,
            ended,
            delivery,
        }
    }
}
