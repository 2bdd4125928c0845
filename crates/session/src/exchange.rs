//! A connection that a session has handed over ([`super::Output::Exchange`]): messages are sent and
//! received on it without the session.
//!
//! An [`Exchange`] does no I/O: received bytes go in, bytes to send come out. The engine holds one
//! exchange for each such connection and calls it for each message and each read.

use std::fmt;
use std::time::Duration;

use measure::{Recorder, Time};

use super::{CloseReason, Failure, Pace};

/// Send backlog in bytes above which the engine stops reading a connection: its peer does not read
/// the answers to its requests. 256 KiB.
pub const BACKLOG_MAX: usize = 256 * 1024;

/// Parts of the engine that an exchange may use during a call.
#[derive(Debug)]
pub struct ExchangeContext<'a> {
    /// Current time.
    pub now: Time,
    /// Counters and histograms of the population.
    pub recorder: &'a mut Recorder,
    /// Bytes to send are appended here.
    pub out: &'a mut Vec<u8>,
    /// Scratch buffer. Its contents are undefined at the start of a call.
    pub scratch: &'a mut Vec<u8>,
}

/// Action that the engine takes after a call of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Send the bytes that were added, and continue.
    Continue,
    /// The plan is complete: send the bytes that were added and plan nothing more.
    Finish,
    /// Close the connection.
    Close,
}

/// Cause of the end of a connection that was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeEnd {
    /// Both sides ended their sending in order.
    Finished,
    /// The exchange asked for it with [`NextStep::Close`].
    ClosedByUs,
    /// The peer closed the connection first, or it broke.
    Closed(CloseReason),
    /// The exchange rejected the received bytes.
    Failed(Failure),
}

/// Plan that all exchanges of a population share. The engine uses that of the first exchange.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Times at which messages are sent.
    pub pace: Pace,
    /// Records the duration of one round over all connections.
    pub round_ended: fn(Duration, &mut Recorder),
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            pace: Pace::OnAnswer,
            round_ended: |_, _| {},
        }
    }
}

/// One side of the messages on a connection.
///
/// The default methods do nothing, which suits a side that only answers.
pub trait Exchange: fmt::Debug {
    /// Plan of the messages. Default: nothing is planned.
    fn plan(&self) -> Plan {
        Plan::default()
    }

    /// Returns `true` if arrival times matter: the engine then asks the kernel for them. Default:
    /// `false`, and the times are those of reading.
    fn needs_arrival_times(&self) -> bool {
        false
    }

    /// Returns `true` if this side still sends after the peer has closed its sending direction, as
    /// a side that answers does. With `false`, the default, that ends the connection unless this
    /// side has [finished](Exchange::finish).
    fn sends_after_peer_closed(&self) -> bool {
        false
    }

    /// Starts the exchange: adds messages that may be sent at once without a plan.
    fn start(&mut self, tools: &mut ExchangeContext<'_>) {
        let _ = tools;
    }

    /// Adds the message that is due by [`Exchange::plan`], or nothing if none may be sent now. The
    /// hot path.
    fn write_planned(&mut self, tools: &mut ExchangeContext<'_>) {
        let _ = tools;
    }

    /// Called after the message of [`Exchange::write_planned`], which `tools.out` holds, was sent.
    /// It was planned for `planned`.
    fn planned_sent(&mut self, planned: Time, tools: &mut ExchangeContext<'_>) -> NextStep {
        let _ = (planned, tools);
        NextStep::Continue
    }

    /// Called if the message that was due was dropped, because the connection did not accept it.
    fn planned_dropped(&mut self, recorder: &mut Recorder) {
        let _ = recorder;
    }

    /// Handles received bytes, the last of which arrived at `at`.
    ///
    /// # Errors
    /// If the bytes are invalid. The engine then closes the connection.
    fn received(
        &mut self,
        bytes: &[u8],
        at: Time,
        tools: &mut ExchangeContext<'_>,
    ) -> Result<NextStep, Failure>;

    /// Time at which [`Exchange::run_scheduled`] must be called; `None` if nothing is scheduled.
    fn next_due(&self) -> Option<Time> {
        None
    }

    /// Adds messages that were scheduled for now.
    fn run_scheduled(&mut self, tools: &mut ExchangeContext<'_>) -> NextStep {
        let _ = tools;
        NextStep::Continue
    }

    /// Checks for timeouts. Called about once a second.
    fn check_timeouts(&mut self, tools: &mut ExchangeContext<'_>) -> NextStep {
        let _ = tools;
        NextStep::Continue
    }

    /// Returns `true` if [`Exchange::acknowledged`] has something to measure.
    fn tracks_acknowledgements(&self) -> bool {
        false
    }

    /// Records how far sent bytes have been acknowledged. `waiting` is the number of bytes sent and
    /// not acknowledged; TLS adds `sealing` bytes to each message.
    fn acknowledged(&mut self, waiting: u64, sealing: usize, recorder: &mut Recorder) {
        let _ = (waiting, sealing, recorder);
    }

    /// Stops planning messages.
    fn finish(&mut self) {}

    /// Time to wait for outstanding answers before the peer is told that no more messages follow,
    /// because many servers stop answering then. `None` if no answer is outstanding.
    fn answer_timeout(&self) -> Option<Duration> {
        None
    }

    /// Adds the message that announces the end of sending, if the message protocol has one. Called
    /// when nothing else is left to send.
    fn write_close(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Returns `true` if the peer must answer that message before the connection is closed.
    fn awaits_close_answer(&self) -> bool {
        false
    }

    /// Number of bytes that the exchange holds back to send later.
    fn backlog(&self) -> usize {
        0
    }

    /// Records the final counts. Called once.
    fn ended(&mut self, reason: &ExchangeEnd, recorder: &mut Recorder);
}
