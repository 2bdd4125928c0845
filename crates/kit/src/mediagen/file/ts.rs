//! MPEG-TS (ISO/IEC 13818-1) with H.264 as a byte stream (H.264, annex B) and AAC in ADTS (ISO/IEC
//! 13818-7, 6.2).

use std::collections::HashMap;

use mpeg2ts::es::StreamType;
use mpeg2ts::ts::payload::Pmt;
use mpeg2ts::ts::{ReadTsPacket, TsPacket, TsPacketReader, TsPayload};

use super::{AccessUnit, FREQUENCIES, PPS, SPS, Track, kind};

/// Times count ticks of 90 kHz and wrap around at 33 bits.
const WRAP: u64 = 1 << 33;

/// Content of a PES packet.
#[derive(Default)]
struct Pes {
    show: Option<u64>,
    decode: Option<u64>,
    data: Vec<u8>,
}

/// Reads the first H.264 stream and, if `audio`, the first AAC stream of the first programme.
pub(super) fn tracks(bytes: &[u8], audio: bool) -> Result<Vec<Track>, String> {
    let packets = || {
        let packets = bytes.chunks_exact(TsPacket::SIZE);
        packets.filter(|packet| packet[0] == 0x47 && !is_cut_map(packet))
    };
    let tables = tables(packets)?;
    let pmt = tables.1;
    let first = |wanted| {
        let mut streams = pmt.es_info.iter();
        streams
            .find(|stream| stream.stream_type == wanted)
            .map(|stream| stream.elementary_pid.as_u16())
    };
    let video = first(StreamType::H264).ok_or("the first programme has no H.264 stream")?;
    let sound = first(StreamType::AdtsAac).filter(|_| audio);
    // Other packets need not be parsed.
    let mut wanted = tables.0;
    let of_interest = |packet: &&[u8]| pid(packet) == video || Some(pid(packet)) == sound;
    for packet in packets().filter(of_interest) {
        wanted.extend_from_slice(packet);
    }
    let mut reader = TsPacketReader::new(&wanted[..]);
    let mut under_way: HashMap<u16, Pes> = HashMap::new();
    let mut done: HashMap<u16, Vec<Pes>> = HashMap::new();
    while let Some(packet) = reader.read_ts_packet().map_err(|e| e.to_string())? {
        let pid = packet.header.pid.as_u16();
        match packet.payload {
            Some(TsPayload::PesStart(start)) => {
                let pes = Pes {
                    show: start.header.pts.map(|pts| pts.as_u64()),
                    decode: start.header.dts.map(|dts| dts.as_u64()),
                    data: start.data.to_vec(),
                };
                if let Some(whole) = under_way.insert(pid, pes) {
                    done.entry(pid).or_default().push(whole);
                }
            }
            Some(TsPayload::PesContinuation(more)) => {
                // A continuation before the first start belongs to a PES packet that the file does
                // not contain.
                if let Some(pes) = under_way.get_mut(&pid) {
                    pes.data.extend_from_slice(&more);
                }
            }
            _ => {}
        }
    }
    for (pid, pes) in under_way {
        done.entry(pid).or_default().push(pes);
    }
    let mut clock = TimeUnwrapper::default();
    let mut tracks = vec![video_track(
        done.remove(&video).unwrap_or_default(),
        &mut clock,
    )];
    if let Some(sound) = sound {
        tracks.extend(audio_track(
            done.remove(&sound).unwrap_or_default(),
            &mut clock,
        )?);
    }
    Ok(tracks)
}

fn pid(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff
}

