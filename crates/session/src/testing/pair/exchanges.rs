//! Exchanges on connections that sessions have handed over, as a worker runs them.

use std::time::Duration;

use measure::Time;

use super::{Channel, Pair};
use crate::exchange::{Exchange, ExchangeContext, ExchangeEnd, NextStep, Plan};
use crate::schedule::{Schedule, Step};
use crate::{ChannelId, CloseReason, Failure, Input};

/// Interval between calls of [`Exchange::check_timeouts`].
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Session and channel of a connection.
pub(super) type ExchangeKey = (usize, ChannelId);

/// A connection that was handed over.
pub(super) struct RunningExchange {
    exchange: Box<dyn Exchange>,
    plan: Plan,
    /// Schedule of this connection. A worker has one for all connections of a population.
    schedule: Schedule,
    connection: usize,
    end: usize,
    finishing: bool,
    /// Time until which answers are awaited; [`Time::NEVER`] if none are.
    answers_until: Time,
    /// Time of the next [`Exchange::check_timeouts`].
    check_at: Time,
    /// `true` once this side has closed its sending direction.
    shut: bool,
    /// `true` once the peer has closed its sending direction.
    ended: bool,
}

impl RunningExchange {
    fn due(&self) -> Time {
        let own = self.exchange.next_due().unwrap_or(Time::NEVER);
        let due = self.schedule.next_due().min(own).min(self.check_at);
        due.min(self.answers_until)
    }
}

impl Pair {
    pub(super) fn begin_exchange(
        &mut self,
        index: usize,
        channel: ChannelId,
        exchange: Box<dyn Exchange>,
    ) {
        let Some(&Channel::Stream { connection, end }) = self.slots[index].channels.get(&channel)
        else {
            return;
        };
        let plan = exchange.plan();
        let mut schedule = Schedule::new(plan.pace);
        schedule.add(0, self.now, self.settings.seed);
        let running = RunningExchange {
            exchange,
            plan,
            schedule,
            connection,
            end,
            finishing: false,
            answers_until: Time::NEVER,
            check_at: self.now + CHECK_INTERVAL,
            shut: false,
            ended: false,
        };
        let key = (index, channel);
        self.exchanges.insert(key, running);
        self.call(key, |exchange, tools| {
            exchange.start(tools);
            Ok(NextStep::Continue)
        });
    }

    /// Time of the next event of an exchange, and its key.
    pub(super) fn exchange_due(&self) -> Option<(Time, ExchangeKey)> {
        let dues = self
            .exchanges
            .iter()
            .map(|(&key, running)| (running.due(), key));
        dues.filter(|(due, _)| *due != Time::NEVER).min()
    }

    /// Handles one due event of an exchange.
    pub(super) fn step_exchange(&mut self, key: ExchangeKey) {
        let now = self.now;
        let Some(running) = self.exchanges.get_mut(&key) else {
            return;
        };
        if running.check_at <= now {
            running.check_at = now + CHECK_INTERVAL;
            self.acknowledge(key);
            return self.call(key, |exchange, tools| Ok(exchange.check_timeouts(tools)));
        }
        if running.answers_until <= now {
            running.answers_until = Time::NEVER;
            return self.advance_exchange(key);
        }
        match running.schedule.next(now) {
            Some(Step::Send(_, planned)) => self.call(key, |exchange, tools| {
                exchange.write_planned(tools);
                match tools.out.is_empty() {
                    true => Ok(NextStep::Continue),
                    false => Ok(exchange.planned_sent(planned, tools)),
                }
            }),
            Some(Step::RoundEnded(began)) => {
                let recorder = &mut self.sides[self.slots[key.0].side as usize].recorder;
                (running.plan.round_ended)(now.since(began), recorder);
            }
            Some(Step::RoundBegins(_)) => {}
            None => self.call(key, |exchange, tools| Ok(exchange.run_scheduled(tools))),
        }
    }

