//! Declaration of the protocol.

use std::net::SocketAddr;

use super::client::Client;
use super::config::ClientConfig;
use super::metrics::CATALOGUE;
use super::receiver::COLUMNS;
use super::reference::SERVER;
use kit::descriptor::{
    ClientFactory, ClientIdentity, Facts, KeysType, Location, PopulationKeys, Protocol, RunContext,
    Transport,
};
use kit::keys::{KeyError, check_positive};
use kit::options::{ClientOption, ClientOptions};
use kit::url::{UrlError, UrlParts, UrlProblem};
use session::Session;

/// Numbered media over UDP.
pub static PROTOCOL: Protocol = Protocol {
    name: "proof",
    schemes: &["proof"],
    path_suffix: None,
    default_port: DEFAULT_PORT,
    transport: Transport::Udp,
    catalogue: CATALOGUE,
    datagrams: None,
    capacity_thresholds: &["loss < 1%"],
    stream_columns: &[COLUMNS],
    parse_url: read_url,
    probe: None,
    server: Some(&SERVER),
    trials: &[],
    options: &OPTIONS,
    keys: KeysType::of::<ClientConfig>(),
    former_key: |_| None,
};

const DEFAULT_PORT: u16 = 7777;

static OPTIONS: ClientOptions = ClientOptions {
    heading: "Proof (proof URLs)",
    options: &[ClientOption::new(
        "recovery",
        "recovery",
        "true|false",
        "Request missing packets [default: true]",
    )],
};

fn read_url(url: &str) -> Result<Location, String> {
    address(url).map_err(|error| error.to_string())?;
    Ok(Location {
        is_secure: false,
        default_port: DEFAULT_PORT,
        stream: None,
    })
}

/// Returns the address in a URL. It must be an IP address, because `Open::Udp` does not resolve
/// names.
fn address(url: &str) -> Result<SocketAddr, UrlError> {
    let parts = UrlParts::parse(url)?;
    let ip = parts.host.parse().map_err(|_| {
        let why = "the host must be an address, such as 127.0.0.1";
        UrlProblem::Other(why.to_owned()).error_for(url)
    })?;
    Ok(SocketAddr::new(ip, parts.port.unwrap_or(DEFAULT_PORT)))
}

impl PopulationKeys for ClientConfig {
    fn protocol(&self) -> &'static Protocol {
        &PROTOCOL
    }

    fn facts(&self) -> Facts<'_> {
        Facts::new(&PROTOCOL, None, None)
    }

    fn check(&self) -> Result<(), KeyError> {
        check_positive([
            ("ask_again", self.ask_again),
            ("give_up", self.give_up),
            ("handshake_timeout", self.handshake_timeout),
            ("silence", self.silence),
        ])
    }

    fn default_thresholds(&self) -> &'static [&'static str] {
        &["received > 0"]
    }

    fn clients(
        &self,
        _file: Option<&[u8]>,
        _surroundings: &RunContext,
    ) -> Result<Box<dyn ClientFactory>, String> {
        Ok(Box::new(Clients(self.clone())))
    }
}

#[derive(Debug)]
struct Clients(ClientConfig);

impl ClientFactory for Clients {
    fn client(&self, url: &str, _seat: ClientIdentity) -> Result<Box<dyn Session>, String> {
        let server = address(url).map_err(|error| error.to_string())?;
        Ok(Box::new(Client::new(self.0.clone(), server)))
    }
}
