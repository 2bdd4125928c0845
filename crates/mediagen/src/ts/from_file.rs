//! A file of a transport stream, as one loop: its clock, its times and its counters go on from turn
//! to turn.

use std::collections::{BTreeMap, HashMap};

use super::looped_stream::{
    ClockMark, LoopedStream, Mark, NoRoom, PACKETS, RATE_MAX, RATE_MIN, TIME_WRAP, read_time,
};
use super::packet::{Header, NULL_PID, PACKET, PAT_PID, PCR_HZ, PCR_WRAP, SYNC};
use super::sections::{Sections, programmes, streams, with_stream};
use super::stamp::{STAMP_PID, STAMP_STREAM_TYPE, Stamp};
use super::tables;

/// The longest time between two clock references of a file: ten times what the standard allows.
const CLOCK_GAP_MAX: u64 = PCR_HZ;

/// By how much times of pictures and sound may tell another length than the clock.
const LENGTHS_APART_MAX: u64 = PCR_HZ;

/// A stream whose times follow each other that closely, in ticks of 90 kHz, tells how long the loop
/// is.
const CLOSE: u64 = 90_000 / 5;

/// By how much the bit rate is raised each time, until all packets find room.
const RAISE: f64 = 1.05;

/// Why a file cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// No packets of 188 bytes.
    #[error("it is no MPEG-TS: there is no 0x47 every 188 bytes")]
    NoTs,
    /// The packets do not go on.
    #[error("its packet {0} does not begin with 0x47: it is damaged there")]
    NoSync(usize),
    /// The header of a packet cannot be read.
    #[error("its packet {0} is malformed")]
    Malformed(usize),
    /// No table of programmes, or no map of the first.
    #[error(
        "it has no programme: its PAT, or the PMT of its first programme, is not there or damaged"
    )]
    NoProgramme,
    /// There are no clock references by which it could be sent.
    #[error("its first programme has no clock: fewer than two clock references (PCR)")]
    NoClock,
    /// The clock does not go on.
    #[error("its clock (PCR) jumps at packet {0}: it has to be one piece")]
    ClockJumps(usize),
    /// What is scrambled has times that cannot be rewritten.
    #[error("its PID {0:#06x} is scrambled: times in it cannot be rewritten")]
    Scrambled(u16),
    /// A time is cut over two packets.
    #[error("in its packet {0} a PES header is cut off: times in it cannot be rewritten")]
    Cut(usize),
    /// The stamps' PID is somebody else's.
    #[error("it uses the PID {STAMP_PID:#06x}, which is that of the stamps")]
    StampPid,
    /// It does not fit.
    #[error(
        "it takes at least {needs} bit/s, stamps, tables and clock included: {asked} bit/s is too low"
    )]
    NeedsMore {
        /// What was asked for.
        asked: u64,
        /// What would do.
        needs: u64,
    },
    /// Outside of what a stream can have.
    #[error("a bit rate of {0} bit/s: there must be between {min} and {max} Mb/s", min = RATE_MIN as f64 / 1e6, max = RATE_MAX / 1_000_000)]
    Rate(u64),
}

impl LoopedStream {
    /// One loop out of a file: all that it holds, but for null packets. Its first programme's clock
    /// is the loop's. `rate` is in bit/s, of transport packets, stamps included; without one it is
    /// sent as fast as it was made, in the mean. Takes memory for the file once more.
    ///
    /// # Errors
    /// It cannot be sent so; the text says why.
    pub fn of_file(bytes: &[u8], rate: Option<u64>) -> Result<LoopedStream, FileError> {
        if let Some(rate) = rate
            && !(RATE_MIN..=RATE_MAX).contains(&rate)
        {
            return Err(FileError::Rate(rate));
        }
        let packets = packets(bytes)?;
        let headers = headers(packets)?;
        let programme = Programme::find(packets, &headers)?;
        let course = Course::of(&headers, programme.clock_pid)?;
        let mut looped = LoopedStream {
            packets: Vec::with_capacity(packets.len()),
            marks: Vec::with_capacity(packets.len()),
            pids: 0,
            length: 0,
            tables: programme.tables.clone(),
            clock: course.begins,
            clock_pid: (programme.clock_pid, 0),
            delay: 0,
            rate: 0,
            listed: programme.listed,
            description: String::new(),
        };
        let times = looped.take(packets, &headers, &programme, &course)?;
        looped.length = length(&times, course.length);
        looped.description = format!(
            "{} PIDs, a loop of {:.1} s",
            looped.pids,
            looped.length as f64 / PCR_HZ as f64
        );
        match rate {
            Some(asked) => looped
                .set_rate(asked)
                .map_err(|no_room| FileError::NeedsMore {
                    asked,
                    needs: looped.lowest(no_room),
                })?,
            None => {
                let seconds = looped.length as f64 / PCR_HZ as f64;
                let own = (8 * PACKET) as f64 * packets.len() as f64 / seconds;
                let own = own * PACKETS as f64 / (PACKETS - 1) as f64;
                let rate = (own.ceil() as u64).max(RATE_MIN);
                if let Err(no_room) = looped.set_rate(rate) {
                    let needs = looped.lowest(no_room);
                    let asked = rate;
                    looped
                        .set_rate(needs)
                        .map_err(|_| FileError::NeedsMore { asked, needs })?;
                }
            }
        }
        Ok(looped)
    }

