//! The protocols of the program.
//!
//! A crate that reads scenarios or runs clients depends on no protocol: it finds them here, where
//! the program installed them before anything else.

#![deny(missing_docs)]

use std::sync::OnceLock;

use crate::descriptor::Protocol;

static PROTOCOLS: OnceLock<&'static [&'static Protocol]> = OnceLock::new();

/// Sets the protocols of the program. Only the first call counts: the list never changes.
pub fn install(protocols: &'static [&'static Protocol]) {
    PROTOCOLS.get_or_init(|| protocols);
}

/// Returns all protocols, in the order in which they are listed for users.
///
/// # Panics
/// If none are installed.
pub fn protocols() -> &'static [&'static Protocol] {
    PROTOCOLS
        .get()
        .expect("the program installs its protocols first")
}

/// Returns the protocol of this name.
pub fn find(name: &str) -> Option<&'static Protocol> {
    let mut protocols = protocols().iter().copied();
    protocols.find(|protocol| protocol.name == name)
}

/// Returns the protocol that the path of a URL shows, otherwise that of its scheme.
pub fn find_by_url(url: &str) -> Option<&'static Protocol> {
    let protocols = protocols().iter().copied();
    let by_path = protocols.clone().find(|protocol| protocol.has_path_of(url));
    by_path.or_else(|| {
        protocols
            .clone()
            .find(|protocol| protocol.has_scheme_of(url))
    })
}
