//! Builds the command line that repeats a run: the arguments of this process with the seed of the
//! run, without the options that say where results go.

/// Options that say where results go and take a value.
const OUTPUT_OPTIONS: [&str; 10] = [
    "--out",
    "--json",
    "--html",
    "--junit",
    "--markdown",
    "--csv",
    "--metrics",
    "--otlp",
    "--resume",
    "-o",
];
/// Options about results without a separate value: flags, and those whose value follows `=`.
const OUTPUT_FLAGS: [&str; 4] = [
    "--force",
    "--no-run-file",
    "--dashboard",
    "--dashboard-linger",
];

/// Returns the command line of this process with `seed`, quoted for a shell.
pub(crate) fn command(seed: u64) -> String {
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| word.to_string_lossy().into_owned());
    build_command(words, seed)
}

fn build_command(words: impl Iterator<Item = String>, seed: u64) -> String {
    let mut text = "streamgauge".to_owned();
    let mut has_seed = false;
    let mut is_value = false;
    for word in words {
        if std::mem::take(&mut is_value) {
            continue;
        }
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        if OUTPUT_OPTIONS.contains(&name) {
            is_value = name == word;
            continue;
        }
        if OUTPUT_FLAGS.contains(&name) || word.starts_with("-o") {
            continue;
        }
        has_seed |= name == "--seed";
        text.push(' ');
        text += &quoted(&word);
    }
    if !has_seed {
        text += &format!(" --seed {seed}");
    }
    text
}

/// Quotes a word for a shell if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> String {
        build_command(words.iter().map(|&word| word.to_owned()), 7)
    }

    #[test]
    fn output_options_are_dropped_and_the_seed_is_added() {
        let words = [
            "demo",
            "-c",
            "5",
            "-o",
            "x.run",
            "--html=x.html",
            "--otlp",
            "http://c",
            "--force",
        ];
        assert_eq!(of(&words), "streamgauge demo -c 5 --seed 7");
        let words = ["load", "rtsp://h/a{1..3}", "--seed", "3", "-ox.run"];
        assert_eq!(of(&words), "streamgauge load 'rtsp://h/a{1..3}' --seed 3");
        let words = ["run", "it's.yaml", "--json", "-", "--csv", "x", "--seed=9"];
        assert_eq!(of(&words), "streamgauge run 'it'\\''s.yaml' --seed=9");
    }
}
