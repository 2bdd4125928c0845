//! Packets with other bytes in between: a timestamp before each (192 bytes), or parity after each
//! (204 bytes). These bytes are skipped.

use measure::{Recorder, Time};

use super::{PACKET_LEN, SYNC, TsChecker};

impl TsChecker {
    /// Handles bytes; `time` returns the arrival time of the bytes up to an offset. Returns the
    /// remaining bytes if a packet does not begin where it should: sync is then lost.
    #[cold]
    pub(super) fn feed_strided<'a>(
        &mut self,
        bytes: &'a [u8],
        time: &mut dyn FnMut(usize) -> (Time, bool),
        recorder: &mut Recorder,
    ) -> &'a [u8] {
        let between = self.stride() - PACKET_LEN;
        let mut rest = bytes;
        loop {
            let skipped = self.skip.min(rest.len());
            self.skip -= skipped;
            rest = &rest[skipped..];
            match rest.first() {
                None => return rest,
                Some(&first) if self.held.is_empty() && first != SYNC => {
                    self.lose_sync();
                    return rest;
                }
                Some(_) => {}
            }
            let taken = (PACKET_LEN - self.held.len()).min(rest.len());
            self.held.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            if let Ok(packet) = <&[u8; PACKET_LEN]>::try_from(&self.held[..]) {
                let packet = *packet;
                self.held.clear();
                self.packet(&packet, time(bytes.len() - rest.len()), recorder);
                self.skip = between;
            }
        }
    }
}
