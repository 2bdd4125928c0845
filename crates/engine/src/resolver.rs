//! Names to addresses, on a thread of its own: the system's look-up blocks.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

/// Looks names up for all workers.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    questions: Sender<Question>,
}

/// A name to look up.
struct Question {
    host: String,
    answer: Box<dyn FnOnce(Answer) + Send>,
}

/// What a name stands for. Empty where nothing is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) host: String,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// Questions that may wait: a worker asks once a name.
const QUESTIONS: usize = 1024;

impl Resolver {
    /// Starts the thread. It ends when the last handle is gone.
    pub(crate) fn start() -> std::io::Result<Resolver> {
        let (questions, inbox): (Sender<Question>, Receiver<Question>) = bounded(QUESTIONS);
        std::thread::Builder::new()
            .name("resolver".to_owned())
            .spawn(move || {
                for question in inbox {
                    let addresses = (question.host.as_str(), 0)
                        .to_socket_addrs()
                        .map(|found| found.collect())
                        .unwrap_or_default();
                    (question.answer)(Answer {
                        host: question.host,
                        addresses,
                    });
                }
            })?;
        Ok(Resolver { questions })
    }

    /// Asks for the addresses of a name. The answer is given on the resolver's thread. Says whether
    /// the question could be taken.
    pub(crate) fn ask(&self, host: String, answer: impl FnOnce(Answer) + Send + 'static) -> bool {
        self.questions
            .try_send(Question {
                host,
                answer: Box::new(answer),
            })
            .is_ok()
    }
}

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Question")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

/// A resolver's answer as a shared value, for caches.
pub(crate) type Addresses = Arc<[SocketAddr]>;
