//! Players that wait for their stream: who publishes in the same run says when it is there, and
//! when it is gone.

use std::time::Duration;

use super::{Client, Phase};
use crate::session::{Context, Output};

/// Said of a stream that is there.
const LIVE: &str = "live";
/// Said of a stream that is there no more.
const GONE: &str = "gone";

/// A wait for whoever publishes a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Appointment {
    /// Whether the stream has been there and is gone.
    gone: bool,
    /// Whether the stream is there, and is asked for when `join_after` is over.
    joins: bool,
}

impl Client {
    /// Begins: at once, or when the stream is published that this client has to wait for.
    pub(super) fn set_out(&mut self, cx: &mut Context<'_>) {
        if self.appointment.is_none() {
            return self.connect(cx);
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
            GONE if self.phase == Phase::Waiting => {
                appointment.joins = false;
                self.check = Some(cx.now + self.config.wait_for_publisher.0);
            }
            GONE => appointment.gone = true,
            _ => {}
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
        self.check = None;
        // Nobody could have played it sooner.
        self.due = self.due.max(cx.now);
        self.started = cx.now;
        self.connect(cx);
    }

    /// Says, to those that wait for it, whether the stream is published.
    pub(super) fn say_published(&mut self, cx: &mut Context<'_>, live: bool) {
        cx.out.push_back(Output::Tell {
            topic: self.url.stream_name(),
            message: if live { LIVE } else { GONE }.into(),
        });
    }

    /// Whether whoever published the stream has left: then its end is no failure of the server's.
    pub(super) fn publisher_has_left(&self) -> bool {
        self.appointment.is_some_and(|own| own.gone)
    }
}
