//! What is held against each bound, and what to do where it is crossed.

use crate::health::HealthBounds;
use crate::metric::Statistic;
use crate::metric::Unit;
use crate::tester;
use crate::totals::Totals;

/// How a bound is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// It may be crossed in a share of the windows.
    ByWindows,
    /// It may be crossed in none.
    Once,
    /// Over the whole run.
    OverTheRun,
}

/// What is held against a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Check {
    Overflow,
    KernelDrops,
    LongestStall,
    SocketsRefused,
    FileDescriptors,
    Ports,
    Lag,
    WorkerCpu,
    CpuWait,
    Steal,
    FeedbackDelay,
    SendLateness,
    LinkOverload,
    LinkLateness,
    LateStarts,
    LateClients,
}

const MORE_PROCESSOR: &str =
    "give the tester more or faster cores, or a machine of its own, or run fewer clients";

impl Check {
    /// In the order in which reasons are given: what spoils figures before what may spoil them.
    pub(super) const ALL: [Check; 16] = [
        Check::Overflow,
        Check::KernelDrops,
        Check::LongestStall,
        Check::SocketsRefused,
        Check::LinkOverload,
        Check::FileDescriptors,
        Check::Ports,
        Check::Lag,
        Check::WorkerCpu,
        Check::CpuWait,
        Check::Steal,
        Check::FeedbackDelay,
        Check::SendLateness,
        Check::LinkLateness,
        Check::LateStarts,
        Check::LateClients,
    ];

    pub(super) fn judged(self) -> Judged {
        match self {
            Check::Overflow | Check::KernelDrops | Check::LateClients => Judged::OverTheRun,
            Check::LongestStall
            | Check::SocketsRefused
            | Check::LinkOverload
            | Check::FileDescriptors
            | Check::Ports => Judged::Once,
            Check::Lag
            | Check::WorkerCpu
            | Check::CpuWait
            | Check::Steal
            | Check::FeedbackDelay
            | Check::SendLateness
            | Check::LinkLateness
            | Check::LateStarts => Judged::ByWindows,
        }
    }

