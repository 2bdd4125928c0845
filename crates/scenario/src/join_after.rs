//! `join_after`, the delay after a publisher of the same scenario has begun.

use protocol::registry::Surroundings;

use crate::error::Problem;
use crate::model::Population;
use crate::node::Node;

/// Refuses it where it would do nothing: players wait only for what the scenario itself publishes.
pub(crate) fn check(populations: &[Population], root: &Node, problems: &mut Vec<Problem>) {
    let Some(clients) = root.get("clients") else {
        return;
    };
    let configs = populations.iter();
    let surroundings = Surroundings::new(configs.map(|own| (&*own.config, own.urls.as_slice())));
    for population in populations {
        let entry = clients.entry(&population.name);
        let Some(key) = entry.and_then(|entry| entry.node.entry("join_after")) else {
            continue;
        };
        let waits = population
            .urls
            .iter()
            .any(|url| surroundings.publishes(url));
        if waits && !population.config.publishes() {
            continue;
        }
        problems.push(
            Problem::new(
                &key.key_origin,
                format!(
                    "`join_after` does nothing: nothing that `{}` plays is published by this scenario under the same URL",
                    population.name
                ),
            )
            .help("take it out, or have a population publish what is played"),
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::{Overrides, Scenario};

    fn read(publishes: &str) -> Result<Scenario, crate::ScenarioError> {
        let text = format!(
            "clients:\n  encoder:\n    urls: [\"rtmp://h/{publishes}\"]\n    publish: {{ bitrate: 1Mbps }}\n    \
             load: {{ clients: 1 }}\n  viewers:\n    urls: [\"rtmp://h/live/cam\"]\n    join_after: 2s\n    \
             load: {{ clients: 2 }}\nduration: 10s\n"
        );
        Scenario::parse("x.yaml", &text, &Overrides::default())
    }

    #[test]
    fn refused_if_nothing_is_waited_for() {
        read("live/cam").expect("the viewers wait for the encoder");
        let error = read("live/other").expect_err("nobody publishes it");
        assert!(
            error.to_string().contains("`join_after` does nothing"),
            "{error}"
        );
    }
}
