//! Bounds beyond which the measurement is invalid.

use std::time::Duration;

use serde::Serialize;

use crate::link::LATENESS_P99_MAX;
#[cfg(doc)]
use crate::tester;
use crate::units::{Ratio, TimeSpan, duration};

/// Health bounds of the tester. Field names are the keys of `tester: {health: ...}` in a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HealthBounds {
    /// Maximum share of all packets lost in the tester's own ring and sockets, over the run.
    /// Default 1 in 100,000: a hundredth of the smallest loss (0.1 %) that users set thresholds on.
    pub overflow: f64,
    /// Maximum share of all packets lost in this machine's kernel before any socket
    /// ([`tester::SOFTNET_DROPS`]), over the run. Default 1 in 100,000, for the same reason as
    /// `overflow`. Drops count only up to the number of packets that the populations miss: the
    /// others did not belong to the run.
    pub kernel_drops: f64,
    /// Maximum 99th percentile of [`tester::LAG`] in a window. Default 100 ms. Arrival times come
    /// from the kernel and are not affected, but requests leave late by this much, and viewers
    /// begin to notice a start-up delay of a tenth of a second.
    #[serde(with = "duration")]
    pub lag_p99: Duration,
    /// Longest stall of a worker: maximum of [`tester::LAG`] over the run, however few windows it
    /// affects. Default 1 s: a longer stall misses keep-alives and responses, and overflows buffers
    /// of one second.
    #[serde(with = "duration")]
    pub longest_stall: Duration,
    /// Maximum 99th percentile of [`tester::FEEDBACK_DELAY`] in a window. Default 20 ms: with a
    /// longer delay, servers retransmit later than for a player, and packets that a player would
    /// receive in time count as lost.
    #[serde(with = "duration")]
    pub feedback_delay_p99: Duration,
    /// Maximum 99th percentile of [`tester::SEND_LATENESS`] in a window. Default 100 ms: with more
    /// lateness, the tester itself causes the jitter and delay that the other side measures.
    #[serde(with = "duration")]
    pub send_lateness_p99: Duration,
    /// Maximum 99th percentile of the lateness of packets leaving an emulated link
    /// ([`link::LATENESS`](crate::link::LATENESS)), per direction, over as many windows as it takes
    /// to collect 1,000 packets. Default 1 ms: with more lateness, clients see jitter that is not
    /// part of the link's configuration.
    #[serde(with = "duration")]
    pub link_lateness_p99: Duration,
    /// Maximum of [`tester::CPU_HOTTEST_WORKER`] in a window. Default 0.9 of a core: above it,
    /// waiting time grows faster than load.
    pub worker_cpu: f64,
    /// Maximum of [`tester::CPU_WAIT`] in a window: share of the time in which a worker was
    /// runnable but waited for a processor. Default 50 %: others then take half of the processor
    /// time that the worker asks for.
    pub cpu_wait: f64,
    /// Maximum of [`tester::STEAL`] in a window: share of this machine's processor time that its
    /// hypervisor gave to other machines. Default 80 %: the machine then has a fifth of its nominal
    /// capacity. The effects of a smaller share show in `lag_p99`; this bound names the cause.
    pub steal: f64,
    /// Maximum of [`tester::FILE_DESCRIPTORS_SHARE`] in any window. Default 95 %: the rest is
    /// reserved for the run file and for observing the server.
    pub file_descriptors: f64,
    /// Maximum of [`tester::PORTS_SHARE`] in any window. Default 95 %: a released port must stay
    /// unused for a while, or the last packets for its former client reach the next one.
    pub ports: f64,
    /// Maximum share of clients that start late, over the run. Default 5 %. Within a window, a
    /// single late client crosses the bound; but a burst of late starts at the beginning of a long
    /// run, when all clients start at once, affects few windows.
    pub late_clients: f64,
    /// Share of the windows in which a bound that is judged by windows may be crossed. Default 5 %:
    /// any machine takes a second for itself now and then. With four or more windows one is always
    /// forgiven, unless this is 0: in a short run 5 % is less than one window, and the bounds that
    /// are judged over the run detect the damage that a single window can do.
    pub windows: f64,
}

impl Default for HealthBounds {
    fn default() -> HealthBounds {
        HealthBounds {
            overflow: 1e-5,
            kernel_drops: 1e-5,
            lag_p99: Duration::from_millis(100),
            longest_stall: Duration::from_secs(1),
            feedback_delay_p99: Duration::from_millis(20),
            send_lateness_p99: Duration::from_millis(100),
            link_lateness_p99: Duration::from_secs_f64(LATENESS_P99_MAX),
            worker_cpu: 0.9,
            cpu_wait: 0.5,
            steal: 0.8,
            file_descriptors: 0.95,
            ports: 0.95,
            late_clients: 0.05,
            windows: 0.05,
        }
    }
}

impl HealthBounds {
    /// Returns the key and the formatted value of each bound, as a scenario writes them.
    pub fn entries(&self) -> [(&'static str, String); 14] {
        let time = |time: Duration| TimeSpan(time).to_string();
        let share = |share: f64| Ratio(share).to_string();
        [
            ("overflow", share(self.overflow)),
            ("kernel_drops", share(self.kernel_drops)),
            ("lag_p99", time(self.lag_p99)),
            ("longest_stall", time(self.longest_stall)),
            ("feedback_delay_p99", time(self.feedback_delay_p99)),
            ("send_lateness_p99", time(self.send_lateness_p99)),
            ("link_lateness_p99", time(self.link_lateness_p99)),
            ("worker_cpu", share(self.worker_cpu)),
            ("cpu_wait", share(self.cpu_wait)),
            ("steal", share(self.steal)),
            ("file_descriptors", share(self.file_descriptors)),
            ("ports", share(self.ports)),
            ("late_clients", share(self.late_clients)),
            ("windows", share(self.windows)),
        ]
    }
}
