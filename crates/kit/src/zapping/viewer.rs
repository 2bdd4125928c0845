//! The clients of which a client that changes channel consists, one for each channel.

use std::fmt::Debug;
use std::sync::Arc;

use measure::{CounterId, Time};

use super::{Zap, ZappingClients};
use crate::descriptor::{ClientFactory, ClientIdentity, PopulationPlan};
use session::{Context, Session, Sinks, StreamRow};

/// A client that plays one URL, as a client that changes channel needs it.
pub trait Viewer: Session {
    /// Arrival of the first picture with which a decoder can begin; without video, of the first
    /// packet. `None` if it has not arrived.
    fn first_picture(&self, sinks: &mut Sinks) -> Option<Time>;

    /// Leaves the stream and requests that of `url` on the same connection, due at `due`. Emits
    /// [`session::Output::Streams`] with the results of the stream that it leaves. Returns `false`
    /// if that is not possible, and then changes nothing.
    fn change_stream(&mut self, cx: &mut Context<'_>, url: &str, due: Time) -> bool {
        let _ = (cx, url, due);
        false
    }

    /// Returns `true` if the server has agreed to the last change of the stream.
    fn is_change_answered(&self) -> bool {
        true
    }
}

/// Maker of a protocol's clients, each of which plays or publishes one URL.
pub trait ViewerMaker: Debug + Send + Sync + 'static {
    /// The client.
    type Client: Viewer + 'static;

    /// Makes a client of `url`.
    ///
    /// # Errors
    /// If the URL is invalid; the text says why.
    fn client(&self, url: &str, identity: ClientIdentity) -> Result<Self::Client, String>;

    /// Makes a client play a later channel: the delays of its start are not measured.
    fn for_later_channel(client: Self::Client) -> Self::Client;

    /// Counter of changes that failed with this reason of the protocol.
    fn zap_failed_counter(&self, reason: &str) -> CounterId;

    /// Sums the rows of channels that the client has left. `None` if there are none.
    fn sum_rows(&self, rows: &[StreamRow], title: &str) -> Option<StreamRow>;
}

/// A [`ViewerMaker`] of any protocol.
pub(super) trait ViewerFactory: Debug + Send + Sync {
    /// Makes a client of `url`. `is_first` is false after a channel change.
    fn viewer(
        &self,
        url: &str,
        identity: ClientIdentity,
        is_first: bool,
    ) -> Result<Box<dyn Viewer>, String>;

    fn zap_failed_counter(&self, reason: &str) -> CounterId;

    fn sum_rows(&self, rows: &[StreamRow], title: &str) -> Option<StreamRow>;
}

impl<M: ViewerMaker> ViewerFactory for M {
    fn viewer(
        &self,
        url: &str,
        identity: ClientIdentity,
        is_first: bool,
    ) -> Result<Box<dyn Viewer>, String> {
        let client = self.client(url, identity)?;
        Ok(Box::new(match is_first {
            true => client,
            false => M::for_later_channel(client),
        }))
    }

    fn zap_failed_counter(&self, reason: &str) -> CounterId {
        ViewerMaker::zap_failed_counter(self, reason)
    }

    fn sum_rows(&self, rows: &[StreamRow], title: &str) -> Option<StreamRow> {
        ViewerMaker::sum_rows(self, rows, title)
    }
}

/// Factory of a population of clients that each have one URL, or change channel.
#[derive(Debug)]
pub struct Viewers<M> {
    /// Maker of a client of one URL.
    pub maker: Arc<M>,
    zap: Option<Zap>,
    zapping: Option<ZappingClients>,
}

impl<M: ViewerMaker> Viewers<M> {
    /// Creates the factory; with `zap`, the clients change channel.
    pub fn new(maker: M, zap: Option<Zap>) -> Viewers<M> {
        Viewers {
            maker: Arc::new(maker),
            zap,
            zapping: None,
        }
    }

    /// Makes a client that changes channel. `None` if the population's clients do not.
    pub fn zapping(&self, url: &str, identity: ClientIdentity) -> Option<Box<dyn Session>> {
        let zapping = self.zapping.as_ref()?;
        Some(Box::new(zapping.client(url, identity)))
    }
}

impl<M: ViewerMaker> ClientFactory for Viewers<M> {
    fn set_population(&mut self, plan: &PopulationPlan<'_>) -> Result<(), String> {
        if let Some(zap) = self.zap {
            let zapping = ZappingClients::new(zap, plan.urls, plan.in_turn, self.maker.clone());
            self.zapping = Some(zapping?);
        }
        Ok(())
    }

    fn client(&self, url: &str, identity: ClientIdentity) -> Result<Box<dyn Session>, String> {
        match self.zapping(url, identity) {
            Some(client) => Ok(client),
            None => Ok(Box::new(self.maker.client(url, identity)?)),
        }
    }
}
