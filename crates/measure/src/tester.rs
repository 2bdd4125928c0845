//! What the tester measures of itself, so that a figure that it spoilt is known as such.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::Statistic;
use crate::metric::{Catalogue, Group};
use crate::totals::Totals;

crate::metrics! {
    /// The tester: its workers, its sockets, its own lateness.
    pub TESTER after Group::NONE;
    counters {
        /// Processor time of all threads of this process, in nanoseconds.
        CPU_NANOS = "cpu_nanos", Count, "clock_gettime(2), CLOCK_PROCESS_CPUTIME_ID";
        /// Packets that the kernel had no room for in a worker's packet ring. Where media comes in
        /// connections they may be of these: such a packet is not lost, but timed by reading.
        RING_OVERFLOW = "ring_overflow", Count, "packet(7), PACKET_STATISTICS, tp_drops";
        /// Packets that the kernel had no room for in the receive buffer of one of our sockets.
        /// Those of a multicast group count once for each client that has it.
        SOCKET_OVERFLOW = "socket_overflow", Count, "socket(7), SO_RXQ_OVFL";
        /// Packets that this machine's kernel dropped before it looked for their socket or ring,
        /// because a processor's queue was full. All of the machine: they may be those of others,
        /// and of a server that runs beside the tester.
        SOFTNET_DROPS = "softnet_drops", Count, "proc(5), /proc/net/softnet_stat, 2nd column";
        /// Datagrams that the kernel had for one of our media ports and that the packet ring did
        /// not bring, whatever the reason: known when the port is given back, from the kernel's own
        /// count. The first place to look at where loss is not explained.
        RING_MISSED = "ring_missed", Count, "socket(7), SO_MEMINFO";
        /// Datagrams that came to our media ports from addresses that are no server of ours. They
        /// are in no other figure.
        FOREIGN_PACKETS = "foreign_packets", Count, "";
        /// Clients that set to work more than one second after they were due.
        NOT_STARTED_IN_TIME = "not_started_in_time", Count, "";
        /// Sockets that could not be opened because file descriptors or ports had run out.
        SOCKETS_REFUSED = "sockets_refused", Count, "socket(2), EMFILE; bind(2), EADDRINUSE";
        /// Packets and messages of ours that the network stack refused.
        SENDS_FAILED = "sends_failed", Count, "send(2)";
        /// Packets of media of ours that left: datagrams that the kernel took, and packets that
        /// were put into the queue of the connection they are interleaved in.
        SENT_PACKETS = "sent_packets", Count, "sendmmsg(2)";
        /// Those of `sent_packets` that left right behind the packet before of the same stream, in
        /// the same turn of the sending loop, though the two were due at different times: their
        /// spacing was lost here. Turns begin 0.25 ms apart or more (0.1 ms where transport streams
        /// are sent), so streams of more than 4,000 packets/s (10,000) always have some; slower
        /// ones only where the loop is late. Packets that were due at the same time are none.
        SENT_IN_BURSTS = "sent_in_bursts", Count, "";
    }
    gauges {
        /// Processor time of all worker threads, and of those that send for them, in the window, in
        /// seconds per second: 1.0 is one core kept busy.
        CPU = "cpu", Cores, "proc(5), /proc/pid/task/tid/schedstat", Sum;
        /// Processor time of the worker thread that had the most in the window, or of the thread
        /// that sends for one, in seconds per second. Near 1.0 that worker reads, sends and answers
        /// late.
        CPU_HOTTEST_WORKER = "cpu_hottest_worker", Cores, "proc(5), /proc/pid/task/tid/schedstat", Max;
        /// Open file descriptors of this process; where workers have tables of their own, of the
        /// fullest.
        FILE_DESCRIPTORS = "file_descriptors", Count, "proc(5), /proc/pid/task/tid/fd", Max;
        /// Open file descriptors as a share of the most that may be open. Where a worker has a
        /// table of descriptors of its own, of that; the fullest.
        FILE_DESCRIPTORS_SHARE = "file_descriptors_share", Ratio, "getrlimit(2), RLIMIT_NOFILE", Max;
        /// Pairs of UDP ports that clients hold, as a share of those that their worker has; of the
        /// worker that has the fewest left.
        PORTS_SHARE = "ports_share", Ratio, "", Max;
        /// The share of the window in which a worker could have run and waited for a processor, of
        /// the worker that waited most. Unknown where the kernel does not account for it.
        CPU_WAIT = "cpu_wait", Ratio, "proc(5), /proc/pid/task/tid/schedstat, 2nd field", Max;
        /// The share of this machine's processor time in the window (processors times the time that
        /// passed) that its hypervisor gave to other machines.
        STEAL = "steal", Ratio, "proc(5), /proc/stat, 8th field of cpu", Max;
        /// Resident set size of this process.
        RSS = "rss", Bytes, "proc(5), /proc/pid/statm, resident", Max;
    }
    distributions {
        /// How much later than planned the event loop of a worker woke up.
        LAG = "lag", Seconds, "";
        /// Delay from the arrival of a packet to the feedback that it causes: a NAK or NACK for a
        /// gap, or an acknowledgement after so many packets. The server takes it for delay of the
        /// path. SRT clients answer within about 1 ms, WebRTC clients within 10 ms.
        FEEDBACK_DELAY = "feedback_delay", Seconds, "";
        /// How much later than its schedule a packet of media that we send left. Of a datagram:
        /// from when it was due to the moment right before the system call that took it; one call
        /// takes up to 64, and what it needs itself, a few microseconds each, is not in it. Of a
        /// packet that is interleaved in a connection: to the turn in which it was put into the
        /// connection's queue. Packets that were refused (`sends_failed`) are not in it. Of
        /// messages it counts too how late each round began, or with a rate, how late each message
        /// was sent.
        SEND_LATENESS = "send_lateness", Seconds, "sendmmsg(2)";
    }
    derived {
        /// Packets that arrived at this machine and were dropped before we read them, because a
        /// queue of our own was full. Reported as lost by the population they belong to, though
        /// neither the server nor the network lost them.
        "overflow", Count, "socket(7), SO_RXQ_OVFL; packet(7), PACKET_STATISTICS", Sum(RING_OVERFLOW, SOCKET_OVERFLOW);
        /// Processor time of all threads of this process.
        "cpu_seconds", Seconds, "clock_gettime(2), CLOCK_PROCESS_CPUTIME_ID", Scaled(CPU_NANOS, -9);
    }
}

static GROUPS: [&Group; 1] = [&TESTER];

/// The metrics of the subject `tester`.
pub static TESTER_CATALOGUE: Catalogue = Catalogue(&GROUPS);

/// What one worker used and lacked over a run, its warm-up left out. `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerFigures {
    /// Processor time, mean over the windows, in cores.
    pub cpu_mean: Option<f64>,
    /// Processor time in the window with the most, in cores.
    pub cpu_max: Option<f64>,
    /// The share of the time in which it waited for a processor, mean over the windows.
    pub cpu_wait_mean: Option<f64>,
    /// The same in the window with the most.
    pub cpu_wait_max: Option<f64>,
    /// The 99th percentile of its event loop's lag, in seconds.
    pub lag_p99: Option<f64>,
    /// The largest lag, in seconds.
    pub lag_max: Option<f64>,
    /// Packets that its ring had no room for.
    pub ring_overflow: i64,
    /// Packets that its sockets had no room for.
    pub socket_overflow: i64,
}

impl WorkerFigures {
    /// Out of the tester's figures of that worker alone.
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
