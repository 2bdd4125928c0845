//! Writes session descriptions.

use std::fmt::{Display, Formatter, Result, Write};

use super::codec::Codec;
use super::description::{MediaKind, MediaSection, SessionDescription};
use super::setup::Setup;
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
        write_flag(out, "extmap-allow-mixed", self.extmap_allow_mixed)?;
        write_flag(out, "ice-lite", self.ice_lite)?;
        write_transport(out, &self.transport)?;
        self.media
            .iter()
            .try_for_each(|media| write_media(out, media))
    }
}

/// Writes an attribute that has no value, if it is set.
fn write_flag(out: &mut dyn Write, name: &str, is_set: bool) -> Result {
    match is_set {
        true => write!(out, "a={name}\r\n"),
        false => Ok(()),
    }
}

/// Writes an attribute, if it has a value.
fn write_value(out: &mut dyn Write, name: &str, value: Option<impl Display>) -> Result {
    value.map_or(Ok(()), |value| write!(out, "a={name}:{value}\r\n"))
}

pub(super) fn write_transport(out: &mut dyn Write, attributes: &TransportAttributes) -> Result {
    write_value(out, "ice-ufrag", attributes.ufrag.as_ref())?;
    write_value(out, "ice-pwd", attributes.pwd.as_ref())?;
    write_flag(out, "ice-options:trickle", attributes.trickle)?;
    for fingerprint in &attributes.fingerprints {
        write!(out, "a=fingerprint:{fingerprint}\r\n")?;
    }
    write_value(out, "setup", attributes.setup.map(Setup::name))
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
    write_flag(out, "end-of-candidates", media.end_of_candidates)?;
    if media.kind == MediaKind::Application && !media.rejected {
        write!(out, "a=sctp-port:{SCTP_PORT}\r\n")?;
    }
    if media.kind != MediaKind::Application {
        write_flag(out, "rtcp-mux", media.rtcp_mux)?;
        write_flag(out, "rtcp-rsize", media.rtcp_reduced_size)?;
        for extension in &media.extensions {
            write!(out, "a=extmap:{} {}\r\n", extension.id, extension.uri)?;
        }
        media
            .codecs
            .iter()
            .try_for_each(|codec| write_codec(out, codec))?;
    }
    write_value(out, "msid", media.msid.as_ref())?;
    for rid in &media.rids {
        let direction = if rid.sends { "send" } else { "recv" };
        write!(out, "a=rid:{} {direction}", rid.id)?;
        match rid.restrictions.is_empty() {
            true => out.write_str("\r\n")?,
            false => write!(out, " {}\r\n", rid.restrictions)?,
        }
    }
    write_value(out, "simulcast", media.simulcast.as_ref())?;
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
