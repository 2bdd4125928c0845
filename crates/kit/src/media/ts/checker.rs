//! Checks a transport stream as it arrives: properties of every stream, and for streams of our own
//! source the fate of each datagram.
//!
//! * this file: extracts packets from bytes, and dispatches them;
//! * `pids`: continuity counters;
//! * `tables`: programme association and programme map;
//! * `clock`: programme clock reference;
//! * `media_arrivals`: video and audio, each on its own;
//! * `datagrams`: stamps of our own source;
//! * `strided`: packets of 192 and 204 bytes;
//! * `fast_path`: fast path of nearly all packets;
//! * `file`: streams that arrive as files, without timing.

use std::net::SocketAddr;
use std::time::Duration;

use measure::{Recorder, Time};
use serde::Serialize;

use super::metrics as m;
use crate::media::shared::{Arrivals, stream_counts};
use crate::mediagen::steps;
use crate::mediagen::ts::packet::{Header, NULL_PID, PACKET_LEN, PAT_PID, SYNC};
use crate::mediagen::ts::stamp::Stamp;
use session::ArrivalTimes;

use clock::ProgrammeClock;
use coded_pictures::CodedPictures;
use datagrams::{Datagrams, Owner};
use media_arrivals::MediaArrivals;
use pids::Pids;
use tables::{EntryStream, Tables};

mod clock;
mod coded_pictures;
mod datagrams;
mod fast_path;
mod file;
mod media_arrivals;
mod pids;
mod strided;
mod tables;
#[cfg(test)]
mod tests;

pub use file::{FirstPicture, TimeStamps, TsFile};
pub use media_arrivals::SilentMedia;
pub use pids::PidCounts;

/// Number of consecutive packets that must begin with the sync byte for sync to be found.
const SYNC_PACKETS: usize = 3;

/// Number of bytes that show whether a packet begins at the first of them.
const SYNC_SEARCH_LEN: usize = (SYNC_PACKETS - 1) * PACKET_LEN + 1;

/// Distances between packets in other forms of a transport stream: with a timestamp of 4 bytes
/// before each (M2TS, used by recorders and Blu-ray), and with 16 bytes of Reed-Solomon parity
/// after each (EN 300 429, 5; used by demodulators).
const STRIDES: [usize; 2] = [192, 204];

/// Number of bytes needed to find sync in any form.
const SYNC_SEARCH_LEN_MAX: usize = (SYNC_PACKETS - 1) * STRIDES[1] + 1;

/// Maximum number of arrival times for the bytes that are held during the search for sync. Bytes of
/// further reads share a time.
const PIECES_MAX: usize = 4;

/// Settings of a [`TsChecker`].
#[derive(Clone, Copy, Debug)]
pub struct TsCheckerConfig {
    /// Due time of the client's first request: the origin of delays.
    pub due: Time,
    /// Group that the stamps must name; `None` to accept the group of the first stamp.
    pub group: Option<SocketAddr>,
    /// Channel that the client received before, if it changed the channel: the datagrams of its
    /// group never belong to this stream. Delays are then those of a change of channel, which the
    /// caller of [`TsChecker::random_access`] measures, instead of a client's startup.
    pub previous_channel: Option<PreviousChannel>,
    /// Wall clock at the start of the run, since 1970. Without it, datagrams have no delay.
    pub wall_clock: Option<Duration>,
    /// Playout buffer for which stalls are counted.
    pub playout_buffer: Duration,
}

/// The channel that a client received before the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousChannel {
    /// Group of the channel, if known.
    pub group: Option<SocketAddr>,
}

stream_counts! {
    /// Counters of one stream.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    TsCounts {
        ts_packets: TS_PACKETS,
        sync_losses: SYNC_LOSSES,
        out_of_sync_bytes: OUT_OF_SYNC_BYTES,
        continuity_errors: CONTINUITY_ERRORS,
        continuity_lost: CONTINUITY_LOST,
        ts_duplicates: TS_DUPLICATES,
        transport_errors: TRANSPORT_ERRORS,
        malformed: MALFORMED,
        table_errors: TABLE_ERRORS,
        untracked_packets: UNTRACKED_PACKETS,
        pcr_jumps: PCR_JUMPS,
    }
}

