//! What can be asked of clients of messages.

use clap::Args;
use protocol::reference::unescaped;
use scenario::OptionSetting;

use super::help;

/// What messages are sent, to URLs of tcp, tls, ws, wss and unix.
#[derive(Debug, Args)]
pub(crate) struct Messaging {
    /// Bytes of each message [default: 36]
    #[arg(long, value_name = "BYTES", conflicts_with = "message", help_heading = help::MESSAGES, hide_short_help = true)]
    pub(crate) size: Option<String>,
    /// Text of each message, in which {counter}, {time} and {random:8} are filled in
    #[arg(long, value_name = "TEXT", help_heading = help::MESSAGES, hide_short_help = true)]
    pub(crate) message: Option<String>,
    /// One message on each connection in turn; a round begins so often, by planned times [default:
    /// 1s]
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
