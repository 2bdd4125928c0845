//! What a worker is started with.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use net::ring::RingSettings;
use net::{PortRange, Waker};
use protocol::session::Session;

use super::datagrams::EndpointPlan;
use super::links::Mailbox;
use super::populations::PopulationPlan;
use crate::messages::{Command, WorkerReport};
use crate::resolver::Resolver;

/// Makes the sessions of a reference server, one a connection.
pub(crate) type Accept = Arc<dyn Fn(u64) -> Box<dyn Session> + Send + Sync>;

/// A reference server's part of a worker.
pub(crate) struct Serving {
    /// Whether each datagram leaves by itself.
    pub(crate) apart: bool,
    /// Whether its worker has a table of descriptors of its own, and with it the process's limit to
    /// itself.
    pub(crate) own_files: bool,
    /// Maximum number of sessions of its worker.
    pub(crate) max_sessions: usize,
    pub(crate) accept: Accept,
    /// What it speaks TLS with; none where its connections are plain.
    pub(crate) tls: Option<net::tls::Server>,
}

/// A worker's packet ring.
#[derive(Clone, Debug)]
pub(crate) struct RingPlan {
    pub(crate) settings: RingSettings,
    /// True if each block wakes the worker, because feedback may be due.
    pub(crate) wakes: bool,
}

#[cfg(test)]
impl From<RingSettings> for RingPlan {
    fn from(settings: RingSettings) -> RingPlan {
        RingPlan {
            settings,
            wakes: false,
        }
    }
}

/// Everything a worker needs, as it can be sent to its thread.
pub(crate) struct Config {
    pub(crate) index: u32,
    pub(crate) commands: Receiver<Command>,
    pub(crate) reports: Sender<WorkerReport>,
    pub(crate) others: Vec<Mailbox>,
    pub(crate) resolver: Resolver,
    pub(crate) mailbox: Mailbox,
    pub(crate) ports: PortRange,
    /// Whether it goes before others that want the same processor.
    pub(crate) goes_first: bool,
    /// Whether what it paces goes before all else on this machine.
    pub(crate) in_real_time: bool,
    /// The packet ring by which media is received; none where it is received by sockets.
    pub(crate) ring: Option<RingPlan>,
    pub(crate) populations: Vec<PopulationPlan>,
    pub(crate) serving: Vec<(std::net::TcpListener, Serving)>,
    /// Reference servers over UDP.
    pub(crate) endpoints: Vec<EndpointPlan>,
    pub(crate) stop_timeout: Duration,
    pub(crate) seed: u64,
}

impl Config {
    /// What others wake the worker by, and what it wakes others by.
    pub(crate) fn wakers(&self) -> Vec<Arc<Waker>> {
        let mailboxes = self.others.iter().chain([&self.mailbox]);
        mailboxes.map(|mailbox| mailbox.waker.clone()).collect()
    }
}
