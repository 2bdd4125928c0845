//! Connections over TLS: the handshake, what is read opened, and how it fails.
//!
//! All else that is done for a connection is done as ever: it is read as often, and the packet ring
//! shows its segments. What a record holds can be read when the last byte of the record has come,
//! and that is the time it has: the kernel's, of the segment which brought that byte.

use std::net::SocketAddr;
use std::time::Duration;

use measure::{Run, Time};
use mio::net::TcpStream;
use net::tls::{Fault, Layer, Reason};
use protocol::metrics as clients;
use protocol::session::{ChannelError, ChannelId, Closed, TlsError};

use super::Worker;
use super::outputs::Pending;
use super::receive::trace_runs;
use super::sessions::SessionKey;
use super::sockets::Socket;
use super::stream::{State, Stream};
use super::timers::Task;

/// How long a client of a reference server may take for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How many reads of handshakes there may be in a turn of the loop: each costs as much as hundreds
/// of packets, and a thousand clients at once must not keep what arrives waiting.
const HANDSHAKES_A_TURN: usize = 16;

/// Whose handshake it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Party {
    /// A session's that asked for the connection.
    Client {
        session: SessionKey,
        channel: ChannelId,
    },
    /// One that was accepted; it has no session before it stands.
    Server { acceptor: usize, serial: u64 },
}

impl Worker {
    /// TLS for a channel that is about to be connected; nothing where it is to be a plain one.
    pub(super) fn layer_of(
        &mut self,
        key: SessionKey,
        channel: ChannelId,
    ) -> Result<Option<Layer>, ChannelError> {
        let Some(slot) = self.slot(key) else {
            return Ok(None);
        };
        let Some(name) = slot.secured(channel) else {
            return Ok(None);
        };
        let population = slot.population;
        let made = match self.populations[population].tls() {
            Some(tls) => tls.layer(&name),
            None => return Err(ChannelError::Tls(TlsError::Unusable)),
        };
        made.map(Some).map_err(|fault| {
            self.note("tls_failed", Some(population), format!("{name}: {fault}"));
            ChannelError::Tls(error_of(fault.reason))
        })
    }

    /// An accepted connection is to be over TLS: its session begins when the handshake is through.
    pub(super) fn secure_accepted(
        &mut self,
        socket: TcpStream,
        acceptor: usize,
        layer: Layer,
    ) -> Stream {
        self.serial += 1;
        let party = Party::Server {
            acceptor,
            serial: self.serial,
        };
        let since = self.clock.now();
        let mut stream = Stream::new(socket, State::Securing { party, since });
        stream.tls = Some(layer);
        stream
    }

    /// Sets the time at which a handshake of ours as a server is given up.
    pub(super) fn limit_handshake(&mut self, place: usize) {
        if let Some(Socket::Stream(stream)) = self.sockets.get(place)
            && let State::Securing {
                party: Party::Server { serial, .. },
                since,
            } = stream.state
        {
            let socket = place;
            self.timers
                .add(since + HANDSHAKE, Task::Handshake { socket, serial });
        }
    }

    pub(super) fn give_up_handshake(&mut self, place: usize, of: u64) {
        if let Some(Socket::Stream(stream)) = self.sockets.get(place)
            && let State::Securing {
                party: Party::Server { serial, .. },
                ..
            } = stream.state
            && serial == of
        {
            let from = stream.socket.peer_addr().ok();
            self.sockets.remove(place);
            self.note_handshake(from, &TlsError::TimedOut);
        }
    }

    /// Says that a client of ours as a server came to no TLS.
    fn note_handshake(&mut self, from: Option<SocketAddr>, why: &dyn std::fmt::Display) {
        let from = from.map_or_else(|| "a client".to_owned(), |from| from.to_string());
        self.note("tls_failed", None, format!("{from}: {why}"));
    }

    /// Whether a handshake has to wait for the next turn, as many were read in this one.
    pub(super) fn handshake_waits(&mut self, place: usize) -> bool {
        self.handshakes += 1;
        let waits = self.handshakes > HANDSHAKES_A_TURN;
        if waits {
            self.unread.push(place);
        }
        waits
    }

    /// Takes in what a connection over TLS brought, with when that came; says whether it is to be
    /// read on.
    pub(super) fn open_sealed(&mut self, place: usize, bytes: &[u8], runs: &[Run]) -> bool {
        let mut plain = std::mem::take(&mut self.plain);
        let mut plain_runs = std::mem::take(&mut self.plain_runs);
        plain.clear();
        plain_runs.clear();
        let on = self.take_sealed(place, bytes, runs, &mut plain, &mut plain_runs);
        self.plain = plain;
        self.plain_runs = plain_runs;
        on
    }

