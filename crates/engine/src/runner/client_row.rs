//! The row of a client in the run file.

use runfile::{ClientOutcome, ClientRow};
use scenario::{Secrets, mask_text};
use session::{Outcome, StreamRow};

use crate::messages::ClientState;

/// Returns the row of a client, with its secrets masked.
pub(crate) fn client_row(state: ClientState, secrets: &Secrets) -> ClientRow {
    let client = state.client;
    let (ended, outcome) = state.ended.unzip();
    let mut streams = client.streams.iter().map(StreamRow::to_json).collect();
    // The texts are the tester's own, except URLs, so only URLs are masked.
    Secrets::default().mask_json(&mut streams);
    let (outcome, failure) = match outcome {
        None => (None, None),
        Some(Outcome::Completed) => (Some(ClientOutcome::Completed), None),
        Some(Outcome::Stopped) => (Some(ClientOutcome::Stopped), None),
        Some(Outcome::Failed(failure) | Outcome::EndedByServer { failure, .. }) => {
            (Some(ClientOutcome::Failed), Some(failure))
        }
    };
    ClientRow {
        id: client.id,
        subject: state.population,
        slot: u32::try_from(client.slot).unwrap_or(u32::MAX),
        generation: client.generation,
        url: mask_text(&client.url),
        due: client.due,
        begun: Some(client.begun),
        first_media: client.first_media,
        ended,
        outcome,
        reason: failure.as_ref().map(|failure| failure.reason.to_owned()),
        detail: failure.map(|failure| secrets.mask(&failure.detail)),
        streams,
    }
}
