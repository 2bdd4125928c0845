//! Scenario keys of message clients.

use std::net::IpAddr;
use std::time::Duration;

use measure::units::{Frequency, Size, TimeSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::framing::{self, DELIMITER_BYTES_MAX, LengthPrefix};
use super::template::{MESSAGE_BYTES_MAX, Template};
use kit::http1::{self, AdditionalFields};
use kit::keys::{KeyError, check_positive};
use kit::websocket::ClientHandshake;
use session::Pace;
use session::tls::TlsConfig;

/// Default message size in bytes: that of the experiment for which this protocol was made.
pub const DEFAULT_SIZE: u32 = 36;

/// Maximum number of messages per connection that wait for their answers.
pub const PENDING_MAX: usize = 1024;

/// Maximum number of steps of a greeting.
const STEPS_MAX: usize = 32;

/// Maximum number of subprotocols.
const MAX_SUBPROTOCOLS: usize = 32;

/// Maximum number of source addresses.
const MAX_SOURCES: usize = 1024;

/// Framing of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    /// No framing: a message consists of its bytes only.
    #[default]
    None,
    /// A length prefix before each message: `{bytes: 4, order: big, includes_itself: false}`.
    Length(LengthPrefix),
    /// This text after each message, such as `"\n"`.
    Delimiter(String),
}

/// Schedule of messages: exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Plan {
    /// Rounds over all connections of a worker, which start at this interval, however long one
    /// takes. `{every: 1s}` is the default.
    Every(TimeSpan),
    /// Rounds over all connections of a worker, with a sleep of this length after each, so that
    /// their rate depends on the machine; `{sleep: 0s}` is as fast as possible.
    Sleep(TimeSpan),
    /// Message rate on each connection, such as `{rate: 10/s}`, at planned times.
    Rate(Frequency),
    /// Number of messages in flight on each connection, from 1 to 1024; each answer triggers the
    /// next message.
    InFlight(u32),
}

impl Default for Plan {
    fn default() -> Plan {
        Plan::Every(TimeSpan(Duration::from_secs(1)))
    }
}

/// Returns the replacement for a key that was removed in favour of [`ClientConfig::plan`], or
/// `None` for other keys.
pub fn removed_key_advice(key: &str) -> Option<&'static str> {
    match key {
        "rounds" => Some("write `plan: { every: 100ms }` or `plan: { sleep: 100ms }`"),
        "rate" => Some("write `plan: { rate: 10/s }`"),
        "echo" => Some("write `plan: { in_flight: 1 }`"),
        _ => None,
    }
}

/// Expected answers to messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answers {
    /// No answers.
    None,
    /// Echo of the message: each answer is compared with what was sent.
    Echo,
    /// Any message; the first answer belongs to the first message.
    Any,
}

/// A step of a greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Sends this text with the framing of messages; `{counter}`, `{time}` and `{random:8}` are
    /// replaced.
    Send(String),
    /// Sends these bytes, in hexadecimal digits.
    SendHex(String),
    /// Waits for a message that contains this text; without framing, for the text itself.
    Expect(String),
    /// Waits for these bytes, in hexadecimal digits.
    ExpectHex(String),
}

