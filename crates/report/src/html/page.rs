//! The page: one file that loads nothing. Its policy allows only the scripts and styles that it
//! contains.
//!
//! Texts from outside are in a block of JSON that no browser executes. The script shows them as
//! text and never as markup: the policy forbids every way of turning text into markup or script
//! (Trusted Types), all styles and scripts except those whose hashes it names, and all connections.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::ReportError;
use crate::sanitize;

/// First bytes of every page.
pub const FIRST_LINES: &str = "<!doctype html>\n<!-- streamgauge report -->";

/// Chart library: uPlot 1.6.32, MIT; its licence is in the page.
const UPLOT: &str = include_str!("../../assets/uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../../assets/uplot/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../../assets/uplot/LICENSE");

/// Our scripts, in the order in which they run.
const SCRIPTS: [&str; 10] = [
    include_str!("../../assets/format.js"),
    include_str!("../../assets/dom.js"),
    include_str!("../../assets/chart.js"),
    include_str!("../../assets/clients.js"),
    include_str!("../../assets/run.js"),
    include_str!("../../assets/multiples.js"),
    include_str!("../../assets/search.js"),
    include_str!("../../assets/comparison.js"),
    include_str!("../../assets/series.js"),
    include_str!("../../assets/page.js"),
];
const STYLE: &str = include_str!("../../assets/page.css");

/// Connections that the policy of a page allows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Connections {
    Forbidden,
    /// Requests to the server that the page came from.
    SameOrigin,
}

/// Returns the data with every text sanitized for a single line ([`crate::sanitize`]).
pub fn sanitized(mut data: Value) -> Value {
    sanitize(&mut data);
    data
}

/// Writes a page with a title, a text for browsers without scripts, and data. Each of `blocks` is
/// further data that is read on demand: the id of its element, and its content.
pub(super) fn write(
    title: &str,
    without_script: &str,
    data: Value,
    blocks: Vec<(String, Value)>,
    connections: Connections,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let scripts = format!("\"use strict\";\n{}", SCRIPTS.join("\n"));
    let styles = [UPLOT_STYLE, STYLE];
    let sources = [UPLOT, scripts.as_str()];
    let hashes = |texts: &[&str]| {
        let each = texts.iter().map(|text| format!("'sha256-{}'", hash(text)));
        each.collect::<Vec<_>>().join(" ")
    };
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'{}",
        hashes(&sources),
        hashes(&styles),
        match connections {
            Connections::Forbidden => "",
            Connections::SameOrigin => "; connect-src 'self'",
        }
    );
    write!(
        out,
        "{}\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"streamgauge {}\">\n<title>{}</title>\n",
        FIRST_LINES,
        env!("CARGO_PKG_VERSION"),
        escaped(title),
    )?;
    for style in styles {
        writeln!(out, "<style>{style}</style>")?;
    }
    write!(
        out,
        "</head>\n<body>\n<main id=\"page\" tabindex=\"-1\"></main>\n\
         <noscript><p>{}</p><p>This page draws its charts with a script of its own. Allow scripts to \
         see them.</p></noscript>\n",
        escaped(without_script),
    )?;
    for (name, mut data) in std::iter::once(("data".to_owned(), data)).chain(blocks) {
        sanitize(&mut data);
        let json = serde_json::to_string(&data).map_err(std::io::Error::from)?;
        writeln!(
            out,
            "<script type=\"application/json\" id=\"{name}\">{}</script>",
            in_script(&sanitize::json(&json)),
        )?;
    }
    writeln!(out, "<!-- uPlot 1.6.32\n{UPLOT_LICENCE}-->")?;
    for source in sources {
        writeln!(out, "<script>{source}</script>")?;
    }
    writeln!(out, "</body>\n</html>")?;
    out.flush()?;
    Ok(())
}

fn hash(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

/// Makes invisible and direction-changing characters visible in all texts, as in a terminal.
fn sanitize(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let std::borrow::Cow::Owned(plain) = sanitize::single_line(text) {
                *text = plain;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(sanitize),
        Value::Object(map) => {
            let entries = std::mem::take(map);
            map.extend(entries.into_iter().map(|(key, mut value)| {
                sanitize(&mut value);
                (sanitize::single_line(&key).into_owned(), value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Escapes JSON for a `script` element, so that nothing in it ends the element or begins a comment.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// Escapes a text for use in markup.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in sanitize::single_line(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn embedded_files_do_not_end_their_element() {
        for text in SCRIPTS.iter().chain([&UPLOT]) {
            assert!(!text.to_lowercase().contains("</script"));
            assert!(!text.contains("<!--"));
        }
        for text in [STYLE, UPLOT_STYLE] {
            assert!(!text.to_lowercase().contains("</style"));
        }
        assert!(!UPLOT_LICENCE.contains("--"));
    }

    #[test]
    fn texts_cannot_escape_the_data_block() {
        let text = "</script><script>alert(1)</script><!-- & \u{202e}\u{2028}\u{1b}[2J";
        let data = json!({ text: [text] });
        let mut page = Vec::new();
        let blocks = vec![("data-0".to_owned(), data.clone())];
        write(text, text, data, blocks, Connections::Forbidden, &mut page)
            .expect("a vector takes all");
        let page = String::from_utf8(page).expect("it is text");
        assert!(!page.contains("alert(1)</script"), "{page}");
        assert!(!page.contains(['\u{202e}', '\u{2028}', '\u{1b}']));
        for begins in ["id=\"data\">", "id=\"data-0\">"] {
            let from = page.find(begins).expect("there is data") + begins.len();
            let to = from + page[from..].find("</script>").expect("it ends");
            let back: Value = serde_json::from_str(&page[from..to]).expect("it is JSON");
            let shown = sanitize::single_line(text);
            assert_eq!(back, json!({ &*shown: [&*shown] }));
        }
    }

    #[test]
    fn hashes_match_those_of_browsers() {
        // Hash of the empty text, as in the specification of the policy.
        assert_eq!(hash(""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }
}
