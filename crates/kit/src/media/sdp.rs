//! Session descriptions (SDP, RFC 8866), as far as a player needs them.
//!
//! The parser accepts what players tolerate: bare line feeds, trailing blanks, lines in the wrong
//! order or of unknown type, missing `o=`, `s=` and `t=`, ports out of range.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use super::play_range::Range;
use crate::mediagen::steps;

/// Maximum number of streams per description. Further streams are ignored.
pub const MAX_MEDIAS: usize = 32;
/// Maximum number of payload types per stream. Further payload types are ignored.
pub const MAX_FORMATS: usize = 64;
/// Maximum number of sources per stream. Further sources are ignored.
pub const MAX_SOURCES: usize = 16;
/// Maximum number of lines per description. Further lines are ignored.
const MAX_LINES: usize = 8192;

/// A session description: a presentation of several streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// Session-level control URL, verbatim (RFC 2326, C.1.1).
    pub control: Option<String>,
    /// Session-level range (RFC 2326, C.1.5).
    pub range: Option<Range>,
    /// RTP streams, in order.
    pub medias: Vec<MediaSection>,
    /// Number of streams that are not RTP. They are left out of `medias`.
    pub non_rtp_count: usize,
    /// Session-level bandwidth in bit/s (`b=TIAS`, RFC 3890, otherwise `b=AS`).
    pub bandwidth: Option<u64>,
}

/// Media type of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaKind {
    Video,
    Audio,
    Text,
    /// Data, such as a camera's events.
    Application,
    /// Several media in one stream, such as a transport stream.
    Multiplex,
    Other,
}

impl MediaKind {
    /// Name in SDP.
    pub const fn name(self) -> &'static str {
        match self {
            MediaKind::Video => "video",
            MediaKind::Audio => "audio",
            MediaKind::Text => "text",
            MediaKind::Application => "application",
            MediaKind::Multiplex => "multiplex",
            MediaKind::Other => "other",
        }
    }
}

/// One RTP stream.
#[derive(Clone, Debug, PartialEq)]
pub struct MediaSection {
    pub kind: MediaKind,
    /// Transport protocol, such as `RTP/AVP`.
    pub protocol: String,
    /// Payload types, in order of preference.
    pub formats: Vec<Format>,
    /// Media-level control URL, verbatim.
    pub control: Option<String>,
    /// Media-level range.
    pub range: Option<Range>,
    /// Connection address of the stream, otherwise of the session. Often `0.0.0.0`.
    pub connection: Option<IpAddr>,
    /// Time to live of packets to `connection`, if that is an IPv4 multicast group and the
    /// description states a TTL (RFC 8866, 5.7).
    pub ttl: Option<u8>,
    /// Port of the stream; 0 if none is stated, as usual with RTSP.
    pub port: u16,
    /// Sources that the source filter of the stream includes, otherwise that of the session
    /// (`a=source-filter`, RFC 4570). At most 16. Empty if the filter excludes sources.
    pub sources: Vec<IpAddr>,
    /// Bandwidth of receiver reports in bit/s (`b=RR`, RFC 3556). 0: the server wants none.
    pub receiver_report_bandwidth: Option<u64>,
    /// Bandwidth of sender reports in bit/s (`b=RS`, RFC 3556).
    pub sender_report_bandwidth: Option<u64>,
    /// Media-level bandwidth in bit/s (`b=AS`, which is in kbit/s).
    pub bandwidth: Option<u64>,
    /// Media-level bandwidth in bit/s, without the headers below RTP (`b=TIAS`, RFC 3890).
    pub tias_bandwidth: Option<u64>,
    /// Direction of the stream, otherwise of the session.
    pub direction: Direction,
}

/// Direction of a stream, from the perspective of the client that reads the description (RFC 8866,
/// 6.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// To the client (`recvonly`), both ways (`sendrecv`), or not stated.
    #[default]
    ToClient,
    /// From the client (`sendonly`), such as the back channel of a camera (ONVIF Streaming, 5.3).
    FromClient,
    /// `inactive`.
    Inactive,
}

impl Direction {
    fn of(section: &Section<'_>) -> Option<Direction> {
        let mut attributes = section.attributes.iter();
        attributes.find_map(|(name, _)| {
            steps::count_bytes(1);
            match name.to_ascii_lowercase().as_str() {
                "sendrecv" | "recvonly" => Some(Direction::ToClient),
                "sendonly" => Some(Direction::FromClient),
                "inactive" => Some(Direction::Inactive),
                _ => None,
            }
        })
    }
}

