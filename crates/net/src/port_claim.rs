//! UDP port ranges that one run has to itself, so that traffic for other programs does not fill its
//! packet ring.
//!
//! Programs that use this module divide the ports into blocks. The holder of a block binds a name
//! for it: an abstract socket address (unix(7)), which exists once per network namespace, as ports
//! do, and which the kernel releases however the holder ends. Other programs are avoided if their
//! sockets are visible.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Ports per block.
const BLOCK_PORTS: u16 = 512;

/// A port range that no other program using this module has, until it is dropped.
#[derive(Debug)]
pub struct PortClaim {
    range: Range<u16>,
    /// One name per block.
    _names: Vec<UnixDatagram>,
}

impl PortClaim {
    /// Claims contiguous ports within `within`: `wanted` of them if possible, and at least
    /// `needed`. Returns `None` if there are not enough contiguous free ports.
    ///
    /// Ranges without bound sockets are preferred. The choice among them depends on the process ID:
    /// packets that a server still sends to the ports of a run that has just ended then seldom
    /// reach the next run.
    ///
    /// # Errors
    /// Names for the blocks cannot be bound, for another reason than being in use.
    pub fn take(within: Range<u16>, needed: u64, wanted: u64) -> io::Result<Option<PortClaim>> {
        let blocks = usize::from(within.end.saturating_sub(within.start) / BLOCK_PORTS);
        let of = |ports: u64| {
            let blocks = ports.div_ceil(u64::from(BLOCK_PORTS)).max(1);
            usize::try_from(blocks).unwrap_or(usize::MAX)
        };
        let first_port = |block: usize| {
            // In range, because the number of blocks was computed from the range.
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
                    .map(|block| bind_block_name(first_port(block)).transpose())
                    .collect::<Option<io::Result<_>>>()
                    .transpose()?;
                if let Some(names) = names {
                    return Ok(Some(PortClaim {
                        range: first_port(place)..first_port(place + size),
                        _names: names,
                    }));
                }
            }
        }
        Ok(None)
    }

    /// Maximum number of ports that can be claimed within `within`.
    pub fn ports_max(within: &Range<u16>) -> u64 {
        u64::from(within.end.saturating_sub(within.start) / BLOCK_PORTS * BLOCK_PORTS)
    }

    pub fn range(&self) -> Range<u16> {
        self.range.clone()
    }
}

/// Binds the name of the block that begins with port `first`. Returns `None` if it is in use.
fn bind_block_name(first: u16) -> io::Result<Option<UnixDatagram>> {
    let name = format!("streamgauge/udp/{first}");
    match UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?) {
        Ok(name) => Ok(Some(name)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the UDP ports on which sockets of this network namespace are bound. Empty if that cannot
/// be read.
fn ports_in_use() -> Vec<u16> {
    ["/proc/net/udp", "/proc/net/udp6"]
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|text| text.lines().filter_map(local_port).collect::<Vec<_>>())
        .collect()
}

/// Parses the local port in a line of /proc/net/udp: the hexadecimal number after the colon of the
/// second field (proc(5)).
fn local_port(line: &str) -> Option<u16> {
    let (_, port) = line.split_ascii_whitespace().nth(1)?.rsplit_once(':')?;
    u16::from_str_radix(port, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;
    use crate::ports::DEFAULT_RANGE;

    /// Returns uncommon ports, different for each test and below those of other tests.
    fn ports(test: u16, blocks: u16) -> Range<u16> {
        assert!(blocks <= 4 && 1024 + 4 * BLOCK_PORTS * (test + 1) <= DEFAULT_RANGE.start);
        let first = 1024 + 4 * BLOCK_PORTS * test;
        first..first + blocks * BLOCK_PORTS
    }

    fn take(within: Range<u16>, needed: u64, wanted: u64) -> Option<PortClaim> {
        PortClaim::take(within, needed, wanted).expect("names can be had")
    }

    #[test]
    fn claims_are_exclusive_until_dropped() {
        let within = ports(0, 4);
        let claims: Vec<PortClaim> = (0..4)
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
    fn claim_gets_wanted_else_needed_else_no_ports() {
        let within = ports(1, 4);
        let length = |claim: &PortClaim| claim.range().len();
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
    fn blocks_with_bound_sockets_are_taken_last() {
        let within = ports(2, 2);
        let sitting = UdpSocket::bind((Ipv4Addr::LOCALHOST, within.start + 7)).expect("free");
        let first = take(within.clone(), 1, 1).expect("free");
        let second = take(within.clone(), 1, 1).expect("names are free");
        assert_eq!(first.range().start, within.start + BLOCK_PORTS);
        assert_eq!(second.range().start, within.start);
        drop(sitting);
    }

    #[test]
    fn local_port_is_parsed_from_proc_net_udp() {
        let line =
            " 4242: 0100007F:1B39 00000000:0000 07 00000000:00000000 00:00000000 00000000     0";
        assert_eq!(local_port(line), Some(6969));
        assert_eq!(local_port("   sl  local_address rem_address   st"), None);
        for line in ["", "a", "1: x", "1: 00:10000"] {
            assert_eq!(local_port(line), None, "{line}");
        }
    }
}
