//! Roles of clients, in words and in rates.

use engine::{ClientRole, Rates};

/// Returns what clients do, as a word after their number.
pub(super) fn role_word(role: ClientRole) -> &'static str {
    match role {
        ClientRole::Play => "playing",
        ClientRole::Publish => "publishing",
        ClientRole::Send => "connected",
    }
}

/// Returns the role whose rates are shown. Participants in a room who only send, because nobody
/// else has joined yet, are shown as publishers.
pub(super) fn rate_role(role: ClientRole, rates: &Rates) -> ClientRole {
    let only_sends = rates.sent_bitrate > 0.0 && rates.bitrate == 0.0;
    match role {
        ClientRole::Play if only_sends => ClientRole::Publish,
        role => role,
    }
}
