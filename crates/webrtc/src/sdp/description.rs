//! Session descriptions, as far as WebRTC needs them.

use super::candidate::Candidate;
use super::codec::Codec;
use super::transport_attributes::TransportAttributes;
pub use kit::media::sdp::MediaKind;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionDescription {
    /// Session ID (`o=`).
    pub session_id: u64,
    /// Session version (`o=`).
    pub version: u64,
    /// The peer is an ICE lite agent.
    pub ice_lite: bool,
    /// Sections that share one transport, by `mid`.
    pub bundle: Vec<String>,
    /// One-byte and two-byte header extensions may be mixed (RFC 8285, 6).
    pub extmap_allow_mixed: bool,
    /// Transport attributes at session level.
    pub transport: TransportAttributes,
    pub media: Vec<MediaSection>,
}

/// Direction of media, as seen by the author of the description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    #[default]
    SendRecv,
    SendOnly,
    RecvOnly,
    Inactive,
}

impl Direction {
    /// All directions.
    pub const ALL: [Direction; 4] = [
        Direction::SendRecv,
        Direction::SendOnly,
        Direction::RecvOnly,
        Direction::Inactive,
    ];

    /// Returns the name of the attribute.
    pub fn name(self) -> &'static str {
        match self {
            Direction::SendRecv => "sendrecv",
            Direction::SendOnly => "sendonly",
            Direction::RecvOnly => "recvonly",
            Direction::Inactive => "inactive",
        }
    }

    /// Returns the direction of a side that sends and receives as given.
    pub fn of(sends: bool, receives: bool) -> Direction {
        match (sends, receives) {
            (true, true) => Direction::SendRecv,
            (true, false) => Direction::SendOnly,
            (false, true) => Direction::RecvOnly,
            (false, false) => Direction::Inactive,
        }
    }

    /// Returns `true` if the author of the description sends.
    pub fn sends(self) -> bool {
        matches!(self, Direction::SendRecv | Direction::SendOnly)
    }

    /// Returns `true` if the author of the description receives.
    pub fn receives(self) -> bool {
        matches!(self, Direction::SendRecv | Direction::RecvOnly)
    }
}

/// A header extension and its ID (RFC 8285, 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderExtension {
    /// Local identifier: 1 to 255.
    pub id: u16,
    pub uri: String,
}

impl HeaderExtension {
    /// Returns the ID of the extension with this URI, if it is at most 255.
    pub(super) fn find_id(all: &[HeaderExtension], uri: &str) -> Option<u8> {
        let known = all.iter().find(|own| own.uri == uri)?;
        u8::try_from(known.id).ok()
    }
}

/// URIs of the known header extensions.
pub mod extension {
    /// Audio level of a packet (RFC 6464).
    pub const AUDIO_LEVEL: &str = "urn:ietf:params:rtp-hdrext:ssrc-audio-level";
    /// Section to which a packet belongs (RFC 9143, 15).
    pub const MID: &str = "urn:ietf:params:rtp-hdrext:sdes:mid";
    /// Simulcast layer to which a packet belongs (RFC 8852).
    pub const RID: &str = "urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id";
    /// Simulcast layer to which a retransmission belongs (RFC 8852).
    pub const REPAIRED_RID: &str = "urn:ietf:params:rtp-hdrext:sdes:repaired-rtp-stream-id";
    /// Transport-wide sequence number (draft-holmer-rmcat-transport-wide-cc-extensions-01).
    pub const TRANSPORT_CC: &str =
        "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
}

/// Attributes of one source (`a=ssrc`, RFC 5576, 4.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceAttributes {
    pub ssrc: u32,
    /// Canonical name.
    pub cname: Option<String>,
    /// Media stream and track.
    pub msid: Option<String>,
}

/// A group of sources (RFC 5576, 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceGroup {
    /// `FID`: the second source retransmits the first. `SIM`: simulcast layers.
    pub semantics: String,
    pub ssrcs: Vec<u32>,
}

/// A simulcast layer (RFC 8851).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rid {
    pub id: String,
    /// True if the author of the description sends this layer.
    pub sends: bool,
    /// Restrictions, as written; may be empty.
    pub restrictions: String,
}

/// A media line with its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaSection {
    /// Audio, video, or `Application` for a data channel.
    pub kind: MediaKind,
    /// Identification tag of the section.
    pub mid: String,
    /// The section is rejected or closed: its port is 0, and it is in no bundle.
    pub rejected: bool,
    /// Transport protocol of the media line: `UDP/TLS/RTP/SAVPF`.
    pub protocol: String,
    /// Formats of a section that is not RTP: the words after the protocol.
    pub formats: Vec<String>,
    pub direction: Direction,
    /// Codecs in order of preference.
    pub codecs: Vec<Codec>,
    pub extensions: Vec<HeaderExtension>,
    /// Sources of the author of the description.
    pub ssrcs: Vec<SourceAttributes>,
    pub ssrc_groups: Vec<SourceGroup>,
    /// Media stream and track (RFC 8830).
    pub msid: Option<String>,
    /// Simulcast layers.
    pub rids: Vec<Rid>,
    /// Value of `a=simulcast` (RFC 8853).
    pub simulcast: Option<String>,
    /// Reduced-size RTCP: compounds need not contain reports (RFC 5506).
    pub rtcp_reduced_size: bool,
    /// RTCP shares the port of RTP.
    pub rtcp_mux: bool,
    /// Transport attributes at media level.
    pub transport: TransportAttributes,
    pub candidates: Vec<Candidate>,
    /// No more candidates follow.
    pub end_of_candidates: bool,
}

impl MediaSection {
    /// Creates an active section without codecs, sources or transport.
    pub fn new(kind: MediaKind, mid: &str) -> MediaSection {
        MediaSection {
            kind,
            mid: mid.to_owned(),
            rejected: false,
            protocol: "UDP/TLS/RTP/SAVPF".to_owned(),
            formats: Vec::new(),
            direction: Direction::SendRecv,
            codecs: Vec::new(),
            extensions: Vec::new(),
            ssrcs: Vec::new(),
            ssrc_groups: Vec::new(),
            msid: None,
            rids: Vec::new(),
            simulcast: None,
            rtcp_reduced_size: true,
            rtcp_mux: true,
            transport: TransportAttributes::default(),
            candidates: Vec::new(),
            end_of_candidates: false,
        }
    }

    /// Returns the codec of a payload type.
    pub fn codec(&self, payload_type: u8) -> Option<&Codec> {
        let mut codecs = self.codecs.iter();
        codecs.find(|codec| codec.payload_type == payload_type)
    }

    /// Returns the payload type of retransmissions for a payload type.
    pub fn rtx_payload_type(&self, payload_type: u8) -> Option<u8> {
        let mut codecs = self.codecs.iter();
        codecs
            .find(|codec| codec.associated_payload_type() == Some(payload_type))
            .map(|codec| codec.payload_type)
    }

    /// Returns the ID of a header extension, if it is valid.
    pub fn extension_id(&self, uri: &str) -> Option<u8> {
        HeaderExtension::find_id(&self.extensions, uri)
    }
}
