//! Parses session descriptions. Unknown lines are ignored; a malformed known line is an error with
//! its line number. Everything is bounded.

use std::str::FromStr;

use super::candidate::Candidate;
use super::codec::Codec;
use super::description::{
    Direction, HeaderExtension, MediaKind, MediaSection, Rid, SessionDescription, SourceAttributes,
    SourceGroup,
};
use super::error::SdpError;
use super::error::SdpReason::{self, Attribute};
use super::setup::Setup;
use super::transport_attributes::TransportAttributes;

/// Limits. Per participant with audio and video, Janus writes some 80 lines and LiveKit 100.
const BYTES_MAX: usize = 1 << 20;
const LINES_MAX: usize = 40_000;
/// Maximum number of sources in one section, which are searched linearly.
const SOURCES_MAX: usize = 256;
const SECTIONS_MAX: usize = 512;
/// Maximum number of feedback types of one codec, as one line may apply to all codecs. More are
/// ignored.
const FEEDBACK_MAX: usize = 32;

type AttributeResult = Result<(), SdpReason>;

impl SessionDescription {
    /// Parses a session description.
    ///
    /// # Errors
    /// Returns the number of the first invalid line, and the reason.
    pub fn parse(text: &str) -> Result<SessionDescription, SdpError> {
        if text.len() > BYTES_MAX {
            return Err(SdpReason::TooLong.without_line());
        }
        let mut description = SessionDescription::default();
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            if number > LINES_MAX {
                return Err(SdpReason::TooManyLines.at(number));
            }
            let line = line.trim_ascii_end();
            if line.is_empty() {
                continue;
            }
            let (kind, value) = line
                .split_once('=')
                .ok_or(SdpReason::MalformedLine.at(number))?;
            if index == 0 && (kind, value) != ("v", "0") {
                return Err(SdpReason::NotVersion0.at(number));
            }
            description
                .parse_line(kind, value)
                .map_err(|reason| reason.at(number))?;
        }
        if text.trim_ascii().is_empty() {
            return Err(SdpReason::NotVersion0.without_line());
        }
        Ok(description)
    }

    fn parse_line(&mut self, kind: &str, value: &str) -> AttributeResult {
        match kind {
            "o" => {
                let mut words = value.split_ascii_whitespace().skip(1);
                let mut number = || words.next().and_then(|word| word.parse().ok());
                // Both may be of any length (RFC 8866, 5.2); longer ones are not needed here.
                self.session_id = number().unwrap_or(0);
                self.version = number().unwrap_or(0);
                Ok(())
            }
            "m" if self.media.len() >= SECTIONS_MAX => Err(SdpReason::TooManySections),
            "m" => {
                self.media.push(parse_media_line(value)?);
                Ok(())
            }
            "a" => {
                let (name, value) = value.split_once(':').unwrap_or((value, ""));
                match self.media.last_mut() {
                    Some(media) => parse_media_attribute(media, name, value),
                    None => self.parse_session_attribute(name, value),
                }
            }
            _ => Ok(()),
        }
    }

    fn parse_session_attribute(&mut self, name: &str, value: &str) -> AttributeResult {
        match name {
            "ice-lite" => self.ice_lite = true,
            "extmap-allow-mixed" => self.extmap_allow_mixed = true,
            "group" => {
                let mut words = value.split_ascii_whitespace();
                if words.next() == Some("BUNDLE") && self.bundle.is_empty() {
                    let names = words.take(SECTIONS_MAX);
                    self.bundle = names.map(str::to_owned).collect();
                }
            }
            _ => return parse_transport_attribute(&mut self.transport, name, value),
        }
        Ok(())
    }
}

