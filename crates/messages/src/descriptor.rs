//! Registry entry of messages.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use measure::Catalogue;

use super::client::{Client, ClientPlan};
use super::config::{self, ClientConfig};
use super::metrics::MESSAGES;
use super::options::OPTIONS;
use super::server::reference::SERVER;
use super::url::{self, Target};
use kit::descriptor::{
    ClientFactory, ClientIdentity, Facts, KeysType, Location, PopulationKeys, Protocol, RunContext,
    Transport,
};
use kit::keys::KeyError;
use kit::metrics::CLIENTS;
use session::Session;

/// Messages over TCP, TLS, WebSockets and Unix sockets.
pub static PROTOCOL: Protocol = Protocol {
    name: "messages",
    schemes: url::SCHEMES,
    path_suffix: None,
    default_port: DEFAULT_PORT,
    transport: Transport::Tcp,
    catalogue: Catalogue(&[&CLIENTS, &MESSAGES]),
    datagrams: None,
    capacity_thresholds: &["back_pressure < 1%"],
    stream_columns: &[],
    parse_url: read_url,
    probe: None,
    server: Some(&SERVER),
    trials: &[],
    options: &OPTIONS,
    keys: KeysType::of::<ClientConfig>(),
    former_key: config::removed_key_advice,
};

/// Default port of URLs, and port of the reference server.
const DEFAULT_PORT: u16 = 9000;

fn read_url(text: &str) -> Result<Location, String> {
    let target = Target::parse(text).map_err(|error| error.to_string())?;
    Ok(Location {
        is_secure: target.is_secure(),
        default_port: DEFAULT_PORT,
        stream: None,
    })
}

impl PopulationKeys for ClientConfig {
    fn protocol(&self) -> &'static Protocol {
        &PROTOCOL
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            tls: Some(&self.tls),
            has_media: false,
            receives: false,
            stay: Some(match self.messages {
                Some(1) => "leave after 1 message each".to_owned(),
                Some(messages) => format!("leave after {messages} messages each"),
                None => "stay until the run ends".to_owned(),
            }),
            ends_on_its_own: self.messages.is_some(),
            source_addresses: &self.source_addresses,
            ..Facts::new(&PROTOCOL, None, None)
        }
    }

    fn check(&self) -> Result<(), KeyError> {
        ClientConfig::check(self)
    }

    fn check_url(&self, url: &str) -> Result<(), KeyError> {
        if Target::parse(url).is_ok_and(|target| target.is_websocket()) {
            return Ok(());
        }
        for (key, is_written) in [
            ("headers", !self.headers.is_empty()),
            ("subprotocols", !self.subprotocols.is_empty()),
        ] {
            if is_written {
                return Err((key, format!("`{key}` needs a `ws` or `wss` URL")));
            }
        }
        Ok(())
    }

    fn default_thresholds(&self) -> &'static [&'static str] {
        &[
            "sent > 0",
            "lost_in_flight == 0",
            "answers_wrong == 0",
            "answers_missed == 0",
            "answers_timed_out == 0",
            "unanswered == 0",
        ]
    }

    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        self.tls.ca.as_mut().into_iter().collect()
    }

    fn clients(
        &self,
        _file: Option<&[u8]>,
        surroundings: &RunContext,
    ) -> Result<Box<dyn ClientFactory>, String> {
        Ok(Box::new(Clients {
            config: self.clone(),
            surroundings: surroundings.clone(),
            plans: Mutex::default(),
        }))
    }
}

/// State that the clients of a population share.
#[derive(Debug)]
struct Clients {
    config: ClientConfig,
    surroundings: RunContext,
    /// State that the clients of one URL share, by URL.
    plans: Mutex<BTreeMap<String, Arc<ClientPlan>>>,
}

impl ClientFactory for Clients {
    fn client(&self, url: &str, seat: ClientIdentity) -> Result<Box<dyn Session>, String> {
        Ok(Box::new(Client::new(self.plan(url)?, seat.seed)))
    }
}

impl Clients {
    fn plan(&self, url: &str) -> Result<Arc<ClientPlan>, String> {
        // A panic in here leaves the plans unchanged.
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = plans.get(url) {
            return Ok(plan.clone());
        }
        let wall_clock = self.surroundings.wall_clock().unwrap_or_default();
        let plan = Arc::new(ClientPlan::new(&self.config, url, wall_clock)?);
        plans.insert(url.to_owned(), plan.clone());
        Ok(plan)
    }
}
