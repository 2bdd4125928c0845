//! Masking: which names are those of secrets, and where secrets show themselves in a text.

mod excerpt;

use protocol::url::split_authority;

pub(crate) use excerpt::{mask_excerpt, mask_setting};

/// What stands for a secret.
pub const MASK: &str = "***";

/// Parts of names, without `-`, `_` and `.`, whose values are secrets.
const SECRET_PARTS: [&str; 11] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "signature",
    "credential",
    "authorization",
];

/// Whole names whose values are secrets, in a query and as an option.
const SECRET_NAMES: [&str; 17] = [
    "pass",
    "pin",
    "pw",
    "pwd",
    "key",
    "auth",
    "sig",
    "sign",
    "jwt",
    "hash",
    "hmac",
    "md5",
    "cookie",
    "setcookie",
    "hdnts",
    "hdnea",
    "session",
];

/// Header fields whose values are no secrets; of all others nobody knows.
const OPEN_HEADERS: [&str; 14] = [
    "accept",
    "acceptencoding",
    "acceptlanguage",
    "cachecontrol",
    "connection",
    "from",
    "host",
    "icymetadata",
    "origin",
    "pragma",
    "range",
    "referer",
    "useragent",
    "via",
];

/// The shortest text that is searched for as a secret: what is shorter would be found everywhere.
pub(crate) const SHORTEST: usize = 4;

/// Whether the value of a variable, a header field, an option or a query's field of that name is a
/// secret. Upper and lower case are the same, and `-`, `_` and `.` say nothing.
pub fn is_secret_name(name: &str) -> bool {
    let name = plain(name);
    SECRET_NAMES.contains(&name.as_str()) || has_secret_part(&name)
}

pub(crate) fn has_secret_part(plain: &str) -> bool {
    SECRET_PARTS.iter().any(|part| plain.contains(part))
}

pub(crate) fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_ascii_alphanumeric())
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// Keys of a population with secret values, in addition to those that contain a [`SECRET_PARTS`].
const SECRET_KEYS: [&str; 6] = ["pin", "pass", "pwd", "jwt", "hmac", "cookie"];

/// Whether the value of a scenario's key of that name is a secret.
pub(crate) fn is_secret_config(name: &str) -> bool {
    let plain = plain(name);
    SECRET_KEYS.contains(&plain.as_str()) || has_secret_part(&plain)
}

/// True for a key that may be a misspelt secret key, in an excerpt of a wrong scenario.
pub(super) fn is_like_secret(name: &str) -> bool {
    let known = SECRET_PARTS.into_iter().chain(["headers"]);
    is_secret_config(name) || measure::nearest::nearest(&plain(name), known).is_some()
}

/// Whether the dotted key of a scenario, such as `server.environment.TOKEN`, leads to a secret.
pub(crate) fn is_secret_key(key: &str) -> bool {
    let parts: Vec<&str> = key.split('.').collect();
    let below = |parent: &str| {
        parts
            .iter()
            .position(|&part| part == parent)
            .and_then(|at| parts.get(at + 1).copied())
    };
    let in_server = parts.first() == Some(&"server");
    (in_server && below("environment").is_some())
        || below("headers").is_some_and(|name| !is_open_header(name))
        || below("greeting").is_some()
        || below("connect").is_some()
        || parts.last().is_some_and(|last| is_secret_config(last))
}

pub(crate) fn is_open_header(name: &str) -> bool {
    OPEN_HEADERS.contains(&plain(name).as_str())
}

/// A command line as it may be shown: `--password x` and `--password=x` are masked, and what shows
/// itself in any word.
pub(crate) fn mask_command(words: &[String]) -> Vec<String> {
    words
        .iter()
        .zip(secret_words(words))
        .map(|(word, secret)| match secret {
            Some(at) => format!("{}{MASK}", &word[..at]),
            None => mask_text(word),
        })
        .collect()
}

/// Of each word where its secret begins, if it has one: the value of `--password` and the like, and
/// what follows the colon of `--user NAME:PASSWORD`.
pub(crate) fn secret_words(words: &[String]) -> Vec<Option<usize>> {
    const USERS: [&str; 4] = ["u", "user", "proxyuser", "login"];
    let begin = |name: &str, value: &str| match plain(name) {
        _ if is_secret_name(name) => Some(0),
        name if USERS.contains(&name.as_str()) => value.find(':').map(|at| at + 1),
        _ => None,
    };
    let mut option: Option<&str> = None;
    words
        .iter()
        .map(|word| {
            let before = option.take();
            let assigned = word
                .split_once('=')
                .filter(|(name, _)| !name.contains(['/', '?', '&']));
            if let Some((name, value)) = assigned {
                return begin(name, value).map(|at| name.len() + 1 + at);
            }
            if word.starts_with('-') {
                option = Some(word);
                return None;
            }
            begin(before?, word)
        })
        .collect()
}