stream_counts! {
    /// Counters of the stamped datagrams of one stream.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    DatagramCounts {
        expected: EXPECTED,
        received: RECEIVED,
        duplicated: DUPLICATED,
        reordered: REORDERED,
        late: LATE,
        foreign: FOREIGN,
        old_channel: OLD_CHANNEL,
        damaged: DAMAGED,
        stray_packets: STRAY_PACKETS,
        restarts: RESTARTS,
    }
}

impl TsCounts {
    /// Reads the header of a packet. Counts a packet that is malformed or damaged, and returns
    /// `None`.
    #[inline]
    fn read_header(&mut self, packet: &[u8; PACKET_LEN]) -> Option<Header> {
        let header = Header::parse(packet);
        self.malformed += u64::from(header.is_err());
        let header = header.ok()?;
        self.transport_errors += u64::from(header.damaged);
        (!header.damaged).then_some(header)
    }
}

/// Checks one transport stream, which arrives in pieces of any size. Takes less than 2 KiB.
#[derive(Debug)]
pub struct TsChecker {
    due: Time,
    group: Option<SocketAddr>,
    before: Option<PreviousChannel>,
    wall_clock: Option<Duration>,
    synced: bool,
    /// Distance between packets, if it is not [`PACKET_LEN`].
    stride: Option<usize>,
    /// Bytes left to skip before the next packet, if packets are farther apart.
    skip: usize,
    /// In sync, the beginning of a packet; otherwise bytes that may be one.
    held: Vec<u8>,
    /// Ends of the pieces in `held` during the search for sync, with their arrival times and
    /// whether these are exact.
    pieces: Vec<(usize, Time, bool)>,
    first_arrival: Option<Time>,
    arrivals: Arrivals,
    random_access: Option<Time>,
    counts: TsCounts,
    /// The part of `counts` that has been added to the recorder.
    added: TsCounts,
    timed_by_reading: u64,
    /// Number of null packets since counts were last added to the recorder.
    null_packets: u64,
    pids: Pids,
    tables: Tables,
    media_arrivals: MediaArrivals,
    coded_pictures: CodedPictures,
    /// Start of the picture that is arriving, until there is a random-access point.
    picture_start: Option<Time>,
    clock: ProgrammeClock,
    /// `None` before the first stamp.
    datagrams: Option<Box<Datagrams>>,
    finished: bool,
    /// True to send every packet along the general path.
    #[cfg(test)]
    general_path_only: bool,
}

impl TsChecker {
    pub fn new(config: &TsCheckerConfig) -> TsChecker {
        TsChecker {
            due: config.due,
            group: config.group,
            before: config.previous_channel,
            wall_clock: config.wall_clock,
            synced: false,
            stride: None,
            skip: 0,
            held: Vec::new(),
            pieces: Vec::new(),
            first_arrival: None,
            arrivals: Arrivals::default(),
            random_access: None,
            counts: TsCounts::default(),
            added: TsCounts::default(),
            timed_by_reading: 0,
            null_packets: 0,
            pids: Pids::default(),
            tables: Tables::default(),
            media_arrivals: MediaArrivals::default(),
            coded_pictures: CodedPictures::default(),
            picture_start: None,
            clock: ProgrammeClock::new(config.playout_buffer),
            datagrams: None,
            finished: false,
            #[cfg(test)]
            general_path_only: false,
        }
    }

