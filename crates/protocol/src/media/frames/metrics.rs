//! What is measured of streams that come frame by frame.

use measure::TableColumn;
use measure::totals::Statistic;

use crate::metrics::CLIENTS;

measure::metrics! {
    /// Streams of frames, added up over a population. What a stream of RTP has too has the same
    /// name.
    pub FRAMES_GROUP after CLIENTS;
    counters {
        /// Frames that came.
        FRAMES = "frames", Count, "";
        /// Bytes of media payload: of the frames, without what frames them.
        PAYLOAD_BYTES = "payload_bytes", Bytes, "";
        /// Bytes of the frames as they were on the wire, with what frames them.
        WIRE_BYTES = "wire_bytes", Bytes, "";
        /// Times that playing would have stood still with the stated playout buffer.
        STALLS = "stalls", Count, "";
        /// Times that the timestamp went back by more than a second, or ahead by more than a second
        /// and a tenth of the time since the frame before beyond that time. What reckons with the
        /// media's clock begins anew there.
        CLOCK_JUMPS = "clock_jumps", Count, "";
        /// Frames that a publisher of ours sent from the first on of which a time code came, as far
        /// as the numbers in time codes tell. Of streams that others publish, none.
        FRAMES_PUBLISHED = "frames_published", Count, "";
        /// Of these, the frames that came.
        FRAMES_DELIVERED = "frames_delivered", Count, "";
        /// Frames that came before the time which their time code says they were due to be sent:
        /// the clocks of the publisher's machine and of this one differ by more than the way takes.
        /// They are not in `frame_delay`.
        TIME_CODES_AHEAD = "time_codes_ahead", Count, "";
        /// Frames in a TCP connection of which it is not known when the segment arrived that
        /// brought their last byte: the time is that of the last segment which one read brought, or
        /// where the kernel tells none, of reading.
        TIMED_BY_READING = "timed_by_reading", Count, "";
    }
    gauges {}
    distributions {
        /// Interarrival jitter after each frame, in the clock of the media.
        JITTER = "jitter", Seconds, "RFC 3550, 6.4.1 and A.8";
        /// How much closer a frame came to the one before than its timestamp says.
        EARLY = "early", Seconds, "RFC 3550, 6.4.1";
        /// How much farther a frame came from the one before than its timestamp says.
        LATENESS = "lateness", Seconds, "RFC 3550, 6.4.1";
        /// Longest time without a frame, of each stream.
        LONGEST_GAP = "longest_gap", Seconds, "";
        /// The smallest delay with which every frame of a stream would have played in time:
        /// `max((Ak - A0) - (Tk - T0))` over its frames, of each stream.
        PLAYOUT_BUFFER = "playout_buffer", Seconds, "";
        /// How long playing would have stood still, of each stall, with the stated playout buffer.
        STALL_TIME = "stall_time", Seconds, "";
        /// How long a frame was on its way from end to end: from the moment it was due to be sent
        /// by a publisher of ours, which a time code in it tells, to the arrival of its last byte.
        /// Where the publisher is on another machine, their clocks (`CLOCK_REALTIME`) must agree:
        /// this is wrong by as much as they differ.
        FRAME_DELAY = "frame_delay", Seconds, "H.264, D.1.6";
    }
    derived {
        /// Share of the frames published that did not come.
        "frame_loss", Ratio, "", LossRatio(FRAMES_PUBLISHED, FRAMES_DELIVERED);
        /// Media payload received, over all streams of the population.
        "bitrate", BitsPerSecond, "", Rate(PAYLOAD_BYTES, 8);
        /// The same with what frames it.
        "wire_bitrate", BitsPerSecond, "", Rate(WIRE_BYTES, 8);
    }
    table {
        TableColumn::larger("playing", "playing", Statistic::Max, ["playing", ""]);
        TableColumn::larger("bitrate", "bitrate", Statistic::Value, ["Mb/s", ""]);
        TableColumn::larger("frames", "frames", Statistic::Value, ["frames", ""]);
        TableColumn::smaller("stalls", "stalls", Statistic::Value, ["stalls", ""]);
        TableColumn::smaller("startup_delay_p50", "startup_delay", Statistic::Quantile(0.5), ["startup", "p50 ms"]);
        TableColumn::smaller("startup_delay_p95", "startup_delay", Statistic::Quantile(0.95), ["startup", "p95 ms"]);
        TableColumn::smaller("jitter", "jitter", Statistic::Mean, ["jitter", "ms"]).hidden_at(4);
        TableColumn::smaller("frame_delay_p50", "frame_delay", Statistic::Quantile(0.5), ["delay", "p50 ms"]);
        TableColumn::smaller("frame_delay_p95", "frame_delay", Statistic::Quantile(0.95), ["delay", "p95 ms"]).hidden_at(3);
        TableColumn::smaller("frame_delay_p99", "frame_delay", Statistic::Quantile(0.99), ["delay", "p99 ms"]);
        TableColumn::smaller("frame_loss", "frame_loss", Statistic::Value, ["frames", "lost %"]);
        TableColumn::smaller("playout_buffer", "playout_buffer", Statistic::Max, ["buffer", "ms"]);
    }
}
