//! Receiving from a publisher, and forwarding to players.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use measure::Time;

use super::Shared;
use super::answers::ReceivedTrack;
use super::publication::{PeerMessage, Publication, StreamItem, stream_topic};
use super::records::{ReceivedCounts, ServedPeer};
use super::rooms::announce_change;
use crate::extension;
use crate::feedback::write_pli;
use crate::peer::Peer;
use crate::sdp::MediaKind;
use crate::srtp::{RtpOpener, RtpParts};
use crate::tracks::{KeyFrameRequest, PayloadFormat, Tracks};
use kit::media::rtcp::{self, Packet};
use session::{Arrival, Context, Datagram, PacketHeader, Sink};

/// Interval between receiver reports, and between searches for missing packets.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const NACK_INTERVAL: Duration = Duration::from_millis(20);

/// Interval between transport-wide feedback messages to the publisher.
const TRANSPORT_FEEDBACK_INTERVAL: Duration = Duration::from_millis(50);

/// Minimum interval between key frame requests.
const KEY_FRAME_INTERVAL_MIN: Duration = Duration::from_millis(500);

/// Maximum number of sources that are mapped to a track.
const SOURCES_MAX: usize = 16;

/// Sizes of the IPv4 and UDP headers, and of the IPv6 and UDP headers (RFC 791, RFC 8200, RFC 768).
const UDP_IP_OVERHEADS: [usize; 2] = [28, 48];

/// Receiver of a publisher's media.
#[derive(Debug)]
pub(super) struct StreamReceiver {
    shared: Arc<Shared>,
    name: String,
    publication: Arc<Publication>,
    received_tracks: Vec<ReceivedTrack>,
    tracks: Tracks,
    opener: Option<RtpOpener>,
    decrypted: Vec<u8>,
    /// SSRCs, and the index of the track of each.
    sources: Vec<(u32, usize)>,
    own_ssrc: u32,
    report_at: Option<Time>,
    nack_at: Option<Time>,
    transport_feedback_at: Option<Time>,
    /// True if a key frame is to be requested. It may be requested from `key_frame_after` on.
    key_frame_wanted: bool,
    key_frame_after: Time,
    counts: ReceivedCounts,
}

impl StreamReceiver {
    pub(super) fn new(
        shared: Arc<Shared>,
        name: String,
        taken: Vec<ReceivedTrack>,
        publication: Arc<Publication>,
    ) -> StreamReceiver {
        let mut tracks = Tracks::new(Duration::from_secs(1));
        tracks.nack_enabled = true;
        let formats = taken.iter().map(|taken| PayloadFormat {
            payload_type: taken.payload_type,
            kind: taken.track.kind,
            codec: None,
            clock_rate: taken.track.codec.clock_rate,
            is_rtx: false,
            apt: None,
            nack: taken.nack,
            key_frame_request: (taken.track.kind == MediaKind::Video)
                .then_some(KeyFrameRequest::Pli),
        });
        tracks.set_formats(formats.collect());
        tracks.set_arrivals_extension(taken.iter().find_map(|taken| taken.transport_cc_id));
        StreamReceiver {
            own_ssrc: shared.seeded_random(publication.number, &[20]) as u32,
            shared,
            name,
            publication,
            received_tracks: taken,
            tracks,
            opener: None,
            decrypted: Vec::new(),
            sources: Vec::new(),
            report_at: None,
            nack_at: None,
            transport_feedback_at: None,
            key_frame_wanted: false,
            key_frame_after: Time::ZERO,
            counts: ReceivedCounts::default(),
        }
    }

    /// Starts receiving, once the SRTP keys are known.
    pub(super) fn start(&mut self, cx: &mut Context<'_>, peer: &mut Peer) {
        self.opener = peer.take_rtp_opener();
        self.report_at = Some(cx.now + REPORT_INTERVAL);
        self.nack_at = self.tracks.may_request().then(|| cx.now + NACK_INTERVAL);
        self.transport_feedback_at = self
            .tracks
            .records_arrivals()
            .then(|| cx.now + TRANSPORT_FEEDBACK_INTERVAL);
        self.announce_in_room(cx, true);
    }

