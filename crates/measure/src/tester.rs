//! Metrics of the tester itself. They show whether the tester distorted a measurement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::{Catalogue, Group, Statistic};
use crate::totals::Totals;

crate::metrics! {
    /// The tester: its workers, its sockets, its own lateness.
    pub TESTER after Group::NONE;
    counters {
        /// Processor time of all threads of this process, in nanoseconds.
        CPU_NANOS = "cpu_nanos", Count, "clock_gettime(2), CLOCK_PROCESS_CPUTIME_ID";
        /// Packets dropped because a worker's packet ring was full. They may include segments of
        /// TCP connections that carry media: such a packet is not lost, but its arrival time is
        /// that of reading.
        RING_OVERFLOW = "ring_overflow", Count, "packet(7), PACKET_STATISTICS, tp_drops";
        /// Packets dropped because the receive buffer of one of the tester's sockets was full.
        /// Packets of a multicast group count once for each client that joined it.
        SOCKET_OVERFLOW = "socket_overflow", Count, "socket(7), SO_RXQ_OVFL";
        /// Packets that this machine's kernel dropped before it looked up their socket or ring,
        /// because a processor's queue was full. The count covers the whole machine: it may include
        /// packets of other programs, and of a server that runs on the same machine.
        SOFTNET_DROPS = "softnet_drops", Count, "proc(5), /proc/net/softnet_stat, 2nd column";
        /// Datagrams that the kernel counted for the tester's media ports but the packet ring did
        /// not deliver, for whatever reason. Known from the kernel's own count when a port is
        /// released. Look here first if loss has no other explanation.
        RING_MISSED = "ring_missed", Count, "socket(7), SO_MEMINFO";
        /// Datagrams that arrived at the tester's media ports from an address that does not belong
        /// to the server. They count in no other metric.
        FOREIGN_PACKETS = "foreign_packets", Count, "";
        /// Clients that started more than one second after they were due.
        NOT_STARTED_IN_TIME = "not_started_in_time", Count, "";
        /// Sockets that could not be opened because file descriptors or ports had run out.
        SOCKETS_REFUSED = "sockets_refused", Count, "socket(2), EMFILE; bind(2), EADDRINUSE";
        /// Packets and messages of the tester that the network stack refused.
        SENDS_FAILED = "sends_failed", Count, "send(2)";
        /// Media packets that the tester sent: datagrams that the kernel accepted, and packets that
        /// were put into the queue of the connection they are interleaved in.
        SENT_PACKETS = "sent_packets", Count, "sendmmsg(2)";
        /// Packets of `sent_packets` that left directly after the previous packet of the same
        /// stream, in the same turn of the sending loop, although the two were due at different
        /// times: the tester lost their spacing. Turns begin at least 0.25 ms apart (0.1 ms if
        /// transport streams are sent), so streams with more than 4,000 packets/s (10,000) always
        /// have some; slower streams only if the loop is late. Packets that were due at the same
        /// time do not count.
        SENT_IN_BURSTS = "sent_in_bursts", Count, "";
    }
    gauges {
        /// Processor time of all worker threads and of the threads that send for them, in the
        /// window, in seconds per second: 1.0 is one core kept busy.
        CPU = "cpu", Cores, "proc(5), /proc/pid/task/tid/schedstat", Sum;
        /// Highest processor time of a single worker thread, or of a thread that sends for one, in
        /// the window, in seconds per second. Near 1.0 that worker reads, sends and responds late.
        CPU_HOTTEST_WORKER = "cpu_hottest_worker", Cores, "proc(5), /proc/pid/task/tid/schedstat", Max;
        /// Open file descriptors of this process; if workers have their own descriptor tables, of
        /// the fullest table.
        FILE_DESCRIPTORS = "file_descriptors", Count, "proc(5), /proc/pid/task/tid/fd", Max;
        /// Open file descriptors as a share of the limit; if workers have their own descriptor
        /// tables, of the fullest table.
        FILE_DESCRIPTORS_SHARE = "file_descriptors_share", Ratio, "getrlimit(2), RLIMIT_NOFILE", Max;
        /// UDP port pairs in use by clients, as a share of those available to their worker; of the
        /// worker with the fewest left.
        PORTS_SHARE = "ports_share", Ratio, "", Max;
        /// Share of the window in which a worker was runnable but waited for a processor; of the
        /// worker that waited longest. Unknown if the kernel does not account for it.
        CPU_WAIT = "cpu_wait", Ratio, "proc(5), /proc/pid/task/tid/schedstat, 2nd field", Max;
        /// Share of this machine's processor time in the window (processors times elapsed time)
        /// that its hypervisor gave to other machines.
        STEAL = "steal", Ratio, "proc(5), /proc/stat, 8th field of cpu", Max;
        /// Resident set size of this process.
        RSS = "rss", Bytes, "proc(5), /proc/pid/statm, resident", Max;
    }
    distributions {
        /// Delay between the planned and the actual wake-up of a worker's event loop.
        LAG = "lag", Seconds, "";
        /// Delay from the arrival of a packet to the feedback that it triggers: a NAK or NACK for a
        /// gap, or an acknowledgement after a number of packets. The server sees it as path delay.
        /// SRT clients respond within about 1 ms, WebRTC clients within 10 ms.
        FEEDBACK_DELAY = "feedback_delay", Seconds, "";
        /// Lateness of the tester's media packets relative to their schedule. For a datagram: from
        /// its due time to the moment before the system call that takes it; one call takes up to 64
        /// datagrams, and its own duration, a few microseconds each, is not included. For a packet
        /// that is interleaved in a connection: to the turn in which it was put into the
        /// connection's queue. Packets that were refused (`sends_failed`) are not included. For
        /// messages it also includes how late each round began or, with a rate, how late each
        /// message was sent.
        SEND_LATENESS = "send_lateness", Seconds, "sendmmsg(2)";
    }
    derived {
        /// Packets that arrived at this machine and were dropped before the tester read them,
        /// because one of its own queues was full. Their population reports them as lost, although
        /// neither the server nor the network lost them.
        "overflow", Count, "socket(7), SO_RXQ_OVFL; packet(7), PACKET_STATISTICS", Sum(RING_OVERFLOW, SOCKET_OVERFLOW);
        /// Processor time of all threads of this process.
        "cpu_seconds", Seconds, "clock_gettime(2), CLOCK_PROCESS_CPUTIME_ID", Scaled(CPU_NANOS, -9);
    }
}

