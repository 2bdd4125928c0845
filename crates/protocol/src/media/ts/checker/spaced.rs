//! Packets with something between them: a time stamp before each (192 bytes), or parity behind each
//! (204 bytes). What stands between is passed over.

use measure::{Recorder, Time};

use super::{Checker, PACKET, SYNC};

impl Checker {
    /// Takes bytes in, of which `time` tells when those up to a place came. Gives what is left when
    /// a packet does not begin where it should: sync is lost then.
    #[cold]
    pub(super) fn spaced<'a>(
        &mut self,
        bytes: &'a [u8],
        time: &mut dyn FnMut(usize) -> (Time, bool),
        recorder: &mut Recorder,
    ) -> &'a [u8] {
        let between = self.stride() - PACKET;
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
            let taken = (PACKET - self.held.len()).min(rest.len());
            self.held.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            if let Ok(packet) = <&[u8; PACKET]>::try_from(&self.held[..]) {
                let packet = *packet;
                self.held.clear();
                self.packet(&packet, time(bytes.len() - rest.len()), recorder);
                self.skip = between;
            }
        }
    }
}
