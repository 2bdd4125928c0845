//! How the clients of a run are dealt to its runners.
//!
//! Clients are dealt by the number of their slot, so everybody knows who plays which client, and
//! nothing is dealt again while a run goes on. Of each prefix of a population's slots a runner has
//! its exact share or less than one client more or fewer, so ramps interleave. Clients of rooms are
//! dealt by room, since participants receive each other.

use kit::descriptor::ASSUMED_STREAMS;
use measure::load::{Slots, divide, period};
use net::PortClaim;
use net::descriptors::open_files_limit;
use net::ports::DEFAULT_RANGE;
use scenario::{Description, Pick, Population, Scenario};

use crate::worker::count::files_needed_for;

/// The clients of each runner of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dealing {
    runners: usize,
    /// By population: the runner of each slot of a row that repeats itself.
    owners: Vec<Vec<usize>>,
    /// By population: whether it is dealt by room.
    by_room: Vec<bool>,
}

impl Dealing {
    /// Deals the clients of a scenario to runners with these weights. A runner with twice the
    /// weight of another has twice as many clients.
    pub fn new(scenario: &Scenario, weights: &[u32]) -> Dealing {
        let rooms: Vec<Option<Vec<String>>> = scenario.populations.iter().map(rooms).collect();
        let mut all: Vec<&String> = Vec::new();
        for room in rooms.iter().flatten().flatten() {
            if !all.contains(&room) {
                all.push(room);
            }
        }
        let owners_of_rooms = divide(weights, all.len());
        let by_clients = divide(weights, period(weights));
        let owners = rooms.iter().map(|rooms| match rooms {
            None => by_clients.clone(),
            Some(rooms) => {
                let number = |room| all.iter().position(|one| *one == room);
                let owner = |room| owners_of_rooms[number(room).unwrap_or_default()];
                rooms.iter().map(owner).collect()
            }
        });
        Dealing {
            runners: weights.len(),
            owners: owners.collect(),
            by_room: rooms.iter().map(Option::is_some).collect(),
        }
    }

    /// A single runner that plays all clients.
    pub(crate) fn whole(scenario: &Scenario) -> Dealing {
        Dealing::new(scenario, &[1])
    }

    /// Number of runners.
    pub fn runners(&self) -> usize {
        self.runners
    }

    /// Returns the slots of a runner in a population.
    pub fn slots(&self, population: usize, runner: usize) -> Slots {
        Slots::of_owner(runner, &self.owners[population])
    }

    /// Returns the maximum number of clients of a runner at a time, by population.
    pub fn clients(&self, scenario: &Scenario, runner: usize) -> Vec<u64> {
        let populations = scenario.populations.iter().enumerate();
        populations
            .map(|(index, population)| {
                let own = self.slots(index, runner);
                own.count_below(population.load.clients_max())
            })
            .collect()
    }

    /// Describes what the clients of a runner need.
    pub fn describe(&self, scenario: &Scenario, runner: usize) -> Description {
        scenario.describe_part(&self.clients(scenario, runner))
    }

    /// Returns what this process lacks for the clients of a runner, and how to get it; `None` if
    /// nothing is known to be missing.
    pub fn shortage(&self, scenario: &Scenario, runner: usize) -> Option<String> {
        let description = self.describe(scenario, runner);
        let files = files_needed_for(scenario, &description);
        if let Some(limit) = open_files_limit().filter(|limit| files > *limit) {
            return Some(format!(
                "its clients need {files} file descriptors in each worker, and it may open {limit}: \
                 raise the limit (`ulimit -n {files}`, LimitNOFILE of a systemd unit), or use more runners"
            ));
        }
        let ports = PortClaim::ports_max(&DEFAULT_RANGE);
        // Media may have fewer streams than is assumed.
        let needed = description.udp_ports / ASSUMED_STREAMS as u64;
        (needed > ports).then(|| {
            format!(
                "its clients need at least {needed} UDP ports, and one address has {ports}: use more runners"
            )
        })
    }

