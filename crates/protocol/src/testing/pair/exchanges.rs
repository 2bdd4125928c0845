//! Exchanges on connections that sessions have handed over, as a worker runs them.

use std::time::Duration;

use measure::Time;

use super::{Channel, Pair, Pending};
use crate::session::exchange::{After, Ended, Exchange, Plan, Tools};
use crate::session::schedule::{Due, Schedule};
use crate::session::{ChannelId, Closed, Failure};

/// Interval between calls of [`Exchange::look`].
const LOOK: Duration = Duration::from_secs(1);

/// Session and channel of a connection.
pub(super) type Key = (usize, ChannelId);

/// A connection that was handed over.
pub(super) struct HandedOver {
    exchange: Box<dyn Exchange>,
    plan: Plan,
    /// Schedule of this connection. A worker has one for all connections of a population.
    schedule: Schedule,
    connection: usize,
    end: usize,
    finishing: bool,
    /// Time until which answers are awaited; [`Time::NEVER`] if none are.
    patience: Time,
    /// Time of the next [`Exchange::look`].
    look: Time,
    /// `true` once this side has closed its sending direction.
    shut: bool,
    /// `true` once the peer has closed its sending direction.
    ended: bool,
}

impl HandedOver {
    fn due(&self) -> Time {
        let own = self.exchange.next_due().unwrap_or(Time::NEVER);
        let due = self.schedule.next_due().min(own).min(self.look);
        due.min(self.patience)
    }
}

impl Pair {
    pub(super) fn begin_exchange(
        &mut self,
        place: usize,
        channel: ChannelId,
        exchange: Box<dyn Exchange>,
    ) {
        let Some(&Channel::Stream { connection, end }) = self.slots[place].channels.get(&channel)
        else {
            return;
        };
        let plan = exchange.plan();
        let mut schedule = Schedule::new(plan.pace);
        schedule.join(0, self.now, self.settings.seed);
        let line = HandedOver {
            exchange,
            plan,
            schedule,
            connection,
            end,
            finishing: false,
            patience: Time::NEVER,
            look: self.now + LOOK,
            shut: false,
            ended: false,
        };
        let key = (place, channel);
        self.lines.insert(key, line);
        self.call(key, |exchange, tools| {
            exchange.begin(tools);
            Ok(After::Go)
        });
    }

    /// Time of the next event of an exchange, and its key.
    pub(super) fn exchange_due(&self) -> Option<(Time, Key)> {
        let dues = self.lines.iter().map(|(&key, line)| (line.due(), key));
        dues.filter(|(due, _)| *due != Time::NEVER).min()
    }

    /// Handles one due event of an exchange.
    pub(super) fn step_exchange(&mut self, key: Key) {
        let now = self.now;
        let Some(line) = self.lines.get_mut(&key) else {
            return;
        };
        if line.look <= now {
            line.look = now + LOOK;
            self.acknowledge(key);
            return self.call(key, |exchange, tools| Ok(exchange.look(tools)));
        }
        if line.patience <= now {
            line.patience = Time::NEVER;
            return self.go_on(key);
        }
        match line.schedule.next(now) {
            Some(Due::Send(_, planned)) => self.call(key, |exchange, tools| {
                exchange.write_planned(tools);
                match tools.out.is_empty() {
                    true => Ok(After::Go),
                    false => Ok(exchange.planned_sent(planned, tools)),
                }
            }),
            Some(Due::RoundEnded(began)) => {
                let recorder = &mut self.worlds[self.slots[key.0].side as usize].recorder;
                (line.plan.round_ended)(now.since(began), recorder);
            }
            Some(Due::RoundBegins(_)) => {}
            None => self.call(key, |exchange, tools| Ok(exchange.due(tools))),
        }
    }

