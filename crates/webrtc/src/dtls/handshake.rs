//! One side of a DTLS connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dimpl::{Config, Output, SrtpProfile as Profile};
use measure::Time;

use crate::certificate::Certificate;
use crate::clock::{from_instant, to_instant};
use crate::peer::PeerFailure;
use crate::srtp::{SrtpKeys, SrtpProfile};

/// Maximum size of a datagram, in bytes. It fits a path MTU of 1,280 bytes with IPv6, UDP and a
/// relay.
const DATAGRAM_MAX: usize = 1200;

/// Time until the first retransmission of a flight. It doubles each time. RFC 6347 (4.2.4.1)
/// recommends 1 s and allows less for shorter round trips. With 1 s, the measured delays would
/// reflect the loss of single datagrams.
const FIRST_RETRANSMISSION: Duration = Duration::from_millis(50);

/// Maximum number of retransmissions of a flight. With a first interval of 50 ms, the last one
/// follows after about 26 s, and the flight fails after about 51 s.
const RETRANSMISSIONS_MAX: usize = 9;

/// Number of distinct seeds, and maximum number of configurations that are kept.
const SEEDS: u64 = 16;
const CONFIGURATIONS_MAX: usize = 64;

/// Bounds of the time settings.
const TIME_MIN: Duration = Duration::from_millis(1);
const TIME_MAX: Duration = Duration::from_secs(3600);

/// Settings of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DtlsSettings {
    /// True if this side is the client, which starts the handshake.
    pub is_client: bool,
    /// Time limit of the handshake.
    pub timeout: Duration,
    /// Seed of the random numbers that can be seeded.
    pub seed: u64,
}

/// Event of a DTLS connection.
#[derive(Debug)]
pub enum DtlsEvent {
    /// Certificate of the other side, in DER. The other side has proven that it holds the private
    /// key only once there are SRTP keys.
    Certificate(Vec<u8>),
    /// The handshake is complete. `None` if it produced no SRTP keys of a known profile.
    Completed(Option<SrtpKeys>),
    /// The other side closed the connection.
    Closed,
}

/// One side of a DTLS connection.
#[derive(Debug)]
pub struct Dtls {
    inner: Box<dimpl::Dtls>,
    client: bool,
    deadline: Option<Time>,
    out: VecDeque<Vec<u8>>,
    /// Number of datagrams in `out` that were pending before the last datagram was handled. They
    /// do not answer it.
    pending_before: usize,
    events: VecDeque<DtlsEvent>,
}

impl Dtls {
    /// Creates one side. A client's first flight is pending at once.
    pub fn new(now: Time, certificate: &Certificate, settings: DtlsSettings) -> Dtls {
        let config = configuration(settings);
        let certificate = certificate.for_dtls();
        let inner = dimpl::Dtls::new_12(config, certificate, to_instant(now));
        let mut dtls = Dtls {
            inner: Box::new(inner),
            client: settings.is_client,
            deadline: None,
            out: VecDeque::new(),
            pending_before: 0,
            events: VecDeque::new(),
        };
        dtls.inner.set_active(settings.is_client);
        // The library sends nothing before it knows the time, and cannot fail yet.
        let _ = dtls.handle_timeout(now);
        dtls
    }

    /// Returns true if the next datagram belongs to a server's last flight, which completes the
    /// handshake.
    pub fn is_last_server_flight(&self) -> bool {
        let done = |event: &DtlsEvent| matches!(event, DtlsEvent::Completed(_));
        !self.client && self.pending_before == 0 && self.events.iter().any(done)
    }

    /// Handles a datagram. Invalid parts that do not break the handshake are ignored.
    ///
    /// # Errors
    /// The handshake or the connection failed.
    pub fn handle(&mut self, now: Time, bytes: &[u8]) -> Result<(), PeerFailure> {
        // This may retransmit the previous flight, which does not answer the datagram.
        self.handle_timeout(now)?;
        self.pending_before = self.out.len();
        let result = self.inner.handle_packet(bytes);
        self.drain();
        result.map_err(dtls_error)
    }

    /// Handles all timers that are due.
    ///
    /// # Errors
    /// The other side did not answer in time.
    pub fn handle_timeout(&mut self, now: Time) -> Result<(), PeerFailure> {
        let result = self.inner.handle_timeout(to_instant(now));
        self.drain();
        result.map_err(dtls_error)
    }

