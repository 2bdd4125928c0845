//! The emulated links of a run: made with its networks, read once a window, stopped at its end.

use std::io;

use link::Course;
use measure::Window;
use net::namespace::Tie;
use net::{Clock, Namespace, Tun};

use crate::link::{Emulator, Plan};

/// A link, and whom its record is of.
#[derive(Debug)]
struct RunLink {
    /// The subjects: from the clients to the server, and back.
    subjects: [String; 2],
    emulator: Emulator,
}

/// The links of a run.
#[derive(Debug, Default)]
pub(crate) struct Links(Vec<RunLink>);

/// One end of a link, for whoever makes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End<'a> {
    /// The namespace that it is in.
    pub(crate) space: &'a Namespace,
    /// The interface, and its addresses.
    pub(crate) tie: Tie<'a>,
}

impl Links {
    /// Ties two namespaces by a link, the first that of the clients. It carries packets when this
    /// returns; they are in no record yet.
    ///
    /// # Errors
    /// `NotFound` without /dev/net/tun; what else the operating system says.
    pub(crate) fn tie(
        &mut self,
        subjects: [String; 2],
        [near, far]: [End<'_>; 2],
        mtu: u16,
        courses: [Course; 2],
        seed: u64,
    ) -> io::Result<()> {
        let open = |end: &End<'_>| {
            let tun = end.space.within(|| {
                let tun = Tun::open(end.tie.interface)?;
                tun.set_up(mtu)?;
                Ok(tun)
            })?;
            end.space.set_up(&end.tie)?;
            Ok::<Tun, io::Error>(tun)
        };
        let plan = Plan {
            courses,
            // Each link draws from chance of its own.
            seed: seed.wrapping_add(self.0.len() as u64),
        };
        let emulator = Emulator::start(open(&near)?, open(&far)?, plan)?;
        self.0.push(RunLink { subjects, emulator });
        Ok(())
    }

    /// Whether the threads of all of them may go before all others.
    pub(crate) fn go_first(&self) -> bool {
        self.0.iter().all(|link| link.emulator.goes_first())
    }

    /// Begins the record of each, at the time 0 of that clock.
    pub(crate) fn begin(&self, clock: &Clock) {
        for link in &self.0 {
            link.emulator.begin(clock);
        }
    }

    /// What each direction did in the window of that number, and in those before that were not
    /// taken yet. With the last one the record ends, and they go on carrying packets.
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

    /// Stops all. Gives why each ended before that did.
    pub(crate) fn stop(self) -> Vec<String> {
        let ended = self.0.into_iter().filter_map(|link| {
            let [_, down] = link.subjects;
            let error = link.emulator.stop().err()?;
            Some(format!("the link of {down} ended early: {error}"))
        });
        ended.collect()
    }
}
