//! What is measured.

use measure::metric::Statistic;
use measure::summary::{Part, SummaryRow, When};
use measure::{Catalogue, Meaning, TableColumn};

use crate::metrics::CLIENTS;
use crate::summary;

/// The metrics of clients.
pub(super) const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &PROOF]);

measure::metrics! {
    /// Numbered media, and what was sent of it again.
    pub PROOF after CLIENTS;
    counters {
        /// Pieces that were sent, by the numbers of those that came and by what the server says at
        /// the end.
        EXPECTED = "expected", Count, "";
        /// Pieces that came, first copies.
        RECEIVED = "received", Count, "";
        /// Pieces that were not there when a later one, or the end, came.
        MISSED = "missed", Count, "";
        /// Of these, the ones that came after all without having been sent again.
        REORDERED = "reordered", Count, "";
        /// Of the missed ones, those that came because they were asked for.
        RECOVERED = "recovered", Count, "";
        /// Of the missed ones, those that were given up, or still missing when the client went.
        GIVEN_UP = "given_up", Count, "";
        /// Copies that came because they were asked for, needed or not.
        RETRANSMITTED = "retransmitted", Count, "";
        /// Pieces that came once more, or after they were given up.
        DUPLICATED = "duplicated", Count, "";
        /// Requests for missing pieces that were sent, counted for each piece.
        ASKED = "asked", Count, "";
        /// Datagrams that are no message.
        MALFORMED = "malformed", Count, "";
        /// Bytes of media in first copies.
        PAYLOAD_BYTES = "payload_bytes", Bytes, "";
        /// The same with their headers, those of IP included, and of all copies.
        WIRE_BYTES = "wire_bytes", Bytes, "";
    }
    gauges {}
    distributions {
        /// From the moment a client said hello to the arrival of the challenge.
        CHALLENGE_DELAY = "challenge_delay", Seconds, "";
        /// From the moment a piece was found missing to its arrival, of those that were recovered.
        RECOVERY_DELAY = "recovery_delay", Seconds, "";
    }
    derived {
        /// Pieces that never came: expected less received.
        "lost", Count, "", Difference(EXPECTED, RECEIVED);
        /// Share of the expected pieces that never came.
        "loss", Ratio, "", LossRatio(EXPECTED, RECEIVED);
        /// Media received.
        "bitrate", BitsPerSecond, "", Rate(PAYLOAD_BYTES, 8);
        /// Media received with its headers.
        "wire_bitrate", BitsPerSecond, "", Rate(WIRE_BYTES, 8);
    }
    table {
        TableColumn::larger("bitrate", "bitrate", Statistic::Value, ["Mb/s", ""])
            .means(Meaning::BitRate);
        TableColumn::larger("received", "received", Statistic::Value, ["packets", ""]);
        TableColumn::smaller("loss", "loss", Statistic::Value, ["loss", "%"]);
        TableColumn::smaller("retransmitted", "retransmitted", Statistic::Value, ["sent", "again"]);
    }
    summary {
        summary::MEDIA;
        RECOVERY;
        summary::STARTUP;
    }
}

/// What was asked for again, and what came of it.
const RECOVERY: &[SummaryRow] = &[
    SummaryRow::text(
        "recovery",
        &[When::NotZero("missed")],
        &[Part::Text(
            "{recovered} of {missed} missed packets; {retransmitted} sent again, \
             {given_up} given up",
        )],
    ),
    SummaryRow::distribution(
        "recovered in",
        &[When::HasData("recovery_delay")],
        "recovery_delay",
        "p50",
    ),
];