/// One payload type of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    pub payload_type: u8,
    /// Encoding name such as `H264`, if known.
    pub encoding: Option<String>,
    /// Clock rate of the timestamps in Hz, if known.
    pub clock_rate: Option<u32>,
    /// Number of audio channels, if stated (RFC 8866, 6.6).
    pub channels: Option<u32>,
    /// Format parameters (`a=fmtp`), verbatim.
    pub fmtp: Option<String>,
}

/// Reasons why a text is not a usable session description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SdpError {
    #[error("the description is empty")]
    Empty,
    #[error("the description does not begin with v=0 and names no media")]
    NotSdp,
    #[error("the description cannot be read: {0}")]
    Malformed(String),
}

impl MediaSection {
    pub fn payload_types(&self) -> Vec<u8> {
        self.formats.iter().map(|f| f.payload_type).collect()
    }

    /// Clock rate of the first payload type whose clock rate is known; 0 if there is none.
    pub fn clock_rate(&self) -> u32 {
        self.formats
            .iter()
            .find_map(|format| format.clock_rate)
            .unwrap_or(0)
    }

    /// True if the preferred payload type is H.264.
    pub fn is_h264(&self) -> bool {
        let encoding = self
            .formats
            .first()
            .and_then(|format| format.encoding.as_deref());
        encoding.is_some_and(|encoding| encoding.eq_ignore_ascii_case("H264"))
    }

    /// True if the server wants no receiver reports (RFC 3556, 3).
    pub fn refuses_receiver_reports(&self) -> bool {
        self.receiver_report_bandwidth == Some(0)
    }
}

impl Description {
    /// Parses a description.
    pub fn parse(body: &[u8]) -> Result<Description, SdpError> {
        steps::count_bytes(body.len());
        let text = String::from_utf8_lossy(body);
        let (session, medias) = sections(&text)?;
        let range = |section: &Section<'_>| Range::parse(&section.attribute("range")?);
        let mut description = Description {
            control: session.attribute("control"),
            range: range(&session),
            medias: Vec::new(),
            non_rtp_count: 0,
            bandwidth: session
                .bandwidth("TIAS")
                .or_else(|| from_kilobits(session.bandwidth("AS"))),
        };
        for (media, own) in &medias {
            if !media.protocol.to_ascii_uppercase().contains("RTP/") {
                description.non_rtp_count += 1;
                continue;
            }
            let to = own.address().or(session.address());
            let only_from = own.sources(to).or_else(|| session.sources(to));
            let any = |kind| own.bandwidth(kind).or_else(|| session.bandwidth(kind));
            description.medias.push(MediaSection {
                kind: match media.kind.to_ascii_lowercase().as_str() {
                    "video" => MediaKind::Video,
                    "audio" => MediaKind::Audio,
                    "text" => MediaKind::Text,
                    "application" => MediaKind::Application,
                    _ => MediaKind::Other,
                },
                protocol: media.protocol.to_owned(),
                formats: formats(media, own),
                control: own.attribute("control"),
                range: range(own),
                connection: to,
                ttl: match own.connection {
                    Some(_) => own.ttl(),
                    None => session.ttl(),
                },
                port: media.port,
                sources: only_from.unwrap_or_default(),
                receiver_report_bandwidth: any("RR"),
                sender_report_bandwidth: any("RS"),
                bandwidth: from_kilobits(own.bandwidth("AS")),
                tias_bandwidth: own.bandwidth("TIAS"),
                direction: Direction::of(own)
                    .or_else(|| Direction::of(&session))
                    .unwrap_or_default(),
            });
        }
        Ok(description)
    }

    /// Removes the streams that do not go to a playing client. If no stream goes to the client, the
    /// server states directions from its own perspective, and the `sendonly` streams are kept.
    #[must_use]
    pub fn retain_receivable(mut self) -> Description {
        let to_client = |media: &MediaSection| media.direction == Direction::ToClient;
        let wanted = match self.medias.iter().any(to_client) {
            true => Direction::ToClient,
            false => Direction::FromClient,
        };
        self.medias.retain(|media| media.direction == wanted);
        self
    }

