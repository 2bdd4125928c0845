//! Streams that are encrypted when they are sent.

use bytes::{Bytes, BytesMut};
use measure::Time;

use super::media::Media;
use crate::session::{Flow, FlowPacket, Handover, PacketHeader, Tag};
use crate::webrtc::again::Again;
use crate::webrtc::client::congestion::Numbered;
use crate::webrtc::extension;
use crate::webrtc::srtp::RtpSealer;
use crate::webrtc::turn::RelayChannel;

/// Size of the buffers in which packets are encrypted, in bytes.
const ROOM: usize = 32 * 1024;

/// Maximum number of bytes that encryption adds to a packet.
const TRAILER_MAX: usize = 16;

/// Bit in the tag of a retransmission.
const AGAIN: u64 = 1 << 63;

/// Stream whose packets are encrypted when they are due, on the thread that sends them.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) media: Media,
    /// Encrypts this stream and its retransmissions. `None` for plain RTP.
    pub(super) sealer: Option<RtpSealer>,
    /// Buffer of packets. It is reused when all packets in it were sent.
    pub(super) room: BytesMut,
    /// Retransmissions, if NACK was negotiated.
    pub(super) again: Option<Again>,
    /// Transport-wide sequence numbers, if the server sends feedback for them.
    pub(super) numbered: Option<Numbered>,
    /// TURN channel over which packets are sent, if any.
    pub(super) channel: Option<RelayChannel>,
    /// Id of the header extension for the audio level.
    pub(super) level: Option<u8>,
    /// Names of the layer of a simulcast.
    pub(super) layer: Option<LayerNames>,
}

/// Header extensions that identify a layer. Its SSRC is in no description (RFC 8853, 5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LayerNames {
    /// Id of the extension, and MID of the section (RFC 9143, 15).
    pub(super) mid: Option<(u8, u8)>,
    /// Id of the extension, and RID of the layer (RFC 8852). `None` for the only stream of a
    /// refused simulcast: its SSRC is in no description either.
    pub(super) rid: Option<(u8, u8)>,
    /// Id of the extension for the RID in retransmissions.
    pub(super) repaired: Option<u8>,
}

impl LayerNames {
    /// Adds the extensions to a header. `again` is true in the stream of retransmissions. The layer
    /// is named there only by the extension for repaired streams (RFC 8852, 3.2).
    fn add(&self, header: &PacketHeader, again: bool) -> PacketHeader {
        let rid = self.rid.and_then(|(id, name)| match again {
            true => Some((self.repaired?, name)),
            false => Some((id, name)),
        });
        let mut named = *header;
        for (id, name) in self.mid.into_iter().chain(rid) {
            named = extension::add(&named, id, [name]).unwrap_or(named);
        }
        named
    }
}

impl Sealed {
    /// Adds the audio level to the header of a packet, if it has one.
    fn with_level(&self, header: PacketHeader) -> PacketHeader {
        let level = self.level.zip(self.media.level());
        let added = level.and_then(|(id, level)| extension::add(&header, id, [level]));
        added.unwrap_or(header)
    }

    /// Adds the names of the layer to a header.
    fn named(&self, header: PacketHeader, again: bool) -> PacketHeader {
        self.layer.map_or(header, |layer| layer.add(&header, again))
    }

    /// Returns the next packet that the server has requested again.
    fn next_again(&mut self, now: Time) -> Option<FlowPacket> {
        let again = self.again.as_mut()?;
        again.next_due().filter(|due| *due <= now)?;
        let (header, due, _) = again.next(now, &mut self.room)?;
        let by_itself = again.has_stream();
        let header = self.named(header, by_itself);
        let header = self.number(header, now);
        let (header, payload) = self.seal(&header)?;
        Some(FlowPacket {
            due,
            header,
            payload,
            tag: Tag(AGAIN),
        })
    }

    /// Adds the transport-wide sequence number to the header of the packet in `room`.
    fn number(&mut self, header: PacketHeader, now: Time) -> PacketHeader {
        let lengths = (self.room.len(), TRAILER_MAX);
        match &mut self.numbered {
            Some(numbered) => numbered.number(&header, lengths, now),
            None => header,
        }
    }

    /// Encrypts the packet in `room` and takes it out, with a ChannelData header before it if it
    /// goes through TURN. Returns `None` if encryption fails. The packet must not be sent then.
    fn seal(&mut self, header: &PacketHeader) -> Option<(PacketHeader, Bytes)> {
        let Some(sealer) = &mut self.sealer else {
            return Some((*header, self.room.split().freeze()));
        };
        let tag = sealer.seal_parts(header, &mut self.room);
        let Ok(tag) = tag else {
            self.room.clear();
            return None;
        };
        self.room.extend_from_slice(&tag);
        let Some(channel) = self.channel else {
            return Some((*header, self.room.split().freeze()));
        };
        let (head, padding) = channel.around(header.len() + self.room.len());
        self.room.extend_from_slice(padding);
        let payload = self.room.split().freeze();
        if head.len() + header.len() <= PacketHeader::ROOM {
            return Some((PacketHeader::EMPTY.with(&head).with(header), payload));
        }
        // A header with many extensions does not fit behind the channel header, so it goes into the
        // payload.
        let all = [&**header, &payload].concat();
        Some((PacketHeader::EMPTY.with(&head), all.into()))
    }
}

impl Flow for Sealed {
    fn next_due(&self) -> Option<Time> {
        let media = self.media.flow().next_due();
        // A stream that has ended sends no retransmissions.
        match self.again.as_ref().and_then(Again::next_due) {
            Some(again) => media.map(|media| media.min(again)),
            None => media,
        }
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        if let Some(packet) = self.next_again(now) {
            return Some(packet);
        }
        let mut packet = self.media.flow_mut().next_packet(now)?;
        packet.header = self.with_level(packet.header);
        if let Some(again) = &mut self.again {
            again.sent(&packet.header, &packet.payload);
        }
        if self.room.capacity() < packet.payload.len() + TRAILER_MAX {
            self.room
                .reserve(ROOM.max(packet.payload.len() + TRAILER_MAX));
        }
        self.room.extend_from_slice(&packet.payload);
        let header = self.named(packet.header, false);
        let header = self.number(header, now);
        match self.seal(&header) {
            Some((header, payload)) => Some(FlowPacket {
                header,
                payload,
                ..packet
            }),
            None => {
                self.media.flow_mut().left(packet.tag, None);
                None
            }
        }
    }

    fn left(&mut self, tag: Tag, left: Option<Handover>) {
        if tag.0 & AGAIN == 0 {
            self.media.flow_mut().left(tag, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_carry_the_repaired_rid_instead_of_the_rid() {
        let plain = PacketHeader::EMPTY.with(&[0x80, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7]);
        let names = |repaired| LayerNames {
            mid: Some((1, b'0')),
            rid: Some((2, b'h')),
            repaired,
        };
        let words = |names: LayerNames, again| {
            let header = names.add(&plain, again);
            header[16..].to_vec()
        };
        let mid = [0x10, b'0', 0, 0];
        let with = |id: u8, name| [mid, [id << 4, name, 0, 0]].concat();
        assert_eq!(words(names(None), false), with(2, b'h'));
        assert_eq!(words(names(Some(3)), true), with(3, b'h'));
        assert_eq!(words(names(None), true), mid);
    }
}
