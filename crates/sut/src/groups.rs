//! Multicast groups that are joined in the server's network namespace.
//!
//! The kernel lists them by device, for the whole namespace. It does not tell which process joined
//! them.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the groups in `watched` that are joined in the network namespace of a process; `None` if
/// they cannot be read.
pub(crate) fn joined(pid: u32, watched: &BTreeSet<IpAddr>) -> Option<BTreeSet<IpAddr>> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}"));
    let igmp = read("igmp").ok()?;
    // Without IPv6 there is no such file, and no IPv6 group.
    let igmp6 = read("igmp6").unwrap_or_default();
    let all = igmp.lines().filter_map(parse_igmp);
    let all = all.chain(igmp6.lines().filter_map(parse_igmp6));
    Some(all.filter(|group| watched.contains(group)).collect())
}

/// Parses a line of /proc/net/igmp. An indented line has a group, written as a hexadecimal number
/// of its four bytes in the byte order of this machine. The other lines are devices.
fn parse_igmp(line: &str) -> Option<IpAddr> {
    if !line.starts_with('\t') {
        return None;
    }
    let group = line.split_ascii_whitespace().next()?;
    if group.len() != 8 {
        return None;
    }
    let bytes = u32::from_str_radix(group, 16).ok()?.to_ne_bytes();
    let group = Ipv4Addr::from(bytes);
    group.is_multicast().then_some(group.into())
}

/// Parses a line of /proc/net/igmp6: number and name of a device, and the group's 16 bytes.
fn parse_igmp6(line: &str) -> Option<IpAddr> {
    let group = line.split_ascii_whitespace().nth(2)?;
    if group.len() != 32 {
        return None;
    }
    let group = Ipv6Addr::from(u128::from_str_radix(group, 16).ok()?);
    group.is_multicast().then_some(group.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn tables_of_the_kernel_are_parsed() {
        // The number of 239.81.0.1 on this machine.
        let number = u32::from_ne_bytes([239, 81, 0, 1]);
        let table = format!(
            "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n1\tlo        :     2      V3\n\t\t\t\t{number:08X}     1 0:00000000\t\t0\n"
        );
        let groups: Vec<IpAddr> = table.lines().filter_map(parse_igmp).collect();
        assert_eq!(groups, [address("239.81.0.1")]);
        let table = "1    lo              ff150000000000000000000000004056     1 0000000C 0\n\
                     2    eth0            ff020000000000000000000000000001     1 0000000C 0\n";
        let groups: Vec<IpAddr> = table.lines().filter_map(parse_igmp6).collect();
        assert_eq!(groups, [address("ff15::4056"), address("ff02::1")]);
    }

    #[test]
    fn only_watched_groups_are_returned() {
        let none = joined(std::process::id(), &BTreeSet::new());
        assert_eq!(none, Some(BTreeSet::new()));
        // This number is greater than any process ID.
        assert_eq!(joined(u32::MAX, &BTreeSet::new()), None);
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_or_skipped(line in "\t{0,4}[0-9A-Fa-f: ]{0,40}.{0,10}") {
            let multicast = |group: IpAddr| group.is_multicast();
            prop_assert!(parse_igmp(&line).is_none_or(multicast));
            prop_assert!(parse_igmp6(&line).is_none_or(multicast));
        }
    }
}
