//! Body of the answer to DESCRIBE (RFC 4566; RFC 2326, C).

use std::fmt::Write;
use std::net::IpAddr;

use super::Shared;
use crate::describe::{session_section, write_media_sections};
use crate::headers::{NptStart, Range};

/// Returns the playable range: from the beginning to the end, or from now on.
pub(super) fn range(shared: &Shared) -> Range {
    match shared.config.length {
        Some(length) => Range::Npt {
            start: Some(NptStart::At(std::time::Duration::ZERO)),
            end: Some(length),
        },
        None => Range::FROM_NOW,
    }
}

/// Returns the description of a stream, with the server's address.
pub(super) fn describe(shared: &Shared, local: IpAddr) -> String {
    let mut sdp = format!("{}a=range:{}\r\n", session_section(local), range(shared));
    if let Some(multicast) = &shared.config.multicast
        && multicast.group.is_ipv4() == local.is_ipv4()
        && super::group_streams::is_source_specific(multicast.group)
    {
        // RFC 4570, 3.
        let family = if local.is_ipv4() { "IP4" } else { "IP6" };
        write!(sdp, "a=source-filter: incl IN {family} * {local}\r\n")
            .expect("a string takes everything");
    }
    write_media_sections(&mut sdp, &shared.clips);
    sdp
}
