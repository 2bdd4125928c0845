//! Certificates and a configuration for a NATS server that coordinator and runners reach over a
//! network.
//!
//! The server knows its clients by their certificates (`verify_and_map`), and permits each only the
//! subjects that it needs. A runner can send its own reports and read its own orders; it can
//! neither command other runners nor read what they report. A client without a certificate gets no
//! connection.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::OffsetDateTime;

use crate::error::ClusterError;
use crate::names::{COORDINATOR, is_name};
use crate::storage::{FILES, LOG, NAMES};

/// Part of the e-mail address by which a certificate names its owner. It is no domain of the
/// Internet (RFC 2606, section 2).
const DOMAIN: &str = "streamgauge.invalid";

const AUTHORITY: &str = "ca.pem";
const AUTHORITY_KEY: &str = "ca-key.pem";
const SERVER: &str = "server.pem";
const SERVER_KEY: &str = "server-key.pem";
const CONFIGURATION: &str = "nats.conf";
const RUNNERS: &str = "runners";

/// Beginning of the line of the configuration with the port.
const LISTEN: &str = "listen: \"0.0.0.0:";

/// Usual port of nats-server.
const DEFAULT_PORT: u16 = 4222;

/// Time before now from which certificates are valid: clocks differ.
const VALID_BEFORE: Duration = Duration::from_secs(24 * 3600);

/// Time for which the authority is valid.
const AUTHORITY_VALID: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Settings of the keys.
#[derive(Clone, Debug)]
pub struct KeyOptions {
    /// Folder of the keys. If it has some already, they are kept, and new runners are added.
    pub folder: PathBuf,
    /// Host names and addresses of the NATS server. Empty: the server's certificate is kept.
    pub hosts: Vec<String>,
    /// Port of the NATS server. Default: that of the configuration in the folder, or 4222.
    pub port: Option<u16>,
    /// Names of runners.
    pub runners: Vec<String>,
    /// Time for which the certificates of server, coordinator and runners are valid.
    pub valid: Duration,
    /// True: the certificates of the coordinator and of all runners are written again.
    pub renew: bool,
}

/// Files that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenKeys {
    /// Configuration of the NATS server.
    pub configuration: PathBuf,
    /// Credentials of the coordinator.
    pub coordinator: PathBuf,
    /// Name and credentials of each runner, also of those from before.
    pub runners: Vec<(String, PathBuf)>,
}

/// Writes certificates and the configuration of a NATS server. Only their owner can read the keys.
///
/// # Errors
/// A name or host is invalid, or a file cannot be written or read.
pub fn write_keys(options: &KeyOptions) -> Result<WrittenKeys, ClusterError> {
    if let Some(name) = options.runners.iter().find(|name| !is_name(name)) {
        let name = name.clone();
        return Err(ClusterError::Name { name });
    }
    let folder = Folder(&options.folder);
    folder.create("")?;
    folder.create(RUNNERS)?;
    let authority = Authority::open(&folder)?;
    match options.hosts.is_empty() {
        true if folder.has(SERVER) => {}
        true => return Err(ClusterError::NoHost),
        false => {
            let (certificate, key) = authority.sign_server(&options.hosts, options.valid)?;
            folder.write(SERVER, &certificate, 0o644)?;
            folder.write(SERVER_KEY, &key, 0o600)?;
        }
    }
    let coordinator = format!("{COORDINATOR}.pem");
    if options.renew || !folder.has(&coordinator) {
        let credentials = authority.credentials(COORDINATOR, options.valid)?;
        folder.write(&coordinator, &credentials, 0o600)?;
    }
    let kept: BTreeSet<String> = folder.runners()?.into_iter().collect();
    let mut names = kept.clone();
    names.extend(options.runners.iter().cloned());
    for name in &names {
        if options.renew || !kept.contains(name) {
            let credentials = authority.credentials(name, options.valid)?;
            folder.write(&runner_file(name), &credentials, 0o600)?;
        }
    }
    let port = options.port.or_else(|| folder.port());
    let configuration = configuration(port.unwrap_or(DEFAULT_PORT), &names);
    folder.write(CONFIGURATION, &configuration, 0o600)?;
    let runners = names.into_iter().map(|name| {
        let path = folder.path(&runner_file(&name));
        (name, path)
    });
    Ok(WrittenKeys {
        configuration: folder.path(CONFIGURATION),
        coordinator: folder.path(&coordinator),
        runners: runners.collect(),
    })
}

