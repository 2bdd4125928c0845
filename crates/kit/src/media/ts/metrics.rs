//! Metrics of transport streams.

use measure::threshold::WRONG;
use measure::totals::Statistic;
use measure::{ContentCheck, Meaning, TableColumn};

use crate::viewer::VIEWERS;

/// Counts of stamped datagrams are unknown if all of these are zero.
const STAMPED_COUNTERS: &[&str] = &["expected", "foreign"];

/// Check of the content received, by sequence numbers, stamps and continuity counters.
pub(crate) const CONTENT: ContentCheck = ContentCheck {
    payload: "payload_bytes",
    expected: "expected",
    received: "received",
    unwanted: &["duplicated", "late", "foreign"],
    damaged: "damaged",
    gaps: "continuity_errors",
    missing: "continuity_lost",
    packets: "ts_packets",
    unwanted_at: "/ts/datagrams",
    packets_at: "/ts",
    allowed_by: &[WRONG, "loss"],
};

measure::metrics! {
    /// Transport streams, summed over a population.
    pub TS after VIEWERS;
    counters {
        /// Datagrams sent by streamgauge's own source, according to the numbers in their stamps:
        /// the highest number less the lowest, plus one. Zero for streams of other sources, which
        /// do not state what was sent.
        EXPECTED = "expected", Count, "";
        /// Stamped datagrams that arrived, first copies only, including damaged ones.
        RECEIVED = "received", Count, "";
        /// Stamped datagrams that arrived again within the last 4096 numbers.
        DUPLICATED = "duplicated", Count, "RFC 5560";
        /// First copies of stamped datagrams that arrived after one with a higher number.
        REORDERED = "reordered", Count, "RFC 4737, 3.3";
        /// Stamped datagrams more than 4096 numbers behind the highest: too old to tell whether
        /// they are first copies.
        LATE = "late", Count, "";
        /// Stamped datagrams that do not belong to this stream: from a group other than the
        /// expected one (`group`, otherwise that of the URL, otherwise the first that arrived), or
        /// from a source other than the first.
        FOREIGN = "foreign", Count, "";
        /// Foreign datagrams of the channel that the client received before it changed to this one:
        /// a server that continues with the old group. They are distinguished from the new
        /// channel's datagrams even if neither URL nor `group` state the right group.
        OLD_CHANNEL = "old_channel", Count, "";
        /// Received datagrams that did not arrive as they were sent: with fewer packets, or with
        /// others.
        DAMAGED = "damaged", Count, "";
        /// Transport packets in a stamped stream that belong to no datagram: its stamp is missing,
        /// or they exceed the number that it states.
        STRAY_PACKETS = "stray_packets", Count, "";
        /// Restarts of a stamped stream: another source that arrived 100 times in a row, or numbers
        /// that jumped ahead by more than ten million. Nothing is counted as lost in between.
        RESTARTS = "restarts", Count, "";
        /// Stamped datagrams that arrived before they were due to be sent: the clocks of the
        /// source's machine and of this machine differ by more than the transit time. They are
        /// excluded from `datagram_delay`.
        STAMPS_AHEAD = "stamps_ahead", Count, "";
        /// Pictures sent by streamgauge's own publishers and sources, from the first picture whose
        /// time code arrived, according to the numbers in the time codes. Zero for streams of
        /// others, and for files.
        FRAMES_PUBLISHED = "frames_published", Count, "";
        /// Pictures of `frames_published` that arrived completely, according to the continuity
        /// counters.
        FRAMES_DELIVERED = "frames_delivered", Count, "";
        /// Complete pictures that arrived before the due send time in their time code: the clocks
        /// of the publisher's machine and of this machine differ by more than the transit time.
        /// They are excluded from `frame_delay`.
        TIME_CODES_AHEAD = "time_codes_ahead", Count, "";
        /// Transport packets that arrived in sync.
        TS_PACKETS = "ts_packets", Count, "ISO/IEC 13818-1, 2.4.3.2";
        /// Transport packets except null packets (PID 0x1fff), which only fill a constant bit rate.
        NON_NULL_PACKETS = "non_null_packets", Count, "ISO/IEC 13818-1, 2.4.1";
        /// Bytes in transport packets.
        PAYLOAD_BYTES = "payload_bytes", Bytes, "";
        /// Bytes received over the connection: media and its framing.
        WIRE_BYTES = "wire_bytes", Bytes, "";
        /// Losses of sync: a packet did not begin with the sync byte. Sync is regained when three
        /// consecutive packets begin with it.
        SYNC_LOSSES = "sync_losses", Count, "ETSI TR 101 290, 5.2.1, 1.1 and 1.2";
        /// Bytes outside packets: from a loss of sync until sync is regained, and before the first
        /// packet.
        OUT_OF_SYNC_BYTES = "out_of_sync_bytes", Bytes, "";
        /// Packets whose continuity counter is not the next one: packets are missing before them,
        /// or they arrived out of order or more than twice. Checked per PID; announced
        /// discontinuities do not count.
        CONTINUITY_ERRORS = "continuity_errors", Count, "ETSI TR 101 290, 5.2.1, 1.4; ISO/IEC 13818-1, 2.4.3.3";
        /// Missing packets according to the continuity counters. This is a lower bound, because the
        /// counters are modulo 16.
        CONTINUITY_LOST = "continuity_lost", Count, "ISO/IEC 13818-1, 2.4.3.3";
        /// Packets that arrived twice in a row, which a stream may do once per packet.
        TS_DUPLICATES = "ts_duplicates", Count, "ISO/IEC 13818-1, 2.4.3.3";
        /// Packets that were marked as damaged before they were sent.
        TRANSPORT_ERRORS = "transport_errors", Count, "ETSI TR 101 290, 5.2.2, 2.1";
        /// Packets with an invalid header.
        MALFORMED = "malformed", Count, "ISO/IEC 13818-1, 2.4.3.2 and 2.4.3.4";
        /// Damaged sections of the programme association and the programme map: wrong checksum or
        /// length.
        TABLE_ERRORS = "table_errors", Count, "ETSI TR 101 290, 5.2.2, 2.2";
        /// Packets of PIDs beyond the 32 per stream whose continuity is checked.
        UNTRACKED_PACKETS = "untracked_packets", Count, "";
        /// Jumps of the programme clock: it advanced by over a second more or less than the elapsed
        /// time, without an announced discontinuity. Measurements that use the clock restart at a
        /// jump.
        PCR_JUMPS = "pcr_jumps", Count, "ETSI TR 101 290, 5.2.2, 2.3b";
        /// Stalls that playback by the programme clock would have had with the configured playout
        /// buffer, beginning at the first reference. At a discontinuity or jump of the clock,
        /// playback continues with the next reference.
        STALLS = "stalls", Count, "";
        /// Video or audio that the programme map names and that did not arrive, or stopped, while
        /// other packets of the stream arrived: for 2 s, and for 4 times the longest gap before.
        /// Each kind counts once per stream. Checked when a client leaves without having failed; if
        /// the stream itself ended, only a kind that never arrived counts.
        STREAMS_SILENT = "streams_silent", Count, "";
        /// Transport packets for which the arrival time of the segment with the last byte is
        /// unknown. The arrival time is then that of the last segment of the read or, if the kernel
        /// reports none, the time of reading. Their delays, `pcr_jitter` and `longest_gap` include
        /// the lateness of the tester (its `lag`). Few if the packet ring shows the segments.
        TIMED_BY_READING = "timed_by_reading", Count, "";
    }
    gauges {}
    distributions {
        /// Delay from the due time of a client's first request to the arrival of the first
        /// programme association table.
        PAT_DELAY = "pat_delay", Seconds, "";
        /// Delay from the due time of a client's first request to the arrival of the first
        /// programme map table.
        PMT_DELAY = "pmt_delay", Seconds, "";
        /// Delay from the due time of a client's first request to the arrival of the first packet
        /// with which a decoder that knows the programme map can begin: a random-access point of
        /// the video, according to the packet or the parameter sets in it; without video, the first
        /// unit of audio. This is the zapping time of a viewer, without decoding.
        RANDOM_ACCESS_DELAY = "random_access_delay", Seconds, "ISO/IEC 13818-1, 2.4.3.5";
        /// Time from one programme clock reference to the next, by the clock itself. It should be
        /// at most 100 ms; DVB asks for 40 ms.
        PCR_INTERVAL = "pcr_interval", Seconds, "ISO/IEC 13818-1, 2.7.2";
        /// Absolute difference between the time from one programme clock reference to the next by
        /// arrival and by the references. Includes the network and the server's bursts (overall
        /// jitter) as well as the multiplexer's inaccuracy.
        PCR_JITTER = "pcr_jitter", Seconds, "ETSI TR 101 290, 5.3.2 and annex I";
        /// Duration of each stall that playback would have had with the configured playout buffer.
        STALL_TIME = "stall_time", Seconds, "";
        /// Longest time without a packet, per stream.
        LONGEST_GAP = "longest_gap", Seconds, "";
        /// Longest time from the start of one PES packet of video, which is a picture in nearly all
        /// streams, to that of the next, per stream with video.
        VIDEO_GAP = "video_gap", Seconds, "ISO/IEC 13818-1, 2.4.3.6";
        /// Longest time from the start of one PES packet of audio to that of the next, per stream
        /// with audio; any audio track of the programme counts.
        AUDIO_GAP = "audio_gap", Seconds, "ISO/IEC 13818-1, 2.4.3.6";
        /// Transit time of an undamaged first copy of a datagram of streamgauge's own source: from
        /// the due send time, which is in its stamp, to the arrival of its last packet. Between
        /// clients of one run on two runners, the delay is wrong by at most the `clock_error` in
        /// the report. If the source is no client of the run, the two clocks (`CLOCK_REALTIME`)
        /// must agree: the delay is wrong by their difference.
        DATAGRAM_DELAY = "datagram_delay", Seconds, "", BetweenClients;
        /// End-to-end delay of a complete picture: from the due send time of its first packet at a
        /// streamgauge publisher, which is in the picture's time code, to the arrival of the last
        /// packet. It survives a server that remultiplexes. Packets of a picture are sent evenly,
        /// up to the next picture, so the delay includes the time that a picture takes to be sent.
        /// Between clients of one run on two runners, the delay is wrong by at most the
        /// `clock_error` in the report. If the publisher is no client of the run, the two clocks
        /// (`CLOCK_REALTIME`) must agree: the delay is wrong by their difference.
        FRAME_DELAY = "frame_delay", Seconds, "H.264, D.1.6", BetweenClients;
        /// Distance of each reordered datagram from the highest number at its arrival.
        REORDER_DISTANCE = "reorder_distance", Count, "RFC 4737, 4.2.1";
    }
    derived {
        /// Datagrams of streamgauge's own source that never arrived: `expected` less `received`.
        "lost", Count, "", Difference(EXPECTED, RECEIVED);
        /// Share of the expected datagrams that never arrived, over all streams of the population.
        "loss", Ratio, "", LossRatio(EXPECTED, RECEIVED);
        /// Share of wrong datagrams of streamgauge's own source: of all that should have arrived,
        /// arrived again or too late, or were foreign, those that are not an undamaged first copy
        /// of what was sent. A lost datagram and another one sent twice instead count as two. Known
        /// if stamps arrived, of this stream or of others.
        "wrong", Ratio, "", WrongShare(&[EXPECTED, DUPLICATED, LATE, FOREIGN], RECEIVED, DAMAGED);
        /// Share of the published pictures that did not arrive completely.
        "frame_loss", Ratio, "", LossRatio(FRAMES_PUBLISHED, FRAMES_DELIVERED);
        /// Media received: transport packets, summed over all streams of the population.
        "bitrate", BitsPerSecond, "", Rate(PAYLOAD_BYTES, 8);
        /// Media received with its framing in the connection, summed over all streams of the
        /// population.
        "wire_bitrate", BitsPerSecond, "", Rate(WIRE_BYTES, 8);
    }
    table {
        TableColumn::larger("served", "", Statistic::Value, ["served", ""]).means(Meaning::Served);
        TableColumn::larger("bitrate", "bitrate", Statistic::Value, ["Mbit/s", ""]).means(Meaning::BitRate);
        TableColumn::smaller("loss", "loss", Statistic::Value, ["loss", "%"]).shows_unknown();
        TableColumn::smaller("duplicated", "duplicated", Statistic::Value, ["twice", ""]).known_with(STAMPED_COUNTERS);
        TableColumn::smaller("foreign", "foreign", Statistic::Value, ["foreign", ""]).known_with(STAMPED_COUNTERS);
        TableColumn::smaller("damaged", "damaged", Statistic::Value, ["damaged", ""]).known_with(STAMPED_COUNTERS).drop_order(2);
        TableColumn::smaller("continuity_errors", "continuity_errors", Statistic::Value, ["contin.", "errors"])
            .only_without(STAMPED_COUNTERS);
        TableColumn::smaller("datagram_delay_p50", "datagram_delay", Statistic::Quantile(0.5), ["delay", "p50 ms"]).from_arrival_times();
        TableColumn::smaller("datagram_delay_p99", "datagram_delay", Statistic::Quantile(0.99), ["delay", "p99 ms"]).from_arrival_times();
        TableColumn::smaller("random_access_delay_p50", "random_access_delay", Statistic::Quantile(0.5), ["picture", "p50 ms"]).drop_order(4);
        TableColumn::smaller("zap_delay_p50", "zap_delay", Statistic::Quantile(0.5), ["zapping", "p50 ms"]);
        TableColumn::smaller("cpu_per_gbit", "", Statistic::Value, ["CPU per", "Gbit/s"])
            .means(Meaning::CpuPerGbit).drop_order(3);
    }
    content { CONTENT; }
    starts {
        PAT_DELAY;
        PMT_DELAY;
        RANDOM_ACCESS_DELAY;
    }
    features {
        &[
            EXPECTED,
            RECEIVED,
            DUPLICATED,
            REORDERED,
            LATE,
            FOREIGN,
            OLD_CHANNEL,
            DAMAGED,
            STRAY_PACKETS,
            RESTARTS,
            STAMPS_AHEAD,
        ];
    }
}
