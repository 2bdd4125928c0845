//! Transport stream files as loops: clock, times and counters continue from one repetition to the
//! next.

use std::collections::{BTreeMap, HashMap};

use super::looped_stream::{
    ClockMark, LoopedStream, PACKETS_PER_DATAGRAM, PacketMeta, RATE_MAX, RATE_MIN, RateTooLow,
    TIME_WRAP, read_time,
};
use super::packet::{Header, NULL_PID, PACKET_LEN, PAT_PID, PCR_HZ, PCR_WRAP, SYNC};
use super::sections::{Sections, programmes, streams, with_stream};
use super::stamp::{STAMP_PID, STAMP_STREAM_TYPE, Stamp};
use super::tables;

/// Maximum time between two clock references of a file: ten times what the standard allows.
const CLOCK_GAP_MAX: u64 = PCR_HZ;

/// Maximum difference between the loop lengths according to PES times and to the clock.
const LENGTHS_APART_MAX: u64 = PCR_HZ;

/// Maximum mean distance of a stream's times, in ticks of 90 kHz, for which they determine the loop
/// length.
const MEAN_DISTANCE_MAX: u64 = 90_000 / 5;

/// Factor by which the bit rate is raised until all packets fit.
const RAISE: f64 = 1.05;

/// Reason why a file cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The file does not consist of 188-byte packets.
    #[error("the file is not MPEG-TS: there is no sync byte 0x47 every 188 bytes")]
    NoTs,
    /// A packet does not begin with the sync byte.
    #[error("packet {0} does not begin with 0x47: the file is damaged there")]
    NoSync(usize),
    /// The header of a packet is malformed.
    #[error("packet {0} is malformed")]
    Malformed(usize),
    /// The file has no programme association table, or no map of its first programme.
    #[error(
        "the file has no programme: the PAT, or the PMT of the first programme, is missing or damaged"
    )]
    NoProgramme,
    /// The first programme has fewer than two clock references.
    #[error("the first programme has no clock: fewer than two clock references (PCR)")]
    NoClock,
    /// The clock is not continuous.
    #[error("the clock (PCR) jumps at packet {0}: the file must be continuous")]
    ClockJumps(usize),
    /// A stream is scrambled, so its times cannot be rewritten.
    #[error("PID {0:#06x} is scrambled: its times cannot be rewritten")]
    Scrambled(u16),
    /// A PES header is split over two packets.
    #[error("packet {0} has a truncated PES header: its times cannot be rewritten")]
    Cut(usize),
    /// The PID of stamps is in use.
    #[error("the file uses PID {STAMP_PID:#06x}, which is reserved for stamps")]
    StampPid,
    /// The bit rate is too low.
    #[error(
        "{asked} bit/s is too low: with stamps, tables and clock, at least {needs} bit/s is needed"
    )]
    NeedsMore {
        /// Requested bit rate, in bit/s.
        asked: u64,
        /// Minimum bit rate, in bit/s.
        needs: u64,
    },
    /// The bit rate is outside the supported range.
    #[error("a bit rate of {0} bit/s is outside the range of {min} to {max} Mbit/s", min = RATE_MIN as f64 / 1e6, max = RATE_MAX / 1_000_000)]
    Rate(u64),
}

impl LoopedStream {
    /// Creates a loop of all packets of a file except null packets. The clock of its first
    /// programme is the clock of the loop. `rate` is the bit rate of the transport packets
    /// including stamps, in bit/s; the default is the mean bit rate of the file. Takes as much
    /// memory as the file.
    ///
    /// # Errors
    /// The file cannot be sent at that bit rate, or at all. The text states the reason.
    pub fn of_file(bytes: &[u8], rate: Option<u64>) -> Result<LoopedStream, FileError> {
        if let Some(rate) = rate
            && !(RATE_MIN..=RATE_MAX).contains(&rate)
        {
            return Err(FileError::Rate(rate));
        }
        let packets = packets(bytes)?;
        let headers = headers(packets)?;
        let programme = Programme::find(packets, &headers)?;
        let schedule = PacketSchedule::of(&headers, programme.clock_pid)?;
        let mut looped = LoopedStream {
            packets: Vec::with_capacity(packets.len()),
            marks: Vec::with_capacity(packets.len()),
            pids: 0,
            length: 0,
            tables: programme.tables.clone(),
            clock: schedule.begins,
            clock_pid: (programme.clock_pid, 0),
            delay: 0,
            rate: 0,
            listed: programme.listed,
            description: String::new(),
        };
        let times = looped.take(packets, &headers, &programme, &schedule)?;
        looped.length = length(&times, schedule.length);
        looped.description = format!(
            "{} PIDs, a loop of {:.1} s",
            looped.pids,
            looped.length as f64 / PCR_HZ as f64
        );
        match rate {
            Some(asked) => looped
                .set_rate(asked)
                .map_err(|too_low| FileError::NeedsMore {
                    asked,
                    needs: looped.lowest(too_low),
                })?,
            None => {
                let seconds = looped.length as f64 / PCR_HZ as f64;
                let own = (8 * PACKET_LEN) as f64 * packets.len() as f64 / seconds;
                let own = own * PACKETS_PER_DATAGRAM as f64 / (PACKETS_PER_DATAGRAM - 1) as f64;
                let rate = (own.ceil() as u64).max(RATE_MIN);
                if let Err(too_low) = looped.set_rate(rate) {
                    let needs = looped.lowest(too_low);
                    let asked = rate;
                    looped
                        .set_rate(needs)
                        .map_err(|_| FileError::NeedsMore { asked, needs })?;
                }
            }
        }
        Ok(looped)
    }

