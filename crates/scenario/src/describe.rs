//! Description of a run before it starts: its plan and the resources that it needs.

use std::time::Duration;

use kit::browser::{self, BROWSER_CATALOGUE};
use kit::descriptor::RunContext;
use measure::Time;
use measure::human::plural;
use measure::load::{Shape, wanted};
use measure::units::{Size, TimeSpan};
use serde::Serialize;

use crate::golden;
use crate::masking::mask_command;
use crate::model::{Leave, Population, Ready, Scenario, ServerStart, Tester};
use crate::sources;

/// Plan of a run and the resources that it needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Description {
    /// Plans of the populations, in the scenario's order.
    pub populations: Vec<PopulationPlan>,
    /// Sum of the maximum numbers of clients of all populations.
    pub clients_max: u64,
    /// Maximum number of file descriptors that the clients need.
    pub file_descriptors: u64,
    /// Maximum number of UDP ports that the clients need.
    pub udp_ports: u64,
    /// End of the run, without the graceful shutdown. `None` if the plan alone does not determine
    /// it.
    pub ends: Option<Duration>,
    lines: Vec<String>,
}

/// Plan of a population and the resources that it needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PopulationPlan {
    pub name: String,
    /// Name of the protocol.
    pub protocol: &'static str,
    /// Number of URLs that its clients choose from.
    pub urls: usize,
    /// Maximum number of clients at a time.
    pub clients_max: u64,
    /// Number of clients at each time at which the plan changes direction.
    pub levels: Vec<(Duration, u64)>,
    /// Maximum number of file descriptors that its clients need.
    pub file_descriptors: u64,
    /// Maximum number of UDP ports that its clients need.
    pub udp_ports: u64,
    /// True if its media comes from multicast groups, through sockets that its clients share.
    pub multicast: bool,
    /// True if its clients send or receive media.
    pub media: bool,
    /// True if its clients read connections with media as soon as data arrives, so that a packet
    /// ring is of no use to them.
    pub reads_at_once: bool,
    /// True if its clients read their media from UDP sockets themselves, so that no packet ring
    /// sees it.
    pub by_sockets: bool,
}

impl Description {
    /// Returns the description as sentences, one per line.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

impl Scenario {
    /// Describes what a run will do and need.
    pub fn describe(&self) -> Description {
        let clients = self.populations.iter().map(|own| own.load.clients_max());
        let mut description = self.describe_part(&clients.collect::<Vec<_>>());
        let secrets = self.secrets();
        let lines = self.lines(&description).into_iter();
        description.lines = lines.map(|line| secrets.mask(&line)).collect();
        description
    }

    /// Describes what a part of the clients needs: that many of each population. There are no
    /// lines.
    pub fn describe_part(&self, clients: &[u64]) -> Description {
        let all = self.populations.iter().map(|own| own.load.clients_max());
        let all = all.fold(0u64, u64::saturating_add);
        let each = self.populations.iter().zip(clients);
        let of = |(population, &clients)| plan_population(population, clients, all);
        let populations: Vec<PopulationPlan> = each.map(of).collect();
        let sum = |of: fn(&PopulationPlan) -> u64| {
            let each = populations.iter().map(of);
            each.fold(0, u64::saturating_add)
        };
        Description {
            clients_max: sum(|plan| plan.clients_max),
            file_descriptors: sum(|plan| plan.file_descriptors),
            udp_ports: sum(|plan| plan.udp_ports),
            ends: self.planned_end(),
            populations,
            lines: Vec::new(),
        }
    }

    /// Returns the end of the run if the plan alone determines it.
    fn planned_end(&self) -> Option<Duration> {
        if self.duration.is_some() {
            return self.duration;
        }
        self.populations
            .iter()
            .map(|population| {
                let planned = population.load.ends()?;
                let stays = match (&population.load.shape, population.leave) {
                    (Shape::Stages(stages), _) if stages.last()?.clients == 0 => Duration::ZERO,
                    (_, Leave::After(time)) if !population.load.rejoin => time,
                    _ => return None,
                };
                planned.checked_add(stays)
            })
            .try_fold(Duration::ZERO, |longest, ends| Some(longest.max(ends?)))
    }

