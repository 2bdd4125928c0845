//! Keys of populations whose clients wait until another population publishes their stream.

use kit::descriptor::RunContext;
use measure::nearest::suggest;

use crate::error::Problem;
use crate::model::Population;
use crate::node::Node;

/// Refuses a `waits_for` that names no publishers, and keys that have no effect because no client
/// waits.
pub(crate) fn check(populations: &[Population], root: &Node, problems: &mut Vec<Problem>) {
    let Some(clients) = root.get("clients") else {
        return;
    };
    let context = RunContext::new(populations.iter().map(Population::member));
    for population in populations {
        let Some(entry) = clients.entry(&population.name) else {
            continue;
        };
        let key = |name| entry.node.entry(name);
        if let (Some(name), Some(key)) = (&population.waits_for, key("waits_for")) {
            if let Some((text, help)) = waits_for_problem(populations, &context, population, name) {
                problems.push(Problem::new(&key.node.origin, text).help(help));
            }
            continue;
        }
        let mut urls = population.urls.iter();
        if urls.any(|url| !population.awaited(&context, url).is_empty()) {
            continue;
        }
        for name in ["join_after", "wait_for_publisher"] {
            let Some(key) = key(name) else { continue };
            let text = format!(
                "`{name}` does nothing: no population publishes at the host and path of a URL of `{}`",
                population.name
            );
            Problem::new(&key.key_origin, text)
                .help("name the publishers, such as `waits_for: encoders`, or remove the key")
                .report(problems);
        }
    }
}

/// Returns the mistake of a `waits_for` that names `name`, with advice; `None` if it is right.
fn waits_for_problem(
    populations: &[Population],
    context: &RunContext,
    own: &Population,
    name: &str,
) -> Option<(String, String)> {
    let others = || populations.iter().filter(|other| other.name != own.name);
    let publishers = || others().filter(|other| context.publishes(&other.name));
    let names = || publishers().map(|other| other.name.as_str());
    if name == own.name {
        let text = "clients cannot wait for their own population".to_owned();
        return Some((text, suggest("", names())));
    }
    if others().all(|other| other.name != name) {
        return Some((
            format!("there is no population `{name}`"),
            suggest(name, names()),
        ));
    }
    if names().all(|other| other != name) {
        let text = format!("clients of `{name}` publish nothing");
        return Some((text, suggest("", names())));
    }
    // Publishers may wait for others, but not in a cycle.
    let mut next = name;
    for _ in populations {
        let other = populations.iter().find(|other| other.name == next)?;
        next = other.waits_for.as_deref()?;
        if next == own.name {
            let text = format!("`{}` and `{name}` would wait for each other", own.name);
            return Some((text, "remove one `waits_for`".to_owned()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::{Overrides, Scenario, ScenarioError};

    /// Reads a scenario of encoders, and of viewers with further keys.
    fn read(publishes: &str, viewers: &str) -> Result<Scenario, ScenarioError> {
        protocols::install();
        let text = format!(
            "clients:\n  encoder:\n    urls: [\"rtmp://h/{publishes}\"]\n    publish: {{ bitrate: 1Mbps }}\n    \
             load: {{ clients: 1 }}\n  viewers:\n    urls: [\"srt://h:8890?streamid=read:live/cam\"]\n    {viewers}\n    \
             load: {{ clients: 2 }}\nduration: 10s\n"
        );
        Scenario::parse("x.yaml", &text, &Overrides::default())
    }

    fn refused(publishes: &str, viewers: &str, words: &str) {
        let error = read(publishes, viewers).expect_err(viewers).to_string();
        assert!(error.contains(words), "{viewers}: {error}");
    }

    #[test]
    fn keys_that_do_nothing_are_refused() {
        for key in ["join_after: 2s", "wait_for_publisher: 2s"] {
            read("live/cam", key).expect("the viewers wait for the encoder");
            refused("live/other", key, "does nothing");
            let named = format!("{key}\n    waits_for: encoder");
            read("live/other", &named).expect("the viewers wait for the encoder");
        }
        refused("live/cam", "wait_for_publisher: 0s", "longer than 0s");
    }

    #[test]
    fn waits_for_names_publishers() {
        protocols::install();
        read("live/other", "waits_for: encoder").expect("it publishes");
        refused("live/cam", "waits_for: viewers", "their own population");
        refused(
            "live/cam",
            "waits_for: encodr",
            "there is no population `encodr`",
        );
        let more =
            "waits_for: others\n    load: { clients: 1 }\n  others:\n    urls: [\"rtmp://h/x\"]";
        refused("live/cam", more, "publish nothing");
        let mut circle = String::from("duration: 10s\nclients:\n");
        for (own, other) in [("one", "two"), ("two", "three"), ("three", "one")] {
            circle += &format!(
                "  {own}:\n    urls: [\"rtmp://h/a/{own}\"]\n    publish: {{ bitrate: 1Mbps }}\n    \
                 waits_for: {other}\n    load: {{ clients: 1 }}\n"
            );
        }
        let error =
            Scenario::parse("x.yaml", &circle, &Overrides::default()).expect_err("a circle");
        let problems = format!("{:?}", error.problems());
        assert!(
            problems.contains("`one` and `two` would wait"),
            "{problems}"
        );
    }
}
