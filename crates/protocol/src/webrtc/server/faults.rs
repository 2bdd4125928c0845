//! What the reference server does wrong on purpose.

use measure::units::Ratio;

use crate::media::rtp::Faults;
use crate::webrtc::sdp::MediaKind;

/// Where the server falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Requests of HTTP get no answer.
    Http,
    /// Checks of ICE get none.
    Ice,
    /// The handshake of DTLS gets none.
    Dtls,
    /// PeerConnections stand, and no media comes.
    Media,
    /// The same, and no sound comes, or no pictures.
    Audio,
    /// See [`Silence::Audio`].
    Video,
}

/// What stands behind `silent=`.
const SILENCES: [(&str, Silence); 6] = [
    ("http", Silence::Http),
    ("ice", Silence::Ice),
    ("dtls", Silence::Dtls),
    ("media", Silence::Media),
    ("audio", Silence::Audio),
    ("video", Silence::Video),
];

/// What is done wrong on purpose. Nothing by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFaults {
    /// With media on its way to those who play, be it made or of a publisher. `jitter`, `delay`,
    /// `stall` and `stop` are of made media alone.
    pub media: Faults,
    /// The share of packets that are left out when they are sent again; from 0 to 1.
    pub loss_again: f64,
    /// The status with which every offer is refused.
    pub answer: Option<u16>,
    /// Where it falls silent.
    pub silent: Option<Silence>,
}

impl ServerFaults {
    /// The faults there are beside those of [`Faults`], as they are written.
    pub const KNOWN: [&str; 3] = ["loss-again=10%", "answer=503", "silent=http"];

    /// Adds one fault, as it is written after `--fault`. One that stands already is replaced.
    ///
    /// # Errors
    /// What is wrong with it, and what there is.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let (name, value) = (name.trim(), value.trim());
        let result = match name {
            "loss-again" => match value.parse::<Ratio>() {
                Ok(Ratio(share)) if share <= 1.0 => {
                    self.loss_again = share;
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
                _ => Err("it is a status of HTTP that refuses, 400 to 599".to_owned()),
            },
            "silent" => crate::reference::one_of(&SILENCES, value)
                .map(|silence| self.silent = Some(silence)),
            _ => self.media.set(name, value).unwrap_or_else(|| {
                let known = Faults::KNOWN.iter().chain(&Self::KNOWN);
                let known: Vec<String> = known.map(|own| format!("`{own}`")).collect();
                let known = known.join(", ");
                Err(format!("there is no such fault; there are {known}"))
            }),
        };
        result.map_err(|error| format!("fault `{text}`: {error}"))
    }

    /// Whether nothing of that kind comes.
    pub(super) fn silences(&self, kind: MediaKind) -> bool {
        match self.silent {
            Some(Silence::Media) => true,
            Some(Silence::Audio) => kind == MediaKind::Audio,
            Some(Silence::Video) => kind == MediaKind::Video,
            _ => false,
        }
    }

    /// Those that strike while media is made.
    pub(super) fn of_making(&self) -> Faults {
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
    fn faults_are_read_as_they_are_written() {
        let mut faults = ServerFaults::default();
        for known in Faults::KNOWN.iter().chain(&ServerFaults::KNOWN) {
            faults.add(known).expect("it is known");
        }
        assert_eq!((faults.media.loss, faults.loss_again), (0.01, 0.1));
        assert_eq!(faults.answer, Some(503));
        assert_eq!(faults.silent, Some(Silence::Http));
        let making = faults.of_making();
        assert_eq!((making.loss, making.duplicate), (0.0, 0.0));
        assert_eq!(making.delay, Duration::from_millis(20));
        for wrong in ["", "lose=1%", "loss-again=101%", "answer=201", "silent=x"] {
            let error = faults.add(wrong).expect_err("it is wrong");
            assert!(error.contains(&format!("`{wrong}`")), "{error}");
        }
    }
}
