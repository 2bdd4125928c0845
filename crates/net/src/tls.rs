//! TLS for the bytes of a connection (RFC 5246, RFC 8446): received bytes are decrypted, and bytes
//! to be sent are encrypted. It owns no socket: the connection does.
//!
//! The cryptography is aws-lc's, which needs only a C compiler to build. Unless a file is given,
//! the certificates trusted by this machine are used: a server inside a company is then trusted
//! wherever its users trust it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use measure::ArrivalRun;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig};

mod fault;
#[cfg(test)]
mod tests;
mod verify;

pub use fault::{Fault, Reason};
use verify::{Checked, Unchecked};

/// Certificates that a client trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Accept any certificate, even if it has expired or belongs to another server.
    pub accept_any: bool,
    /// PEM file with the trusted certificates: of authorities, or of the server itself. `None`
    /// selects those that this machine trusts.
    pub authorities: Option<PathBuf>,
}

/// TLS settings of the clients of a population, shared by all of them. No session is resumed,
/// because each client represents another user.
#[derive(Debug)]
pub struct Client {
    trust: Trust,
    config: OnceLock<Result<Arc<ClientConfig>, Fault>>,
}

impl Client {
    /// Returns settings for clients with this trust. Reads no file yet.
    pub fn new(trust: Trust) -> Client {
        Client {
            trust,
            config: OnceLock::new(),
        }
    }

    /// Reads the trusted certificates, once: takes some milliseconds.
    ///
    /// # Errors
    /// The file cannot be read, or there is no certificate to trust, in the file or on this
    /// machine.
    pub fn prepare(&self) -> Result<(), Fault> {
        self.config().map(|_| ())
    }

    /// Prepares the calling thread for its first handshake, if these settings are
    /// [prepared](Client::prepare): see [`Server::warm_up`].
    pub fn warm_up(&self) {
        if let Some(Ok(_)) = self.config.get() {
            warm_up();
        }
    }

    fn config(&self) -> Result<Arc<ClientConfig>, Fault> {
        self.config.get_or_init(|| client(&self.trust)).clone()
    }

    /// Returns a TLS layer for a connection to a server with this name or address.
    ///
    /// # Errors
    /// Those of [`Client::prepare`]; or a certificate cannot contain the name.
    pub fn layer(&self, name: &str) -> Result<TlsLayer, Fault> {
        let config = self.config()?;
        // A certificate contains no zones.
        let host = name.split_once('%').map_or(name, |(address, _)| address);
        let name = match host.parse::<IpAddr>() {
            Ok(address) => ServerName::IpAddress(address.into()),
            Err(_) => ServerName::try_from(host.to_owned())
                .map_err(|_| Fault::unusable(format!("`{host}` is not a valid server name")))?,
        };
        let connection = ClientConnection::new(config, name).map_err(|error| Fault::of(&error))?;
        Ok(TlsLayer::new(connection.into()))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn warm_up() {
    // The result is not used: an error will be reported by the first handshake.
    let _ = provider().secure_random.fill(&mut [0; 32]);
}

fn client(trust: &Trust) -> Result<Arc<ClientConfig>, Fault> {
    let provider = provider();
    let verifier: Arc<dyn rustls::client::danger::ServerCertVerifier> = if trust.accept_any {
        Arc::new(Unchecked::new(&provider))
    } else {
        let own = match &trust.authorities {
            Some(path) => certificates(path)?,
            None => Vec::new(),
        };
        let roots = match &trust.authorities {
            Some(_) => roots(&own),
            None => roots(&rustls_native_certs::load_native_certs().certs),
        };
        if roots.is_empty() {
            let whose = match &trust.authorities {
                Some(path) => format!("{} contains no valid certificate", path.display()),
                None => "this machine trusts no authority: specify a certificate file, or disable verification".to_owned(),
            };
            return Err(Fault::unusable(whose));
        }
        Arc::new(Checked::new(roots, own, &provider)?)
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Fault::of(&error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    // Writes the secrets to the file in the environment variable SSLKEYLOGFILE, with which
    // Wireshark can decrypt a trace.
    config.key_log = Arc::new(rustls::KeyLogFile::new());
    Ok(Arc::new(config))
}

/// Returns the certificates of authorities. Invalid ones are skipped, because every machine has
/// some that are odd.
fn roots(certificates: &[CertificateDer<'static>]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().cloned());
    roots
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let refused =
        |error: &dyn fmt::Display| Fault::unusable(format!("{}: {error}", path.display()));
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|error| refused(&error))?
        .collect();
    let found = found.map_err(|error| refused(&error))?;
    if found.is_empty() {
        return Err(refused(&"the file contains no certificate in PEM format"));
    }
    Ok(found)
}

/// TLS settings of a server.
#[derive(Clone, Debug)]
pub struct Server(Arc<ServerConfig>);

impl Server {
    /// Loads a certificate chain, the server's own certificate first, and its key, both PEM files.
    /// Clients are not asked for a certificate.
    ///
    /// # Errors
    /// A file cannot be read, or the key does not belong to the certificate.
    pub fn from_files(chain: &Path, key: &Path) -> Result<Server, Fault> {
        let certificates = certificates(chain)?;
        let key = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| Fault::unusable(format!("{}: {error}", key.display())))?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(certificates, key)
            })
            .map_err(|error| Fault::of(&error))?;
        Ok(Server(Arc::new(config)))
    }

    /// Prepares the calling thread for its first handshake: each thread collects its own entropy
    /// for random numbers, which takes a while (140 ms without optimisation).
    pub fn warm_up(&self) {
        warm_up();
    }

    /// Returns a TLS layer for an accepted connection.
    ///
    /// # Errors
    /// The settings are invalid.
    pub fn layer(&self) -> Result<TlsLayer, Fault> {
        let connection = rustls::ServerConnection::new(self.0.clone());
        Ok(TlsLayer::new(
            connection.map_err(|error| Fault::of(&error))?.into(),
        ))
    }
}

/// TLS of one connection.
///
/// Received bytes are buffered up to the longest record or handshake message that is accepted (64
/// KiB). Bytes to be sent are passed on at once, so the connection bounds them.
pub struct TlsLayer {
    connection: Box<Connection>,
    handshaking: bool,
}

impl fmt::Debug for TlsLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layer")
            .field("handshaking", &self.handshaking)
            .finish_non_exhaustive()
    }
}

