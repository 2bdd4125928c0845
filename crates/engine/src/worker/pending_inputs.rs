//! Session inputs that wait for the current session call to return, and the outputs of that call.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use session::{
    ChannelError, ChannelId, CloseReason, ExchangeEnded, FlowId, Input, MediaEvent, Outbox, Output,
    SinkId,
};

use super::ids::SessionKey;

/// An input that arose while another one was being processed.
pub(super) enum Pending {
    Opened {
        channel: ChannelId,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    },
    OpenFailed {
        channel: ChannelId,
        error: ChannelError,
    },
    Closed {
        channel: ChannelId,
        how: CloseReason,
    },
    Media {
        sink: SinkId,
        event: MediaEvent,
    },
    FlowEnded {
        flow: FlowId,
    },
    Exchanged {
        channel: ChannelId,
        how: ExchangeEnded,
    },
    Told {
        topic: Arc<str>,
        message: Arc<str>,
    },
}

impl Pending {
    /// Returns the input to deliver to the session.
    pub(super) fn input(&self) -> Input<'_> {
        match self {
            Pending::Opened {
                channel,
                local,
                remote,
            } => Input::Opened {
                channel: *channel,
                local: *local,
                remote: *remote,
            },
            Pending::OpenFailed { channel, error } => Input::OpenFailed {
                channel: *channel,
                error: *error,
            },
            Pending::Closed { channel, how } => Input::Closed {
                channel: *channel,
                reason: *how,
            },
            Pending::Media { sink, event } => Input::Media {
                sink: *sink,
                event: *event,
            },
            Pending::FlowEnded { flow } => Input::FlowEnded { flow: *flow },
            Pending::Exchanged { channel, how } => Input::ExchangeEnded {
                channel: *channel,
                reason: how.clone(),
            },
            Pending::Told { topic, message } => Input::TopicMessage { topic, message },
        }
    }
}

/// Pending inputs in order of arrival.
#[derive(Default)]
pub(super) struct PendingInputs {
    waiting: VecDeque<(SessionKey, Pending)>,
}

impl PendingInputs {
    #[inline]
    pub(super) fn push(&mut self, key: SessionKey, pending: Pending) {
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