    /// Describes the dealing in sentences, one per line: the clients of each runner, and what they
    /// need.
    pub fn lines(&self, scenario: &Scenario, names: &[String]) -> Vec<String> {
        let mut lines: Vec<String> = (0..self.runners)
            .zip(names)
            .map(|(runner, name)| {
                let description = self.describe(scenario, runner);
                let each = description.populations.iter();
                let each = each.map(|plan| format!("{} {}", plan.clients_max, plan.name));
                format!(
                    "runner {name}: at most {}; {} file descriptors and {} UDP ports",
                    each.collect::<Vec<_>>().join(", "),
                    description.file_descriptors,
                    description.udp_ports
                )
            })
            .collect();
        let by_room = scenario.populations.iter().zip(&self.by_room);
        for (population, _) in by_room.filter(|(_, by_room)| **by_room) {
            lines.push(format!(
                "{}: dealt by room, each as a whole",
                population.name
            ));
        }
        lines
    }
}

/// Rooms of a population's URLs, in their order; `None` if its clients are dealt one by one.
///
/// A room that clients draw at random is known only when they start, so such clients are dealt one
/// by one.
fn rooms(population: &Population) -> Option<Vec<String>> {
    if population.pick == Pick::Random && population.urls.len() > 1 {
        return None;
    }
    let protocol = population.config.protocol();
    let room = |url: &String| {
        let stream = protocol.stream(url)?;
        (!stream.is_awaited).then_some(stream.topic)
    };
    population.urls.iter().map(room).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(text: &str) -> Scenario {
        protocols::install();
        Scenario::parse("test", text, &scenario::Overrides::default())
            .unwrap_or_else(|error| panic!("{error:?}"))
    }

    #[test]
    fn clients_are_dealt_by_weight() {
        let scenario =
            scenario("clients: {viewers: {urls: ['rtsp://127.0.0.1/a'], load: {clients: 10}}}\n");
        let dealing = Dealing::new(&scenario, &[2, 1]);
        assert_eq!(dealing.clients(&scenario, 0), [7]);
        assert_eq!(dealing.clients(&scenario, 1), [3]);
        let names = ["a".to_owned(), "b".to_owned()];
        let lines = dealing.lines(&scenario, &names);
        assert!(
            lines[0].starts_with("runner a: at most 7 viewers; "),
            "{lines:?}"
        );
        assert_eq!(Dealing::whole(&scenario).clients(&scenario, 0), [10]);
    }

    #[test]
    fn too_few_ports_are_a_shortage() {
        let with = |clients: u32| {
            scenario(&format!(
                "clients: {{viewers: {{urls: ['rtsp://127.0.0.1/a'], load: {{clients: {clients}}}}}}}\n\
                 workers: 16\n"
            ))
        };
        let shortage = |clients, runners| {
            let scenario = with(clients);
            Dealing::new(&scenario, &vec![1; runners]).shortage(&scenario, 0)
        };
        // One video stream takes two ports.
        assert_eq!(shortage(400, 1), None);
        let text = shortage(40_000, 1).expect("a pair each");
        assert!(
            text.contains("UDP ports") || text.contains("file descriptors"),
            "{text}"
        );
        assert_eq!(shortage(40_000, 100), None);
    }

    #[test]
    fn rooms_stay_whole_over_populations() {
        let room = |number| format!("janus+ws://127.0.0.1:8188/videoroom/{number}");
        let urls: Vec<String> = (1..=5).map(room).collect();
        let swapped: Vec<&String> = urls.iter().rev().collect();
        let text = format!(
            "clients:\n  talkers: {{urls: {urls:?}, pick: own, participate: {{}}, load: {{clients: 20}}}}\n  \
             viewers: {{urls: {swapped:?}, pick: own, load: {{clients: 10}}}}\n"
        );
        let scenario = scenario(&text);
        let dealing = Dealing::new(&scenario, &[1, 1]);
        assert_eq!(dealing.by_room, [true, true]);
        for runner in 0..2 {
            let rooms = |population: usize| {
                let own = dealing.slots(population, runner);
                let urls = &scenario.populations[population].urls;
                let slots = (0..20).filter_map(|number| own.nth(number));
                let slots = slots.take_while(|slot| *slot < 20);
                let rooms = slots.map(|slot| urls[slot as usize % 5].clone());
                rooms.collect::<std::collections::BTreeSet<_>>()
            };
            assert_eq!(rooms(0), rooms(1));
            assert_eq!(rooms(0).len(), [3, 2][runner]);
        }
    }
}
