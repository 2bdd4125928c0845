//! Blocks of a capture file: pcapng (draft-ietf-opsawg-pcapng), packets that begin with the IP
//! header, times in nanoseconds.

use measure::Time;

/// Packets begin with an IPv4 or IPv6 header (LINKTYPE_RAW).
const LINK_RAW: u16 = 101;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// Option codes, prefixed with their block.
const COMMENT: u16 = 1;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
const STATISTICS_RECEIVED: u16 = 4;
const STATISTICS_DROPPED: u16 = 5;
const PACKET_FLAGS: u16 = 2;

/// Buffer of encoded blocks.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Complete blocks only.
    pub(super) bytes: Vec<u8>,
    /// Real time of the start of the run, in nanoseconds since 1970.
    started_at: i64,
}

impl Blocks {
    /// Empty buffer for a run that began at `started_at`.
    pub(super) fn new(started_at: i64) -> Blocks {
        Blocks {
            bytes: Vec::new(),
            started_at,
        }
    }

    /// Writes the section header and the interface description.
    pub(super) fn begin(&mut self, program: &str, client: &str, comment: &str) {
        self.block(SECTION, |bytes| {
            bytes.extend(0x1a2b_3c4d_u32.to_le_bytes());
            bytes.extend(1_u16.to_le_bytes());
            bytes.extend(0_u16.to_le_bytes());
            // The section length is unspecified: it extends to the end of the file.
            bytes.extend((-1_i64).to_le_bytes());
            option(bytes, COMMENT, comment.as_bytes());
            option(bytes, SECTION_APPLICATION, program.as_bytes());
            end_of_options(bytes);
        });
        self.block(INTERFACE, |bytes| {
            bytes.extend(LINK_RAW.to_le_bytes());
            bytes.extend([0; 2]);
            // No snapshot length: packets are captured whole.
            bytes.extend(0_u32.to_le_bytes());
            option(bytes, INTERFACE_NAME, client.as_bytes());
            option(bytes, INTERFACE_RESOLUTION, &[9]);
            end_of_options(bytes);
        });
    }

    /// Writes a packet. `headers` and `payload` are its captured part, `length` is its real length.
    pub(super) fn packet(
        &mut self,
        at: Time,
        inbound: bool,
        headers: &[u8],
        payload: &[u8],
        length: usize,
    ) {
        let [high, low] = self.timestamp(at);
        self.block(PACKET, |bytes| {
            bytes.extend(0_u32.to_le_bytes());
            bytes.extend(high.to_le_bytes());
            bytes.extend(low.to_le_bytes());
            for length in [headers.len() + payload.len(), length] {
                bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
            }
            bytes.extend(headers);
            bytes.extend(payload);
            pad(bytes, headers.len() + payload.len());
            let direction: u32 = if inbound { 1 } else { 2 };
            option(bytes, PACKET_FLAGS, &direction.to_le_bytes());
            end_of_options(bytes);
        });
    }

    /// Writes the statistics block at the end of the file: packets in total, and those left out.
    pub(super) fn end(&mut self, at: Time, packets: u64, left_out: u64, comment: &str) {
        let [high, low] = self.timestamp(at);
        self.block(STATISTICS, |bytes| {
            bytes.extend(0_u32.to_le_bytes());
            bytes.extend(high.to_le_bytes());
            bytes.extend(low.to_le_bytes());
            option(bytes, COMMENT, comment.as_bytes());
            option(bytes, STATISTICS_RECEIVED, &packets.to_le_bytes());
            option(bytes, STATISTICS_DROPPED, &left_out.to_le_bytes());
            end_of_options(bytes);
        });
    }

    /// Real time as the upper and lower half of the nanoseconds since 1970.
    fn timestamp(&self, at: Time) -> [u32; 2] {
        let run = i64::try_from(at.as_nanos()).unwrap_or(i64::MAX);
        let nanos = u64::try_from(self.started_at.saturating_add(run)).unwrap_or(0);
        [(nanos >> 32) as u32, nanos as u32]
    }

    fn block(&mut self, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
        let begins = self.bytes.len();
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend([0; 4]);
        body(&mut self.bytes);
        let length = u32::try_from(self.bytes.len() - begins + 4).unwrap_or(u32::MAX);
        self.bytes.extend(length.to_le_bytes());
        self.bytes[begins + 4..begins + 8].copy_from_slice(&length.to_le_bytes());
    }
}

fn option(bytes: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    bytes.extend(code.to_le_bytes());
    bytes.extend((value.len() as u16).to_le_bytes());
    bytes.extend(value);
    pad(bytes, value.len());
}

fn end_of_options(bytes: &mut Vec<u8>) {
    bytes.extend([0; 4]);
}

/// Pads to a multiple of four bytes.
fn pad(bytes: &mut Vec<u8>, length: usize) {
    bytes.extend(&[0; 3][..length.next_multiple_of(4) - length]);
}
