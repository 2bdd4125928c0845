//! Data that NATS keeps: the log of reports, the names of runners, and files.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use async_nats::jetstream::{self, Context, kv, object_store};
use async_nats::{Client, HeaderMap};

use crate::error::ClusterError;
use crate::names;

/// Stream with the reports of all runs.
pub(crate) const LOG: &str = "SG_REPORTS";

/// Bucket with the names of runners.
pub(crate) const NAMES: &str = "sg_names";

/// Bucket with the files that clients read.
pub(crate) const FILES: &str = "sg_files";

/// Time for which reports and files are kept.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Time in which a repeated message is recognised.
const DUPLICATES: Duration = Duration::from_secs(600);

/// Attempts to open everything, and the pause between them.
const OPEN_ATTEMPTS: u32 = 4;
const OPEN_PAUSE: Duration = Duration::from_millis(300);

/// Maximum size of a file that is kept.
pub(crate) const FILE_MAX: u64 = kit::media::source::FILE_MAX;

/// Name in place of that of a runner, in the subject of all runners.
pub(crate) const ALL: &str = "*";

/// Subject of the reports of a runner in a run. The name in the subject lets a server permit each
/// runner its own reports alone.
pub(crate) fn report_subject(run: &str, runner: &str) -> String {
    format!("sg.r.{run}.{runner}")
}

/// Subject of the signs of life of a runner.
pub(crate) fn beat_subject(run: &str, runner: &str) -> String {
    format!("sg.beat.{run}.{runner}")
}

/// Subject of the reports about the server of a run, by the runner that observes it.
pub(crate) fn server_subject(run: &str, runner: &str) -> String {
    format!("sg.o.{run}.{runner}")
}

/// Subject of the signs of life of the coordinator of a run.
pub(crate) fn lead_subject(run: &str) -> String {
    format!("sg.lead.{run}")
}

/// Subject of the topic messages of a runner in a run.
pub(crate) fn topic_subject(run: &str, runner: &str) -> String {
    format!("sg.t.{run}.{runner}")
}

/// Returns a word of a subject that nobody else has.
pub(crate) fn new_word(client: &Client) -> String {
    let inbox = client.new_inbox();
    inbox.rsplit('.').next().unwrap_or_default().to_owned()
}

/// Name of the runner in the subject of its message.
pub(crate) fn runner_of(subject: &str) -> &str {
    subject.rsplit('.').next().unwrap_or_default()
}

/// Subject of the orders to a runner.
pub(crate) fn order_subject(name: &str, incarnation: &str) -> String {
    format!("sg.do.{name}.{incarnation}")
}

/// Subject of the answer of a runner to one order.
pub(crate) fn answer_subject(name: &str, id: &str) -> String {
    format!("sg.a.{name}.{id}")
}

/// Subject of the answer of a runner to a question to all, and that of all answers.
pub(crate) fn hello_subject(name: &str, question: &str) -> String {
    format!("sg.h.{name}.{question}")
}

/// Returns `true` if a runner may send to a subject: it answers nothing else.
pub(crate) fn is_answer_of(name: &str, subject: &str) -> bool {
    let prefix = answer_subject(name, "");
    subject.starts_with(&prefix)
}

/// Header of messages that NATS has taken from a stream (ADR-31 of NATS, direct get).
const OF_STREAM: &str = "Nats-Stream";

/// Returns `true` if a client has sent this message itself. NATS sends what it keeps to any subject
/// that a client asks for, also to those that the client may not use.
pub(crate) fn is_sent_by_a_client(headers: Option<&HeaderMap>) -> bool {
    headers.is_none_or(|headers| headers.get(OF_STREAM).is_none())
}

/// Subject of the question to all runners.
pub(crate) const HELLO: &str = "sg.hello";

/// Data that NATS keeps.
#[derive(Clone)]
pub(crate) struct Storage {
    pub(crate) context: Context,
    pub(crate) log: jetstream::stream::Stream,
    pub(crate) names: kv::Store,
    pub(crate) files: object_store::ObjectStore,
}

