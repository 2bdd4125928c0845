//! Metrics of streams that arrive frame by frame.

use measure::TableColumn;
use measure::totals::Statistic;

use crate::viewer::VIEWERS;

measure::metrics! {
    /// Streams of frames, summed over a population. Metrics that RTP streams have as well have the
    /// same names.
    pub FRAMES_GROUP after VIEWERS;
    counters {
        /// Frames received.
        FRAMES = "frames", Count, "";
        /// Bytes of media payload: the frames without their framing.
        PAYLOAD_BYTES = "payload_bytes", Bytes, "";
        /// Bytes of the frames on the wire, framing included.
        WIRE_BYTES = "wire_bytes", Bytes, "";
        /// Stalls that playback would have had with the configured playout buffer.
        STALLS = "stalls", Count, "";
        /// Jumps of the timestamp: back by more than one second, or ahead of the elapsed time by
        /// more than one second and more than a tenth of the time since the previous frame.
        /// Measurements that use the media clock restart at a jump.
        CLOCK_JUMPS = "clock_jumps", Count, "";
        /// Frames sent by streamgauge's publishers, from the first frame whose time code arrived,
        /// according to the frame numbers in the time codes. Zero for streams from other
        /// publishers.
        FRAMES_PUBLISHED = "frames_published", Count, "";
        /// Frames of `frames_published` that arrived.
        FRAMES_DELIVERED = "frames_delivered", Count, "";
        /// Frames that arrived before the due send time in their time code: the clocks of the
        /// publisher's machine and of this machine differ by more than the transit time. They are
        /// excluded from `frame_delay`.
        TIME_CODES_AHEAD = "time_codes_ahead", Count, "";
        /// Frames in a TCP connection for which the arrival time of the segment with the last byte
        /// is unknown. The arrival time is then that of the last segment of the read or, if the
        /// kernel reports none, the time of reading.
        TIMED_BY_READING = "timed_by_reading", Count, "";
    }
    gauges {}
    distributions {
        /// Interarrival jitter after each frame, in the media clock.
        JITTER = "jitter", Seconds, "RFC 3550, 6.4.1 and A.8";
        /// Time by which a frame arrived sooner after the previous one than its timestamp says.
        EARLY = "early", Seconds, "RFC 3550, 6.4.1";
        /// Time by which a frame arrived later after the previous one than its timestamp says.
        LATENESS = "lateness", Seconds, "RFC 3550, 6.4.1";
        /// Longest time without a frame, per stream.
        LONGEST_GAP = "longest_gap", Seconds, "";
        /// Smallest playout delay with which every frame of a stream would have played in time:
        /// `max((Ak - A0) - (Tk - T0))` over its frames, per stream.
        PLAYOUT_BUFFER = "playout_buffer", Seconds, "";
        /// Duration of each stall that playback would have had with the configured playout buffer.
        STALL_TIME = "stall_time", Seconds, "";
        /// End-to-end delay of a frame: from the due send time at a streamgauge publisher, which is
        /// in the frame's time code, to the arrival of the last byte. Between clients of one run on
        /// two runners, the delay is wrong by at most the `clock_error` in the report. If the
        /// publisher is no client of the run, the two clocks (`CLOCK_REALTIME`) must agree:
        /// the delay is wrong by their difference.
        FRAME_DELAY = "frame_delay", Seconds, "H.264, D.1.6", BetweenClients;
    }
    derived {
        /// Share of the published frames that did not arrive.
        "frame_loss", Ratio, "", LossRatio(FRAMES_PUBLISHED, FRAMES_DELIVERED);
        /// Media payload received, summed over all streams of the population.
        "bitrate", BitsPerSecond, "", Rate(PAYLOAD_BYTES, 8);
        /// Media received with its framing, summed over all streams of the population.
        "wire_bitrate", BitsPerSecond, "", Rate(WIRE_BYTES, 8);
    }
    table {
        TableColumn::larger("playing", "playing", Statistic::Max, ["playing", ""]);
        TableColumn::larger("bitrate", "bitrate", Statistic::Value, ["Mbit/s", ""]);
        TableColumn::larger("frames", "frames", Statistic::Value, ["frames", ""]);
        TableColumn::smaller("stalls", "stalls", Statistic::Value, ["stalls", ""]);
        TableColumn::smaller("startup_delay_p50", "startup_delay", Statistic::Quantile(0.5), ["startup", "p50 ms"]);
        TableColumn::smaller("startup_delay_p95", "startup_delay", Statistic::Quantile(0.95), ["startup", "p95 ms"]);
        TableColumn::smaller("jitter", "jitter", Statistic::Mean, ["jitter", "ms"]).drop_order(4);
        TableColumn::smaller("frame_delay_p50", "frame_delay", Statistic::Quantile(0.5), ["delay", "p50 ms"]);
        TableColumn::smaller("frame_delay_p95", "frame_delay", Statistic::Quantile(0.95), ["delay", "p95 ms"]).drop_order(3);
        TableColumn::smaller("frame_delay_p99", "frame_delay", Statistic::Quantile(0.99), ["delay", "p99 ms"]);
        TableColumn::smaller("frame_loss", "frame_loss", Statistic::Value, ["frames", "lost %"]);
        TableColumn::smaller("playout_buffer", "playout_buffer", Statistic::Max, ["buffer", "ms"]);
    }
    features {
        &[
            FRAMES_PUBLISHED,
            FRAMES_DELIVERED,
            TIME_CODES_AHEAD,
        ];
    }
}
