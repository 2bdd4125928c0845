//! Body of the answer to DESCRIBE (RFC 4566; RFC 2326, C).

use std::fmt::Write;
use std::net::IpAddr;

use super::Shared;
pub(super) use crate::describe::track_name;
use crate::describe::write_media_sections;
use crate::headers::{NptStart, Range};

/// Returns the playable range: from the beginning to the end, or from now on.
pub(super) fn range(shared: &Shared) -> Range {
    match shared.config.length {
        Some(length) => Range::Npt {
            start: Some(NptStart::At(std::time::Duration::ZERO)),
            end: Some(length),
        },
        None => Range::Npt {
            start: Some(NptStart::Now),
            end: None,
        },
    }
}

/// Returns the description of a stream, with the server's address.
pub(super) fn describe(shared: &Shared, local: IpAddr) -> String {
    let (family, any) = match local {
        IpAddr::V4(_) => ("IP4", "0.0.0.0"),
        IpAddr::V6(_) => ("IP6", "::"),
    };
    let mut sdp = format!(
        "v=0\r\no=- 1 1 IN {family} {local}\r\ns=streamgauge\r\nc=IN {family} {any}\r\nt=0 0\r\n\
         a=tool:streamgauge\r\na=control:*\r\na=range:{}\r\n",
        range(shared)
    );
    if let Some(multicast) = &shared.config.multicast
        && multicast.group.is_ipv4() == local.is_ipv4()
        && super::group_streams::is_source_specific(multicast.group)
    {
        // RFC 4570, 3.
        write!(sdp, "a=source-filter: incl IN {family} * {local}\r\n")
            .expect("a string takes everything");
    }
    write_media_sections(&mut sdp, &shared.clips);
    sdp
}
