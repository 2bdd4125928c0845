//! What can be asked of messages: their clients, and their reference server.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use scenario::OptionSetting;

use super::{DEFAULT_SEED, help};

/// What messages are sent, to URLs of tcp, tls, ws, wss and unix.
#[derive(Debug, Args)]
pub(crate) struct Messaging {
    /// Bytes of each message [default: 36]
    #[arg(long, value_name = "BYTES", conflicts_with = "message", help_heading = help::MESSAGES, hide_short_help = true)]
    pub(crate) size: Option<String>,
    /// Text of each message, in which {counter}, {time} and {random:8} are filled in
    #[arg(long, value_name = "TEXT", help_heading = help::MESSAGES, hide_short_help = true)]
    pub(crate) message: Option<String>,
    /// One message on each connection in turn; a round begins so often, by planned times [default: 1s]
    #[arg(long, value_name = "TIME", conflicts_with_all = ["sleep", "rate", "in_flight"], help_heading = help::MESSAGES, hide_short_help = true)]
    pub(crate) every: Option<String>,
    /// One message on each connection in turn, with so long a sleep after each round
    #[arg(long, value_name = "TIME", conflicts_with_all = ["rate", "in_flight"], help_heading = help::MESSAGES, hide_short_help = true)]
    pub(crate) sleep: Option<String>,
    /// So many messages on each connection, such as 10/s
    #[arg(long, value_name = "RATE", conflicts_with = "in_flight", help_heading = help::MESSAGES, hide_short_help = true)]
    pub(crate) rate: Option<String>,
    /// Wait for the echo of each message, with so many on their way on each connection
    #[arg(long, value_name = "NUMBER", help_heading = help::MESSAGES, hide_short_help = true)]
    pub(crate) in_flight: Option<String>,
    /// What answers a message: none, echo or any [default: echo with --in-flight, else none]
    #[arg(long, value_name = "ANSWERS", help_heading = help::MESSAGES, hide_short_help = true)]
    pub(crate) answers: Option<String>,
    /// How many messages are sent on each connection [default: until the end]
    #[arg(long, value_name = "NUMBER", help_heading = help::MESSAGES, hide_short_help = true)]
    pub(crate) messages: Option<String>,
    /// Text that ends each message [default: none]
    #[arg(long, value_name = "TEXT", help_heading = help::MESSAGES, hide_short_help = true)]
    pub(crate) delimiter: Option<String>,
}

impl Messaging {
    /// As settings of this population of the scenario, which is where they are checked.
    pub(crate) fn settings(&self, population: &str) -> Vec<OptionSetting> {
        let delimiter = self
            .delimiter
            .as_deref()
            .map(|text| unescaped(text).into_owned());
        [
            ("--size", "size", &self.size),
            ("--message", "message", &self.message),
            ("--every", "plan.every", &self.every),
            ("--sleep", "plan.sleep", &self.sleep),
            ("--rate", "plan.rate", &self.rate),
            ("--in-flight", "plan.in_flight", &self.in_flight),
            ("--answers", "answers", &self.answers),
            ("--messages", "messages", &self.messages),
            ("--delimiter", "framing.delimiter", &delimiter),
        ]
        .into_iter()
        .filter_map(|(option, key, value)| {
            Some(OptionSetting {
                option: option.to_owned(),
                key: format!("clients.{population}.{key}"),
                value: value.clone()?,
            })
        })
        .collect()
    }
}

/// What is written as `\\n`, `\\r`, `\\t` or `\\0` as that character.
pub(crate) fn unescaped(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let pairs = [("\\n", "\n"), ("\\r", "\r"), ("\\t", "\t"), ("\\0", "\0")];
    let replace = |text: String, (written, meant): (&str, &str)| text.replace(written, meant);
    pairs.into_iter().fold(text.to_owned(), replace).into()
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MessageMode {
    /// It is counted
    Sink,
    /// It is counted and sent back
    Echo,
}

/// Order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ByteOrder {
    /// The highest first
    Big,
    /// The lowest first
    Little,
}

#[derive(Debug, Args)]
pub(crate) struct ServeMessages {
    /// Addresses to listen on
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1",
        value_delimiter = ','
    , help_heading = help::LISTENING)]
    pub(crate) listen: Vec<IpAddr>,
    /// Ports to listen on, at each address; 0 for a free one. Each has a thread of its own, and with it its own limit of open files
    #[arg(
        long,
        value_name = "PORT",
        default_value = "9000",
        value_delimiter = ','
    , help_heading = help::LISTENING)]
    pub(crate) port: Vec<u16>,
    /// What becomes of a message
    #[arg(long, value_enum, default_value = "echo", help_heading = help::SERVICE)]
    pub(crate) mode: MessageMode,
    /// How many bytes a message has, where nothing else tells messages apart
    #[arg(long, value_name = "BYTES", default_value_t = 36, value_parser = clap::value_parser!(u32).range(1..=1_048_576), help_heading = help::SERVICE)]
    pub(crate) size: u32,
    /// Messages come with a number before each of so many bytes that says how long it is: 1, 2, 4 or 8
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["delimiter", "websocket"], help_heading = help::SERVICE)]
    pub(crate) length: Option<u8>,
    /// The order of that number's bytes
    #[arg(long, value_enum, default_value = "big", requires = "length", help_heading = help::SERVICE)]
    pub(crate) order: ByteOrder,
    /// That number counts its own bytes too
    #[arg(long, requires = "length", help_heading = help::SERVICE)]
    pub(crate) includes_itself: bool,
    /// Messages end with this text, in which \n, \r, \t and \0 stand for themselves
    #[arg(long, value_name = "TEXT", conflicts_with = "websocket", help_heading = help::SERVICE)]
    pub(crate) delimiter: Option<String>,
    /// Speak WebSocket
    #[arg(long, help_heading = help::SERVICE)]
    pub(crate) websocket: bool,
    /// Speak TLS on all connections, with the certificates of this file (PEM), the server's own first
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = help::LISTENING)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = help::LISTENING)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Something to do wrong, several times if need be: delay=5ms, drop=1% (answers), wrong=1% (answers), close=1% (the connection, after a message), deaf (nothing
    /// is read)
    #[arg(long = "fault", value_name = "FAULT", help_heading = help::FAULTS)]
    pub(crate) faults: Vec<String>,
    /// Seed of what faults draw
    #[arg(long, default_value_t = DEFAULT_SEED, help_heading = help::FAULTS)]
    pub(crate) seed: u64,
    /// Write what was counted to this file, as a line of JSON for each second, and as the last line all of it
    #[arg(long, value_name = "FILE", help_heading = help::OUTPUT)]
    pub(crate) report: Option<PathBuf>,
}
