//! Summary rows of messages.

use measure::SummaryRow;
use measure::summary::{Part, RowCondition};

pub(super) const SUMMARY: &[SummaryRow] = &[
    SummaryRow::text(
        "sent_rate",
        &[],
        &[Part::Text(
            "{sent_rate:0}/s; {acknowledged} of {sent} acknowledged ({acknowledged_rate:0}/s)",
        )],
    ),
    SummaryRow::text(
        "back_pressure",
        &[RowCondition::Above("due_not_sent")],
        &[Part::Text(
            "{back_pressure}   {due_not_sent:message was|messages were} due but could not be sent",
        )],
    ),
    SummaryRow::text(
        "lost_in_flight",
        &[RowCondition::Above("lost_in_flight")],
        &[Part::Text(
            "{lost_in_flight:message|messages} in flight, when their connection ended",
        )],
    ),
    SummaryRow::text(
        "answers",
        &[],
        &[Part::List(&[
            ("answered", "{} correct ({answered_rate:0}/s)"),
            ("answers_wrong", "{} wrong"),
            ("answers_missed", "{} missed"),
            ("answers_timed_out", "{} too late"),
            ("unanswered", "{} missing at the end"),
            ("unasked", "{} unsolicited"),
        ])],
    ),
    SummaryRow::distribution(&[RowCondition::HasData("round_trip")], "round_trip", "p50"),
    SummaryRow::distribution(
        &[RowCondition::HasData("round_trip_from_sent")],
        "round_trip_from_sent",
        "p50",
    ),
    SummaryRow::distribution(
        &[RowCondition::HasData("round_duration")],
        "round_duration",
        "mean",
    ),
    SummaryRow::distribution(
        &[RowCondition::HasData("greeting_delay")],
        "greeting_delay",
        "p50",
    ),
    SummaryRow::text(
        "subprotocols_chosen",
        &[RowCondition::Above("subprotocols_chosen")],
        &[
            Part::Text("{subprotocols_chosen}"),
            Part::If("subprotocols_declined", "; {} chose none"),
        ],
    ),
    SummaryRow::text(
        "subprotocols_declined",
        &[
            RowCondition::Zero("subprotocols_chosen"),
            RowCondition::Above("subprotocols_declined"),
        ],
        &[Part::Text("{subprotocols_declined}: the server chose none")],
    ),
    SummaryRow::distribution(
        &[RowCondition::HasData("connect_delay")],
        "connect_delay",
        "p50",
    ),
];