fn parse_media_line(value: &str) -> Result<MediaSection, SdpReason> {
    let mut words = value.split_ascii_whitespace();
    let mut word = || words.next().ok_or(SdpReason::MediaLine);
    let kind = match word()? {
        "audio" => MediaKind::Audio,
        "video" => MediaKind::Video,
        "application" => MediaKind::Application,
        _ => return Err(SdpReason::MediaLine),
    };
    // The syntax allows a port with a count (RFC 8866, 5.14), which WebRTC does not use.
    let port: u16 = word()?.parse().map_err(|_| SdpReason::MediaLine)?;
    let protocol = word()?.to_owned();
    let mut section = MediaSection::new(kind, "");
    section.rejected = port == 0;
    section.protocol = protocol;
    section.rtcp_mux = false;
    section.rtcp_reduced_size = false;
    if kind == MediaKind::Application {
        section.formats = words.map(str::to_owned).collect();
        return Ok(section);
    }
    if !section.protocol.contains("RTP/") {
        return Err(SdpReason::MediaLine);
    }
    for format in words {
        let payload_type: u8 = format.parse().map_err(|_| SdpReason::MediaLine)?;
        if payload_type > 127 {
            return Err(SdpReason::MediaLine);
        }
        if section.codec(payload_type).is_none() {
            section
                .codecs
                .push(static_codec(section.kind, payload_type));
        }
    }
    Ok(section)
}

/// Returns the codec of a payload type without `a=rtpmap` (RFC 3551, 6).
fn static_codec(kind: MediaKind, payload_type: u8) -> Codec {
    match (kind, payload_type) {
        (MediaKind::Audio, 0) => Codec::new(0, "PCMU", 8000),
        (MediaKind::Audio, 8) => Codec::new(8, "PCMA", 8000),
        (MediaKind::Audio, 9) => Codec::new(9, "G722", 8000),
        (MediaKind::Audio, 13) => Codec::new(13, "CN", 8000),
        _ => Codec::new(payload_type, "unknown", 90_000),
    }
}

fn parse_transport_attribute(
    attributes: &mut TransportAttributes,
    name: &str,
    value: &str,
) -> AttributeResult {
    match name {
        "ice-ufrag" => attributes.ufrag = Some(value.to_owned()),
        "ice-pwd" => attributes.pwd = Some(value.to_owned()),
        "ice-options" => {
            attributes.trickle |= value.split_ascii_whitespace().any(|one| one == "trickle")
        }
        "fingerprint" => {
            let fingerprint = value.parse().map_err(|_| Attribute("fingerprint"))?;
            attributes.fingerprints.push(fingerprint);
        }
        "setup" => {
            let setup = Setup::parse(value.trim_ascii()).ok_or(Attribute("setup"))?;
            attributes.setup = Some(setup);
        }
        _ => {}
    }
    Ok(())
}

/// Splits a value into a number and the remaining text.
fn split_number<'a, N: FromStr>(
    value: &'a str,
    name: &'static str,
) -> Result<(N, &'a str), SdpReason> {
    let (number, rest) = value.split_once(' ').unwrap_or((value, ""));
    let number = number.parse().map_err(|_| Attribute(name))?;
    Ok((number, rest.trim_ascii()))
}

fn parse_media_attribute(media: &mut MediaSection, name: &str, value: &str) -> AttributeResult {
    if let Some(direction) = Direction::ALL.iter().find(|one| one.name() == name) {
        media.direction = *direction;
        return Ok(());
    }
    match name {
        "mid" => media.mid = value.trim_ascii().to_owned(),
        "rtcp-mux" => media.rtcp_mux = true,
        "rtcp-rsize" => media.rtcp_reduced_size = true,
        "msid" => media.msid = Some(value.trim_ascii().to_owned()),
        "bundle-only" => media.rejected = false,
        "simulcast" => media.simulcast = Some(value.trim_ascii().to_owned()),
        "end-of-candidates" => media.end_of_candidates = true,
        "candidate" => {
            let candidate: Candidate = value.parse().map_err(|_| Attribute("candidate"))?;
            media.candidates.push(candidate);
        }
        "rtpmap" => parse_rtpmap(media, value)?,
        "fmtp" => {
            let (payload_type, parameters) = split_number(value, "fmtp")?;
            if let Some(codec) = codec_mut(media, payload_type) {
                codec.parameters = Some(parameters.to_owned());
            }
        }
        "rtcp-fb" => parse_rtcp_fb(media, value)?,
        "extmap" => parse_extmap(media, value)?,
        "ssrc" => parse_ssrc(media, value)?,
        "ssrc-group" => {
            let mut words = value.split_ascii_whitespace();
            let semantics = words.next().ok_or(Attribute("ssrc-group"))?.to_owned();
            let ssrcs: Result<_, _> = words.map(str::parse).collect();
            let ssrcs = ssrcs.map_err(|_| Attribute("ssrc-group"))?;
            media.ssrc_groups.push(SourceGroup { semantics, ssrcs });
        }
        "rid" => parse_rid(media, value)?,
        _ => return parse_transport_attribute(&mut media.transport, name, value),
    }
    Ok(())
}