    /// Handles bytes that begin at offset `start` of a read. `times` contains the arrival times of
    /// the read.
    #[inline]
    pub fn feed(
        &mut self,
        bytes: &[u8],
        start: usize,
        times: &mut ArrivalTimes<'_>,
        recorder: &mut Recorder,
    ) {
        steps::count_bytes(bytes.len());
        let mut rest = bytes;
        if self.synced && self.stride.is_some() {
            let mut time = |end: usize| times.arrival_of(start + end);
            rest = self.feed_strided(bytes, &mut time, recorder);
        } else if self.synced && !self.held.is_empty() {
            let taken = (PACKET_LEN - self.held.len()).min(rest.len());
            self.held.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            if let Ok(packet) = <&[u8; PACKET_LEN]>::try_from(&self.held[..]) {
                let (packet, time) = (*packet, times.arrival_of(start + taken));
                self.held.clear();
                self.packet(&packet, time, recorder);
            }
        }
        if self.synced && self.stride.is_none() {
            while let Some((packet, after)) = rest.split_first_chunk::<PACKET_LEN>() {
                if packet[0] != SYNC {
                    break;
                }
                let begin = start + bytes.len() - rest.len();
                if !self.takes_general_path()
                    && let Some(after) = self.take_datagram(rest, begin, times, recorder)
                {
                    rest = after;
                    continue;
                }
                let end = begin + PACKET_LEN;
                self.packet(packet, times.arrival_of(end), recorder);
                rest = after;
            }
            match rest.first() {
                None => {}
                Some(&SYNC) => self.held.extend_from_slice(rest),
                Some(_) => self.lose_sync(),
            }
        }
        if !self.synced && !rest.is_empty() {
            self.search_sync(rest, start + bytes.len() - rest.len(), times, recorder);
        }
        self.flush_counts(recorder);
    }