/// Masks what shows itself as a secret in any text: passwords in URLs, values of a query's `token=`
/// and the like, `password=x`, `Bearer x`, `Basic x`, and what follows `Authorization:`. The rest
/// stays, the name in a URL too.
pub fn mask_text(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut at = 0;
    for (from, to) in spans(text) {
        masked.push_str(&text[at..from]);
        masked.push_str(MASK);
        at = to;
    }
    masked.push_str(&text[at..]);
    masked
}

/// The same with every secret as long as it was, so that all else stays at its place.
pub(crate) fn mask_in_place(text: &str) -> String {
    let mut masked = text.to_owned();
    for (from, to) in spans(text) {
        masked.replace_range(from..to, &"*".repeat(to - from));
    }
    masked
}

/// Where secrets show themselves in a text, in order: first and last byte of each, none empty.
pub(crate) fn spans(text: &str) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    passwords(text, &mut spans);
    fields(text, &mut spans);
    relays(text, &mut spans);
    stream_ids(text, &mut spans);
    // As long as the text: only ASCII changes.
    let lower = text.to_ascii_lowercase();
    pairs(&lower, &mut spans);
    credentials(text, &lower, &mut spans);
    authorizations(text, &mut spans);
    spans.sort_unstable();
    // Where two overlap, the first covers all of both.
    let mut apart: Vec<(usize, usize)> = Vec::new();
    for (from, to) in spans {
        match apart.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => apart.push((from, to)),
        }
    }
    apart
}

/// Whether a URL in a text ends at that character.
fn ends_url(c: char) -> bool {
    c.is_whitespace() || c.is_control() || ['"', '`', '<', '>'].contains(&c)
}

/// `scheme://name:password@host` (RFC 3986, 3.2.1).
fn passwords(text: &str, spans: &mut Vec<(usize, usize)>) {
    for (at, _) in text.match_indices("://") {
        let begin = at + 3;
        if let Some(password) = password(&text[begin..]) {
            let from = begin + text[begin..].find(':').map_or(0, |colon| colon + 1);
            spans.push((from, from + password.len()));
        }
    }
}

/// The password of a URL whose text after `://` begins so. One that holds `/`, `?` or `#` ends at
/// the last `@`, though no URL may be written so: whoever forgot to encode it wants it hidden no
/// less.
fn password(rest: &str) -> Option<&str> {
    let end = rest.find(ends_url).unwrap_or(rest.len());
    let (authority, _) = split_authority(&rest[..end]);
    let (name, after) = authority.split_once(':')?;
    let from = name.len() + 1;
    if let Some((password, _)) = after.rsplit_once('@') {
        return (!password.is_empty()).then_some(password);
    }
    // `host:554/a@b`, `host:{1..9}/a@b` and `[::1]/a@b` have an `@` in their path.
    let is_port = |byte: u8| byte.is_ascii_digit() || b"{.}".contains(&byte);
    let is_host = after.bytes().all(is_port) || name.starts_with('[');
    if is_host || name.contains('@') {
        return None;
    }
    let to = rest[..end].rfind('@')?;
    rest.get(from..to)
}

/// Whether a URL has a password with `/`, `?` or `#` in it, which ends the password too early.
pub(crate) fn has_raw_password(url: &str) -> bool {
    url.split_once("://")
        .and_then(|(_, rest)| password(rest))
        .is_some_and(|password| password.contains(['/', '?', '#']))
}

