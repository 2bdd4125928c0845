//! Health checks: the value compared with each bound, and the remedy if it is crossed.

use crate::health::HealthBounds;
use crate::metric::{Statistic, Unit};
use crate::tester;
use crate::totals::Totals;

/// How a bound is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JudgedBy {
    /// The bound may be crossed in a share of the windows.
    ByWindows,
    /// The bound must never be crossed.
    Once,
    /// The total of the run is compared with the bound.
    OverTheRun,
}

/// A health check.
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

const MORE_CORES_ADVICE: &str =
    "give the tester more or faster cores or a dedicated machine, or run fewer clients";

impl Check {
    /// All checks, in the order in which reasons are listed: those that corrupt figures first, then
    /// those that may.
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

    pub(super) fn judged_by(self) -> JudgedBy {
        match self {
            Check::Overflow | Check::KernelDrops | Check::LateClients => JudgedBy::OverTheRun,
            Check::LongestStall
            | Check::SocketsRefused
            | Check::LinkOverload
            | Check::FileDescriptors
            | Check::Ports => JudgedBy::Once,
            Check::Lag
            | Check::WorkerCpu
            | Check::CpuWait
            | Check::Steal
            | Check::FeedbackDelay
            | Check::SendLateness
            | Check::LinkLateness
            | Check::LateStarts => JudgedBy::ByWindows,
        }
    }

    /// Key of the bound in a scenario, or the metric's name if the check has no key.
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

    /// Name of the metric that is checked, as a threshold would write it.
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

    /// Description of the checked figure.
    pub(super) fn description(self) -> &'static str {
        match self {
            Check::Overflow => "the share of packets lost in the tester's own queues",
            Check::KernelDrops => "the share of packets lost in this machine's kernel",
            Check::LongestStall => "the longest stall of a worker",
            Check::SocketsRefused => "the number of sockets that could not be opened",
            Check::FileDescriptors => "the share of file descriptors in use",
            Check::Ports => "the share of UDP ports in use",
            Check::Lag => "the event loop's lag",
            Check::WorkerCpu => "the busiest worker's processor time",
            Check::CpuWait => "the share of the time that a worker waited for a processor",
            Check::Steal => "the share of processor time that the hypervisor stole",
            Check::FeedbackDelay => "the delay of the clients' feedback",
            Check::SendLateness => "the lateness of sent packets",
            Check::LinkOverload => {
                "the number of packets that the emulated link dropped because it could not keep up"
            }
            Check::LinkLateness => "the lateness of packets that left the emulated link",
            Check::LateStarts => "the number of clients that started more than 1 s late",
            Check::LateClients => "the share of clients that started more than 1 s late",
        }
    }

    pub(super) fn advice(self) -> &'static str {
        match self {
            Check::Overflow => {
                "let the tester use its packet ring (CAP_NET_RAW), raise tester.ring (for sockets \
                 tester.receive_buffer and net.core.rmem_max), give it more cores, or run fewer clients"
            }
            Check::KernelDrops => {
                "raise net.core.netdev_max_backlog, spread the card's interrupts over more cores, \
                 give the tester a dedicated machine, or run fewer clients"
            }
            Check::LongestStall => {
                "see what stopped the tester (a signal, a debugger, a suspended or overloaded \
                 machine), and give it more cores or a dedicated machine"
            }
            Check::SocketsRefused | Check::FileDescriptors => {
                "raise the limit of open files (`ulimit -n`), use more workers or source addresses, or run fewer clients"
            }
            Check::Ports => "run fewer clients over UDP, or start several runs on several machines",
            Check::Lag | Check::WorkerCpu | Check::FeedbackDelay => MORE_CORES_ADVICE,
            Check::CpuWait => {
                "stop other programs on this machine, raise the tester's priority (tester.priority: \
                 raised), or give it dedicated cores (taskset) or a dedicated machine"
            }
            Check::Steal => "use a machine whose processors are not shared with others",
            Check::SendLateness => {
                "give the tester more or faster cores or a dedicated machine, or send fewer streams"
            }
            Check::LinkOverload => {
                "give the tester more or faster cores or a dedicated machine, or send less over the link"
            }
            Check::LinkLateness => {
                "let the link's thread run before others (CAP_SYS_NICE), give it a dedicated core, \
                 or send less over the link"
            }
            Check::LateStarts | Check::LateClients => {
                "start the clients over a longer ramp, or run fewer clients"
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

    /// Value of a window. `None` if it is unknown, does not come from the tester's own metrics, or
    /// is judged over the run.
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
