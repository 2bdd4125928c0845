//! Writes session descriptions.

use std::fmt::{Display, Formatter, Result, Write};

use super::codec::Codec;
use super::description::{MediaKind, MediaSection, SessionDescription};
use super::transport_attributes::TransportAttributes;

/// Usual SCTP port inside DTLS (RFC 8841, 5).
const SCTP_PORT: u16 = 5000;

impl Display for SessionDescription {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        write!(
            out,
            "v=0\r\no=- {} {} IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n",
            self.session_id, self.version
        )?;
        if !self.bundle.is_empty() {
            write!(out, "a=group:BUNDLE {}\r\n", self.bundle.join(" "))?;
        }
        if self.extmap_allow_mixed {
            out.write_str("a=extmap-allow-mixed\r\n")?;
        }
        if self.ice_lite {
            out.write_str("a=ice-lite\r\n")?;
        }
        write_transport(out, &self.transport)?;
        self.media
            .iter()
            .try_for_each(|media| write_media(out, media))
    }
}

pub(super) fn write_transport(out: &mut dyn Write, attributes: &TransportAttributes) -> Result {
    if let Some(ufrag) = &attributes.ufrag {
        write!(out, "a=ice-ufrag:{ufrag}\r\n")?;
    }
    if let Some(pwd) = &attributes.pwd {
        write!(out, "a=ice-pwd:{pwd}\r\n")?;
    }
    if attributes.trickle {
        out.write_str("a=ice-options:trickle\r\n")?;
    }
    for fingerprint in &attributes.fingerprints {
        write!(out, "a=fingerprint:{fingerprint}\r\n")?;
    }
    if let Some(setup) = attributes.setup {
        write!(out, "a=setup:{}\r\n", setup.name())?;
    }
    Ok(())
}

/// Writes the media line. A rejected RTP section without codecs still needs a format.
fn write_media_line(out: &mut dyn Write, media: &MediaSection) -> Result {
    let port = if media.rejected { 0 } else { 9 };
    write!(out, "m={} {port} {}", media.kind.name(), media.protocol)?;
    match media.kind {
        MediaKind::Application => {
            for format in &media.formats {
                write!(out, " {format}")?;
            }
        }
        _ if media.codecs.is_empty() => out.write_str(" 0")?,
        _ => {
            for codec in &media.codecs {
                write!(out, " {}", codec.payload_type)?;
            }
        }
    }
    out.write_str("\r\nc=IN IP4 0.0.0.0\r\n")
}

fn write_media(out: &mut dyn Write, media: &MediaSection) -> Result {
    write_media_line(out, media)?;
    if !media.mid.is_empty() {
        write!(out, "a=mid:{}\r\n", media.mid)?;
    }
    write!(out, "a={}\r\n", media.direction.name())?;
    write_transport(out, &media.transport)?;
    for candidate in &media.candidates {
        write!(out, "a={candidate}\r\n")?;
    }
    if media.end_of_candidates {
        out.write_str("a=end-of-candidates\r\n")?;
    }
    if media.kind == MediaKind::Application && !media.rejected {
        write!(out, "a=sctp-port:{SCTP_PORT}\r\n")?;
    }
    if media.kind != MediaKind::Application {
        if media.rtcp_mux {
            out.write_str("a=rtcp-mux\r\n")?;
        }
        if media.rtcp_reduced_size {
            out.write_str("a=rtcp-rsize\r\n")?;
        }
        for extension in &media.extensions {
            write!(out, "a=extmap:{} {}\r\n", extension.id, extension.uri)?;
        }
        media
            .codecs
            .iter()
            .try_for_each(|codec| write_codec(out, codec))?;
    }
    if let Some(msid) = &media.msid {
        write!(out, "a=msid:{msid}\r\n")?;
    }
    for rid in &media.rids {
        let direction = if rid.sends { "send" } else { "recv" };
        write!(out, "a=rid:{} {direction}", rid.id)?;
        match rid.restrictions.is_empty() {
            true => out.write_str("\r\n")?,
            false => write!(out, " {}\r\n", rid.restrictions)?,
        }
    }
    if let Some(simulcast) = &media.simulcast {
        write!(out, "a=simulcast:{simulcast}\r\n")?;
    }
    for group in &media.ssrc_groups {
        write!(out, "a=ssrc-group:{}", group.semantics)?;
        for ssrc in &group.ssrcs {
            write!(out, " {ssrc}")?;
        }
        out.write_str("\r\n")?;
    }
    for source in &media.ssrcs {
        if let Some(cname) = &source.cname {
            write!(out, "a=ssrc:{} cname:{cname}\r\n", source.ssrc)?;
        }
        if let Some(msid) = &source.msid {
            write!(out, "a=ssrc:{} msid:{msid}\r\n", source.ssrc)?;
        }
    }
    Ok(())
}

fn write_codec(out: &mut dyn Write, codec: &Codec) -> Result {
    let Codec {
        payload_type,
        name,
        clock_rate,
        ..
    } = codec;
    write!(out, "a=rtpmap:{payload_type} {name}/{clock_rate}")?;
    match codec.channels {
        Some(channels) => write!(out, "/{channels}\r\n")?,
        None => out.write_str("\r\n")?,
    }
    for words in &codec.feedback {
        write!(out, "a=rtcp-fb:{payload_type} {words}\r\n")?;
    }
    if let Some(parameters) = &codec.parameters {
        write!(out, "a=fmtp:{payload_type} {parameters}\r\n")?;
    }
    Ok(())
}
