//! Summary rows of channel changes.

use measure::SummaryRow;
use measure::summary::{
    Part::{If, List, Text},
    RowCondition::NotZero,
};

/// Channel changes, if there were any.
pub const SUMMARY: &[SummaryRow] = &[
    SummaryRow::text(
        "zaps",
        &[NotZero("zaps")],
        &[
            Text("{zaps:channel change|channel changes}"),
            If("zaps_failed", "; {} FAILED ("),
            List(&[
                ("zaps_failed_503", "{} with status 503"),
                ("zaps_failed_status", "{} with another status"),
                ("zaps_failed_connect", "{} without a connection"),
                ("zaps_failed_silent", "{} silent"),
                ("zaps_failed_broken", "{} with a broken response"),
                ("zaps_failed_not_ts", "{} no transport stream"),
                ("zaps_failed_wrong_channel", "{} another channel"),
                (
                    "zaps_failed_no_picture",
                    "{} video without a random-access point",
                ),
                ("zaps_failed_local", "{} the tester's own limits"),
            ]),
            If("zaps_failed", ")"),
            If("zaps_unfinished", "; {} without a picture"),
        ],
    ),
    SummaryRow::distribution(&[NotZero("zaps")], "zap_delay", "p50"),
];
