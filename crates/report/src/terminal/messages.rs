//! What is shown of short messages.

use std::fmt::Write;

use measure::Unit;

use super::{Screen, one_line};
use crate::human::{count, figure, plural};
use crate::model::{Clients, Event, Metrics, Report};

impl Screen {
    /// What clients of messages saw; says whether they are such.
    pub(super) fn messages(&mut self, metrics: &Metrics, clients: &Clients) -> bool {
        if metrics.find("acknowledged_rate").is_none() {
            return false;
        }
        let value = |name| metrics.value(name).unwrap_or(0.0);
        let rate = |name| format!("{}/s", count(value(name).round()));
        self.row(
            "messages",
            &format!(
                "{} sent, {} of {} acknowledged ({})",
                rate("sent_rate"),
                count(value("acknowledged")),
                count(value("sent")),
                rate("acknowledged_rate"),
            ),
        );
        let due = value("due_not_sent");
        if due > 0.0 {
            let text = format!(
                "{} were due and could not be sent, {} of all that were due",
                plural(due, "message", "messages"),
                figure(Unit::Ratio, value("back_pressure")),
            );
            self.row("back-pressure", &text);
        }
        let lost = value("lost_in_flight");
        if lost > 0.0 {
            let text = format!(
                "{} in flight, when their connection ended",
                plural(lost, "message", "messages")
            );
            self.row("lost", &text);
        }
        self.answers(metrics);
        for (label, name, first) in [
            ("round trip", "round_trip", "p50"),
            ("  from sending", "round_trip_from_sent", "p50"),
            ("round took", "round_duration", "mean"),
            ("greeting", "greeting_delay", "p50"),
            ("connecting", "connect_delay", "p50"),
        ] {
            if let Some(found) = metrics
                .find(name)
                .filter(|_| metrics.distribution(name).is_some())
            {
                self.distribution(label, found, first);
            }
        }
        self.failures(clients);
        true
    }

    fn answers(&mut self, metrics: &Metrics) {
        let value = |name| metrics.value(name).unwrap_or(0.0);
        let mut text = String::new();
        if value("answered") > 0.0 {
            let _ = write!(
                text,
                "{} right ({}/s)",
                count(value("answered")),
                count(value("answered_rate").round())
            );
        }
        let waits = value("answered") > 0.0 || value("answers_timed_out") > 0.0;
        for (name, what) in [
            ("answers_wrong", "wrong"),
            ("answers_missed", "left out"),
            ("answers_timed_out", "too late"),
            ("unanswered", "not come by the end"),
            ("unasked", "unasked"),
        ] {
            let number = value(name);
            if number > 0.0 {
                let _ = write!(
                    text,
                    "{}{} {what}",
                    if text.is_empty() { "" } else { ", " },
                    count(number)
                );
            }
        }
        if !text.is_empty() {
            self.row("answers", &text);
        } else if waits {
            self.row("answers", "none");
        }
    }

    /// That connections found no port, and how many there are.
    pub(super) fn ports_used_up(&mut self, events: &[Event]) {
        if let Some(event) = events.iter().find(|event| event.kind == "no_ports") {
            self.row("no ports", &one_line(&event.text));
        }
    }

    /// What a message cost the server, where all that it did was messages.
    pub(super) fn cost_of_messages(&mut self, report: &Report) {
        if let Some(seconds) = report.cpu_per_message {
            self.row(
                "a message",
                &format!("{} of a core", figure(Unit::Seconds, seconds)),
            );
        }
    }
}
