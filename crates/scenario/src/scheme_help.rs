//! Help for URLs whose scheme is missing, misspelt or not supported.

use std::net::Ipv6Addr;

use kit::registry;
use measure::nearest::nearest;

/// Schemes that users know from other programs, and what to do instead.
const OTHERS: [(&[&str], &str); 4] = [
    (
        &["udp", "rtp"],
        "clients receive multicast through a relay: write `http://HOST:PORT/udp/GROUP:PORT`; \
         `streamgauge send` sends to a group",
    ),
    (
        &["dash"],
        "DASH is not supported; `hls+http://` plays HLS, `http://` MPEG-TS in one response",
    ),
    (
        &["webrtc"],
        "write the signalling first: `whep+http://HOST/PATH`, `janus+ws://HOST:8188/videoroom/ROOM` \
         or `livekit+ws://HOST:7880/ROOM`",
    ),
    (
        &["file"],
        "clients need a server: write its URL, or send a file with `publish: {file: FILE}` (in one line `--publish FILE`)",
    ),
];

/// Ports that servers usually have, in addition to the default port of each protocol.
const USUAL_PORTS: [(u16, &str); 4] = [
    (8554, "rtsp"),
    (8889, "whep+http"),
    (8890, "srt"),
    (9710, "srt"),
];

/// Returns what to write instead of a URL whose scheme is not supported. `show` returns a URL as it
/// may be printed, without its password.
pub(crate) fn help(url: &str, show: &dyn Fn(&str) -> String) -> String {
    let instead = |scheme: &str, rest: &str| {
        let url = format!("{scheme}://{rest}");
        format!("did you mean `{}`?", show(&url))
    };
    if let Some((scheme, rest)) = url.split_once("://") {
        let scheme = scheme.to_lowercase();
        let other = OTHERS
            .iter()
            .find(|(names, _)| names.contains(&scheme.as_str()));
        if let Some((_, help)) = other {
            return (*help).to_owned();
        }
        // `whep://` is short for `whep+http://`.
        let longer = all().find(|known| {
            known
                .split_once('+')
                .is_some_and(|(first, _)| first == scheme)
        });
        return match longer.or_else(|| nearest(&scheme, all())) {
            Some(near) => instead(near, rest),
            None => examples(),
        };
    }
    // A slash is missing, or both are.
    if let Some((scheme, rest)) = url.split_once(':')
        && let Some(scheme) = all().find(|known| known.eq_ignore_ascii_case(scheme))
    {
        return instead(scheme, rest.trim_start_matches('/'));
    }
    match port_of(url).and_then(scheme_of_port) {
        Some(scheme) => instead(scheme, url.trim_start_matches('/')),
        None => format!("the scheme is missing: {}", examples()),
    }
}

fn all() -> impl Iterator<Item = &'static str> {
    let each = registry::protocols()
        .iter()
        .flat_map(|protocol| protocol.schemes);
    each.copied()
}

/// Names one scheme of each protocol.
fn examples() -> String {
    let first = registry::protocols()
        .iter()
        .filter_map(|protocol| protocol.schemes.first());
    let first: Vec<String> = first.map(|scheme| format!("{scheme}://")).collect();
    let (last, others) = match first.split_last() {
        Some((last, others)) => (last.as_str(), others.join(", ")),
        None => ("", String::new()),
    };
    format!("a URL begins with {others} or {last}, for example")
}

/// Port in an address without a scheme: `HOST:PORT`, `HOST:PORT/PATH`, `[ADDRESS]:PORT`.
fn port_of(address: &str) -> Option<u16> {
    let host = address.trim_start_matches('/').split(['/', '?']).next()?;
    let host = host.rsplit('@').next()?;
    let (name, port) = host.rsplit_once(':')?;
    let is_bare_ipv6 = host.parse::<Ipv6Addr>().is_ok();
    (!name.is_empty() && !is_bare_ipv6).then(|| port.parse().ok())?
}

fn scheme_of_port(port: u16) -> Option<&'static str> {
    let usual = USUAL_PORTS.iter().find(|(usual, _)| *usual == port);
    if let Some((_, scheme)) = usual {
        return Some(scheme);
    }
    let mut protocols = registry::protocols().iter();
    let found = protocols.find(|protocol| protocol.default_port == port)?;
    found.schemes.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_without_a_known_scheme_gets_one_line_of_advice() {
        protocols::install();
        for (url, advice) in [
            ("rtps://h/a", "did you mean `rtsp://h/a`?"),
            ("RTSP:/h/a", "did you mean `rtsp://h/a`?"),
            ("rtsp:h/a", "did you mean `rtsp://h/a`?"),
            ("h:8554/a", "did you mean `rtsp://h:8554/a`?"),
            ("//h:554/a", "did you mean `rtsp://h:554/a`?"),
            ("h:1935/live/a", "did you mean `rtmp://h:1935/live/a`?"),
            ("[::1]:1935/a", "did you mean `rtmp://[::1]:1935/a`?"),
            ("udp://239.1.1.1:5000", "through a relay"),
            ("hls://h/a", "did you mean `hls+http://h/a`?"),
            ("dash://h/a.mpd", "HLS"),
            ("whep://h/a", "did you mean `whep+http://h/a`?"),
            ("WHIP://h/a", "did you mean `whip+http://h/a`?"),
            ("livekit://h/a", "did you mean `livekit+ws://h/a`?"),
            ("webrtc://h/a", "signalling"),
            ("file:///a.mp4", "publish"),
            ("ftp://h/a", "a URL begins with rtsp://"),
            ("h/a", "the scheme is missing: a URL begins with"),
            ("::1", "the scheme is missing"),
            ("", "the scheme is missing"),
        ] {
            let help = help(url, &str::to_owned);
            assert!(help.contains(advice), "{url}: {help}");
            assert!(
                help.matches("://").count() <= registry::protocols().len(),
                "{url}: {help}"
            );
        }
    }
}
