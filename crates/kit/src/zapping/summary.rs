//! Summary rows of channel changes.

use measure::SummaryRow;
use measure::summary::{Part, RowCondition};

/// Channel changes, if there were any.
pub const SUMMARY: &[SummaryRow] = &[
    SummaryRow::text(
        "zaps",
        &[RowCondition::NotZero("zaps")],
        &[
            Part::Text("{zaps:channel change|channel changes}"),
            Part::If("zaps_failed", "; {} FAILED ("),
            Part::List(&[
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
            Part::If("zaps_failed", ")"),
            Part::If("zaps_unfinished", "; {} without a picture"),
        ],
    ),
    SummaryRow::distribution(&[RowCondition::NotZero("zaps")], "zap_delay", "p50"),
];