    fn lines(&self, description: &Description) -> Vec<String> {
        let mut lines = vec![format!("scenario: {}", self.name)];
        if let Some(server) = &self.server {
            lines.push(match &server.start {
                ServerStart::Launch { name, port } => match port {
                    Some(port) => format!("server: launches {name} on port {port}"),
                    None => format!("server: launches {name}"),
                },
                ServerStart::Command(words) => {
                    format!("server: runs {}", mask_command(words).join(" "))
                }
                ServerStart::Observe { pid } => format!("server: observes process {pid}"),
                ServerStart::Observer { runner } => {
                    format!("server: on another machine, observed by runner {runner}")
                }
                ServerStart::Exporters { node, process, .. } => {
                    let urls = [node, process].into_iter().flatten();
                    let urls: Vec<&str> = urls.map(String::as_str).collect();
                    let urls = urls.join(" and ");
                    format!("server: on another machine, observed through {urls}")
                }
            });
            if let Some(ready) = &server.ready {
                let sign = match ready {
                    Ready::Port(port) => format!("it listens on port {port}"),
                    Ready::Udp(port) => format!("it has bound UDP port {port}"),
                    Ready::Line(text) => format!("it prints `{text}`"),
                    Ready::Pattern(text) => format!("it prints a line that matches `{text}`"),
                };
                lines.push(format!(
                    "server: ready when {sign}, within {}",
                    TimeSpan(server.ready_timeout)
                ));
            }
            if let Some(clips) = &server.clips {
                lines.push(format!(
                    "clips: {} of {} in {}, video {}{}, {} frames/s",
                    clips.count,
                    TimeSpan(clips.length),
                    clips.directory.display(),
                    clips.video,
                    clips
                        .audio
                        .map_or(String::new(), |rate| format!(", audio {rate}")),
                    clips.frame_rate
                ));
            }
        }
        lines.extend(self.network.line().map(str::to_owned));
        if let Some(congestion) = &self.congestion {
            lines.push(format!("network: TCP congestion control {congestion}"));
        }
        for placed in self.links() {
            let whose = match placed.population {
                Some(population) => format!("between clients of {population} and "),
                None => "between clients and ".to_owned(),
            };
            lines.push(format!("link: {whose}the server: {}", placed.link.line()));
        }
        for source in &self.sources {
            lines.push(source.line());
        }
        if !self.sources.is_empty() {
            lines.push(sources::HOW_LONG.to_owned());
        }
        for (population, plan) in self.populations.iter().zip(&description.populations) {
            lines.extend(population_lines(population, plan, self.duration.is_some()));
        }
        let context = RunContext::new(self.populations.iter().map(Population::member));
        for population in &self.populations {
            let urls = population.urls.iter();
            let awaited = urls.filter(|url| !population.awaited(&context, url).is_empty());
            let waited = awaited.count();
            let urls = population.urls.len();
            if population.config.facts().publishes() && population.load.clients_max() > urls as u64
            {
                lines.push(format!(
                    "{}: more clients than its {urls} URLs: servers accept one publisher of each",
                    population.name
                ));
            }
            if let Some(name) = &population.waits_for {
                lines.push(format!(
                    "{}: clients wait for the streams that {name} publish",
                    population.name
                ));
            } else if waited > 0 {
                lines.push(format!(
                    "{}: {waited} of their {} URLs are published by this scenario; their clients wait for the publisher",
                    population.name,
                    population.urls.len()
                ));
            }
        }
        for (population, golden) in self.golden() {
            let (name, number) = (&population.name, golden.chromium);
            lines.push(format!(
                "{name}: {number} headless Chromium, in addition to its clients; \
                 their figures are those of {}",
                browser::subject(name)
            ));
        }
        for threshold in &self.thresholds {
            lines.push(format!("threshold: {}", threshold.text));
        }
        let written = self.thresholds.iter();
        let written: Vec<measure::Threshold> = written
            .filter_map(|threshold| measure::Threshold::parse(&threshold.text).ok())
            .collect();
        let subjects = self.populations.iter().map(Population::subject);
        let of_golden = golden::subjects(&self.populations);
        let of_golden = of_golden.iter();
        let of_golden = of_golden.map(|name| (name.as_str(), BROWSER_CATALOGUE));
        let subjects: Vec<_> = subjects.chain(of_golden).collect();
        for text in measure::threshold::implied_thresholds(&written, &subjects) {
            lines.push(format!("threshold: {text} (implied)"));
        }
        for population in &self.populations {
            for demand in population.config.default_thresholds() {
                let text = format!("{}.{demand}", population.name);
                let replaced = measure::Threshold::parse(&text)
                    .is_ok_and(|own| written.iter().any(|other| other.replaces(&own)));
                if !replaced {
                    lines.push(format!("threshold: {text} (implied)"));
                }
            }
        }
        lines.push(self.end_line(description.ends));
        if !self.warm_up.is_zero() {
            lines.push(format!(
                "warm-up: the first {} count only for the numbers of clients and of failures",
                TimeSpan(self.warm_up)
            ));
        }
        lines.push(format!(
            "needs: {} file descriptors and {} UDP ports for {} clients at a time",
            description.file_descriptors, description.udp_ports, description.clients_max
        ));
        let mut groups = description.populations.iter().filter(|plan| plan.multicast);
        if groups.next().is_some() {
            lines.push(
                "needs: 2 more file descriptors for each multicast group on each worker; sockets read its media \
                 once for all clients"
                    .to_owned(),
            );
        }
        lines.extend(tester_lines(&self.tester));
        lines.push(format!("seed: {}", self.seed));
        lines
    }
}

impl Scenario {
    /// Describes when the run ends.
    fn end_line(&self, ends: Option<Duration>) -> String {
        let populations = &self.populations;
        let media = populations
            .iter()
            .all(|one| one.config.facts().stay.is_none());
        let stays = populations.iter().find(|one| {
            let ordered = matches!(one.leave, Leave::After(_)) && !one.load.rejoin;
            !ordered && !one.config.facts().ends_on_its_own
        });
        match (self.duration, ends) {
            (Some(duration), _) => format!("ends: after {}", TimeSpan(duration)),
            (None, Some(ends)) if media => {
                let ends = TimeSpan(ends);
                format!("ends: after {ends} at the latest, or with the media")
            }
            (None, Some(ends)) => format!("ends: after {} at the latest", TimeSpan(ends)),
            (None, None) if let Some(population) = stays => format!(
                "ends: when it is stopped (Ctrl-C): there is no `duration`, and clients of {} do not leave",
                population.name
            ),
            (None, None) if media => "ends: when every client's media has ended".to_owned(),
            (None, None) => "ends: when every client has left".to_owned(),
        }
    }
}

/// Plans `clients_max` clients of a population, in a run that has `all` clients in total.
fn plan_population(population: &Population, clients_max: u64, all: u64) -> PopulationPlan {
    let protocol = population.config.protocol();
    let facts = population.config.facts();
    let sockets = population.config.sockets_per_client(all);
    let each = |count: u64| clients_max.saturating_mul(count);
    PopulationPlan {
        name: population.name.clone(),
        protocol: protocol.name,
        urls: population.urls.len(),
        clients_max,
        levels: levels(population),
        file_descriptors: each(sockets.descriptors),
        udp_ports: each(sockets.udp_pairs.saturating_mul(2)),
        multicast: facts.is_multicast,
        media: facts.has_media,
        reads_at_once: facts.reads_at_once,
        by_sockets: facts.by_sockets,
    }
}

/// Returns the number of clients at each turning point of the plan.
fn levels(population: &Population) -> Vec<(Duration, u64)> {
    let load = &population.load;
    let at = |time: Duration| (time, wanted(load, Time::from_start(time)));
    let mut time = load.after;
    let mut levels = vec![at(time)];
    match &load.shape {
        Shape::Stages(stages) => {
            for stage in stages {
                time = time.saturating_add(stage.over);
                levels.push(at(time));
            }
        }
        Shape::Arrivals { .. } => {}
        _ => levels.extend(load.ends().map(at)),
    }
    levels.dedup();
    levels
}

fn tester_lines(tester: &Tester) -> Vec<String> {
    let bounds = tester.health.entries();
    let bounds = bounds.iter().map(|(key, value)| format!("{key} {value}"));
    let bounds: Vec<String> = bounds.collect();
    vec![
        format!(
            "tester: receive {}, with {} for each media socket and a ring of {} for each worker; priority {}",
            tester.receive.name(),
            Size(tester.receive_buffer),
            Size(tester.ring),
            tester.priority.name()
        ),
        format!("tester: health bounds: {}", bounds.join(", ")),
    ]
}

fn number_of(clients: u64) -> String {
    plural(clients as f64, "client", "clients")
}

/// Describes a population of a run with or without a `duration`.
fn population_lines(
    population: &Population,
    plan: &PopulationPlan,
    has_duration: bool,
) -> Vec<String> {
    let name = &population.name;
    let how = match &population.load.shape {
        Shape::AtOnce { clients } => format!("{} at once", number_of(*clients)),
        Shape::Ramp { clients, over } => {
            format!("{}, ramped over {}", number_of(*clients), TimeSpan(*over))
        }
        Shape::OneEvery { clients, every } => format!(
            "{}, one every {}, all after {}",
            number_of(*clients),
            TimeSpan(*every),
            TimeSpan(population.load.ends().unwrap_or_default())
        ),
        Shape::Stages(_) => {
            // The beginning of a long list is enough.
            let shown = plan.levels.iter().take(12);
            let mut levels: Vec<String> = shown
                .map(|(time, level)| format!("{level} at {}", TimeSpan(*time)))
                .collect();
            if plan.levels.len() > levels.len() {
                levels.push("...".to_owned());
            }
            format!("clients in stages: {}", levels.join(", "))
        }
        Shape::Arrivals {
            per_second,
            max_clients,
        } => format!("{per_second} clients arrive per second, at most {max_clients} at a time"),
    };
    let facts = population.config.facts();
    let begin = match population.load.after {
        Duration::ZERO => String::new(),
        after => format!(", beginning after {}", TimeSpan(after)),
    };
    let leave = match population.leave {
        Leave::WithRun if has_duration => facts.stay.clone().unwrap_or_else(|| {
            "stay until the run ends, or their media if its length is known".to_owned()
        }),
        Leave::WithRun | Leave::AtEnd => {
            let stays = facts.stay.clone();
            stays.unwrap_or_else(|| "leave when the media ends".to_owned())
        }
        Leave::After(time) => format!("leave after {}", TimeSpan(time)),
    };
    let rejoin = match population.load.rejoin {
        true => ", and others replace them",
        false => "",
    };
    let first = population.urls.first().map_or("", String::as_str);
    let urls = match population.urls.len() {
        0 | 1 => first.to_owned(),
        count => format!("{first} and {} more", count - 1),
    };
    let mut lines = vec![
        format!("{name}: {how}{begin}; they {leave}{rejoin}"),
        match facts.publishes() {
            true => format!("{name}: publish over {} to {urls}", plan.protocol),
            false if !plan.media => format!("{name}: {} to {urls}", plan.protocol),
            false => format!("{name}: {} from {urls}", plan.protocol),
        },
    ];
    if let Some(media) = facts.media {
        let to = match (media.receiver, media.address) {
            (Some(receiver), _) => format!("the receiver {receiver}"),
            (None, Some(address)) => format!("{address}"),
            (None, None) => "the address of the requests".to_owned(),
        };
        let ports = media
            .ports
            .map_or(String::new(), |ports| format!(", ports {ports}"));
        lines.push(format!("{name}: media goes to {to}{ports}"));
    }
    if let Some(actions) = facts.actions {
        lines.push(format!("{name}: each {actions}"));
    }
    lines
}