/// True if the packet begins with a programme map whose descriptors would exceed it (ISO/IEC
/// 13818-1, 2.4.4.8). The packet reader panics at such a map.
fn is_cut_map(packet: &[u8]) -> bool {
    const MAP: u8 = 2;
    /// Lengths of the section's fields before its data (programme number, version, section numbers)
    /// and of the checksum after it.
    const AROUND: (usize, usize) = (5, 4);
    let payload = match packet[3] & 0x30 {
        0x10 => packet.get(4..),
        0x30 => packet.get(5 + usize::from(packet[4])..),
        _ => None,
    };
    // The pointer to the first section must be 0, or the reader rejects the packet.
    let Some([0, sections @ ..]) = payload.filter(|_| packet[1] & 0x40 != 0) else {
        return false;
    };
    let mut rest = sections;
    while let [table, high, low, behind @ ..] = rest {
        let length = usize::from(high & 0x0f) << 8 | usize::from(*low);
        let Some((section, next)) = behind.split_at_checked(length) else {
            return false;
        };
        let data = section.get(AROUND.0..section.len().saturating_sub(AROUND.1));
        if *table == MAP
            && let Some([_, _, high, low, descriptors @ ..]) = data
            && usize::from(high & 3) << 8 | usize::from(*low) > descriptors.len()
        {
            return true;
        }
        rest = next;
    }
    false
}

/// Returns the packets of the tables, and the programme map of the first programme.
fn tables<'a, I: Iterator<Item = &'a [u8]>>(
    packets: impl Fn() -> I,
) -> Result<(Vec<u8>, Pmt), String> {
    let starts = |packet: &&[u8], wanted| pid(packet) == wanted && packet[1] & 0x40 != 0;
    let mut bytes = packets()
        .find(|packet| starts(packet, 0))
        .ok_or("the MPEG-TS file has no programme association table (PAT)")?
        .to_vec();
    let pat = TsPacketReader::new(&bytes[..]).read_ts_packet();
    let map = match pat
        .map_err(|error| error.to_string())?
        .and_then(|p| p.payload)
    {
        Some(TsPayload::Pat(pat)) => pat
            .table
            .iter()
            .find(|programme| programme.program_num != 0)
            .map(|programme| programme.program_map_pid.as_u16()),
        _ => None,
    };
    let map = map.ok_or("the MPEG-TS file has no programme")?;
    let packet = packets().find(|packet| starts(packet, map));
    bytes.extend_from_slice(packet.ok_or("the MPEG-TS file has no programme map table (PMT)")?);
    let mut reader = TsPacketReader::new(&bytes[..]);
    loop {
        match reader.read_ts_packet().map_err(|error| error.to_string())? {
            None => return Err("the MPEG-TS file has no programme map table (PMT)".to_owned()),
            Some(packet) => {
                if let Some(TsPayload::Pmt(pmt)) = packet.payload {
                    return Ok((bytes, pmt));
                }
            }
        }
    }
}

/// Unwraps timestamps, with an offset that keeps earlier ones above zero.
#[derive(Default)]
struct TimeUnwrapper {
    first: Option<u64>,
}

