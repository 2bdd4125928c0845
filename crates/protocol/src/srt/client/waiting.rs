//! Players that wait for their stream: who publishes in the same run says when it is there, and
//! when it is gone.

use std::time::Duration;

use super::{Client, Phase};
use crate::mix::mix;
use crate::session::{Context, Output};

/// Said of a stream that is there.
const LIVE: &str = "live";
/// Said of a stream that is there no more, followed by the number of the source whose stamps it
/// bore and how many packets it had.
const GONE: &str = "gone";

/// A wait for whoever publishes a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Appointment {
    /// Whether the stream has been there and is gone.
    gone: bool,
    /// Whether the stream is there, and is asked for when `join_after` is over.
    joins: bool,
    /// The source of a stream that is gone, and how many packets it had.
    had: Option<(u64, u64)>,
}

/// What a message says of a stream that is gone, where it says so.
fn gone(message: &str) -> Option<Option<(u64, u64)>> {
    let mut words = message.split(' ');
    (words.next() == Some(GONE)).then_some(())?;
    let mut number = || words.next()?.parse().ok();
    Some(number().zip(number()))
}

impl Client {
    /// Lets it wait for the stream, which others of its run publish.
    pub fn waiting_for_publisher(mut self) -> Client {
        self.appointment = Some(Appointment::default());
        self
    }

    /// Begins: at once, or when the stream is published that this client has to wait for.
    pub(super) fn set_out(&mut self, cx: &mut Context<'_>) {
        if self.appointment.is_none() {
            return self.open(cx);
        }
        self.phase = Phase::Waiting;
        self.check = Some(cx.now + self.config.wait_for_publisher.0);
        let topic = self.url.stream_name();
        cx.out.push_back(Output::Listen { topic });
    }

    /// Hears that its stream is there or gone.
    pub(super) fn told(&mut self, cx: &mut Context<'_>, message: &str) {
        let Some(appointment) = &mut self.appointment else {
            return;
        };
        match message {
            LIVE => {
                appointment.gone = false;
                if self.phase == Phase::Waiting {
                    appointment.joins = true;
                    match self.config.join_after.0 {
                        Duration::ZERO => self.join(cx),
                        after => self.check = Some(cx.now + after),
                    }
                }
            }
            other => {
                let Some(had) = gone(other) else { return };
                if self.phase == Phase::Waiting {
                    appointment.joins = false;
                    self.check = Some(cx.now + self.config.wait_for_publisher.0);
                } else {
                    (appointment.gone, appointment.had) = (true, had);
                }
            }
        }
    }

    /// Asks for its stream, where that is there; says so.
    pub(super) fn joins(&mut self, cx: &mut Context<'_>) -> bool {
        let joins = self.appointment.is_some_and(|own| own.joins);
        if joins {
            self.join(cx);
        }
        joins
    }

    fn join(&mut self, cx: &mut Context<'_>) {
        // Nobody could have played it sooner.
        self.due = self.due.max(cx.now);
        self.started = cx.now;
        self.open(cx);
    }

    /// Says, to those that wait for it, whether the stream is published.
    pub(super) fn say_published(&mut self, cx: &mut Context<'_>) {
        cx.out.push_back(Output::Tell {
            topic: self.url.stream_name(),
            message: LIVE.into(),
        });
    }

    /// Says that it is not any more, and had so many packets.
    pub(super) fn say_gone(&mut self, cx: &mut Context<'_>, packets: u64) {
        let source = self.source();
        cx.out.push_back(Output::Tell {
            topic: self.url.stream_name(),
            message: format!("{GONE} {source} {packets}").into(),
        });
    }

    /// By which number its stamps tell the streams of a run apart.
    pub(super) fn source(&self) -> u64 {
        mix(&[self.seed, 4])
    }

    /// Of a stream that is over, because who published it has left: its source, and how many
    /// packets it had.
    pub(super) fn stream_had(&self) -> Option<(u64, u64)> {
        self.appointment?.had
    }

    /// Whether whoever published the stream has left: then its end is no failure of the server's.
    pub(super) fn publisher_has_left(&self) -> bool {
        self.appointment.is_some_and(|own| own.gone)
    }
}
