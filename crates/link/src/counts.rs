//! What a link did.

use std::time::Duration;

/// What one direction of a link did: the truth that measurements are held against. Packets that
/// came are those that were lost, that were delivered, and that are still in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that came.
    pub packets: u64,
    /// Bytes in them, IP headers included.
    pub bytes: u64,
    /// Lost in outages.
    pub lost_in_outages: u64,
    /// Lost because they were longer than the MTU.
    pub lost_too_long: u64,
    /// Lost by chance, or by a list.
    pub lost_by_chance: u64,
    /// Lost because the queue was full.
    pub lost_queue_full: u64,
    /// Lost because the queue stood too long (CoDel).
    pub lost_by_codel: u64,
    /// First copies that left it.
    pub delivered: u64,
    /// Bytes in them.
    pub delivered_bytes: u64,
    /// Second copies that left it.
    pub duplicated: u64,
    /// First copies that left it after one that had come later.
    pub reordered: u64,
    /// First copies that left it with a wrong bit.
    pub corrupted: u64,
    /// The most bytes that waited at once.
    pub queue_bytes_max: u64,
    /// The longest that a packet waited before it was sent.
    pub waited_max: Duration,
}

impl Counts {
    /// All that were lost.
    pub fn lost(&self) -> u64 {
        self.lost_in_outages
            + self.lost_too_long
            + self.lost_by_chance
            + self.lost_queue_full
            + self.lost_by_codel
    }
}