impl TimeUnwrapper {
    fn nanos(&mut self, ticks: u64) -> u64 {
        let first = *self.first.get_or_insert(ticks);
        // Supports times up to half the wrap-around period before and after the first.
        let from_first = (ticks.wrapping_sub(first).wrapping_add(WRAP / 2)) % WRAP;
        let nanos = u128::from(from_first) * 1_000_000_000 / 90_000;
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

fn video_track(packets: Vec<Pes>, clock: &mut TimeUnwrapper) -> Track {
    let mut units: Vec<AccessUnit<Vec<Vec<u8>>>> = Vec::new();
    let (mut sps, mut pps) = (Vec::new(), Vec::new());
    for pes in packets {
        let data = annex_b(&pes.data);
        for nal in &data {
            match kind(nal) {
                SPS if sps.is_empty() => sps.push(nal.clone()),
                PPS if pps.is_empty() => pps.push(nal.clone()),
                _ => {}
            }
        }
        match (pes.show, units.last_mut()) {
            (Some(show), _) => units.push(AccessUnit {
                decode: clock.nanos(pes.decode.unwrap_or(show)),
                show: clock.nanos(show),
                data,
            }),
            // Continuation of the previous picture.
            (None, Some(unit)) => unit.data.extend(data),
            (None, None) => {}
        }
    }
    Track::Video { sps, pps, units }
}

/// Splits a byte stream into NAL units.
fn annex_b(data: &[u8]) -> Vec<Vec<u8>> {
    let mut starts = Vec::new();
    let mut at = 0;
    while let Some(offset) = data[at..].windows(3).position(|bytes| bytes == [0, 0, 1]) {
        starts.push(at + offset);
        at += offset + 3;
    }
    let ends = starts.iter().skip(1).copied().chain([data.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| {
            let nal = &data[start + 3..end];
            // Zeros before the next start code and at the end do not belong to the unit.
            let zeros = nal.iter().rev().take_while(|byte| **byte == 0).count();
            nal[..nal.len() - zeros].to_vec()
        })
        .filter(|nal| !nal.is_empty())
        .collect()
}

fn audio_track(packets: Vec<Pes>, clock: &mut TimeUnwrapper) -> Result<Option<Track>, String> {
    let mut units = Vec::new();
    let mut about = None;
    for pes in packets {
        let Some(show) = pes.show else { continue };
        let begins = clock.nanos(show);
        let mut rest = &pes.data[..];
        let mut number = 0u64;
        while let [0xff, second, third, fourth, fifth, sixth, _, ..] = *rest
            && second & 0xf6 == 0xf0
        {
            let length =
                usize::from(fourth & 3) << 11 | usize::from(fifth) << 3 | usize::from(sixth >> 5);
            let header = if second & 1 == 0 { 9 } else { 7 };
            let Some((frame, behind)) = rest.split_at_checked(length).filter(|_| length > header)
            else {
                break;
            };
            let index = third >> 2 & 0x0f;
            let rate = *FREQUENCIES
                .get(usize::from(index))
                .ok_or("the AAC stream has no valid sampling frequency")?;
            let channels = third << 2 & 4 | fourth >> 6;
            // Object type, frequency index, channels (ISO/IEC 14496-3, 1.6.2.1).
            let object = (third >> 6) + 1;
            let config = vec![object << 3 | index >> 1, index << 7 | channels << 3];
            about.get_or_insert((config, rate, u16::from(channels)));
            let at = begins + number * 1024 * 1_000_000_000 / u64::from(rate);
            units.push(AccessUnit {
                decode: at,
                show: at,
                data: frame[header..].to_vec(),
            });
            number += 1;
            rest = behind;
        }
    }
    Ok(
        about.map(|(config, samples_per_second, channels)| Track::Audio {
            config,
            samples_per_second,
            channels,
            units,
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with a programme map that claims `descriptors` bytes of descriptors.
    fn map(descriptors: u8) -> Vec<u8> {
        let mut packet = vec![0x47, 0x41, 0x00, 0x10, 0];
        // Table ID, section length, programme number, version, section and last section.
        packet.extend([2, 0xb0, 13, 0, 1, 0xc1, 0, 0]);
        // PCR PID, and length of the descriptors.
        packet.extend([0xe1, 0x01, 0xf0, descriptors]);
        packet.extend([0; 4]);
        packet.resize(TsPacket::SIZE, 0xff);
        packet
    }

    #[test]
    fn map_with_a_wrong_length_is_skipped() {
        assert!(!is_cut_map(&map(0)));
        assert!(is_cut_map(&map(1)));
        assert!(is_cut_map(&map(255)));
        // After an adaptation field, and after another section.
        let mut adapted = map(1);
        adapted[3] = 0x30;
        adapted.splice(4..4, [3, 0, 0, 0]);
        assert!(is_cut_map(&adapted[..TsPacket::SIZE]));
        let mut second = map(1);
        second.splice(5..5, [0, 0xb0, 2, 0, 0]);
        assert!(is_cut_map(&second[..TsPacket::SIZE]));
        // The reader rejects truncated sections itself.
        for end in 4..21 {
            let mut cut = map(1);
            cut.truncate(end);
            assert!(!is_cut_map(&cut), "{end}");
        }
    }
}
