//! The clients of which a client that changes channel consists, one for each channel.

use std::fmt::Debug;

use measure::{CounterId, Time};

use crate::descriptor::ClientIdentity;
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
