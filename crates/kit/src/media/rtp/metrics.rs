//! Metrics of RTP streams.

use measure::totals::Statistic;
use measure::{Meaning, TableColumn};

use crate::media::ts::metrics::CONTENT;
use crate::viewer::VIEWERS;

measure::metrics! {
    /// RTP streams, summed over a population.
    pub RTP after VIEWERS;
    counters {
        /// Packets sent to the client according to their sequence numbers: the highest extended
        /// sequence number less the base, plus one. The base is the `seq` of RTP-Info if the server
        /// sent one, otherwise the first number received. Outages count, however long: the numbers
        /// jump and the RTP timestamp advances with the arrival time, within a second or a tenth,
        /// whichever is more. Whole cycles of 65,536 packets that are lost in one outage cannot be
        /// detected.
        EXPECTED = "expected", Count, "RFC 3550, A.3";
        /// Packets that arrived, first copies only. Packets of padding only (RFC 3550, 5.1) count
        /// here and in `expected`, but they are not frames and are excluded from all time
        /// measurements.
        RECEIVED = "received", Count, "RFC 3550, A.3";
        /// Packets that arrived again within the last 2048 sequence numbers.
        DUPLICATED = "duplicated", Count, "RFC 5560";
        /// First copies that arrived after a packet with a higher sequence number.
        REORDERED = "reordered", Count, "RFC 4737, 3.3";
        /// Packets more than 2048 sequence numbers behind the highest: too old to tell whether they
        /// are first copies.
        LATE = "late", Count, "";
        /// Datagrams or frames on a media channel that are not RTP, have a payload type that was
        /// not announced, or are single packets of another source or far ahead of their stream.
        MALFORMED = "malformed", Count, "RFC 3550, A.1";
        /// Restarts of a stream: another source, or a jump of the sequence numbers by 3000 or more
        /// ahead or 2048 or more back that does not match the elapsed time. Nothing is counted as
        /// lost in between.
        RESTARTS = "restarts", Count, "RFC 3550, A.1";
        /// Bursts of lost packets: runs of consecutive sequence numbers that never arrived.
        LOSS_BURSTS = "loss_bursts", Count, "RFC 3611, 4.7.2";
        /// Packets known to be lost after the last received one, from the final sender report.
        LOST_TAIL = "lost_tail", Count, "";
        /// Streams whose loss after the last received packet is known: those with a sender report
        /// at their end that matches the count so far. For all other streams `lost_tail` is
        /// unknown, not zero.
        LOST_TAIL_KNOWN = "lost_tail_known", Count, "RFC 3550, 6.4.1";
        /// Bytes of media payload in first copies, without RTP header, extension and padding.
        PAYLOAD_BYTES = "payload_bytes", Bytes, "";
        /// Bytes of all packets on media channels as they were on the wire, including duplicates
        /// and the headers of RTP, UDP and IP (or the framing in TCP), without the link layer.
        WIRE_BYTES = "wire_bytes", Bytes, "";
        /// Frames of which every packet arrived.
        FRAMES = "frames", Count, "";
        /// Frames of which some packets arrived and others are missing. Frames without any received
        /// packet are not counted. If packets are missing between two frames, the frame before them
        /// is complete if it ends with the marker bit; the frame after them is complete only if a
        /// single packet is missing that was the last of the frame before. In streams with one
        /// packet per frame, as most audio, a loss breaks no frame that arrived.
        FRAMES_BROKEN = "frames_broken", Count, "";
        /// Stalls that playback would have had with the configured playout buffer.
        STALLS = "stalls", Count, "";
        /// Audio or video streams that received nothing while their client played, for at least 1
        /// s, although other streams of the client did; and streams of live media that were silent
        /// when their client left. Silent means: for 2 s, and for 4 times the longest gap before.
        /// Counted when a client ends without failing. With WebRTC, a stream that received nothing
        /// counts only if another client of the run publishes it via WHIP.
        STREAMS_SILENT = "streams_silent", Count, "";
        /// Sender reports received.
        SENDER_REPORTS = "sender_reports", Count, "RFC 3550, 6.4.1";
        /// Streams whose packets do not match the `seq` of RTP-Info: it is above the first packet's
        /// number, or 3000 or more below it, or the first packet has another number although it has
        /// the timestamp that `rtptime` states for it (audio streams, in which each packet has its
        /// own timestamp). A `seq` more than 16 below the first number is also a mismatch over TCP,
        /// where nothing is lost before the first packet; if it is 0; or if the `rtptime` of audio
        /// is not within 10 s before the first timestamp. The base is then the lowest number that
        /// arrived, and nothing before it counts as lost.
        RTP_INFO_MISMATCH = "rtp_info_mismatch", Count, "RFC 2326, 12.33";
        /// Jumps of the RTP timestamp by more than a second or a tenth of the time since the
        /// previous packet, whichever is more, while the sequence numbers continued: in streams
        /// whose client paused or changed its position. Measurements that use the media clock
        /// restart at a jump. A server causes jumps if it sends buffered packets of one position
        /// after it has announced the next.
        CLOCK_JUMPS = "clock_jumps", Count, "RFC 2326, B";
        /// Frames sent by streamgauge's publishers, from the first frame whose time code arrived,
        /// according to the frame numbers in the time codes. Zero for streams from other
        /// publishers.
        FRAMES_PUBLISHED = "frames_published", Count, "";
        /// Frames of `frames_published` that arrived completely.
        FRAMES_DELIVERED = "frames_delivered", Count, "";
        /// Complete frames that arrived before the due send time in their time code: the clocks of
        /// the publisher's machine and of this machine differ by more than the transit time. They
        /// are excluded from `frame_delay`.
        TIME_CODES_AHEAD = "time_codes_ahead", Count, "";
        /// Packets in a TCP connection for which the arrival time of the segment with the last byte
        /// is unknown. The arrival time is then that of the last segment of the read or, if the
        /// kernel reports none, the time of reading. Their `jitter`, `early`, `lateness`,
        /// `longest_gap`, `playout_buffer` and delays to the first packet include the lateness of
        /// the tester (its `lag`). Few if the packet ring shows the segments; 0 over UDP.
        TIMED_BY_READING = "timed_by_reading", Count, "";
    }
    gauges {}
    distributions {
        /// Interarrival jitter after each packet, in the media clock. For TCP see
        /// `timed_by_reading`.
        JITTER = "jitter", Seconds, "RFC 3550, 6.4.1 and A.8";
        /// Time by which a packet arrived sooner after the previous one than it was sent: `-D`, if
        /// `D = (Rj - Ri) - (Sj - Si)` is negative.
        EARLY = "early", Seconds, "RFC 3550, 6.4.1";
        /// Time by which a packet arrived later after the previous one than it was sent: `D`, if `D
        /// = (Rj - Ri) - (Sj - Si)` is not negative.
        LATENESS = "lateness", Seconds, "RFC 3550, 6.4.1";
        /// Longest time without a packet, per stream.
        LONGEST_GAP = "longest_gap", Seconds, "";
        /// Smallest playout delay with which every complete frame of a stream would have played in
        /// time: `max((Ak - A0) - (Tk - T0))` over its frames, per stream.
        PLAYOUT_BUFFER = "playout_buffer", Seconds, "";
        /// Duration of each stall that playback would have had with the configured playout buffer.
        STALL_TIME = "stall_time", Seconds, "";
        /// End-to-end delay of a complete frame: from the due send time at a streamgauge publisher,
        /// which is in the frame's time code, to the arrival of the last packet. Between clients of
        /// one run on two runners, the delay is wrong by at most the `clock_error` in the report.
        /// If the publisher is no client of the run, the two clocks (`CLOCK_REALTIME`) must agree:
        /// the delay is wrong by their difference.
        FRAME_DELAY = "frame_delay", Seconds, "H.264, D.1.6", BetweenClients;
        /// Number of packets in each burst of loss.
        LOSS_BURST_LENGTH = "loss_burst_length", Count, "RFC 3611, 4.7.2";
        /// Distance of each reordered packet from the highest sequence number at its arrival.
        REORDER_DISTANCE = "reorder_distance", Count, "RFC 4737, 4.2.1";
    }
    derived {
        /// Packets that never arrived: `expected` less `received`.
        "lost", Count, "RFC 3550, A.3", Difference(EXPECTED, RECEIVED);
        /// Share of the expected packets that never arrived, over all streams of the population.
        "loss", Ratio, "RFC 3550, A.3", LossRatio(EXPECTED, RECEIVED);
        /// Share of the published frames that did not arrive completely.
        "frame_loss", Ratio, "", LossRatio(FRAMES_PUBLISHED, FRAMES_DELIVERED);
        /// Media payload received, summed over all streams of the population.
        "bitrate", BitsPerSecond, "", Rate(PAYLOAD_BYTES, 8);
        /// Media received with its headers, summed over all streams of the population.
        "wire_bitrate", BitsPerSecond, "", Rate(WIRE_BYTES, 8);
    }
    table {
        TableColumn::larger("playing", "playing", Statistic::Max, ["playing", ""]);
        TableColumn::larger("bitrate", "bitrate", Statistic::Value, ["Mbit/s", ""]).means(Meaning::BitRate);
        TableColumn::larger("received", "received", Statistic::Value, ["packets", ""]);
        TableColumn::smaller("loss", "loss", Statistic::Value, ["loss", "%"]).shows_unknown();
        TableColumn::smaller("startup_delay_p50", "startup_delay", Statistic::Quantile(0.5), ["startup", "p50 ms"]);
        TableColumn::smaller("startup_delay_p95", "startup_delay", Statistic::Quantile(0.95), ["startup", "p95 ms"]);
        TableColumn::smaller("jitter", "jitter", Statistic::Mean, ["jitter", "ms"]);
    }
    content { CONTENT; }
    features {
        &[
            FRAMES_PUBLISHED,
            FRAMES_DELIVERED,
            TIME_CODES_AHEAD,
        ];
    }
}
