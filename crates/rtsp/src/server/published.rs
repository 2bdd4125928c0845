//! Streams published by clients: their descriptions, and their packets on the way to players.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::describe::track_name;
use crate::url;
use kit::media::sdp::Description;

/// Maximum number of streams published at a time.
const STREAMS_MAX: usize = 64;
/// Maximum number of packets, and of bytes, that are kept of a stream for players that have not
/// taken them. A player that falls further behind loses the oldest packets.
const PACKETS_MAX: usize = 4096;
const BYTES_MAX: usize = 8 << 20;

/// Address and path of a stream.
pub(super) type StreamAddress = (SocketAddr, String);

/// A relayed packet.
#[derive(Clone, Debug)]
pub(super) struct RelayedPacket {
    /// Index of the track in the stream.
    pub(super) media: usize,
    /// True for RTCP.
    pub(super) control: bool,
    pub(super) bytes: Arc<[u8]>,
}

/// Content of an ANNOUNCE.
#[derive(Clone, Debug, Default)]
pub(super) struct Announcement {
    /// Media sections as described to players.
    pub(super) media_sections: String,
    /// Control URL of each track, as the publisher names it.
    pub(super) urls: Vec<String>,
}

impl Announcement {
    /// Parses the body of an ANNOUNCE. Returns `None` if it is not a description, or describes
    /// anything other than RTP.
    pub(super) fn parse(body: &[u8], base: &str) -> Option<Announcement> {
        let description = Description::parse(body).ok()?;
        if description.medias.is_empty() || description.non_rtp_count > 0 {
            return None;
        }
        let aggregate = url::resolve_control(base, description.control.as_deref());
        let urls = description
            .medias
            .iter()
            .map(|media| url::resolve_control(&aggregate, media.control.as_deref()))
            .collect();
        Some(Announcement {
            media_sections: player_media_sections(&String::from_utf8_lossy(body)),
            urls,
        })
    }
}

/// Returns the media sections as described to players: without addresses and ports, and with our
/// own control URLs.
fn player_media_sections(sdp: &str) -> String {
    let mut sections = String::new();
    let mut count = 0;
    for line in sdp.lines().map(str::trim_end) {
        if let Some(media) = line.strip_prefix("m=") {
            let mut words = media.split_ascii_whitespace();
            let kind = words.next().unwrap_or_default();
            let rest: Vec<&str> = words.skip(1).collect();
            sections.push_str(&format!("m={kind} 0 {}\r\n", rest.join(" ")));
            sections.push_str(&format!("a=control:{}\r\n", track_name(count)));
            count += 1;
        } else if count > 0
            && ["a=rtpmap:", "a=fmtp:", "a=framerate:", "b="]
                .iter()
                .any(|prefix| line.starts_with(prefix))
        {
            sections.push_str(line);
            sections.push_str("\r\n");
        }
    }
    sections
}

#[derive(Debug, Default)]
struct PublishedStream {
    /// Slot of the stream, below [`STREAMS_MAX`].
    slot: usize,
    announced: Announcement,
    /// True after RECORD, while media is sent.
    recorded: bool,
    packets: VecDeque<RelayedPacket>,
    bytes: usize,
    /// Number of the oldest packet that is kept.
    first: u64,
}

#[derive(Debug, Default)]
pub(super) struct PublishedStreams(Mutex<BTreeMap<StreamAddress, PublishedStream>>);

impl PublishedStreams {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<StreamAddress, PublishedStream>> {
        // Each change is complete in itself, so a panic cannot leave a partial change behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a stream. Returns `false` if all slots are in use, or the stream is published already.
    pub(super) fn announce(&self, address: &StreamAddress, announced: Announcement) -> bool {
        let mut all = self.lock();
        let free = |index: &usize| all.values().all(|stream| stream.slot != *index);
        let Some(index) = (0..STREAMS_MAX).find(free) else {
            return false;
        };
        if all.contains_key(address) {
            return false;
        }
        let stream = PublishedStream {
            slot: index,
            announced,
            ..PublishedStream::default()
        };
        all.insert(address.clone(), stream);
        true
    }

    /// Marks a stream as recorded: its media is sent from now on.
    pub(super) fn record(&self, address: &StreamAddress) {
        if let Some(stream) = self.lock().get_mut(address) {
            stream.recorded = true;
        }
    }

    pub(super) fn remove(&self, address: &StreamAddress) {
        self.lock().remove(address);
    }

    /// Returns what was announced for a stream, if it is recorded.
    pub(super) fn announced(&self, address: &StreamAddress) -> Option<Announcement> {
        let all = self.lock();
        let stream = all.get(address).filter(|stream| stream.recorded)?;
        Some(stream.announced.clone())
    }

    /// Returns the topic on which players of a stream are notified of new packets or of its end.
    /// The topic contains the slot, of which there are few, instead of the path, which clients
    /// choose.
    pub(super) fn topic(&self, address: &StreamAddress) -> Option<String> {
        let all = self.lock();
        all.get(address)
            .map(|stream| format!("live {} {}", address.0, stream.slot))
    }

