//! Signalling of a client, and its connections to the server.

use std::collections::VecDeque;

use measure::Time;

use crate::config::ClientConfig;
use crate::signalling::{Signalling, SignallingAction, SignallingContext, SignallingTarget};
use session::{ChannelId, Context, Open, Output};

/// Signalling of a client, and its connections to the server.
#[derive(Debug)]
pub(super) struct SignallingState {
    pub(super) kind: Box<dyn Signalling>,
    /// Actions that are still to be carried out.
    pub(super) actions: VecDeque<SignallingAction>,
    /// Connection, open or being opened.
    pub(super) channel: Option<ChannelId>,
    /// Second connection. Janus over HTTP uses it for events.
    pub(super) second_channel: Option<ChannelId>,
    pub(super) target: Option<SignallingTarget>,
    /// True once the signalling has nothing more to send.
    pub(super) has_ended: bool,
    /// Time since which media is expected. `None` while no one sends any to this client.
    pub(super) media_expected_since: Option<Time>,
}

impl SignallingState {
    pub(super) fn new(kind: Box<dyn Signalling>) -> SignallingState {
        SignallingState {
            kind,
            actions: VecDeque::new(),
            channel: None,
            second_channel: None,
            target: None,
            has_ended: false,
            media_expected_since: None,
        }
    }

    /// Calls the signalling. Its actions are carried out later, by
    /// [`Client::run_actions`](super::Client::run_actions).
    pub(super) fn call(
        &mut self,
        cx: &mut Context<'_>,
        call: impl FnOnce(&mut (dyn Signalling + 'static), &mut SignallingContext<'_>),
    ) {
        let mut scope = SignallingContext {
            now: cx.now,
            recorder: cx.recorder,
            actions: &mut self.actions,
        };
        call(&mut *self.kind, &mut scope);
        self.media_expected_since = match self.kind.expects_media() {
            true => self.media_expected_since.or(Some(cx.now)),
            false => None,
        };
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.kind.deadline().filter(|_| !self.has_ended)
    }

    /// Opens the first or second connection as `channel`, in place of an earlier one.
    pub(super) fn connect(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        config: &ClientConfig,
        target: SignallingTarget,
        is_second: bool,
    ) {
        let timeout = config.connect_timeout.0;
        let open = Open::server(
            &target.host,
            target.port,
            timeout,
            target.secure,
            &config.tls,
        );
        let earlier = match is_second {
            true => self.second_channel.replace(channel),
            false => {
                self.target = Some(target);
                self.channel.replace(channel)
            }
        };
        cx.out
            .extend(earlier.map(|channel| Output::Close { channel }));
        cx.out.push_back(Output::Open { channel, open });
    }

    /// Closes both connections.
    pub(super) fn disconnect(&mut self, cx: &mut Context<'_>) {
        let channels = [self.channel.take(), self.second_channel.take()];
        let open = channels.into_iter().flatten();
        cx.out.extend(open.map(|channel| Output::Close { channel }));
    }
}
