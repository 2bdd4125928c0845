//! Clients that wait until another client of the run publishes their stream.

use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use measure::verdict::NO_PUBLISHER;

use crate::lifecycle::{self, FAILED_WAIT_MIN};
use crate::publication::Publication;
use session::{Context, Failure, Input, Outcome, Output, Session, Sinks, StreamRow};

/// The streams that a client waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedStreams {
    /// URL of the client, as shown in reports.
    pub url: String,
    /// Topics of the publishers. The client joins the first stream that is published.
    pub topics: Vec<String>,
    /// Maximum wait.
    pub timeout: Duration,
    /// Delay between the publication of the stream and the client's request.
    pub join_after: Duration,
}

impl AwaitedStreams {
    /// Waits for one stream, for at most 30 s.
    pub fn stream(topic: impl Into<String>) -> AwaitedStreams {
        let topic = topic.into();
        AwaitedStreams {
            url: topic.clone(),
            topics: vec![topic],
            timeout: Duration::from_secs(30),
            join_after: Duration::ZERO,
        }
    }
}

/// A client of any protocol that waits for its stream. It starts when the stream is published, and
/// its delays are measured from then.
pub struct WaitingClient {
    client: Box<dyn Session>,
    awaited: Arc<AwaitedStreams>,
    state: State,
}

#[derive(Debug)]
enum State {
    Idle,
    Waits {
        due: Time,
        since: Time,
        /// Time to join, or to give up if `live` is `None`.
        until: Time,
        live: Option<LiveStream>,
        /// `true` if the stream was published and ended before the client joined.
        missed: bool,
    },
    /// The client plays the stream with the topic at this position.
    Joined(usize),
    Ended,
}

#[derive(Debug)]
struct LiveStream {
    /// Position of the stream's topic.
    topic: usize,
    message: Arc<str>,
}

impl WaitingClient {
    /// Wraps a client that has not started.
    pub fn new(client: Box<dyn Session>, awaited: Arc<AwaitedStreams>) -> WaitingClient {
        WaitingClient {
            client,
            awaited,
            state: State::Idle,
        }
    }

    fn begin(&mut self, cx: &mut Context<'_>, due: Time) {
        for topic in &self.awaited.topics {
            let topic = topic.clone();
            cx.out.push_back(Output::Subscribe { topic });
        }
        self.state = State::Waits {
            due,
            since: cx.now,
            until: cx.now + self.awaited.timeout,
            live: None,
            missed: false,
        };
    }

    /// Handles an input while the client waits.
    fn wait(&mut self, cx: &mut Context<'_>, input: &Input<'_>) {
        let State::Waits {
            since,
            until,
            live,
            missed,
            ..
        } = &mut self.state
        else {
            return;
        };
        match input {
            Input::TopicMessage { topic, message } => {
                let mut topics = self.awaited.topics.iter();
                let position = topics.position(|own| own == topic);
                let (Some(position), Some(said)) = (position, Publication::parse(message)) else {
                    return;
                };
                let is_live = matches!(said, Publication::Live { .. });
                let is_own = live.as_ref().is_none_or(|own| own.topic == position);
                if is_live && live.is_none() {
                    let message = Arc::clone(message);
                    *live = Some(LiveStream {
                        topic: position,
                        message,
                    });
                    *until = cx.now + self.awaited.join_after;
                } else if !is_live && is_own && live.take().is_some() {
                    *missed = true;
                    *until = cx.now + self.awaited.timeout;
                }
            }
            Input::Stop { .. } => {
                let waited = cx.now.since(*since);
                let in_vain = waited >= FAILED_WAIT_MIN && live.is_none() && !*missed;
                let outcome = match in_vain {
                    true => self.failed(&lifecycle::describe_wait(waited)),
                    false => Outcome::Stopped,
                };
                return self.end(cx, outcome);
            }
            _ => {}
        }
        self.join_or_give_up(cx);
    }

    /// Joins or gives up if the time has come.
    fn join_or_give_up(&mut self, cx: &mut Context<'_>) {
        let State::Waits {
            due, until, live, ..
        } = &mut self.state
        else {
            return;
        };
        if cx.now < *until {
            return;
        }
        let Some(LiveStream { topic, message }) = live.take() else {
            let within = measure::units::TimeSpan(self.awaited.timeout).to_string();
            let outcome = self.failed(&within);
            return self.end(cx, outcome);
        };
        // No client could have played the stream sooner.
        let due = cx.now.max(*due);
        self.state = State::Joined(topic);
        let message = &message;
        let topic = &*self.awaited.topics[topic];
        self.client
            .handle(cx, Input::TopicMessage { topic, message });
        self.client.handle(cx, Input::Start { due });
    }

    fn failed(&self, within: &str) -> Outcome {
        Outcome::Failed(Failure {
            reason: NO_PUBLISHER,
            detail: format!("{} was not published within {within}", self.awaited.url),
        })
    }

    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        self.state = State::Ended;
        cx.out.push_back(Output::Ended(outcome));
    }
}

impl Session for WaitingClient {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match (&self.state, &input) {
            (State::Joined(own), Input::TopicMessage { topic, .. }) => {
                // Messages of the other topics belong to other streams.
                if self.awaited.topics[*own] == *topic {
                    self.client.handle(cx, input);
                }
            }
            (State::Joined(_), _) => self.client.handle(cx, input),
            (State::Idle, Input::Start { due }) => self.begin(cx, *due),
            (State::Idle, Input::Stop { .. }) => self.end(cx, Outcome::Stopped),
            (State::Waits { .. }, _) => self.wait(cx, &input),
            (State::Idle | State::Ended, _) => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        match &self.state {
            State::Waits { until, .. } => Some(*until),
            State::Joined(_) => self.client.deadline(),
            State::Idle | State::Ended => None,
        }
    }

    fn awaits_input(&self, now: Time) -> bool {
        match self.state {
            State::Joined(_) => self.client.awaits_input(now),
            _ => true,
        }
    }

    fn streams(&self, sinks: &mut Sinks) -> Vec<StreamRow> {
        match self.state {
            State::Joined(_) => self.client.streams(sinks),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