    /// Calls an exchange, sends the bytes that it adds, and carries out the result.
    fn call(
        &mut self,
        key: Key,
        act: impl FnOnce(&mut dyn Exchange, &mut Tools<'_>) -> Result<After, Failure>,
    ) {
        let Some(line) = self.lines.get_mut(&key) else {
            return;
        };
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        let mut tools = Tools {
            now: self.now,
            recorder: &mut self.worlds[self.slots[key.0].side as usize].recorder,
            out: &mut out,
            scratch: &mut scratch,
        };
        let after = act(&mut *line.exchange, &mut tools);
        let (connection, end) = (line.connection, line.end);
        if !out.is_empty() {
            self.send_stream(connection, end, [&out, &[]]);
        }
        match after {
            Ok(After::Go) => self.go_on(key),
            Ok(After::Finish) => self.finish_exchange(key),
            Ok(After::Close) => self.end_exchange(key, Ended::OnPurpose),
            Err(failure) => self.end_exchange(key, Ended::Failed(failure)),
        }
    }

    /// Handles received bytes, and the end of the peer's sending. Returns `false` if the connection
    /// was not handed over.
    pub(super) fn exchange_hears(&mut self, key: Key, bytes: &[u8], ended: bool) -> bool {
        if !self.lines.contains_key(&key) {
            return false;
        }
        let at = self.now;
        if !bytes.is_empty() {
            self.call(key, |exchange, tools| exchange.received(bytes, at, tools));
        }
        if let Some(line) = self.lines.get_mut(&key).filter(|_| ended) {
            line.ended = true;
            match line.exchange.outlives_peer() || line.finishing {
                true => self.finish_exchange(key),
                false => self.end_exchange(key, Ended::Closed(Closed::End)),
            }
        }
        true
    }

    /// Stops planning messages.
    pub(super) fn finish_exchange(&mut self, key: Key) {
        let Some(line) = self.lines.get_mut(&key) else {
            return;
        };
        if !std::mem::replace(&mut line.finishing, true) {
            line.exchange.finish();
            line.schedule.leave(0);
            if let Some(patience) = line.exchange.patience() {
                line.patience = self.now + patience;
            }
        }
        self.go_on(key);
    }

    /// Continues the shutdown of an exchange if it is under way.
    fn go_on(&mut self, key: Key) {
        let Some(line) = self.lines.get_mut(&key) else {
            return;
        };
        let waits = line.exchange.patience().is_some() && !line.ended;
        if !line.finishing || line.exchange.waiting() > 0 || waits && line.patience > self.now {
            return;
        }
        let mut out = Vec::new();
        line.exchange.goodbye(&mut out);
        let (connection, end, ended) = (line.connection, line.end, line.ended);
        let shuts = !line.shut && !line.exchange.waits_for_goodbye();
        line.shut |= shuts;
        if !out.is_empty() {
            self.send_stream(connection, end, [&out, &[]]);
        }
        if shuts {
            self.close_other_way(connection, end);
        }
        if ended {
            self.end_exchange(key, Ended::InOrder);
        }
    }

    fn acknowledge(&mut self, key: Key) {
        if let Some(line) = self.lines.get_mut(&key)
            && line.exchange.wants_acknowledged()
        {
            let recorder = &mut self.worlds[self.slots[key.0].side as usize].recorder;
            line.exchange.acknowledged(0, 0, recorder);
        }
    }

    /// Ends an exchange and notifies its session.
    pub(super) fn end_exchange(&mut self, key: Key, how: Ended) {
        let (place, channel) = key;
        if self.drop_exchange(key, &how) {
            if let Some(Channel::Stream { connection, end }) =
                self.slots[place].channels.remove(&channel)
            {
                self.close_end(connection, end);
            }
            self.pending
                .push_back((place, Pending::Exchanged { channel, how }));
        }
    }

    /// Removes an exchange. Returns `false` if there is none.
    pub(super) fn drop_exchange(&mut self, key: Key, how: &Ended) -> bool {
        self.acknowledge(key);
        let Some(mut line) = self.lines.remove(&key) else {
            return false;
        };
        let recorder = &mut self.worlds[self.slots[key.0].side as usize].recorder;
        line.exchange.ended(how, recorder);
        true
    }
}
