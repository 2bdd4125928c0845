//! Names of metrics in words.

/// Parts of metric names that are not plain words, in alphabetical order.
const NAMES: [(&str, &str); 9] = [
    ("bitrate", "bit rate"),
    ("cpu", "CPU"),
    ("dtls", "DTLS"),
    ("ice", "ICE"),
    ("rtt", "RTT"),
    ("tcp", "TCP"),
    ("tls", "TLS"),
    ("turn", "TURN"),
    ("websocket", "WebSocket"),
];

/// Converts a metric's name to words.
pub(crate) fn metric_words(name: &str) -> String {
    let words = name.split('_').map(
        |word| match NAMES.binary_search_by_key(&word, |own| own.0) {
            Ok(at) => NAMES[at].1,
            Err(_) => word,
        },
    );
    words.collect::<Vec<_>>().join(" ")
}

/// Capitalizes the first letter.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase());
    first.into_iter().flatten().chain(letters).collect()
}