    /// A bit rate, nearly the lowest, at which all packets find room.
    fn lowest(&mut self, no_room: NoRoom) -> u64 {
        let mut rate = no_room.needs.max(RATE_MIN);
        while rate < RATE_MAX && self.set_rate(rate).is_err() {
            rate = (rate as f64 * RAISE) as u64;
        }
        rate
    }

    /// Takes the packets in that are to be sent. Gives the times of each PID's PES packets.
    fn take(
        &mut self,
        packets: &[[u8; PACKET]],
        headers: &[Header],
        programme: &Programme,
        course: &Course,
    ) -> Result<BTreeMap<u16, Times>, FileError> {
        let mut pids = HashMap::from([(programme.clock_pid, 0u16)]);
        let mut last: HashMap<u16, usize> = HashMap::new();
        let mut times: BTreeMap<u16, Times> = BTreeMap::new();
        let begins = self.clock / 300;
        for (index, (packet, header)) in packets.iter().zip(headers).enumerate() {
            let pid = header.pid;
            if pid == NULL_PID || programme.is_sent_apart(pid) {
                continue;
            }
            if pid == STAMP_PID {
                match Stamp::read(header, packet) {
                    // It was recorded from such a source.
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
                let bytes = packet[at..].first_chunk().expect("it was looked for");
                let shown = read_time(*bytes);
                let since = (shown + TIME_WRAP - begins) % TIME_WRAP;
                times.entry(pid).or_default().take(since);
            }
            let next = pids.len() as u16;
            let number = *pids.entry(pid).or_insert(next);
            let mut packet = *packet;
            if packet[3] & 0x20 != 0 && packet[4] > 0 {
                // What jumps in the file goes on here.
                packet[5] &= 0x7f;
            }
            self.packets.push(packet);
            self.marks.push(Mark {
                at: course.at(index),
                pid: number,
                counts: header.has_payload,
                clock: match header.pcr {
                    None => ClockMark::None,
                    Some(_) if pid == programme.clock_pid => ClockMark::Own,
                    Some(_) => ClockMark::Other,
                },
                times: time,
            });
        }
        self.pids = pids.len();
        Ok(times)
    }
}

/// The packets of a file. What is left at the end is not one, and up to one may be at the
/// beginning.
fn packets(bytes: &[u8]) -> Result<&[[u8; PACKET]], FileError> {
    let begins = |&start: &usize| {
        let packets = bytes[start..].as_chunks::<PACKET>().0;
        packets.len() > 1 && packets.iter().take(5).all(|packet| packet[0] == SYNC)
    };
    let start = (0..PACKET.min(bytes.len())).find(begins);
    let start = start.ok_or(FileError::NoTs)?;
    Ok(bytes[start..].as_chunks().0)
}

fn headers(packets: &[[u8; PACKET]]) -> Result<Vec<Header>, FileError> {
    let each = packets.iter().enumerate();
    each.map(|(index, packet)| match Header::parse(packet) {
        Ok(header) if !header.damaged => Ok(header),
        _ if packet[0] != SYNC => Err(FileError::NoSync(index)),
        _ => Err(FileError::Malformed(index)),
    })
    .collect()
}

/// What the tables say.
struct Programme {
    map_pid: u16,
    clock_pid: u16,
    /// The packets of the tables, with the stamps in the map; none where tables change over the
    /// file, and so stay where they are in it.
    tables: Vec<[u8; PACKET]>,
    /// Whether the map lists the stamps.
    listed: bool,
}

impl Programme {
    fn find(packets: &[[u8; PACKET]], headers: &[Header]) -> Result<Programme, FileError> {
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

    /// Whether packets of that PID are sent on their own schedule.
    fn is_sent_apart(&self, pid: u16) -> bool {
        !self.tables.is_empty() && (pid == PAT_PID || pid == self.map_pid)
    }
}

/// The sections of a PID that differ: no more than three of them, since more than one is too many.
fn distinct(packets: &[[u8; PACKET]], headers: &[Header], pid: u16) -> Vec<Vec<u8>> {
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

/// When each packet is due, by the clock references before and after it (ISO/IEC 13818-1, 2.4.2.2).
struct Course {
    /// Places of clock references, and when each is due from the beginning of the file.
    points: Vec<(usize, u64)>,
    /// What the clock shows at the beginning.
    begins: u64,
    /// How long it is.
    length: u64,
}

impl Course {
    fn of(headers: &[Header], clock_pid: u16) -> Result<Course, FileError> {
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
        // Before the first it goes as fast as right after it.
        let lead = between((at_b - at_a, b - a), first);
        for (_, at) in &mut points {
            *at += lead;
        }
        let mut course = Course {
            points,
            begins: (begins + PCR_WRAP - lead % PCR_WRAP) % PCR_WRAP,
            length: 0,
        };
        course.length = course.at(headers.len());
        Ok(course)
    }

    fn at(&self, index: usize) -> u64 {
        let next = self.points.partition_point(|&(place, _)| place <= index);
        // Outside of the references the nearest two tell.
        let next = next.clamp(1, self.points.len() - 1);
        let ((a, at_a), (b, at_b)) = (self.points[next - 1], self.points[next]);
        let step = (at_b - at_a, b - a);
        match index.checked_sub(a) {
            Some(behind) => at_a + between(step, behind),
            None => at_a.saturating_sub(between(step, a - index)),
        }
    }
}

/// How long so many packets take, where `of` take `ticks`.
fn between((ticks, of): (u64, usize), packets: usize) -> u64 {
    let all = u128::from(ticks) * packets as u128 / of.max(1) as u128;
    u64::try_from(all).unwrap_or(u64::MAX)
}

/// Times of decoding of a PID, from the beginning of the file, in ticks of 90 kHz.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    count: u64,
    /// Less by half of what wraps around, so that some may be before the beginning.
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

    /// How long all last, the last as long as the others in the mean; none where they do not follow
    /// closely.
    fn length(&self) -> Option<u64> {
        let others = self.count.checked_sub(1).filter(|&others| others > 0)?;
        let span = self.most - self.least;
        (span / others <= CLOSE).then(|| span + span.div_ceil(others))
    }
}

/// How long the loop is: as long as pictures and sound last, so that they go on without a gap; as
/// the clock has it where they tell something quite different. In whole ticks of 90 kHz, of which
/// the times are.
fn length(times: &BTreeMap<u16, Times>, clock: u64) -> u64 {
    let longest = times.values().filter_map(Times::length).max();
    let longest = longest.map(|ticks| ticks * 300);
    longest
        .filter(|longest| longest.abs_diff(clock) <= LENGTHS_APART_MAX)
        .unwrap_or(clock)
        .max(300)
        .next_multiple_of(300)
}

/// Whether a packet is sent a second time, which a stream may do (ISO/IEC 13818-1, 2.4.3.3): but
/// for the clock reference they are the same.
fn is_copy(headers: &[Header], packets: &[[u8; PACKET]], before: usize, index: usize) -> bool {
    let (first, second) = (&headers[before], &headers[index]);
    first.continuity == second.continuity
        && !second.discontinuity
        && first.payload_of(&packets[before]) == second.payload_of(&packets[index])
}

/// Where a time of presentation stands in a packet, and whether one of decoding follows (ISO/IEC
/// 13818-1, 2.4.3.6).
pub fn time_in(
    index: usize,
    header: &Header,
    packet: &[u8; PACKET],
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
