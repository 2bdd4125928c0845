//! Masking: names that belong to secrets, and recognition of secrets in texts.

mod excerpt;

use kit::url::split_authority;

pub(crate) use excerpt::{mask_excerpt, mask_setting};

/// Replacement for a secret.
pub const MASK: &str = "***";

/// Parts of names with secret values, without `-`, `_` and `.`.
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

/// Complete names of query fields and options with secret values.
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

/// Header fields whose values are not secret. The value of any other field may be.
const PUBLIC_HEADERS: [&str; 14] = [
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

/// Minimum length of a text that is searched for as a secret: shorter ones would match everywhere.
pub(crate) const SECRET_LENGTH_MIN: usize = 4;

/// Returns `true` if a variable, header field, option or query field of that name has a secret
/// value. Case, `-`, `_` and `.` are ignored.
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

/// Returns `true` if a scenario key of that name has a secret value.
pub(crate) fn is_secret_config(name: &str) -> bool {
    let plain = plain(name);
    SECRET_KEYS.contains(&plain.as_str()) || has_secret_part(&plain)
}

/// True for a key that may be a misspelt secret key, in an excerpt of a wrong scenario.
pub(super) fn is_like_secret(name: &str) -> bool {
    let known = SECRET_PARTS.into_iter().chain(["headers"]);
    is_secret_config(name) || measure::nearest::nearest(&plain(name), known).is_some()
}

/// Returns `true` if a dotted key of a scenario, such as `server.environment.TOKEN`, leads to a
/// secret.
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
        || below("headers").is_some_and(|name| !is_public_header(name))
        || below("greeting").is_some()
        || below("connect").is_some()
        || parts.last().is_some_and(|last| is_secret_config(last))
}

pub(crate) fn is_public_header(name: &str) -> bool {
    PUBLIC_HEADERS.contains(&plain(name).as_str())
}

/// Masks a command line: the values of `--password x` and `--password=x`, and secrets that are
/// recognizable in any word.
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

/// Returns for each word the offset of its secret, if any: the value of `--password` and the like,
/// and the part after the colon of `--user NAME:PASSWORD`.
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

/// Masks secrets that are recognizable in any text: passwords in URLs, values of `token=` and the
/// like in a query, `password=x`, `Bearer x`, `Basic x`, and the value of `Authorization:`. User
/// names in URLs stay.
pub fn mask_text(text: &str) -> String {
    // A masked part may join its neighbours: in `?token=://:x;@`, the value then has the `@` too.
    const ROUNDS: usize = 4;
    let mut masked = mask_once(text);
    for _ in 1..ROUNDS {
        let again = mask_once(&masked);
        if again == masked {
            break;
        }
        masked = again;
    }
    masked
}

fn mask_once(text: &str) -> String {
    let ranges = secret_ranges(text).into_iter();
    replace_ranges(text, ranges.map(|(from, to)| (from, to, MASK)))
}

/// Replaces byte ranges of a text, which are in order, each by the text that follows its ends.
pub(crate) fn replace_ranges<T: AsRef<str>>(
    text: &str,
    ranges: impl Iterator<Item = (usize, usize, T)>,
) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut at = 0;
    for (from, to, new) in ranges {
        replaced.push_str(&text[at..from]);
        replaced.push_str(new.as_ref());
        at = to;
    }
    replaced.push_str(&text[at..]);
    replaced
}

/// Masks like [`mask_text`], but keeps the length of every secret, so that all offsets stay the
/// same.
pub(crate) fn mask_in_place(text: &str) -> String {
    let mut masked = text.to_owned();
    for (from, to) in secret_ranges(text) {
        masked.replace_range(from..to, &"*".repeat(to - from));
    }
    masked
}

/// Returns the byte ranges of recognizable secrets in a text, in order. No range is empty.
pub(crate) fn secret_ranges(text: &str) -> Vec<(usize, usize)> {
    let mut ranges = Vec::new();
    passwords(text, &mut ranges);
    query_fields(text, &mut ranges);
    turn_passwords(text, &mut ranges);
    stream_ids(text, &mut ranges);
    // Same length as the text: only ASCII changes.
    let lower = text.to_ascii_lowercase();
    password_assignments(&lower, &mut ranges);
    credentials(text, &lower, &mut ranges);
    authorizations(text, &mut ranges);
    ranges.sort_unstable();
    // Merge ranges that overlap.
    let mut merged: Vec<(usize, usize)> = Vec::new();
    for (from, to) in ranges {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// Returns `true` if a URL in a text ends at that character.
fn ends_url(c: char) -> bool {
    c.is_whitespace() || c.is_control() || ['"', '`', '<', '>'].contains(&c)
}

/// `scheme://name:password@host` (RFC 3986, 3.2.1).
fn passwords(text: &str, ranges: &mut Vec<(usize, usize)>) {
    for (at, _) in text.match_indices("://") {
        let begin = at + 3;
        if let Some(password) = password(&text[begin..]) {
            let from = begin + text[begin..].find(':').map_or(0, |colon| colon + 1);
            ranges.push((from, from + password.len()));
        }
    }
}

/// Returns the password of a URL, given the text after `://`. A password with an unencoded `/`, `?`
/// or `#` ends at the last `@`. Such a URL is invalid, but its password must be masked too.
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

/// Returns `true` if the password of a URL contains `/`, `?` or `#`, which would end it too early.
pub(crate) fn has_raw_password(url: &str) -> bool {
    url.split_once("://")
        .and_then(|(_, rest)| password(rest))
        .is_some_and(|password| password.contains(['/', '?', '#']))
}

/// `?token=x` and `&token=x` in a URL or in a part of one.
fn query_fields(text: &str, ranges: &mut Vec<(usize, usize)>) {
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
            ranges.push((from, from + length));
        }
    }
}

