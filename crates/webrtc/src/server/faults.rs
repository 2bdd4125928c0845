//! Faults that the reference server injects.

use crate::sdp::MediaKind;
use kit::faults::{FaultSet, one_of, share};
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

impl FaultSet for ServerFaults {
    fn known() -> Vec<&'static str> {
        let own = ["loss-again=10%", "answer=503", "silent=http"];
        Faults::EXAMPLES.into_iter().chain(own).collect()
    }

    fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        Some(match name {
            "loss-again" => share(value).map(|share| self.retransmission_loss = share),
            "answer" => match value.parse() {
                Ok(status @ 400..=599) => {
                    self.answer = Some(status);
                    Ok(())
                }
                _ => Err("must be an HTTP status from 400 to 599".to_owned()),
            },
            "silent" => one_of(&SILENCES, value).map(|silence| self.silent = Some(silence)),
            _ => return self.media.set(name, value),
        })
    }
}

impl ServerFaults {
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
        for known in ServerFaults::known() {
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