    /// Length of the media: that of the session, otherwise of the longest stream. `None` if it is
    /// unknown for one of the streams.
    pub fn length(&self) -> Option<Duration> {
        if let Some(range) = &self.range {
            return range.length();
        }
        self.medias
            .iter()
            .map(|media| media.range.as_ref().and_then(Range::length))
            .collect::<Option<Vec<Duration>>>()?
            .into_iter()
            .max()
    }
}

/// Connection, bandwidths and attributes, of the session or of one stream.
#[derive(Debug, Default)]
struct Section<'a> {
    /// Address, as written.
    connection: Option<&'a str>,
    bandwidths: Vec<(&'a str, u64)>,
    /// Names and values; a value is empty if there is none.
    attributes: Vec<(&'a str, &'a str)>,
}

/// Line that begins a stream.
#[derive(Debug)]
struct MediaLine<'a> {
    kind: &'a str,
    /// 0 if it is invalid: RTSP negotiates the port.
    port: u16,
    protocol: &'a str,
    /// `0` if none is stated.
    formats: Vec<&'a str>,
}

impl<'a> MediaLine<'a> {
    fn parse(value: &'a str) -> Result<MediaLine<'a>, SdpError> {
        let mut words = value.split_ascii_whitespace();
        let (Some(kind), Some(port), Some(protocol)) = (words.next(), words.next(), words.next())
        else {
            return Err(SdpError::Malformed(format!(
                "a media line lacks its transport: m={value:.80}"
            )));
        };
        let port = port.split('/').next();
        let mut formats: Vec<&str> = words.take(MAX_FORMATS).collect();
        if formats.is_empty() {
            formats.push("0");
        }
        Ok(MediaLine {
            kind,
            port: port.and_then(|port| port.parse().ok()).unwrap_or(0),
            protocol,
            formats,
        })
    }
}

/// Splits a description into the section of the session and those of its streams.
fn sections(text: &str) -> Result<(Section<'_>, Vec<(MediaLine<'_>, Section<'_>)>), SdpError> {
    if text.trim().is_empty() {
        return Err(SdpError::Empty);
    }
    let (mut session, mut medias) = (Section::default(), Vec::new());
    let mut is_sdp = false;
    for line in text.split(['\r', '\n']).take(MAX_LINES) {
        let line = line.trim_matches([' ', '\t', '\0', '\u{feff}']);
        let Some((kind, value)) = line.split_once('=') else {
            continue;
        };
        let (kind, value) = (kind.trim(), value.trim());
        if value.contains('\0') {
            continue;
        }
        let section = match medias.last_mut() {
            Some((_, section)) => section,
            None => &mut session,
        };
        match kind {
            "v" => is_sdp = true,
            "m" => {
                is_sdp = true;
                let media = MediaLine::parse(value)?;
                if medias.len() == MAX_MEDIAS {
                    break;
                }
                medias.push((media, Section::default()));
            }
            "c" if section.connection.is_none() => {
                let words: Vec<&str> = value.split_ascii_whitespace().take(4).collect();
                if let [_, _, address] = words[..] {
                    section.connection = Some(address);
                }
            }
            "b" => {
                if let Some((kind, number)) = value.split_once(':')
                    && let Ok(number) = number.trim().parse()
                {
                    section.bandwidths.push((kind.trim(), number));
                }
            }
            "a" if !value.is_empty() => {
                let (name, value) = value.split_once(':').unwrap_or((value, ""));
                section.attributes.push((name.trim(), value.trim()));
            }
            _ => {}
        }
    }
    match is_sdp {
        true => Ok((session, medias)),
        false => Err(SdpError::NotSdp),
    }
}

impl Section<'_> {
    fn attribute(&self, name: &str) -> Option<String> {
        let mut attributes = self.attributes.iter();
        let found = attributes.find(|(own, _)| {
            steps::count_bytes(1);
            own.eq_ignore_ascii_case(name)
        });
        let value = found.map(|(_, value)| (*value).to_owned());
        value.filter(|value| !value.is_empty())
    }

    fn bandwidth(&self, kind: &str) -> Option<u64> {
        let mut bandwidths = self.bandwidths.iter();
        let found = bandwidths.find(|(own, _)| own.eq_ignore_ascii_case(kind));
        found.map(|(_, number)| *number)
    }

    fn address(&self) -> Option<IpAddr> {
        self.connection?.split('/').next()?.parse().ok()
    }

