//! Metrics.

use measure::metric::Statistic;
use measure::summary::{
    Part::Text,
    RowCondition::{HasData, NotZero},
    SummaryRow,
};
use measure::{Catalogue, Meaning, TableColumn};

use kit::metrics::CLIENTS;
use kit::summary;

/// Metrics of clients.
pub(super) const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &PROOF]);

measure::metrics! {
    /// Numbered media and its retransmissions.
    pub PROOF after CLIENTS;
    counters {
        /// Packets that were sent, derived from the numbers of received ones and from the server's
        /// end message.
        EXPECTED = "expected", Count, "";
        /// Packets received, without duplicates.
        RECEIVED = "received", Count, "";
        /// Packets that had not arrived when a later one, or the end message, arrived.
        MISSED = "missed", Count, "";
        /// Missed packets that arrived later without a retransmission.
        REORDERED = "reordered", Count, "";
        /// Missed packets that arrived as a retransmission.
        RECOVERED = "recovered", Count, "";
        /// Missed packets that were given up, or still missing when the client left.
        GIVEN_UP = "given_up", Count, "";
        /// Retransmissions received, needed or not.
        RETRANSMITTED = "retransmitted", Count, "";
        /// Packets received more than once, or after they were given up.
        DUPLICATED = "duplicated", Count, "";
        /// Missing packets requested, counted for each request.
        ASKED = "asked", Count, "";
        /// Datagrams that are not messages.
        MALFORMED = "malformed", Count, "";
        /// Payload bytes without duplicates.
        PAYLOAD_BYTES = "payload_bytes", Bytes, "";
        /// Bytes of all packets with headers, including those of IP, and duplicates.
        WIRE_BYTES = "wire_bytes", Bytes, "";
    }
    gauges {}
    distributions {
        /// Time from a client's hello to the arrival of the challenge.
        CHALLENGE_DELAY = "challenge_delay", Seconds, "";
        /// Time from the detection of a missing packet to its arrival, for recovered packets.
        RECOVERY_DELAY = "recovery_delay", Seconds, "";
    }
    derived {
        /// Packets that never arrived: expected minus received.
        "lost", Count, "", Difference(EXPECTED, RECEIVED);
        /// Share of the expected packets that never arrived.
        "loss", Ratio, "", LossRatio(EXPECTED, RECEIVED);
        /// Bit rate of received media.
        "bitrate", BitsPerSecond, "", Rate(PAYLOAD_BYTES, 8);
        /// Bit rate of received media with headers.
        "wire_bitrate", BitsPerSecond, "", Rate(WIRE_BYTES, 8);
    }
    table {
        TableColumn::larger("bitrate", "bitrate", Statistic::Value, ["Mbit/s", ""])
            .means(Meaning::BitRate);
        TableColumn::larger("received", "received", Statistic::Value, ["packets", ""]);
        TableColumn::smaller("loss", "loss", Statistic::Value, ["loss", "%"]);
        TableColumn::smaller("retransmitted", "retransmitted", Statistic::Value, ["sent", "again"]);
    }
    summary {
        summary::MEDIA_ROWS;
        RECOVERY;
        summary::STARTUP_ROWS;
    }
}

/// Requests for missing packets and their results.
const RECOVERY: &[SummaryRow] = &[
    SummaryRow::text(
        "recovered",
        &[NotZero("missed")],
        &[Text(
            "{recovered} of {missed} missed packets; {retransmitted} sent again, \
             {given_up} given up",
        )],
    ),
    SummaryRow::distribution(&[HasData("recovery_delay")], "recovery_delay", "p50"),
];