    /// Adds packets of a stream.
    pub(super) fn push(
        &self,
        address: &StreamAddress,
        packets: impl IntoIterator<Item = RelayedPacket>,
    ) {
        let mut all = self.lock();
        let Some(stream) = all.get_mut(address) else {
            return;
        };
        for packet in packets {
            stream.bytes += packet.bytes.len();
            stream.packets.push_back(packet);
        }
        while (stream.packets.len() > PACKETS_MAX || stream.bytes > BYTES_MAX)
            && let Some(oldest) = stream.packets.pop_front()
        {
            stream.bytes -= oldest.bytes.len();
            stream.first += 1;
        }
    }

    /// Returns the number of the next packet of a stream, or `None` if it is not published.
    pub(super) fn next_number(&self, address: &StreamAddress) -> Option<u64> {
        let all = self.lock();
        let stream = all.get(address)?;
        Some(stream.first + stream.packets.len() as u64)
    }

    /// Returns the packets of a stream from this number on, and how many of them are already gone.
    /// Returns `None` if the stream is not published.
    pub(super) fn packets_from(
        &self,
        address: &StreamAddress,
        number: u64,
    ) -> Option<(Vec<RelayedPacket>, u64)> {
        let all = self.lock();
        let stream = all.get(address)?;
        let gone = stream.first.saturating_sub(number);
        let taken = usize::try_from(number.saturating_sub(stream.first)).unwrap_or(usize::MAX);
        Some((stream.packets.iter().skip(taken).cloned().collect(), gone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SDP: &str = "v=0\r\no=- 0 0 IN IP4 10.0.0.1\r\ns=x\r\nc=IN IP4 10.0.0.9\r\nt=0 0\r\nb=AS:9\r\n\
        m=video 5004 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\n\
        a=control:streamid=0\r\na=sendonly\r\nm=audio 5006 RTP/AVP 0\r\na=control:streamid=1\r\n";

    fn address() -> StreamAddress {
        (SocketAddr::from(([10, 0, 0, 1], 554)), "/a".to_owned())
    }

    fn packet(length: usize) -> RelayedPacket {
        RelayedPacket {
            media: 0,
            control: false,
            bytes: vec![0; length].into(),
        }
    }

    #[test]
    fn announced_media_is_described_without_addresses() {
        let announced = Announcement::parse(SDP.as_bytes(), "rtsp://h/a").expect("valid");
        assert_eq!(
            announced.urls,
            ["rtsp://h/a/streamid=0", "rtsp://h/a/streamid=1"]
        );
        assert_eq!(
            announced.media_sections,
            "m=video 0 RTP/AVP 96\r\na=control:track1\r\na=rtpmap:96 H264/90000\r\n\
             a=fmtp:96 packetization-mode=1\r\nm=audio 0 RTP/AVP 0\r\na=control:track2\r\n"
        );
        assert!(Announcement::parse(b"v=0\r\n", "rtsp://h/a").is_none());
        assert!(Announcement::parse(&[0xff; 40], "rtsp://h/a").is_none());
    }

    #[test]
    fn stream_has_one_publisher_and_plays_after_record() {
        let published = PublishedStreams::default();
        let announced = || Announcement::parse(SDP.as_bytes(), "rtsp://h/a").expect("valid");
        assert!(published.announce(&address(), announced()));
        assert!(!published.announce(&address(), announced()));
        assert!(published.announced(&address()).is_none());
        published.record(&address());
        assert!(published.announced(&address()).is_some());
        for number in 1..STREAMS_MAX {
            let address = (address().0, format!("/{number}"));
            assert!(published.announce(&address, announced()), "{number}");
        }
        assert!(!published.announce(&(address().0, "/more".to_owned()), announced()));
        published.remove(&address());
        assert!(published.next_number(&address()).is_none());
        assert!(published.announce(&address(), announced()));
    }

    #[test]
    fn kept_packets_are_bounded() {
        let published = PublishedStreams::default();
        let announced = Announcement::parse(SDP.as_bytes(), "rtsp://h/a").expect("valid");
        published.announce(&address(), announced);
        published.push(&address(), (0..3).map(packet));
        let (packets, gone) = published.packets_from(&address(), 1).expect("there");
        assert_eq!((packets.len(), gone), (2, 0));
        published.push(&address(), (0..PACKETS_MAX).map(|_| packet(100)));
        let (packets, gone) = published.packets_from(&address(), 1).expect("there");
        assert_eq!((packets.len(), gone), (PACKETS_MAX, 2));
        published.push(&address(), (0..200).map(|_| packet(65_000)));
        let (packets, _) = published.packets_from(&address(), 0).expect("there");
        assert!(packets.iter().map(|one| one.bytes.len()).sum::<usize>() <= BYTES_MAX);
        assert_eq!(
            published.next_number(&address()),
            Some(3 + PACKETS_MAX as u64 + 200)
        );
    }
}
