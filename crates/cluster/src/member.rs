//! Runners that take part, and how they are asked.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, Request};
use futures_util::future::join_all;
use net::clock::monotonic_nanos;
use serde::{Deserialize, Serialize};

use crate::background::Background;
use crate::clock::{ClockEstimate, Exchange};
use crate::connection::ConnectionState;
use crate::error::ClusterError;
use crate::names::{is_name, is_word};
use crate::orders::{Answer, MachineFacts, Order, decode, encode};
use crate::storage::{Storage, answer_subject, new_word, order_subject};

/// Time limit for an exchange.
pub(crate) const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(2);

/// Connection that the coordinator shares with the crews of its runs.
pub(crate) struct Shared {
    pub(crate) background: Background,
    pub(crate) client: Client,
    pub(crate) state: Arc<ConnectionState>,
    pub(crate) storage: Storage,
}

/// A runner that takes part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) incarnation: String,
    pub(crate) weight: u32,
    pub(crate) machine: MachineFacts,
    /// Known only to the coordinator that asked.
    #[serde(skip)]
    pub(crate) clock: ClockEstimate,
}

impl Member {
    /// Returns the error of a runner that does not take part.
    pub(crate) fn failed(&self, why: String) -> ClusterError {
        let name = self.name.clone();
        ClusterError::Runner { name, why }
    }

    /// Returns `true` if such a runner can exist: a run file comes from anywhere.
    pub(crate) fn is_sound(&self) -> bool {
        is_name(&self.name) && is_word(&self.incarnation) && (1..=1_000).contains(&self.weight)
    }
}

/// Sends each runner its order, all at once. Returns the answers, or why there is none. `stop` ends
/// the wait.
pub(crate) fn ask(
    shared: &Shared,
    orders: Vec<(Member, bytes::Bytes)>,
    within: Duration,
    stop: &dyn Fn() -> bool,
) -> Vec<Result<Answer, String>> {
    let client = shared.client.clone();
    let count = orders.len();
    let limit = within + EXCHANGE_TIMEOUT;
    let asked = shared.background.wait_unless(stop, limit, async move {
        let asked = orders.into_iter().map(|(member, order)| {
            let client = client.clone();
            async move { ask_one(&client, &member, order, within).await }
        });
        join_all(asked).await
    });
    let nobody = || (0..count).map(|_| Err(no_answer(within))).collect();
    asked.unwrap_or_else(|_| nobody())
}

pub(crate) fn no_answer(within: Duration) -> String {
    format!("it did not answer within {} s", within.as_secs())
}

/// Sends an order to a runner. Returns its answer, unless that is a refusal.
pub(crate) async fn ask_one(
    client: &Client,
    member: &Member,
    order: bytes::Bytes,
    within: Duration,
) -> Result<Answer, String> {
    // A server permits a runner to answer under its own name alone.
    let inbox = answer_subject(&member.name, &new_word(client));
    let request = Request::new().payload(order).inbox(inbox);
    let request = request.timeout(Some(within));
    let subject = order_subject(&member.name, &member.incarnation);
    let answered = client.send_request(subject, request).await;
    let message = answered.map_err(|error| match error.kind() {
        async_nats::RequestErrorKind::TimedOut => no_answer(within),
        async_nats::RequestErrorKind::NoResponders => "it is gone".to_owned(),
        _ => error.to_string(),
    })?;
    match decode(&message.payload) {
        Some(Answer::Refused { why }) => Err(why),
        Some(answer) => Ok(answer),
        None => Err("its answer makes no sense: use the same version on all machines".to_owned()),
    }
}

/// Exchanges timestamps with one runner, one after another. Returns why the last one failed if all
/// of them did.
pub(crate) async fn exchange_with(
    client: &Client,
    member: &Member,
    count: usize,
) -> Result<Vec<Exchange>, String> {
    let mut exchanges = Vec::new();
    let mut failed = String::new();
    for _ in 0..count {
        let order = encode(&Order::Clock);
        let sent = monotonic_nanos();
        let answer = ask_one(client, member, order, EXCHANGE_TIMEOUT).await;
        let returned = monotonic_nanos();
        match answer {
            Ok(Answer::Clock { reached, answered }) => exchanges.push(Exchange {
                sent,
                reached,
                answered,
                returned,
            }),
            Ok(_) => {}
            Err(why) => failed = why,
        }
        if exchanges.is_empty() && !failed.is_empty() {
            break;
        }
    }
    match exchanges.is_empty() {
        true => Err(failed),
        false => Ok(exchanges),
    }
}
