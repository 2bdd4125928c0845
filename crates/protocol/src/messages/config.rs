//! The keys that a scenario may set for clients of messages.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use measure::units::{Frequency, Size, TimeSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::frame::{self, LengthPrefix, MAX_DELIMITER};
use super::template::{MAX_MESSAGE, Template};
use crate::http1;
use crate::session::Pace;
use crate::tls::TlsConfig;
use crate::websocket::Upgrade;

/// How many bytes a message has where nothing is said of it: those of the experiment that this
/// protocol was made for.
pub const DEFAULT_SIZE: u32 = 36;

/// The most messages that may wait for their answers on a connection.
pub const MAX_PENDING: usize = 1024;

/// The most steps of a greeting.
const MAX_STEPS: usize = 32;

/// The most subprotocols that are offered.
const MAX_SUBPROTOCOLS: usize = 32;

/// The most source addresses.
const MAX_SOURCES: usize = 1024;

/// How messages are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    /// By nothing: a message is its bytes.
    #[default]
    None,
    /// By a number before each: `{bytes: 4, order: big, includes_itself: false}`.
    Length(LengthPrefix),
    /// By this text after each, such as `"\n"`.
    Delimiter(String),
}

/// When messages are sent: exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Plan {
    /// In rounds over all connections of a worker: one begins so often, by planned times, however
    /// long one takes. `{every: 1s}` is the default.
    Every(TimeSpan),
    /// In rounds, with so long a sleep after the end of each, so that they come as the machine lets
    /// them; `{sleep: 0s}` is as fast as it can.
    Sleep(TimeSpan),
    /// So many on each connection, such as `{rate: 10/s}`, by planned times.
    Rate(Frequency),
    /// So many wait for their answers on each connection, 1 to 1024; each answer lets the next
    /// leave.
    InFlight(u32),
}

impl Default for Plan {
    fn default() -> Plan {
        Plan::Every(TimeSpan(Duration::from_secs(1)))
    }
}

/// What to write in place of a key that populations of messages had before there was
/// [`ClientConfig::plan`]. None where it was none.
pub fn former_key(key: &str) -> Option<&'static str> {
    match key {
        "rounds" => Some("write `plan: { every: 100ms }` or `plan: { sleep: 100ms }`"),
        "rate" => Some("write `plan: { rate: 10/s }`"),
        "echo" => Some("write `plan: { in_flight: 1 }`"),
        _ => None,
    }
}

/// What answers a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answers {
    /// Nothing does.
    None,
    /// The same message: each is compared with what was sent.
    Echo,
    /// Any message, the first for the first.
    Any,
}

/// A step of a greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Sends this, framed as messages are; `{counter}`, `{time}` and `{random:8}` are filled in.
    Send(String),
    /// The same in hexadecimal digits.
    SendHex(String),
    /// Waits for a message that holds this text. Without framing: until it has come.
    Expect(String),
    /// The same in hexadecimal digits.
    ExpectHex(String),
}

