//! Descriptions (SDP) of the media that a reference server offers or a client publishes (RFC 8866;
//! RFC 2326, C).

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use kit::mediagen::clip::Clip;

/// Returns the last segment of a track's control URL, without a slash.
pub(super) fn track_name(media: usize) -> String {
    format!("track{}", media + 1)
}

/// Returns the beginning of a description from this address, up to the attributes of the session.
pub(super) fn session_section(local: IpAddr) -> String {
    let (family, any) = match local {
        IpAddr::V4(_) => ("IP4", "0.0.0.0"),
        IpAddr::V6(_) => ("IP6", "::"),
    };
    format!(
        "v=0\r\no=- 1 1 IN {family} {local}\r\ns=streamgauge\r\nc=IN {family} {any}\r\nt=0 0\r\n\
         a=tool:streamgauge\r\na=control:*\r\n"
    )
}

/// Appends the media sections to a description.
pub(super) fn write_media_sections(sdp: &mut String, clips: &[Arc<Clip>]) {
    for (index, clip) in clips.iter().enumerate() {
        let payload_type = clip.payload_type();
        let mut line = |line: std::fmt::Arguments<'_>| {
            sdp.write_fmt(line).expect("a string takes everything");
            sdp.push_str("\r\n");
        };
        line(format_args!("m={} 0 RTP/AVP {payload_type}", clip.media()));
        line(format_args!(
            "b=AS:{}",
            clip.bits_per_second().div_ceil(1000)
        ));
        line(format_args!("a=rtpmap:{payload_type} {}", clip.encoding()));
        if !clip.parameters().is_empty() {
            line(format_args!("a=fmtp:{payload_type} {}", clip.parameters()));
        }
        if clip.media() == "video" {
            let rate = clip.frame_rate();
            let rate = f64::from(rate.numerator()) / f64::from(rate.denominator());
            line(format_args!("a=framerate:{rate:.5}"));
        }
        line(format_args!("a=control:{}", track_name(index)));
    }
}
