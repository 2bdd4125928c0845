//! What arrives by UDP sockets, and who hears of it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use measure::Time;
use net::batch::ReceiveBatch;
use protocol::metrics as clients;
use protocol::session::{Arrival, ChannelId, Closed, Datagram, Input, PeerId, Port, Session};

use crate::worker::Worker;
use crate::worker::batches::Look;
use crate::worker::counting::counting;
use crate::worker::datagrams::{self, Owner, Routed};
use crate::worker::groups::{BATCHES_A_TURN, Brought};
use crate::worker::inbox::Pending;
use crate::worker::keys::{ACCEPTED, Place, SessionKey};
use crate::worker::pairs::TakenIn;
use crate::worker::sessions::{Channel, Slot};

/// How many reads a socket gets before the others have their turn.
const READS_A_TURN: usize = 16;

/// The most datagrams that a session hears of at once: what most reads bring. Room for all of them
/// is written anew for each read.
const TOGETHER: usize = 16;

impl Worker {
    /// Reads what has come for a session's media sockets, before it hears of something else; of its
    /// single sockets only where these were not read just now.
    pub(crate) fn hear_media_first(&mut self, key: SessionKey, singles: bool) {
        self.hear_groups_first(key);
        if singles {
            self.hear_datagrams_first(key, None);
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

    /// Reads the media sockets whose turn it is of those that are read in batches.
    pub(crate) fn read_pairs_in_turn(&mut self, now: Time) {
        let batch = &mut self.batches.media;
        self.pairs.read_due(now, batch, counting!(self));
        self.settle();
    }

    /// Reads all media sockets that are read in batches.
    pub(crate) fn read_all_pairs(&mut self) {
        let batch = &mut self.batches.media;
        self.pairs.read_all(batch, counting!(self));
        self.settle();
    }

    /// Reads one of a pair of sockets.
    pub(crate) fn read_pair(&mut self, place: Place) {
        let traced = self.pairs.is_traced(place);
        let kept = match traced {
            true => &mut self.batches.traced,
            false => &mut self.batches.polled,
        };
        let Some(mut batch) = kept.take() else {
            return;
        };
        for turn in 1.. {
            let more = match self.pairs.look(place, &mut batch, &mut self.runtime) {
                Look::Filled { more } => more,
                Look::Nothing => break,
                Look::Error if turn < READS_A_TURN => continue,
                Look::Error => {
                    self.runtime.readiness.read_later(place);
                    break;
                }
            };
            self.count_losses();
            self.hear_pair(place, &batch);
            self.settle();
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

    fn hear_pair(&mut self, place: Place, batch: &ReceiveBatch) {
        let clock = self.runtime.clock.same_start();
        let owner = self.pairs.owner(place);
        for datagram in batch.datagrams(&clock) {
            // What the session hears may end it, and its place be another's.
            if self.pairs.owner(place) != owner {
                break;
            }
            match self.pairs.take_in(place, &datagram, counting!(self)) {
                TakenIn::Counted => {}
                TakenIn::Batched(key) => {
                    if let Some(slot) = self.slot(key) {
                        slot.in_batches = true;
                    }
                }
                TakenIn::For(key, channel, port) => {
                    self.datagram_arrived(key, channel, port, &datagram);
                }
            }
        }
    }

    /// Counts what was lost at sockets for those sessions that are there.
    pub(crate) fn count_losses(&mut self) {
        while let Some((session, lost)) = self.runtime.next_loss() {
            if let Some(population) = self.sessions.population(session) {
                let recorder = self.populations.recorder(population);
                recorder.add(clients::LOST_IN_TESTER, lost);
            }
        }
    }

    /// Reads the groups' media if it is time for that.
    pub(crate) fn read_groups_in_turn(&mut self, now: Time) {
        if self.groups.take_due(now) {
            self.read_all_groups();
        }
    }

    /// Reads all groups' media.
    pub(crate) fn read_all_groups(&mut self) {
        let media = self.groups.media();
        if media.is_empty() {
            return;
        }
        for end in media {
            self.read_group_media(end);
        }
        self.settle();
    }

    /// Reads what has come for a session from its groups, before it hears of something else.
    fn hear_groups_first(&mut self, key: SessionKey) {
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

    /// Reads what a group's socket holds.
    pub(crate) fn read_group(&mut self, end: usize) {
        match self.groups.port(end) {
            Some(Port::Media) => self.read_group_media(end),
            Some(Port::Control) => self.read_group_control(end),
            None => {}
        }
    }

    /// Counts what a group's media socket holds, and lets those hear it who count for themselves;
    /// what sessions are to hear of it is pending then.
    fn read_group_media(&mut self, end: usize) {
        let Some(mut batch) = self.batches.media.take() else {
            return;
        };
        let mut brought = Brought::default();
        for turn in 1.. {
            let more = match self.groups.look(end, &mut batch, &mut self.runtime) {
                Look::Filled { more } => {
                    let counting = counting!(self);
                    self.groups.count_media(end, &batch, &mut brought, counting);
                    self.count_losses();
                    self.tell_group(end, &batch);
                    more
                }
                Look::Nothing => break,
                Look::Error => true,
            };
            if !more {
                break;
            }
            if turn >= BATCHES_A_TURN {
                self.runtime.readiness.read_later(Place::Group(end));
                break;
            }
        }
        self.batches.media = Some(batch);
        self.groups.was_read(end, &brought, &mut self.runtime);
    }

    /// Has the members without a sink hear a batch.
    fn tell_group(&mut self, end: usize, batch: &ReceiveBatch) {
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

    /// Passes RTCP of a group on.
    fn read_group_control(&mut self, end: usize) {
        let Some(mut batch) = self.batches.polled.take() else {
            return;
        };
        for turn in 1.. {
            let more = match self.groups.look(end, &mut batch, &mut self.runtime) {
                Look::Filled { more } => more,
                Look::Nothing => break,
                Look::Error if turn < BATCHES_A_TURN => continue,
                Look::Error => {
                    self.runtime.readiness.read_later(Place::Group(end));
                    break;
                }
            };
            let clock = self.runtime.clock.same_start();
            for datagram in batch.datagrams(&clock) {
                for (key, channel) in self.groups.hearers_of_control(end, &datagram) {
                    self.datagram_arrived(key, channel, Port::Control, &datagram);
                }
            }
            self.settle();
            if !more {
                break;
            }
            if turn >= BATCHES_A_TURN {
                self.runtime.readiness.read_later(Place::Group(end));
                break;
            }
        }
        self.batches.polled = Some(batch);
    }

    /// Reads a single socket, and has those hear whose the datagrams are.
    pub(crate) fn read_single(&mut self, place: usize) {
        for _ in 0..READS_A_TURN {
            if !self.read_some(place) {
                return;
            }
            self.settle();
        }
        self.runtime.readiness.read_later(Place::Single(place));
    }

    /// Reads all that is read late, so that it counts in the window in which it came.
    pub(crate) fn read_all_late(&mut self) {
        for place in self.datagrams.late() {
            self.read_single(place);
        }
        self.settle();
    }

    /// Reads what has come for a session's sockets that are read late, before it hears of something
    /// else; before it hears of its `deadline`, which is now, that of all whose turn it is.
    pub(crate) fn hear_datagrams_first(&mut self, key: SessionKey, deadline: Option<Time>) {
        // What is being handed over is the session's own, or it is another's turn just now.
        if self.datagrams.are_heard() {
            return;
        }
        let all = deadline.is_some();
        let wanted = |slot: &&Slot| slot.reads_late || (all && slot.has_single);
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
            // Bounded by how much a socket's buffer holds, but others want their turn.
            for _ in 0..READS_A_TURN {
                if !self.read_some(place) {
                    break;
                }
            }
        }
    }

    /// Hands over what one look at a socket brings; says whether there may be more. What comes up
    /// on the way is pending.
    fn read_some(&mut self, place: usize) -> bool {
        let Some(mut batch) = self.datagrams.take_batch() else {
            // In the middle of handing over: next time.
            self.runtime.readiness.read_later(Place::Single(place));
            return false;
        };
        let looked = self.datagrams.look(place, &mut batch, &mut self.runtime);
        self.count_losses();
        let more = match looked {
            datagrams::Look::Filled { owner, more } => {
                self.hand_over(place, owner, &batch);
                more
            }
            datagrams::Look::Nothing => false,
            datagrams::Look::NobodyThere(key, channel) => {
                self.close_channel(key, channel);
                let how = Closed::Reset;
                let closed = Pending::Closed { channel, how };
                self.runtime.inbox.push(key, closed);
                false
            }
            datagrams::Look::Error => true,
        };
        self.datagrams.put_batch(batch);
        more
    }

    /// Has sessions hear what a read has brought, and sinks count media. What came to a session's
    /// own socket it hears together. An endpoint's hear one by one, because what a session makes of
    /// a datagram, its end perhaps, may change whose the next one is.
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
                && media.mark.is_on(came.bytes)
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