    /// Returns a bit rate near the lowest at which all packets fit.
    fn lowest(&mut self, too_low: RateTooLow) -> u64 {
        let mut rate = too_low.needs.max(RATE_MIN);
        while rate < RATE_MAX && self.set_rate(rate).is_err() {
            rate = (rate as f64 * RAISE) as u64;
        }
        rate
    }

    /// Adds the packets that are to be sent. Returns the times of each PID's PES packets.
    fn take(
        &mut self,
        packets: &[[u8; PACKET_LEN]],
        headers: &[Header],
        programme: &Programme,
        schedule: &PacketSchedule,
    ) -> Result<BTreeMap<u16, Times>, FileError> {
        let mut pids = HashMap::from([(programme.clock_pid, 0u16)]);
        let mut last: HashMap<u16, usize> = HashMap::new();
        let mut times: BTreeMap<u16, Times> = BTreeMap::new();
        let begins = self.clock / 300;
        for (index, (packet, header)) in packets.iter().zip(headers).enumerate() {
            let pid = header.pid;
            if pid == NULL_PID || programme.is_table_pid(pid) {
                continue;
            }
            if pid == STAMP_PID {
                match Stamp::read(packet) {
                    // The file was recorded from a stamped stream.
                    Some(_) => continue,
                    None => return Err(FileError::StampPid),
                }
            }
            if header.scrambled {
                return Err(FileError::Scrambled(pid));
            }
            if header.has_payload
                && let Some(before) = last.insert(pid, index)
                && is_copy(headers, packets, before, index)
            {
                continue;
            }
            let time = time_in(index, header, packet)?;
            if let Some((at, decoding)) = time {
                let at = usize::from(at) + if decoding { 5 } else { 0 };
                let bytes = packet[at..].first_chunk().expect("`time_in` checked it");
                let shown = read_time(*bytes);
                let since = (shown + TIME_WRAP - begins) % TIME_WRAP;
                times.entry(pid).or_default().take(since);
            }
            let next = pids.len() as u16;
            let number = *pids.entry(pid).or_insert(next);
            let mut packet = *packet;
            if packet[3] & 0x20 != 0 && packet[4] > 0 {
                // Discontinuities of the file do not exist in the loop.
                packet[5] &= 0x7f;
            }
            self.packets.push(packet);
            self.marks.push(PacketMeta {
                at: schedule.at(index),
                pid: number,
                counts: header.has_payload,
                clock: match header.pcr {
                    None => ClockMark::None,
                    Some(_) if pid == programme.clock_pid => ClockMark::Own,
                    Some(_) => ClockMark::Other,
                },
                times: time,
                code: None,
            });
        }
        self.pids = pids.len();
        Ok(times)
    }
}

/// Splits a file into packets. An incomplete packet at the beginning or the end is ignored.
fn packets(bytes: &[u8]) -> Result<&[[u8; PACKET_LEN]], FileError> {
    let begins = |&start: &usize| {
        let packets = bytes[start..].as_chunks::<PACKET_LEN>().0;
        packets.len() > 1 && packets.iter().take(5).all(|packet| packet[0] == SYNC)
    };
    let start = (0..PACKET_LEN.min(bytes.len())).find(begins);
    let start = start.ok_or(FileError::NoTs)?;
    Ok(bytes[start..].as_chunks().0)
}

