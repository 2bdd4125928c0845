//! Counts of a link.

use std::time::Duration;

/// Ground truth of one direction of a link, against which measurements are checked. Packets that
/// arrived were lost, were delivered, or are still in the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that arrived at the link.
    pub packets: u64,
    /// Bytes of these packets, IP headers included.
    pub bytes: u64,
    /// Packets lost in outages.
    pub lost_in_outages: u64,
    /// Packets lost because they were longer than the MTU.
    pub lost_too_long: u64,
    /// Packets lost by chance or by a list.
    pub lost_by_chance: u64,
    /// Packets lost because the queue was full.
    pub lost_queue_full: u64,
    /// Packets dropped by CoDel because the queue stood too long.
    pub lost_by_codel: u64,
    /// First copies that left the link.
    pub delivered: u64,
    /// Bytes of these packets.
    pub delivered_bytes: u64,
    /// Second copies that left the link.
    pub duplicated: u64,
    /// First copies that left the link after one that was sent later.
    pub reordered: u64,
    /// First copies that left the link with a wrong bit.
    pub corrupted: u64,
    /// Maximum number of queued bytes.
    pub queue_bytes_max: u64,
    /// Maximum time that a packet waited in the queue.
    pub waited_max: Duration,
}

impl Counts {
    /// Packets lost in total.
    pub fn lost(&self) -> u64 {
        self.lost_in_outages
            + self.lost_too_long
            + self.lost_by_chance
            + self.lost_queue_full
            + self.lost_by_codel
    }
}
