//! What is measured of a stream of RTP.

use measure::totals::Statistic;
use measure::{Meaning, TableColumn};

use crate::media::ts::metrics::CONTENT;
use crate::metrics::CLIENTS;

measure::metrics! {
    /// Streams of RTP, added up over a population.
    pub RTP after CLIENTS;
    counters {
        /// Packets that were sent to us as far as their sequence numbers tell: the highest extended
        /// sequence number less the base, plus one. The base is the `seq` of RTP-Info where the
        /// server gave one, else the first number seen. An outage counts, however long: where
        /// numbers jump and the RTP timestamp has advanced with the time of arrival, within a
        /// second or a tenth. Whole turns of 65,536 packets lost in one outage cannot be told.
        EXPECTED = "expected", Count, "RFC 3550, A.3";
        /// Packets that arrived, first copies only. Those of padding alone (RFC 3550, 5.1) count
        /// here and in `expected`; they are no frames, and in no figure of time.
        RECEIVED = "received", Count, "RFC 3550, A.3";
        /// Packets that arrived again within the last 2048 sequence numbers.
        DUPLICATED = "duplicated", Count, "RFC 5560";
        /// First copies that arrived after a packet with a higher sequence number.
        REORDERED = "reordered", Count, "RFC 4737, 3.3";
        /// Packets more than 2048 sequence numbers behind the highest: too old to tell whether they
        /// are first copies.
        LATE = "late", Count, "";
        /// Datagrams or frames on a media channel that are no RTP, of a payload type that nobody
        /// announced, or single ones of another source or far ahead of their stream.
        MALFORMED = "malformed", Count, "RFC 3550, A.1";
        /// Times that a stream began anew: another source, or a jump of its sequence numbers by
        /// 3000 or more ahead or 2048 or more back that does not go with the time that passed.
        /// Nothing is counted as lost between.
        RESTARTS = "restarts", Count, "RFC 3550, A.1";
        /// Bursts of lost packets: runs of consecutive sequence numbers that never came.
        LOSS_BURSTS = "loss_bursts", Count, "RFC 3611, 4.7.2";
        /// Packets known to be lost after the last one that came, out of the final sender report.
        LOST_TAIL = "lost_tail", Count, "";
        /// Streams of which it is known what was lost after the last packet that came: those with a
        /// sender report at their end that fits the count so far. Of all others `lost_tail` is
        /// unknown, not zero.
        LOST_TAIL_KNOWN = "lost_tail_known", Count, "RFC 3550, 6.4.1";
        /// Bytes of media payload in first copies: without RTP header, extension and padding.
        PAYLOAD_BYTES = "payload_bytes", Bytes, "";
        /// Bytes of all packets on media channels as they were on the wire, duplicates and the
        /// headers of RTP, UDP and IP (or the framing in TCP) included, link layer not.
        WIRE_BYTES = "wire_bytes", Bytes, "";
        /// Frames of which every packet came.
        FRAMES = "frames", Count, "";
        /// Frames of which some packets came and others are missing. Frames of which nothing came
        /// are not counted. Where packets are missing between two frames, the one before is whole
        /// if it ends in the marker bit, and the one behind only if a single packet is missing that
        /// was the last of the one before. In streams of one packet a frame, as most of sound, a
        /// loss breaks no frame that came.
        FRAMES_BROKEN = "frames_broken", Count, "";
        /// Times that playing would have stood still with the stated playout buffer.
        STALLS = "stalls", Count, "";
        /// Streams of sound or pictures from which nothing came for as long as their client played,
        /// at least 1 s, while others of the client came; and those of live media that had fallen
        /// silent when their client left. Silent means: for 2 s, and for 4 times the longest gap
        /// before. Counted when a client ends otherwise than as failed. Of WebRTC, a stream from
        /// which nothing came counts only where another client of the run publishes it to WHIP.
        STREAMS_SILENT = "streams_silent", Count, "";
        /// Sender reports received.
        SENDER_REPORTS = "sender_reports", Count, "RFC 3550, 6.4.1";
        /// Streams for which the `seq` of RTP-Info does not go with the packets that came: it is
        /// above the first of them, or 3000 or more below, or the first of them has another number,
        /// though it has the timestamp that `rtptime` states for it (in streams of sound, where
        /// each packet has a timestamp of its own). More than 16 below the first, it does not go
        /// with them over TCP, where nothing is lost before the first packet; if it is 0; or if the
        /// `rtptime` of sound is not within 10 s before the first timestamp. The lowest number that
        /// came is the base then, and nothing before it counts as lost.
        RTP_INFO_MISMATCH = "rtp_info_mismatch", Count, "RFC 2326, 12.33";
        /// Times that the RTP timestamp jumped by more than a second, or a tenth of the time since
        /// the packet before, while the numbers went on: in streams whose client has paused or
        /// changed its position. What reckons with the media's clock begins anew there. A server
        /// that sends what it has in store of one position after it has told of the next does this.
        CLOCK_JUMPS = "clock_jumps", Count, "RFC 2326, B";
        /// Frames that a publisher of ours sent from the first on of which a time code came, as far
        /// as the numbers in time codes tell. Of streams that others publish, none.
        FRAMES_PUBLISHED = "frames_published", Count, "";
        /// Of these, the frames that came whole.
        FRAMES_DELIVERED = "frames_delivered", Count, "";
        /// Frames that came whole before the time which their time code says they were due to be
        /// sent: the clocks of the publisher's machine and of this one differ by more than the way
        /// takes. They are not in `frame_delay`.
        TIME_CODES_AHEAD = "time_codes_ahead", Count, "";
        /// Packets in a TCP connection of which it is not known when the segment arrived that
        /// brought their last byte: the time is that of the last segment which one read brought, or
        /// where the kernel tells none, of reading. Their `jitter`, `early`, `lateness`,
        /// `longest_gap`, `playout_buffer` and delays to the first packet have in them how late the
        /// tester was (its `lag`). Where the packet ring shows the segments, few; 0 over UDP.
        TIMED_BY_READING = "timed_by_reading", Count, "";
    }
    gauges {}
    distributions {
        /// Interarrival jitter after each packet, in the clock of the media. Over TCP see
        /// `timed_by_reading`.
        JITTER = "jitter", Seconds, "RFC 3550, 6.4.1 and A.8";
        /// How much closer a packet came to the one before than it was sent: `-D`, where
        /// `D = (Rj - Ri) - (Sj - Si)` is negative.
        EARLY = "early", Seconds, "RFC 3550, 6.4.1";
        /// How much farther a packet came from the one before than it was sent: `D`, where
        /// `D = (Rj - Ri) - (Sj - Si)` is not negative.
        LATENESS = "lateness", Seconds, "RFC 3550, 6.4.1";
        /// Longest time without a packet, of each stream.
        LONGEST_GAP = "longest_gap", Seconds, "";
        /// The smallest delay with which every whole frame of a stream would have played in time:
        /// `max((Ak - A0) - (Tk - T0))` over its frames, of each stream.
        PLAYOUT_BUFFER = "playout_buffer", Seconds, "";
        /// How long playing would have stood still, of each stall, with the stated playout buffer.
        STALL_TIME = "stall_time", Seconds, "";
        /// How long a frame was on its way from end to end: from the moment it was due to be sent
        /// by a publisher of ours, which a time code in it tells, to the arrival of its last
        /// packet. Of whole frames. Where the publisher is on another machine, their clocks
        /// (`CLOCK_REALTIME`) must agree: this is wrong by as much as they differ.
        FRAME_DELAY = "frame_delay", Seconds, "H.264, D.1.6";
        /// How many packets each burst of loss is long.
        LOSS_BURST_LENGTH = "loss_burst_length", Count, "RFC 3611, 4.7.2";
        /// How far behind the highest sequence number each reordered packet came.
        REORDER_DISTANCE = "reorder_distance", Count, "RFC 4737, 4.2.1";
    }
    derived {
        /// Packets that never came: expected less received.
        "lost", Count, "RFC 3550, A.3", Difference(EXPECTED, RECEIVED);
        /// Share of the expected packets that never came, over all streams of the population.
        "loss", Ratio, "RFC 3550, A.3", LossRatio(EXPECTED, RECEIVED);
        /// Share of the frames published that did not come whole.
        "frame_loss", Ratio, "", LossRatio(FRAMES_PUBLISHED, FRAMES_DELIVERED);
        /// Media payload received, over all streams of the population.
        "bitrate", BitsPerSecond, "", Rate(PAYLOAD_BYTES, 8);
        /// Media received with its headers, over all streams of the population.
        "wire_bitrate", BitsPerSecond, "", Rate(WIRE_BYTES, 8);
    }
    table {
        TableColumn::larger("playing", "playing", Statistic::Max, ["playing", ""]);
        TableColumn::larger("bitrate", "bitrate", Statistic::Value, ["Mb/s", ""]).means(Meaning::BitRate);
        TableColumn::larger("received", "received", Statistic::Value, ["packets", ""]);
        TableColumn::smaller("loss", "loss", Statistic::Value, ["loss", "%"]).says_unknown();
        TableColumn::smaller("startup_delay_p50", "startup_delay", Statistic::Quantile(0.5), ["startup", "p50 ms"]);
        TableColumn::smaller("startup_delay_p95", "startup_delay", Statistic::Quantile(0.95), ["startup", "p95 ms"]);
        TableColumn::smaller("jitter", "jitter", Statistic::Mean, ["jitter", "ms"]);
    }
    content { CONTENT; }
}
