//! TLS for the bytes of a connection (RFC 5246, RFC 8446): what came over it goes in and is opened,
//! what is to be sent is sealed. It owns no socket: that is its connection's.
//!
//! The cryptography is aws-lc's, which a C compiler is enough to build. Whose certificates are
//! trusted is, unless a file says so, what the machine trusts: a server inside of a company is then
//! trusted where its users trust it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use measure::Run;
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

/// Whose certificates a client trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Whether any certificate will do, even one that expired or is another's.
    pub anybody: bool,
    /// A file (PEM) of the certificates that are trusted: of authorities, or of the server itself.
    /// Without one, those that this machine trusts.
    pub authorities: Option<PathBuf>,
}

/// What the clients of a population speak TLS with. All of a run share it; no session is resumed,
/// because each client stands for another user.
#[derive(Debug)]
pub struct Client {
    trust: Trust,
    config: OnceLock<Result<Arc<ClientConfig>, Fault>>,
}

impl Client {
    /// Clients that trust these. Nothing is read yet.
    pub fn new(trust: Trust) -> Client {
        Client {
            trust,
            config: OnceLock::new(),
        }
    }

    /// Reads the certificates that are trusted, once: some milliseconds.
    ///
    /// # Errors
    /// The file cannot be read, or there is no certificate to trust.
    pub fn prepare(&self) -> Result<(), Fault> {
        self.config().map(|_| ())
    }

    /// Does on the calling thread what its first handshake would else have to wait for, if this is
    /// [prepared]( Client::prepare): see [`Server::warm_up`].
    pub fn warm_up(&self) {
        if let Some(Ok(_)) = self.config.get() {
            warm_up();
        }
    }

    fn config(&self) -> Result<Arc<ClientConfig>, Fault> {
        self.config.get_or_init(|| client(&self.trust)).clone()
    }

    /// TLS for a connection to a server of that name or address.
    ///
    /// # Errors
    /// As [`Client::prepare`]; or the name is none that a certificate can bear.
    pub fn layer(&self, name: &str) -> Result<Layer, Fault> {
        let config = self.config()?;
        // A certificate has no zones.
        let host = name.split_once('%').map_or(name, |(address, _)| address);
        let name = match host.parse::<IpAddr>() {
            Ok(address) => ServerName::IpAddress(address.into()),
            Err(_) => ServerName::try_from(host.to_owned())
                .map_err(|_| Fault::unusable(format!("`{host}` is no name of a server")))?,
        };
        let connection = ClientConnection::new(config, name).map_err(|error| Fault::of(&error))?;
        Ok(Layer::new(connection.into()))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn warm_up() {
    // What comes of it is of no interest: whoever needs it next hears of an error.
    let _ = provider().secure_random.fill(&mut [0; 32]);
}

fn client(trust: &Trust) -> Result<Arc<ClientConfig>, Fault> {
    let provider = provider();
    let verifier: Arc<dyn rustls::client::danger::ServerCertVerifier> = if trust.anybody {
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
                Some(path) => format!("{} holds no certificate that is one", path.display()),
                None => "this machine trusts no authority: name a file of certificates, or do not verify".to_owned(),
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
    // With the secrets in the file that the environment's SSLKEYLOGFILE names, Wireshark can read a
    // trace.
    config.key_log = Arc::new(rustls::KeyLogFile::new());
    Ok(Arc::new(config))
}

/// The certificates of authorities among these. What is none is left out, as every machine has some
/// that are odd.
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
        return Err(refused(&"no certificate (PEM) is in it"));
    }
    Ok(found)
}

/// What a server speaks TLS with.
#[derive(Clone, Debug)]
pub struct Server(Arc<ServerConfig>);

impl Server {
    /// A server with this chain of certificates, its own first, and its key, both files in PEM. It
    /// asks no client for a certificate.
    ///
    /// # Errors
    /// A file cannot be read, or the key is not the certificate's.
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

    /// Does on the calling thread what its first handshake would else have to wait for: each thread
    /// gathers entropy of its own for its random numbers, which takes a while (without optimisation
    /// 140 ms).
    pub fn warm_up(&self) {
        warm_up();
    }