/// Keys of a population of message clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// Size of each message in bytes, without framing: a counter of eight digits, followed by
    /// letters. Default 36, unless `message` or `hex` is set.
    pub size: Option<u32>,
    /// Text of each message, instead of `size`. `{counter}` (number of the message on its
    /// connection, from 1), `{counter:8}`, `{time}` (time of sending, nanoseconds since 1970) and
    /// `{random:8}` are replaced; `{{` and `}}` stand for braces.
    pub message: Option<String>,
    /// Content of each message, instead of `size`, in hexadecimal digits with optional blanks.
    pub hex: Option<String>,
    /// Framing of messages: `none` (default), `{length: {bytes: 4}}` or `{delimiter: "\n"}`. A
    /// WebSocket has its own framing.
    pub framing: Framing,
    /// Schedule of messages, one of: `{every: 100ms}`, one message on each connection in turn, in
    /// rounds that start at this interval; `{sleep: 100ms}`, the same with a sleep after each
    /// round; `{rate: 10/s}`, a message rate on each connection; `{in_flight: 1}`, a number of
    /// unanswered messages on each connection. Each worker has its own rounds. Default
    /// `{every: 1s}`.
    pub plan: Plan,
    /// Expected answers: `none` (default with `every`, `sleep` and `rate`), `echo` (default with
    /// `in_flight`) or `any`.
    pub answers: Option<Answers>,
    /// Number of messages on each connection, after which the client is complete. Default:
    /// unlimited, until the client is stopped.
    pub messages: Option<u64>,
    /// Exchange before the first message, such as a login:
    /// `[{send: "LOGIN {random:8}"}, {expect: "OK"}]`. Default: none.
    pub greeting: Vec<Step>,
    /// True if messages on a WebSocket are text. Default: true if they are valid text.
    pub websocket_text: Option<bool>,
    /// Subprotocols offered to a WebSocket server, the preferred one first, such as `[mqtt]`. The
    /// server may choose one of them, or none. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subprotocols: Vec<String>,
    /// Additional header fields of the WebSocket request, by name, such as
    /// `{Origin: "https://example.org"}`. `Authorization` and `User-Agent` replace the client's
    /// own. Default: none.
    #[serde(skip_serializing_if = "AdditionalFields::is_empty")]
    pub headers: AdditionalFields,
    /// Time limit for connecting, including name resolution. Default 5s.
    pub connect_timeout: TimeSpan,
    /// Time limit for the greeting, including the handshake of a WebSocket. Default 10s.
    pub greeting_timeout: TimeSpan,
    /// Time limit for an answer. If it is exceeded, the message counts in `answers_timed_out`, and
    /// with `in_flight` the next message follows. Default 10s.
    pub answer_timeout: TimeSpan,
    /// Time limit at the end for the server to read what is in flight and to close the connection.
    /// After that the client closes it. Default 2s.
    pub close_timeout: TimeSpan,
    /// Maximum length of a message from the server; a longer one fails with `malformed_answer`.
    /// Default 16MiB.
    pub longest_answer: Size,
    /// Local addresses from which connections are opened. If one has no ports left, the next is
    /// used. Default: the address that the routes select; for servers in 127.0.0.0/8 also 127.0.0.2
    /// and following addresses once ports run out.
    pub source_addresses: Vec<IpAddr>,
    /// TLS settings for `tls` and `wss` URLs: `{verify: false}` or `{ca: FILE}`.
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
            headers: AdditionalFields::default(),
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

impl Framing {
    /// Returns the framing for messages.
    pub fn to_wire_framing(&self) -> framing::Framing {
        match self {
            Framing::None => framing::Framing::None,
            Framing::Length(prefix) => framing::Framing::Length(*prefix),
            Framing::Delimiter(text) => framing::Framing::Delimiter(text.as_bytes().into()),
        }
    }

    /// Checks the framing. Returns the reason if it is invalid.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Framing::Length(prefix) if !matches!(prefix.bytes, 1 | 2 | 4 | 8) => {
                Err("the length prefix must have 1, 2, 4 or 8 bytes".to_owned())
            }
            Framing::Delimiter(text) if text.is_empty() || text.len() > DELIMITER_BYTES_MAX => Err(
                format!("the delimiter must have 1 to {DELIMITER_BYTES_MAX} bytes"),
            ),
            _ => Ok(()),
        }
    }
}