fn runner_file(name: &str) -> String {
    format!("{RUNNERS}/{name}.pem")
}

/// The folder of the keys.
struct Folder<'a>(&'a Path);

impl Folder<'_> {
    fn path(&self, name: &str) -> PathBuf {
        match name.is_empty() {
            true => self.0.to_owned(),
            false => self.0.join(name),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    fn create(&self, name: &str) -> Result<(), ClusterError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        let path = self.path(name);
        builder.create(&path).map_err(|error| failed(&path, &error))
    }

    fn read(&self, name: &str) -> Result<String, ClusterError> {
        let path = self.path(name);
        fs::read_to_string(&path).map_err(|error| failed(&path, &error))
    }

    /// Writes a file under another name first, so that nobody finds half of one.
    fn write(&self, name: &str, text: &str, mode: u32) -> Result<(), ClusterError> {
        let path = self.path(name);
        let part = self.path(&format!("{name}.part"));
        let written = || -> io::Result<()> {
            let _ = fs::remove_file(&part);
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(mode);
            let mut file = options.open(&part)?;
            file.write_all(text.as_bytes())?;
            fs::rename(&part, &path)
        };
        written().map_err(|error| failed(&path, &error))
    }

    /// Port in the configuration that was written before.
    fn port(&self) -> Option<u16> {
        let text = fs::read_to_string(self.path(CONFIGURATION)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(LISTEN))?;
        line.trim_end_matches('"').parse().ok()
    }

    /// Names of the runners that have credentials.
    fn runners(&self) -> Result<Vec<String>, ClusterError> {
        let path = self.path(RUNNERS);
        let entries = fs::read_dir(&path).map_err(|error| failed(&path, &error))?;
        let names = entries.flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let name = name.strip_suffix(".pem")?.to_owned();
            is_name(&name).then_some(name)
        });
        Ok(names.collect())
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> ClusterError {
    ClusterError::Keys {
        path: path.display().to_string(),
        why: error.to_string(),
    }
}

/// The authority that signs all certificates of a folder.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
    path: PathBuf,
}

impl Authority {
    /// Opens the authority of the folder, or makes one.
    fn open(folder: &Folder<'_>) -> Result<Authority, ClusterError> {
        let path = folder.path(AUTHORITY_KEY);
        let wrong = |error: rcgen::Error| failed(&path, &error);
        let params = authority_params();
        let (certificate, key) = match folder.has(AUTHORITY_KEY) {
            true => {
                let key = KeyPair::from_pem(&folder.read(AUTHORITY_KEY)?).map_err(wrong)?;
                (folder.read(AUTHORITY)?, key)
            }
            false => {
                let key = KeyPair::generate().map_err(wrong)?;
                let certificate = params.self_signed(&key).map_err(wrong)?.pem();
                folder.write(AUTHORITY, &certificate, 0o644)?;
                folder.write(AUTHORITY_KEY, &key.serialize_pem(), 0o600)?;
                (certificate, key)
            }
        };
        Ok(Authority {
            certificate,
            issuer: Issuer::new(params, key),
            path,
        })
    }

