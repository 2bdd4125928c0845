//! Metrics of messages.

use measure::totals::Statistic;
use measure::{Disqualifier, KeyFigure, Meaning, TableColumn};

use kit::metrics::CLIENTS;

measure::metrics! {
    /// Messages that clients send, and their answers.
    pub MESSAGES after CLIENTS;
    counters {
        /// Messages that this machine's kernel accepted, the last byte of each perhaps slightly
        /// later. Messages of greetings are not included.
        SENT = "sent", Count, "";
        /// Messages of which the server's machine has acknowledged every byte: the server has read
        /// them, or they are in its receive buffer. Sampled once a second and at the end. For a
        /// Unix socket: messages that the server has read.
        ACKNOWLEDGED = "acknowledged", Count, "tcp(7), SIOCOUTQ";
        /// Messages that were due but could not be sent because the connection accepted no more, or
        /// because 1024 messages on it had no answer yet: backpressure of the server. They are not
        /// sent later, and the schedule continues.
        DUE_NOT_SENT = "due_not_sent", Count, "";
        /// Messages that were sent but not acknowledged when their connection ended.
        LOST_IN_FLIGHT = "lost_in_flight", Count, "";
        /// Messages with the expected answer according to `answers`: their echo, or any message.
        ANSWERED = "answered", Count, "";
        /// Answers that differ from what was sent.
        ANSWERS_WRONG = "answers_wrong", Count, "";
        /// Messages without an answer although a later message was answered.
        ANSWERS_MISSED = "answers_missed", Count, "";
        /// Messages without an answer within `answer_timeout`.
        ANSWERS_TIMED_OUT = "answers_timed_out", Count, "";
        /// Messages without an answer when their connection ended.
        UNANSWERED = "unanswered", Count, "";
        /// Messages received that no message had asked for: answers after their `answer_timeout`,
        /// and more answers than messages. Without framing, and if no answers are expected, each
        /// read counts as one.
        UNASKED = "unasked", Count, "";
        /// Bytes of messages sent, including framing, without TLS.
        BYTES_SENT = "bytes_sent", Bytes, "";
        /// Bytes received after the greeting, including framing, without TLS.
        BYTES_RECEIVED = "bytes_received", Bytes, "";
        /// Greeting messages sent.
        GREETINGS_SENT = "greetings_sent", Count, "";
        /// WebSockets for which the server chose one of the offered `subprotocols`. An event
        /// (`subprotocol`) names each choice once.
        SUBPROTOCOLS_CHOSEN = "subprotocols_chosen", Count, "RFC 6455, 1.9";
        /// WebSockets for which the server chose none of the offered `subprotocols`.
        SUBPROTOCOLS_DECLINED = "subprotocols_declined", Count, "RFC 6455, 4.2.2";
        /// Rounds over the connections of a worker.
        ROUNDS = "rounds", Count, "";
        /// Connections that the server closed in order, after the client had announced that it
        /// would send no more.
        CLOSED_IN_ORDER = "closed_in_order", Count, "";
    }
    gauges {}
    distributions {
        /// Time from when a message was planned to the arrival of its answer. In rounds, a message
        /// is planned for the time of its round. With `in_flight`, it is planned for the arrival of
        /// the answer that triggers it.
        ROUND_TRIP = "round_trip", Seconds, "";
        /// Time from immediately before the system call that sent a message to the arrival of its
        /// answer: `round_trip` without the tester's own lateness.
        ROUND_TRIP_FROM_SENT = "round_trip_from_sent", Seconds, "";
        /// Time from when a message was planned to immediately before the system call that sent it.
        /// In rounds, this includes waiting for its turn.
        MESSAGE_LATENESS = "message_lateness", Seconds, "";
        /// Duration of a round, from its first message to its last.
        ROUND_DURATION = "round_duration", Seconds, "";
        /// Time from the established connection to the end of the greeting, including the handshake
        /// of a WebSocket.
        GREETING_DELAY = "greeting_delay", Seconds, "";
    }
    derived {
        /// Planned messages: those that were sent, and those that could not be sent.
        "due", Count, "", Sum(SENT, DUE_NOT_SENT);
        /// Messages sent per second.
        "sent_rate", Count, "", Rate(SENT, 1);
        /// Messages acknowledged per second.
        "acknowledged_rate", Count, "", Rate(ACKNOWLEDGED, 1);
        /// Messages answered per second.
        "answered_rate", Count, "", Rate(ANSWERED, 1);
        /// Bits of messages sent per second, including framing.
        "sent_bitrate", BitsPerSecond, "", Rate(BYTES_SENT, 8);
        /// Share of the due messages that could not be sent.
        "back_pressure", Ratio, "", Share(DUE_NOT_SENT, SENT);
    }
    table {
        TableColumn::larger("playing", "playing", Statistic::Max, ["connected", ""]);
        TableColumn::larger("messages", "acknowledged_rate", Statistic::Value, ["messages", "/s"]).means(Meaning::Operations);
        TableColumn::larger("bitrate", "sent_bitrate", Statistic::Value, ["Mbit/s", ""]).means(Meaning::BitRate);
        TableColumn::smaller("due_not_sent", "due_not_sent", Statistic::Value, ["not", "taken"]);
        TableColumn::smaller("lost_in_flight", "lost_in_flight", Statistic::Value, ["lost in", "flight"]);
        TableColumn::smaller("answers_wrong", "answers_wrong", Statistic::Value, ["answers", "wrong"]);
        TableColumn::smaller("round_trip_p50", "round_trip", Statistic::Quantile(0.5), ["trip", "p50 ms"]);
        TableColumn::smaller("round_trip_p99", "round_trip", Statistic::Quantile(0.99), ["trip", "p99 ms"]);
        TableColumn::smaller("cpu_per_message", "", Statistic::Value, ["CPU per", "message µs"])
            .means(Meaning::CpuPerOperation);
    }
    summary {
        super::summary::SUMMARY;
    }
    disqualifiers {
        disqualify_share_of_sent(&["lost_in_flight"], "lost in flight");
        disqualify_share_of_sent(&["answers_wrong"], "answered wrong");
        disqualify_share_of_sent(&["answers_missed", "answers_timed_out", "unanswered"], "not answered");
        Disqualifier {
            parts: &["due_not_sent"],
            of: "due",
            description: "not taken",
            allowed_by: Some("back_pressure"),
        };
    }
    starts {
        GREETING_DELAY;
    }
    key_figures {
        KeyFigure::value("acknowledged_rate");
        KeyFigure::p95("round_trip");
        KeyFigure::value("back_pressure");
        KeyFigure::p95("connect_delay");
    }
}

