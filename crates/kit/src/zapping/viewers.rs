//! The clients of a population: viewers of one URL each, or viewers that change channel.

use std::sync::Arc;

use super::Zap;
use super::client::ZappingClients;
use super::viewer::ViewerMaker;
use crate::descriptor::{ClientFactory, ClientIdentity, PopulationPlan};
use session::Session;

/// Factory of a population of clients that each have one URL, or change channel.
#[derive(Debug)]
pub struct Viewers<M> {
    /// Maker of a client of one URL.
    pub maker: Arc<M>,
    zap: Option<Zap>,
    zapping: Option<ZappingClients>,
}

impl<M: ViewerMaker> Viewers<M> {
    /// Creates the factory; with `zap`, the clients change channel.
    pub fn new(maker: M, zap: Option<Zap>) -> Viewers<M> {
        Viewers {
            maker: Arc::new(maker),
            zap,
            zapping: None,
        }
    }

    /// Makes a client that changes channel. `None` if the population's clients do not.
    pub fn zapping(&self, url: &str, identity: ClientIdentity) -> Option<Box<dyn Session>> {
        let zapping = self.zapping.as_ref()?;
        Some(Box::new(zapping.client(url, identity)))
    }
}

impl<M: ViewerMaker> ClientFactory for Viewers<M> {
    fn set_population(&mut self, plan: &PopulationPlan<'_>) -> Result<(), String> {
        if let Some(zap) = self.zap {
            let zapping = ZappingClients::new(zap, plan.urls, plan.in_turn, self.maker.clone());
            self.zapping = Some(zapping?);
        }
        Ok(())
    }

    fn client(&self, url: &str, identity: ClientIdentity) -> Result<Box<dyn Session>, String> {
        match self.zapping(url, identity) {
            Some(client) => Ok(client),
            None => Ok(Box::new(self.maker.client(url, identity)?)),
        }
    }
}
