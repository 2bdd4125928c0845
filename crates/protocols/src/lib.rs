//! The only list of protocols.
//!
//! Each is one line of `protocols!` below, and a feature of this crate. Its own crate declares it
//! as a [`Protocol`].

#![deny(missing_docs)]

pub mod scheme_help;

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer, Serialize};

use kit::descriptor::{ClientFactory, PopulationKeys};
pub use kit::descriptor::{ClientIdentity, PopulationPlan, PopulationView, Protocol, RunContext};
use session::Session;

/// Generates the list and the type that holds the keys of any protocol.
///
/// A line names the protocol's crate, which has a `PROTOCOL` and a `config::ClientConfig` that
/// implements [`PopulationKeys`]: its keys in a scenario with their defaults. Attributes of a line,
/// such as `cfg`, apply to all code generated from it.
macro_rules! protocols {
    ($( $(#[$meta:meta])* $NAME:ident = $krate:ident as $Variant:ident; )+) => {
        $( $(#[$meta])* pub use $krate::PROTOCOL as $NAME; )+

        /// All protocols.
        pub static PROTOCOLS: &[&Protocol] = &[$( $(#[$meta])* &$NAME ),+];

        /// Crates that hold one protocol each, in the order of [`PROTOCOLS`].
        pub const CRATES: &[&str] = &[$( $(#[$meta])* stringify!($krate) ),+];

        /// Configuration of a population's clients of any protocol. Dereferences to its
        /// [`PopulationKeys`].
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        #[expect(clippy::large_enum_variant, reason = "a run has one for each population")]
        pub enum ClientConfig {
            $( $(#[$meta])*
            #[doc = concat!("Configuration for `", stringify!($krate), "`.")]
            $Variant($krate::config::ClientConfig), )+
        }

        impl Deref for ClientConfig {
            type Target = dyn PopulationKeys;

            fn deref(&self) -> &Self::Target {
                match self { $( $(#[$meta])* ClientConfig::$Variant(keys) => keys, )+ }
            }
        }

        impl DerefMut for ClientConfig {
            fn deref_mut(&mut self) -> &mut Self::Target {
                match self { $( $(#[$meta])* ClientConfig::$Variant(keys) => keys, )+ }
            }
        }

        impl ProtocolKeys for Protocol {
            fn default_config(&self) -> ClientConfig {
                $( $(#[$meta])*
                if self.name == $NAME.name {
                    return ClientConfig::$Variant(Default::default());
                } )+
                unreachable!("{} is not in the registry", self.name)
            }

            fn decode_config<'de, D: Deserializer<'de>>(
                &self,
                deserializer: D,
            ) -> Result<ClientConfig, D::Error> {
                match self.default_config() {
                    $( $(#[$meta])*
                    ClientConfig::$Variant(_) => {
                        Deserialize::deserialize(deserializer).map(ClientConfig::$Variant)
                    } )+
                }
            }
        }
    };
}

protocols! {
    #[cfg(feature = "rtsp")]
    RTSP_PROTOCOL = rtsp as Rtsp;
    #[cfg(feature = "http-ts")]
    HTTP_TS_PROTOCOL = http_ts as HttpTs;
    #[cfg(feature = "messages")]
    MESSAGES_PROTOCOL = messages as Messages;
    #[cfg(feature = "rtmp")]
    RTMP_PROTOCOL = rtmp as Rtmp;
    #[cfg(feature = "srt")]
    SRT_PROTOCOL = srt as Srt;
    #[cfg(feature = "webrtc")]
    WEBRTC_PROTOCOL = webrtc as WebRtc;
    #[cfg(any(test, feature = "proof"))]
    PROOF_PROTOCOL = proof as Proof;
}

/// The keys of a population of a protocol.
pub trait ProtocolKeys {
    /// Returns the configuration with all defaults.
    fn default_config(&self) -> ClientConfig;

    /// Reads the keys of this protocol. Unknown keys are errors; missing ones get their defaults.
    fn decode_config<'de, D: Deserializer<'de>>(
        &self,
        deserializer: D,
    ) -> Result<ClientConfig, D::Error>;
}

/// Returns the protocol of this name.
pub fn find(name: &str) -> Option<&'static Protocol> {
    PROTOCOLS
        .iter()
        .copied()
        .find(|protocol| protocol.name == name)
}

/// Returns the protocol of a URL's scheme.
pub fn find_by_url(url: &str) -> Option<&'static Protocol> {
    let mut protocols = PROTOCOLS.iter().copied();
    protocols.find(|protocol| protocol.has_scheme_of(url))
}

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

/// Returns a session that asks for a description of the media of `url`, as a client of the
/// population would before it plays. It emits [`session::Output::Described`] or fails, and
/// ends. `None` if there is no such request, for example for clients that publish.
///
/// The error says why the URL is invalid.
pub fn describe_session(
    config: &ClientConfig,
    url: &str,
    seed: u64,
) -> Option<Result<Box<dyn Session>, String>> {
    match config.facts().publishes() {
        true => None,
        false => config.describe_session(url, seed),
    }
}

#[cfg(test)]
mod tests {
    use measure::SummaryRow;

    use super::*;

    #[test]
    fn protocols_are_found_by_name_and_scheme() {
        assert_eq!(find("rtsp").map(|p| p.name), Some("rtsp"));
        assert!(find("RTSP2").is_none());
        assert_eq!(find_by_url("RTSP://h/a").map(|p| p.name), Some("rtsp"));
        assert!(find_by_url("h/a").is_none());
        assert_eq!(find_by_url("https://h/a").map(|p| p.name), Some("http-ts"));
        for (at, protocol) in PROTOCOLS.iter().enumerate() {
            assert!(PROTOCOLS[..at].iter().all(|p| p.name != protocol.name));
            assert_eq!(protocol.default_config().protocol().name, protocol.name);
        }
    }

    #[test]
    fn metric_names_are_unique_within_a_protocol() {
        for protocol in PROTOCOLS {
            let mut names: Vec<&str> = protocol.catalogue.metrics().map(|m| m.name).collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "of {}", protocol.name);
        }
    }

    #[test]
    fn summary_rows_use_only_declared_metrics() {
        for protocol in PROTOCOLS {
            let rows: Vec<_> = protocol.catalogue.summary().collect();
            assert!(!rows.is_empty(), "of {}", protocol.name);
            for name in rows.iter().flat_map(|row| row.metrics()) {
                let found = protocol.catalogue.find(name);
                assert!(found.is_some(), "{name} of {}", protocol.name);
            }
        }
    }

    #[test]
    fn summary_rows_are_named_after_the_metrics_that_they_show() {
        // Lists of faults, and notes.
        const OTHERS: [&str; 5] = ["answers", "content", "lost by", "media", "stream"];
        for protocol in PROTOCOLS {
            for row in protocol.catalogue.summary() {
                let shown = SummaryRow { when: &[], ..*row }.metrics();
                let is_first = shown.first().is_none_or(|first| *first == row.label);
                let is_metric = protocol.catalogue.find(row.label).is_some();
                let is_other = row.label.is_empty() || OTHERS.contains(&row.label);
                let (label, of) = (row.label, protocol.name);
                assert!(
                    is_other || is_first && is_metric,
                    "{label} of {of} shows {shown:?}"
                );
            }
        }
    }

    #[test]
    fn keys_are_decoded_and_described() {
        let protocol = find("rtsp").expect("it is registered");
        let config = protocol
            .decode_config(serde_json::json!({"transport": "tcp"}))
            .expect("valid");
        assert_eq!(config.sockets_per_client(1).descriptors, 1);
        let usual = protocol.default_config();
        assert_eq!(usual.sockets_per_client(1).descriptors, 5);
        assert!(
            protocol
                .decode_config(serde_json::json!({"tranport": "tcp"}))
                .is_err()
        );
        let keys = protocol.config_keys();
        assert!(keys.iter().any(|key| key == "request_timeout"), "{keys:?}");
        let written = serde_json::to_value(&config).expect("plain data");
        assert_eq!(written["transport"], "tcp");
        assert_eq!(protocol.decode_config(written).expect("valid"), config);
    }

    /// A configuration of clients that publish.
    fn publishing(protocol: &Protocol) -> ClientConfig {
        let keys = serde_json::json!({"publish": {}});
        protocol.decode_config(keys).expect("valid")
    }

    #[test]
    fn publishers_do_not_ask_for_a_description() {
        let url = "rtsp://127.0.0.1:8554/live1";
        let asks = |config: &ClientConfig| describe_session(config, url, 0).is_some();
        assert!(asks(&RTSP_PROTOCOL.default_config()));
        assert!(!asks(&publishing(&RTSP_PROTOCOL)));
    }

    #[test]
    fn players_wait_for_the_same_stream_in_any_protocol() {
        let published = [
            (&RTMP_PROTOCOL, "rtmp://h/live/cam"),
            (&SRT_PROTOCOL, "srt://h:8890?streamid=publish:one"),
            (&WEBRTC_PROTOCOL, "whip+http://h:8889/live/two/whip"),
            (&RTSP_PROTOCOL, "rtsp://h:8554/three"),
        ];
        let publishers: Vec<(ClientConfig, [String; 1])> = published
            .iter()
            .map(|(protocol, url)| (publishing(protocol), [(*url).to_owned()]))
            .collect();
        let members = publishers.iter().enumerate();
        let context = RunContext::new(members.map(|(number, (keys, urls))| PopulationView {
            name: ["rtmp", "srt", "webrtc", "rtsp"][number],
            keys: &**keys,
            urls,
        }));
        for (url, awaited) in [
            ("rtmp://H:1935/live/cam?token=x", Some(0)),
            ("rtsp://h:8554/live/cam", Some(0)),
            ("srt://h:8890?streamid=read:live/cam", Some(0)),
            ("srt://h:8890?streamid=%23!::r=live/cam,m=request", Some(0)),
            ("whep+http://h:8889/live/cam/whep", Some(0)),
            (
                "whep+http://h:1985/rtc/v1/whep/?app=live&stream=cam",
                Some(0),
            ),
            ("http://h:8080/live/cam.ts", Some(0)),
            ("rtmp://h/live/one", None),
            ("rtsp://h/one", Some(1)),
            ("rtmp://h/live/two", Some(2)),
            ("srt://h:9?streamid=three", Some(3)),
            ("rtsp://other/three", None),
            ("srt://h:9", None),
            ("ws://h/three", None),
        ] {
            let protocol = find_by_url(url).expect(url);
            let (keys, urls) = (protocol.default_config(), [url.to_owned()]);
            let (name, urls) = ("players", &urls[..]);
            let player = PopulationView {
                name,
                keys: &*keys,
                urls,
            };
            let found = context.awaited(player, None, url);
            assert_eq!(
                found.len(),
                usize::from(awaited.is_some()),
                "{url} {found:?}"
            );
            if let Some(number) = awaited {
                let by_name = ["rtmp", "srt", "webrtc", "rtsp"][number];
                assert_eq!(context.awaited(player, Some(by_name), url), found);
            }
        }
    }

    #[test]
    fn clients_wait_for_a_population_by_the_position_of_their_url() {
        let keys = publishing(&RTMP_PROTOCOL);
        let urls = |count: u64, base: &str| -> Vec<String> {
            (1..=count)
                .map(|number| format!("{base}{number}"))
                .collect()
        };
        let (published, played) = (urls(3, "rtmp://h/a/"), urls(3, "srt://g:1?streamid=b"));
        let context = RunContext::new([PopulationView {
            name: "encoders",
            keys: &*keys,
            urls: &published,
        }]);
        let keys = SRT_PROTOCOL.default_config();
        let mut player = PopulationView {
            name: "players",
            keys: &*keys,
            urls: &played,
        };
        let awaited = |player, name| context.awaited(player, name, "srt://g:1?streamid=b2");
        assert_eq!(awaited(player, None), Vec::<String>::new());
        assert_eq!(awaited(player, Some("encoders")), ["h:1935/a/2"]);
        assert_eq!(awaited(player, Some("others")), Vec::<String>::new());
        player.urls = &played[..2];
        assert_eq!(awaited(player, Some("encoders")).len(), 3);
    }

    #[test]
    fn invalid_url_is_rejected() {
        let config = RTSP_PROTOCOL.default_config();
        let clients =
            Clients::new(&config, None, &RunContext::default()).expect("no media to make");
        assert!(
            clients
                .client("rtsp://127.0.0.1/a", ClientIdentity::default())
                .is_ok()
        );
        assert!(
            clients
                .client("http://127.0.0.1/a", ClientIdentity::default())
                .is_err()
        );
        assert!(RTSP_PROTOCOL.check_url("rtsp://").is_err());
    }
}