fn headers(packets: &[[u8; PACKET_LEN]]) -> Result<Vec<Header>, FileError> {
    let each = packets.iter().enumerate();
    each.map(|(index, packet)| match Header::parse(packet) {
        Ok(header) if !header.damaged => Ok(header),
        _ if packet[0] != SYNC => Err(FileError::NoSync(index)),
        _ => Err(FileError::Malformed(index)),
    })
    .collect()
}

/// Contents of the programme tables.
struct Programme {
    map_pid: u16,
    clock_pid: u16,
    /// Packets of the tables, with the stamps added to the map. Empty if the tables change within
    /// the file; they are then sent with the other packets.
    tables: Vec<[u8; PACKET_LEN]>,
    /// True if the map lists the stamps.
    listed: bool,
}

impl Programme {
    fn find(packets: &[[u8; PACKET_LEN]], headers: &[Header]) -> Result<Programme, FileError> {
        let pats = distinct(packets, headers, PAT_PID);
        let pat = pats.iter().find_map(|pat| Some((pat, programmes(pat)?)));
        let (pat, list) = pat.ok_or(FileError::NoProgramme)?;
        let &(number, map_pid) = list.first().ok_or(FileError::NoProgramme)?;
        let maps = distinct(packets, headers, map_pid);
        let is_own = |map: &&Vec<u8>| map.get(3..5) == Some(&number.to_be_bytes()[..]);
        let own = maps.iter().filter(is_own);
        let mut own = own.filter_map(|map| Some((map, streams(map)?)));
        let (map, (clock_pid, list)) = own.next().ok_or(FileError::NoProgramme)?;
        if clock_pid == NULL_PID {
            return Err(FileError::NoClock);
        }
        let there = list.contains(&STAMP_PID);
        if pats.len() > 1 || maps.len() > 1 {
            return Ok(Programme {
                map_pid,
                clock_pid,
                tables: Vec::new(),
                listed: there,
            });
        }
        let more = match there {
            true => Some(map.clone()),
            false => with_stream(map, STAMP_STREAM_TYPE, STAMP_PID),
        };
        let listed = more.is_some();
        let mut tables = tables::packets(PAT_PID, pat);
        tables.extend(tables::packets(map_pid, more.as_ref().unwrap_or(map)));
        Ok(Programme {
            map_pid,
            clock_pid,
            tables,
            listed,
        })
    }

    /// True if packets with that PID are sent on their own schedule.
    fn is_table_pid(&self, pid: u16) -> bool {
        !self.tables.is_empty() && (pid == PAT_PID || pid == self.map_pid)
    }
}

/// Returns the distinct sections of a PID, at most three: more than one means that they change.
fn distinct(packets: &[[u8; PACKET_LEN]], headers: &[Header], pid: u16) -> Vec<Vec<u8>> {
    let mut sections = Sections::default();
    let mut found: Vec<Vec<u8>> = Vec::new();
    for (packet, header) in packets.iter().zip(headers) {
        if header.pid == pid && header.has_payload {
            sections.take(header.unit_start, header.payload_of(packet), |section| {
                if found.len() < 3 && !found.iter().any(|known| known == section) {
                    found.push(section.to_vec());
                }
            });
        }
    }
    found
}

/// Send time of each packet, interpolated between clock references (ISO/IEC 13818-1, 2.4.2.2).
struct PacketSchedule {
    /// Packet indices of clock references, and their times from the beginning of the file.
    points: Vec<(usize, u64)>,
    /// Clock value at the beginning of the file.
    begins: u64,
    /// Duration of the file.
    length: u64,
}

impl PacketSchedule {
    fn of(headers: &[Header], clock_pid: u16) -> Result<PacketSchedule, FileError> {
        let clocks = headers.iter().enumerate();
        let clocks = clocks.filter(|(_, header)| header.pid == clock_pid);
        let mut clocks = clocks.filter_map(|(index, header)| Some((index, header.pcr?)));
        let (first, begins) = clocks.next().ok_or(FileError::NoClock)?;
        let mut points = vec![(first, 0u64)];
        let mut last = begins;
        for (index, clock) in clocks {
            let passed = (clock + PCR_WRAP - last) % PCR_WRAP;
            if passed == 0 || passed > CLOCK_GAP_MAX {
                return Err(FileError::ClockJumps(index));
            }
            let at = points.last().map_or(0, |&(_, at)| at);
            points.push((index, at + passed));
            last = clock;
        }
        let [(a, at_a), (b, at_b), ..] = points[..] else {
            return Err(FileError::NoClock);
        };
        // The rate before the first reference equals that after it.
        let lead = between((at_b - at_a, b - a), first);
        for (_, at) in &mut points {
            *at += lead;
        }
        let mut schedule = PacketSchedule {
            points,
            begins: (begins + PCR_WRAP - lead % PCR_WRAP) % PCR_WRAP,
            length: 0,
        };
        schedule.length = schedule.at(headers.len());
        Ok(schedule)
    }