    /// Announces in the room, if the stream belongs to one, that its media starts or has ended.
    fn announce_in_room(&self, cx: &mut Context<'_>, is_active: bool) {
        let mut rooms = self.shared.rooms();
        let topic = rooms.set_media_active(&self.name, &self.publication, is_active);
        announce_change(cx, topic);
    }

    /// Decrypts a packet, counts it and forwards it.
    pub(super) fn handle_rtp(&mut self, cx: &mut Context<'_>, datagram: &Datagram<'_>) {
        let Some(opener) = &mut self.opener else {
            return;
        };
        // Packets that cannot be decrypted are in the opener's counts.
        let Ok(bytes) = opener.open(datagram.bytes, &mut self.decrypted) else {
            return;
        };
        let headers = UDP_IP_OVERHEADS[usize::from(datagram.from.is_ipv6())];
        let arrival = Arrival {
            at: datagram.at,
            bytes,
            length: bytes.len(),
            overhead: headers + datagram.bytes.len() - bytes.len(),
        };
        self.tracks.packet(&arrival, cx.recorder);
        let packet = strip_header(bytes).and_then(|(header, payload)| {
            let mut received = self.received_tracks.iter();
            let track = received.position(|received| received.payload_type == header[1] & 0x7f)?;
            Some((track, header, payload))
        });
        let Some((track, header, payload)) = packet else {
            self.counts.foreign += 1;
            return;
        };
        let level = self.received_tracks[track].audio_level_id;
        let level = level.and_then(|id| extension::find_element(bytes, id)?.first().copied());
        let ssrc = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let is_known = self.sources.iter().any(|(known, _)| *known == ssrc);
        if !is_known && self.sources.len() < SOURCES_MAX {
            self.sources.push((ssrc, track));
        }
        self.counts.forwarded += 1;
        let item = StreamItem::Media {
            track,
            header,
            level,
            payload: Bytes::copy_from_slice(payload),
        };
        self.push_item(cx, item);
    }

    fn push_item(&self, cx: &mut Context<'_>, item: StreamItem) {
        if self.shared.published.push(&self.name, item, None) {
            self.notify_players(cx, PeerMessage::NewItems);
        }
    }

    fn notify_players(&self, cx: &mut Context<'_>, message: PeerMessage) {
        let topic = stream_topic(self.publication.stream_index);
        message.publish(cx, topic, self.publication.number);
    }

    /// Handles RTCP of the publisher.
    pub(super) fn handle_rtcp(&mut self, cx: &mut Context<'_>, compound: &[u8], at: Time) {
        self.tracks.handle_rtcp(compound, at, cx.recorder);
        for packet in rtcp::packets(compound).map_while(Result::ok) {
            let Packet::SenderReport { info, .. } = packet else {
                continue;
            };
            let mut sources = self.sources.iter();
            if let Some((_, track)) = sources.find(|(ssrc, _)| *ssrc == info.ssrc) {
                let item = StreamItem::Clock {
                    track: *track,
                    ntp_time: info.ntp_time,
                    rtp_time: info.rtp_time,
                };
                self.push_item(cx, item);
            }
        }
    }

    /// Schedules a key frame request to the publisher. If one was requested just before, the new
    /// request is delayed instead of dropped: the earlier key frame may have left before this
    /// player joined.
    pub(super) fn request_key_frame(&mut self) {
        self.key_frame_wanted = true;
    }

    fn send_key_frame_request(&mut self, now: Time, peer: &mut Peer) {
        self.key_frame_wanted = false;
        self.key_frame_after = now + KEY_FRAME_INTERVAL_MIN;
        for (ssrc, track) in &self.sources {
            if self.received_tracks[*track].track.kind != MediaKind::Video {
                continue;
            }
            let mut compound = Vec::with_capacity(32);
            rtcp::write_receiver_report(&mut compound, self.own_ssrc, &[]);
            write_pli(&mut compound, self.own_ssrc, *ssrc);
            self.counts.pictures_asked += u64::from(peer.send_rtcp(&compound));
        }
    }

