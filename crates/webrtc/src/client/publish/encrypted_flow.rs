//! Streams that are encrypted when they are sent.

use bytes::{Bytes, BytesMut};
use measure::Time;

use super::media::StreamMedia;
use crate::client::congestion::NumberedStream;
use crate::extension;
use crate::retransmitter::Retransmitter;
use crate::srtp::RtpSealer;
use crate::turn::RelayChannel;
use session::{Flow, FlowPacket, Handover, PacketHeader, Tag};

/// Size of the buffers in which packets are encrypted, in bytes.
const BUFFER_BYTES: usize = 32 * 1024;

/// Maximum number of bytes that encryption adds to a packet.
const TRAILER_MAX: usize = 16;

/// Bit in the tag of a retransmission.
const RETRANSMISSION_TAG: u64 = 1 << 63;

/// Stream whose packets are encrypted when they are due, on the thread that sends them.
#[derive(Debug)]
pub(super) struct EncryptedFlow {
    pub(super) media: StreamMedia,
    /// Encrypts this stream and its retransmissions. `None` for plain RTP.
    pub(super) sealer: Option<RtpSealer>,
    /// Buffer of packets. It is reused when all packets in it were sent.
    pub(super) buffer: BytesMut,
    /// Retransmissions, if NACK was negotiated.
    pub(super) retransmissions: Option<Retransmitter>,
    /// Transport-wide sequence numbers, if the server sends feedback for them.
    pub(super) numbering: Option<NumberedStream>,
    /// TURN channel over which packets are sent, if any.
    pub(super) channel: Option<RelayChannel>,
    /// Id of the header extension for the audio level.
    pub(super) audio_level_id: Option<u8>,
    /// Header extensions that identify the layer of a simulcast.
    pub(super) layer_extensions: Option<LayerExtensions>,
}

/// Header extensions that identify a layer. Its SSRC is in no description (RFC 8853, 5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LayerExtensions {
    /// Id of the extension, and MID of the section (RFC 9143, 15).
    pub(super) mid: Option<(u8, u8)>,
    /// Id of the extension, and RID of the layer (RFC 8852). `None` for the only stream of a
    /// refused simulcast: its SSRC is in no description either.
    pub(super) rid: Option<(u8, u8)>,
    /// Id of the extension for the RID in retransmissions.
    pub(super) repaired_rid: Option<u8>,
}

impl LayerExtensions {
    /// Adds the extensions to a header. `is_rtx` is true in the RTX stream. The layer is named
    /// there only by the extension for repaired streams (RFC 8852, 3.2).
    fn add(&self, header: &PacketHeader, is_rtx: bool) -> PacketHeader {
        let rid = self.rid.and_then(|(id, name)| match is_rtx {
            true => Some((self.repaired_rid?, name)),
            false => Some((id, name)),
        });
        let mut extended = *header;
        for (id, name) in self.mid.into_iter().chain(rid) {
            extended = extension::add_element(&extended, id, [name]).unwrap_or(extended);
        }
        extended
    }
}

impl EncryptedFlow {
    /// Adds the audio level to the header of a packet, if it has one.
    fn with_level(&self, header: PacketHeader) -> PacketHeader {
        let level = self.audio_level_id.zip(self.media.audio_level());
        let added = level.and_then(|(id, level)| extension::add_element(&header, id, [level]));
        added.unwrap_or(header)
    }

    /// Adds the extensions of the layer to a header.
    fn with_layer(&self, header: PacketHeader, is_rtx: bool) -> PacketHeader {
        self.layer_extensions
            .map_or(header, |layer| layer.add(&header, is_rtx))
    }

    /// Returns the next requested retransmission, encrypted, if it is due.
    fn next_retransmission(&mut self, now: Time) -> Option<FlowPacket> {
        let retransmissions = self.retransmissions.as_mut()?;
        retransmissions.next_due().filter(|due| *due <= now)?;
        let (header, due, _) = retransmissions.next_retransmission(now, &mut self.buffer)?;
        let is_rtx = retransmissions.has_rtx_stream();
        let header = self.with_layer(header, is_rtx);
        let header = self.with_number(header, now);
        let (header, payload) = self.encrypt(&header)?;
        Some(FlowPacket {
            due,
            header,
            payload,
            tag: Tag(RETRANSMISSION_TAG),
        })
    }

