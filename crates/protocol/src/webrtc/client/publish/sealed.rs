//! Streams that are encrypted where they leave.

use bytes::{Bytes, BytesMut};
use measure::Time;

use super::media::Media;
use crate::session::{Flow, FlowPacket, Handover, PacketHeader, Tag};
use crate::webrtc::again::Again;
use crate::webrtc::client::congestion::Numbered;
use crate::webrtc::extension;
use crate::webrtc::srtp::RtpSealer;
use crate::webrtc::turn::RelayChannel;

/// How much memory encrypted packets are made in at a time.
const ROOM: usize = 32 * 1024;

/// The most bytes that encrypting adds to a packet.
const TRAILER_MAX: usize = 16;

/// What is set in the tag of a packet that is sent again.
const AGAIN: u64 = 1 << 63;

/// A stream whose packets are encrypted when they are due, where they are sent from.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) media: Media,
    /// Of this stream alone, and of what is sent again of it. None where it is fed to a server in
    /// plain RTP.
    pub(super) sealer: Option<RtpSealer>,
    /// Used again when all packets in it have left.
    pub(super) room: BytesMut,
    /// What the server asks for, where that was agreed upon.
    pub(super) again: Option<Again>,
    /// What numbers packets of the transport, where the server tells of them.
    pub(super) numbered: Option<Numbered>,
    /// By which channel of a TURN server they leave, where they go through one.
    pub(super) channel: Option<RelayChannel>,
    /// The number of the header extension that tells the audio level.
    pub(super) level: Option<u8>,
    /// By what the layer of a simulcast is known.
    pub(super) layer: Option<LayerNames>,
}

/// By what a packet of a layer is known: its source is in no description (RFC 8853, 5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LayerNames {
    /// The section, with the number of its header extension (RFC 9143, 15).
    pub(super) mid: Option<(u8, u8)>,
    /// The layer, with that number (RFC 8852), and the number for retransmissions. None of the one
    /// that is sent where no simulcast is taken: its source is in no description either.
    pub(super) rid: Option<(u8, u8)>,
    pub(super) repaired: Option<u8>,
}

impl LayerNames {
    /// The header with them. `again`: it is of the stream of retransmissions, which bears no name
    /// of a layer but by the extension that is for it (RFC 8852, 3.2).
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
    /// The header of a packet that media hands out, with its audio level where it has one.
    fn with_level(&self, header: PacketHeader) -> PacketHeader {
        let level = self.level.zip(self.media.level());
        let added = level.and_then(|(id, level)| extension::add(&header, id, [level]));
        added.unwrap_or(header)
    }

    /// The header with the names of its layer.
    fn named(&self, header: PacketHeader, again: bool) -> PacketHeader {
        self.layer.map_or(header, |layer| layer.add(&header, again))
    }

    /// A packet that the server asked for.
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

    /// The header of what is in the room, with the number of the transport where it has one.
    fn number(&mut self, header: PacketHeader, now: Time) -> PacketHeader {
        let lengths = (self.room.len(), TRAILER_MAX);
        match &mut self.numbered {
            Some(numbered) => numbered.number(&header, lengths, now),
            None => header,
        }
    }

    /// Encrypts what is in the room, and takes it out, with what is before it. None where it cannot
    /// be encrypted: it must not leave then.
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
        // A header with many extensions: it goes where there is room for it.
        let all = [&**header, &payload].concat();
        Some((PacketHeader::EMPTY.with(&head), all.into()))
    }
}

impl Flow for Sealed {
    fn next_due(&self) -> Option<Time> {
        let media = self.media.flow().next_due();
        // A stream that has ended sends nothing again.
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
    fn what_is_sent_again_bears_no_name_of_a_layer_but_its_own() {
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
