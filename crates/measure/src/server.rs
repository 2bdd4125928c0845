//! Metrics of the server under test, collected once a window while it serves.
//!
//! The figures cover the observed process and all its descendants. If the server and the tester
//! share a machine, the kernel charges its work for a loopback packet to the sender.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::{Catalogue, Group};

/// Complaints in a server's log during a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerLog {
    /// Complaints by pattern, most frequent first.
    pub complaints: Vec<LogComplaint>,
    /// True if the log grew faster than it could be read, so that the counts are too low.
    pub more: bool,
}

/// Lines of a server's log that match a pattern.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogComplaint {
    /// The pattern, a regular expression.
    pub pattern: String,
    /// Number of lines that match this pattern and no earlier one.
    pub lines: u64,
    /// The first matching line.
    pub first: String,
}

/// Resources that a server released after its last client had left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GivenBack {
    /// Duration of the observation after the last client had left, in seconds.
    pub looked_for: f64,
    /// Joined multicast groups. `null` if the scenario names none, or if they could not be read.
    pub groups: Option<Held>,
    /// Time from the departure of the last client until the last group that was joined for clients
    /// had been left, in seconds. `null` if some groups are still joined.
    pub groups_left_within: Option<f64>,
    /// Number of groups that are still joined and were not joined before the first client.
    pub groups_kept: u64,
    /// These groups, at most 16.
    pub kept: Vec<String>,
    /// Open file descriptors of its processes.
    pub file_descriptors: Option<Held>,
    /// Unique set size of its processes, in bytes.
    pub uss: Option<Held>,
}

/// Amount of a resource that a server held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Held {
    /// Before the first client.
    pub before: u64,
    /// The highest amount of any sample.
    pub peak: u64,
    /// At the end of the observation.
    pub after: u64,
}

impl Held {
    /// Amount at the end minus the amount before the first client.
    pub fn kept(self) -> i64 {
        let signed = |count| i64::try_from(count).unwrap_or(i64::MAX);
        signed(self.after) - signed(self.before)
    }
}

