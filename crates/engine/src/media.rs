//! Asking servers what their media is, before any of it is played.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use load::{Load, Shape, Share};
use measure::Time;
use measure::media::{self, DescribedUrl, Media, MediaDescription, Picking};
use net::{Clock, PortRange};
use protocol::registry::{self, Surroundings};
use protocol::session::Outcome;
use scenario::{Leave, Pick, Population, Scenario};

use crate::clients::{surroundings, tls};
use crate::control::Control;
use crate::crew::{Crew, Duty};
use crate::error::EngineError;
use crate::messages::{ClientState, Command, WorkerReport};
use crate::trace::Traced;
use crate::worker::{ClientPlan, MakeClient, PopulationPlan};

/// How long a scenario's servers are asked at most, all URLs together.
pub const DESCRIBE_WITHIN: Duration = Duration::from_secs(10);

/// The share of a run's duration that asking before it may take at most.
const SHARE_OF_RUN: u32 = 4;

/// How long asking may always take, however short the run is. A server that plays answers in
/// milliseconds.
const DESCRIBE_AT_LEAST: Duration = Duration::from_secs(1);

/// How many are asked at one time: few, so that no server is troubled before its run begins.
const AT_ONCE: usize = 8;

/// How long those that are told to stop may take.
const STOP_WITHIN: Duration = Duration::from_millis(500);

/// How often it is looked whether time is up.
const LOOK_UP: Duration = Duration::from_millis(20);

/// What each URL of a scenario is found out to be.
type Answers = BTreeMap<String, Result<MediaDescription, String>>;

/// How long servers are asked at most before a run of this duration: a server that says nothing
/// must not make a short run a long one. What it does not say now, the run finds out by itself.
pub(crate) fn within(duration: Option<Duration>) -> Duration {
    let allowed = duration.map(|duration| (duration / SHARE_OF_RUN).max(DESCRIBE_AT_LEAST));
    allowed.unwrap_or(DESCRIBE_WITHIN).min(DESCRIBE_WITHIN)
}

/// The URLs of a population whose server can be asked what their media is.
fn asked_for<'a>(population: &'a Population, surroundings: &Surroundings) -> Vec<&'a String> {
    let urls = population.urls.iter();
    // The scenario's own streams are not published yet.
    urls.filter(|url| population.awaited(surroundings, url).is_empty())
        .filter(|url| registry::asking(&population.config, url, 0).is_some())
        .collect()
}

/// Of how many URLs of a scenario [`describe`] asks.
pub(crate) fn askable(scenario: &Scenario) -> usize {
    let surroundings = surroundings(scenario);
    let populations = scenario.populations.iter();
    populations
        .map(|population| asked_for(population, &surroundings).len())
        .sum()
}

/// Asks what the media of every URL of a scenario is, with the connection, the TLS and the password
/// of the population that has it. Nothing is played. What cannot be asked for is left out: that of
/// protocols without descriptions, and streams that the scenario itself publishes, which are not
/// there yet.
///
/// At most eight are asked at a time, and all together within `within`; what is not known by then
/// is said to be so. A server that does not answer is no error.
///
/// # Errors
/// What keeps a run from beginning too, or the user stopped it.
pub fn describe(
    scenario: &Scenario,
    within: Duration,
    control: &Control,
) -> Result<Media, EngineError> {
    let deadline = Instant::now() + within;
    let mut found = Media::default();
    let surroundings = surroundings(scenario);
    let secrets = scenario.secrets();
    for population in &scenario.populations {
        let urls = asked_for(population, &surroundings);
        if urls.is_empty() {
            continue;
        }
        let answers = ask(population, &urls, scenario.seed, deadline, control)?;
        let too_late = || {
            let within = within.as_secs_f64();
            Err(format!("not asked: {within} s were not enough for all"))
        };
        // A URL that stands there twice is picked twice as often.
        let picked: Vec<DescribedUrl> = urls
            .iter()
            .map(|&url| {
                let answer = answers.get(url).cloned().unwrap_or_else(too_late);
                DescribedUrl {
                    population: population.name.clone(),
                    url: secrets.mask(url),
                    failure: answer.as_ref().err().map(|text| secrets.mask(text)),
                    description: answer.ok(),
                }
            })
            .collect();
        if population.pick == Pick::Random {
            let picking = Picking {
                clients: population.load.clients_max(),
                leave: match population.leave {
                    Leave::WithRun | Leave::AtEnd => None,
                    Leave::After(stay) => Some(stay),
                },
            };
            let differences = media::differences(&population.name, &picked, picking);
            found.differences.extend(differences);
        }
        let mut seen = BTreeSet::new();
        let once = picked.into_iter().zip(urls);
        let once = once.filter(|&(_, url)| seen.insert(url));
        found.urls.extend(once.map(|(described, _)| described));
    }
    Ok(found)
}

