//! Facts about the machine that this process runs on.

use crate::orders::MachineFacts;

/// Describes this machine. Unknown values are empty or 0.
pub(crate) fn facts() -> MachineFacts {
    let read = |path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().to_owned()
    };
    MachineFacts {
        host: read("/proc/sys/kernel/hostname"),
        boot: read("/proc/sys/kernel/random/boot_id"),
        kernel: read("/proc/sys/kernel/osrelease"),
        cores: u32::try_from(net::thread::processors_without_affinity()).unwrap_or(u32::MAX),
    }
}