    /// Time at which [`Dtls::handle_timeout`] is due.
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Closes the connection and notifies the other side.
    pub fn close(&mut self) {
        // Closing fails if there is no connection to close.
        let _ = self.inner.close();
        self.drain();
    }

    /// Returns the next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.pending_before = self.pending_before.saturating_sub(1);
        self.out.pop_front()
    }

    /// Returns the next event.
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
                    self.deadline = Some(from_instant(at));
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
                    let keys = srtp_profile(profile).and_then(|profile| {
                        SrtpKeys::from_exported(profile, &material, self.client)
                    });
                    DtlsEvent::Completed(keys)
                }
                Output::CloseNotify => DtlsEvent::Closed,
                // DTLS data belongs to data channels, which are not supported.
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

/// Returns the library's configuration. Building one runs known-answer tests of its cryptography,
/// with key exchanges on each curve, and costs more than a handshake. Connections therefore share
/// configurations.
fn configuration(settings: DtlsSettings) -> Arc<Config> {
    static SHARED: Mutex<Vec<(DtlsSettings, Arc<Config>)>> = Mutex::new(Vec::new());
    // The keys of a connection do not depend on the seed: many connections may use one seed.
    let settings = DtlsSettings {
        is_client: false,
        timeout: settings.timeout.clamp(TIME_MIN, TIME_MAX),
        seed: settings.seed % SEEDS,
    };
    // A panic leaves the list valid, because each change is complete in itself.
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, config)) = shared.iter().find(|(known, _)| *known == settings) {
        return config.clone();
    }
    let config = Config::builder()
        .mtu(DATAGRAM_MAX)
        .flight_start_rto(FIRST_RETRANSMISSION)
        .flight_retries(RETRANSMISSIONS_MAX)
        .handshake_timeout(settings.timeout)
        // ICE has verified the address. A cookie would verify it again, at the cost of a round
        // trip.
        .use_server_cookie(false)
        .dangerously_set_rng_seed(settings.seed)
        .build();
    let config = Arc::new(config.expect("these settings are within the library's bounds"));
    if shared.len() >= CONFIGURATIONS_MAX {
        shared.clear();
    }
    shared.push((settings, config.clone()));
    config
}

fn srtp_profile(profile: Profile) -> Option<SrtpProfile> {
    Some(match profile {
        Profile::AEAD_AES_256_GCM => SrtpProfile::AeadAes256Gcm,
        Profile::AEAD_AES_128_GCM => SrtpProfile::AeadAes128Gcm,
        Profile::AES128_CM_SHA1_80 => SrtpProfile::AesCm128HmacSha1_80,
        _ => return None,
    })
}

/// Returns the failure for an error of the library.
fn dtls_error(error: dimpl::Error) -> PeerFailure {
    match error {
        dimpl::Error::Timeout(_) => PeerFailure::DtlsTimedOut,
        other => PeerFailure::DtlsFailed(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delivers all pending datagrams to the other side.
    fn pass(from: &mut Dtls, to: &mut Dtls, now: Time) {
        while let Some(bytes) = from.poll_transmit() {
            to.handle(now, &bytes).expect("it is in order");
        }
    }

    #[test]
    fn handshake_completes_once_with_or_without_keys() {
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
        // The library reports both in one call.
        let certificate = Certificate::generate(1);
        let start = Time::from_nanos(1_000_000_000);
        let mut ends = [true, false].map(|client| {
            let settings = DtlsSettings {
                is_client: client,
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
    fn retransmitted_flight_is_not_the_last_flight() {
        let certificate = Certificate::generate(1);
        let start = Time::from_nanos(1_000_000_000);
        let [mut client, mut server] = [true, false].map(|client| {
            let settings = DtlsSettings {
                is_client: client,
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
        // The client's last message arrives when the server is about to retransmit.
        let late = server.deadline().expect("it waits") + Duration::from_millis(1);
        assert!(late < start + Duration::from_millis(200), "{late:?}");
        server.handle(late, &end).expect("it is in order");
        let mut is_last = Vec::new();
        loop {
            is_last.push(server.is_last_server_flight());
            if server.poll_transmit().is_none() {
                break;
            }
        }
        let retransmitted = is_last.iter().take_while(|last| !**last).count();
        assert!(retransmitted > 0, "nothing is retransmitted: {is_last:?}");
        // One datagram, and nothing after it.
        assert_eq!(is_last[retransmitted..], [true, true]);
    }
}
