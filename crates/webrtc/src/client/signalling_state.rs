//! Signalling of a client, and its connections to the server.

use std::collections::VecDeque;

use measure::Time;

use crate::config::ClientConfig;
use crate::signalling::{
    Connection, Signalling, SignallingAction, SignallingContext, SignallingTarget,
};
use session::{ChannelId, Context, Open, Output};

/// Signalling of a client, and its connections to the server.
#[derive(Debug)]
pub(super) struct SignallingState {
    pub(super) kind: Box<dyn Signalling>,
    /// Actions that are still to be carried out.
    pub(super) actions: VecDeque<SignallingAction>,
    /// Both connections, open or being opened.
    channels: [Option<ChannelId>; 2],
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
            channels: [None; 2],
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

    /// Returns the connection with this channel.
    pub(super) fn connection(&self, channel: ChannelId) -> Option<Connection> {
        let mut both = [Connection::First, Connection::Second].into_iter();
        both.find(|which| self.channel(*which) == Some(channel))
    }

    pub(super) fn channel(&self, which: Connection) -> Option<ChannelId> {
        self.channels[which as usize]
    }

    /// Forgets a connection that has ended.
    pub(super) fn closed(&mut self, which: Connection) {
        self.channels[which as usize] = None;
    }

    /// Opens a connection as `channel`, in place of an earlier one.
    pub(super) fn connect(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        config: &ClientConfig,
        which: Connection,
        target: SignallingTarget,
    ) {
        let timeout = config.connect_timeout.0;
        let open = Open::server(
            &target.host,
            target.port,
            timeout,
            target.secure,
            &config.tls,
        );
        self.target = Some(target);
        let earlier = self.channels[which as usize].replace(channel);
        cx.out
            .extend(earlier.map(|channel| Output::Close { channel }));
        cx.out.push_back(Output::Open { channel, open });
    }

    /// Closes both connections.
    pub(super) fn disconnect(&mut self, cx: &mut Context<'_>) {
        let open = std::mem::take(&mut self.channels).into_iter().flatten();
        cx.out.extend(open.map(|channel| Output::Close { channel }));
    }
}
