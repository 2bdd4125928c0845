//! A connection that a session has handed over ([`super::Output::Exchange`]): messages are sent and
//! read on it without the session.
//!
//! An [`Exchange`] does no I/O: bytes to be sent come out, bytes that came go in. Who runs the
//! session holds one for each such connection, and calls it for each message and each read.

use std::fmt;
use std::time::Duration;

use measure::{Recorder, Time};

use super::{Closed, Failure, Pace};

/// How many bytes may wait to be sent on a connection before nothing more is read from it: the
/// other side does not read what it asked for.
pub const CONGESTED: usize = 256 * 1024;

/// What an exchange may use while it is called.
#[derive(Debug)]
pub struct Tools<'a> {
    /// The time now.
    pub now: Time,
    /// Where the population's figures are added to.
    pub recorder: &'a mut Recorder,
    /// What is to be sent is added to it.
    pub out: &'a mut Vec<u8>,
    /// Room to compare in; what is in it means nothing.
    pub scratch: &'a mut Vec<u8>,
}

/// What is to be done after an exchange was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing but to send what was added.
    Go,
    /// All that was planned is through: nothing more is to be sent after this.
    Finish,
    /// The connection is to be closed.
    Close,
}

/// How a connection that was handed over ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both sides had nothing more to say.
    InOrder,
    /// It was to be closed.
    OnPurpose,
    /// The other side closed it first, or it broke.
    Closed(Closed),
    /// What came is of no use.
    Failed(Failure),
}

/// What all exchanges of a population have in common. That of the first counts.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// When their messages are sent.
    pub pace: Pace,
    /// Counts a round over all of them, which took so long.
    pub round_ended: fn(Duration, &mut Recorder),
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            pace: Pace::Answers,
            round_ended: |_, _| {},
        }
    }
}

/// One side of the messages on a connection. What is not written does nothing, as for a side that
/// only answers.
pub trait Exchange: fmt::Debug {
    /// By what its messages are planned.
    fn plan(&self) -> Plan {
        Plan::default()
    }

    /// Whether it matters when bytes came: then the kernel is asked for their time.
    fn wants_times(&self) -> bool {
        false
    }

    /// Whether it still sends after the other side has said that nothing more comes from there, as
    /// who answers does. Else that is the end, unless this side has [finished](Exchange::finish).
    fn outlives_peer(&self) -> bool {
        false
    }

    /// Sets to work: adds what may be sent at once, where nothing is planned.
    fn begin(&mut self, tools: &mut Tools<'_>) {
        let _ = tools;
    }

    /// Adds the message that is due by [`Exchange::plan`]; nothing where none may be sent. The hot
    /// path.
    fn write_planned(&mut self, tools: &mut Tools<'_>) {
        let _ = tools;
    }

    /// That message, which is what `tools.out` holds, was sent. It was planned for `planned`.
    fn planned_sent(&mut self, planned: Time, tools: &mut Tools<'_>) -> After {
        let _ = (planned, tools);
        After::Go
    }

    /// That message was not sent, and never will be: the connection does not take it.
    fn planned_not_sent(&mut self, recorder: &mut Recorder) {
        let _ = recorder;
    }

    /// Takes bytes in that came, the last of them at `at`.
    ///
    /// # Errors
    /// They are of no use: the connection is to be given up.
    fn received(&mut self, bytes: &[u8], at: Time, tools: &mut Tools<'_>)
    -> Result<After, Failure>;

    /// When [`Exchange::due`] is to be called; at any time nothing else is due.
    fn next_due(&self) -> Option<Time> {
        None
    }

    /// Adds what was to wait until now.
    fn due(&mut self, tools: &mut Tools<'_>) -> After {
        let _ = tools;
        After::Go
    }

    /// Has a look at what has not happened. Called about once a second.
    fn look(&mut self, tools: &mut Tools<'_>) -> After {
        let _ = tools;
        After::Go
    }

    /// Whether [`Exchange::acknowledged`] would tell anything new.
    fn wants_acknowledged(&self) -> bool {
        false
    }

    /// Takes up what has been acknowledged: of all bytes sent `waiting` have not; TLS adds
    /// `sealing` to each message.
    fn acknowledged(&mut self, waiting: u64, sealing: usize, recorder: &mut Recorder) {
        let _ = (waiting, sealing, recorder);
    }

    /// Plans nothing more.
    fn finish(&mut self) {}

    /// How long answers are waited for when nothing more is planned, before the other side is told
    /// so: many servers answer nothing any more once they are. None where no answer is to come.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Adds what tells the other side that nothing more comes, where messages have a way of their
    /// own to say so. Called when nothing else is to be sent.
    fn goodbye(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Whether the other side is to answer that before the connection is closed.
    fn waits_for_goodbye(&self) -> bool {
        false
    }

    /// How many bytes wait in it to be sent later.
    fn waiting(&self) -> usize {
        0
    }

    /// Counts what can only be known at the end. Called once.
    fn ended(&mut self, how: &Ended, recorder: &mut Recorder);
}
