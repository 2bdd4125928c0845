//! Connection of a runner to coordinators.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::{Client, Subject};
use crossbeam_channel::{Receiver, Sender, bounded};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use net::clock::monotonic_nanos;

use super::{RELEASE_TIMEOUT, RunnerOptions};
use crate::background::Background;
use crate::connection::ConnectionState;
use crate::error::ClusterError;
use crate::machine;
use crate::names::{Claim, is_name};
use crate::orders::{Answer, Hello, HelloAnswer, Order, decode, encode};
use crate::storage::{
    HELLO, Storage, hello_subject, is_answer_of, is_sent_by_a_client, new_word, order_subject,
};

/// Time limit for opening everything.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval between checks whether the server denies a subject.
const DENIAL_INTERVAL: Duration = Duration::from_millis(20);

/// Orders that may wait.
const ORDERS_MAX: usize = 1024;

/// The connection of a runner.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) storage: Storage,
    pub(super) incarnation: String,
    pub(super) claim: Claim,
    orders: Receiver<(Order, Reply)>,
    answer: Arc<Mutex<HelloAnswer>>,
}

/// Destination of the answer to an order.
pub(super) struct Reply {
    client: Client,
    subject: Subject,
}

impl Reply {
    pub(super) fn send(self, background: &Background, answer: &Answer) {
        let bytes = encode(answer);
        background.spawn(async move {
            // The coordinator notices a missing answer.
            let _ = self.client.publish(self.subject, bytes).await;
            let _ = self.client.flush().await;
        });
    }
}

impl Link {
    /// Connects, claims the name, and begins to answer. `observes` describes the server of a runner
    /// that observes one.
    pub(super) fn open(
        background: &Background,
        options: &RunnerOptions,
        observes: Option<String>,
    ) -> Result<Link, ClusterError> {
        let options = options.clone();
        let url = options.access.url.clone();
        let opened = background.wait(OPEN_TIMEOUT, async move { open(&options, observes).await });
        opened.unwrap_or_else(|_| Err(ClusterError::no_answer(&url, OPEN_TIMEOUT)))
    }

    /// Next order, if one comes within this time.
    pub(super) fn next_order(&self, within: Duration) -> Option<(Order, Reply)> {
        self.orders.recv_timeout(within).ok()
    }

    /// Frees the name.
    pub(super) fn close(self, background: &Background) {
        // The name expires otherwise.
        let _ = background.wait(RELEASE_TIMEOUT, self.claim.release());
    }

    /// Sets the run that this runner takes part in.
    pub(super) fn set_run(&self, run: Option<String>) {
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.run = run;
    }
}

async fn open(options: &RunnerOptions, observes: Option<String>) -> Result<Link, ClusterError> {
    let url = &options.access.url;
    let (client, state) = options.access.connect(&options.name).await?;
    let incarnation = new_word(&client);
    let failed = |what: &'static str, why: String| ClusterError::Nats {
        url: url.clone(),
        what,
        why,
    };
    let answer = Arc::new(Mutex::new(HelloAnswer {
        name: options.name.clone(),
        incarnation: incarnation.clone(),
        version: options.version.clone(),
        weight: options.weight,
        machine: machine::facts(),
        run: None,
        observes,
    }));
    let (sender, taken) = bounded(ORDERS_MAX);
    let orders = client.subscribe(order_subject(&options.name, &incarnation));
    let orders = orders
        .await
        .map_err(|error| failed("orders", error.to_string()))?;
    let (storage, claim) = enter(options, &client, &state, &incarnation).await?;
    let name = options.name.clone();
    tokio::spawn(take_orders(client.clone(), name, orders, sender));
    let hellos = client.subscribe(HELLO).await;
    let hellos = hellos.map_err(|error| failed("questions", error.to_string()))?;
    tokio::spawn(answer_hellos(client.clone(), hellos, answer.clone()));
    Ok(Link {
        client,
        storage,
        incarnation,
        claim,
        orders: taken,
        answer,
    })
}

/// Opens what NATS keeps, and claims the name.
async fn enter(
    options: &RunnerOptions,
    client: &Client,
    state: &ConnectionState,
    incarnation: &str,
) -> Result<(Storage, Claim), ClusterError> {
    let opening = async {
        let storage = Storage::open(client, &options.access.url).await?;
        let claim = Claim::take(&storage.names, &options.name, incarnation).await?;
        Ok((storage, claim))
    };
    // A runner without its subjects gets no answers to its questions.
    match select(pin!(opening), pin!(denial(state))).await {
        Either::Left((opened, _)) => opened,
        Either::Right(_) => Err(ClusterError::NameDenied {
            name: options.name.clone(),
        }),
    }
}

/// Waits until the server denies a subject.
async fn denial(state: &ConnectionState) {
    while !state.is_denied() {
        tokio::time::sleep(DENIAL_INTERVAL).await;
    }
}

async fn answer_hellos(
    client: Client,
    mut hellos: async_nats::Subscriber,
    answer: Arc<Mutex<HelloAnswer>>,
) {
    while let Some(message) = hellos.next().await {
        let hello = decode::<Hello>(&message.payload);
        // A word of a subject.
        let Some(Hello { id, .. }) = hello.filter(|hello| is_name(&hello.id)) else {
            continue;
        };
        let (subject, bytes) = {
            let answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
            (hello_subject(&answer.name, &id), encode(&*answer))
        };
        let _ = client.publish(subject, bytes).await;
    }
}

/// Answers exchanges of timestamps at once, and passes other orders on.
async fn take_orders(
    client: Client,
    name: String,
    mut orders: async_nats::Subscriber,
    sender: Sender<(Order, Reply)>,
) {
    while let Some(message) = orders.next().await {
        let reached = monotonic_nanos();
        let is_own = is_sent_by_a_client(message.headers.as_ref());
        let reply = message
            .reply
            .filter(|reply| is_own && is_answer_of(&name, reply));
        let Some(reply) = reply else {
            continue;
        };
        let refused = |why: &str| Answer::Refused {
            why: why.to_owned(),
        };
        let answer = match decode(&message.payload) {
            Some(Order::Clock) => Answer::Clock {
                reached,
                answered: monotonic_nanos(),
            },
            Some(order) => {
                let answer = Reply {
                    client: client.clone(),
                    subject: reply.clone(),
                };
                match sender.try_send((order, answer)) {
                    Ok(()) => continue,
                    Err(_) => refused("too many orders wait"),
                }
            }
            None => refused("it does not know this order: use the same version on all machines"),
        };
        let _ = client.publish(reply, encode(&answer)).await;
        let _ = client.flush().await;
    }
}
