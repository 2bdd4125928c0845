//! Received datagrams: reading of UDP sockets and delivery to sessions and sinks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use kit::metrics as clients;
use measure::Time;
use net::batch::{ReceiveBatch, ReceivedDatagram};
use session::{CloseReason, Datagram, Input, PeerId, Port, Session};

use crate::worker::Worker;
use crate::worker::batched_reads::ReadTotals;
use crate::worker::datagrams::{Owner, Routed};
use crate::worker::ids::{ACCEPTED, ChannelKey, SessionKey, SocketId};
use crate::worker::media_counter::counting;
use crate::worker::pairs::Disposition;
use crate::worker::receiving::{BatchUse, ReceiveOutcome};
use crate::worker::sessions::{Channel, Slot};

/// Maximum number of reads of a socket before others are served.
const READS_A_TURN: usize = 16;

/// Maximum number of datagrams in one input: the size of most reads. The array is initialized for
/// each read.
const TOGETHER: usize = 16;

impl Worker {
    /// Reads a session's media sockets before the session receives another input. Its single
    /// sockets are included only if `singles` is set, because the caller may just have read them.
    pub(crate) fn read_media_before(&mut self, key: SessionKey, singles: bool) {
        self.deliver_to_groups_first(key);
        if singles {
            self.read_datagrams_before(key, None);
        }
        let Some(slot) = self.sessions.get(key).filter(|slot| slot.in_batches) else {
            return;
        };
        for &(_, channel) in &slot.channels {
            if let Channel::Pair {
                pair,
                shared: false,
                ..
            } = channel
            {
                let batch = self.batches.of(BatchUse::Media);
                self.pairs
                    .read_media(pair.media, key, batch, counting!(self));
            }
        }
        self.count_losses();
    }

    /// Reads the media sockets in batched mode that are due by `now`, or all with `None`.
    pub(crate) fn read_pairs(&mut self, now: Option<Time>) {
        let batch = self.batches.of(BatchUse::Media);
        self.pairs.read_batched(now, batch, counting!(self));
        self.deliver_pending();
    }

    /// Receives one batch from a socket and passes it to `deliver`. Returns `true` if the socket
    /// may hold more. Does nothing if the batch is in use.
    #[inline]
    fn receive(
        &mut self,
        id: SocketId,
        used: BatchUse,
        deliver: impl FnOnce(&mut Worker, &ReceiveBatch),
    ) -> bool {
        let Some(mut batch) = self.batches.of(used).take() else {
            return false;
        };
        let runtime = &mut self.runtime;
        let received = match id {
            SocketId::Group(end) => self.groups.receive(end, &mut batch, runtime),
            SocketId::Single(place) => self.datagrams.receive(place, &mut batch, runtime),
            id => self.pairs.receive(id, &mut batch, runtime),
        };
        self.count_losses();
        let more = match received {
            ReceiveOutcome::Filled { more } => {
                deliver(self, &batch);
                more
            }
            ReceiveOutcome::Nothing => false,
            ReceiveOutcome::NobodyThere(owner) => {
                self.close_channel(owner);
                let (channel, reason) = (owner.channel, CloseReason::Reset);
                let closed = Input::Closed { channel, reason };
                self.runtime.inbox.push(owner.session, closed);
                false
            }
            ReceiveOutcome::Error(_) => true,
        };
        *self.batches.of(used) = Some(batch);
        more
    }

    /// Calls `read` until it returns `false`, because the socket is empty. Other sockets must be
    /// served too, so datagrams that remain are read in the next iteration.
    #[inline]
    fn read_until_empty(&mut self, id: SocketId, mut read: impl FnMut(&mut Worker) -> bool) {
        for _ in 0..READS_A_TURN {
            if !read(self) {
                return;
            }
            self.deliver_pending();
        }
        self.runtime.read_later(id);
    }

    /// Reads one socket of a pair.
    pub(crate) fn read_pair(&mut self, id: SocketId) {
        let used = match self.pairs.is_traced(id) {
            true => BatchUse::Traced,
            false => BatchUse::Polled,
        };
        self.read_until_empty(id, |worker| {
            worker.receive(id, used, |worker, batch| worker.deliver_to_pair(id, batch))
        });
    }

    fn deliver_to_pair(&mut self, place: SocketId, batch: &ReceiveBatch) {
        let clock = self.runtime.clock.same_start();
        let owner = self.pairs.owner(place);
        for datagram in batch.datagrams(&clock) {
            // The delivered input may have ended the session, and the index may belong to another.
            if self.pairs.owner(place) != owner {
                break;
            }
            match self.pairs.process(place, &datagram, counting!(self)) {
                Disposition::Counted => {}
                Disposition::Batched(key) => {
                    if let Some(slot) = self.slot(key) {
                        slot.in_batches = true;
                    }
                }
                Disposition::For(owner, port) => self.datagram_arrived(owner, port, &datagram),
            }
        }
    }

