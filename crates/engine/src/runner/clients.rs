//! Client factories for the populations of a scenario.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use kit::awaiting_publisher::{AwaitedStreams, WaitingClient};
use kit::clients::Clients;
use kit::descriptor::{PopulationPlan, RunContext};
use kit::media::source::FILE_MAX;
use scenario::{Pick, Population, Scenario, mask_text};

use crate::error::EngineError;
use crate::worker::MakeClient;

/// TLS configuration of the clients of a population.
///
/// CA files are loaded now if a URL uses TLS, otherwise when a server redirects a client to TLS.
pub(crate) fn tls(population: &Population) -> Result<Arc<net::tls::Client>, EngineError> {
    let config = population.config.facts().tls.cloned().unwrap_or_default();
    let tls = net::tls::Client::new(net::tls::Trust {
        accept_any: !config.verify,
        authorities: config.ca,
    });
    let protocol = population.config.protocol();
    if population.urls.iter().any(|url| protocol.is_secure(url)) {
        tls.prepare().map_err(|fault| EngineError::Tls {
            population: population.name.clone(),
            message: fault.text,
        })?;
    }
    Ok(Arc::new(tls))
}

/// Shared state of all clients of a scenario.
pub(crate) fn surroundings(scenario: &Scenario) -> RunContext {
    RunContext::new(scenario.populations.iter().map(Population::member))
}

/// Reads a file that is to be published or sent.
///
/// # Errors
/// Fails if the file cannot be read or is larger than [`FILE_MAX`].
pub fn read_source(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    let mut bytes = Vec::new();
    // Special files, such as devices, may be endless.
    file.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX {
        let text = format!("the file is larger than {} MiB", FILE_MAX >> 20);
        return Err(std::io::Error::other(text));
    }
    Ok(bytes)
}

/// Returns the factory that creates the clients of a population.
pub(crate) fn client_factory(
    population: &Population,
    surroundings: &RunContext,
) -> Result<MakeClient, EngineError> {
    let refused = |message: String| EngineError::Source {
        population: population.name.clone(),
        message,
    };
    let path = population
        .config
        .facts()
        .sent
        .and_then(|source| source.file.as_ref());
    let of_file = |error: &str| match path {
        Some(path) => refused(format!("{}: {error}", path.display())),
        None => refused(error.to_owned()),
    };
    let file = path
        .map(|path| read_source(path))
        .transpose()
        .map_err(|error| of_file(&error.to_string()))?;
    let clients = Clients::new(&population.config, file.as_deref(), surroundings)
        .map_err(|error| of_file(&error))?
        .among(&PopulationPlan {
            urls: &population.urls,
            in_turn: population.pick != Pick::Random,
            may_change_url: population.pick != Pick::Own && population.load.rejoin,
            clients: population.load.clients_max(),
        })
        .map_err(refused)?;
    let awaited = awaited(population, surroundings);
    Ok(Arc::new(move |url, identity| {
        let client = clients.client(url, identity)?;
        Ok(match awaited.get(url) {
            Some(awaited) => Box::new(WaitingClient::new(client, awaited.clone())),
            None => client,
        })
    }))
}

/// Streams that clients wait for, by URL.
fn awaited(
    population: &Population,
    surroundings: &RunContext,
) -> HashMap<String, Arc<AwaitedStreams>> {
    let mut all = HashMap::new();
    for url in &population.urls {
        let topics = population.awaited(surroundings, url);
        if !topics.is_empty() {
            let awaited = AwaitedStreams {
                url: mask_text(url),
                topics,
                timeout: population.wait_for_publisher,
                join_after: population.join_after,
            };
            all.insert(url.clone(), Arc::new(awaited));
        }
    }
    all
}
