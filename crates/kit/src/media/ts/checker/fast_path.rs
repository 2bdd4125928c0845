//! Fast path that nearly all packets take. Its figures are the same as those of the general path,
//! which the tests verify.
//!
//! * A datagram of our own source that is complete in the read is handled at once: its check is
//!   computed over adjacent bytes.
//! * A packet with payload only, within a unit, that continues the counter of its PID needs no
//!   further inspection, except before the first random-access point.

use measure::Recorder;

use super::{ArrivalTimes, PACKET_LEN, PAT_PID, Time, TsChecker};
use crate::mediagen::ts::packet::{NULL_PID, SYNC};
use crate::mediagen::ts::stamp::{STAMP_PID, Stamp};

/// Bits in the first four bytes that show an undamaged packet with payload only (ISO/IEC 13818-1,
/// 2.4.3.2).
pub(super) const PLAIN_MASK: u32 = 0xff80_0030;
pub(super) const PLAIN: u32 = (SYNC as u32) << 24 | 0x10;
pub(super) const UNIT_START: u32 = 0x0040_0000;
pub(super) const ADAPTATION: u32 = 0x20;
pub(super) const PID_MASK: u32 = 0x001f_ff00;
pub(super) const COUNTER_MASK: u32 = 0x0f;

#[inline]
pub(super) fn first_word(packet: &[u8; PACKET_LEN]) -> u32 {
    let [a, b, c, d, ..] = *packet;
    u32::from_be_bytes([a, b, c, d])
}

#[inline]
fn pid_of(word: u32) -> u16 {
    ((word & PID_MASK) >> 8) as u16
}

/// True if the packet has the PID of stamps.
#[inline]
fn may_be_stamp(packet: &[u8; PACKET_LEN]) -> bool {
    pid_of(first_word(packet)) == STAMP_PID
}

impl TsChecker {
    /// Handles the datagram with which `bytes` begin, if it belongs to the stream and is complete.
    /// The bytes begin at offset `start` of a read. Returns the remaining bytes, or `None` if the
    /// packets are to be handled one by one.
    #[inline]
    pub(super) fn take_datagram<'a>(
        &mut self,
        bytes: &'a [u8],
        start: usize,
        times: &mut ArrivalTimes<'_>,
        recorder: &mut Recorder,
    ) -> Option<&'a [u8]> {
        let datagrams = self.datagrams.as_deref()?;
        let (first, rest) = bytes.split_first_chunk::<PACKET_LEN>()?;
        let stamp = Stamp::read(first).filter(|stamp| datagrams.can_take_whole(stamp))?;
        let length = usize::from(stamp.packets.checked_sub(1)?) * PACKET_LEN;
        let (body, after) = rest.split_at_checked(length)?;
        let packets = body.as_chunks::<PACKET_LEN>().0;
        let belongs = |packet: &[u8; PACKET_LEN]| packet[0] == SYNC && !may_be_stamp(packet);
        if !packets.iter().all(belongs) {
            return None;
        }
        let whole = libdeflater::crc32(body) == stamp.check;
        let mut end = start + PACKET_LEN;
        let mut at = self.count_packet(times.arrival_of(end));
        for packet in packets {
            end += PACKET_LEN;
            at = self.count_packet(times.arrival_of(end));
            self.contents(packet, at, recorder);
        }
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.finish_datagram(&stamp, whole, at, recorder);
        }
        Some(after)
    }

    /// Handles the contents of a packet of this stream.
    #[inline]
    pub(super) fn contents(
        &mut self,
        packet: &[u8; PACKET_LEN],
        at: Time,
        recorder: &mut Recorder,
    ) {
        let word = first_word(packet);
        if word & PLAIN_MASK == PLAIN && !self.takes_general_path() {
            let pid = pid_of(word);
            if pid == NULL_PID {
                self.null_packets += 1;
                return;
            }
            let is_table = pid == PAT_PID || self.tables.is_map(pid);
            let is_looked_at = word & UNIT_START != 0
                || self.random_access.is_none()
                    && self.tables.entry.is_some_and(|own| own.0 == pid);
            if !is_table && !is_looked_at && self.pids.continues(pid, (word & COUNTER_MASK) as u8) {
                self.coded_pictures.packet(pid, at);
                return;
            }
        }
        self.inspect(packet, at, recorder);
    }

    #[inline]
    pub(super) fn takes_general_path(&self) -> bool {
        #[cfg(test)]
        return self.general_path_only;
        #[cfg(not(test))]
        false
    }
}