impl ClientConfig {
    /// Returns the template of the messages.
    ///
    /// # Errors
    /// Returns the wrong key and the reason.
    pub fn template(&self) -> Result<Template, KeyError> {
        let too_long = |length: usize| {
            format!("messages have at most {MESSAGE_BYTES_MAX} bytes, but this one has {length}")
        };
        let only_one = "only one of `message`, `hex` and `size` is allowed";
        match (&self.message, &self.hex, self.size) {
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) => Err(("message", only_one.to_owned())),
            (_, Some(_), Some(_)) => Err(("hex", only_one.to_owned())),
            (Some(text), None, None) => Template::parse(text).map_err(|error| ("message", error)),
            (None, Some(digits), None) => {
                let bytes = parse_hex(digits).map_err(|error| ("hex", error))?;
                match bytes.len() {
                    length if length > MESSAGE_BYTES_MAX => Err(("hex", too_long(length))),
                    _ => Ok(Template::from_bytes(&bytes)),
                }
            }
            (None, None, size) => match size.unwrap_or(DEFAULT_SIZE) as usize {
                size if size > MESSAGE_BYTES_MAX => Err(("size", too_long(size))),
                size => Ok(Template::with_size(size)),
            },
        }
    }

    /// Returns the pace of the messages.
    pub fn pace(&self) -> Pace {
        match self.plan {
            Plan::Every(every) => Pace::RoundEvery(every.0),
            Plan::Sleep(sleep) => Pace::RoundThenSleep(sleep.0),
            Plan::Rate(rate) => Pace::Rate(Duration::from_secs_f64((1.0 / rate.0).min(1e9))),
            Plan::InFlight(_) => Pace::OnAnswer,
        }
    }

    /// Returns the maximum number of messages per connection that wait for their answers.
    pub fn in_flight(&self) -> usize {
        match self.plan {
            Plan::InFlight(messages) => messages as usize,
            Plan::Every(_) | Plan::Sleep(_) | Plan::Rate(_) => PENDING_MAX,
        }
    }

    pub fn expected_answers(&self) -> Answers {
        let usual = match self.plan {
            Plan::InFlight(_) => Answers::Echo,
            Plan::Every(_) | Plan::Sleep(_) | Plan::Rate(_) => Answers::None,
        };
        self.answers.unwrap_or(usual)
    }

    /// Checks that the values are consistent. Otherwise returns the wrong key and the reason.
    pub fn check(&self) -> Result<(), KeyError> {
        let template = self.template()?;
        self.framing.check().map_err(|error| ("framing", error))?;
        let longest = self.framing.to_wire_framing().length_max();
        if template.length_max() as u64 > longest {
            let text = format!(
                "a message may have {} bytes, but its length prefix allows only {longest}",
                template.length_max()
            );
            return Err(("framing", text));
        }
        if template.length_max() == 0 && self.framing == Framing::None {
            return Err(("size", "an empty message needs framing".to_owned()));
        }
        self.check_plan()?;
        self.check_greeting()?;
        check_positive([
            ("connect_timeout", self.connect_timeout),
            ("greeting_timeout", self.greeting_timeout),
            ("answer_timeout", self.answer_timeout),
        ])?;
        self.check_subprotocols()
            .map_err(|text| ("subprotocols", text))?;
        let instead = |own: &str| match own {
            "Sec-WebSocket-Protocol" => Some("write `subprotocols`"),
            _ => None,
        };
        self.headers
            .check(&ClientHandshake::OWN_FIELDS, instead)
            .map_err(|text| ("headers", text))?;
        if self.source_addresses.len() > MAX_SOURCES {
            return Err((
                "source_addresses",
                format!("at most {MAX_SOURCES} are allowed"),
            ));
        }
        self.tls.check().map_err(|text| ("tls", text))
    }

    fn check_subprotocols(&self) -> Result<(), String> {
        let all = &self.subprotocols;
        if all.len() > MAX_SUBPROTOCOLS {
            return Err(format!("at most {MAX_SUBPROTOCOLS} are allowed"));
        }
        for (index, name) in all.iter().enumerate() {
            if !http1::is_token(name) {
                return Err(format!("`{name}` is not a valid subprotocol name"));
            }
            if all[..index].contains(name) {
                return Err(format!("`{name}` is listed twice"));
            }
        }
        Ok(())
    }

    fn check_plan(&self) -> Result<(), KeyError> {
        let wrong = |text: &str| Err(("plan", text.to_owned()));
        match self.plan {
            Plan::Every(every) if every.0.is_zero() => {
                return wrong(
                    "`every` must be longer than 0s; write `{sleep: 0s}` for the highest rate",
                );
            }
            Plan::Rate(rate) if !(1e-6..=1e6).contains(&rate.0) => {
                return wrong("`rate` must be from one message in 11 days to 1,000,000 per second");
            }
            Plan::InFlight(messages) if !(1..=PENDING_MAX as u32).contains(&messages) => {
                return Err((
                    "plan",
                    format!("`in_flight` must be from 1 to {PENDING_MAX}"),
                ));
            }
            Plan::InFlight(_) if self.expected_answers() == Answers::None => {
                return Err((
                    "answers",
                    "`in_flight` needs answers other than `none`".to_owned(),
                ));
            }
            _ => {}
        }
        if self.messages == Some(0) {
            return Err(("messages", "`messages` must be at least 1".to_owned()));
        }
        Ok(())
    }

    fn check_greeting(&self) -> Result<(), KeyError> {
        let wrong = |error: String| ("greeting", error);
        if self.greeting.len() > STEPS_MAX {
            return Err(wrong(format!("a greeting has at most {STEPS_MAX} steps")));
        }
        for step in &self.greeting {
            match step {
                Step::Send(text) => drop(Template::parse(text).map_err(wrong)?),
                Step::SendHex(digits) => drop(parse_hex(digits).map_err(wrong)?),
                Step::Expect(text) if text.is_empty() => {
                    return Err(wrong("expected bytes must not be empty".to_owned()));
                }
                Step::Expect(_) => {}
                Step::ExpectHex(digits) => {
                    if parse_hex(digits).map_err(wrong)?.is_empty() {
                        return Err(wrong("expected bytes must not be empty".to_owned()));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Parses hexadecimal digits, ignoring blanks.
///
/// # Errors
/// Returns the reason if they are invalid.
pub fn parse_hex(text: &str) -> Result<Vec<u8>, String> {
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
        Some(_) => Err("the number of hexadecimal digits is odd".to_owned()),
        None => Err("write hexadecimal digits, such as `00 ff 1a`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::framing::Order;
    use super::*;

    fn read(text: &str) -> Result<ClientConfig, String> {
        let config: ClientConfig = serde_json::from_str(text).map_err(|error| error.to_string())?;
        config.check().map_err(|(key, _)| key.to_owned())?;
        Ok(config)
    }

    #[test]
    fn keys_survive_a_round_trip() {
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
        assert_eq!(config.expected_answers(), Answers::Any);
        let written = serde_json::to_string(&config).expect("plain data");
        assert_eq!(read(&written), Ok(config));
        let usual = read("{}").expect("valid");
        assert_eq!(usual, ClientConfig::default());
        assert_eq!(usual.template().map(|template| template.length(1)), Ok(36));
        assert_eq!(usual.pace(), Pace::RoundEvery(Duration::from_secs(1)));
        assert_eq!(usual.expected_answers(), Answers::None);
        let echo = read(r#"{"plan":{"in_flight":1}}"#).expect("valid");
        assert_eq!(
            (echo.pace(), echo.expected_answers()),
            (Pace::OnAnswer, Answers::Echo)
        );
        let both = read(r#"{"subprotocols":["a","b"],"headers":{"Origin":"https://o"}}"#);
        let both = both.expect("valid");
        let written = serde_json::to_string(&both).expect("plain data");
        assert_eq!(read(&written), Ok(both));
        let sleep = read(r#"{"plan":{"sleep":"0s"}}"#).expect("valid");
        assert_eq!(sleep.pace(), Pace::RoundThenSleep(Duration::ZERO));
    }

    #[test]
    fn invalid_values_are_rejected_by_key() {
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