    /// Adds the transport-wide sequence number to the header of the packet in `buffer`.
    fn with_number(&mut self, header: PacketHeader, now: Time) -> PacketHeader {
        let payload = self.buffer.len();
        match &mut self.numbering {
            Some(numbered) => numbered.add_number(&header, payload, TRAILER_MAX, now),
            None => header,
        }
    }

    /// Encrypts the packet in `buffer` and takes it out, with a ChannelData header before it if it
    /// goes through TURN. Returns `None` if encryption fails. The packet must not be sent then.
    fn encrypt(&mut self, header: &PacketHeader) -> Option<(PacketHeader, Bytes)> {
        let Some(sealer) = &mut self.sealer else {
            return Some((*header, self.buffer.split().freeze()));
        };
        let tag = sealer.seal_parts(header, &mut self.buffer);
        let Ok(tag) = tag else {
            self.buffer.clear();
            return None;
        };
        self.buffer.extend_from_slice(&tag);
        let Some(channel) = self.channel else {
            return Some((*header, self.buffer.split().freeze()));
        };
        let (head, padding) = channel.header_and_padding(header.len() + self.buffer.len());
        self.buffer.extend_from_slice(padding);
        let payload = self.buffer.split().freeze();
        if head.len() + header.len() <= PacketHeader::CAPACITY {
            return Some((PacketHeader::EMPTY.append(&head).append(header), payload));
        }
        // A header with many extensions does not fit behind the channel header, so it goes into the
        // payload.
        let all = [&**header, &payload].concat();
        Some((PacketHeader::EMPTY.append(&head), all.into()))
    }
}

impl Flow for EncryptedFlow {
    fn next_due(&self) -> Option<Time> {
        let media = self.media.flow().next_due();
        // A stream that has ended sends no retransmissions.
        match self
            .retransmissions
            .as_ref()
            .and_then(Retransmitter::next_due)
        {
            Some(retransmission) => media.map(|media| media.min(retransmission)),
            None => media,
        }
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        if let Some(packet) = self.next_retransmission(now) {
            return Some(packet);
        }
        let mut packet = self.media.flow_mut().next_packet(now)?;
        packet.header = self.with_level(packet.header);
        if let Some(retransmissions) = &mut self.retransmissions {
            retransmissions.store(&packet.header, &packet.payload);
        }
        if self.buffer.capacity() < packet.payload.len() + TRAILER_MAX {
            self.buffer
                .reserve(BUFFER_BYTES.max(packet.payload.len() + TRAILER_MAX));
        }
        self.buffer.extend_from_slice(&packet.payload);
        let header = self.with_layer(packet.header, false);
        let header = self.with_number(header, now);
        match self.encrypt(&header) {
            Some((header, payload)) => Some(FlowPacket {
                header,
                payload,
                ..packet
            }),
            None => {
                self.media.flow_mut().packet_sent(packet.tag, None);
                None
            }
        }
    }

    fn packet_sent(&mut self, tag: Tag, left: Option<Handover>) {
        if tag.0 & RETRANSMISSION_TAG == 0 {
            self.media.flow_mut().packet_sent(tag, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_carry_the_repaired_rid_instead_of_the_rid() {
        let plain = PacketHeader::EMPTY.append(&[0x80, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7]);
        let names = |repaired| LayerExtensions {
            mid: Some((1, b'0')),
            rid: Some((2, b'h')),
            repaired_rid: repaired,
        };
        let words = |names: LayerExtensions, is_rtx| {
            let header = names.add(&plain, is_rtx);
            header[16..].to_vec()
        };
        let mid = [0x10, b'0', 0, 0];
        let with = |id: u8, name| [mid, [id << 4, name, 0, 0]].concat();
        assert_eq!(words(names(None), false), with(2, b'h'));
        assert_eq!(words(names(Some(3)), true), with(3, b'h'));
        assert_eq!(words(names(None), true), mid);
    }
}