/// Keys of a population of messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// How many bytes each message has, framing not counted: a counter of eight digits, and
    /// letters. Default 36, where neither `message` nor `hex` is written.
    pub size: Option<u32>,
    /// What each message is, instead of `size`: text in which `{counter}` (its number on its
    /// connection, from 1), `{counter:8}`, `{time}` (when it was sent, nanoseconds since 1970) and
    /// `{random:8}` are filled in, and `{{` and `}}` are braces.
    pub message: Option<String>,
    /// What each message is, instead of `size`, in hexadecimal digits, which may have blanks
    /// between them.
    pub hex: Option<String>,
    /// How messages are told apart: `none` (default), `{length: {bytes: 4}}` or
    /// `{delimiter: "\n"}`. A WebSocket frames its messages itself.
    pub framing: Framing,
    /// When messages are sent, one of: `{every: 100ms}`, one on each connection in turn, and a
    /// round begins so often; `{sleep: 100ms}`, the same with a sleep after each round;
    /// `{rate: 10/s}`, so many on each connection; `{in_flight: 1}`, so many wait for their answers
    /// on each connection. Each worker goes its own rounds. Default `{every: 1s}`.
    pub plan: Plan,
    /// What answers a message: `none` (default with `every`, `sleep` and `rate`), `echo` (default
    /// with `in_flight`) or `any`.
    pub answers: Option<Answers>,
    /// How many messages are sent on each connection; then the client has completed. Default: until
    /// it is stopped.
    pub messages: Option<u64>,
    /// What comes before the first message, such as a login:
    /// `[{send: "LOGIN {random:8}"}, {expect: "OK"}]`. Default nothing.
    pub greeting: Vec<Step>,
    /// Whether messages on a WebSocket are text. Default true where they are valid text.
    pub websocket_text: Option<bool>,
    /// Subprotocols that are offered to the server of a WebSocket, the preferred one first, such as
    /// `[mqtt]`. The server may choose one of them, or none. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subprotocols: Vec<String>,
    /// Further header fields of the request for a WebSocket, by their names, such as
    /// `{Origin: "https://example.org"}`. `Authorization` and `User-Agent` stand in place of what
    /// is sent without them. Default none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How long connecting may take, looking up the name included. Default 5s.
    pub connect_timeout: TimeSpan,
    /// How long the greeting may take, the handshake of a WebSocket included. Default 10s.
    pub greeting_timeout: TimeSpan,
    /// After how long an answer is given up: it counts in `answers_timed_out`, and with `in_flight`
    /// the next message follows. Default 10s.
    pub answer_timeout: TimeSpan,
    /// How long the server may take at the end to read what is on its way and to close the
    /// connection; then it is closed from here. Default 2s.
    pub close_timeout: TimeSpan,
    /// Up to how many bytes a message from the server is taken; a longer one is `malformed_answer`.
    /// Default 16MiB.
    pub longest_answer: Size,
    /// The addresses of this machine that connections come from; when one has no ports left, the
    /// next. Default: as this machine's routes have it, and to an address of 127.0.0.0/8 also
    /// 127.0.0.2 and on, when ports run out.
    pub source_addresses: Vec<IpAddr>,
    /// How TLS is spoken with URLs of `tls` and `wss`: `{verify: false}`, or `{ca: FILE}`.
    pub tls: TlsConfig,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        let seconds = |seconds| TimeSpan(Duration::from_secs(seconds));
        ClientConfig {
            size: None,
            message: None,
            hex: None,
            framing: Framing::None,
            plan: Plan::default(),
            answers: None,
            messages: None,
            greeting: Vec::new(),
            websocket_text: None,
            subprotocols: Vec::new(),
            headers: BTreeMap::new(),
            connect_timeout: seconds(5),
            greeting_timeout: seconds(10),
            answer_timeout: seconds(10),
            close_timeout: seconds(2),
            longest_answer: Size(16 << 20),
            source_addresses: Vec::new(),
            tls: TlsConfig::default(),
        }
    }
}

/// What is wrong with a key.
type Wrong = (&'static str, String);

impl Framing {
    /// As messages are framed.
    pub fn made(&self) -> frame::Framing {
        match self {
            Framing::None => frame::Framing::None,
            Framing::Length(prefix) => frame::Framing::Length(*prefix),
            Framing::Delimiter(text) => frame::Framing::Delimiter(text.as_bytes().into()),
        }
    }

    /// Whether it makes sense; if not, why.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Framing::Length(prefix) if !matches!(prefix.bytes, 1 | 2 | 4 | 8) => {
                Err("the number before a message has 1, 2, 4 or 8 bytes".to_owned())
            }
            Framing::Delimiter(text) if text.is_empty() || text.len() > MAX_DELIMITER => {
                Err(format!("a delimiter has 1 to {MAX_DELIMITER} bytes"))
            }
            _ => Ok(()),
        }
    }
}

