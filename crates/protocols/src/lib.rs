//! The only list of protocols.
//!
//! Each is one line of `protocols!` below, and a feature of this crate. Its own crate declares it
//! as a [`Protocol`]. Only the program depends on the list, and installs it.

#![deny(missing_docs)]

pub use kit::descriptor::Protocol;

/// Generates the list. A line names the protocol's crate, which has a `PROTOCOL`. Attributes of a
/// line, such as `cfg`, apply to all code generated from it.
macro_rules! protocols {
    ($( $(#[$meta:meta])* $NAME:ident = $krate:ident; )+) => {
        $( $(#[$meta])* pub use $krate::PROTOCOL as $NAME; )+

        /// All protocols.
        pub static PROTOCOLS: &[&Protocol] = &[$( $(#[$meta])* &$NAME ),+];

        /// Crates that hold one protocol each, in the order of [`PROTOCOLS`].
        pub const CRATES: &[&str] = &[$( $(#[$meta])* stringify!($krate) ),+];
    };
}

protocols! {
    #[cfg(feature = "rtsp")]
    RTSP_PROTOCOL = rtsp;
    #[cfg(feature = "http-ts")]
    HTTP_TS_PROTOCOL = http_ts;
    #[cfg(feature = "hls")]
    HLS_PROTOCOL = hls;
    #[cfg(feature = "messages")]
    MESSAGES_PROTOCOL = messages;
    #[cfg(feature = "rtmp")]
    RTMP_PROTOCOL = rtmp;
    #[cfg(feature = "srt")]
    SRT_PROTOCOL = srt;
    #[cfg(feature = "webrtc")]
    WEBRTC_PROTOCOL = webrtc;
    #[cfg(any(test, feature = "proof"))]
    PROOF_PROTOCOL = proof;
}

/// Makes the protocols known to all crates ([`kit::registry`]).
pub fn install() {
    kit::registry::install(PROTOCOLS);
}

#[cfg(test)]
mod tests {
    use kit::clients::Clients;
    use kit::descriptor::ClientConfig;
    use kit::descriptor::{ClientIdentity, PopulationView, RunContext};
    use kit::registry::{find, find_by_url};
    use measure::SummaryRow;

    use super::*;

    #[test]
    fn protocols_are_found_by_name_and_scheme() {
        install();
        assert_eq!(find("rtsp").map(|p| p.name), Some("rtsp"));
        assert!(find("RTSP2").is_none());
        assert_eq!(find_by_url("RTSP://h/a").map(|p| p.name), Some("rtsp"));
        assert!(find_by_url("h/a").is_none());
        assert_eq!(find_by_url("https://h/a").map(|p| p.name), Some("http-ts"));
        for (url, name) in [
            ("http://h/a/index.m3u8", "hls"),
            ("HTTPS://h/a.M3U8?token=b.ts", "hls"),
            ("hls+http://h/a", "hls"),
            ("http://h/a.ts?x=.m3u8", "http-ts"),
            ("http://h.m3u8", "http-ts"),
            ("rtmp://h/live/a.m3u8", "rtmp"),
        ] {
            assert_eq!(find_by_url(url).map(|p| p.name), Some(name), "{url}");
        }
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
        let protocol = &RTSP_PROTOCOL;
        let config = protocol
            .read_keys(serde_json::json!({"transport": "tcp"}))
            .expect("valid");
        assert_eq!(config.sockets_per_client(1).descriptors, 1);
        let usual = protocol.default_config();
        assert_eq!(usual.sockets_per_client(1).descriptors, 5);
        assert!(
            protocol
                .read_keys(serde_json::json!({"tranport": "tcp"}))
                .is_err()
        );
        let keys = protocol.config_keys();
        assert!(keys.iter().any(|key| key == "request_timeout"), "{keys:?}");
        let written = serde_json::to_value(&config).expect("plain data");
        assert_eq!(written["transport"], "tcp");
        assert_eq!(protocol.read_keys(written).expect("valid"), config);
        assert_ne!(config, usual);
        assert_ne!(HTTP_TS_PROTOCOL.default_config(), usual);
    }

    /// A configuration of clients that publish.
    fn publishing(protocol: &Protocol) -> ClientConfig {
        let keys = serde_json::json!({"publish": {}});
        protocol.read_keys(keys).expect("valid")
    }

    #[test]
    fn publishers_do_not_ask_for_a_description() {
        let url = "rtsp://127.0.0.1:8554/live1";
        let asks = |config: &ClientConfig| config.description_of(url, 0).is_some();
        assert!(asks(&RTSP_PROTOCOL.default_config()));
        assert!(!asks(&publishing(&RTSP_PROTOCOL)));
    }

    #[test]
    fn players_wait_for_the_same_stream_in_any_protocol() {
        install();
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