    fn at(&self, index: usize) -> u64 {
        let next = self.points.partition_point(|&(point, _)| point <= index);
        // Extrapolates from the nearest two references.
        let next = next.clamp(1, self.points.len() - 1);
        let ((a, at_a), (b, at_b)) = (self.points[next - 1], self.points[next]);
        let step = (at_b - at_a, b - a);
        match index.checked_sub(a) {
            Some(behind) => at_a + between(step, behind),
            None => at_a.saturating_sub(between(step, a - index)),
        }
    }
}

/// Duration of `packets` packets if `of` packets take `ticks`.
fn between((ticks, of): (u64, usize), packets: usize) -> u64 {
    let all = u128::from(ticks) * packets as u128 / of.max(1) as u128;
    u64::try_from(all).unwrap_or(u64::MAX)
}

/// Decoding times of a PID, from the beginning of the file, in ticks of 90 kHz.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    count: u64,
    /// Minimum and maximum, with an offset of half the wrap-around period, because some times may
    /// precede the beginning.
    least: u64,
    most: u64,
}

impl Times {
    fn take(&mut self, since: u64) {
        let since = (since + TIME_WRAP / 2) % TIME_WRAP;
        if self.count == 0 {
            (self.least, self.most) = (since, since);
        }
        self.count += 1;
        self.least = self.least.min(since);
        self.most = self.most.max(since);
    }

    /// Duration of all units; the last one lasts as long as the mean of the others. `None` if they
    /// are not close to each other.
    fn length(&self) -> Option<u64> {
        let others = self.count.checked_sub(1).filter(|&others| others > 0)?;
        let span = self.most - self.least;
        (span / others <= MEAN_DISTANCE_MAX).then(|| span + span.div_ceil(others))
    }
}

/// Returns the length of the loop: that of video and audio, so that they continue without a gap, or
/// that of the clock if the two differ by more than [`LENGTHS_APART_MAX`]. Rounded up to whole
/// ticks of 90 kHz, the resolution of the times.
fn length(times: &BTreeMap<u16, Times>, clock: u64) -> u64 {
    let longest = times.values().filter_map(Times::length).max();
    let longest = longest.map(|ticks| ticks * 300);
    longest
        .filter(|longest| longest.abs_diff(clock) <= LENGTHS_APART_MAX)
        .unwrap_or(clock)
        .max(300)
        .next_multiple_of(300)
}

/// True if the packet is a duplicate, which a stream may contain (ISO/IEC 13818-1, 2.4.3.3):
/// identical except for the clock reference.
fn is_copy(headers: &[Header], packets: &[[u8; PACKET_LEN]], before: usize, index: usize) -> bool {
    let (first, second) = (&headers[before], &headers[index]);
    first.continuity == second.continuity
        && !second.discontinuity
        && first.payload_of(&packets[before]) == second.payload_of(&packets[index])
}

/// Returns the position of the presentation time in a packet, and whether a decoding time follows
/// it (ISO/IEC 13818-1, 2.4.3.6).
pub fn time_in(
    index: usize,
    header: &Header,
    packet: &[u8; PACKET_LEN],
) -> Result<Option<(u8, bool)>, FileError> {
    let payload = header.payload_of(packet);
    let (0xe0..=0xef | 0xc0..=0xdf | 0xbd | 0xfa..=0xfe) =
        (match (header.unit_start, payload.strip_prefix(&[0, 0, 1])) {
            (true, Some(&[kind, ..])) => kind,
            _ => return Ok(None),
        })
    else {
        return Ok(None);
    };
    let Some(&flags) = payload.get(7) else {
        return Err(FileError::Cut(index));
    };
    let decoding = match flags >> 6 {
        2 => false,
        3 => true,
        _ => return Ok(None),
    };
    let bytes = if decoding { 10 } else { 5 };
    if payload.len() < 9 + bytes {
        return Err(FileError::Cut(index));
    }
    Ok(Some((header.payload + 9, decoding)))
}
