//! `docs/metrics.md` is generated from the catalogues.

use std::fmt::Write;
use std::path::Path;

use kit::browser::BROWSER_CATALOGUE;
use measure::metric::{Group, MetricSource};
use measure::{Catalogue, LINK_CATALOGUE, Metric, SERVER_CATALOGUE, TESTER_CATALOGUE, Unit};
use protocols::PROTOCOLS;

/// Maximum length of a line in a document, in characters.
const COLUMNS: usize = 100;

const HEAD: &str = "\
# Metrics

Every metric of every report, as printed by `streamgauge metrics`. Thresholds use these names:
`viewers.startup_delay.p95 < 2s` ([thresholds.md](thresholds.md)). Reports and CSV files use the
same names; those in Prometheus are derived from them ([reports.md](reports.md)).

Each name is followed by its unit and its kind:

- **counter**: counted over the run without its warm-up. Thresholds on numbers of clients, and
  counters of viewers (`viewers_served_well` and so on), include the warm-up.
- **level**: taken once a second; it has a mean, a minimum and a maximum. The mean is weighted by
  time. For cores, shares and bit/s, minimum and maximum are over at least half a second: a shorter
  window, such as the last one of a run, is joined with its neighbour.
- **distribution**: of single values; it has a mean, a minimum, a maximum, a count and percentiles
  such as `p95`, each within 0.1 %.
- **derived**: computed from counters.

Units are SI base units: seconds, bytes, bits per second. A share is from 0 to 1, and processor
usage is in cores. The metrics of a population depend on its protocol. A golden browser also has the
metrics of every population.

A test generates this page from the code and fails if it is stale. To regenerate it:
`STREAMGAUGE_WRITE_SCHEMA=1 cargo test -p streamgauge-report --test metrics_page`.
";

/// Groups of metrics, with the protocols whose populations have them.
struct Section {
    protocols: Vec<&'static str>,
    groups: Vec<&'static Group>,
}

/// Returns the groups of all protocols, joined if they belong to the same protocols.
fn sections() -> Vec<Section> {
    let mut groups: Vec<(&'static Group, Vec<&'static str>)> = Vec::new();
    for protocol in PROTOCOLS {
        for &group in protocol.catalogue.0 {
            match groups
                .iter_mut()
                .find(|(known, _)| std::ptr::eq(*known, group))
            {
                Some((_, protocols)) => protocols.push(protocol.name),
                None => groups.push((group, vec![protocol.name])),
            }
        }
    }
    let mut sections: Vec<Section> = Vec::new();
    for (group, protocols) in groups {
        match sections
            .iter_mut()
            .find(|section| section.protocols == protocols)
        {
            Some(section) => section.groups.push(group),
            None => sections.push(Section {
                protocols,
                groups: vec![group],
            }),
        }
    }
    sections
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for section in sections() {
        let title = match section.protocols.as_slice() {
            all if all.len() == PROTOCOLS.len() => "Every population".to_owned(),
            [one] => format!("Populations of {one}"),
            [most @ .., last] => format!("Populations of {} and {last}", most.join(", ")),
            [] => unreachable!("a section has the protocol it was found at"),
        };
        let metrics = section.groups.iter().flat_map(|group| group.metrics);
        list(&mut page, &title, metrics);
    }
    for (title, catalogue) in [
        ("Golden browsers of a population", BROWSER_CATALOGUE),
        ("Emulated links: uplink and downlink", LINK_CATALOGUE),
        ("The server", SERVER_CATALOGUE),
        ("The tester", TESTER_CATALOGUE),
    ] {
        list(&mut page, title, Catalogue::metrics(catalogue));
    }
    page
}

fn list<'a>(page: &mut String, title: &str, metrics: impl Iterator<Item = &'a Metric>) {
    let _ = write!(page, "\n## {title}\n\n");
    for metric in metrics {
        let mut text = format!("`{}` ({}): ", metric.name, kind(metric));
        text.push_str(&paragraph(metric.doc));
        if !metric.reference.is_empty() {
            let _ = write!(text, " Source: {}.", metric.reference);
        }
        fold(page, &text);
    }
}

/// Returns unit and kind of a metric.
fn kind(metric: &Metric) -> String {
    let unit = match metric.unit {
        Unit::Count => "",
        Unit::Ratio => "share, ",
        Unit::Seconds => "s, ",
        Unit::BitsPerSecond => "bit/s, ",
        Unit::Bytes => "bytes, ",
        Unit::Cores => "cores, ",
    };
    let kind = match metric.source {
        MetricSource::Counter(_) => "counter",
        MetricSource::Gauge(..) => "level",
        MetricSource::Distribution(_) => "distribution",
        _ => "derived",
    };
    format!("{unit}{kind}")
}

/// Formats a definition as one paragraph, which Markdown shows literally.
fn paragraph(doc: &str) -> String {
    let words: Vec<&str> = doc.split_whitespace().collect();
    let mut code = false;
    let mut text = String::new();
    for letter in words.join(" ").chars() {
        if letter == '`' {
            code = !code;
        }
        if !code && matches!(letter, '<' | '*' | '[') {
            text.push('\\');
        }
        text.push(letter);
    }
    text
}

/// Splits a text into words. Code spans are not split.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut code) = (vec![String::new()], false);
    for letter in text.chars() {
        code ^= letter == '`';
        let last = words.last_mut().expect("there is always one");
        match letter {
            ' ' if !code => words.push(String::new()),
            _ => last.push(letter),
        }
    }
    words
}

/// Adds a list item, folded to the maximum line length.
fn fold(page: &mut String, text: &str) {
    let mut line = "-".to_owned();
    for word in words(text) {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS {
            page.push_str(&line);
            page.push('\n');
            line = " ".to_owned();
        }
        line.push(' ');
        line.push_str(&word);
    }
    page.push_str(&line);
    page.push('\n');
}

/// To regenerate the file: `STREAMGAUGE_WRITE_SCHEMA=1 cargo test -p streamgauge-report`.
#[test]
fn metrics_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let made = page();
    if std::env::var_os("STREAMGAUGE_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, &made).expect("the page can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("the page is in the repository");
    assert!(
        kept == made,
        "regenerate docs/metrics.md: STREAMGAUGE_WRITE_SCHEMA=1 cargo test -p streamgauge-report"
    );
}

#[test]
fn metrics_page_has_every_metric_of_every_subject() {
    let page = page();
    let populations = PROTOCOLS.iter().map(|protocol| protocol.catalogue);
    let others = [
        BROWSER_CATALOGUE,
        LINK_CATALOGUE,
        SERVER_CATALOGUE,
        TESTER_CATALOGUE,
    ];
    for metric in populations.chain(others).flat_map(Catalogue::metrics) {
        let name = format!("\n- `{}` (", metric.name);
        assert!(page.contains(&name), "{}", metric.name);
    }
}

#[test]
fn definitions_are_shown_literally() {
    assert_eq!(
        paragraph("a < b,\n`c < d`  and e_f"),
        "a \\< b, `c < d` and e_f"
    );
    assert_eq!(words("a `b c`: d"), ["a", "`b c`:", "d"]);
    let mut page = String::new();
    fold(
        &mut page,
        &"word ".repeat(40).trim_end().replace("word", "words"),
    );
    assert!(
        page.lines().all(|line| line.chars().count() <= COLUMNS),
        "{page}"
    );
    assert!(
        page.starts_with("- words") && page.contains("\n  words"),
        "{page}"
    );
}
