//! Files that clients read, on their way to the runners.

use std::time::Duration;

use scenario::Scenario;
use sha2::{Digest, Sha256};

use crate::background::Background;
use crate::error::ClusterError;
use crate::storage::Storage;

/// Time limit for storing a file.
const STORE_TIMEOUT: Duration = Duration::from_secs(120);

/// SHA-256 of a file, in hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Stores all files that the clients of a scenario read. Returns the digest of each, in the order
/// of the scenario.
pub(crate) fn store(
    scenario: &Scenario,
    storage: &Storage,
    background: &Background,
) -> Result<Vec<String>, ClusterError> {
    let mut scenario = scenario.clone();
    let mut digests = Vec::new();
    for path in scenario.client_files_mut() {
        let failed = |why: String| ClusterError::File {
            path: path.display().to_string(),
            why,
        };
        let bytes = engine::read_source(path).map_err(|error| failed(error.to_string()))?;
        let name = digest(&bytes);
        let (storage, wanted) = (storage.clone(), name.clone());
        let stored = background.wait(STORE_TIMEOUT, async move {
            if storage.files.info(&wanted).await.is_ok() {
                return Ok(());
            }
            let mut contents = bytes.as_slice();
            let stored = storage.files.put(wanted.as_str(), &mut contents);
            stored.await.map(drop).map_err(|error| error.to_string())
        });
        stored
            .map_err(|_| failed(format!("it took more than {} s", STORE_TIMEOUT.as_secs())))?
            .map_err(failed)?;
        digests.push(name);
    }
    Ok(digests)
}
