//! What the tester measures of itself, so that a figure that it spoilt is known as such.

use crate::metric::{Catalogue, Group};

crate::metrics! {
    /// The tester: its workers, its sockets, its own lateness.
    pub TESTER after Group::NONE;
    counters {
        /// Processor time of all threads of this process, in nanoseconds.
        CPU_NANOS = "cpu_nanos", Count, "clock_gettime(2), CLOCK_PROCESS_CPUTIME_ID";
        /// Packets that arrived at this machine and were dropped before we read them, because a
        /// queue of our own was full. Reported as lost by the population they belong to, though
        /// neither the server nor the network lost them.
        OVERFLOW = "overflow", Count, "socket(7), SO_RXQ_OVFL; packet(7), PACKET_STATISTICS";
        /// Datagrams that the kernel had for one of our media ports and that the packet ring did not
        /// bring, whatever the reason: known when the port is given back, from the kernel's own count.
        /// The first place to look at where loss is not explained.
        RING_MISSED = "ring_missed", Count, "socket(7), SO_MEMINFO";
        /// Datagrams that came to our media ports from addresses that are no server of ours. They
        /// are in no other figure.
        FOREIGN_PACKETS = "foreign_packets", Count, "";
        /// Clients that set to work more than one second after they were due.
        NOT_STARTED_IN_TIME = "not_started_in_time", Count, "";
        /// Packets and messages of ours that the network stack refused.
        SENDS_FAILED = "sends_failed", Count, "send(2)";
        /// Packets of media of ours that left: datagrams that the kernel took, and packets that were put
        /// into the queue of the connection they are interleaved in.
        SENT_PACKETS = "sent_packets", Count, "sendmmsg(2)";
        /// Those of `sent_packets` that left right behind the packet before of the same stream, in the same
        /// turn of the sending loop, though the two were due at different times: their spacing was lost
        /// here. Turns begin 0.25 ms apart or more, so streams of more than 4,000 packets/s always have some;
        /// slower ones only where the loop is late. Packets that were due at the same time are none.
        SENT_IN_BURSTS = "sent_in_bursts", Count, "";
    }
    gauges {
        /// Processor time of all worker threads, and of those that send for them, in the window, in
        /// seconds per second: 1.0 is one core kept busy.
        CPU = "cpu", Cores, "proc(5), /proc/pid/task/tid/schedstat", Sum;
        /// Processor time of the worker thread that had the most in the window, or of the thread that
        /// sends for one, in seconds per second. Near 1.0 that worker reads, sends and answers late.
        CPU_HOTTEST_WORKER = "cpu_hottest_worker", Cores, "proc(5), /proc/pid/task/tid/schedstat", Max;
        /// Open file descriptors of this process.
        FILE_DESCRIPTORS = "file_descriptors", Count, "proc(5), /proc/pid/fd", Max;
        /// Resident set size of this process.
        RSS = "rss", Bytes, "proc(5), /proc/pid/statm, resident", Max;
    }
    distributions {
        /// How much later than planned the event loop of a worker woke up.
        LAG = "lag", Seconds, "";
        /// How much later than its schedule a packet of media that we send left. Of a datagram: from when it
        /// was due to the moment right before the system call that took it; one call takes up to 64, and
        /// what it needs itself, a few microseconds each, is not in it. Of a packet that is interleaved in
        /// a connection: to the turn in which it was put into the connection's queue. Packets that were
        /// refused (`sends_failed`) are not in it.
        SEND_LATENESS = "send_lateness", Seconds, "sendmmsg(2)";
    }
    derived {
        /// Processor time of all threads of this process.
        "cpu_seconds", Seconds, "clock_gettime(2), CLOCK_PROCESS_CPUTIME_ID", Scaled(CPU_NANOS, -9);
    }
}

static GROUPS: [&Group; 1] = [&TESTER];

/// The metrics of the subject `tester`.
pub static TESTER_CATALOGUE: Catalogue = Catalogue(&GROUPS);