fn codec_mut(media: &mut MediaSection, payload_type: u8) -> Option<&mut Codec> {
    let mut codecs = media.codecs.iter_mut();
    codecs.find(|codec| codec.payload_type == payload_type)
}

fn parse_rtpmap(media: &mut MediaSection, value: &str) -> AttributeResult {
    let (payload_type, encoding) = split_number(value, "rtpmap")?;
    let mut parts = encoding.split('/');
    let name = parts.next().filter(|name| !name.is_empty());
    let rate = parts.next().and_then(|rate| rate.parse().ok());
    let (Some(name), Some(clock_rate)) = (name, rate) else {
        return Err(Attribute("rtpmap"));
    };
    let channels = match parts.next() {
        // Browsers ignore a trailing slash.
        None | Some("") => None,
        Some(channels) => Some(channels.parse().map_err(|_| Attribute("rtpmap"))?),
    };
    // An `a=rtpmap` for a payload type that is not on the media line is ignored.
    if let Some(codec) = codec_mut(media, payload_type) {
        codec.name = name.to_owned();
        codec.clock_rate = clock_rate;
        codec.channels = channels;
    }
    Ok(())
}

fn parse_rtcp_fb(media: &mut MediaSection, value: &str) -> AttributeResult {
    let (which, words) = value.split_once(' ').ok_or(Attribute("rtcp-fb"))?;
    let words = words.trim_ascii();
    let payload_type = match which {
        "*" => None,
        one => Some(one.parse().map_err(|_| Attribute("rtcp-fb"))?),
    };
    for codec in &mut media.codecs {
        let is_meant = payload_type.is_none_or(|one: u8| one == codec.payload_type);
        if is_meant && codec.feedback.len() < FEEDBACK_MAX {
            codec.feedback.push(words.to_owned());
        }
    }
    Ok(())
}

/// Parses a number with an optional direction, a URI, and optional attributes, which no known
/// extension uses (RFC 8285, 8).
fn parse_extmap(media: &mut MediaSection, value: &str) -> AttributeResult {
    let (id, rest) = value.split_once(' ').ok_or(Attribute("extmap"))?;
    let id = id.split('/').next().unwrap_or(id);
    let id: u16 = id.parse().map_err(|_| Attribute("extmap"))?;
    let uri = rest
        .split_ascii_whitespace()
        .next()
        .ok_or(Attribute("extmap"))?;
    media.extensions.push(HeaderExtension {
        id,
        uri: uri.to_owned(),
    });
    Ok(())
}

fn parse_ssrc(media: &mut MediaSection, value: &str) -> AttributeResult {
    let (ssrc, attribute) = split_number(value, "ssrc")?;
    let source = match media.ssrcs.iter_mut().rposition(|one| one.ssrc == ssrc) {
        Some(index) => &mut media.ssrcs[index],
        None if media.ssrcs.len() >= SOURCES_MAX => return Ok(()),
        None => {
            media.ssrcs.push(SourceAttributes {
                ssrc,
                ..SourceAttributes::default()
            });
            media.ssrcs.last_mut().expect("one was added")
        }
    };
    match attribute.split_once(':') {
        Some(("cname", name)) => source.cname = Some(name.to_owned()),
        Some(("msid", msid)) => source.msid = Some(msid.to_owned()),
        _ => {}
    }
    Ok(())
}

fn parse_rid(media: &mut MediaSection, value: &str) -> AttributeResult {
    let mut words = value.splitn(3, ' ');
    let id = words
        .next()
        .filter(|id| !id.is_empty())
        .ok_or(Attribute("rid"))?;
    let sends = match words.next() {
        Some("send") => true,
        Some("recv") => false,
        _ => return Err(Attribute("rid")),
    };
    media.rids.push(Rid {
        id: id.to_owned(),
        sends,
        restrictions: words.next().unwrap_or("").trim_ascii().to_owned(),
    });
    Ok(())
}
