//! Ranges of UDP ports that one run has to itself, so that nothing which is meant for another
//! program comes into its packet ring and fills it.
//!
//! Programs that ask here share ports out among themselves in blocks. Whoever uses a block holds a
//! name that stands for it, of a kind that exists once a network namespace, as ports do, and that
//! the kernel takes back however the holder ends (abstract socket addresses; unix(7)). Programs
//! that know nothing of it are avoided where their sockets can be seen.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// How many ports a block has.
const BLOCK_PORTS: u16 = 512;

/// A range of ports that no other program has which asks for them here; until it is dropped.
#[derive(Debug)]
pub struct Claim {
    range: Range<u16>,
    /// One for each block.
    _names: Vec<UnixDatagram>,
}

impl Claim {
    /// Claims adjoining ports within `within`: as many as `wanted` if that can be, and at least
    /// `needed`. `None` where so many are not free side by side.
    ///
    /// Ranges in which no socket is bound so far are preferred. Where among them is left to chance
    /// (the process's number), so that what a server still sends to the ports of a run that ended a
    /// moment ago seldom meets the next one.
    ///
    /// # Errors
    /// Names for the blocks cannot be had for another reason than that they are held.
    pub fn take(within: Range<u16>, needed: u64, wanted: u64) -> io::Result<Option<Claim>> {
        let blocks = usize::from(within.end.saturating_sub(within.start) / BLOCK_PORTS);
        let of = |ports: u64| {
            let blocks = ports.div_ceil(u64::from(BLOCK_PORTS)).max(1);
            usize::try_from(blocks).unwrap_or(usize::MAX)
        };
        let first_port = |block: usize| {
            // Within the range, as the number of blocks was made from it.
            within.start + BLOCK_PORTS * u16::try_from(block).unwrap_or(0)
        };
        if blocks < of(needed) {
            return Ok(None);
        }
        let mut taken = vec![false; blocks];
        for port in ports_in_use() {
            if let Some(offset) = port.checked_sub(within.start)
                && let Some(taken) = taken.get_mut(usize::from(offset / BLOCK_PORTS))
            {
                *taken = true;
            }
        }
        let mut sizes = vec![of(wanted).clamp(of(needed), blocks), of(needed)];
        sizes.dedup();
        for size in sizes {
            let places = blocks - size + 1;
            let start = std::process::id() as usize % places;
            let order = || (0..places).map(|place| (start + place) % places);
            let is_free = |&place: &usize| !taken[place..place + size].contains(&true);
            let (free, rest): (Vec<usize>, Vec<usize>) = order().partition(is_free);
            for place in free.into_iter().chain(rest) {
                let names: Option<Vec<UnixDatagram>> = (place..place + size)
                    .map(|block| hold(first_port(block)).transpose())
                    .collect::<Option<io::Result<_>>>()
                    .transpose()?;
                if let Some(names) = names {
                    return Ok(Some(Claim {
                        range: first_port(place)..first_port(place + size),
                        _names: names,
                    }));
                }
            }
        }
        Ok(None)
    }

    /// The most ports that can be claimed within `within`.
    pub fn most(within: &Range<u16>) -> u64 {
        u64::from(within.end.saturating_sub(within.start) / BLOCK_PORTS * BLOCK_PORTS)
    }

    /// The ports.
    pub fn range(&self) -> Range<u16> {
        self.range.clone()
    }
}

/// Takes the name of the block that begins with that port; none where it is held.
fn hold(first: u16) -> io::Result<Option<UnixDatagram>> {
    let name = format!("streamgauge/udp/{first}");
    match UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?) {
        Ok(name) => Ok(Some(name)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

/// The UDP ports on which sockets of this network namespace are bound; none where that cannot be
/// seen.
fn ports_in_use() -> Vec<u16> {
    ["/proc/net/udp", "/proc/net/udp6"]
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|text| text.lines().filter_map(local_port).collect::<Vec<_>>())
        .collect()
}

/// The local port in a line of /proc/net/udp: the second field's number behind the colon, in
/// hexadecimal (proc(5)).
fn local_port(line: &str) -> Option<u16> {
    let (_, port) = line.split_ascii_whitespace().nth(1)?.rsplit_once(':')?;
    u16::from_str_radix(port, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;
    use crate::ports::DEFAULT_RANGE;

    /// Ports that are nobody's usual ones, apart for each test, and below those of other tests.
    fn ports(test: u16, blocks: u16) -> Range<u16> {
        assert!(blocks <= 4 && 1024 + 4 * BLOCK_PORTS * (test + 1) <= DEFAULT_RANGE.start);
        let first = 1024 + 4 * BLOCK_PORTS * test;
        first..first + blocks * BLOCK_PORTS
    }

    fn take(within: Range<u16>, needed: u64, wanted: u64) -> Option<Claim> {
        Claim::take(within, needed, wanted).expect("names can be had")
    }

    #[test]
    fn what_one_has_no_other_gets_until_it_is_given_back() {
        let within = ports(0, 4);
        let claims: Vec<Claim> = (0..4)
            .map(|_| take(within.clone(), 1, 1).expect("there are four"))
            .collect();
        let mut starts: Vec<u16> = claims.iter().map(|claim| claim.range().start).collect();
        starts.sort_unstable();
        let each: Vec<u16> = within.clone().step_by(usize::from(BLOCK_PORTS)).collect();
        assert_eq!(starts, each);
        assert!(take(within.clone(), 1, 1).is_none());
        drop(claims);
        assert_eq!(
            take(within.clone(), 2048, 2048).map(|c| c.range()),
            Some(within)
        );
    }

    #[test]
    fn as_many_as_are_wanted_else_as_many_as_are_needed_else_none() {
        let within = ports(1, 4);
        let length = |claim: &Claim| claim.range().len();
        let all = take(within.clone(), 513, 100_000).expect("free");
        assert_eq!(length(&all), 2048);
        drop(all);
        let one = take(within.clone(), 1, 1).expect("free");
        let rest = take(within.clone(), 513, 2048).expect("two side by side are left");
        assert_eq!(length(&rest), 1024);
        assert!(one.range().start >= rest.range().end || one.range().end <= rest.range().start);
        assert!(take(within.clone(), 2049, 2049).is_none());
        assert!(take(within.start..within.start + 100, 1, 1).is_none());
    }

    #[test]
    fn ports_on_which_somebody_sits_are_taken_last() {
        let within = ports(2, 2);
        let sitting = UdpSocket::bind((Ipv4Addr::LOCALHOST, within.start + 7)).expect("free");
        let first = take(within.clone(), 1, 1).expect("free");
        let second = take(within.clone(), 1, 1).expect("names are free");
        assert_eq!(first.range().start, within.start + BLOCK_PORTS);
        assert_eq!(second.range().start, within.start);
        drop(sitting);
    }

    #[test]
    fn a_line_of_the_kernels_list_tells_the_port() {
        let line =
            " 4242: 0100007F:1B39 00000000:0000 07 00000000:00000000 00:00000000 00000000     0";
        assert_eq!(local_port(line), Some(6969));
        assert_eq!(local_port("   sl  local_address rem_address   st"), None);
        for line in ["", "a", "1: x", "1: 00:10000"] {
            assert_eq!(local_port(line), None, "{line}");
        }
    }
}
