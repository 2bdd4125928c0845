//! A session description, as far as WebRTC needs it.

use super::candidate::Candidate;
use super::codec::Codec;
use super::transport_lines::TransportLines;

/// A session description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionDescription {
    /// The number that names the session (`o=`).
    pub session_id: u64,
    /// Which version of the description it is (`o=`).
    pub version: u64,
    /// The peer only answers ICE's checks.
    pub ice_lite: bool,
    /// The sections that share one transport, by their `mid`.
    pub bundle: Vec<String>,
    /// Extension headers of one and of two bytes may be mixed (RFC 8285, 6).
    pub extmap_allow_mixed: bool,
    /// What is said of the transport for all sections.
    pub transport: TransportLines,
    /// The media.
    pub media: Vec<MediaSection>,
}

/// What a section is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaKind {
    /// Sound.
    Audio,
    /// Pictures.
    Video,
    /// A data channel, which is refused here.
    Application,
}

impl MediaKind {
    /// As on a media line.
    pub fn name(self) -> &'static str {
        match self {
            MediaKind::Audio => "audio",
            MediaKind::Video => "video",
            MediaKind::Application => "application",
        }
    }
}

/// Who sends, as the one who says it sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Both.
    #[default]
    SendRecv,
    /// The one who says it.
    SendOnly,
    /// The other.
    RecvOnly,
    /// Nobody.
    Inactive,
}

impl Direction {
    /// All of them.
    pub const ALL: [Direction; 4] = [
        Direction::SendRecv,
        Direction::SendOnly,
        Direction::RecvOnly,
        Direction::Inactive,
    ];

    /// As the attribute is called.
    pub fn name(self) -> &'static str {
        match self {
            Direction::SendRecv => "sendrecv",
            Direction::SendOnly => "sendonly",
            Direction::RecvOnly => "recvonly",
            Direction::Inactive => "inactive",
        }
    }

    /// Of one who sends, and receives, or not.
    pub fn of(sends: bool, receives: bool) -> Direction {
        match (sends, receives) {
            (true, true) => Direction::SendRecv,
            (true, false) => Direction::SendOnly,
            (false, true) => Direction::RecvOnly,
            (false, false) => Direction::Inactive,
        }
    }

    /// Whether the one who says it sends.
    pub fn sends(self) -> bool {
        matches!(self, Direction::SendRecv | Direction::SendOnly)
    }

    /// Whether the one who says it receives.
    pub fn receives(self) -> bool {
        matches!(self, Direction::SendRecv | Direction::RecvOnly)
    }
}

/// A header extension and the number it has (RFC 8285, 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Its number: 1 to 255.
    pub id: u16,
    /// What it is.
    pub uri: String,
}

/// Header extensions that are known here.
pub mod extension {
    /// How loud a packet's sound is (RFC 6464).
    pub const AUDIO_LEVEL: &str = "urn:ietf:params:rtp-hdrext:ssrc-audio-level";
    /// Which section a packet is of (RFC 9143, 15).
    pub const MID: &str = "urn:ietf:params:rtp-hdrext:sdes:mid";
    /// Which layer of a simulcast a packet is of (RFC 8852).
    pub const RID: &str = "urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id";
    /// Which layer a retransmission is of (RFC 8852).
    pub const REPAIRED_RID: &str = "urn:ietf:params:rtp-hdrext:sdes:repaired-rtp-stream-id";
    /// A number for each packet of a transport
    /// (draft-holmer-rmcat-transport-wide-cc-extensions-01).
    pub const TRANSPORT_CC: &str =
        "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
    /// When a packet was sent, in 24 bits.
    pub const ABS_SEND_TIME: &str = "http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time";
}

/// An attribute of a source (RFC 5576, 4.1), gathered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceAttributes {
    /// Synchronisation source.
    pub ssrc: u32,
    /// Its canonical name.
    pub cname: Option<String>,
    /// Stream and track that it belongs to.
    pub msid: Option<String>,
}

/// Sources that belong together (RFC 5576, 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceGroup {
    /// `FID`: the second is of retransmissions. `SIM`: layers of a simulcast.
    pub semantics: String,
    /// The sources.
    pub ssrcs: Vec<u32>,
}

/// A layer of a simulcast (RFC 8851).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rid {
    /// Its name.
    pub id: String,
    /// Whether the one who says it sends it.
    pub sends: bool,
    /// What it is restricted to; empty where it is not.
    pub restrictions: String,
}

/// One media line with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaSection {
    /// What it is of.
    pub kind: MediaKind,
    /// What names it.
    pub mid: String,
    /// It is refused, or ended: its port is 0 and it is in no bundle.
    pub rejected: bool,
    /// The transport as the media line names it: `UDP/TLS/RTP/SAVPF`.
    pub protocol: String,
    /// The formats of a section that is not of RTP: the words behind the protocol.
    pub formats: Vec<String>,
    /// Who sends.
    pub direction: Direction,
    /// What media may be coded with, the best first.
    pub codecs: Vec<Codec>,
    /// Header extensions.
    pub extensions: Vec<Extension>,
    /// Sources of the one who says it.
    pub ssrcs: Vec<SourceAttributes>,
    /// Which of them belong together.
    pub ssrc_groups: Vec<SourceGroup>,
    /// Stream and track (RFC 8830).
    pub msid: Option<String>,
    /// Layers of a simulcast.
    pub rids: Vec<Rid>,
    /// Which layers are alternatives (RFC 8853).
    pub simulcast: Option<String>,
    /// RTCP may lack its reports (RFC 5506).
    pub rtcp_reduced_size: bool,
    /// RTCP comes on the port of RTP.
    pub rtcp_mux: bool,
    /// What is said of the transport for this section.
    pub transport: TransportLines,
    /// Where the peer can perhaps be reached.
    pub candidates: Vec<Candidate>,
    /// No more candidates follow.
    pub end_of_candidates: bool,
}

impl MediaSection {
    /// One without anything.
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
            transport: TransportLines::default(),
            candidates: Vec::new(),
            end_of_candidates: false,
        }
    }

    /// The codec with that payload type.
    pub fn codec(&self, payload_type: u8) -> Option<&Codec> {
        let mut codecs = self.codecs.iter();
        codecs.find(|codec| codec.payload_type == payload_type)
    }

    /// The payload type of retransmissions of that one.
    pub fn retransmissions_of(&self, payload_type: u8) -> Option<u8> {
        let mut codecs = self.codecs.iter();
        codecs
            .find(|codec| codec.retransmits() == Some(payload_type))
            .map(|codec| codec.payload_type)
    }

    /// The number of a header extension.
    pub fn extension_id(&self, uri: &str) -> Option<u16> {
        let mut extensions = self.extensions.iter();
        extensions
            .find(|extension| extension.uri == uri)
            .map(|extension| extension.id)
    }
}