/// The metrics of the subject `tester`.
pub static TESTER_CATALOGUE: Catalogue = Catalogue(&[&TESTER]);

/// Resource use of one worker over a run, without its warm-up. `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerFigures {
    /// Mean processor time over the windows, in cores.
    pub cpu_mean: Option<f64>,
    /// Highest processor time of a window, in cores.
    pub cpu_max: Option<f64>,
    /// Mean share of the time in which the worker waited for a processor.
    pub cpu_wait_mean: Option<f64>,
    /// Highest share of a window in which the worker waited for a processor.
    pub cpu_wait_max: Option<f64>,
    /// 99th percentile of the event loop's lag, in seconds.
    pub lag_p99: Option<f64>,
    /// Maximum of the event loop's lag, in seconds.
    pub lag_max: Option<f64>,
    /// Packets dropped because the worker's ring was full.
    pub ring_overflow: i64,
    /// Packets dropped because a receive buffer of the worker's sockets was full.
    pub socket_overflow: i64,
}

impl WorkerFigures {
    /// Extracts the figures from the tester's totals of that worker alone.
    pub fn of(totals: &Totals) -> WorkerFigures {
        WorkerFigures {
            cpu_mean: totals.named("cpu", Statistic::Mean),
            cpu_max: totals.named("cpu", Statistic::Max),
            cpu_wait_mean: totals.named("cpu_wait", Statistic::Mean),
            cpu_wait_max: totals.named("cpu_wait", Statistic::Max),
            lag_p99: totals.named("lag", Statistic::Quantile(0.99)),
            lag_max: totals.named("lag", Statistic::Max),
            ring_overflow: totals.counter(RING_OVERFLOW),
            socket_overflow: totals.counter(SOCKET_OVERFLOW),
        }
    }
}

/// A runner of a run over several machines: its clients, its clock and its resource use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunnerSummary {
    /// Name by which it takes part.
    pub name: String,
    /// Host name of its machine.
    pub host: String,
    /// Number of processors of its machine.
    pub cores: u32,
    /// Maximum number of its clients at a time, over all populations.
    pub clients_max: u64,
    /// Monotonic clock of the runner minus that of the coordinator, in seconds. `None` if unknown.
    pub clock_offset: Option<f64>,
    /// Maximum difference of the offset from the true one, in seconds, at the last exchange of
    /// timestamps.
    pub clock_uncertainty: Option<f64>,
    /// Maximum difference between the time of the run on this runner and on the coordinator, in
    /// seconds: the uncertainty, and how far the offset has moved since the start. `None` if
    /// unknown.
    #[serde(default)]
    pub clock_error: Option<f64>,
    /// Time from the agreed start of the run to the start of its clients, in seconds.
    pub began_late: Option<f64>,
    /// Reason for its loss during the run. `None` if it was not lost.
    pub lost: Option<String>,
    /// Resource use of its workers together.
    pub figures: WorkerFigures,
    /// Reasons why the measurements of the runner are invalid.
    pub unfit: Vec<String>,
}

/// State of a runner in the last window of a run over several machines. Figures are `None` if the
/// runner sent no part of that window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunnerState {
    /// Name by which it takes part.
    pub name: String,
    /// Running clients, over all populations.
    pub active: Option<u64>,
    /// Clients that play, publish or send, over all populations.
    pub playing: Option<u64>,
    /// Processor time of its workers, in cores. `None` if the window was cut short.
    pub cpu: Option<f64>,
    /// Maximum of its event loops' lag, in seconds.
    pub lag_max: Option<f64>,
    /// True if it crossed no health bound.
    pub healthy: bool,
    /// True if it was lost: the run ends as invalid.
    pub lost: bool,
}