    /// The key of its bound in a scenario; where it has none, its metric's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Check::Overflow => "overflow",
            Check::KernelDrops => "kernel_drops",
            Check::LongestStall => "longest_stall",
            Check::SocketsRefused => "sockets_refused",
            Check::FileDescriptors => "file_descriptors",
            Check::Ports => "ports",
            Check::Lag => "lag_p99",
            Check::WorkerCpu => "worker_cpu",
            Check::CpuWait => "cpu_wait",
            Check::Steal => "steal",
            Check::FeedbackDelay => "feedback_delay_p99",
            Check::SendLateness => "send_lateness_p99",
            Check::LinkOverload => "link_overload",
            Check::LinkLateness => "link_lateness_p99",
            Check::LateStarts => "not_started_in_time",
            Check::LateClients => "late_clients",
        }
    }

    /// The figure that is held against the bound, as a threshold would name it.
    pub(super) fn metric(self) -> &'static str {
        match self {
            Check::Overflow => "tester.overflow",
            Check::KernelDrops => "tester.softnet_drops",
            Check::LongestStall => "tester.lag.max",
            Check::SocketsRefused => "tester.sockets_refused",
            Check::FileDescriptors => "tester.file_descriptors_share",
            Check::Ports => "tester.ports_share",
            Check::Lag => "tester.lag.p99",
            Check::WorkerCpu => "tester.cpu_hottest_worker",
            Check::CpuWait => "tester.cpu_wait",
            Check::Steal => "tester.steal",
            Check::FeedbackDelay => "tester.feedback_delay.p99",
            Check::SendLateness => "tester.send_lateness.p99",
            Check::LinkOverload => "link.overload",
            Check::LinkLateness => "link.lateness.p99",
            Check::LateStarts | Check::LateClients => "tester.not_started_in_time",
        }
    }

    /// The figure in words.
    pub(super) fn what(self) -> &'static str {
        match self {
            Check::Overflow => "the share of packets lost in the tester's own queues",
            Check::KernelDrops => "the share of packets lost in this machine's kernel",
            Check::LongestStall => "the longest stand-still of a worker",
            Check::SocketsRefused => "the number of sockets that could not be opened",
            Check::FileDescriptors => "the share of the file descriptors in use",
            Check::Ports => "the share of the UDP ports in use",
            Check::Lag => "the event loop's lag",
            Check::WorkerCpu => "the busiest worker's processor time",
            Check::CpuWait => "the share of the time that a worker waited for a processor",
            Check::Steal => "the share of processor time that the hypervisor gave to others",
            Check::FeedbackDelay => "the delay of the clients' feedback",
            Check::SendLateness => "the lateness of what was sent",
            Check::LinkOverload => {
                "the number of packets that the emulated link dropped by its own fault"
            }
            Check::LinkLateness => "the lateness of what left the emulated link",
            Check::LateStarts => "the number of clients that began more than 1 s late",
            Check::LateClients => "the share of clients that began more than 1 s late",
        }
    }

    pub(super) fn advice(self) -> &'static str {
        match self {
            Check::Overflow => {
                "let the tester use its packet ring (CAP_NET_RAW), raise tester.ring, or of sockets \
                 tester.receive_buffer and net.core.rmem_max, give it more cores, or run fewer clients"
            }
            Check::KernelDrops => {
                "raise net.core.netdev_max_backlog, spread the card's interrupts over more cores, \
                 give the tester a machine of its own, or run fewer clients"
            }
            Check::LongestStall => {
                "see what stopped the tester (a signal, a debugger, a suspended or overloaded \
                 machine), and give it more cores or a machine of its own"
            }
            Check::SocketsRefused | Check::FileDescriptors => {
                "raise the limit of open files (`ulimit -n`), use more workers or source addresses, or run fewer clients"
            }
            Check::Ports => "run fewer clients over UDP, or several runs from several machines",
            Check::Lag | Check::WorkerCpu | Check::FeedbackDelay => MORE_PROCESSOR,
            Check::CpuWait => {
                "stop what else runs on this machine, or let the tester go first (tester.priority: raised), \
                 or give it cores of its own (taskset), or a machine of its own"
            }
            Check::Steal => "use a machine whose processors are not shared with others",
            Check::SendLateness => {
                "give the tester more or faster cores, or a machine of its own, or send fewer streams"
            }
            Check::LinkOverload => {
                "give the tester more or faster cores, or a machine of its own, or send less over the link"
            }
            Check::LinkLateness => {
                "let the link's thread go before others (CAP_SYS_NICE), give it a core that nobody else \
                 uses, or send less over the link"
            }
            Check::LateStarts | Check::LateClients => {
                "start the clients over a longer ramp, or run fewer"
            }
        }
    }

    pub(super) fn unit(self) -> Unit {
        match self {
            Check::Lag
            | Check::LongestStall
            | Check::FeedbackDelay
            | Check::SendLateness
            | Check::LinkLateness => Unit::Seconds,
            Check::WorkerCpu => Unit::Cores,
            Check::LateStarts | Check::SocketsRefused | Check::LinkOverload => Unit::Count,
            Check::Overflow
            | Check::KernelDrops
            | Check::FileDescriptors
            | Check::Ports
            | Check::CpuWait
            | Check::Steal
            | Check::LateClients => Unit::Ratio,
        }
    }

    pub(super) fn bound(self, bounds: &HealthBounds) -> f64 {
        match self {
            Check::Overflow => bounds.overflow,
            Check::KernelDrops => bounds.kernel_drops,
            Check::LongestStall => bounds.longest_stall.as_secs_f64(),
            Check::FileDescriptors => bounds.file_descriptors,
            Check::Ports => bounds.ports,
            Check::Lag => bounds.lag_p99.as_secs_f64(),
            Check::WorkerCpu => bounds.worker_cpu,
            Check::CpuWait => bounds.cpu_wait,
            Check::Steal => bounds.steal,
            Check::FeedbackDelay => bounds.feedback_delay_p99.as_secs_f64(),
            Check::SendLateness => bounds.send_lateness_p99.as_secs_f64(),
            Check::LinkLateness => bounds.link_lateness_p99.as_secs_f64(),
            Check::LateClients => bounds.late_clients,
            Check::SocketsRefused | Check::LinkOverload | Check::LateStarts => 0.0,
        }
    }

    /// The tester's figure of a window; `None` where it is unknown, no figure of the tester, or
    /// judged over the run.
    pub(super) fn value(self, tester: &Totals) -> Option<f64> {
        match self {
            Check::LongestStall => tester.named("lag", Statistic::Max),
            Check::SocketsRefused => Some(tester.counter(tester::SOCKETS_REFUSED) as f64),
            Check::FileDescriptors => tester.named("file_descriptors_share", Statistic::Max),
            Check::Ports => tester.named("ports_share", Statistic::Max),
            Check::Lag => tester.named("lag", Statistic::Quantile(0.99)),
            Check::WorkerCpu => tester.named("cpu_hottest_worker", Statistic::Max),
            Check::CpuWait => tester.named("cpu_wait", Statistic::Max),
            Check::Steal => tester.named("steal", Statistic::Max),
            Check::FeedbackDelay => tester.named("feedback_delay", Statistic::Quantile(0.99)),
            Check::SendLateness => tester.named("send_lateness", Statistic::Quantile(0.99)),
            Check::LateStarts => Some(tester.counter(tester::NOT_STARTED_IN_TIME) as f64),
            Check::Overflow
            | Check::KernelDrops
            | Check::LinkOverload
            | Check::LinkLateness
            | Check::LateClients => None,
        }
    }
}
