//! Command-line options of message clients.

use kit::options::{ClientOption, ClientOptions};

pub(super) static OPTIONS: ClientOptions = ClientOptions {
    heading: "Messages (tcp, tls, ws, wss and unix URLs)",
    options: &[
        ClientOption::new(
            "size",
            "size",
            "BYTES",
            "Bytes of each message [default: 36]",
        )
        .conflicts(&["message"]),
        ClientOption::new(
            "message",
            "message",
            "TEXT",
            "Text of each message; {counter}, {time} and {random:8} are replaced",
        ),
        ClientOption::new(
            "every",
            "plan.every",
            "TIME",
            "Send one message on each connection in turn, in rounds that start at this interval \
             [default: 1s]",
        )
        .conflicts(&["sleep", "rate", "in-flight"]),
        ClientOption::new(
            "sleep",
            "plan.sleep",
            "TIME",
            "Send one message on each connection in turn, and sleep this long after each round",
        )
        .conflicts(&["rate", "in-flight"]),
        ClientOption::new(
            "rate",
            "plan.rate",
            "RATE",
            "Message rate on each connection, such as 10/s",
        )
        .conflicts(&["in-flight"]),
        ClientOption::new(
            "in-flight",
            "plan.in_flight",
            "NUMBER",
            "Wait for the echo of each message, with this many in flight on each connection",
        ),
        ClientOption::new(
            "answers",
            "answers",
            "ANSWERS",
            "Expected answers: none, echo or any [default: echo with --in-flight, else none]",
        ),
        ClientOption::new(
            "messages",
            "messages",
            "NUMBER",
            "Number of messages on each connection [default: until the end]",
        ),
        ClientOption {
            is_escaped: true,
            ..ClientOption::new(
                "delimiter",
                "framing.delimiter",
                "TEXT",
                "Text that ends each message [default: none]",
            )
        },
    ],
};
