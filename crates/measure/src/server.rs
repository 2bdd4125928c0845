//! What is measured of the server under test, once a window, while it serves.
//!
//! The figures come from the observed process and all its descendants. Where the server and the
//! tester share a machine, the kernel's work for a loopback packet is charged to its sender.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metric::{Catalogue, Group};

/// What a server's log complained of in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerLog {
    /// By pattern, the most frequent first.
    pub complaints: Vec<LogComplaint>,
    /// Whether there was more than could be looked at, so that counts are too low.
    pub more: bool,
}

/// Lines of a server's log that match a pattern.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogComplaint {
    /// The pattern, a regular expression.
    pub pattern: String,
    /// How many lines match it, and no pattern before it.
    pub lines: u64,
    /// The first of them.
    pub first: String,
}

/// What a server gave back after its last client had left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GivenBack {
    /// How long it was looked at after the last client had left, in seconds.
    pub looked_for: f64,
    /// Multicast groups that were joined; null where the scenario names none, or nothing could be
    /// read.
    pub groups: Option<Held>,
    /// How long after the last client had left the last group was left that was joined for clients,
    /// in seconds; null where some are still joined.
    pub groups_left_within: Option<f64>,
    /// How many groups are still joined that were not before the first client.
    pub groups_kept: u64,
    /// Which these are, at most 16 of them.
    pub kept: Vec<String>,
    /// Open file descriptors of its processes.
    pub file_descriptors: Option<Held>,
    /// Unique set size of its processes, in bytes.
    pub uss: Option<Held>,
}

/// How much of something a server held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Held {
    /// Before the first client.
    pub before: u64,
    /// The most at any look.
    pub peak: u64,
    /// At the end.
    pub after: u64,
}

impl Held {
    /// How much more it holds at the end than before the first client.
    pub fn kept(self) -> i64 {
        let signed = |count| i64::try_from(count).unwrap_or(i64::MAX);
        signed(self.after) - signed(self.before)
    }
}