/// `?token=x` and `&token=x`, of a URL or of a part of one.
fn fields(text: &str, spans: &mut Vec<(usize, usize)>) {
    for (at, _) in text.match_indices(['?', '&', ';']) {
        let rest = &text[at + 1..];
        let Some((name, value)) = rest.split_once('=') else {
            continue;
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.%[]".contains(c);
        if !name.chars().all(is_name) || !is_secret_field(name) {
            continue;
        }
        let length = value
            .find(|c: char| ends_url(c) || ['&', ';', '#'].contains(&c))
            .unwrap_or(value.len());
        if length > 0 {
            let from = at + 1 + name.len() + 1;
            spans.push((from, from + length));
        }
    }
}

/// `turn:name:password@host`, which has no `//` (RFC 7065 has no name either, and people write
/// one).
fn relays(text: &str, spans: &mut Vec<(usize, usize)>) {
    for scheme in ["turn:", "turns:", "stun:", "stuns:"] {
        for (at, _) in text.match_indices(scheme) {
            let begins_word = !text[..at].ends_with(|c: char| c.is_alphanumeric());
            let from = at + scheme.len();
            let rest = &text[from..];
            let rest = &rest[..rest.find(ends_url).unwrap_or(rest.len())];
            let Some((name, host)) = rest.rsplit_once('@') else {
                continue;
            };
            let Some((user, password)) = name.split_once(':').filter(|_| begins_word) else {
                continue;
            };
            if !password.is_empty() && !host.is_empty() && !rest.starts_with("//") {
                let from = from + user.len() + 1;
                spans.push((from, from + password.len()));
            }
        }
    }
}

/// Credentials in SRT stream ids: the password in `read:path:name:password` (MediaMTX), and values
/// such as `token=` between commas (SRT Access Control). Colons, commas and equals signs may be
/// percent-encoded.
fn stream_ids(text: &str, spans: &mut Vec<(usize, usize)>) {
    let lower = text.to_ascii_lowercase();
    for name in ["streamid=", "stream id ", "streamid: ", "stream_id: "] {
        for (at, _) in lower.match_indices(name) {
            let from = at + name.len();
            let rest = &lower[from..];
            let quotes = rest.len() - rest.trim_start_matches(['"', '\'', '`']).len();
            let (from, rest) = (from + quotes, &rest[quotes..]);
            let ends = |c: char| ends_url(c) || ['&', '\''].contains(&c);
            stream_id(&rest[..rest.find(ends).unwrap_or(rest.len())], from, spans);
        }
    }
}

/// Credentials in one stream id in lower case, which begins at `from`.
fn stream_id(id: &str, from: usize, spans: &mut Vec<(usize, usize)>) {
    let is_path = id.starts_with("read") || id.starts_with("publish");
    let third = separators(id, ':', "%3a").get(2).copied();
    if let Some((_, after)) = third.filter(|&(_, after)| is_path && after < id.len()) {
        spans.push((from + after, from + id.len()));
    }
    let mut begin = 0;
    let ends = separators(id, ',', "%2c").into_iter();
    for (end, next) in ends.chain([(id.len(), id.len())]) {
        let field = &id[begin..end];
        if let Some(&(at, after)) = separators(field, '=', "%3d").first() {
            let name = field[..at].rsplit([':', '?', '/', '!']).next();
            let name = name.unwrap_or("").trim_start_matches("%3a");
            if is_secret_field(name) && begin + after < end {
                spans.push((from + begin + after, from + end));
            }
        }
        begin = next;
    }
}

/// Where a character stands in a text, as it is or percent-encoded, in order: first byte, and the
/// one behind.
fn separators(text: &str, plain: char, encoded: &str) -> Vec<(usize, usize)> {
    let as_is = text.match_indices(plain).map(|(at, _)| (at, at + 1));
    let coded = text.match_indices(encoded);
    let coded = coded.map(|(at, found)| (at, at + found.len()));
    let mut all: Vec<(usize, usize)> = as_is.chain(coded).collect();
    all.sort_unstable();
    all
}

/// Whether a query's field of that name holds a secret. CDNs have names of their own.
fn is_secret_field(name: &str) -> bool {
    const NAMES: [&str; 3] = ["access", "st", "sid"];
    let plain = plain(name);
    is_secret_name(name) || plain.starts_with("auth") || NAMES.contains(&plain.as_str())
}

/// `password=x` and `pwd=x`, wherever they stand.
fn pairs(lower: &str, spans: &mut Vec<(usize, usize)>) {
    for name in ["password=", "passwd=", "pwd="] {
        for (at, _) in lower.match_indices(name) {
            let from = at + name.len();
            let value = &lower[from..];
            let quote = value.chars().next().filter(|c| ['"', '\''].contains(c));
            let from = from + quote.map_or(0, char::len_utf8);
            let value = &lower[from..];
            let length = match quote {
                Some(quote) => value.find(quote),
                None => value.find(|c: char| ends_url(c) || "&;,'()[]{}".contains(c)),
            };
            let length = length.unwrap_or(value.len());
            if length > 0 {
                spans.push((from, from + length));
            }
        }
    }
}

/// `Bearer x` and `Basic x` (RFC 6750, 2.1; RFC 7617, 2), not the names of the schemes in a
/// sentence.
fn credentials(text: &str, lower: &str, spans: &mut Vec<(usize, usize)>) {
    for scheme in ["bearer ", "basic "] {
        for (at, _) in lower.match_indices(scheme) {
            if lower[..at].ends_with(|c: char| c.is_alphanumeric()) {
                continue;
            }
            let from = at + scheme.len();
            let value = &text[from..];
            let in_value = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
            let length = value.find(|c| !in_value(c)).unwrap_or(value.len());
            let value = &value[..length];
            // `realm=` is what a server asks with.
            let coded = value.contains(|c: char| c.is_ascii_digit() || "+/=_".contains(c))
                || value.chars().skip(1).any(|c| c.is_ascii_uppercase());
            if length >= SHORTEST && coded && !value.starts_with("realm=") {
                spans.push((from, from + length));
            }
        }
    }
}

/// `Authorization: ...` to the end of the line (RFC 9110, 11.6.2).
fn authorizations(text: &str, spans: &mut Vec<(usize, usize)>) {
    const NAME: &str = "authorization:";
    let lower = text.to_ascii_lowercase();
    for (at, _) in lower.match_indices(NAME) {
        let begin = at + NAME.len();
        let line = text[begin..].split(['\r', '\n']).next().unwrap_or("");
        let from = begin + (line.len() - line.trim_start().len());
        let to = begin + line.trim_end().len();
        if from < to {
            spans.push((from, to));
        }
    }
}
