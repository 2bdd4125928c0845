//! The bounds past which the tester does not trust itself.

use std::time::Duration;

use serde::Serialize;

use crate::link::LATENESS_P99_MAX;
#[cfg(doc)]
use crate::tester;
use crate::units::{Ratio, TimeSpan, duration};

/// Within which bounds the tester trusts itself. Its fields are the keys of `tester: {health: ...}`
/// of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HealthBounds {
    /// The share of all packets that may be lost in the tester's own ring and sockets, over the
    /// run. Default 1 in 100,000: a hundredth of the smallest loss (0.1 %) that people set
    /// thresholds on.
    pub overflow: f64,
    /// The share of all packets that may be lost in this machine's kernel before any socket
    /// ([`tester::SOFTNET_DROPS`]), over the run. Default 1 in 100,000, for the same reason. Drops
    /// count only as far as packets of the populations are missing: those of others are no business
    /// of the run.
    pub kernel_drops: f64,
    /// The 99th percentile of [`tester::LAG`] in a window. Default 100 ms. Arrival times are the
    /// kernel's and do not suffer from it, but requests leave late by as much, and a tenth of a
    /// second is what a viewer begins to notice at start-up.
    #[serde(with = "duration")]
    pub lag_p99: Duration,
    /// The longest stand-still of a worker: the largest [`tester::LAG`] of the run, in however few
    /// windows. Default 1 s: within it keep-alives and answers are missed, and buffers of a second
    /// overflow.
    #[serde(with = "duration")]
    pub longest_stall: Duration,
    /// The 99th percentile of [`tester::FEEDBACK_DELAY`] in a window. Default 20 ms: with more,
    /// servers retransmit later than for a player, and packets that a player gets in time count as
    /// lost.
    #[serde(with = "duration")]
    pub feedback_delay_p99: Duration,
    /// The 99th percentile of [`tester::SEND_LATENESS`] in a window. Default 100 ms: with more,
    /// what the other side sees as jitter and delay is made here.
    #[serde(with = "duration")]
    pub send_lateness_p99: Duration,
    /// The 99th percentile of how late packets left an emulated link
    /// ([`link::LATENESS`](crate::link::LATENESS)), of either direction in the windows that it
    /// takes for a thousand packets. Default 1 ms: with more, clients see jitter that nobody asked
    /// for.
    #[serde(with = "duration")]
    pub link_lateness_p99: Duration,
    /// [`tester::CPU_HOTTEST_WORKER`] in a window. Default 0.9 of a core: above it waiting grows
    /// faster than load.
    pub worker_cpu: f64,
    /// [`tester::CPU_WAIT`] in a window: the share of the time in which a worker could have run and
    /// was not let. Default 50 %: then others have taken half of what it asked for.
    pub cpu_wait: f64,
    /// [`tester::STEAL`] in a window: the share of this machine's processor time that its
    /// hypervisor gave to others. Default 80 %: then the machine is a fifth of the one that its
    /// number of cores says. What less of it spoils shows in `lag_p99`; this names the cause.
    pub steal: f64,
    /// [`tester::FILE_DESCRIPTORS_SHARE`] in any window. Default 95 %: what is left is for the run
    /// file and the server's observation.
    pub file_descriptors: f64,
    /// [`tester::PORTS_SHARE`] in any window. Default 95 %: ports that became free must rest before
    /// they are used again, or the last packets to an earlier client reach a later one.
    pub ports: f64,
    /// The share of all clients that may set to work late, over the run. Default 5 %. In a window,
    /// one late client crosses the bound; but a burst at the beginning of a long run, when all
    /// begin at once, touches few windows.
    pub late_clients: f64,
    /// The share of the windows in which a bound that is judged by windows may be crossed. Default
    /// 5 %: a second now and then is what any machine takes for itself. Of four windows and more
    /// one is always forgiven, unless this is 0: in a short run 5 % is less than one window, and
    /// what a single one can spoil is found by the bounds that are judged over the run.
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
    /// Each bound as a scenario writes it: its key, and its value.
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