    fn take_sealed(
        &mut self,
        place: usize,
        bytes: &[u8],
        runs: &[Run],
        plain: &mut Vec<u8>,
        plain_runs: &mut Vec<Run>,
    ) -> bool {
        let Some(Socket::Stream(stream)) = self.sockets.get_mut(place) else {
            return false;
        };
        // What still comes is of no interest.
        if matches!(stream.state, State::Closing { .. }) {
            return true;
        }
        let result = stream.open_sealed(bytes, runs, plain, plain_runs);
        if let Some(trace) = &mut stream.trace {
            trace_runs(trace, plain, plain_runs);
        }
        // Answers of the handshake, or the alert that says why not.
        let sent = stream.flush();
        let taken = match result {
            Ok(taken) => taken,
            Err(fault) => {
                self.tls_failed(place, &fault);
                return false;
            }
        };
        if taken.stands {
            let at = runs.last().map_or_else(|| self.clock.now(), |run| run.at);
            self.tls_stands(place, at);
            self.settle();
        }
        let Some(Socket::Stream(stream)) = self.sockets.get(place) else {
            return false;
        };
        // Its session may have handed it over at once, and a message have come with the end of the
        // handshake.
        if let State::Exchange { line } = stream.state {
            let at = plain_runs.last().map_or(self.turn, |run| run.at);
            return self.exchange_opened(place, line, plain, at, (taken.ended, sent.is_ok()));
        }
        let State::Open { session, channel } = stream.state else {
            return sent.is_ok() && !self.lost_securing(place, taken.ended);
        };
        if let Some(last) = plain_runs.last() {
            self.bytes_arrived(session, channel, plain, last.at, plain_runs);
            self.settle();
        }
        let how = match (taken.ended, sent) {
            (true, _) => Closed::End,
            (false, Err(_)) => Closed::Reset,
            (false, Ok(())) => return true,
        };
        // Its session may have closed it, and the place be another's.
        if self.is_of(place, session, channel) {
            self.lose_stream(place, how);
        }
        false
    }

    /// Takes a connection away that was ended in the middle of its handshake; says whether it was.
    fn lost_securing(&mut self, place: usize, ended: bool) -> bool {
        if ended {
            self.lose_stream(place, Closed::End);
        }
        ended
    }

    pub(super) fn is_of(&self, place: usize, key: SessionKey, of: ChannelId) -> bool {
        matches!(
            self.sockets.get(place),
            Some(Socket::Stream(Stream {
                state: State::Open { session, channel },
                ..
            })) if (*session, *channel) == (key, of)
        )
    }

    /// The handshake of a connection is through.
    fn tls_stands(&mut self, place: usize, at: Time) {
        let Some(Socket::Stream(stream)) = self.sockets.get_mut(place) else {
            return;
        };
        let State::Securing { party, since } = stream.state else {
            return;
        };
        match party {
            Party::Client { session, channel } => {
                let ends = (stream.socket.local_addr(), stream.socket.peer_addr());
                let (Ok(local), Ok(remote)) = ends else {
                    return self.lose_stream(place, Closed::Reset);
                };
                stream.state = State::Open { session, channel };
                let opened = Pending::Opened {
                    channel,
                    local,
                    remote: Some(remote),
                };
                self.pending.push_back((session, opened));
                if let Some(population) = self.slot(session).map(|slot| slot.population) {
                    let took = at.since(since).as_nanos() as u64;
                    self.populations[population]
                        .recorder
                        .record(clients::TLS_HANDSHAKE_DELAY, took);
                }
            }
            Party::Server { acceptor, .. } => self.serve_accepted(place, acceptor),
        }
    }

    /// TLS of a connection failed, in its handshake or after.
    fn tls_failed(&mut self, place: usize, fault: &Fault) {
        let Some(Socket::Stream(stream)) = self.sockets.try_remove(place) else {
            return;
        };
        let error = error_of(fault.reason);
        let remote = stream.socket.peer_addr().ok();
        let key = match stream.state {
            State::Securing {
                party: Party::Client { session, channel },
                ..
            } => {
                self.fail_to_open(session, channel, ChannelError::Tls(error));
                session
            }
            State::Open { session, channel } => {
                if let Some(slot) = self.slot(session) {
                    slot.forget_channel(channel);
                }
                self.connection_ended(session, channel, Closed::Tls(error));
                session
            }
            _ => return self.note_handshake(remote, fault),
        };
        let subject = self.slot(key).map(|slot| slot.population);
        let to = remote.map_or_else(String::new, |remote| format!("{remote}: "));
        self.note("tls_failed", subject, format!("{to}{fault}"));
    }

    /// A connection was ended by the other side without a word of TLS.
    pub(super) fn count_cut_off(&mut self, place: usize) {
        let Some(Socket::Stream(stream)) = self.sockets.get(place) else {
            return;
        };
        if let State::Open { session, .. } = stream.state
            && stream.tls.is_some()
            && let Some(slot) = self.slot(session)
        {
            let population = slot.population;
            self.populations[population]
                .recorder
                .add(clients::TLS_CUT_OFF, 1);
        }
    }

    /// The connection of a handshake has ended.
    pub(super) fn lost_in_handshake(&mut self, stream: &Stream, party: Party) {
        match party {
            Party::Client { session, channel } => {
                self.fail_to_open(session, channel, ChannelError::Tls(TlsError::Closed));
            }
            Party::Server { .. } => {
                self.note_handshake(stream.socket.peer_addr().ok(), &TlsError::Closed);
            }
        }
    }
}

/// What a fault means for a channel.
pub(super) fn error_of(reason: Reason) -> TlsError {
    match reason {
        Reason::Expired => TlsError::Expired,
        Reason::NotYetValid => TlsError::NotYetValid,
        Reason::UnknownIssuer => TlsError::UnknownIssuer,
        Reason::WrongName => TlsError::WrongName,
        Reason::BadCertificate => TlsError::BadCertificate,
        Reason::Incompatible => TlsError::Incompatible,
        Reason::Alert(number) => TlsError::Alert(number),
        Reason::NotTls => TlsError::NotTls,
        Reason::Broken => TlsError::Broken,
        Reason::Unusable => TlsError::Unusable,
    }
}
