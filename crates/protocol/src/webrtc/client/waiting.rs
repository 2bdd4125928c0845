//! Players that wait for their stream: who publishes in the same run says when it is there, and
//! when it is gone.

use super::{Client, Phase};
use measure::Time;

use crate::media::sdp::MediaKind;
use crate::session::{Context, Output};

/// Said of a stream that is there, with the kinds of its media.
const LIVE: &str = "live";
/// Said of a stream that is there no more.
const GONE: &str = "gone";

/// A wait for whoever publishes a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Appointment {
    /// Since when the stream is gone, after it has been there.
    gone: Option<Time>,
    /// Whether it has sound, and pictures.
    audio: bool,
    video: bool,
}

impl Client {
    /// Lets it wait for the stream, which others of its run publish.
    pub fn waiting_for_publisher(mut self) -> Client {
        self.appointment = Some(Appointment::default());
        self
    }

    /// Begins: at once, or when the stream is published that this client has to wait for.
    pub(super) fn set_out(&mut self, cx: &mut Context<'_>) {
        let topic = self.url.stream_name();
        let (Some(_), Some(topic)) = (self.appointment, topic) else {
            return self.set_to_work(cx);
        };
        self.phase = Phase::Waiting;
        self.check = Some(cx.now + self.config.wait_for_publisher.0);
        cx.out.push_back(Output::Listen { topic });
    }

    /// Hears that its stream is there or gone.
    pub(super) fn told(&mut self, cx: &mut Context<'_>, message: &str) {
        let Some(appointment) = &mut self.appointment else {
            return;
        };
        let mut words = message.split(' ');
        match words.next() {
            Some(LIVE) => {
                appointment.gone = None;
                for kind in words {
                    appointment.audio |= kind == MediaKind::Audio.name();
                    appointment.video |= kind == MediaKind::Video.name();
                }
                if self.phase == Phase::Waiting {
                    // Nobody could have played it sooner.
                    self.due = self.due.max(cx.now);
                    self.started = cx.now;
                    self.set_to_work(cx);
                }
            }
            Some(GONE) => appointment.gone = (self.phase != Phase::Waiting).then_some(cx.now),
            _ => {}
        }
    }

    /// Says, to those that wait for it, whether the stream is published.
    pub(super) fn say_published(&mut self, cx: &mut Context<'_>, live: bool) {
        let publishes = self.source.is_some() && self.published;
        if let Some(topic) = self.url.stream_name().filter(|_| publishes) {
            let message = match live {
                true => [vec![LIVE], self.sent_kinds()].concat().join(" "),
                false => GONE.to_owned(),
            };
            cx.out.push_back(Output::Tell {
                topic,
                message: message.into(),
            });
        }
    }

    /// Whether who publishes the stream, in the same run, sends media of that kind.
    pub(super) fn publisher_sends(&self, kind: MediaKind) -> bool {
        self.appointment.is_some_and(|own| match kind {
            MediaKind::Audio => own.audio,
            MediaKind::Video => own.video,
            _ => false,
        })
    }

    /// Whether whoever published the stream has left: then its end is no failure of the server's.
    pub(super) fn publisher_has_left(&self) -> bool {
        self.publisher_left_at().is_some()
    }

    /// Since when whoever published the stream has left.
    pub(super) fn publisher_left_at(&self) -> Option<Time> {
        self.appointment.and_then(|own| own.gone)
    }
}