crate::metrics! {
    /// The server's process tree.
    pub SERVER after Group::NONE;
    counters {
        /// Datagrams that the kernel dropped because a socket's receive queue was full. Covers only
        /// sockets of the observed processes, except those that were closed within the window.
        SOCKET_DROPS = "socket_drops", Count, "proc(5), /proc/pid/net/udp, drops";
        /// Datagrams that the server's machine dropped because a socket's receive queue was full,
        /// of all its sockets. For a server on another machine, from its node_exporter.
        UDP_RECEIVE_ERRORS = "udp_receive_errors", Count, "RFC 4113, udpInErrors; proc(5), /proc/net/snmp, RcvbufErrors";
        /// Complaints in the server's log: in the output of a launched server, and in a named file
        /// from the beginning of the run on. A line is a complaint if it matches `server.log.match`
        /// or, by default, one of the usual words: error, failed, too many open files, too old,
        /// dropped, timed out, out of memory. Lines that match `server.log.ignore`, or that the
        /// catalogue declares harmless, do not count. In a flood, only the first 10,000 lines of a
        /// second are examined, for at most 50 ms.
        LOG_COMPLAINTS = "log_complaints", Count, "";
        /// Number of times that an exporter on the server's machine did not answer within 3 s. The
        /// figures of that second are missing.
        SCRAPES_FAILED = "scrapes_failed", Count, "";
        /// Number of successful reads of the server's own counters: every 10 s, and once at the end
        /// of the run while clients are still connected. (All `counted_` figures are the server's
        /// own. For a PeerConnection that ended in between, they are those of the previous read.)
        COUNTS_READ = "counts_read", Count, "Janus, Admin API, handle_info";
        /// Number of reads of the server's own counters that failed.
        COUNTS_FAILED = "counts_failed", Count, "";
        /// Media packets that the server reports as received.
        COUNTED_PACKETS_IN = "counted_packets_in", Count, "Janus, Admin API, handle_info";
        /// Bytes of `counted_packets_in`, including RTP headers.
        COUNTED_BYTES_IN = "counted_bytes_in", Bytes, "Janus, Admin API, handle_info";
        /// Media packets that the server reports as sent.
        COUNTED_PACKETS_OUT = "counted_packets_out", Count, "Janus, Admin API, handle_info";
        /// Bytes of `counted_packets_out`, including RTP headers.
        COUNTED_BYTES_OUT = "counted_bytes_out", Bytes, "Janus, Admin API, handle_info";
        /// Retransmission requests that the server reports as received, one for each packet and
        /// request.
        COUNTED_NACKED_IN = "counted_nacked_in", Count,
            "Janus, Admin API, handle_info; RFC 4585, 6.2.1";
        /// Retransmission requests that the server reports as sent, one for each packet and
        /// request.
        COUNTED_NACKED_OUT = "counted_nacked_out", Count,
            "Janus, Admin API, handle_info; RFC 4585, 6.2.1";
        /// Retransmitted packets that the server reports as received.
        COUNTED_RETRANSMISSIONS_IN = "counted_retransmissions_in", Count,
            "Janus, Admin API, handle_info";
        /// Packets that the server reports as never received: the highest value that it reported.
        COUNTED_LOST_IN = "counted_lost_in", Count,
            "Janus, Admin API, handle_info; RFC 3550, 6.4.1";
        /// Packets that the server's receivers reported as lost: the highest value that the server
        /// reported.
        COUNTED_LOST_OUT = "counted_lost_out", Count,
            "Janus, Admin API, handle_info; RFC 3550, 6.4.1";
    }
    gauges {
        /// PeerConnections that the server reports.
        COUNTED_PEERS = "counted_peers", Count, "Janus, Admin API, handle_info", Max;
        /// Packets that the server reports as waiting to be sent.
        COUNTED_QUEUED = "counted_queued", Count, "Janus, Admin API, handle_info", Max;
        /// Processor time of the process tree in the window, in seconds per second: 1.0 is one core
        /// kept busy. For a launched server, from its cgroup, which includes threads and children
        /// that have ended; for a process that is only observed, from its user and system time and
        /// that of its descendants.
        CPU = "cpu", Cores, "cgroups(7), cpuacct.usage or cpu.stat; proc(5), /proc/pid/stat", Max;
        /// Highest processor time of a single thread in the window, in seconds per second. Near
        /// 1.0, a server that does its work in one thread is at its limit, whatever `cpu` says.
        CPU_HOTTEST_THREAD = "cpu_hottest_thread", Cores, "proc(5), /proc/pid/task/tid/schedstat", Max;
        /// Number of cores that the process tree may use: the processors that any of its processes
        /// may run on (taskset, cpusets), limited by the quota of its first process's cgroup and
        /// the cgroups above. Read every 5 s. Threads bound to single processors count as their
        /// process.
        CPU_ALLOWED = "cpu_allowed", Cores, "proc(5), /proc/pid/status, Cpus_allowed_list; cgroups(7), cpu.max or cpu.cfs_quota_us", Max;
        /// Unique set size: memory that belongs to the process tree alone and would be freed with
        /// it. Sampled at most every 5 s, because sampling costs the server time.
        USS = "uss", Bytes, "proc(5), /proc/pid/smaps_rollup, Private_Clean + Private_Dirty", Max;
        /// Proportional set size: shared pages divided among the processes that share them. Sampled
        /// together with `uss`.
        PSS = "pss", Bytes, "proc(5), /proc/pid/smaps_rollup, Pss", Max;
        /// Resident set size. Shared pages count for each process.
        RSS = "rss", Bytes, "proc(5), /proc/pid/statm, resident", Max;
        /// Threads of the process tree.
        THREADS = "threads", Count, "proc(5), /proc/pid/stat, num_threads", Max;
        /// Open file descriptors of the process tree.
        FILE_DESCRIPTORS = "file_descriptors", Count, "proc(5), /proc/pid/fd", Max;
        /// Open file descriptors of the process that is nearest to its limit, as a share of that
        /// limit. At 1 it accepts no more connections.
        FILE_DESCRIPTORS_SHARE = "file_descriptors_share", Ratio, "proc(5), /proc/pid/fd, /proc/pid/limits, Max open files", Max;
        /// Multicast groups joined in the server's network namespace, by any process: the kernel
        /// does not report which socket joined. Counts only groups that the scenario's URLs and
        /// `server.groups` name; none if the scenario names none.
        MULTICAST_GROUPS = "groups", Count, "proc(5), /proc/pid/net/igmp, /proc/pid/net/igmp6", Max;
        /// Groups joined for the clients of the run that were still joined at the end of
        /// `server.linger`, after the last client had left. Only with `server.linger`.
        GROUPS_KEPT = "groups_kept", Count, "proc(5), /proc/pid/net/igmp, /proc/pid/net/igmp6", Max;
        /// Time from the departure of the last client until the last of these groups was left,
        /// sampled every 50 ms. Unknown if some are still joined at the end of `server.linger`.
        GROUPS_LEFT_WITHIN = "groups_left_within", Seconds, "proc(5), /proc/pid/net/igmp, /proc/pid/net/igmp6", Max;
        /// Open file descriptors of the process tree at the end of `server.linger`, minus those
        /// before the first client: negative if there are fewer.
        FILE_DESCRIPTORS_KEPT = "file_descriptors_kept", Count, "proc(5), /proc/pid/fd", Max;
        /// Unique set size of the process tree at the end of `server.linger`, minus that before the
        /// first client: negative if it is smaller.
        USS_KEPT = "uss_kept", Bytes, "proc(5), /proc/pid/smaps_rollup, Private_Clean + Private_Dirty", Max;
        /// Memory in the queues of all UDP sockets of this machine (of this network namespace), not
        /// only of the server: the kernel has no such figure for a single process.
        UDP_MEMORY = "udp_memory", Bytes, "proc(5), /proc/net/sockstat, UDP mem in pages", Max;
        /// Processor time of the server's whole machine, in seconds per second: elapsed time on all
        /// its cores, except idle time, time waiting for a disk, and time stolen by a hypervisor.
        /// (Those three are exact; most kernels only sample the kinds of busy time.) For a server
        /// on another machine, from its node_exporter.
        MACHINE_CPU = "machine_cpu", Cores, "proc(5), /proc/stat", Max;
        /// Processor cores of the server's machine. For a server on another machine, from its
        /// node_exporter.
        MACHINE_CORES = "machine_cores", Count, "proc(5), /proc/stat", Max;
    }
    distributions {}
    derived {}
}

/// The metrics of the subject `server`.
pub static SERVER_CATALOGUE: Catalogue = Catalogue(&[&SERVER]);
