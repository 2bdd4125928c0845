//! What is measured of messages.

use measure::totals::Statistic;
use measure::{Disqualifier, Meaning, TableColumn};

use crate::metrics::CLIENTS;

measure::metrics! {
    /// Messages that clients send, and what comes back.
    pub MESSAGES after CLIENTS;
    counters {
        /// Messages that this machine's kernel took, the last byte of each perhaps a little later.
        /// Those of greetings are not among them.
        SENT = "sent", Count, "";
        /// Messages that the server's machine has acknowledged to the last byte: they are in the
        /// server's receive buffer, or it has read them. Looked at once a second and at the end. Of
        /// a Unix socket: those that the server has read.
        ACKNOWLEDGED = "acknowledged", Count, "tcp(7), SIOCOUTQ";
        /// Messages that were due and could not be sent, because the connection took no more, or
        /// because 1024 messages on it had no answer yet: the server's back-pressure. They are not
        /// sent later, and the schedule goes on.
        DUE_NOT_SENT = "due_not_sent", Count, "";
        /// Messages that were sent and not acknowledged when their connection ended.
        LOST_IN_FLIGHT = "lost_in_flight", Count, "";
        /// Messages that came back as they had been sent, or that any message answered, as
        /// `answers` has it.
        ANSWERED = "answered", Count, "";
        /// Answers that are not what was sent.
        ANSWERS_WRONG = "answers_wrong", Count, "";
        /// Messages of which the answer was left out: that to a later one came.
        ANSWERS_MISSED = "answers_missed", Count, "";
        /// Messages that had no answer within `answer_timeout`.
        ANSWERS_TIMED_OUT = "answers_timed_out", Count, "";
        /// Messages that had no answer when their connection ended.
        UNANSWERED = "unanswered", Count, "";
        /// Messages that came and that nothing had asked for: answers after their `answer_timeout`,
        /// and more of them than messages. Without framing, and where no answers are expected, each
        /// read counts as one.
        UNASKED = "unasked", Count, "";
        /// Bytes of messages sent, framing included, and those of TLS not.
        BYTES_SENT = "bytes_sent", Bytes, "";
        /// Bytes that came after the greeting, framing included, and those of TLS not.
        BYTES_RECEIVED = "bytes_received", Bytes, "";
        /// Messages of greetings that were sent.
        GREETINGS_SENT = "greetings_sent", Count, "";
        /// Rounds over the connections of a worker.
        ROUNDS = "rounds", Count, "";
        /// Connections that the server closed in order, after it had been told that nothing more
        /// would be sent.
        CLOSED_IN_ORDER = "closed_in_order", Count, "";
    }
    gauges {}
    distributions {
        /// From the time at which a message was planned to the arrival of its answer. In rounds a
        /// message is planned for the time of its round. With `in_flight` it is planned for the
        /// arrival of the answer that lets it be sent.
        ROUND_TRIP = "round_trip", Seconds, "";
        /// From the moment right before the system call that sent a message to the arrival of its
        /// answer: `round_trip` without what the tester itself was late.
        ROUND_TRIP_FROM_SENT = "round_trip_from_sent", Seconds, "";
        /// From the time at which a message was planned to the moment right before the system call
        /// that sent it. In rounds that is its turn.
        MESSAGE_LATENESS = "message_lateness", Seconds, "";
        /// How long a round took, from its first message to its last.
        ROUND_DURATION = "round_duration", Seconds, "";
        /// From the moment a connection stood to the end of its greeting, the handshake of a
        /// WebSocket included.
        GREETING_DELAY = "greeting_delay", Seconds, "";
    }
    derived {
        /// Messages that were planned: those that were sent, and those that could not be.
        "due", Count, "", Sum(SENT, DUE_NOT_SENT);
        /// Messages sent a second.
        "sent_rate", Count, "", Rate(SENT, 1);
        /// Messages acknowledged a second.
        "acknowledged_rate", Count, "", Rate(ACKNOWLEDGED, 1);
        /// Messages answered a second.
        "answered_rate", Count, "", Rate(ANSWERED, 1);
        /// Bits of messages sent a second, framing included.
        "sent_bitrate", BitsPerSecond, "", Rate(BYTES_SENT, 8);
        /// Messages that were due and could not be sent, as a share of all that were due.
        "back_pressure", Ratio, "", Share(DUE_NOT_SENT, SENT);
    }
    table {
        TableColumn::larger("playing", "playing", Statistic::Max, ["connected", ""]);
        TableColumn::larger("messages", "acknowledged_rate", Statistic::Value, ["messages", "/s"]).means(Meaning::Done);
        TableColumn::larger("bitrate", "sent_bitrate", Statistic::Value, ["Mb/s", ""]).means(Meaning::BitRate);
        TableColumn::smaller("due_not_sent", "due_not_sent", Statistic::Value, ["not", "taken"]);
        TableColumn::smaller("lost_in_flight", "lost_in_flight", Statistic::Value, ["lost in", "flight"]);
        TableColumn::smaller("answers_wrong", "answers_wrong", Statistic::Value, ["answers", "wrong"]);
        TableColumn::smaller("round_trip_p50", "round_trip", Statistic::Quantile(0.5), ["trip", "p50 ms"]);
        TableColumn::smaller("round_trip_p99", "round_trip", Statistic::Quantile(0.99), ["trip", "p99 ms"]);
        TableColumn::smaller("cpu_per_message", "", Statistic::Value, ["CPU per", "message µs"])
            .means(Meaning::CpuPerDone);
    }
    summary {
        super::summary::MESSAGES;
    }
    disqualifiers {
        of_sent(&["lost_in_flight"], "lost in flight");
        of_sent(&["answers_wrong"], "answered wrong");
        of_sent(&["answers_missed", "answers_timed_out", "unanswered"], "not answered");
        Disqualifier {
            parts: &["due_not_sent"],
            of: "due",
            words: "not taken",
            allowed_by: Some("back_pressure"),
        };
    }
}

/// A share of the messages that were sent.
const fn of_sent(parts: &'static [&'static str], words: &'static str) -> Disqualifier {
    Disqualifier {
        parts,
        of: "sent",
        words,
        allowed_by: None,
    }
}

measure::metrics! {
    /// What a reference server of messages counts.
    pub SERVED after CLIENTS;
    counters {
        /// Connections accepted.
        CONNECTIONS = "connections", Count, "";
        /// Connections that have ended.
        CONNECTIONS_ENDED = "connections_ended", Count, "";
        /// Of those, the ones that broke or were cut off: what was on its way on them is not known.
        BROKEN = "broken", Count, "";
        /// Messages that came.
        RECEIVED = "received_messages", Count, "";
        /// Bytes that came.
        RECEIVED_BYTES = "received_bytes", Bytes, "";
        /// Answers that were handed to the connection.
        REPLIES = "replies", Count, "";
        /// Bytes of those.
        REPLIED_BYTES = "replied_bytes", Bytes, "";
        /// Answers left out on purpose.
        DROPPED = "dropped", Count, "";
        /// Answers made wrong on purpose.
        SPOILT = "spoilt", Count, "";
        /// Connections closed on purpose.
        CLOSED = "closed", Count, "";
    }
    gauges {}
    distributions {}
    derived {}
}
