//! Registry entry of HLS.

use std::path::PathBuf;
use std::sync::Arc;

use measure::Catalogue;

use super::calibration::TRIALS;
use super::client::Client;
use super::config::ClientConfig;
use super::metrics::HLS;
use super::server::reference::SERVER;
use kit::descriptor::{
    ClientFactory, ClientIdentity, Facts, KeysType, Location, PathSuffix, PopulationKeys, Protocol,
    RunContext, StreamName, Transport,
};
use kit::http1::{Url, UrlError};
use kit::keys::KeyError;
use kit::metrics::{CLIENTS, ZAPPING};
use kit::options::ClientOptions;
use kit::viewer::VIEWERS;
use session::Session;

/// HTTP Live Streaming over HTTP/1 (RFC 8216, RFC 9112).
pub static PROTOCOL: Protocol = Protocol {
    name: "hls",
    schemes: &["hls+http", "hls+https"],
    path_suffix: Some(PathSuffix {
        schemes: &["http", "https"],
        suffix: ".m3u8",
    }),
    default_port: Url::DEFAULT_PORT,
    transport: Transport::Tcp,
    catalogue: Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &HLS]),
    datagrams: None,
    capacity_thresholds: &["stalls == 0", "playback_delay.p95 < 2s"],
    stream_columns: &[],
    parse_url: read_url,
    probe: None,
    server: Some(&SERVER),
    trials: TRIALS,
    options: &ClientOptions::NONE,
    keys: KeysType::of::<ClientConfig>(),
    former_key: |_| None,
};

/// Parses the URL of a playlist: `hls+http://` or `hls+https://`.
///
/// # Errors
/// If the URL is invalid.
pub(crate) fn parse_url(text: &str) -> Result<Url, UrlError> {
    let plain = match text.split_at_checked(4) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("hls+") => rest,
        _ => text,
    };
    Url::parse(plain)
}

fn read_url(text: &str) -> Result<Location, String> {
    let url = parse_url(text).map_err(|error| error.to_string())?;
    Ok(Location {
        is_secure: url.is_secure(),
        default_port: match url.is_secure() {
            true => Url::DEFAULT_TLS_PORT,
            false => Url::DEFAULT_PORT,
        },
        stream: Some(StreamName::new(
            format!("hls {}:{} {}", url.host(), url.port(), url.target()),
            url.host(),
            stream_path(url.target()),
        )),
    })
}

/// Returns the path of a stream: without query, and without the name of the playlist in its folder
/// (`/live/cam/index.m3u8`) or its suffix (`/live/cam.m3u8`).
fn stream_path(target: &str) -> &str {
    let path = target.split('?').next().unwrap_or_default();
    match path.rsplit_once('/') {
        Some((folder, "index.m3u8" | "main.m3u8" | "master.m3u8" | "llhls.m3u8")) => folder,
        _ => path.strip_suffix(".m3u8").unwrap_or(path),
    }
}

impl PopulationKeys for ClientConfig {
    fn protocol(&self) -> &'static Protocol {
        &PROTOCOL
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            tls: Some(&self.tls),
            // The next request is sent when a response is complete.
            reads_at_once: true,
            ..Facts::new(&PROTOCOL, None, None)
        }
    }

    fn check(&self) -> Result<(), KeyError> {
        ClientConfig::check(self)
    }

    fn default_thresholds(&self) -> &'static [&'static str] {
        &["segments > 0"]
    }

    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        self.tls.ca.as_mut().into_iter().collect()
    }

    fn clients(
        &self,
        _file: Option<&[u8]>,
        context: &RunContext,
    ) -> Result<Box<dyn ClientFactory>, String> {
        Ok(Box::new(Clients {
            config: Arc::new(self.clone()),
            context: context.clone(),
        }))
    }
}

/// State that the clients of a population share.
#[derive(Debug)]
struct Clients {
    config: Arc<ClientConfig>,
    context: RunContext,
}

impl ClientFactory for Clients {
    fn client(&self, url: &str, identity: ClientIdentity) -> Result<Box<dyn Session>, String> {
        let url = parse_url(url).map_err(|error| error.to_string())?;
        let wall_clock = self.context.wall_clock();
        let client = Client::new(self.config.clone(), url, wall_clock);
        Ok(Box::new(client.with_seed(identity.seed)))
    }
}
