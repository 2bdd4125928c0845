//! The options of a command line for clients of messages.

use crate::options::{ClientOption, ClientOptions};

/// What messages are sent.
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
            "Text of each message, in which {counter}, {time} and {random:8} are filled in",
        ),
        ClientOption::new(
            "every",
            "plan.every",
            "TIME",
            "One message on each connection in turn; a round begins so often, by planned times \
             [default: 1s]",
        )
        .conflicts(&["sleep", "rate", "in-flight"]),
        ClientOption::new(
            "sleep",
            "plan.sleep",
            "TIME",
            "One message on each connection in turn, with so long a sleep after each round",
        )
        .conflicts(&["rate", "in-flight"]),
        ClientOption::new(
            "rate",
            "plan.rate",
            "RATE",
            "So many messages on each connection, such as 10/s",
        )
        .conflicts(&["in-flight"]),
        ClientOption::new(
            "in-flight",
            "plan.in_flight",
            "NUMBER",
            "Wait for the echo of each message, with so many on their way on each connection",
        ),
        ClientOption::new(
            "answers",
            "answers",
            "ANSWERS",
            "What answers a message: none, echo or any [default: echo with --in-flight, else none]",
        ),
        ClientOption::new(
            "messages",
            "messages",
            "NUMBER",
            "How many messages are sent on each connection [default: until the end]",
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