/// Asks for these URLs of a population, some at a time.
fn ask(
    population: &Population,
    urls: &[&String],
    seed: u64,
    deadline: Instant,
    control: &Control,
) -> Result<Answers, EngineError> {
    let mut urls: Vec<String> = urls.iter().copied().cloned().collect();
    urls.sort_unstable();
    urls.dedup();
    let tls = tls(population)?;
    let config = population.config.clone();
    let client: MakeClient = Arc::new(move |url, seat| {
        registry::asking(&config, url, seat.seed)
            .unwrap_or_else(|| Err("it cannot be asked for".to_owned()))
    });
    let mut answers = Answers::new();
    for some in urls.chunks(AT_ONCE) {
        if control.is_stopped() {
            return Err(EngineError::Stopped);
        }
        if Instant::now() >= deadline {
            break;
        }
        let load = Load {
            shape: Shape::AtOnce {
                clients: some.len() as u64,
            },
            rejoin: false,
        };
        let plan = PopulationPlan {
            name: population.name.clone(),
            catalogue: population.config.protocol().catalogue,
            clients: Some(ClientPlan {
                share: Share::new(&load, 0, 1),
                urls: some.to_vec(),
                pick: Pick::InTurn,
                leave: Leave::AtEnd,
                run_ends: Time::NEVER,
                client: client.clone(),
                tls: tls.clone(),
                traced: Traced::default(),
                media: true,
                sources: Vec::new(),
            }),
        };
        let duty = Duty {
            populations: vec![plan],
            serving: Vec::new(),
            endpoints: Vec::new(),
            // None is received.
            ports: PortRange::new(0..0),
            ring: None,
            goes_first: false,
            in_real_time: false,
        };
        let mut crew = Crew::start(vec![duty], STOP_WITHIN, seed)?;
        crew.begin(&Clock::start());
        hear(&mut answers, &crew, deadline, control);
    }
    Ok(answers)
}

/// Takes in what a crew learns, until it has ended or time is up.
fn hear(answers: &mut Answers, crew: &Crew, deadline: Instant, control: &Control) {
    let begun = Clock::start();
    let mut told = false;
    loop {
        match crew.reports.recv_timeout(LOOK_UP) {
            Ok(WorkerReport::Client(client)) => {
                if let Some((url, answer)) = answer_of(*client) {
                    answers.insert(url, answer);
                }
            }
            Ok(WorkerReport::Finished { .. }) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(_) => {}
            // What it said before it ended has been taken in.
            Err(RecvTimeoutError::Timeout) if crew.is_gone(0) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        if control.is_stopped() || now >= deadline + STOP_WITHIN {
            // Dropping the crew ends it.
            return;
        }
        if now >= deadline && !told {
            told = true;
            let until = begun.now() + STOP_WITHIN;
            crew.tell(|| Command::Stop { until });
        }
    }
}

/// What a client that has ended found out.
fn answer_of(client: ClientState) -> Option<(String, Result<MediaDescription, String>)> {
    let (_, outcome) = client.ended?;
    let answer = match (client.described, outcome) {
        (Some(said), _) => Ok(*said),
        (None, Outcome::Failed(failure) | Outcome::EndedByServer { failure, .. }) => {
            Err(format!("{}: {}", failure.reason, failure.detail))
        }
        (None, Outcome::Completed | Outcome::Stopped) => Err("no answer in time".to_owned()),
    };
    Some((client.url, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_takes_no_more_than_a_share_of_the_run() {
        let within = |seconds: Option<u64>| within(seconds.map(Duration::from_secs)).as_millis();
        assert_eq!(within(Some(1)), 1000);
        assert_eq!(within(Some(6)), 1500);
        assert_eq!(within(Some(20)), 5000);
        assert_eq!(within(Some(3600)), 10_000);
        assert_eq!(within(None), 10_000);
    }
}