    /// Calls an exchange, sends the bytes that it adds, and carries out the result.
    fn call(
        &mut self,
        key: ExchangeKey,
        act: impl FnOnce(&mut dyn Exchange, &mut ExchangeContext<'_>) -> Result<NextStep, Failure>,
    ) {
        let Some(running) = self.exchanges.get_mut(&key) else {
            return;
        };
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        let mut tools = ExchangeContext {
            now: self.now,
            recorder: &mut self.sides[self.slots[key.0].side as usize].recorder,
            out: &mut out,
            scratch: &mut scratch,
        };
        let after = act(&mut *running.exchange, &mut tools);
        let (connection, end) = (running.connection, running.end);
        if !out.is_empty() {
            self.send_stream(connection, end, [&out, &[]]);
        }
        match after {
            Ok(NextStep::Continue) => self.advance_exchange(key),
            Ok(NextStep::Finish) => self.finish_exchange(key),
            Ok(NextStep::Close) => self.end_exchange(key, ExchangeEnd::ClosedByUs),
            Err(failure) => self.end_exchange(key, ExchangeEnd::Failed(failure)),
        }
    }

    /// Handles received bytes, and the end of the peer's sending. Returns `false` if the connection
    /// was not handed over.
    pub(super) fn exchange_received(
        &mut self,
        key: ExchangeKey,
        bytes: &[u8],
        ended: bool,
    ) -> bool {
        if !self.exchanges.contains_key(&key) {
            return false;
        }
        let at = self.now;
        if !bytes.is_empty() {
            self.call(key, |exchange, tools| exchange.received(bytes, at, tools));
        }
        if let Some(running) = self.exchanges.get_mut(&key).filter(|_| ended) {
            running.ended = true;
            match running.exchange.sends_after_peer_closed() || running.finishing {
                true => self.finish_exchange(key),
                false => self.end_exchange(key, ExchangeEnd::Closed(CloseReason::End)),
            }
        }
        true
    }

    /// Stops planning messages.
    pub(super) fn finish_exchange(&mut self, key: ExchangeKey) {
        let Some(running) = self.exchanges.get_mut(&key) else {
            return;
        };
        if !std::mem::replace(&mut running.finishing, true) {
            running.exchange.finish();
            running.schedule.remove(0);
            if let Some(patience) = running.exchange.answer_timeout() {
                running.answers_until = self.now + patience;
            }
        }
        self.advance_exchange(key);
    }

    /// Continues the shutdown of an exchange if it is under way.
    fn advance_exchange(&mut self, key: ExchangeKey) {
        let Some(running) = self.exchanges.get_mut(&key) else {
            return;
        };
        let waits = running.exchange.answer_timeout().is_some() && !running.ended;
        if !running.finishing
            || running.exchange.backlog() > 0
            || waits && running.answers_until > self.now
        {
            return;
        }
        let mut out = Vec::new();
        running.exchange.write_close(&mut out);
        let (connection, end, ended) = (running.connection, running.end, running.ended);
        let shuts = !running.shut && !running.exchange.awaits_close_answer();
        running.shut |= shuts;
        if !out.is_empty() {
            self.send_stream(connection, end, [&out, &[]]);
        }
        if shuts {
            self.close_peer_direction(connection, end);
        }
        if ended {
            self.end_exchange(key, ExchangeEnd::Finished);
        }
    }

    fn acknowledge(&mut self, key: ExchangeKey) {
        if let Some(running) = self.exchanges.get_mut(&key)
            && running.exchange.tracks_acknowledgements()
        {
            let recorder = &mut self.sides[self.slots[key.0].side as usize].recorder;
            running.exchange.acknowledged(0, 0, recorder);
        }
    }

    /// Ends an exchange and notifies its session.
    pub(super) fn end_exchange(&mut self, key: ExchangeKey, reason: ExchangeEnd) {
        let (index, channel) = key;
        if self.drop_exchange(key, &reason) {
            if let Some(Channel::Stream { connection, end }) =
                self.slots[index].channels.remove(&channel)
            {
                self.close_end(connection, end);
            }
            self.push(index, Input::ExchangeEnded { channel, reason });
        }
    }

    /// Removes an exchange. Returns `false` if there is none.
    pub(super) fn drop_exchange(&mut self, key: ExchangeKey, reason: &ExchangeEnd) -> bool {
        self.acknowledge(key);
        let Some(mut running) = self.exchanges.remove(&key) else {
            return false;
        };
        let recorder = &mut self.sides[self.slots[key.0].side as usize].recorder;
        running.exchange.ended(reason, recorder);
        true
    }
}
