//! Media descriptions: asks servers about their media before any of it is played.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use kit::descriptor::RunContext;
use measure::media::{self, DescribedUrl, Media, MediaDescription, Picking};
use net::{Clock, PortRange};
use scenario::{Leave, Pick, Population, Scenario};
use session::Outcome;

use crate::control::Control;
use crate::error::EngineError;
use crate::messages::{ClientState, RunnerCommand, WorkerReport};
use crate::runner::clients::{surroundings, tls};
use crate::worker::pool::{WorkerPlan, WorkerPool};
use crate::worker::{ClientPlan, MakeClient, WorkerPopulation};

/// Default and upper limit of the time for asking the servers of a scenario, for all URLs together.
pub const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Limit of the time for asking, as a fraction of the run's duration: one fourth.
const SHARE_OF_RUN: u32 = 4;

/// Time for asking that even a short run allows. A server that plays answers within milliseconds.
const DESCRIBE_AT_LEAST: Duration = Duration::from_secs(1);

/// Number of concurrent requests. Small, so that asking does not load the server before its run.
const AT_ONCE: usize = 8;

/// Shutdown timeout of requests that are cancelled.
const STOP_WITHIN: Duration = Duration::from_millis(500);

/// Interval between checks of the deadline and of the stop flag.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Answers by URL.
type Answers = BTreeMap<String, Result<MediaDescription, String>>;

/// Time limit for asking before a run of this duration. It keeps a silent server from delaying a
/// short run. The run itself finds out what is missing then.
pub(crate) fn describe_timeout(duration: Option<Duration>) -> Duration {
    let allowed = duration.map(|duration| (duration / SHARE_OF_RUN).max(DESCRIBE_AT_LEAST));
    allowed.unwrap_or(DESCRIBE_TIMEOUT).min(DESCRIBE_TIMEOUT)
}

/// URLs of a population whose server can be asked for a media description.
fn describable_urls<'a>(population: &'a Population, surroundings: &RunContext) -> Vec<&'a String> {
    let urls = population.urls.iter();
    // Streams that the scenario itself publishes do not exist yet.
    urls.filter(|url| population.awaited(surroundings, url).is_empty())
        .filter(|url| population.config.description_of(url, 0).is_some())
        .collect()
}

/// Number of URLs of a scenario that [`describe`] asks about.
pub(crate) fn describable_url_count(scenario: &Scenario) -> usize {
    let surroundings = surroundings(scenario);
    let populations = scenario.populations.iter();
    populations
        .map(|population| describable_urls(population, &surroundings).len())
        .sum()
}

/// Asks for a media description of every URL of a scenario, with the connection, TLS and
/// credentials of its population. Nothing is played. URLs of protocols without descriptions are
/// skipped, and so are streams that the scenario itself publishes, because they do not exist yet.
///
/// At most eight requests run at a time, and all together take at most `within`. URLs that are left
/// then are reported as not asked. A server that does not answer is not an error.
///
/// # Errors
/// The same errors that keep a run from beginning, or the user stopped it.
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
        let urls = describable_urls(population, &surroundings);
        if urls.is_empty() {
            continue;
        }
        let answers = request_descriptions(population, &urls, scenario.seed, deadline, control)?;
        let too_late = || {
            let within = within.as_secs_f64();
            Err(format!("not asked: the {within} s for all URLs were over"))
        };
        // A URL that is listed twice is picked twice as often.
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

/// Asks for the URLs of a population, [`AT_ONCE`] at a time.
fn request_descriptions(
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
    let client: MakeClient = Arc::new(move |url, identity| {
        config
            .description_of(url, identity.seed)
            .unwrap_or_else(|| Err("its protocol has no media description".to_owned()))
    });
    let mut answers = Answers::new();
    for some in urls.chunks(AT_ONCE) {
        if control.is_stopped() {
            return Err(EngineError::Stopped);
        }
        if Instant::now() >= deadline {
            break;
        }
        let (client, tls) = (client.clone(), tls.clone());
        let plan = WorkerPopulation {
            name: population.name.clone(),
            catalogue: population.config.protocol().catalogue,
            clients: Some(ClientPlan::at_once(
                some.to_vec(),
                Pick::InTurn,
                client,
                tls,
            )),
        };
        // No media is received.
        let duty = WorkerPlan::new(vec![plan], PortRange::new(0..0));
        let mut pool = WorkerPool::start(vec![duty], STOP_WITHIN, seed)?;
        pool.begin(&Clock::start());
        collect_answers(&mut answers, &pool, deadline, control);
    }
    Ok(answers)
}

/// Collects the answers of a worker pool until it has ended or the deadline has passed.
fn collect_answers(answers: &mut Answers, pool: &WorkerPool, deadline: Instant, control: &Control) {
    let begun = Clock::start();
    let mut stopping = false;
    loop {
        match pool.reports.recv_timeout(STOP_CHECK_INTERVAL) {
            Ok(WorkerReport::Client(client)) => {
                if let Some((url, answer)) = answer_of(*client) {
                    answers.insert(url, answer);
                }
            }
            Ok(WorkerReport::Finished { .. }) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(_) => {}
            // All reports of the ended worker are handled by now.
            Err(RecvTimeoutError::Timeout) if pool.is_gone(0) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        if control.is_stopped() || now >= deadline + STOP_WITHIN {
            // Dropping the pool kills its workers.
            return;
        }
        if now >= deadline && !stopping {
            stopping = true;
            let until = begun.now() + STOP_WITHIN;
            pool.broadcast(&RunnerCommand::Stop { until });
        }
    }
}

/// Result of a client that has ended; `None` if it is still running.
fn answer_of(
    ClientState { client, ended, .. }: ClientState,
) -> Option<(String, Result<MediaDescription, String>)> {
    let (_, outcome) = ended?;
    let answer = match (client.described, outcome) {
        (Some(description), _) => Ok(*description),
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
        let within =
            |seconds: Option<u64>| describe_timeout(seconds.map(Duration::from_secs)).as_millis();
        assert_eq!(within(Some(1)), 1000);
        assert_eq!(within(Some(6)), 1500);
        assert_eq!(within(Some(20)), 5000);
        assert_eq!(within(Some(3600)), 10_000);
        assert_eq!(within(None), 10_000);
    }
}