/// Returns a disqualifier for a share of the messages sent.
const fn disqualify_share_of_sent(
    parts: &'static [&'static str],
    words: &'static str,
) -> Disqualifier {
    Disqualifier {
        parts,
        of: "sent",
        description: words,
        allowed_by: None,
    }
}

measure::metrics! {
    /// Counters of the message reference server.
    pub SERVED after CLIENTS;
    counters {
        /// Connections accepted.
        CONNECTIONS = "connections", Count, "";
        /// Connections that ended.
        CONNECTIONS_ENDED = "connections_ended", Count, "";
        /// Ended connections that broke or were cut off, so that the fate of messages in flight is
        /// unknown.
        BROKEN = "broken", Count, "";
        /// Messages received.
        RECEIVED = "received_messages", Count, "";
        /// Bytes received.
        RECEIVED_BYTES = "received_bytes", Bytes, "";
        /// Answers given to the connection.
        ANSWERS = "replies", Count, "";
        /// Bytes of these answers.
        REPLIED_BYTES = "replied_bytes", Bytes, "";
        /// Answers dropped on purpose.
        DROPPED = "dropped", Count, "";
        /// Answers corrupted on purpose.
        CORRUPTED = "spoilt", Count, "";
        /// Connections closed on purpose.
        CLOSED = "closed", Count, "";
    }
    gauges {}
    distributions {}
    derived {}
}