crate::metrics! {
    /// The server's process tree.
    pub SERVER after Group::NONE;
    counters {
        /// Datagrams that the kernel dropped because a socket's receive queue was full: sockets of
        /// the observed processes only, those that were closed within the window excepted.
        SOCKET_DROPS = "socket_drops", Count, "proc(5), /proc/pid/net/udp, drops";
        /// Datagrams that the server's machine dropped because a socket's receive queue was full:
        /// of all its sockets. Of a server on another machine, from its node_exporter.
        UDP_RECEIVE_ERRORS = "udp_receive_errors", Count, "RFC 4113, udpInErrors; proc(5), /proc/net/snmp, RcvbufErrors";
        /// Lines of the server's log that complain: what it prints where it was launched, and a
        /// file that was named, from the beginning of the run on. What a complaint looks like,
        /// `server.log.match` says, or else the usual words: error, failed, too many open files,
        /// too old, dropped, timed out, out of memory. Lines that match `server.log.ignore`, or
        /// what the catalogue knows to be harmless, are left out. Of a flood only the first 10,000
        /// lines of a second are looked at, for 50 ms.
        LOG_COMPLAINTS = "log_complaints", Count, "";
        /// How often an exporter of the server's machine did not answer, or not within 3 s: the
        /// figures of such a second are missing.
        SCRAPES_FAILED = "scrapes_failed", Count, "";
        /// How often the server was asked what it counts itself, and answered: every 10 s, and once
        /// when the run is over, while clients are still there. (All `counted_` figures are by its
        /// word. Of a PeerConnection that went in between, what was said of it at the look before.)
        COUNTS_READ = "counts_read", Count, "Janus, Admin API, handle_info";
        /// How often it was asked and did not answer.
        COUNTS_FAILED = "counts_failed", Count, "";
        /// Packets of media that the server says it received.
        COUNTED_PACKETS_IN = "counted_packets_in", Count, "Janus, Admin API, handle_info";
        /// Bytes in them, with the headers of RTP.
        COUNTED_BYTES_IN = "counted_bytes_in", Bytes, "Janus, Admin API, handle_info";
        /// Packets of media that the server says it sent.
        COUNTED_PACKETS_OUT = "counted_packets_out", Count, "Janus, Admin API, handle_info";
        /// Bytes in them, with the headers of RTP.
        COUNTED_BYTES_OUT = "counted_bytes_out", Bytes, "Janus, Admin API, handle_info";
        /// Packets that the server says it was asked to send again, each time.
        COUNTED_NACKED_IN = "counted_nacked_in", Count,
            "Janus, Admin API, handle_info; RFC 4585, 6.2.1";
        /// Packets that the server says it asked for again, each time.
        COUNTED_NACKED_OUT = "counted_nacked_out", Count,
            "Janus, Admin API, handle_info; RFC 4585, 6.2.1";
        /// Packets that the server says came to it again.
        COUNTED_RETRANSMISSIONS_IN = "counted_retransmissions_in", Count,
            "Janus, Admin API, handle_info";
        /// Packets that the server says never reached it: the most that it said.
        COUNTED_LOST_IN = "counted_lost_in", Count,
            "Janus, Admin API, handle_info; RFC 3550, 6.4.1";
        /// Packets that receivers told the server never reached them: the most that it said.
        COUNTED_LOST_OUT = "counted_lost_out", Count,
            "Janus, Admin API, handle_info; RFC 3550, 6.4.1";
    }
    gauges {
        /// PeerConnections that the server says it has.
        COUNTED_PEERS = "counted_peers", Count, "Janus, Admin API, handle_info", Max;
        /// Packets that the server says wait to be sent.
        COUNTED_QUEUED = "counted_queued", Count, "Janus, Admin API, handle_info", Max;
        /// Processor time of the process tree in the window, in seconds per second: 1.0 is one core
        /// kept busy. From the cgroup that the server was launched in, which also knows of threads
        /// and children that have ended; of a process that was only watched, from its user and
        /// system time and that of its descendants.
        CPU = "cpu", Cores, "cgroups(7), cpuacct.usage or cpu.stat; proc(5), /proc/pid/stat", Max;
        /// Processor time of the one thread that had the most in the window, in seconds per second.
        /// Near 1.0 a server that does its work in one thread is at its end, whatever `cpu` says.
        CPU_HOTTEST_THREAD = "cpu_hottest_thread", Cores, "proc(5), /proc/pid/task/tid/schedstat", Max;
        /// How many cores the process tree may use: the processors that any of its processes may
        /// run on (taskset, cpusets), and no more than the quota of the cgroup that its first
        /// process is in, or of one above that. Looked at every 5 s. Threads that were bound to
        /// processors one by one count as their process.
        CPU_ALLOWED = "cpu_allowed", Cores, "proc(5), /proc/pid/status, Cpus_allowed_list; cgroups(7), cpu.max or cpu.cfs_quota_us", Max;
        /// Unique set size: memory that belongs to the process tree alone and would be free without
        /// it. Taken at most every 5 s, because taking it costs the server.
        USS = "uss", Bytes, "proc(5), /proc/pid/smaps_rollup, Private_Clean + Private_Dirty", Max;
        /// Proportional set size: shared pages divided among those that share them. Taken with
        /// `uss`.
        PSS = "pss", Bytes, "proc(5), /proc/pid/smaps_rollup, Pss", Max;
        /// Resident set size, shared pages counted for each process anew.
        RSS = "rss", Bytes, "proc(5), /proc/pid/statm, resident", Max;
        /// Threads of the process tree.
        THREADS = "threads", Count, "proc(5), /proc/pid/stat, num_threads", Max;
        /// Open file descriptors of the process tree.
        FILE_DESCRIPTORS = "file_descriptors", Count, "proc(5), /proc/pid/fd", Max;
        /// Open file descriptors of the one process of the tree that is nearest to its limit on
        /// them, as a share of that. At 1 it takes no connection any more.
        FILE_DESCRIPTORS_SHARE = "file_descriptors_share", Ratio, "proc(5), /proc/pid/fd, /proc/pid/limits, Max open files", Max;
        /// Multicast groups that are joined in the server's network namespace, by whomever: the
        /// kernel does not tell whose socket it is. Of those groups only that the scenario's URLs
        /// and `server.groups` name; where the scenario names none, none are counted.
        MULTICAST_GROUPS = "groups", Count, "proc(5), /proc/pid/net/igmp, /proc/pid/net/igmp6", Max;
        /// Of the groups that were joined for the clients of the run, those that still were at the
        /// end of `server.linger`, after the last client had left. Only where that is said.
        GROUPS_KEPT = "groups_kept", Count, "proc(5), /proc/pid/net/igmp, /proc/pid/net/igmp6", Max;
        /// How long after the last client had left the last of these groups was left, looked at
        /// every 50 ms. None where some are still joined at the end of `server.linger`.
        GROUPS_LEFT_WITHIN = "groups_left_within", Seconds, "proc(5), /proc/pid/net/igmp, /proc/pid/net/igmp6", Max;
        /// Open file descriptors of the process tree at the end of `server.linger`, less those
        /// before the first client: below zero where it has fewer.
        FILE_DESCRIPTORS_KEPT = "file_descriptors_kept", Count, "proc(5), /proc/pid/fd", Max;
        /// Unique set size of the process tree at the end of `server.linger`, less that before the
        /// first client: below zero where it is smaller.
        USS_KEPT = "uss_kept", Bytes, "proc(5), /proc/pid/smaps_rollup, Private_Clean + Private_Dirty", Max;
        /// Memory in the queues of all UDP sockets of this machine (of this network namespace), not
        /// of the server alone: the kernel keeps no such figure by process.
        UDP_MEMORY = "udp_memory", Bytes, "proc(5), /proc/net/sockstat, UDP mem in pages", Max;
        /// Processor time of the server's whole machine, in seconds per second: the time that
        /// passed on all its cores but for what was idle, waiting for a disk or taken by a
        /// hypervisor. (Those three are clocks; the kinds of busy time are only sampled by most
        /// kernels.) Of a server on another machine, from its node_exporter.
        MACHINE_CPU = "machine_cpu", Cores, "proc(5), /proc/stat", Max;
        /// Processor cores of the server's machine. Of a server on another machine, from its
        /// node_exporter.
        MACHINE_CORES = "machine_cores", Count, "proc(5), /proc/stat", Max;
    }
    distributions {}
    derived {}
}

static GROUPS: [&Group; 1] = [&SERVER];

/// The metrics of the subject `server`.
pub static SERVER_CATALOGUE: Catalogue = Catalogue(&GROUPS);
