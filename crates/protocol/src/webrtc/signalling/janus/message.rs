//! What Janus says, taken apart.

use serde_json::Value;

use crate::webrtc::failure::Failure;

/// A message of Janus.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The request that it answers, as we numbered it.
    pub transaction: Option<u64>,
    /// The handle that it is about.
    pub sender: Option<u64>,
    /// What it is.
    pub kind: Kind,
}

/// What a message is.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// The request is being worked on.
    Ack,
    /// The request was done.
    Success {
        /// The session or the handle that was made.
        id: Option<u64>,
        /// What the plug-in says.
        data: Value,
    },
    /// The request was refused by Janus itself.
    Error {
        /// By which code.
        code: u64,
        /// Why, in words.
        reason: String,
    },
    /// A plug-in says something, as an answer or by itself.
    Event {
        /// What.
        data: Value,
        /// A description that goes with it.
        jsep: Option<Jsep>,
    },
    /// The PeerConnection stands, as Janus sees it.
    WebrtcUp,
    /// Media of ours comes at Janus, or comes no more.
    Media {
        /// Whether it comes.
        receiving: bool,
        /// Which.
        kind: String,
    },
    /// Much was lost lately.
    SlowLink {
        /// Whether on the way to Janus.
        uplink: bool,
        /// How many packets.
        lost: u64,
    },
    /// The PeerConnection is over.
    HangUp {
        /// Why.
        reason: String,
    },
    /// The handle is gone.
    Detached,
    /// The session is gone: nothing was heard of us.
    Timeout,
    /// An address of Janus; none where there are no more.
    Trickle(Option<String>),
    /// Something else.
    Other(String),
}

/// A description of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jsep {
    /// Whether it is an offer; else it is an answer.
    pub is_offer: bool,
    /// The description.
    pub sdp: String,
}

/// What a plug-in says, whatever stands in its place: to index what is no object would panic.
fn plugin_data(message: &mut Value) -> Value {
    let data = message.pointer_mut("/plugindata/data");
    data.map(Value::take).unwrap_or_default()
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Message, String> {
        Message::of(serde_json::from_slice(bytes).map_err(|error| error.to_string())?)
    }

    /// The same, read as JSON already.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(mut value: Value) -> Result<Message, String> {
        let kind = value["janus"].as_str().ok_or("it has no `janus`")?;
        let number = |value: &Value, key: &str| value[key].as_u64();
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let kind = match kind {
            "ack" => Kind::Ack,
            "success" => Kind::Success {
                id: number(&value["data"], "id"),
                data: plugin_data(&mut value),
            },
            "error" => Kind::Error {
                code: number(&value["error"], "code").unwrap_or(0),
                reason: text(&value["error"], "reason"),
            },
            "event" => Kind::Event {
                jsep: Jsep::take(&mut value["jsep"])?,
                data: plugin_data(&mut value),
            },
            "webrtcup" => Kind::WebrtcUp,
            "media" => Kind::Media {
                receiving: value["receiving"].as_bool().unwrap_or(false),
                kind: text(&value, "type"),
            },
            "slowlink" => Kind::SlowLink {
                uplink: value["uplink"].as_bool().unwrap_or(false),
                lost: number(&value, "lost").unwrap_or(0),
            },
            "hangup" => Kind::HangUp {
                reason: text(&value, "reason"),
            },
            "detached" => Kind::Detached,
            "timeout" => Kind::Timeout,
            "trickle" => {
                let candidate = &value["candidate"]["candidate"];
                Kind::Trickle(candidate.as_str().map(str::to_owned))
            }
            other => Kind::Other(other.chars().take(40).collect()),
        };
        let transaction = value["transaction"].as_str();
        Ok(Message {
            transaction: transaction.and_then(|text| text.parse().ok()),
            sender: number(&value, "sender"),
            kind,
        })
    }
}

impl Jsep {
    fn take(value: &mut Value) -> Result<Option<Jsep>, String> {
        if value.is_null() {
            return Ok(None);
        }
        let is_offer = match value["type"].as_str() {
            Some("offer") => true,
            Some("answer") => false,
            _ => return Err("a `jsep` that is neither an offer nor an answer".to_owned()),
        };
        match value["sdp"].take() {
            Value::String(sdp) => Ok(Some(Jsep { is_offer, sdp })),
            _ => Err("a `jsep` without `sdp`".to_owned()),
        }
    }
}

/// The error of a plug-in, where it states one.
pub(super) fn plugin_error(data: &Value) -> Option<(u64, String)> {
    let code = data["error_code"].as_u64()?;
    let text = data["error"].as_str().unwrap_or_default();
    Some((code, text.to_owned()))
}

/// There is no such mount point (`JANUS_STREAMING_ERROR_NO_SUCH_MOUNTPOINT`).
pub(super) const NO_SUCH: u64 = 455;

/// Why a client fails by an error of the Streaming plug-in (`JANUS_STREAMING_ERROR_...`), whose
/// numbers are also those of other errors of Janus.
pub(super) fn of_streaming_error(code: u64) -> Failure {
    match code {
        NO_SUCH => Failure::NotFound,
        // It cannot be made: mostly there is one of that number.
        456 => Failure::Conflict,
        457 => Failure::Unauthorized,
        461 => Failure::OfferRefused,
        470 => Failure::ServerError,
        _ => Failure::Refused,
    }
}

/// Why a client fails by an error of Janus or of its VideoRoom.
pub(super) fn of_error(code: u64) -> Failure {
    match code {
        // JANUS_ERROR_UNAUTHORIZED, and of the plug-in.
        403 | 405 | 433 => Failure::Unauthorized,
        // No such room or feed.
        426 | 428 => Failure::NotFound,
        // The room is full.
        432 => Failure::Overloaded,
        // The description will not do: JANUS_ERROR_JSEP_UNKNOWN_TYPE, _INVALID_SDP, and of the
        // plug-ins.
        435 | 437 | 464 | 465 => Failure::OfferRefused,
        // JANUS_ERROR_SESSION_NOT_FOUND, _HANDLE_NOT_FOUND.
        458 | 459 => Failure::SessionTimeout,
        // JANUS_ERROR_UNKNOWN, and of the plug-ins.
        490 | 499 => Failure::ServerError,
        _ => Failure::Refused,
    }
}