    #[cold]
    fn lose_sync(&mut self) {
        self.synced = false;
        self.counts.sync_losses += 1;
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.sync_lost();
        }
    }

    /// Handles bytes while the packet boundaries are unknown. May copy and allocate: this is rare
    /// in a transport stream.
    #[cold]
    fn search_sync(
        &mut self,
        bytes: &[u8],
        start: usize,
        times: &mut ArrivalTimes<'_>,
        recorder: &mut Recorder,
    ) {
        let mut all = std::mem::take(&mut self.held);
        let before = all.len();
        all.extend_from_slice(bytes);
        // Moved, and searched.
        steps::count_bytes(2 * all.len());
        let pieces = std::mem::take(&mut self.pieces);
        let mut time = |end: usize| match end.checked_sub(before) {
            Some(own @ 1..) => times.arrival_of(start + own),
            _ => {
                let piece = pieces.iter().find(|piece| end <= piece.0);
                piece.map_or_else(|| times.arrival_of(start), |&(_, at, exact)| (at, exact))
            }
        };
        let mut forms = [PACKET_LEN, STRIDES[0], STRIDES[1]].map(|stride| (stride, true));
        let mut at = 0;
        loop {
            if self.synced {
                match all[at..].split_first_chunk::<PACKET_LEN>() {
                    Some((packet, _)) if packet[0] == SYNC => {
                        self.packet(packet, time(at + PACKET_LEN), recorder);
                        at += PACKET_LEN;
                        continue;
                    }
                    None if all.get(at).is_none_or(|&byte| byte == SYNC) => break,
                    _ => self.lose_sync(),
                }
            }
            // A form that was not found up to the end is not searched again.
            let may_be_strided = self.stride.is_some() || self.first_arrival.is_none();
            let longest = if may_be_strided {
                SYNC_SEARCH_LEN_MAX
            } else {
                SYNC_SEARCH_LEN
            };
            let found = forms.iter_mut().filter_map(|(stride, is_left)| {
                if !*is_left || *stride != PACKET_LEN && !may_be_strided {
                    return None;
                }
                let offset = find_sync(&all, at, *stride);
                *is_left = offset.is_some();
                Some((offset?, *stride))
            });
            // Takes the form that is complete first, so that the size of reads does not matter.
            let found = found.min_by_key(|(offset, stride)| offset + (SYNC_PACKETS - 1) * stride);
            let found =
                found.map(|(offset, stride)| (offset, (stride != PACKET_LEN).then_some(stride)));
            let none = (all.len() + 1).saturating_sub(longest).max(at);
            let passed = found.map_or(none, |(offset, _)| offset);
            self.counts.out_of_sync_bytes += (passed - at) as u64;
            at = passed;
            let Some((_, stride)) = found else { break };
            self.synced = true;
            self.stride = stride;
            if stride.is_some() {
                self.skip = 0;
                let begin = at;
                let mut time = |end: usize| time(begin + end);
                let left = self.feed_strided(&all[at..], &mut time, recorder).len();
                at = all.len() - left;
                if self.synced {
                    return;
                }
            }
        }
        if !self.synced {
            // Arrival times of the remaining bytes: earlier pieces keep theirs, the rest has that
            // of its end.
            let (by, exact) = time(all.len());
            self.pieces = pieces
                .iter()
                .filter(|piece| piece.0 > at)
                .map(|&(end, time, exact)| (end - at, time, exact))
                .collect();
            if self.pieces.len() >= PIECES_MAX {
                self.pieces.pop();
            }
            self.pieces.push((all.len() - at, by, exact));
        }
        all.drain(..at);
        all.shrink_to(SYNC_SEARCH_LEN);
        self.held = all;
    }

    /// Counts a packet and returns its arrival time.
    #[inline]
    fn count_packet(&mut self, (at, exact): (Time, bool)) -> Time {
        self.counts.ts_packets += 1;
        self.timed_by_reading += u64::from(!exact);
        if self.first_arrival.is_none() {
            self.first_arrival = Some(at);
            self.arrivals.begin(at);
        } else if self.arrivals.last() != at {
            self.arrivals.packet(at);
        }
        at
    }

    #[inline]
    fn packet(&mut self, packet: &[u8; PACKET_LEN], time: (Time, bool), recorder: &mut Recorder) {
        let at = self.count_packet(time);
        if let Some(stamp) = Stamp::read(packet) {
            let (group, before, wall_clock) = (self.group, self.before, self.wall_clock);
            let datagrams = self.datagrams.get_or_insert_with(|| {
                let before = before.and_then(|before| before.group);
                Box::new(Datagrams::new(group, before, wall_clock))
            });
            datagrams.stamp(stamp, at, recorder);
            return;
        }
        let owner = match &mut self.datagrams {
            Some(datagrams) => datagrams.packet(packet, at, recorder),
            None => Owner::ThisStream,
        };
        match owner {
            Owner::ThisStream => self.contents(packet, at, recorder),
            // A packet of another stream: its tables, its clock and its counters do not apply to
            // this one.
            Owner::OtherGroup => self.counts.malformed += u64::from(Header::parse(packet).is_err()),
        }
    }

    /// Handles the contents of any packet of this stream.
    fn inspect(&mut self, packet: &[u8; PACKET_LEN], at: Time, recorder: &mut Recorder) {
        let Some(header) = self.counts.read_header(packet) else {
            return;
        };
        if header.pid == NULL_PID {
            self.null_packets += 1;
            return;
        }
        self.pids.packet(&header, &mut self.counts);
        if header.pid == PAT_PID || self.tables.is_map(header.pid) {
            self.handle_table(&header, packet, at, recorder);
        }
        if let Some(pcr) = header.pcr
            && Some(header.pid) == self.tables.clock_pid
        {
            self.clock
                .reference(pcr, header.discontinuity, at, &mut self.counts, recorder);
        }
        if header.unit_start {
            self.media_arrivals
                .unit(&self.tables, header.pid, at, header.scrambled);
            self.begin_picture(&header, packet, at, recorder);
        } else {
            self.coded_pictures.packet(header.pid, at);
        }
        if self.random_access.is_none() && header.has_payload {
            self.detect_random_access(&header, packet, at, recorder);
        }
    }

    /// Looks for a time code in the first packet of a picture.
    fn begin_picture(
        &mut self,
        header: &Header,
        packet: &[u8; PACKET_LEN],
        at: Time,
        recorder: &mut Recorder,
    ) {
        let is_video = self.tables.video().is_some_and(|own| own.0 == header.pid);
        if let Some(wall_clock) = self.wall_clock.filter(|_| is_video && !header.scrambled) {
            let errors = self.pids.errors(header.pid);
            let payload = header.payload_of(packet);
            self.coded_pictures
                .begin(header.pid, at, payload, errors, wall_clock, recorder);
        }
    }

    fn handle_table(
        &mut self,
        header: &Header,
        packet: &[u8; PACKET_LEN],
        at: Time,
        recorder: &mut Recorder,
    ) {
        let before = (self.tables.has_association(), self.tables.has_map);
        self.tables
            .packet(header, header.payload_of(packet), &mut self.counts);
        if self.tables.has_map {
            self.media_arrivals.map_arrived(at);
        }
        if self.before.is_some() {
            return;
        }
        if !before.0 && self.tables.has_association() {
            recorder.record_duration(m::PAT_DELAY, at.since(self.due));
        }
        if !before.1 && self.tables.has_map {
            recorder.record_duration(m::PMT_DELAY, at.since(self.due));
        }
    }

    fn detect_random_access(
        &mut self,
        header: &Header,
        packet: &[u8; PACKET_LEN],
        at: Time,
        recorder: &mut Recorder,
    ) {
        let Some((pid, entry)) = self.tables.entry else {
            return;
        };
        if header.pid != pid {
            return;
        }
        if header.unit_start {
            self.picture_start = Some(at);
        }
        // The first part of a unit may be longer than a packet, so parameter sets may follow later.
        let Some(at) = self.picture_start else { return };
        if header.scrambled && !header.random_access {
            return;
        }
        let found = match entry {
            EntryStream::Audio => header.unit_start,
            EntryStream::Video(coding) => {
                header.random_access && header.unit_start
                    || coding.is_entry_point(header.payload_of(packet))
            }
        };
        if found {
            self.random_access = Some(at);
            if self.before.is_none() {
                recorder.record_duration(m::RANDOM_ACCESS_DELAY, at.since(self.due));
            }
        }
    }

    /// Adds the counts since the last call to the recorder: once per piece instead of once per
    /// packet.
    #[inline]
    fn flush_counts(&mut self, recorder: &mut Recorder) {
        let packets = self.counts.ts_packets - self.added.ts_packets;
        if packets > 0 {
            recorder.add(m::TS_PACKETS, packets);
            let null_packets = std::mem::take(&mut self.null_packets);
            recorder.add(m::NON_NULL_PACKETS, packets.saturating_sub(null_packets));
            recorder.add(m::PAYLOAD_BYTES, packets * PACKET_LEN as u64);
            recorder.add(
                m::TIMED_BY_READING,
                std::mem::take(&mut self.timed_by_reading),
            );
            self.added.ts_packets = self.counts.ts_packets;
        }
        if self.counts != self.added {
            self.flush_rare_counts(recorder);
        }
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.add(recorder);
        }
    }

    #[cold]
    fn flush_rare_counts(&mut self, recorder: &mut Recorder) {
        type Part = fn(&TsCounts) -> u64;
        let parts: [(measure::CounterId, Part); 10] = [
            (m::SYNC_LOSSES, |counts| counts.sync_losses),
            (m::OUT_OF_SYNC_BYTES, |counts| counts.out_of_sync_bytes),
            (m::CONTINUITY_ERRORS, |counts| counts.continuity_errors),
            (m::CONTINUITY_LOST, |counts| counts.continuity_lost),
            (m::TS_DUPLICATES, |counts| counts.ts_duplicates),
            (m::TRANSPORT_ERRORS, |counts| counts.transport_errors),
            (m::MALFORMED, |counts| counts.malformed),
            (m::TABLE_ERRORS, |counts| counts.table_errors),
            (m::UNTRACKED_PACKETS, |counts| counts.untracked_packets),
            (m::PCR_JUMPS, |counts| counts.pcr_jumps),
        ];
        for (counter, part) in parts {
            recorder.add(counter, part(&self.counts) - part(&self.added));
        }
        self.added = self.counts;
    }

    /// Counts the gap up to `until`. To be called if packets were expected and none arrived.
    pub fn count_silence_until(&mut self, until: Time, recorder: &mut Recorder) {
        if self.first_arrival.is_some() {
            self.arrivals.silent_until(until);
            self.media_arrivals.silent_until(until);
            self.clock.silent_until(until, recorder);
        }
    }

    /// Returns the video or audio of the programme that never arrived, or stopped, while the rest
    /// of the stream continued: for 2 s, and for 4 times the longest gap before.
    pub fn silent_media(&self) -> impl Iterator<Item = SilentMedia> {
        self.media_arrivals
            .silent(&self.tables, self.arrivals.last())
    }

    /// Duration of video without a random-access point, if it is 2 s or more. `None` if there was
    /// one, if there is no video, and if it is scrambled or in an unknown coding.
    pub fn without_picture(&self) -> Option<Duration> {
        match self.random_access {
            None => self
                .media_arrivals
                .without_picture(&self.tables, self.arrivals.last()),
            Some(_) => None,
        }
    }

    /// Declares that source number `source` sent `count` stamped datagrams in all, numbered from 0,
    /// and that no more arrive: those after the last received one are lost. Returns their number,
    /// or 0 if another source was received.
    pub fn set_total_sent(&mut self, source: u64, count: u64) -> u64 {
        let datagrams = self.datagrams.as_mut();
        datagrams.map_or(0, |datagrams| datagrams.set_total_sent(source, count))
    }

    /// Records the figures that are known only at the end of the stream. Calls after the first have
    /// no effect.
    pub fn finish(&mut self, recorder: &mut Recorder) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        if !self.synced {
            self.counts.out_of_sync_bytes += self.held.len() as u64;
        }
        self.flush_counts(recorder);
        if self.first_arrival.is_some() {
            recorder.record_duration(m::LONGEST_GAP, self.longest_gap());
            self.media_arrivals.finish(recorder);
            self.coded_pictures.finish(recorder);
        }
    }

    pub fn counts(&self) -> &TsCounts {
        &self.counts
    }

    /// Counters of the stamped datagrams so far; `None` if none arrived.
    pub fn datagrams(&self) -> Option<&DatagramCounts> {
        self.datagrams.as_ref().map(|datagrams| &datagrams.counts)
    }

    /// Counts of the tracked PIDs, in the order in which they first arrived.
    pub fn pids(&self) -> impl Iterator<Item = PidCounts> {
        self.pids.counts()
    }

    /// Arrival of the first packet.
    pub fn first_arrival(&self) -> Option<Time> {
        self.first_arrival
    }

    /// Arrival of the first packet with which a decoder can begin.
    #[inline]
    pub fn random_access(&self) -> Option<Time> {
        self.random_access
    }

    /// Group whose datagrams belong to this stream, if known.
    pub fn group(&self) -> Option<SocketAddr> {
        match &self.datagrams {
            Some(datagrams) => datagrams.group,
            None => self.group,
        }
    }

    /// Arrival of the last packet.
    pub fn last_arrival(&self) -> Option<Time> {
        self.first_arrival.map(|_| self.arrivals.last())
    }

    /// Longest time without a packet.
    pub fn longest_gap(&self) -> Duration {
        self.arrivals.longest_gap()
    }

    /// Total duration of the stalls that playback would have had so far.
    pub fn stalled(&self) -> Duration {
        self.clock.stalled()
    }

    /// Distance between packets in bytes: 188, 192 or 204.
    pub fn stride(&self) -> usize {
        self.stride.unwrap_or(PACKET_LEN)
    }

    /// Number of bytes that arrived without containing a packet; 0 once a packet has arrived.
    pub fn bytes_without_packet(&self) -> usize {
        match self.first_arrival {
            Some(_) => 0,
            None => usize::try_from(self.counts.out_of_sync_bytes)
                .unwrap_or(usize::MAX)
                .saturating_add(self.held.len()),
        }
    }
}

/// Returns the first offset from `at` on where packets with this distance begin.
fn find_sync(bytes: &[u8], at: usize, stride: usize) -> Option<usize> {
    let needed = (SYNC_PACKETS - 1) * stride + 1;
    let mut offsets = at..(bytes.len() + 1).saturating_sub(needed);
    offsets.find(|&offset| (0..SYNC_PACKETS).all(|n| bytes[offset + n * stride] == SYNC))
}
