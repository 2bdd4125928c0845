//! One side of the handshake.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dimpl::{Config, Output, SrtpProfile as Profile};
use measure::Time;
use thiserror::Error;

use crate::webrtc::certificate::Certificate;
use crate::webrtc::clock::{from_library, to_library};
use crate::webrtc::srtp::{SrtpKeys, SrtpProfile};

/// The most bytes of a datagram: what fits a path of 1,280 bytes with IPv6, UDP and a relay.
const DATAGRAM_MAX: usize = 1200;

/// How often a flight is sent again. The last time is a minute away if the first is 50 ms.
const RETRANSMISSIONS: usize = 9;

/// How many different seeds there are, and how many configurations are kept.
const SEEDS: u64 = 16;
const SHARED_MAX: usize = 64;

/// Bounds of times.
const TIME_MIN: Duration = Duration::from_millis(1);
const TIME_MAX: Duration = Duration::from_secs(3600);

/// How one side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DtlsSettings {
    /// It begins.
    pub client: bool,
    /// After how long a flight is sent again for the first time. It doubles.
    pub first_retransmission: Duration,
    /// How long the handshake may take.
    pub timeout: Duration,
    /// Its random numbers, as far as they can be chosen.
    pub seed: u64,
}

/// What has happened.
#[derive(Debug)]
pub enum DtlsEvent {
    /// The other side has shown that certificate, in DER. It is not known to have its private key
    /// before there are keys.
    Certificate(Vec<u8>),
    /// The handshake is complete. `None` where it gave no keys of media that are known here.
    Completed(Option<SrtpKeys>),
    /// The other side has closed.
    Closed,
}

/// Why it failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DtlsError {
    /// The other side did not answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// It went wrong: the library's words.
    #[error("{0}")]
    Failed(String),
}

/// One side of DTLS.
#[derive(Debug)]
pub struct Dtls {
    inner: Box<dimpl::Dtls>,
    client: bool,
    deadline: Option<Time>,
    out: VecDeque<Vec<u8>>,
    /// How many of those waited before the last datagram was handled: no answer to it.
    before: usize,
    events: VecDeque<DtlsEvent>,
}

impl Dtls {
    /// A client's first flight is there at once.
    pub fn new(now: Time, certificate: &Certificate, settings: DtlsSettings) -> Dtls {
        let config = configuration(settings);
        let certificate = certificate.for_dtls();
        let inner = dimpl::Dtls::new_12(config, certificate, to_library(now));
        let mut dtls = Dtls {
            inner: Box::new(inner),
            client: settings.client,
            deadline: None,
            out: VecDeque::new(),
            before: 0,
            events: VecDeque::new(),
        };
        dtls.inner.set_active(settings.client);
        // It sends nothing before it knows the time, and fails at nothing yet.
        let _ = dtls.handle_timeout(now);
        dtls
    }

    /// Whether this side began.
    pub fn is_client(&self) -> bool {
        self.client
    }

    /// Whether what is to be sent next is of a server's last flight, which completes the handshake.
    pub fn is_server_and_done(&self) -> bool {
        let done = |event: &DtlsEvent| matches!(event, DtlsEvent::Completed(_));
        !self.client && self.before == 0 && self.events.iter().any(done)
    }

    /// Takes in a datagram. What is wrong in it without breaking the handshake is left out.
    ///
    /// # Errors
    /// The handshake, or the connection, is over.
    pub fn handle(&mut self, now: Time, bytes: &[u8]) -> Result<(), DtlsError> {
        // This may send the flight before again, which is no part of what answers the datagram.
        self.handle_timeout(now)?;
        self.before = self.out.len();
        let result = self.inner.handle_packet(bytes);
        self.drain();
        result.map_err(failure)
    }

    /// Time has gone on.
    ///
    /// # Errors
    /// The other side did not answer.
    pub fn handle_timeout(&mut self, now: Time) -> Result<(), DtlsError> {
        let result = self.inner.handle_timeout(to_library(now));
        self.drain();
        result.map_err(failure)
    }

    /// When [`Dtls::handle_timeout`] is due.
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Says to the other side that nothing more follows.
    pub fn close(&mut self) {
        // It fails where nothing is there to be closed.
        let _ = self.inner.close();
        self.drain();
    }

    /// The next datagram to be sent.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.before = self.before.saturating_sub(1);
        self.out.pop_front()
    }

    /// What has happened since the last call.
    pub fn poll_event(&mut self) -> Option<DtlsEvent> {
        self.events.pop_front()
    }

    fn drain(&mut self) {
        let mut buffer = vec![0; 2 * DATAGRAM_MAX];
        let mut completion = Completion::default();
        loop {
            let event = match self.inner.poll_output(&mut buffer) {
                Output::Packet(bytes) => {
                    self.out.push_back(bytes.to_vec());
                    continue;
                }
                Output::BufferTooSmall { needed } => {
                    buffer.resize(needed, 0);
                    continue;
                }
                Output::Timeout(at) => {
                    self.deadline = Some(from_library(at));
                    if completion.lacks_keys() {
                        self.events.push_back(DtlsEvent::Completed(None));
                    }
                    return;
                }
                Output::PeerCert(certificate) => DtlsEvent::Certificate(certificate.to_vec()),
                Output::Connected => {
                    completion.connected = true;
                    continue;
                }
                Output::KeyingMaterial(material, profile) => {
                    completion.has_keys = true;
                    let keys = own_profile(profile)
                        .and_then(|profile| SrtpKeys::exported(profile, &material, self.client));
                    DtlsEvent::Completed(keys)
                }
                Output::CloseNotify => DtlsEvent::Closed,
                // Data over DTLS is of data channels, of which there are none.
                _ => continue,
            };
            self.events.push_back(event);
        }
    }
}