    /// Counts socket losses for the sessions that still exist.
    pub(crate) fn count_losses(&mut self) {
        while let Some((session, lost)) = self.runtime.next_loss() {
            if let Some(population) = self.sessions.population(session) {
                let recorder = self.populations.recorder(population);
                recorder.add(clients::LOST_IN_TESTER, lost);
            }
        }
    }

    /// Reads the groups' media if it is due.
    pub(crate) fn read_groups_in_turn(&mut self, now: Time) {
        if self.groups.take_due(now) {
            self.read_all_groups();
        }
    }

    /// Reads the media of all groups.
    pub(crate) fn read_all_groups(&mut self) {
        let media = self.groups.media();
        if media.is_empty() {
            return;
        }
        for end in media {
            self.read_group_media(end);
        }
        self.deliver_pending();
    }

    /// Reads a session's groups before the session receives another input.
    fn deliver_to_groups_first(&mut self, key: SessionKey) {
        let Some(slot) = self.sessions.get(key).filter(|slot| slot.in_groups) else {
            return;
        };
        let own = |(_, channel): &(_, Channel)| match *channel {
            Channel::Group(place) => Some(place),
            _ => None,
        };
        let places: Vec<usize> = slot.channels.iter().filter_map(own).collect();
        for place in places {
            if let Some(end) = self.groups.media_of(place) {
                self.read_group_media(end);
            }
        }
    }

    /// Reads a socket of a group.
    pub(crate) fn read_group(&mut self, end: usize) {
        match self.groups.port(end) {
            Some(Port::Media) => self.read_group_media(end),
            Some(Port::Control) => self.read_group_control(end),
            None => {}
        }
    }

    /// Counts the media of a group's socket, and delivers it to members without a sink. Resulting
    /// media events are queued.
    fn read_group_media(&mut self, end: usize) {
        let id = SocketId::Group(end);
        let mut brought = ReadTotals::default();
        let holds_more = (0..READS_A_TURN).all(|_| {
            self.receive(id, BatchUse::Media, |worker, batch| {
                let counting = counting!(worker);
                worker
                    .groups
                    .count_media(end, batch, &mut brought, counting);
                worker.deliver_to_group(end, batch);
            })
        });
        if holds_more {
            self.runtime.read_later(id);
        }
        self.groups.was_read(end, &brought, &mut self.runtime);
    }

    /// Delivers a batch to the members without a sink.
    fn deliver_to_group(&mut self, end: usize, batch: &ReceiveBatch) {
        let hearers = self.groups.hearers(end);
        if hearers.is_empty() {
            return;
        }
        let clock = self.runtime.clock.same_start();
        for datagram in batch.datagrams(&clock) {
            for hearer in &hearers {
                if hearer.takes(&datagram, &mut self.runtime) {
                    self.datagram_arrived(hearer.owner(), Port::Media, &datagram);
                }
            }
        }
    }

    /// Delivers RTCP of a group.
    fn read_group_control(&mut self, end: usize) {
        let id = SocketId::Group(end);
        self.read_until_empty(id, |worker| {
            worker.receive(id, BatchUse::Polled, |worker, batch| {
                let clock = worker.runtime.clock.same_start();
                for datagram in batch.datagrams(&clock) {
                    for owner in worker.groups.hearers_of_control(end, &datagram) {
                        worker.datagram_arrived(owner, Port::Control, &datagram);
                    }
                }
            })
        });
    }

    /// Reads a single socket and delivers its datagrams.
    pub(crate) fn read_single(&mut self, place: usize) {
        self.read_until_empty(SocketId::Single(place), |worker| worker.read_some(place));
    }

    /// Reads all sockets that are read late, so that their datagrams count in the window of their
    /// arrival.
    pub(crate) fn read_all_late(&mut self) {
        for place in self.datagrams.late() {
            self.read_single(place);
        }
        self.deliver_pending();
    }

    /// Reads a session's sockets that are read late, before the session receives another input.
    /// With `deadline`, which is the current time, reads the single sockets that are due at a
    /// deadline instead.
    pub(crate) fn read_datagrams_before(&mut self, key: SessionKey, deadline: Option<Time>) {
        // A batch is being delivered: its datagrams are the session's own, or another session is
        // being served.
        if self.batches.is_delivering(BatchUse::Single) {
            return;
        }
        let all = deadline.is_some();
        let wanted = |slot: &&Slot| slot.has_late_socket || (all && slot.has_single);
        let mut channels = 0;
        while let Some(slot) = self.sessions.get(key).filter(wanted)
            && let Some(&(_, channel)) = slot.channels.get(channels)
        {
            channels += 1;
            let Channel::Datagrams {
                place,
                accepted: None,
                ..
            } = channel
            else {
                continue;
            };
            let wanted = match deadline {
                None => self.datagrams.is_late(place),
                Some(now) => self.datagrams.is_due(place, now),
            };
            if !wanted {
                continue;
            }
            // The receive buffer limits the size of a read, but other sockets must be served too.
            for _ in 0..READS_A_TURN {
                if !self.read_some(place) {
                    break;
                }
            }
        }
    }