/// Result of [`TlsLayer::open`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenStatus {
    /// True if the handshake has completed.
    pub handshake_done: bool,
    /// True if the peer announced that it sends no more (close_notify).
    pub peer_closed: bool,
}

/// Maximum number of bytes that one call encrypts, and that wait for the handshake to complete.
/// Encrypted bytes are passed at once to a queue that has its own bound.
const SEAL_BYTES_MAX: usize = 512 * 1024;

impl TlsLayer {
    fn new(mut connection: Connection) -> TlsLayer {
        connection.set_buffer_limit(Some(SEAL_BYTES_MAX));
        TlsLayer {
            connection: Box::new(connection),
            handshaking: true,
        }
    }

    /// Returns `true` until the handshake is complete.
    pub fn is_handshaking(&self) -> bool {
        self.handshaking
    }

    /// Decrypts received bytes with their arrival times. Appends the plaintext to `plain`, and to
    /// `plain_runs` the times at which it became readable: when the last byte of its record
    /// arrived. Bytes to be sent in return go to `out`, even if the call fails: an alert.
    ///
    /// # Errors
    /// The bytes violate the protocol. The connection is no longer usable.
    pub fn open(
        &mut self,
        bytes: &[u8],
        runs: &[ArrivalRun],
        plain: &mut Vec<u8>,
        plain_runs: &mut Vec<ArrivalRun>,
        out: &mut impl Write,
    ) -> Result<OpenStatus, Fault> {
        let mut status = OpenStatus::default();
        let mut begin = 0;
        for together in runs.chunk_by(|one, next| (one.at, one.exact) == (next.at, next.exact)) {
            let Some(last) = together.last() else { break };
            let end = last.end.min(bytes.len());
            let result = self.feed(&bytes[begin..end], plain, &mut status);
            // Errors of `out` are not expected: it is a queue in memory, which accepts all bytes.
            let _ = self.flush(out);
            result?;
            if plain.len() > plain_runs.last().map_or(0, |run| run.end) {
                plain_runs.push(ArrivalRun {
                    end: plain.len(),
                    ..*last
                });
            }
            begin = end;
        }
        if self.handshaking && !self.connection.is_handshaking() {
            self.handshaking = false;
            status.handshake_done = true;
        }
        Ok(status)
    }

    fn feed(
        &mut self,
        mut bytes: &[u8],
        plain: &mut Vec<u8>,
        status: &mut OpenStatus,
    ) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let read = self.connection.read_tls(&mut bytes);
            match read {
                // The connection accepts nothing after the peer's close_notify.
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return Err(Fault::too_long(&error)),
            }
            let state = self
                .connection
                .process_new_packets()
                .map_err(|error| Fault::of(&error))?;
            let count = state.plaintext_bytes_to_read();
            if count > 0 {
                let begin = plain.len();
                plain.resize(begin + count, 0);
                self.connection
                    .reader()
                    .read_exact(&mut plain[begin..])
                    .map_err(|error| Fault::too_long(&error))?;
            }
            status.peer_closed |= state.peer_has_closed();
        }
        Ok(())
    }

    /// Encrypts bytes, in one record if they fit. Bytes are buffered until the handshake is
    /// complete.
    ///
    /// # Errors
    /// There are more bytes than one call accepts, or `out` fails.
    pub fn seal(&mut self, parts: &[&[u8]], out: &mut impl Write) -> io::Result<()> {
        let slices: [io::IoSlice<'_>; 4] =
            std::array::from_fn(|index| io::IoSlice::new(parts.get(index).copied().unwrap_or(&[])));
        let mut writer = self.connection.writer();
        match parts {
            [] => {}
            [one] => writer.write_all(one)?,
            // In one record if it fits.
            _ if parts.len() <= slices.len() => {
                let length: usize = parts.iter().map(|part| part.len()).sum();
                if writer.write_vectored(&slices)? < length {
                    return Err(io::ErrorKind::WriteZero.into());
                }
            }
            _ => parts.iter().try_for_each(|part| writer.write_all(part))?,
        }
        self.flush(out)
    }

    /// Announces that no more is sent (close_notify).
    ///
    /// # Errors
    /// Those of `out`.
    pub fn close(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.connection.send_close_notify();
        self.flush(out)
    }

    /// Passes on the bytes to be sent, for example the start of a handshake.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(out)?;
        }
        Ok(())
    }

    /// Negotiated version, such as `TLSv1_3`. `None` before the handshake is complete.
    pub fn version(&self) -> Option<&'static str> {
        self.connection
            .protocol_version()
            .and_then(|version| version.as_str())
    }
}

/// Maximum length of `bytes` bytes once encrypted: with header, nonce and tag of each record (RFC
/// 5246, 6.2.3.3; RFC 8446, 5.2).
pub fn sealed_length_max(bytes: usize) -> usize {
    const RECORD: usize = 16 * 1024;
    const ADDED: usize = 5 + 8 + 16 + 1;
    bytes + bytes.div_ceil(RECORD).max(1) * ADDED
}