    fn sign(&self, params: &CertificateParams) -> Result<(String, String), ClusterError> {
        let wrong = |error: rcgen::Error| failed(&self.path, &error);
        let key = KeyPair::generate().map_err(wrong)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(wrong)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    fn sign_server(
        &self,
        hosts: &[String],
        valid: Duration,
    ) -> Result<(String, String), ClusterError> {
        let mut params = params("NATS", valid);
        for host in hosts {
            let name = match host.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => {
                    let name = host.as_str().try_into().ok().filter(|_| is_host(host));
                    SanType::DnsName(name.ok_or_else(|| ClusterError::Host { host: host.clone() })?)
                }
            };
            params.subject_alt_names.push(name);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// Credentials of a client: its certificate and key, and the authority's certificate.
    fn credentials(&self, name: &str, valid: Duration) -> Result<String, ClusterError> {
        let mut params = params(name, valid);
        let address = address(name);
        let address = address.as_str().try_into();
        let address = address.map_err(|error: rcgen::Error| failed(&self.path, &error))?;
        params.subject_alt_names = vec![SanType::Rfc822Name(address)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate, key) = self.sign(&params)?;
        Ok([certificate.as_str(), &key, &self.certificate].concat())
    }
}

/// Returns `true` for a host name (RFC 1123, section 2.1).
fn is_host(host: &str) -> bool {
    let label = |label: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (1..=63).contains(&label.len()) && label.chars().all(allowed) && !label.starts_with('-')
    };
    host.len() <= 253 && host.split('.').all(label)
}

fn params(name: &str, valid: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    params.not_before = now - VALID_BEFORE;
    params.not_after = now + valid;
    params.use_authority_key_identifier_extension = true;
    params
}

fn authority_params() -> CertificateParams {
    let mut params = params("streamgauge cluster", AUTHORITY_VALID);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Address by which a certificate names its owner, and NATS its user.
fn address(name: &str) -> String {
    format!("{name}@{DOMAIN}")
}

/// Configuration of nats-server. File names in it are relative to the folder that it starts in.
fn configuration(port: u16, runners: &BTreeSet<String>) -> String {
    let mut users = vec![user(
        COORDINATOR,
        &["sg.>", "$JS.>", "$KV.>", "$O.>"],
        &["sg.>", "_INBOX_coordinator.>"],
    )];
    users.extend(runners.iter().map(|name| runner(name)));
    format!(
        "# Written by `streamgauge cluster keys`. Start nats-server in this folder:\n\
         #   nats-server -c {CONFIGURATION}\n\
         {LISTEN}{port}\"\n\
         max_payload: 1048576\n\
         jetstream {{ store_dir: \"data\" }}\n\
         tls {{\n  \
           cert_file: \"{SERVER}\"\n  \
           key_file: \"{SERVER_KEY}\"\n  \
           ca_file: \"{AUTHORITY}\"\n  \
           # The certificate of a client is its user.\n  \
           verify_and_map: true\n  \
           # Seconds for a handshake. Machines under load may need more than the default, 2.\n  \
           timeout: 10\n\
         }}\n\
         authorization {{\n  \
           users = [\n{}  ]\n\
         }}\n",
        users.concat()
    )
}

/// The user of a runner.
fn runner(name: &str) -> String {
    let own = |subject: &str| subject.replace("NAME", name);
    let publish = [
        // Reports, signs of life and topic messages of the runner.
        own("sg.r.*.NAME"),
        own("sg.beat.*.NAME"),
        own("sg.t.*.NAME"),
        // Answers of the runner to orders and questions.
        own("sg.a.NAME.*"),
        own("sg.h.NAME.*"),
        // Figures of the server that it observes.
        own("sg.o.*.NAME"),
        // Claim of the name.
        own(&format!("$KV.{NAMES}.NAME")),
        // The runner may look at the streams, and create them; a change would need another right,
        // and both sides refuse a stream of another kind. A message that it receives gives it no
        // right to publish (`allow_responses`): a message to itself could name any subject.
        format!("$JS.API.STREAM.INFO.{LOG}"),
        format!("$JS.API.STREAM.CREATE.{LOG}"),
        format!("$JS.API.STREAM.INFO.KV_{NAMES}"),
        format!("$JS.API.STREAM.CREATE.KV_{NAMES}"),
        format!("$JS.API.STREAM.MSG.GET.KV_{NAMES}"),
        format!("$JS.API.DIRECT.GET.KV_{NAMES}.>"),
        format!("$JS.API.STREAM.INFO.OBJ_{FILES}"),
        format!("$JS.API.STREAM.CREATE.OBJ_{FILES}"),
        // Files of a run, to be read.
        format!("$JS.API.STREAM.MSG.GET.OBJ_{FILES}"),
        format!("$JS.API.DIRECT.GET.OBJ_{FILES}.>"),
        format!("$JS.API.CONSUMER.CREATE.OBJ_{FILES}"),
        format!("$JS.API.CONSUMER.CREATE.OBJ_{FILES}.>"),
        format!("$JS.API.CONSUMER.DELETE.OBJ_{FILES}.>"),
        format!("$JS.FC.OBJ_{FILES}.>"),
    ];
    let subscribe = [
        own("_INBOX_NAME.>"),
        own("sg.do.NAME.*"),
        "sg.hello".to_owned(),
        "sg.lead.*".to_owned(),
        "sg.t.*.*".to_owned(),
    ];
    user(
        name,
        &publish.each_ref().map(String::as_str),
        &subscribe.each_ref().map(String::as_str),
    )
}

fn user(name: &str, publish: &[&str], subscribe: &[&str]) -> String {
    let list = |subjects: &[&str]| -> String {
        let lines = subjects.iter();
        lines
            .map(|subject| format!("          \"{subject}\"\n"))
            .collect()
    };
    format!(
        "    {{\n      user: \"{}\"\n      permissions: {{\n        \
         publish: {{ allow: [\n{}        ] }}\n        \
         subscribe: {{ allow: [\n{}        ] }}\n      }}\n    }}\n",
        address(name),
        list(publish),
        list(subscribe)
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn options(folder: &Path) -> KeyOptions {
        KeyOptions {
            folder: folder.join("keys"),
            hosts: vec!["nats.example".to_owned(), "192.0.2.1".to_owned()],
            port: Some(5222),
            renew: false,
            runners: vec!["load1".to_owned()],
            valid: Duration::from_secs(3600),
        }
    }

    #[test]
    fn keys_are_kept_and_runners_are_added() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = options(folder.path());
        let written = write_keys(&first).expect("they can be written");
        let read = |path: &Path| fs::read(path).expect("it was written");
        let (coordinator, load1) = (read(&written.coordinator), read(&written.runners[0].1));
        let server = read(&first.folder.join(SERVER));
        let more = KeyOptions {
            hosts: Vec::new(),
            port: None,
            runners: vec!["load2".to_owned()],
            ..first.clone()
        };
        let written = write_keys(&more).expect("they can be added to");
        let names: Vec<&str> = written.runners.iter().map(|one| one.0.as_str()).collect();
        assert_eq!(names, ["load1", "load2"]);
        assert_eq!(read(&written.coordinator), coordinator);
        assert_eq!(read(&written.runners[0].1), load1);
        assert_eq!(read(&first.folder.join(SERVER)), server);
        let configuration = String::from_utf8(read(&written.configuration)).expect("text");
        for name in ["load1", "load2", "coordinator"] {
            assert!(configuration.contains(&format!("\"{name}@{DOMAIN}\"")));
        }
        assert!(configuration.contains("0.0.0.0:5222\""), "{configuration}");
        for entry in [
            AUTHORITY_KEY,
            SERVER_KEY,
            "coordinator.pem",
            "runners/load1.pem",
        ] {
            let of = fs::metadata(first.folder.join(entry)).expect("it was written");
            assert_eq!(of.permissions().mode() & 0o777, 0o600, "{entry}");
        }
        crate::credentials::client_config(&written.coordinator).expect("credentials");
        let renewed = KeyOptions {
            renew: true,
            ..more.clone()
        };
        let written = write_keys(&renewed).expect("they can be renewed");
        assert_ne!(read(&written.coordinator), coordinator);
        assert_ne!(read(&written.runners[0].1), load1);
        crate::credentials::client_config(&written.coordinator).expect("credentials");
    }

    #[test]
    fn wrong_names_and_hosts_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["coordinator", "a.b", "a>", ""] {
            let wrong = KeyOptions {
                runners: vec![name.to_owned()],
                ..options(folder.path())
            };
            assert!(write_keys(&wrong).is_err(), "{name}");
        }
        for host in ["", "a b", "-a", "tls://a", "a:4222"] {
            let wrong = KeyOptions {
                hosts: vec![host.to_owned()],
                ..options(folder.path())
            };
            assert!(write_keys(&wrong).is_err(), "{host}");
        }
        let none = KeyOptions {
            hosts: Vec::new(),
            ..options(folder.path())
        };
        assert!(matches!(write_keys(&none), Err(ClusterError::NoHost)));
    }
}