    /// TLS for an accepted connection.
    ///
    /// # Errors
    /// Its settings make none.
    pub fn layer(&self) -> Result<Layer, Fault> {
        let connection = rustls::ServerConnection::new(self.0.clone());
        Ok(Layer::new(
            connection.map_err(|error| Fault::of(&error))?.into(),
        ))
    }
}

/// TLS of one connection.
///
/// What it holds of what came is bounded by the longest record or handshake message that is taken
/// (64 KiB); what is to be sent is handed on at once, so that its bound is the connection's.
pub struct Layer {
    connection: Box<Connection>,
    handshaking: bool,
}

impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layer")
            .field("handshaking", &self.handshaking)
            .finish_non_exhaustive()
    }
}

/// What came of what a connection brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Whether the handshake is through with it.
    pub stands: bool,
    /// Whether the other side has said that it sends no more.
    pub ended: bool,
}

/// The most bytes that are sealed by one call, and that wait for the handshake to be through. What
/// is sealed is handed on at once, into a queue that has its own bound.
const MOST_AT_ONCE: usize = 512 * 1024;

impl Layer {
    fn new(mut connection: Connection) -> Layer {
        connection.set_buffer_limit(Some(MOST_AT_ONCE));
        Layer {
            connection: Box::new(connection),
            handshaking: true,
        }
    }

    /// Whether the handshake is under way.
    pub fn is_handshaking(&self) -> bool {
        self.handshaking
    }

    /// Takes in what the connection brought, with when it came, and adds what was sealed in it to
    /// `plain`, with when that could be read first: when the last byte of the record came that
    /// holds it. What is to be sent in return goes to `out`, also where this fails: an alert.
    ///
    /// # Errors
    /// What came is not what it should be. The connection is of no more use.
    pub fn open(
        &mut self,
        bytes: &[u8],
        runs: &[Run],
        plain: &mut Vec<u8>,
        plain_runs: &mut Vec<Run>,
        out: &mut impl Write,
    ) -> Result<Taken, Fault> {
        let mut taken = Taken::default();
        let mut begin = 0;
        for together in runs.chunk_by(|one, next| (one.at, one.exact) == (next.at, next.exact)) {
            let Some(last) = together.last() else { break };
            let end = last.end.min(bytes.len());
            let result = self.feed(&bytes[begin..end], plain, &mut taken);
            // A vector that takes no more is not to be had.
            let _ = self.flush(out);
            result?;
            if plain.len() > plain_runs.last().map_or(0, |run| run.end) {
                plain_runs.push(Run {
                    end: plain.len(),
                    ..*last
                });
            }
            begin = end;
        }
        if self.handshaking && !self.connection.is_handshaking() {
            self.handshaking = false;
            taken.stands = true;
        }
        Ok(taken)
    }

    fn feed(
        &mut self,
        mut bytes: &[u8],
        plain: &mut Vec<u8>,
        taken: &mut Taken,
    ) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let read = self.connection.read_tls(&mut bytes);
            match read {
                // It takes nothing after the other side has said that it ends.
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
            taken.ended |= state.peer_has_closed();
        }
        Ok(())
    }

    /// Seals bytes, as one record or as many as they fill. Before the handshake is through they
    /// wait for that.
    ///
    /// # Errors
    /// There are more than are taken at once; those of `out`.
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

    /// Says that no more is sent.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn close(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.connection.send_close_notify();
        self.flush(out)
    }

    /// Hands on what is to be sent, the beginning of a handshake for one.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(out)?;
        }
        Ok(())
    }

    /// The version that was agreed on, such as `TLSv1_3`, once the handshake is through.
    pub fn version(&self) -> Option<&'static str> {
        self.connection
            .protocol_version()
            .and_then(|version| version.as_str())
    }
}

/// How many bytes sealing adds at most, to so many: header, nonce and tag of each record (RFC 5246,
/// 6.2.3.3; RFC 8446, 5.2).
pub fn sealed(bytes: usize) -> usize {
    const RECORD: usize = 16 * 1024;
    const ADDED: usize = 5 + 8 + 16 + 1;
    bytes + bytes.div_ceil(RECORD).max(1) * ADDED
}
