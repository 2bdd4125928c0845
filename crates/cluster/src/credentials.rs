//! Credentials of a coordinator or a runner: a certificate, its key, and those that sign others, in
//! one file (PEM).

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::error::ClusterError;

/// TLS settings of a client: the first certificate of the file and its key are its own, the other
/// certificates sign that of the server.
pub(crate) fn client_config(path: &Path) -> Result<ClientConfig, ClusterError> {
    let failed = |why: String| ClusterError::Credentials {
        path: path.display().to_string(),
        why,
    };
    let pem = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| failed(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(&pem);
    let key = key.map_err(|error| failed(format!("no private key: {error}")))?;
    let (own, others) = certificates
        .split_first()
        .ok_or_else(|| failed("it contains no certificate".to_owned()))?;
    let mut roots = RootCertStore::empty();
    for certificate in others {
        let added = roots.add(certificate.clone());
        added.map_err(|error| failed(error.to_string()))?;
    }
    if roots.is_empty() {
        let why = "it contains only one certificate: the one that signs the server's is missing";
        return Err(failed(why.to_owned()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|config| {
            config
                .with_root_certificates(roots)
                .with_client_auth_cert(vec![own.clone()], key)
        })
        .map_err(|error| failed(error.to_string()))
}
