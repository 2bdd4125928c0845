//! Name resolution on its own thread, because the system's resolver blocks.

use std::net::{SocketAddr, ToSocketAddrs};

use crossbeam_channel::{Receiver, Sender, bounded};

/// Resolves names for all workers.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    questions: Sender<Lookup>,
}

struct Lookup {
    host: String,
    answer: Box<dyn FnOnce(ResolverAnswer) + Send>,
}

/// Result of a lookup. Empty if it failed.
#[derive(Clone, Debug)]
pub(crate) struct ResolverAnswer {
    pub(crate) host: String,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// Capacity of the lookup queue. A worker looks up each name once.
const QUESTIONS: usize = 1024;

impl Resolver {
    /// Starts the thread. It ends when the last handle is dropped.
    pub(crate) fn start() -> std::io::Result<Resolver> {
        let (questions, inbox): (Sender<Lookup>, Receiver<Lookup>) = bounded(QUESTIONS);
        std::thread::Builder::new()
            .name("resolver".to_owned())
            .spawn(move || {
                for question in inbox {
                    let addresses = (question.host.as_str(), 0)
                        .to_socket_addrs()
                        .map(|found| found.collect())
                        .unwrap_or_default();
                    (question.answer)(ResolverAnswer {
                        host: question.host,
                        addresses,
                    });
                }
            })?;
        Ok(Resolver { questions })
    }

    /// Looks up the addresses of a name and calls `answer` on the resolver's thread. Returns
    /// `false` if the queue is full.
    pub(crate) fn ask(
        &self,
        host: String,
        answer: impl FnOnce(ResolverAnswer) + Send + 'static,
    ) -> bool {
        self.questions
            .try_send(Lookup {
                host,
                answer: Box::new(answer),
            })
            .is_ok()
    }
}
