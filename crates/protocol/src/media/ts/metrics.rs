//! What is measured of a transport stream.

use measure::threshold::WRONG;
use measure::totals::Statistic;
use measure::{ContentCheck, Meaning, TableColumn};

use crate::metrics::CLIENTS;

/// Of what counts stamped datagrams nothing is known where none came.
const STAMPED: &[&str] = &["expected", "foreign"];

/// What of media came right, as far as sequence numbers, stamps and continuity counters tell.
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
    /// Transport streams, added up over a population.
    pub TS after CLIENTS;
    counters {
        /// Datagrams that our own source sent, as far as the numbers in their stamps tell: the
        /// highest number less the lowest, plus one. Of streams of other sources none: nothing in
        /// them says what was sent.
        EXPECTED = "expected", Count, "";
        /// Stamped datagrams that came, first copies only, damaged ones included.
        RECEIVED = "received", Count, "";
        /// Stamped datagrams that came again within the last 4096 numbers.
        DUPLICATED = "duplicated", Count, "RFC 5560";
        /// First copies of stamped datagrams that came after one with a higher number.
        REORDERED = "reordered", Count, "RFC 4737, 3.3";
        /// Stamped datagrams more than 4096 numbers behind the highest: too old to tell whether
        /// they are first copies.
        LATE = "late", Count, "";
        /// Stamped datagrams that are none of this stream's: of another group than the expected one
        /// (`group`, else that in the URL, else the first that came), or of another source than the
        /// first.
        FOREIGN = "foreign", Count, "";
        /// Of the foreign ones, those of the channel that the client had before it changed to this
        /// one: a server that goes on with the old group. Where neither URL nor `group` say which
        /// group is the right one, these are told from the new channel's all the same.
        OLD_CHANNEL = "old_channel", Count, "";
        /// Of the received datagrams, those that did not come as they were sent: with fewer
        /// packets, or with others.
        DAMAGED = "damaged", Count, "";
        /// Transport packets in a stamped stream that belong to no datagram, because its stamp is
        /// missing or they are more than it says.
        STRAY_PACKETS = "stray_packets", Count, "";
        /// Times that a stamped stream began anew: another source that came 100 times in a row, or
        /// numbers that jumped ahead by more than ten million. Nothing is counted as lost between.
        RESTARTS = "restarts", Count, "";
        /// Stamped datagrams that came before they were due to be sent: the clocks of the source's
        /// machine and of this one differ by more than the way takes. They are not in
        /// `datagram_delay`.
        STAMPS_AHEAD = "stamps_ahead", Count, "";
        /// Transport packets that came, in sync.
        TS_PACKETS = "ts_packets", Count, "ISO/IEC 13818-1, 2.4.3.2";
        /// Those of them that are not null packets (PID 0x1fff), which only fill a constant bit
        /// rate.
        NON_NULL_PACKETS = "non_null_packets", Count, "ISO/IEC 13818-1, 2.4.1";
        /// Bytes in transport packets.
        PAYLOAD_BYTES = "payload_bytes", Bytes, "";
        /// Bytes that came over the connection: media, and what frames it.
        WIRE_BYTES = "wire_bytes", Bytes, "";
        /// Times that a packet did not begin with the sync byte. Sync is found again where three
        /// packets in a row begin with it.
        SYNC_LOSSES = "sync_losses", Count, "ETSI TR 101 290, 5.2.1, 1.1 and 1.2";
        /// Bytes that are in no packet: from a loss of sync to where it is found again, and before
        /// the first packet.
        OUT_OF_SYNC_BYTES = "out_of_sync_bytes", Bytes, "";
        /// Packets whose continuity counter is not the one that follows: packets are missing before
        /// them, or they came out of order or more than twice. Of each PID by itself; where a
        /// discontinuity is announced none is counted.
        CONTINUITY_ERRORS = "continuity_errors", Count, "ETSI TR 101 290, 5.2.1, 1.4; ISO/IEC 13818-1, 2.4.3.3";
        /// Packets that are missing as far as continuity counters tell: at least so many, for they
        /// count modulo 16.
        CONTINUITY_LOST = "continuity_lost", Count, "ISO/IEC 13818-1, 2.4.3.3";
        /// Packets that came twice in a row, which a stream may do once with each.
        TS_DUPLICATES = "ts_duplicates", Count, "ISO/IEC 13818-1, 2.4.3.3";
        /// Packets that were marked as damaged before they were sent.
        TRANSPORT_ERRORS = "transport_errors", Count, "ETSI TR 101 290, 5.2.2, 2.1";
        /// Packets whose header cannot be.
        MALFORMED = "malformed", Count, "ISO/IEC 13818-1, 2.4.3.2 and 2.4.3.4";
        /// Sections of the programme association and the programme map that are damaged: a wrong
        /// checksum or length.
        TABLE_ERRORS = "table_errors", Count, "ETSI TR 101 290, 5.2.2, 2.2";
        /// Packets of further PIDs than the 32 of a stream whose continuity is looked at.
        UNTRACKED_PACKETS = "untracked_packets", Count, "";
        /// Times that the programme clock went on by more than a second more or less than the time
        /// that passed, without a discontinuity that was announced. What reckons with it begins
        /// anew there.
        PCR_JUMPS = "pcr_jumps", Count, "ETSI TR 101 290, 5.2.2, 2.3b";
        /// Pictures or sound that the programme map names and that did not come, or no more, while
        /// other packets of the stream did: for 2 s, and for 4 times the longest gap before. Each
        /// kind counts once per stream. Looked at when a client that has not failed leaves; of a
        /// stream that ended by itself, only a kind that never came counts.
        STREAMS_SILENT = "streams_silent", Count, "";
        /// Transport packets of which it is not known when the segment arrived that brought their
        /// last byte: the time is that of the last segment which one read brought, or where the
        /// kernel tells none, of reading. Their delays, `pcr_jitter` and `longest_gap` have in them
        /// how late the tester was (its `lag`). Where the packet ring shows the segments, few.
        TIMED_BY_READING = "timed_by_reading", Count, "";
    }
    gauges {}
    distributions {
        /// From the moment a client's first request was due to the arrival of the first programme
        /// association table.
        PAT_DELAY = "pat_delay", Seconds, "";
        /// From the moment a client's first request was due to the arrival of the first programme
        /// map table.
        PMT_DELAY = "pmt_delay", Seconds, "";
        /// From the moment a client's first request was due to the arrival of the first packet with
        /// which a decoder can begin that knows the programme map: a random-access point of the
        /// video, as the packet or the parameter sets in it say; without video, the first unit of
        /// sound. What a viewer feels as zapping time, but for the decoding.
        RANDOM_ACCESS_DELAY = "random_access_delay", Seconds, "ISO/IEC 13818-1, 2.4.3.5";
        /// Between one programme clock reference and the next, by the clock itself. It should be at
        /// most 100 ms; DVB asks for 40 ms.
        PCR_INTERVAL = "pcr_interval", Seconds, "ISO/IEC 13818-1, 2.7.2";
        /// By how much the time between two programme clock references as they arrived differs from
        /// what they say, either way. The network and the server's bursts are in it (overall
        /// jitter), not only the multiplexer's inaccuracy.
        PCR_JITTER = "pcr_jitter", Seconds, "ETSI TR 101 290, 5.3.2 and annex I";
        /// Longest time without a packet, of each stream.
        LONGEST_GAP = "longest_gap", Seconds, "";
        /// Longest time from the beginning of one PES packet of video, which is a picture in nearly
        /// all streams, to that of the next, of each stream with video.
        VIDEO_GAP = "video_gap", Seconds, "ISO/IEC 13818-1, 2.4.3.6";
        /// Longest time from the beginning of one PES packet of audio to that of the next, of each
        /// stream with audio; any of the programme's sound tracks counts.
        AUDIO_GAP = "audio_gap", Seconds, "ISO/IEC 13818-1, 2.4.3.6";
        /// How long a datagram of our own source was on its way: from when it was due to be sent,
        /// which its stamp tells, to the arrival of its last packet. Of undamaged first copies.
        /// Where the source is on another machine, their clocks (`CLOCK_REALTIME`) must agree: this
        /// is wrong by as much as they differ.
        DATAGRAM_DELAY = "datagram_delay", Seconds, "";
        /// How far behind the highest number each reordered datagram came.
        REORDER_DISTANCE = "reorder_distance", Count, "RFC 4737, 4.2.1";
    }
    derived {
        /// Datagrams of our own source that never came: expected less received.
        "lost", Count, "", Difference(EXPECTED, RECEIVED);
        /// Share of the expected datagrams that never came, over all streams of the population.
        "loss", Ratio, "", LossRatio(EXPECTED, RECEIVED);
        /// Share of the datagrams of our own source that did not come right: of all that should
        /// have come, came again or too late, or were foreign, those that are no whole first copy
        /// of what was sent. So one that is lost and another one sent twice in its place count as
        /// two. Known where stamps came, of this stream or of others.
        "wrong", Ratio, "", NotRight(&[EXPECTED, DUPLICATED, LATE, FOREIGN], RECEIVED, DAMAGED);
        /// Media received: transport packets, over all streams of the population.
        "bitrate", BitsPerSecond, "", Rate(PAYLOAD_BYTES, 8);
        /// The same with what frames it in the connection.
        "wire_bitrate", BitsPerSecond, "", Rate(WIRE_BYTES, 8);
    }
    table {
        TableColumn::larger("served", "", Statistic::Value, ["served", ""]).means(Meaning::Served);
        TableColumn::larger("bitrate", "bitrate", Statistic::Value, ["Mb/s", ""]).means(Meaning::BitRate);
        TableColumn::smaller("loss", "loss", Statistic::Value, ["loss", "%"]).says_unknown();
        TableColumn::smaller("duplicated", "duplicated", Statistic::Value, ["twice", ""]).known_with(STAMPED);
        TableColumn::smaller("foreign", "foreign", Statistic::Value, ["foreign", ""]).known_with(STAMPED);
        TableColumn::smaller("damaged", "damaged", Statistic::Value, ["damaged", ""]).known_with(STAMPED).hidden_at(2);
        TableColumn::smaller("continuity_errors", "continuity_errors", Statistic::Value, ["contin.", "errors"])
            .only_without(STAMPED);
        TableColumn::smaller("datagram_delay_p50", "datagram_delay", Statistic::Quantile(0.5), ["delay", "p50 ms"]).of_times();
        TableColumn::smaller("datagram_delay_p99", "datagram_delay", Statistic::Quantile(0.99), ["delay", "p99 ms"]).of_times();
        TableColumn::smaller("random_access_delay_p50", "random_access_delay", Statistic::Quantile(0.5), ["picture", "p50 ms"]).hidden_at(4);
        TableColumn::smaller("zap_delay_p50", "zap_delay", Statistic::Quantile(0.5), ["zapping", "p50 ms"]);
        TableColumn::smaller("cpu_per_gbit", "", Statistic::Value, ["CPU per", "Gb/s"])
            .means(Meaning::CpuPerGbit).hidden_at(3);
    }
    content { CONTENT; }
}