impl Storage {
    /// Opens what the server keeps, and creates it if it is not there. Several processes may do so
    /// at once, of which one may find what is only half created.
    pub(crate) async fn open(client: &Client, url: &str) -> Result<Storage, ClusterError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match Storage::try_open(client, url).await {
                Err(_) if attempts < OPEN_ATTEMPTS => tokio::time::sleep(OPEN_PAUSE).await,
                result => return result,
            }
        }
    }

    async fn try_open(client: &Client, url: &str) -> Result<Storage, ClusterError> {
        let failed = |what: &'static str| {
            let url = url.to_owned();
            move |why: String| ClusterError::Nats { url, what, why }
        };
        let context = jetstream::new(client.clone());
        let log = context
            .get_or_create_stream(Config {
                name: LOG.to_owned(),
                subjects: vec!["sg.r.>".to_owned()],
                // A full log refuses; it does not drop.
                discard: DiscardPolicy::New,
                max_age: KEPT,
                duplicate_window: DUPLICATES,
                storage: StorageType::File,
                ..Config::default()
            })
            .await
            .map_err(|error| without_jetstream(&error.to_string()))
            .map_err(failed("the log of reports"))?;
        let names = names(&context)
            .await
            .map_err(failed("the names of runners"))?;
        let files = files(&context).await.map_err(failed("the files"))?;
        for (name, subjects) in [
            (LOG.to_owned(), vec!["sg.r.>".to_owned()]),
            (format!("KV_{NAMES}"), vec![format!("$KV.{NAMES}.>")]),
            (
                format!("OBJ_{FILES}"),
                vec![format!("$O.{FILES}.C.>"), format!("$O.{FILES}.M.>")],
            ),
        ] {
            let found = context.get_stream(&name).await;
            let found = found.map_err(|error| failed("what it keeps")(error.to_string()))?;
            let found = &found.cached_info().config;
            if !is_plain(found, &subjects) {
                let why = format!(
                    "its stream {name} was not created by streamgauge, or was changed: delete it"
                );
                return Err(failed("what it keeps")(why));
            }
        }
        Ok(Storage {
            context,
            log,
            names,
            files,
        })
    }
}

/// Returns `true` if a stream takes only these subjects, and passes nothing on. Any client that may
/// create a stream could create another one.
fn is_plain(found: &Config, subjects: &[String]) -> bool {
    let mut taken = found.subjects.clone();
    taken.sort();
    let alone = found.mirror.is_none() && found.sources.as_ref().is_none_or(Vec::is_empty);
    taken == subjects && alone && found.republish.is_none() && !found.no_ack
}

/// The usual reason of a failure is that JetStream is off.
fn without_jetstream(error: &str) -> String {
    let lower = error.to_lowercase();
    match lower.contains("no responders") || lower.contains("not enabled") {
        true => "JetStream is off: start it as `nats-server -js`".to_owned(),
        false => error.to_owned(),
    }
}

/// A bucket for keys is a stream. It is created as one, because nats-server 2.9 does not answer
/// what the client asks before it creates a bucket.
async fn names(context: &Context) -> Result<kv::Store, String> {
    let stream = Config {
        name: format!("KV_{NAMES}"),
        subjects: vec![format!("$KV.{NAMES}.>")],
        max_messages_per_subject: 1,
        max_age: names::EXPIRES,
        discard: DiscardPolicy::New,
        deny_delete: true,
        deny_purge: true,
        allow_direct: true,
        storage: StorageType::File,
        ..Config::default()
    };
    let created = context.get_or_create_stream(stream).await;
    created.map_err(|error| error.to_string())?;
    let bucket = context.get_key_value(NAMES).await;
    bucket.map_err(|error| error.to_string())
}

async fn files(context: &Context) -> Result<object_store::ObjectStore, String> {
    if let Ok(files) = context.get_object_store(FILES).await {
        return Ok(files);
    }
    let config = object_store::Config {
        bucket: FILES.to_owned(),
        max_age: KEPT,
        ..object_store::Config::default()
    };
    let created = context.create_object_store(config).await;
    created.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runner_answers_under_its_own_name_alone() {
        let inbox = answer_subject("one", "x");
        assert!(is_answer_of("one", &inbox));
        for other in ["sg.a.one2.x", "sg.do.one.x", "sg.a.one", "sg.r.x.one", ""] {
            assert!(!is_answer_of("one", other), "{other}");
        }
    }

    #[test]
    fn messages_that_nats_has_kept_are_not_those_of_a_client() {
        assert!(is_sent_by_a_client(None));
        let mut headers = HeaderMap::new();
        headers.insert("Sg-Sequence", "1");
        assert!(is_sent_by_a_client(Some(&headers)));
        headers.insert(OF_STREAM, "KV_sg_names");
        assert!(!is_sent_by_a_client(Some(&headers)));
    }

    #[test]
    fn streams_that_pass_messages_on_are_refused() {
        let subjects = vec!["sg.r.>".to_owned()];
        let plain = Config {
            subjects: subjects.clone(),
            ..Config::default()
        };
        assert!(is_plain(&plain, &subjects));
        let more = Config {
            subjects: vec!["sg.do.>".to_owned(), "sg.r.>".to_owned()],
            ..Config::default()
        };
        let silent = Config {
            no_ack: true,
            ..plain.clone()
        };
        assert!(!is_plain(&more, &subjects) && !is_plain(&silent, &subjects));
    }
}
