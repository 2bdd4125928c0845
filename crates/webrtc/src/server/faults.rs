//! Faults that the reference server injects.

use measure::units::Ratio;

use crate::sdp::MediaKind;
use kit::media::rtp::Faults;

/// Stage at which the server falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// HTTP requests and messages to rooms get no answer.
    Http,
    /// ICE checks get no answer.
    Ice,
    /// The DTLS handshake gets no answer.
    Dtls,
    /// PeerConnections are established, but no media is sent.
    Media,
    /// PeerConnections are established, but no audio is sent.
    Audio,
    /// PeerConnections are established, but no video is sent.
    Video,
}

/// Values of `silent=`.
const SILENCES: [(&str, Silence); 6] = [
    ("http", Silence::Http),
    ("ice", Silence::Ice),
    ("dtls", Silence::Dtls),
    ("media", Silence::Media),
    ("audio", Silence::Audio),
    ("video", Silence::Video),
];

/// Faults to inject. The default injects none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFaults {
    /// Faults of media sent to players, generated or forwarded. `jitter`, `delay`, `stall` and
    /// `stop` affect generated media only.
    pub media: Faults,
    /// Share of retransmissions that are dropped, from 0 to 1.
    pub retransmission_loss: f64,
    /// HTTP status with which every offer is refused. Joins of rooms are refused too.
    pub answer: Option<u16>,
    /// Stage at which the server falls silent.
    pub silent: Option<Silence>,
}

impl ServerFaults {
    /// Examples of the faults that exist in addition to those of [`Faults`].
    pub const KNOWN: [&str; 3] = ["loss-again=10%", "answer=503", "silent=http"];

    /// Adds one fault, written as for `--fault`. It replaces an earlier one of the same name.
    ///
    /// # Errors
    /// The fault is unknown (the text lists all of them), or its value is invalid.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let (name, value) = (name.trim(), value.trim());
        let result = match name {
            "loss-again" => match value.parse::<Ratio>() {
                Ok(Ratio(share)) if share <= 1.0 => {
                    self.retransmission_loss = share;
                    Ok(())
                }
                Ok(_) => Err(format!("`{value}` is more than 100%")),
                Err(error) => Err(error.to_string()),
            },
            "answer" => match value.parse() {
                Ok(status @ 400..=599) => {
                    self.answer = Some(status);
                    Ok(())
                }
                _ => Err("must be an HTTP status from 400 to 599".to_owned()),
            },
            "silent" => kit::reference::find_by_name(&SILENCES, value)
                .map(|silence| self.silent = Some(silence)),
            _ => self.media.set(name, value).unwrap_or_else(|| {
                let known = Faults::EXAMPLES.iter().chain(&Self::KNOWN);
                let known: Vec<String> = known.map(|own| format!("`{own}`")).collect();
                let known = known.join(", ");
                Err(format!("unknown fault; known faults are {known}"))
            }),
        };
        result.map_err(|error| format!("fault `{text}`: {error}"))
    }

    /// Returns true if media of this kind is not sent.
    pub(super) fn silences(&self, kind: MediaKind) -> bool {
        match self.silent {
            Some(Silence::Media) => true,
            Some(Silence::Audio) => kind == MediaKind::Audio,
            Some(Silence::Video) => kind == MediaKind::Video,
            _ => false,
        }
    }

    /// Returns the faults that are applied while media is generated.
    pub(super) fn for_generation(&self) -> Faults {
        Faults {
            loss: 0.0,
            loss_burst: None,
            duplicate: 0.0,
            reorder: None,
            ..self.media.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn faults_parse_in_their_written_form() {
        let mut faults = ServerFaults::default();
        for known in Faults::EXAMPLES.iter().chain(&ServerFaults::KNOWN) {
            faults.add(known).expect("it is known");
        }
        assert_eq!((faults.media.loss, faults.retransmission_loss), (0.01, 0.1));
        assert_eq!(faults.answer, Some(503));
        assert_eq!(faults.silent, Some(Silence::Http));
        let making = faults.for_generation();
        assert_eq!((making.loss, making.duplicate), (0.0, 0.0));
        assert_eq!(making.delay, Duration::from_millis(20));
        for wrong in ["", "lose=1%", "loss-again=101%", "answer=201", "silent=x"] {
            let error = faults.add(wrong).expect_err("it is wrong");
            assert!(error.contains(&format!("`{wrong}`")), "{error}");
        }
    }
}
