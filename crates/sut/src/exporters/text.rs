//! Text format of Prometheus exporters (prometheus.io, "Exposition formats", version 0.0.4): one
//! sample per line.

/// One line: `name{label="value",...} value`. A timestamp is ignored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    labels: &'a str,
    pub(super) value: f64,
}

/// Returns the samples of a text. Other lines (comments, unknown syntax) are skipped, so that
/// exporters of other makes are accepted.
pub(super) fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (name, labels, rest) = match line.find(['{', ' ', '\t']) {
        Some(at) if line.as_bytes()[at] == b'{' => {
            let inside = &line[at + 1..];
            let end = end_of_labels(inside)?;
            (&line[..at], &inside[..end], &inside[end + 1..])
        }
        Some(at) => (&line[..at], "", &line[at..]),
        None => return None,
    };
    // Rust also parses `NaN`, `+Inf` and `-Inf`.
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample {
        name,
        labels,
        value,
    })
}

/// Returns the position of the brace that ends the labels. A brace within a label's value is
/// skipped.
fn end_of_labels(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

impl Sample<'_> {
    /// Returns the value of a label, with its escapes resolved.
    pub(super) fn label(&self, name: &str) -> Option<String> {
        let mut rest = self.labels;
        loop {
            rest = rest.trim_start_matches([',', ' ', '\t']);
            let (key, after) = rest.split_once('=')?;
            let mut value = String::new();
            let mut chars = after.trim_start().strip_prefix('"')?.char_indices();
            let end = loop {
                match chars.next()? {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next()?.1 {
                        'n' => '\n',
                        other => other,
                    }),
                    (_, other) => value.push(other),
                }
            };
            if key.trim() == name {
                return Some(value);
            }
            rest = &after.trim_start()[1 + end + 1..];
        }
    }
}

/// Parses any text as the answer of an exporter.
///
/// # Panics
/// If there are more samples than lines, or a sample is not parsed again as it was written.
#[cfg(any(test, fuzzing))]
pub fn read_any(text: &str) {
    let mut count = 0;
    for found in samples(text) {
        count += 1;
        let names = found.labels.split('=');
        let names = names.map(|part| part.rsplit([',', '"', ' ']).next().unwrap_or_default());
        for name in names.take(20) {
            found.label(name);
        }
        let line = format!("{}{{{}}} {:?}", found.name, found.labels, found.value);
        let again = sample(&line);
        // A name is any text up to a brace. A line that begins with `#` would be a comment.
        if let Some(again) = again {
            assert_eq!((again.name, again.labels), (found.name, found.labels));
            assert!(again.value == found.value || found.value.is_nan());
        } else {
            panic!("{line:?} is not read again");
        }
    }
    assert!(count <= text.lines().count());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_real_exporters_are_read() {
        let text = "# HELP node_cpu_seconds_total Seconds the CPUs spent in each mode.\n\
            # TYPE node_cpu_seconds_total counter\n\
            node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} 23267.2\n\
            node_memory_MemTotal_bytes 2.5276514304e+10\n\
            namedprocess_namegroup_num_procs{groupname=\"a } \\\"b\\\"\\\\\"} 9 1395066363000\n\
            go_gc_duration_seconds{quantile=\"0.5\"} NaN\n\
            broken{a=\"b\" 3\n\n";
        let found: Vec<Sample<'_>> = samples(text).collect();
        assert_eq!(found.len(), 4);
        assert_eq!(found[0].name, "node_cpu_seconds_total");
        assert_eq!(found[0].label("mode").as_deref(), Some("idle"));
        assert_eq!(found[0].label("core"), None);
        assert_eq!(found[0].value, 23267.2);
        assert_eq!(
            (found[1].name, found[1].value),
            ("node_memory_MemTotal_bytes", 25276514304.0)
        );
        assert_eq!(found[2].label("groupname").as_deref(), Some("a } \"b\"\\"));
        assert_eq!(found[2].value, 9.0);
        assert!(found[3].value.is_nan());
    }

    proptest! {
        #[test]
        fn written_samples_are_parsed(values in prop::collection::vec("[^\n]{0,12}", 0..4), value: f64) {
            let labels: Vec<String> = values
                .iter()
                .enumerate()
                .map(|(number, value)| {
                    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
                    format!("l{number}=\"{escaped}\"")
                })
                .collect();
            let line = format!("some_name{{{}}} {value:?}", labels.join(","));
            // Labels with line breaks are excluded.
            prop_assume!(line.lines().count() == 1 && !line.ends_with('\r'));
            let found = sample(&line).expect("it is one");
            prop_assert_eq!(found.name, "some_name");
            prop_assert!(found.value == value || value.is_nan());
            for (number, value) in values.iter().enumerate() {
                let label = found.label(&format!("l{number}"));
                prop_assert_eq!(label.as_ref(), Some(value));
            }
        }

        #[test]
        fn any_text_is_parsed_consistently(text in "\\PC*|[a#{}=,\" 0-9.]{0,40}") {
            read_any(&text);
        }
    }
}
