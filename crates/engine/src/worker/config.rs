//! Configuration of a worker.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use net::ring::RingSettings;
use net::{PortRange, Waker};
use session::Session;

use super::datagrams::EndpointPlan;
use super::links::WorkerChannels;
use super::populations::WorkerPopulation;
use crate::messages::Command;
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

/// Work assigned to one worker.
pub(crate) struct WorkerPlan {
    pub(crate) populations: Vec<WorkerPopulation>,
    pub(crate) serving: Vec<(std::net::TcpListener, ListenerPlan)>,
    /// Reference servers over UDP. A worker with endpoints shares the process's descriptor table.
    pub(crate) endpoints: Vec<EndpointPlan>,
    pub(crate) ports: PortRange,
    /// Packet ring that receives media; `None` if media is received by sockets.
    pub(crate) ring: Option<RingPlan>,
    /// Whether the worker thread gets a raised priority.
    pub(crate) raised_priority: bool,
    /// Whether the worker's pacer runs at real-time priority.
    pub(crate) realtime_pacer: bool,
}

impl WorkerPlan {
    /// Plan without servers and without a packet ring, for a worker of usual priority.
    pub(crate) fn new(populations: Vec<WorkerPopulation>, ports: PortRange) -> WorkerPlan {
        WorkerPlan {
            populations,
            serving: Vec::new(),
            endpoints: Vec::new(),
            ports,
            ring: None,
            raised_priority: false,
            realtime_pacer: false,
        }
    }
}

/// Configuration of a worker; can be sent to its thread.
pub(crate) struct Config {
    pub(crate) plan: WorkerPlan,
    pub(crate) links: WorkerChannels,
    pub(crate) commands: Receiver<Command>,
    /// Targets that its clients may send to.
    pub(crate) targets: TargetFilter,
    pub(crate) resolver: Resolver,
    pub(crate) stop_timeout: Duration,
    pub(crate) seed: u64,
}

impl Config {
    /// Wakers of this worker and of the others.
    pub(crate) fn wakers(&self) -> Vec<Arc<Waker>> {
        let mailboxes = self.links.others.iter().chain([&self.links.mailbox]);
        mailboxes.map(|mailbox| mailbox.waker.clone()).collect()
    }
}