    /// Delivers the datagrams of one receive call. Returns `true` if there may be more. Resulting
    /// inputs are queued.
    fn read_some(&mut self, place: usize) -> bool {
        let id = SocketId::Single(place);
        if self.batches.is_delivering(BatchUse::Single) {
            // The socket is read in the next iteration.
            self.runtime.read_later(id);
            return false;
        }
        self.receive(id, BatchUse::Single, |worker, batch| {
            match worker.datagrams.owner(place) {
                Some(Owner::Session(key, channel)) => {
                    worker.deliver_to_session(place, key.channel(channel), batch);
                }
                Some(Owner::Endpoint(index)) => worker.deliver_to_endpoint(index, batch),
                None => {}
            }
        })
    }

    /// Delivers datagrams of a session's own socket together, and counts its media in the sink.
    fn deliver_to_session(&mut self, place: usize, owner: ChannelKey, batch: &ReceiveBatch) {
        let key = owner.session;
        let clock = self.runtime.clock.same_start();
        let peer = self.datagrams.peer(place);
        let media = self.datagrams.media(place);
        let nothing = Datagram {
            from: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            at: Time::ZERO,
            bytes: &[],
        };
        let mut together = [nothing; TOGETHER];
        let mut count = 0;
        for came in batch.datagrams(&clock) {
            let runtime = &mut self.runtime;
            if !self.datagrams.take_in(place, &came, peer, runtime) {
                continue;
            }
            if let Some(media) = media
                && media.filter.matches(came.bytes)
            {
                if let Some(population) = self.sessions.population(key) {
                    counting!(self).datagram(key, population, media.sink, &came);
                }
                continue;
            }
            if count == TOGETHER {
                self.hear_datagrams(owner, &together);
                count = 0;
            }
            together[count] = datagram_of(&came);
            count += 1;
        }
        if count > 0 {
            self.hear_datagrams(owner, &together[..count]);
        }
    }

    /// Delivers datagrams of an endpoint one by one, because the effect of a datagram, for example
    /// the end of a session, may change the destination of the next one.
    fn deliver_to_endpoint(&mut self, index: usize, batch: &ReceiveBatch) {
        let clock = self.runtime.clock.same_start();
        for came in batch.datagrams(&clock) {
            let datagram = datagram_of(&came);
            let runtime = &mut self.runtime;
            let key = match self.datagrams.route(index, &datagram, came.to, runtime) {
                Routed::To(key) => Some(key),
                Routed::Begins(peer, session) => {
                    self.accept_peer(index, peer, session, datagram.from, came.to)
                }
                Routed::Nobody => None,
            };
            if let Some(key) = key {
                self.hear_datagrams(key.channel(ACCEPTED), &[datagram]);
            }
        }
    }

    fn hear_datagrams(&mut self, owner: ChannelKey, datagrams: &[Datagram<'_>]) {
        if self.sessions.channel(owner).is_some() {
            self.datagrams_arrived(owner, datagrams);
        }
    }

    fn accept_peer(
        &mut self,
        index: usize,
        peer: PeerId,
        session: Box<dyn Session>,
        from: SocketAddr,
        sent_to: Option<IpAddr>,
    ) -> Option<SessionKey> {
        let population = self.datagrams.population(index);
        let key = self.add_session(session, population, None);
        let (place, mut local) = self.datagrams.accepted(index, peer, key)?;
        if let Some(ip) = sent_to {
            local.set_ip(ip);
        }
        let state = Channel::Datagrams {
            place,
            to: Some(from),
            source: sent_to,
            accepted: Some(peer),
        };
        self.sessions.set_channel(key.channel(ACCEPTED), state);
        let now = self.runtime.clock.now();
        self.deliver(key, Input::Start { due: now });
        let opened = Input::Opened {
            channel: ACCEPTED,
            local,
            remote: Some(from),
        };
        self.deliver(key, opened);
        Some(key)
    }
}

fn datagram_of<'a>(datagram: &ReceivedDatagram<'a>) -> Datagram<'a> {
    Datagram {
        from: datagram.from,
        at: datagram.at,
        bytes: datagram.bytes,
    }
}
