//! Session inputs that wait for the current session call to return, and the outputs of that call.

use std::collections::VecDeque;
use std::sync::Arc;

use session::{Input, Outbox, Output};

use super::ids::SessionKey;

/// An input that arose while another one was being processed.
pub(super) enum Pending {
    Input(Input<'static>),
    TopicMessage { topic: Arc<str>, message: Arc<str> },
}

/// Pending inputs in order of arrival.
#[derive(Default)]
pub(super) struct PendingInputs {
    waiting: VecDeque<(SessionKey, Pending)>,
}

impl PendingInputs {
    #[inline]
    pub(super) fn push(&mut self, key: SessionKey, input: Input<'static>) {
        self.waiting.push_back((key, Pending::Input(input)));
    }

    pub(super) fn push_message(&mut self, key: SessionKey, topic: Arc<str>, message: Arc<str>) {
        let pending = Pending::TopicMessage { topic, message };
        self.waiting.push_back((key, pending));
    }

    pub(super) fn pop(&mut self) -> Option<(SessionKey, Pending)> {
        self.waiting.pop_front()
    }
}

/// Outputs of the session that is being called, and the bytes of its datagrams. The memory is
/// reused.
#[derive(Default)]
pub(super) struct Outputs {
    pub(super) queue: VecDeque<Output>,
    /// Taken out while a session is called.
    pub(super) outbox: Outbox,
}
