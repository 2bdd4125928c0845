//! Configuration of a worker.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use net::ring::RingSettings;
use net::{PortRange, Waker};
use session::Session;

use super::datagrams::EndpointPlan;
use super::ids::RunnerPlace;
use super::links::Mailbox;
use super::populations::WorkerPopulation;
use crate::messages::{Command, WorkerReport};
use crate::network::resolver::Resolver;
use crate::network::target_filter::TargetFilter;

/// Creates the session of a reference server for one accepted connection.
pub(crate) type Accept = Arc<dyn Fn(u64) -> Box<dyn Session> + Send + Sync>;

/// The TCP part of a reference server on a worker.
pub(crate) struct ListenerPlan {
    /// True if datagrams are not joined for segmentation by the kernel (`UDP_SEGMENT`).
    pub(crate) no_segmentation: bool,
    /// True if the worker's thread has its own file descriptor table, and so the process's
    /// descriptor limit for itself.
    pub(crate) own_descriptor_tables: bool,
    /// Maximum number of open connections of this worker.
    pub(crate) max_sessions: usize,
    pub(crate) accept: Accept,
    /// TLS configuration; `None` for plain connections.
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

/// Configuration of a worker; can be sent to its thread.
pub(crate) struct Config {
    pub(crate) index: u32,
    /// Place of the runner that the worker belongs to.
    pub(crate) place: RunnerPlace,
    /// Targets that its clients may send to.
    pub(crate) targets: TargetFilter,
    pub(crate) commands: Receiver<Command>,
    pub(crate) reports: Sender<WorkerReport>,
    pub(crate) others: Vec<Mailbox>,
    pub(crate) resolver: Resolver,
    pub(crate) mailbox: Mailbox,
    pub(crate) ports: PortRange,
    /// True if the worker's thread gets a higher scheduling priority (nice value).
    pub(crate) raised_priority: bool,
    /// True if the worker's pacer runs with real-time scheduling (`SCHED_FIFO`).
    pub(crate) realtime_pacer: bool,
    /// Packet ring that receives media; `None` if media is received from sockets.
    pub(crate) ring: Option<RingPlan>,
    pub(crate) populations: Vec<WorkerPopulation>,
    pub(crate) serving: Vec<(std::net::TcpListener, ListenerPlan)>,
    /// UDP ports of reference servers.
    pub(crate) endpoints: Vec<EndpointPlan>,
    pub(crate) stop_timeout: Duration,
    pub(crate) seed: u64,
}

impl Config {
    /// Wakers of this worker and of the others.
    pub(crate) fn wakers(&self) -> Vec<Arc<Waker>> {
        let mailboxes = self.others.iter().chain([&self.mailbox]);
        mailboxes.map(|mailbox| mailbox.waker.clone()).collect()
    }
}
