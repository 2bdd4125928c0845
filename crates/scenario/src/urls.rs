//! URLs of a population: ranges such as `{1..10}` are expanded, and each URL is checked.

use std::net::IpAddr;

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::error::Problem;
use crate::fields::{read_string, wrong_type};
use crate::masking::has_raw_password;
use crate::node::Node;

/// Maximum number of URLs of a population.
pub(crate) const MAX_URLS: usize = 10_000;

/// Maximum length of a URL, in bytes.
const MAX_LENGTH: usize = 2_000;

/// Placeholder for the server's address in a URL.
const SERVER: &str = "{server}";

/// Formats an address in URL syntax.
pub(crate) fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// Returns the URLs of `node`, a list of strings or one string, each with its node. `{server}` in
/// them is replaced by the address `server`, if given.
pub(crate) fn read<'a>(
    node: &'a Node,
    path: &str,
    server: Option<IpAddr>,
    problems: &mut Vec<Problem>,
) -> Vec<(String, &'a Node)> {
    let Some(items) = node.items() else {
        wrong_type(node, path, "a list of URLs")
            .help("write `urls: [\"rtsp://127.0.0.1:8554/clip{1..10}\"]`")
            .report(problems);
        return Vec::new();
    };
    if items.is_empty() {
        Problem::new(&node.origin, format!("`{path}` is empty"))
            .help("at least one URL is needed")
            .report(problems);
    }
    let mut urls = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let Some(written) = read_string(item, &format!("{path}.{index}"), problems) else {
            continue;
        };
        let written = match server {
            Some(server) => written.replace(SERVER, &host(server)),
            None => written,
        };
        if has_raw_password(&written) {
            let text = format!("`{written}`: the password ends at its first `/`, `?` or `#`");
            Problem::new(&item.origin, text)
                .help("write `/`, `?`, `#` and `@` in a password as %2F, %3F, %23 and %40")
                .report(problems);
            continue;
        }
        match expand(&written, MAX_URLS - urls.len()) {
            Ok(expanded) => urls.extend(expanded.into_iter().map(|url| (url, item))),
            Err((message, help)) => {
                problems.push(Problem::new(&item.origin, message).help(help));
            }
        }
    }
    urls
}

/// Returns `true` if another URL begins after a comma or white space, before any query.
fn has_second_url(text: &str) -> bool {
    let path = text.split('?').next().unwrap_or_default();
    let mut parts = path.split(|c: char| c == ',' || c.is_whitespace());
    let is_url = |part: &str| {
        part.split_once("://").is_some_and(|(scheme, _)| {
            let mut letters = scheme.chars();
            let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
            letters.next().is_some_and(|c| c.is_ascii_alphabetic()) && letters.all(is_scheme)
        })
    };
    parts.next().is_some_and(is_url) && parts.any(is_url)
}

/// Returns the JSON Schema of the values that [`read`] accepts.
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["array", "string"], "items": { "type": "string" } })
}

/// Expands every `{a..b}`; the last one changes fastest.
fn expand(text: &str, urls_max: usize) -> Result<Vec<String>, (String, &'static str)> {
    const FORM: &str = "write a range as `{1..10}`, or `{01..10}` to keep leading zeros; other braces as %7B and %7D";
    if text.len() > MAX_LENGTH {
        return Err((
            format!("this URL has {} bytes", text.len()),
            "at most 2000 are possible",
        ));
    }
    if has_second_url(text) {
        return Err((
            "these are several URLs in one".to_owned(),
            "write each on its own, in a list or after a space of the command line; a comma within \
             a URL as %2C",
        ));
    }
    let mut urls = vec![String::new()];
    let mut rest = text;
    while let Some(open) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(open);
        let (range, after) = after
            .strip_prefix('{')
            .and_then(|after| after.split_once('}'))
            .ok_or_else(|| ("an unmatched brace".to_owned(), FORM))?;
        let bounds = range
            .split_once("..")
            .and_then(|(from, to)| Some((number(from)?, number(to)?, width(from))))
            .filter(|(from, to, _)| from <= to);
        let Some((from, to, width)) = bounds else {
            return Err((format!("`{{{range}}}` is not a range"), FORM));
        };
        let count = usize::try_from(to - from)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        if count.saturating_mul(urls.len()) > urls_max {
            return Err((
                format!("`{{{range}}}` makes more than {MAX_URLS} URLs"),
                "that is the maximum for one population",
            ));
        }
        urls = urls
            .iter()
            .flat_map(|url| (from..=to).map(move |n| format!("{url}{before}{n:0width$}")))
            .collect();
        rest = after;
    }
    if urls.len() > urls_max {
        return Err((
            format!("there are more than {MAX_URLS} URLs"),
            "that is the maximum for one population",
        ));
    }
    for url in &mut urls {
        url.push_str(rest);
    }
    Ok(urls)
}

/// Expands every `{a..b}` in the URLs of a command line, as in a scenario.
///
/// # Errors
/// If a URL is invalid, or there are more than 10,000.
pub fn expand_urls(written: &[String]) -> Result<Vec<String>, String> {
    let mut urls = Vec::new();
    for one in written {
        let expanded = expand(one, MAX_URLS - urls.len());
        urls.extend(expanded.map_err(|(message, help)| format!("{one}: {message}; {help}"))?);
    }
    Ok(urls)
}

fn number(text: &str) -> Option<u64> {
    (text.len() <= 9 && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// Returns the minimum number of digits: that of `from` if it has leading zeros, else 0.
fn width(from: &str) -> usize {
    if from.starts_with('0') { from.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_expand_in_order() {
        let urls = expand("rtsp://h/{1..2}/c{08..10}.mp4", 100).expect("valid");
        assert_eq!(
            urls,
            [
                "rtsp://h/1/c08.mp4",
                "rtsp://h/1/c09.mp4",
                "rtsp://h/1/c10.mp4",
                "rtsp://h/2/c08.mp4",
                "rtsp://h/2/c09.mp4",
                "rtsp://h/2/c10.mp4"
            ]
        );
        assert_eq!(expand("rtsp://h/a", 100).expect("valid"), ["rtsp://h/a"]);
    }

    #[test]
    fn invalid_and_too_large_ranges_are_refused() {
        for bad in [
            "a{1..", "a}", "{}", "{1}", "{2..1}", "{a..b}", "{1..x}", "{-1..2}", "{1,2}",
            "{{1..2}}",
        ] {
            assert!(expand(bad, 100).is_err(), "{bad}");
        }
        assert!(expand("{1..101}", 100).is_err());
        assert!(expand("{1..11}{1..11}", 100).is_err());
        assert!(expand("{1..999999999}{1..999999999}", 100).is_err());
        assert!(expand("a", 0).is_err());
    }
}