/// Result of the library at the end of a handshake. If it holds no SRTP keys, the other side did
/// not agree to SRTP (`use_srtp`; RFC 5764, 4.1).
#[derive(Clone, Copy, Debug, Default)]
struct Completion {
    connected: bool,
    has_keys: bool,
}

impl Completion {
    fn lacks_keys(self) -> bool {
        self.connected && !self.has_keys
    }
}

/// The library's configuration. Making one proves its cryptography by examples, with key exchanges
/// on each curve, which costs more than a handshake: so connections share some.
fn configuration(settings: DtlsSettings) -> Arc<Config> {
    static SHARED: Mutex<Vec<(DtlsSettings, Arc<Config>)>> = Mutex::new(Vec::new());
    // What is random in the end does not depend on it: many may have the same.
    let settings = DtlsSettings {
        client: false,
        first_retransmission: settings.first_retransmission.clamp(TIME_MIN, TIME_MAX),
        timeout: settings.timeout.clamp(TIME_MIN, TIME_MAX),
        seed: settings.seed % SEEDS,
    };
    // A panic while it was locked leaves it whole: it is only added to.
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, config)) = shared.iter().find(|(known, _)| *known == settings) {
        return config.clone();
    }
    let config = Config::builder()
        .mtu(DATAGRAM_MAX)
        .flight_start_rto(settings.first_retransmission)
        .flight_retries(RETRANSMISSIONS)
        .handshake_timeout(settings.timeout)
        // ICE has proven the address: a cookie would prove it again and cost a round trip.
        .use_server_cookie(false)
        .dangerously_set_rng_seed(settings.seed)
        .build();
    let config = Arc::new(config.expect("these settings are within the library's bounds"));
    if shared.len() >= SHARED_MAX {
        shared.clear();
    }
    shared.push((settings, config.clone()));
    config
}

fn own_profile(profile: Profile) -> Option<SrtpProfile> {
    Some(match profile {
        Profile::AEAD_AES_256_GCM => SrtpProfile::AeadAes256Gcm,
        Profile::AEAD_AES_128_GCM => SrtpProfile::AeadAes128Gcm,
        Profile::AES128_CM_SHA1_80 => SrtpProfile::AesCm128HmacSha1_80,
        _ => return None,
    })
}

fn failure(error: dimpl::Error) -> DtlsError {
    match error {
        dimpl::Error::Timeout(_) => DtlsError::TimedOut,
        other => DtlsError::Failed(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands all that waits to the other side.
    fn pass(from: &mut Dtls, to: &mut Dtls, now: Time) {
        while let Some(bytes) = from.poll_transmit() {
            to.handle(now, &bytes).expect("it is in order");
        }
    }

    #[test]
    fn handshakes_complete_once_with_keys_or_without() {
        for (connected, has_keys, lacks) in [
            (false, false, false),
            (true, true, false),
            (true, false, true),
        ] {
            let completion = Completion {
                connected,
                has_keys,
            };
            assert_eq!(completion.lacks_keys(), lacks);
        }
        // The library gives both in one go.
        let certificate = Certificate::generate(1);
        let start = Time::from_nanos(1_000_000_000);
        let mut ends = [true, false].map(|client| {
            let settings = DtlsSettings {
                client,
                first_retransmission: Duration::from_millis(50),
                timeout: Duration::from_secs(10),
                seed: 1,
            };
            Dtls::new(start, &certificate, settings)
        });
        for _ in 0..4 {
            let [client, server] = &mut ends;
            pass(client, server, start);
            pass(server, client, start);
        }
        for end in &mut ends {
            let events = std::iter::from_fn(|| end.poll_event());
            let completed = events.filter(|event| matches!(event, DtlsEvent::Completed(_)));
            let has_keys: Vec<bool> = completed
                .map(|event| matches!(event, DtlsEvent::Completed(Some(_))))
                .collect();
            assert_eq!(has_keys, [true]);
        }
    }

    #[test]
    fn a_flight_that_goes_again_at_the_end_is_not_the_last_one() {
        let certificate = Certificate::generate(1);
        let start = Time::from_nanos(1_000_000_000);
        let [mut client, mut server] = [true, false].map(|client| {
            let settings = DtlsSettings {
                client,
                first_retransmission: Duration::from_millis(50),
                timeout: Duration::from_secs(10),
                seed: 1,
            };
            Dtls::new(start, &certificate, settings)
        });
        pass(&mut client, &mut server, start);
        pass(&mut server, &mut client, start);
        let mut ends: Vec<Vec<u8>> = std::iter::from_fn(|| client.poll_transmit()).collect();
        let end = ends.pop().expect("it has a flight to send");
        for bytes in ends {
            server.handle(start, &bytes).expect("it is in order");
        }
        // The client's last message comes when the server was about to ask for it.
        let late = server.deadline().expect("it waits") + Duration::from_millis(1);
        assert!(late < start + Duration::from_millis(200), "{late:?}");
        server.handle(late, &end).expect("it is in order");
        let mut is_last = Vec::new();
        loop {
            is_last.push(server.is_server_and_done());
            if server.poll_transmit().is_none() {
                break;
            }
        }
        let again = is_last.iter().take_while(|last| !**last).count();
        assert!(again > 0, "nothing goes again: {is_last:?}");
        // One datagram, and none behind it.
        assert_eq!(is_last[again..], [true, true]);
    }
}
