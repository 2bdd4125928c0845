//! Parser of Janus' messages.

use serde_json::Value;

use crate::failure::Failure;

/// Message of Janus.
#[derive(Clone, Debug, PartialEq)]
pub struct JanusMessage {
    /// Number of the request that it answers.
    pub transaction: Option<u64>,
    /// Id of the handle that it is about.
    pub sender: Option<u64>,
    pub content: MessageContent,
}

#[derive(Clone, Debug, PartialEq)]
pub enum MessageContent {
    /// The request is being processed.
    Ack,
    /// The request succeeded.
    Success {
        /// Id of the session or handle that was created.
        id: Option<u64>,
        /// Data of the plug-in.
        data: Value,
    },
    /// Janus itself refused the request.
    Error {
        code: u64,
        /// Explanation of the server.
        reason: String,
    },
    /// Event of a plug-in, in answer to a request or unsolicited.
    Event {
        /// Data of the plug-in.
        data: Value,
        /// Session description that comes with it.
        jsep: Option<Jsep>,
    },
    /// Many packets were lost recently.
    SlowLink {
        /// True for packets that Janus sends, as seen from Janus (`slow_link` in its plugin.h).
        uplink: bool,
        /// Number of lost packets.
        lost: u64,
    },
    /// The PeerConnection was hung up.
    HangUp {
        /// Reason given by Janus.
        reason: String,
    },
    /// The session timed out, because Janus received nothing.
    Timeout,
    /// Candidate of Janus, or `None` after the last one.
    Trickle(Option<String>),
    /// Another kind of message, such as `webrtcup`, `media` or `detached`.
    Other,
}

/// Session description of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jsep {
    /// True for an offer, false for an answer.
    pub is_offer: bool,
    pub sdp: String,
}

/// Takes the data of the plug-in out of a message. Looks it up by a pointer, because indexing a
/// value that is no object would panic.
fn plugin_data(message: &mut Value) -> Value {
    let data = message.pointer_mut("/plugindata/data");
    data.map(Value::take).unwrap_or_default()
}

impl JanusMessage {
    /// Parses a message.
    ///
    /// # Errors
    /// Description of what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<JanusMessage, String> {
        JanusMessage::from_json(serde_json::from_slice(bytes).map_err(|error| error.to_string())?)
    }

    /// Interprets a message that was parsed as JSON.
    ///
    /// # Errors
    /// Description of what is wrong with it.
    pub fn from_json(mut value: Value) -> Result<JanusMessage, String> {
        let kind = value["janus"]
            .as_str()
            .ok_or("the message has no `janus`")?;
        let number = |value: &Value, key: &str| value[key].as_u64();
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let content = match kind {
            "ack" => MessageContent::Ack,
            "success" => MessageContent::Success {
                id: number(&value["data"], "id"),
                data: plugin_data(&mut value),
            },
            "error" => MessageContent::Error {
                code: number(&value["error"], "code").unwrap_or(0),
                reason: text(&value["error"], "reason"),
            },
            "event" => MessageContent::Event {
                jsep: Jsep::take_from(&mut value["jsep"])?,
                data: plugin_data(&mut value),
            },
            "slowlink" => MessageContent::SlowLink {
                uplink: value["uplink"].as_bool().unwrap_or(false),
                lost: number(&value, "lost").unwrap_or(0),
            },
            "hangup" => MessageContent::HangUp {
                reason: text(&value, "reason"),
            },
            "timeout" => MessageContent::Timeout,
            "trickle" => {
                let candidate = &value["candidate"]["candidate"];
                MessageContent::Trickle(candidate.as_str().map(str::to_owned))
            }
            _ => MessageContent::Other,
        };
        let transaction = value["transaction"].as_str();
        Ok(JanusMessage {
            transaction: transaction.and_then(|text| text.parse().ok()),
            sender: number(&value, "sender"),
            content,
        })
    }
}

impl Jsep {
    fn take_from(value: &mut Value) -> Result<Option<Jsep>, String> {
        if value.is_null() {
            return Ok(None);
        }
        let is_offer = match value["type"].as_str() {
            Some("offer") => true,
            Some("answer") => false,
            _ => return Err("`jsep` is neither an offer nor an answer".to_owned()),
        };
        match value["sdp"].take() {
            Value::String(sdp) => Ok(Some(Jsep { is_offer, sdp })),
            _ => Err("`jsep` has no `sdp`".to_owned()),
        }
    }
}

/// Returns the error code and text of a plug-in, if it states one.
pub(super) fn plugin_error(data: &Value) -> Option<(u64, String)> {
    let code = data["error_code"].as_u64()?;
    let text = data["error"].as_str().unwrap_or_default();
    Some((code, text.to_owned()))
}

/// Error code for a mount point that does not exist (`JANUS_STREAMING_ERROR_NO_SUCH_MOUNTPOINT`).
pub(super) const NO_SUCH_MOUNTPOINT: u64 = 455;

/// Returns the failure for an error of the Streaming plug-in (`JANUS_STREAMING_ERROR_...`). Other
/// errors of Janus have the same numbers.
pub(super) fn streaming_failure(code: u64) -> Failure {
    match code {
        NO_SUCH_MOUNTPOINT => Failure::NotFound,
        // The mount point cannot be created, mostly because its number is taken.
        456 => Failure::Conflict,
        457 => Failure::Unauthorized,
        461 => Failure::OfferRefused,
        470 => Failure::ServerError,
        _ => Failure::OtherRefusal,
    }
}

/// Returns the failure for an error of Janus or of its VideoRoom plug-in.
pub(super) fn janus_failure(code: u64) -> Failure {
    match code {
        // JANUS_ERROR_UNAUTHORIZED, and those of the plug-in.
        403 | 405 | 433 => Failure::Unauthorized,
        // Unknown room or feed.
        426 | 428 => Failure::NotFound,
        // The room is full.
        432 => Failure::Overloaded,
        // Unusable description: JANUS_ERROR_JSEP_UNKNOWN_TYPE, _INVALID_SDP, and those of the
        // plug-ins.
        435 | 437 | 464 | 465 => Failure::OfferRefused,
        // JANUS_ERROR_SESSION_NOT_FOUND, _HANDLE_NOT_FOUND.
        458 | 459 => Failure::SessionTimeout,
        // JANUS_ERROR_UNKNOWN, and those of the plug-ins.
        490 | 499 => Failure::ServerError,
        _ => Failure::OtherRefusal,
    }
}
