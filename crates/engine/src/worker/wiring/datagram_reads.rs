//! Received datagrams: reading of UDP sockets and delivery to sessions and sinks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use kit::metrics as clients;
use measure::Time;
use net::batch::ReceiveBatch;
use session::{Arrival, ChannelId, CloseReason, Datagram, Input, PeerId, Port, Session};

use crate::worker::Worker;
use crate::worker::datagrams::{self, Owner, Routed};
use crate::worker::groups::{BATCHES_A_TURN, ReadTotals};
use crate::worker::ids::{ACCEPTED, SessionKey, SocketId};
use crate::worker::media_counter::counting;
use crate::worker::pairs::Disposition;
use crate::worker::pending_inputs::Pending;
use crate::worker::receive_batches::ReceiveOutcome;
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
                media,
                shared: false,
                ..
            } = channel
            {
                let batch = &mut self.batches.media;
                self.pairs.read_media(media, key, batch, counting!(self));
            }
        }
        self.count_losses();
    }

    /// Reads the media sockets in batched mode that are due.
    pub(crate) fn read_pairs_in_turn(&mut self, now: Time) {
        let batch = &mut self.batches.media;
        self.pairs.read_due(now, batch, counting!(self));
        self.deliver_pending();
    }

    /// Reads all media sockets in batched mode.
    pub(crate) fn read_all_pairs(&mut self) {
        let batch = &mut self.batches.media;
        self.pairs.read_all(batch, counting!(self));
        self.deliver_pending();
    }

    /// Reads one socket of a pair.
    pub(crate) fn read_pair(&mut self, place: SocketId) {
        let traced = self.pairs.is_traced(place);
        let kept = match traced {
            true => &mut self.batches.traced,
            false => &mut self.batches.polled,
        };
        let Some(mut batch) = kept.take() else {
            return;
        };
        for turn in 1.. {
            let more = match self.pairs.receive(place, &mut batch, &mut self.runtime) {
                ReceiveOutcome::Filled { more } => more,
                ReceiveOutcome::Nothing => break,
                ReceiveOutcome::Error if turn < READS_A_TURN => continue,
                ReceiveOutcome::Error => {
                    self.runtime.readiness.read_later(place);
                    break;
                }
            };
            self.count_losses();
            self.deliver_to_pair(place, &batch);
            self.deliver_pending();
            if !more {
                break;
            }
            if turn >= READS_A_TURN {
                self.runtime.readiness.read_later(place);
                break;
            }
        }
        match traced {
            true => self.batches.traced = Some(batch),
            false => self.batches.polled = Some(batch),
        }
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
                Disposition::For(key, channel, port) => {
                    self.datagram_arrived(key, channel, port, &datagram);
                }
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
        let Some(mut batch) = self.batches.media.take() else {
            return;
        };
        let mut brought = ReadTotals::default();
        for turn in 1.. {
            let more = match self
                .groups
                .receive_batch(end, &mut batch, &mut self.runtime)
            {
                ReceiveOutcome::Filled { more } => {
                    let counting = counting!(self);
                    self.groups.count_media(end, &batch, &mut brought, counting);
                    self.count_losses();
                    self.deliver_to_group(end, &batch);
                    more
                }
                ReceiveOutcome::Nothing => break,
                ReceiveOutcome::Error => true,
            };
            if !more {
                break;
            }
            if turn >= BATCHES_A_TURN {
                self.runtime.readiness.read_later(SocketId::Group(end));
                break;
            }
        }
        self.batches.media = Some(batch);
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
                    let (key, channel) = (hearer.session, hearer.channel);
                    self.datagram_arrived(key, channel, Port::Media, &datagram);
                }
            }
        }
    }

    /// Delivers RTCP of a group.
    fn read_group_control(&mut self, end: usize) {
        let Some(mut batch) = self.batches.polled.take() else {
            return;
        };
        for turn in 1.. {
            let more = match self
                .groups
                .receive_batch(end, &mut batch, &mut self.runtime)
            {
                ReceiveOutcome::Filled { more } => more,
                ReceiveOutcome::Nothing => break,
                ReceiveOutcome::Error if turn < BATCHES_A_TURN => continue,
                ReceiveOutcome::Error => {
                    self.runtime.readiness.read_later(SocketId::Group(end));
                    break;
                }
            };
            let clock = self.runtime.clock.same_start();
            for datagram in batch.datagrams(&clock) {
                for (key, channel) in self.groups.hearers_of_control(end, &datagram) {
                    self.datagram_arrived(key, channel, Port::Control, &datagram);
                }
            }
            self.deliver_pending();
            if !more {
                break;
            }
            if turn >= BATCHES_A_TURN {
                self.runtime.readiness.read_later(SocketId::Group(end));
                break;
            }
        }
        self.batches.polled = Some(batch);
    }

    /// Reads a single socket and delivers its datagrams.
    pub(crate) fn read_single(&mut self, place: usize) {
        for _ in 0..READS_A_TURN {
            if !self.read_some(place) {
                return;
            }
            self.deliver_pending();
        }
        self.runtime.readiness.read_later(SocketId::Single(place));
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
        if self.datagrams.is_delivering() {
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
        let Some(mut batch) = self.datagrams.take_batch() else {
            // A batch is being delivered; the socket is read in the next iteration.
            self.runtime.readiness.read_later(SocketId::Single(place));
            return false;
        };
        let looked = self
            .datagrams
            .receive_batch(place, &mut batch, &mut self.runtime);
        self.count_losses();
        let more = match looked {
            datagrams::ReceiveOutcome::Filled { owner, more } => {
                self.hand_over(place, owner, &batch);
                more
            }
            datagrams::ReceiveOutcome::Nothing => false,
            datagrams::ReceiveOutcome::NobodyThere(key, channel) => {
                self.close_channel(key, channel);
                let how = CloseReason::Reset;
                let closed = Pending::Closed { channel, how };
                self.runtime.inbox.push(key, closed);
                false
            }
            datagrams::ReceiveOutcome::Error => true,
        };
        self.datagrams.put_batch(batch);
        more
    }

    /// Delivers read datagrams to sessions and counts media in sinks. Datagrams of a session's own
    /// socket are delivered together. Those of an endpoint are delivered one by one, because the
    /// effect of a datagram, for example the end of a session, may change the destination of the
    /// next one.
    fn hand_over(&mut self, place: usize, owner: Owner, batch: &ReceiveBatch) {
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
            if !self
                .datagrams
                .take_in(place, &came, peer, &mut self.runtime)
            {
                continue;
            }
            if let (Owner::Session(key, _), Some(media)) = (owner, media)
                && media.filter.matches(came.bytes)
            {
                if let Some(population) = self.sessions.get(key).map(|slot| slot.population) {
                    let arrival = Arrival {
                        at: came.at,
                        bytes: came.bytes,
                        length: came.length,
                        overhead: if came.from.is_ipv4() { 28 } else { 48 },
                    };
                    counting!(self).packet((key, population), media.sink, &arrival);
                }
                continue;
            }
            let datagram = Datagram {
                from: came.from,
                at: came.at,
                bytes: came.bytes,
            };
            match owner {
                Owner::Session(key, channel) => {
                    if count == TOGETHER {
                        self.hear_datagrams((key, channel), &together);
                        count = 0;
                    }
                    together[count] = datagram;
                    count += 1;
                }
                Owner::Endpoint(index) => {
                    let key =
                        match self
                            .datagrams
                            .route(index, &datagram, came.to, &mut self.runtime)
                        {
                            Routed::To(key) => Some(key),
                            Routed::Begins(peer, session) => {
                                self.accept_peer(index, (peer, session), datagram.from, came.to)
                            }
                            Routed::Nobody => None,
                        };
                    if let Some(key) = key {
                        self.hear_datagrams((key, ACCEPTED), &[datagram]);
                    }
                }
            }
        }
        if let Owner::Session(key, channel) = owner
            && count > 0
        {
            self.hear_datagrams((key, channel), &together[..count]);
        }
    }

    fn hear_datagrams(
        &mut self,
        (key, channel): (SessionKey, ChannelId),
        datagrams: &[Datagram<'_>],
    ) {
        let slot = self.sessions.get(key);
        if slot.and_then(|slot| slot.channel(channel)).is_some() {
            self.datagrams_arrived(key, channel, datagrams);
        }
    }

    fn accept_peer(
        &mut self,
        index: usize,
        (peer, session): (PeerId, Box<dyn Session>),
        from: SocketAddr,
        sent_to: Option<IpAddr>,
    ) -> Option<SessionKey> {
        let population = self.datagrams.population(index);
        let key = self.add_session(session, population, None);
        let (place, mut local) = self.datagrams.accepted(index, peer, key)?;
        if let Some(ip) = sent_to {
            local.set_ip(ip);
        }
        if let Some(slot) = self.slot(key) {
            let state = Channel::Datagrams {
                place,
                to: Some(from),
                source: sent_to,
                accepted: Some(peer),
            };
            slot.set_channel(ACCEPTED, state);
        }
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
