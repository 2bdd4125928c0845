//! Players that wait for their stream: who publishes in the same run says when it is there, and
//! when it is gone.

use measure::Time;

use super::{Client, Phase};
use crate::rtsp::failure::Failure;
use crate::session::{Context, Output};

/// Said of a stream that is there.
const LIVE: &str = "live";
/// Said of a stream that is there no more.
const GONE: &str = "gone";

/// A wait for whoever publishes a stream.
#[derive(Debug)]
pub(super) struct Appointment {
    /// Until when, once it has begun.
    deadline: Option<Time>,
    /// Whether the stream has been there and is gone.
    gone: bool,
}

impl Appointment {
    pub(super) fn new() -> Appointment {
        Appointment {
            deadline: None,
            gone: false,
        }
    }
}

impl Client {
    /// Begins: at once, or when the stream is published that this client has to wait for.
    pub(super) fn begin(&mut self, cx: &mut Context<'_>) {
        let Some(appointment) = &mut self.appointment else {
            return self.set_out(cx);
        };
        self.phase = Phase::Waiting;
        appointment.deadline = Some(cx.now + self.config.wait_for_publisher.0);
        let topic = self.url.stream_name();
        cx.out.push_back(Output::Listen { topic });
    }

    /// Connects to the server, and to the machine that is to receive the media, where there is one.
    fn set_out(&mut self, cx: &mut Context<'_>) {
        self.connect(cx);
        self.reach_receiver(cx);
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
                    appointment.deadline = None;
                    // Nobody could have played it sooner.
                    self.due = self.due.max(cx.now);
                    self.started = cx.now;
                    self.set_out(cx);
                }
            }
            GONE => appointment.gone = self.phase != Phase::Waiting,
            _ => {}
        }
    }

    /// Says, to those that wait for it, whether the stream is published.
    pub(super) fn say_published(&mut self, cx: &mut Context<'_>, live: bool) {
        cx.out.push_back(Output::Tell {
            topic: self.published_as.clone(),
            message: if live { LIVE } else { GONE }.into(),
        });
    }

    /// Whether whoever published the stream has left: then its end is no failure of the server's.
    pub(super) fn publisher_has_left(&self) -> bool {
        self.appointment.as_ref().is_some_and(|own| own.gone)
    }

    /// Until when it waits.
    pub(super) fn waits_until(&self) -> Option<Time> {
        self.appointment.as_ref().and_then(|own| own.deadline)
    }

    /// Gives up waiting.
    pub(super) fn overdue_publisher(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Waiting && self.waits_until().is_some_and(|until| until <= cx.now) {
            let detail = format!(
                "{} was not published within {}",
                self.url, self.config.wait_for_publisher
            );
            self.fail(cx, Failure::NoPublisher, detail);
        }
    }
}