    pub(super) fn deadline(&self) -> Time {
        let key_frame_at = self.key_frame_wanted.then_some(self.key_frame_after);
        let all = [
            self.report_at,
            self.nack_at,
            self.transport_feedback_at,
            key_frame_at,
        ];
        all.into_iter().flatten().min().unwrap_or(Time::NEVER)
    }

    pub(super) fn handle_timeout(&mut self, cx: &mut Context<'_>, peer: &mut Peer) {
        let now = cx.now;
        if self.key_frame_wanted && now >= self.key_frame_after {
            self.send_key_frame_request(now, peer);
        }
        if self.report_at.is_some_and(|due| due <= now) {
            self.report_at = Some(now + REPORT_INTERVAL);
            self.report(now, peer);
            self.tracks.record_requests(cx.recorder);
        }
        if self.transport_feedback_at.is_some_and(|due| due <= now) {
            self.transport_feedback_at = Some(now + TRANSPORT_FEEDBACK_INTERVAL);
            self.tracks
                .write_arrivals(self.own_ssrc, |compound| peer.send_rtcp(compound));
        }
        if self.nack_at.is_some_and(|due| due <= now) {
            self.nack_at = Some(now + NACK_INTERVAL);
            let (own, tracks, round_trip) = (self.own_ssrc, &mut self.tracks, peer.round_trip());
            let key_frames = tracks.write_requests(now, own, round_trip, |compound| {
                peer.send_rtcp(compound);
            });
            self.counts.pictures_asked += key_frames;
        }
    }

    /// Sends receiver reports on all sources. A publisher has few, so all reports fit into the send
    /// queue.
    fn report(&mut self, now: Time, peer: &mut Peer) {
        let (own, cname, tracks) = (self.own_ssrc, self.shared.cname(), &mut self.tracks);
        let mut from = Some(0);
        while let Some(first) = from {
            from = tracks.write_reports(now, own, &cname, first, |compound| {
                peer.send_rtcp(compound);
            });
        }
    }

    /// Ends the publication, and adds its counts to the record.
    pub(super) fn end(&mut self, cx: &mut Context<'_>, record: &mut ServedPeer) {
        self.tracks.finish(None, cx.recorder);
        let rows = self.tracks.rows(&self.name);
        let counts = &mut self.counts;
        for row in &rows {
            counts.received += row.counts.received;
            counts.lost += row.counts.lost();
            counts.reordered += row.counts.reordered;
            counts.payload_bytes += row.counts.payload_bytes;
        }
        [counts.asked, counts.recovered] = self.tracks.counted_requests;
        if let Some(opener) = &self.opener {
            counts.unauthentic = opener.counts().unauthentic;
            counts.replayed = opener.counts().replayed;
        }
        record.received = Some(*counts);
        record.received_streams = rows;
        self.notify_players(cx, PeerMessage::StreamEnded);
        self.announce_in_room(cx, false);
        let number = self.publication.number;
        self.shared.unpublish(&self.name, number);
    }
}

/// Returns the header and payload of a packet without the parts that concern only its publisher and
/// this server: contributing sources and header extensions (RFC 3550, 5.1 and 5.3.1). Returns
/// `None` if the packet is truncated.
fn strip_header(bytes: &[u8]) -> Option<(PacketHeader, &[u8])> {
    let length = RtpParts::parse(bytes).ok()?.header_length;
    let header = PacketHeader::EMPTY
        .append(&[bytes[0] & 0xe0])
        .append(&bytes[1..12]);
    Some((header, &bytes[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_forwarded_without_csrcs_and_extensions() {
        let fixed = |first: u8| [&[first, 0xe0, 0, 7][..], &[0; 4], &[9; 4]].concat();
        let whole = [
            &fixed(0xb2)[..],
            &[1; 8],
            &[0xbe, 0xde, 0, 1],
            &[2; 4],
            b"media",
        ]
        .concat();
        let (header, payload) = strip_header(&whole).expect("it is whole");
        assert_eq!((&header[..], payload), (&fixed(0xa0)[..], &b"media"[..]));
        for length in 0..whole.len() - b"media".len() {
            assert!(strip_header(&whole[..length]).is_none(), "{length}");
        }
    }
}