    /// TTL of an IPv4 group, written ADDRESS/TTL. IPv6 has none (RFC 8866, 5.7).
    fn ttl(&self) -> Option<u8> {
        let group = self.address()?;
        let mut parts = self.connection?.split('/').skip(1);
        (group.is_ipv4() && group.is_multicast())
            .then(|| parts.next()?.parse().ok())
            .flatten()
    }

    /// Sources that a filter includes for the group; `None` if no including filter applies to the
    /// group (RFC 4570, 3).
    fn sources(&self, group: Option<IpAddr>) -> Option<Vec<IpAddr>> {
        let group = group?;
        let all = self.attributes.iter();
        let filters = all.filter(|(name, _)| name.eq_ignore_ascii_case("source-filter"));
        let sources = |(_, filter): &(&str, &str)| {
            steps::count_bytes(filter.len());
            // Filter mode, network type, address type, and destination.
            let mut words = filter.split_ascii_whitespace();
            let includes = words.next()?.eq_ignore_ascii_case("incl");
            let destination = words.nth(2)?;
            let is_its = destination == "*" || destination.parse() == Ok(group);
            let sources: Vec<IpAddr> = words
                .filter_map(|word| word.parse::<IpAddr>().ok())
                .filter(|source| source.is_ipv4() == group.is_ipv4())
                .take(MAX_SOURCES)
                .collect();
            (includes && is_its && !sources.is_empty()).then_some(sources)
        };
        filters.filter_map(sources).next()
    }

    /// `NUMBER rest` of the attributes with this name; the first attribute of each number counts.
    /// One pass over the attributes instead of one per payload type.
    fn by_payload_type(&self, name: &str) -> HashMap<u8, &str> {
        let mut first: HashMap<u8, &str> = HashMap::new();
        for (own, value) in &self.attributes {
            steps::count_bytes(1);
            if own.eq_ignore_ascii_case(name)
                && let Some((number, rest)) = value.split_once([' ', '\t'])
                && let Ok(number) = number.parse()
            {
                steps::count_bytes(value.len());
                first.entry(number).or_insert(rest.trim());
            }
        }
        first
    }
}

fn from_kilobits(number: Option<u64>) -> Option<u64> {
    number.map(|kilobits| kilobits.saturating_mul(1000))
}

fn formats(media: &MediaLine<'_>, section: &Section<'_>) -> Vec<Format> {
    let maps = section.by_payload_type("rtpmap");
    let parameters = section.by_payload_type("fmtp");
    let mut formats: Vec<Format> = Vec::new();
    for word in &media.formats {
        let Some(payload_type) = word.parse::<u8>().ok().filter(|&number| number < 128) else {
            continue;
        };
        if formats.iter().any(|f| f.payload_type == payload_type) {
            continue;
        }
        let map = maps.get(&payload_type).copied().unwrap_or_default();
        let mut parts = map.split('/').map(str::trim);
        let known = static_payload_type(payload_type);
        let encoding = parts.next().filter(|name| !name.is_empty());
        let clock_rate = parts
            .next()
            .and_then(|rate| rate.parse().ok())
            .filter(|&rate| rate > 0);
        let channels = parts.next().and_then(|count| count.parse().ok());
        formats.push(Format {
            payload_type,
            encoding: encoding.or(known.map(|(name, _)| name)).map(str::to_owned),
            clock_rate: clock_rate.or(known.map(|(_, rate)| rate)),
            channels,
            fmtp: parameters.get(&payload_type).map(|&text| text.to_owned()),
        });
    }
    formats
}

