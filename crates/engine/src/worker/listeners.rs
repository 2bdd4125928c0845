//! The listeners of reference servers.

use std::io;

use mio::net::{TcpListener, TcpStream};
use net::tls::TlsLayer;
use session::Session;

use super::config::ListenerPlan;
use super::ids::SocketId;
use super::runtime::Runtime;

/// Maximum number of connections that are accepted before other sockets are served.
const ACCEPTED_A_TURN: usize = 1024;

/// Settings for the connections of one listener.
struct Acceptor {
    plan: ListenerPlan,
    /// True if a connection was refused because the maximum number of them was open.
    is_full: bool,
}

/// The listeners of a worker, and the settings for their connections.
#[derive(Default)]
pub(super) struct Listeners {
    /// Empty once closed.
    listeners: Vec<TcpListener>,
    /// One for each listener; kept after the listeners are closed.
    acceptors: Vec<Acceptor>,
}

impl Listeners {
    pub(super) fn add(
        &mut self,
        runtime: &Runtime,
        listener: std::net::TcpListener,
        serving: ListenerPlan,
    ) -> io::Result<()> {
        if let Some(tls) = &serving.tls {
            tls.warm_up();
        }
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        let id = SocketId::Listener(self.listeners.len());
        runtime.readiness.poll(&mut listener, id)?;
        self.listeners.push(listener);
        self.acceptors.push(Acceptor {
            plan: serving,
            is_full: false,
        });
        Ok(())
    }

    /// Returns `true` if the worker has or had listeners.
    pub(super) fn are_any(&self) -> bool {
        !self.acceptors.is_empty()
    }

    pub(super) fn is_open(&self, index: usize) -> bool {
        index < self.listeners.len()
    }

    pub(super) fn count(&self) -> usize {
        self.listeners.len()
    }

    /// Accepts no more connections.
    pub(super) fn close(&mut self) {
        self.listeners.clear();
    }

    /// Accepts a connection; `number` is its number in this turn. Returns `None` if none is
    /// waiting.
    pub(super) fn accept(
        &self,
        index: usize,
        number: usize,
        runtime: &mut Runtime,
    ) -> io::Result<Option<TcpStream>> {
        let Some(listener) = self.listeners.get(index) else {
            return Ok(None);
        };
        if number >= ACCEPTED_A_TURN {
            runtime.read_later(SocketId::Listener(index));
            return Ok(None);
        }
        match listener.accept() {
            Ok((socket, _)) => Ok(Some(socket)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether another connection is refused because `open` connections are open, and the
    /// note about the first refusal. Sessions over UDP do not count: a request to end one of them
    /// may need a connection.
    pub(super) fn refuses(&mut self, index: usize, open: usize) -> (bool, Option<String>) {
        let acceptor = &mut self.acceptors[index];
        if open < acceptor.plan.max_sessions {
            return (false, None);
        }
        let first = !std::mem::replace(&mut acceptor.is_full, true);
        let text = first.then(|| format!("refusing connections: {open} are open, the maximum"));
        (true, text)
    }

    /// Returns the TLS layer for a connection of the listener, or `None` if its connections are
    /// plain.
    pub(super) fn layer(&self, index: usize) -> io::Result<Option<TlsLayer>> {
        let tls = self.acceptors[index].plan.tls.as_ref();
        let layer = tls.map(|tls| tls.layer().map_err(io::Error::other));
        layer.transpose()
    }

    /// Creates the session of a connection of the listener.
    pub(super) fn session(&self, index: usize, number: u64) -> Box<dyn Session> {
        (self.acceptors[index].plan.accept)(number)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener as Plain, TcpStream as Client};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn connections_beyond_the_maximum_are_refused_and_noted_once() {
        let waker = net::Waker::new().expect("linux has it");
        let (reports, _) = crossbeam_channel::unbounded();
        let runtime = Runtime::new(&waker, reports).expect("linux has it");
        let mut listeners = Listeners::default();
        let plain = Plain::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let serving = ListenerPlan {
            no_segmentation: false,
            own_descriptor_tables: false,
            max_sessions: 2,
            accept: Arc::new(|_| unreachable!("no session begins")),
            tls: None,
        };
        let added = listeners.add(&runtime, plain, serving);
        added.expect("it can be polled");
        assert_eq!(listeners.refuses(0, 1), (false, None));
        let (refused, text) = listeners.refuses(0, 2);
        assert!(refused && text.is_some_and(|text| text.contains("2 are open")));
        assert_eq!(listeners.refuses(0, 3), (true, None));
        assert_eq!(listeners.refuses(0, 1), (false, None));
    }

    #[test]
    fn number_of_accepts_in_a_turn_is_bounded() {
        let waker = net::Waker::new().expect("linux has it");
        let (reports, _) = crossbeam_channel::unbounded();
        let mut runtime = Runtime::new(&waker, reports).expect("linux has it");
        let mut listeners = Listeners::default();
        let plain = Plain::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let at = plain.local_addr().expect("it is bound");
        let serving = ListenerPlan {
            no_segmentation: false,
            own_descriptor_tables: false,
            max_sessions: usize::MAX,
            accept: Arc::new(|_| unreachable!("no session begins")),
            tls: None,
        };
        listeners
            .add(&runtime, plain, serving)
            .expect("it is polled");
        let _client = Client::connect(at).expect("it listens");
        let late = listeners.accept(0, ACCEPTED_A_TURN, &mut runtime);
        assert!(matches!(late, Ok(None)));
        assert_eq!(runtime.readiness.take_unread(), [SocketId::Listener(0)]);
        let give_up = Instant::now() + Duration::from_secs(10);
        while !matches!(listeners.accept(0, 0, &mut runtime), Ok(Some(_))) {
            assert!(Instant::now() < give_up, "it has connected");
        }
        assert!(listeners.is_open(0));
        listeners.close();
        assert!(listeners.are_any() && !listeners.is_open(0));
        let closed = listeners.accept(0, 0, &mut runtime);
        assert!(matches!(closed, Ok(None)));
    }
}