/// `turn:name:password@host`, which has no `//`. User names are not in RFC 7065, but in use.
fn turn_passwords(text: &str, ranges: &mut Vec<(usize, usize)>) {
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
                ranges.push((from, from + password.len()));
            }
        }
    }
}

/// Credentials in SRT stream ids: the password in `read:path:name:password` (MediaMTX), and values
/// such as `token=` between commas (SRT Access Control). Colons, commas and equals signs may be
/// percent-encoded.
fn stream_ids(text: &str, ranges: &mut Vec<(usize, usize)>) {
    let lower = text.to_ascii_lowercase();
    for name in ["streamid=", "stream id ", "streamid: ", "stream_id: "] {
        for (at, _) in lower.match_indices(name) {
            let from = at + name.len();
            let rest = &lower[from..];
            let quotes = rest.len() - rest.trim_start_matches(['"', '\'', '`']).len();
            let (from, rest) = (from + quotes, &rest[quotes..]);
            let ends = |c: char| ends_url(c) || ['&', '\''].contains(&c);
            stream_id(&rest[..rest.find(ends).unwrap_or(rest.len())], from, ranges);
        }
    }
}

/// Credentials in one lower-case stream id, which begins at `from`.
fn stream_id(id: &str, from: usize, ranges: &mut Vec<(usize, usize)>) {
    let is_path = id.starts_with("read") || id.starts_with("publish");
    let third = separators(id, ':', "%3a").get(2).copied();
    if let Some((_, after)) = third.filter(|&(_, after)| is_path && after < id.len()) {
        ranges.push((from + after, from + id.len()));
    }
    let mut begin = 0;
    let ends = separators(id, ',', "%2c").into_iter();
    for (end, next) in ends.chain([(id.len(), id.len())]) {
        let field = &id[begin..end];
        if let Some(&(at, after)) = separators(field, '=', "%3d").first() {
            let name = field[..at].rsplit([':', '?', '/', '!']).next();
            let name = name.unwrap_or("").trim_start_matches("%3a");
            if is_secret_field(name) && begin + after < end {
                ranges.push((from + begin + after, from + end));
            }
        }
        begin = next;
    }
}

/// Returns the byte ranges of a character in a text, plain or percent-encoded, in order.
fn separators(text: &str, plain: char, encoded: &str) -> Vec<(usize, usize)> {
    let as_is = text.match_indices(plain).map(|(at, _)| (at, at + 1));
    let coded = text.match_indices(encoded);
    let coded = coded.map(|(at, found)| (at, at + found.len()));
    let mut all: Vec<(usize, usize)> = as_is.chain(coded).collect();
    all.sort_unstable();
    all
}

/// Returns `true` if a query field of that name holds a secret. CDNs use names of their own.
fn is_secret_field(name: &str) -> bool {
    const NAMES: [&str; 3] = ["access", "st", "sid"];
    let plain = plain(name);
    is_secret_name(name) || plain.starts_with("auth") || NAMES.contains(&plain.as_str())
}

/// `password=x` and `pwd=x`, anywhere in a text.
fn password_assignments(lower: &str, ranges: &mut Vec<(usize, usize)>) {
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
                ranges.push((from, from + length));
            }
        }
    }
}

/// `Bearer x` and `Basic x` (RFC 6750, 2.1; RFC 7617, 2), but not the scheme names in a sentence.
fn credentials(text: &str, lower: &str, ranges: &mut Vec<(usize, usize)>) {
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
            // `realm=` is part of a server's challenge.
            let coded = value.contains(|c: char| c.is_ascii_digit() || "+/=_".contains(c))
                || value.chars().skip(1).any(|c| c.is_ascii_uppercase());
            if length >= SECRET_LENGTH_MIN && coded && !value.starts_with("realm=") {
                ranges.push((from, from + length));
            }
        }
    }
}

/// `Authorization: ...` to the end of the line (RFC 9110, 11.6.2).
fn authorizations(text: &str, ranges: &mut Vec<(usize, usize)>) {
    const NAME: &str = "authorization:";
    let lower = text.to_ascii_lowercase();
    for (at, _) in lower.match_indices(NAME) {
        let begin = at + NAME.len();
        let line = text[begin..].split(['\r', '\n']).next().unwrap_or("");
        let from = begin + (line.len() - line.trim_start().len());
        let to = begin + line.trim_end().len();
        if from < to {
            ranges.push((from, to));
        }
    }
}