/// Static payload types: name and clock rate (RFC 3551, 6).
const fn static_payload_type(payload_type: u8) -> Option<(&'static str, u32)> {
    Some(match payload_type {
        0 => ("PCMU", 8000),
        3 => ("GSM", 8000),
        4 => ("G723", 8000),
        5 => ("DVI4", 8000),
        6 => ("DVI4", 16000),
        7 => ("LPC", 8000),
        8 => ("PCMA", 8000),
        // The RTP clock rate is 8 kHz, although the sampling rate is 16 kHz (RFC 3551, 4.5.2).
        9 => ("G722", 8000),
        10 | 11 => ("L16", 44100),
        12 => ("QCELP", 8000),
        13 => ("CN", 8000),
        14 => ("MPA", 90000),
        15 => ("G728", 8000),
        16 => ("DVI4", 11025),
        17 => ("DVI4", 22050),
        18 => ("G729", 8000),
        25 => ("CelB", 90000),
        26 => ("JPEG", 90000),
        28 => ("nv", 90000),
        31 => ("H261", 90000),
        32 => ("MPV", 90000),
        33 => ("MP2T", 90000),
        34 => ("H263", 90000),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Description that VLC's on-demand server sends for a clip.
    const VLC: &str = "v=0\r\no=- 15477 15477 IN IP4 host\r\ns=Unnamed\r\ni=N/A\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n\
        a=tool:vlc 3.0.24\r\na=recvonly\r\na=type:broadcast\r\na=charset:UTF-8\r\n\
        a=range: npt=0-10.040\r\na=control:rtsp://127.0.0.1:8556/v1\r\n\
        m=video 0 RTP/AVP 96\r\nb=AS:1000\r\nb=RR:0\r\na=rtpmap:96 H264/90000\r\n\
        a=fmtp:96 packetization-mode=1;profile-level-id=64001f;sprop-parameter-sets=Z2QAH6w=,aOvjyyLA;\r\n\
        a=control:rtsp://127.0.0.1:8556/v1/trackID=0\r\n\
        m=audio 0 RTP/AVP 96\r\nb=RR:0\r\na=rtpmap:96 mpeg4-generic/48000\r\n\
        a=control:rtsp://127.0.0.1:8556/v1/trackID=1\r\n";

    #[test]
    fn parses_clip_description_of_vlc() {
        let sdp = Description::parse(VLC.as_bytes()).expect("it is one");
        assert_eq!(sdp.control.as_deref(), Some("rtsp://127.0.0.1:8556/v1"));
        assert_eq!(sdp.length(), Some(Duration::from_millis(10_040)));
        let [video, audio] = &sdp.medias[..] else {
            panic!("two streams: {sdp:?}");
        };
        assert_eq!(video.kind, MediaKind::Video);
        assert_eq!(
            (video.clock_rate(), video.payload_types()),
            (90000, vec![96])
        );
        assert_eq!(video.bandwidth, Some(1_000_000));
        assert!(video.refuses_receiver_reports() && audio.refuses_receiver_reports());
        assert_eq!(video.formats[0].encoding.as_deref(), Some("H264"));
        assert!(
            video.formats[0]
                .fmtp
                .as_deref()
                .is_some_and(|f| f.starts_with("packetization-mode=1"))
        );
        assert_eq!((audio.kind, audio.clock_rate()), (MediaKind::Audio, 48000));
        assert_eq!(video.connection, Some(IpAddr::from([0, 0, 0, 0])));
    }

    #[test]
    fn tolerates_sloppy_camera_description() {
        let sdp = Description::parse(
            b"v=0\nm=video 99999 RTP/AVP 26 96 \nt=0 0\na = rtpmap:96  H265/90000 \nx=?\nnonsense\n\
              b=AS:-5\nc=IN IP4 239.1.2.3/16\na=control:trackID=1\nm=audio 0 RTP/AVP 0 0 x 200\n\
              m=application 0 udp 99\na=range:npt=now-\nm=text 0 RTP/AVP\n",
        )
        .expect("it is forgiven");
        assert_eq!(sdp.medias.len(), 3);
        assert_eq!(sdp.non_rtp_count, 1);
        assert_eq!(sdp.length(), None);
        let video = &sdp.medias[0];
        assert_eq!(video.payload_types(), [26, 96]);
        assert_eq!(video.formats[0].encoding.as_deref(), Some("JPEG"));
        assert_eq!(video.formats[1].encoding.as_deref(), Some("H265"));
        assert_eq!(video.connection, Some(IpAddr::from([239, 1, 2, 3])));
        assert_eq!(video.control.as_deref(), Some("trackID=1"));
        assert_eq!(
            (video.bandwidth, video.receiver_report_bandwidth),
            (None, None)
        );
        let audio = &sdp.medias[1];
        assert_eq!((audio.payload_types(), audio.clock_rate()), (vec![0], 8000));
    }

    #[test]
    fn parses_multicast_group_and_source_filter() {
        let sdp = Description::parse(
            b"v=0\nc=IN IP4 232.1.2.3/16/2\na=source-filter: incl IN IP4 * 10.0.0.1 10.0.0.2\n\
              m=video 5004/2 RTP/AVP 96\nm=audio 5008 RTP/AVP 0\nc=IN IP6 ff15::1/3\n\
              a=source-filter:excl IN IP6 ff15::1 2001:db8::1\n",
        )
        .expect("it is one");
        let [video, audio] = &sdp.medias[..] else {
            panic!("two streams: {sdp:?}");
        };
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(video.connection, Some(address("232.1.2.3")));
        assert_eq!((video.ttl, video.port), (Some(16), 5004));
        assert_eq!(video.sources, [address("10.0.0.1"), address("10.0.0.2")]);
        assert_eq!(audio.connection, Some(address("ff15::1")));
        assert_eq!((audio.ttl, audio.port), (None, 5008));
        // An excluding filter includes no source, and the session's filter is for another IP
        // version.
        assert_eq!(audio.sources, [] as [IpAddr; 0]);
    }

    #[test]
    fn rejects_text_that_is_not_sdp() {
        assert_eq!(Description::parse(b" \r\n"), Err(SdpError::Empty));
        assert_eq!(
            Description::parse(b"<html>\n<a b=c>"),
            Err(SdpError::NotSdp)
        );
        assert!(matches!(
            Description::parse(b"v=0\nm=video 0\n"),
            Err(SdpError::Malformed(_))
        ));
        assert_eq!(
            Description::parse(b"v=0\n")
                .expect("one without streams")
                .medias,
            []
        );
    }

    #[test]
    fn length_is_unknown_if_one_stream_has_none() {
        let parse = |text: &str| {
            Description::parse(text.as_bytes())
                .expect("it is one")
                .length()
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(
            parse("v=0\na=range:npt=5-15\nm=video 0 RTP/AVP 96\n"),
            seconds(10)
        );
        assert_eq!(
            parse("m=video 0 RTP/AVP 96\na=range:npt=0-3\nm=audio 0 RTP/AVP 97\na=range:npt=0-4\n"),
            seconds(4)
        );
        assert_eq!(
            parse("m=video 0 RTP/AVP 96\na=range:npt=0-3\nm=audio 0 RTP/AVP 97\n"),
            None
        );
        assert_eq!(
            parse("v=0\na=range:npt=0-\nm=video 0 RTP/AVP 96\na=range:npt=0-3\n"),
            None
        );
        assert_eq!(parse("v=0\n"), None);
    }

    #[test]
    fn streams_and_formats_are_bounded() {
        let text = format!("v=0\n{}", "m=video 0 RTP/AVP 96\n".repeat(1000));
        let sdp = Description::parse(text.as_bytes()).expect("it is one");
        assert_eq!(sdp.medias.len(), MAX_MEDIAS);
        let text = format!("m=video 0 RTP/AVP{}\n", " 96".repeat(100_000));
        let sdp = Description::parse(text.as_bytes()).expect("it is one");
        assert_eq!(sdp.medias[0].formats.len(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn arbitrary_text_does_not_panic(
            lines in prop::collection::vec("[vosctbam]=.{0,30}|m=[a-z0-9 /A-Z]{0,20}|a=(rtpmap|range|control|fmtp):[0-9a-z /=.-]{0,20}", 0..20),
            bytes in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let _ = Description::parse(lines.join("\n").as_bytes());
            let _ = Description::parse(&bytes);
        }
    }

    #[test]
    fn descriptions_are_parsed_in_linear_time() {
        let formats: String = (35..99).map(|number| format!(" {number}")).collect();
        let media = "m=video 0 RTP/AVP 96\r\nc=IN IP4 239.1.1.1\r\n".repeat(32);
        let all_formats = format!("m=video 0 RTP/AVP{formats}\r\n");
        for (begin, again, end) in [
            (all_formats.as_str(), "a=rtpmap:99 H264/90000\r\n", ""),
            (&all_formats, "a=fmtp:98 x=y\r\n", ""),
            (&all_formats, "a=x\r\n", ""),
            ("v=0\r\n", "a=source-filter: incl IN IP4 * x\r\n", &media),
            ("", "m=video 0 RTP/AVP 96\r\na=control:x\r\n", ""),
            ("v=0\r\n", "\r\n", ""),
        ] {
            let cost = |times: usize| {
                let text = format!("{begin}{}{end}", again.repeat(times));
                let steps = steps::of(|| drop(Description::parse(text.as_bytes())));
                assert!(steps < 64 * text.len() as u64, "{again}: {steps} steps");
                steps
            };
            let (once, twice) = (cost(2000), cost(4000));
            assert!(twice <= once * 5 / 2, "{again}: {once} steps, then {twice}");
        }
    }
}
