//! Factory of a population's clients.

#![deny(missing_docs)]

use crate::descriptor::{ClientConfig, ClientFactory, ClientIdentity, PopulationPlan, RunContext};
use session::Session;

/// Factory of a population's clients, with their published media prepared.
#[derive(Debug)]
pub struct Clients(Box<dyn ClientFactory>);

impl Clients {
    /// Prepares the media that the clients publish, if any, which may take some seconds. `file`
    /// holds the contents of the media file that they send.
    ///
    /// # Errors
    /// If the media cannot be made; the text says why.
    pub fn new(
        config: &ClientConfig,
        file: Option<&[u8]>,
        context: &RunContext,
    ) -> Result<Clients, String> {
        config.clients(file, context).map(Clients)
    }

    /// Passes properties of the whole population.
    ///
    /// # Errors
    /// If a URL or the combination of keys is invalid; the text says why.
    pub fn among(mut self, population: &PopulationPlan<'_>) -> Result<Clients, String> {
        self.0.set_population(population)?;
        Ok(self)
    }

    /// Makes a client for `url`. All its random choices follow from the seeds of its identity.
    ///
    /// # Errors
    /// If the URL is invalid; the text says why.
    pub fn client(&self, url: &str, identity: ClientIdentity) -> Result<Box<dyn Session>, String> {
        self.0.client(url, identity)
    }
}
