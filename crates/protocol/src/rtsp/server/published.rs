//! Streams published by clients: their descriptions, and their packets on the way to players.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::media::sdp::Description;
use crate::rtsp::describe::track_name;
use crate::rtsp::url;

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
pub(super) struct Relayed {
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
    let mut medias = String::new();
    let mut count = 0;
    for line in sdp.lines().map(str::trim_end) {
        if let Some(media) = line.strip_prefix("m=") {
            let mut words = media.split_ascii_whitespace();
            let kind = words.next().unwrap_or_default();
            let rest: Vec<&str> = words.skip(1).collect();
            medias.push_str(&format!("m={kind} 0 {}\r\n", rest.join(" ")));
            medias.push_str(&format!("a=control:{}\r\n", track_name(count)));
            count += 1;
        } else if count > 0
            && ["a=rtpmap:", "a=fmtp:", "a=framerate:", "b="]
                .iter()
                .any(|told| line.starts_with(told))
        {
            medias.push_str(line);
            medias.push_str("\r\n");
        }
    }
    medias
}

/// A published stream.
#[derive(Debug)]
struct PublishedStream {
    /// Slot of the stream, below [`STREAMS_MAX`].
    slot: usize,
    announced: Announcement,
    /// True after RECORD, while media is sent.
    recorded: bool,
    packets: VecDeque<Relayed>,
    bytes: usize,
    /// Number of the oldest packet that is kept.
    first: u64,
}

/// All published streams.
#[derive(Debug, Default)]
pub(super) struct PublishedStreams(Mutex<BTreeMap<StreamAddress, PublishedStream>>);

impl PublishedStreams {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<StreamAddress, PublishedStream>> {
        // Each change is complete in itself, so a panic cannot leave a partial change behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a stream. Returns `false` if all slots are in use, or the stream is published already.
    pub(super) fn announce(&self, place: &StreamAddress, announced: Announcement) -> bool {
        let mut all = self.lock();
        let free = |index: &usize| all.values().all(|live| live.slot != *index);
        let Some(index) = (0..STREAMS_MAX).find(free) else {
            return false;
        };
        if all.contains_key(place) {
            return false;
        }
        let live = PublishedStream {
            slot: index,
            announced,
            recorded: false,
            packets: VecDeque::new(),
            bytes: 0,
            first: 0,
        };
        all.insert(place.clone(), live);
        true
    }

    /// Marks a stream as recorded: its media is sent from now on.
    pub(super) fn record(&self, place: &StreamAddress) {
        if let Some(live) = self.lock().get_mut(place) {
            live.recorded = true;
        }
    }

    /// Removes a stream.
    pub(super) fn remove(&self, place: &StreamAddress) {
        self.lock().remove(place);
    }

    /// Returns what was announced for a stream, if it is recorded.
    pub(super) fn announced(&self, place: &StreamAddress) -> Option<Announcement> {
        let all = self.lock();
        let live = all.get(place).filter(|live| live.recorded)?;
        Some(live.announced.clone())
    }

    /// Returns the topic on which players of a stream are notified of new packets or of its end.
    /// The topic contains the slot, of which there are few, instead of the path, which clients
    /// choose.
    pub(super) fn topic(&self, place: &StreamAddress) -> Option<String> {
        let all = self.lock();
        all.get(place)
            .map(|live| format!("live {} {}", place.0, live.slot))
    }

    /// Adds packets of a stream.
    pub(super) fn push(&self, place: &StreamAddress, packets: impl IntoIterator<Item = Relayed>) {
        let mut all = self.lock();
        let Some(live) = all.get_mut(place) else {
            return;
        };
        for packet in packets {
            live.bytes += packet.bytes.len();
            live.packets.push_back(packet);
        }
        while (live.packets.len() > PACKETS_MAX || live.bytes > BYTES_MAX)
            && let Some(oldest) = live.packets.pop_front()
        {
            live.bytes -= oldest.bytes.len();
            live.first += 1;
        }
    }

    /// Returns the number of the next packet of a stream, or `None` if it is not published.
    pub(super) fn next_number(&self, place: &StreamAddress) -> Option<u64> {
        let all = self.lock();
        let live = all.get(place)?;
        Some(live.first + live.packets.len() as u64)
    }

    /// Returns the packets of a stream from this number on, and how many of them are already gone.
    /// Returns `None` if the stream is not published.
    pub(super) fn packets_from(
        &self,
        place: &StreamAddress,
        number: u64,
    ) -> Option<(Vec<Relayed>, u64)> {
        let all = self.lock();
        let live = all.get(place)?;
        let gone = live.first.saturating_sub(number);
        let taken = usize::try_from(number.saturating_sub(live.first)).unwrap_or(usize::MAX);
        Some((live.packets.iter().skip(taken).cloned().collect(), gone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SDP: &str = "v=0\r\no=- 0 0 IN IP4 10.0.0.1\r\ns=x\r\nc=IN IP4 10.0.0.9\r\nt=0 0\r\nb=AS:9\r\n\
        m=video 5004 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\n\
        a=control:streamid=0\r\na=sendonly\r\nm=audio 5006 RTP/AVP 0\r\na=control:streamid=1\r\n";

    fn place() -> StreamAddress {
        (SocketAddr::from(([10, 0, 0, 1], 554)), "/a".to_owned())
    }

    fn packet(length: usize) -> Relayed {
        Relayed {
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
        assert!(published.announce(&place(), announced()));
        assert!(!published.announce(&place(), announced()));
        assert!(published.announced(&place()).is_none());
        published.record(&place());
        assert!(published.announced(&place()).is_some());
        for number in 1..STREAMS_MAX {
            let place = (place().0, format!("/{number}"));
            assert!(published.announce(&place, announced()), "{number}");
        }
        assert!(!published.announce(&(place().0, "/more".to_owned()), announced()));
        published.remove(&place());
        assert!(published.next_number(&place()).is_none());
        assert!(published.announce(&place(), announced()));
    }

    #[test]
    fn kept_packets_are_bounded() {
        let published = PublishedStreams::default();
        let announced = Announcement::parse(SDP.as_bytes(), "rtsp://h/a").expect("valid");
        published.announce(&place(), announced);
        published.push(&place(), (0..3).map(packet));
        let (packets, gone) = published.packets_from(&place(), 1).expect("there");
        assert_eq!((packets.len(), gone), (2, 0));
        published.push(&place(), (0..PACKETS_MAX).map(|_| packet(100)));
        let (packets, gone) = published.packets_from(&place(), 1).expect("there");
        assert_eq!((packets.len(), gone), (PACKETS_MAX, 2));
        published.push(&place(), (0..200).map(|_| packet(65_000)));
        let (packets, _) = published.packets_from(&place(), 0).expect("there");
        assert!(packets.iter().map(|one| one.bytes.len()).sum::<usize>() <= BYTES_MAX);
        assert_eq!(
            published.next_number(&place()),
            Some(3 + PACKETS_MAX as u64 + 200)
        );
    }
}