impl ClientConfig {
    /// What messages are made from.
    ///
    /// # Errors
    /// Which key is wrong, and why.
    pub fn template(&self) -> Result<Template, Wrong> {
        let too_long = |length: usize| {
            format!("messages have at most {MAX_MESSAGE} bytes, and this one {length}")
        };
        match (&self.message, &self.hex, self.size) {
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) => Err((
                "message",
                "one of `message`, `hex` and `size` says what a message is".to_owned(),
            )),
            (_, Some(_), Some(_)) => Err((
                "hex",
                "one of `message`, `hex` and `size` says what a message is".to_owned(),
            )),
            (Some(text), None, None) => Template::parse(text).map_err(|error| ("message", error)),
            (None, Some(digits), None) => {
                let bytes = hex(digits).map_err(|error| ("hex", error))?;
                match bytes.len() {
                    length if length > MAX_MESSAGE => Err(("hex", too_long(length))),
                    _ => Ok(Template::of_bytes(&bytes)),
                }
            }
            (None, None, size) => match size.unwrap_or(DEFAULT_SIZE) as usize {
                size if size > MAX_MESSAGE => Err(("size", too_long(size))),
                size => Ok(Template::of_size(size)),
            },
        }
    }

    /// By what messages are planned.
    pub fn pace(&self) -> Pace {
        match self.plan {
            Plan::Every(every) => Pace::Every(every.0),
            Plan::Sleep(sleep) => Pace::Sleep(sleep.0),
            Plan::Rate(rate) => Pace::Rate(Duration::from_secs_f64((1.0 / rate.0).min(1e9))),
            Plan::InFlight(_) => Pace::Answers,
        }
    }

    /// How many messages may wait for their answers on a connection.
    pub fn in_flight(&self) -> usize {
        match self.plan {
            Plan::InFlight(messages) => messages as usize,
            Plan::Every(_) | Plan::Sleep(_) | Plan::Rate(_) => MAX_PENDING,
        }
    }

    /// What answers a message.
    pub fn expects(&self) -> Answers {
        let usual = match self.plan {
            Plan::InFlight(_) => Answers::Echo,
            Plan::Every(_) | Plan::Sleep(_) | Plan::Rate(_) => Answers::None,
        };
        self.answers.unwrap_or(usual)
    }

    /// Whether these values make sense together; if not, which key is wrong, and why.
    pub fn check(&self) -> Result<(), Wrong> {
        let template = self.template()?;
        self.framing.check().map_err(|error| ("framing", error))?;
        let longest = self.framing.made().longest();
        if template.longest() as u64 > longest {
            let text = format!(
                "a message may have {} bytes, and its length has room for {longest}",
                template.longest()
            );
            return Err(("framing", text));
        }
        if template.longest() == 0 && self.framing == Framing::None {
            return Err(("size", "a message without bytes needs framing".to_owned()));
        }
        self.check_plan()?;
        self.check_greeting()?;
        for (key, span) in [
            ("connect_timeout", self.connect_timeout),
            ("greeting_timeout", self.greeting_timeout),
            ("answer_timeout", self.answer_timeout),
        ] {
            if span.0.is_zero() {
                return Err((key, format!("`{key}` must be longer than nothing")));
            }
        }
        self.check_subprotocols()
            .map_err(|text| ("subprotocols", text))?;
        let instead = |own: &str| match own {
            "Sec-WebSocket-Protocol" => Some("write `subprotocols`"),
            _ => None,
        };
        http1::check_further(&self.headers, &Upgrade::OWN_FIELDS, instead)
            .map_err(|text| ("headers", text))?;
        if self.source_addresses.len() > MAX_SOURCES {
            return Err((
                "source_addresses",
                format!("there may be {MAX_SOURCES} at most"),
            ));
        }
        self.tls.check().map_err(|text| ("tls", text))
    }

    fn check_subprotocols(&self) -> Result<(), String> {
        let all = &self.subprotocols;
        if all.len() > MAX_SUBPROTOCOLS {
            return Err(format!("there may be {MAX_SUBPROTOCOLS} at most"));
        }
        for (place, name) in all.iter().enumerate() {
            if !http1::is_token(name) {
                return Err(format!("`{name}` cannot be the name of a subprotocol"));
            }
            if all[..place].contains(name) {
                return Err(format!("`{name}` is in the list twice"));
            }
        }
        Ok(())
    }

    fn check_plan(&self) -> Result<(), Wrong> {
        let wrong = |text: &str| Err(("plan", text.to_owned()));
        match self.plan {
            Plan::Every(every) if every.0.is_zero() => {
                return wrong(
                    "rounds must be apart by more than nothing; as fast as can be is `{sleep: 0s}`",
                );
            }
            Plan::Rate(rate) if !(1e-6..=1e6).contains(&rate.0) => {
                return wrong("a connection has from one message in 11 days to 1,000,000 a second");
            }
            Plan::InFlight(messages) if !(1..=MAX_PENDING as u32).contains(&messages) => {
                return Err(("plan", format!("`in_flight` is from 1 to {MAX_PENDING}")));
            }
            Plan::InFlight(_) if self.expects() == Answers::None => {
                return Err((
                    "answers",
                    "`in_flight` waits for answers, and these are none".to_owned(),
                ));
            }
            _ => {}
        }
        if self.messages == Some(0) {
            return Err(("messages", "at least one message is sent".to_owned()));
        }
        Ok(())
    }

    fn check_greeting(&self) -> Result<(), Wrong> {
        let wrong = |error: String| ("greeting", error);
        if self.greeting.len() > MAX_STEPS {
            return Err(wrong(format!("it has at most {MAX_STEPS} steps")));
        }
        for step in &self.greeting {
            match step {
                Step::Send(text) => drop(Template::parse(text).map_err(wrong)?),
                Step::SendHex(digits) => drop(hex(digits).map_err(wrong)?),
                Step::Expect(text) if text.is_empty() => {
                    return Err(wrong("what is expected must not be empty".to_owned()));
                }
                Step::Expect(_) => {}
                Step::ExpectHex(digits) => {
                    if hex(digits).map_err(wrong)?.is_empty() {
                        return Err(wrong("what is expected must not be empty".to_owned()));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The bytes that hexadecimal digits stand for; blanks between them are left out.
///
/// # Errors
/// What is wrong with them.
pub fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 => Ok(digits
            .chunks(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect()),
        Some(_) => Err("hexadecimal digits come in pairs".to_owned()),
        None => Err("write hexadecimal digits, such as `00 ff 1a`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::Order;
    use super::*;

    fn read(text: &str) -> Result<ClientConfig, String> {
        let config: ClientConfig = serde_json::from_str(text).map_err(|error| error.to_string())?;
        config.check().map_err(|(key, _)| key.to_owned())?;
        Ok(config)
    }

    #[test]
    fn keys_are_read_and_written_again() {
        let config = read(
            r#"{"message":"{counter} {time}","framing":{"length":{"bytes":4,"order":"little"}},"plan":{"rate":"10/s"},"answers":"any",
                "greeting":[{"send":"HELLO"},{"expect":"OK"}],"source_addresses":["127.0.0.2"]}"#,
        )
        .expect("valid");
        let prefix = LengthPrefix {
            bytes: 4,
            order: Order::Little,
            includes_itself: false,
        };
        assert_eq!(config.framing, Framing::Length(prefix));
        assert_eq!(config.pace(), Pace::Rate(Duration::from_millis(100)));
        assert_eq!(config.expects(), Answers::Any);
        let written = serde_json::to_string(&config).expect("plain data");
        assert_eq!(read(&written), Ok(config));
        let usual = read("{}").expect("valid");
        assert_eq!(usual, ClientConfig::default());
        assert_eq!(usual.template().map(|template| template.length(1)), Ok(36));
        assert_eq!(usual.pace(), Pace::Every(Duration::from_secs(1)));
        assert_eq!(usual.expects(), Answers::None);
        let echo = read(r#"{"plan":{"in_flight":1}}"#).expect("valid");
        assert_eq!(
            (echo.pace(), echo.expects()),
            (Pace::Answers, Answers::Echo)
        );
        let both = read(r#"{"subprotocols":["a","b"],"headers":{"Origin":"https://o"}}"#);
        let both = both.expect("valid");
        let written = serde_json::to_string(&both).expect("plain data");
        assert_eq!(read(&written), Ok(both));
        let sleep = read(r#"{"plan":{"sleep":"0s"}}"#).expect("valid");
        assert_eq!(sleep.pace(), Pace::Sleep(Duration::ZERO));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_key() {
        for (wrong, key) in [
            (r#"{"size":5,"hex":"00"}"#, "hex"),
            (r#"{"size":5,"message":"a"}"#, "message"),
            (r#"{"message":"{x}"}"#, "message"),
            (r#"{"hex":"0"}"#, "hex"),
            (r#"{"hex":"0g"}"#, "hex"),
            (r#"{"size":0}"#, "size"),
            (r#"{"size":2000000}"#, "size"),
            (
                r#"{"size":300,"framing":{"length":{"bytes":1}}}"#,
                "framing",
            ),
            (r#"{"framing":{"length":{"bytes":3}}}"#, "framing"),
            (r#"{"framing":{"delimiter":""}}"#, "framing"),
            (r#"{"plan":{"every":"0s"}}"#, "plan"),
            (r#"{"plan":{"rate":"0/s"}}"#, "plan"),
            (r#"{"plan":{"in_flight":0}}"#, "plan"),
            (r#"{"plan":{"in_flight":1025}}"#, "plan"),
            (r#"{"plan":{"in_flight":1},"answers":"none"}"#, "answers"),
            (r#"{"messages":0}"#, "messages"),
            (r#"{"greeting":[{"expect":""}]}"#, "greeting"),
            (r#"{"greeting":[{"send_hex":"x"}]}"#, "greeting"),
            (r#"{"answer_timeout":"0s"}"#, "answer_timeout"),
            (r#"{"subprotocols":["a b"]}"#, "subprotocols"),
            (r#"{"subprotocols":[""]}"#, "subprotocols"),
            (r#"{"subprotocols":["a","b","a"]}"#, "subprotocols"),
            (r#"{"headers":{"a b":"c"}}"#, "headers"),
            (r#"{"headers":{"a":"c\nd"}}"#, "headers"),
            (r#"{"headers":{"upgrade":"h2c"}}"#, "headers"),
            (r#"{"headers":{"sec-websocket-protocol":"a"}}"#, "headers"),
        ] {
            assert_eq!(read(wrong), Err(key.to_owned()), "{wrong}");
        }
        for wrong in [
            r#"{"framing":{"lenght":{"bytes":1}}}"#,
            r#"{"plan":{}}"#,
            r#"{"plan":{"every":"1s","rate":"1/s"}}"#,
            r#"{"rounds":{"every":"1s"}}"#,
            r#"{"rate":"1/s"}"#,
            r#"{"echo":{}}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
