//! What sessions are to hear once the running call of a session is over, and what the one that is
//! called wants done.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use protocol::session::{
    ChannelError, ChannelId, Closed, ExchangeEnded, FlowId, Input, MediaEvent, Outbox, Output,
    SinkId,
};

use super::keys::SessionKey;

/// An input that came up while another was being worked off.
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
        how: Closed,
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
    /// As its session hears it.
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
                how: *how,
            },
            Pending::Media { sink, event } => Input::Media {
                sink: *sink,
                event: *event,
            },
            Pending::FlowEnded { flow } => Input::FlowEnded { flow: *flow },
            Pending::Exchanged { channel, how } => Input::Exchanged {
                channel: *channel,
                how: how.clone(),
            },
            Pending::Told { topic, message } => Input::Told { topic, message },
        }
    }
}

/// Inputs in the order in which they came up.
#[derive(Default)]
pub(super) struct Inbox {
    waiting: VecDeque<(SessionKey, Pending)>,
}

impl Inbox {
    #[inline]
    pub(super) fn push(&mut self, key: SessionKey, pending: Pending) {
        self.waiting.push_back((key, pending));
    }

    pub(super) fn pop(&mut self) -> Option<(SessionKey, Pending)> {
        self.waiting.pop_front()
    }
}

/// What a session that is called wants done, and the bytes of the datagrams that it wants sent: the
/// memory for both is used again and again.
#[derive(Default)]
pub(super) struct Outputs {
    pub(super) queue: VecDeque<Output>,
    /// Away while a session is called.
    pub(super) outbox: Outbox,
}
