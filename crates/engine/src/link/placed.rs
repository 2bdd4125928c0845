//! The emulated links of a run: created with its networks, read once per window, stopped at its
//! end.

use std::io;
use std::net::IpAddr;

use measure::Window;
use net::namespace::InterfaceConfig;
use net::{Clock, Namespace, Tun};
use session::link::SettingsTimeline;

use crate::link::{Emulator, LinkPlan};

/// A link and the subjects of its record.
#[derive(Debug)]
struct RunLink {
    /// Subject names: uplink (clients to server), downlink.
    subjects: [String; 2],
    emulator: Emulator,
}

#[derive(Debug, Default)]
pub(crate) struct Links(Vec<RunLink>);

/// One end of a link that is to be created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkEnd<'a> {
    /// Namespace of the interface.
    pub(crate) space: &'a Namespace,
    /// Interface and its addresses.
    pub(crate) tie: InterfaceConfig<'a>,
}

impl<'a> LinkEnd<'a> {
    pub(crate) fn new(
        space: &'a Namespace,
        interface: &'a str,
        addresses: &'a [(IpAddr, u8)],
    ) -> LinkEnd<'a> {
        let tie = InterfaceConfig {
            interface,
            addresses,
        };
        LinkEnd { space, tie }
    }

    /// Creates the interface.
    pub(super) fn open(&self, mtu: u16) -> io::Result<Tun> {
        let tun = self.space.run_in(|| {
            let tun = Tun::open(self.tie.interface)?;
            tun.set_up(mtu)?;
            Ok(tun)
        })?;
        self.space.set_up(&self.tie)?;
        Ok(tun)
    }
}

impl Links {
    /// Connects two namespaces by a link; the first end belongs to the clients. The link carries
    /// packets on return but records nothing yet.
    ///
    /// # Errors
    /// `NotFound` if /dev/net/tun is missing, or any other error of the operating system.
    pub(crate) fn tie(
        &mut self,
        subjects: [String; 2],
        [near, far]: [LinkEnd<'_>; 2],
        mtu: u16,
        courses: [SettingsTimeline; 2],
        seed: u64,
    ) -> io::Result<()> {
        let plan = LinkPlan {
            timelines: courses,
            // Each link has its own seed.
            seed: seed.wrapping_add(self.0.len() as u64),
        };
        let emulator = Emulator::start(near.open(mtu)?, far.open(mtu)?, plan)?;
        self.0.push(RunLink { subjects, emulator });
        Ok(())
    }

    /// True if the threads of all links run at real-time priority.
    pub(crate) fn all_realtime(&self) -> bool {
        self.0.iter().all(|link| link.emulator.is_realtime())
    }

    /// Starts the record of each link at time 0 of `clock`.
    pub(crate) fn begin(&self, clock: &Clock) {
        for link in &self.0 {
            link.emulator.begin(clock);
        }
    }

    /// Windows of each direction up to window `index`, merged with earlier ones that were not
    /// taken. The last window ends the record; the links continue to carry packets.
    pub(crate) fn window(&self, index: u64, is_last: bool) -> Vec<(String, Window)> {
        let mut found = Vec::new();
        for link in &self.0 {
            let seen = match is_last {
                true => link.emulator.end_record(),
                false => link.emulator.window(index),
            };
            if let Some(seen) = seen {
                let [up, down] = link.subjects.clone();
                found.extend([(up, seen.up), (down, seen.down)]);
            }
        }
        found
    }

    /// Stops all links. Returns a message for each link that had ended early.
    pub(crate) fn stop(self) -> Vec<String> {
        let ended = self.0.into_iter().filter_map(|link| {
            let [_, down] = link.subjects;
            let error = link.emulator.stop().err()?;
            Some(format!("the link of {down} ended early: {error}"))
        });
        ended.collect()
    }
}
