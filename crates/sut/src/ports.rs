//! Owners of ports. Without this check, a left-over server can serve the clients while the server
//! under test is idle.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use kit::descriptor::Transport;

use crate::proc;

/// Owner of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortOwner {
    /// Only processes of the server under test.
    Ours,
    /// Another process, even if the server owns the port as well.
    Other {
        /// Process ID.
        pid: u32,
        name: String,
    },
    /// No process.
    Nobody,
    /// A process whose descriptors this user may not see.
    Unknown,
}

/// One row of /proc/net/{tcp,udp}{,6}.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) port: u16,
    pub(crate) listening: bool,
    pub(crate) inode: u64,
    /// Datagrams that did not fit into the socket's buffer, or that its filter dropped. UDP only.
    pub(crate) drops: u64,
}

/// State 0A of /proc/net/tcp: TCP_LISTEN.
const LISTEN: &str = "0A";

/// Parses one row; `None` for the heading.
pub(crate) fn parse_row(line: &str) -> Option<Row> {
    // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ref pointer drops
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?;
    let (_, port) = local.rsplit_once(':')?;
    Some(Row {
        port: u16::from_str_radix(port, 16).ok()?,
        listening: state == LISTEN,
        inode: inode.parse().ok()?,
        drops: fields
            .nth(2)
            .and_then(|drops| drops.parse().ok())
            .unwrap_or(0),
    })
}

/// Returns the rows of one transport, as seen by the process `pid`, which may be in another network
/// namespace, or else by this thread.
pub(crate) fn rows(transport: Transport, pid: Option<u32>) -> Vec<Row> {
    let names = match transport {
        Transport::Tcp => ["tcp", "tcp6"],
        Transport::Udp => ["udp", "udp6"],
    };
    let own = PathBuf::from("/proc/thread-self/net");
    let folder = pid.map_or(own.clone(), |pid| PathBuf::from(format!("/proc/{pid}/net")));
    let mut rows = Vec::new();
    for name in names {
        let text =
            fs::read_to_string(folder.join(name)).or_else(|_| fs::read_to_string(own.join(name)));
        rows.extend(text.unwrap_or_default().lines().filter_map(parse_row));
    }
    rows
}

/// Range of ports from which the kernel chooses one for a socket that is not bound (ip(7)).
const CHOSEN_PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Returns `true` if the kernel may choose this port for a socket that is not bound.
pub(crate) fn may_be_chosen(port: u16) -> bool {
    let range = fs::read_to_string(CHOSEN_PORTS).unwrap_or_default();
    is_within(port, &range).unwrap_or(true)
}

/// Parses a range of ports: the first and the last one.
fn is_within(port: u16, range: &str) -> Option<bool> {
    let mut ends = range.split_ascii_whitespace().map(str::parse::<u16>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    Some((first..=last).contains(&port))
}

/// Returns the owner of a port. `tree` are the processes of the server under test.
pub(crate) fn owner(port: u16, transport: Transport, tree: &[u32]) -> PortOwner {
    let mut inodes: HashSet<u64> = rows(transport, tree.first().copied())
        .into_iter()
        .filter(|row| row.port == port && (row.listening || transport == Transport::Udp))
        .map(|row| row.inode)
        .collect();
    if inodes.is_empty() {
        return PortOwner::Nobody;
    }
    // A socket that the tree shares with others, such as an inherited one, belongs to the tree.
    for &pid in tree {
        for inode in proc::sockets(pid).unwrap_or_default() {
            inodes.remove(&inode);
        }
    }
    // Seldom needed: nearly all processes have a single descriptor table.
    if !inodes.is_empty() {
        for &pid in tree {
            let held = proc::sockets_of_threads(pid);
            inodes.retain(|inode| !held.contains(inode));
        }
    }
    if inodes.is_empty() {
        return PortOwner::Ours;
    }
    for pid in proc::processes() {
        if proc::sockets(pid).is_some_and(|sockets| !sockets.is_disjoint(&inodes)) {
            return PortOwner::Other {
                pid,
                name: proc::name(pid),
            };
        }
    }
    PortOwner::Unknown
}

/// Returns the owner of a port, for a tree that may grow meanwhile: the process that owns the port
/// may have been started by the tree a moment ago.
pub(crate) fn owner_of(port: u16, transport: Transport, tree: impl Fn() -> Vec<u32>) -> PortOwner {
    let mut found = owner(port, transport, &tree());
    for _ in 0..3 {
        let PortOwner::Other { pid, .. } = found else {
            break;
        };
        let tree = tree();
        if !tree.contains(&pid) {
            break;
        }
        found = owner(port, transport, &tree);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn range_of_chosen_ports_includes_both_ends() {
        let is_in = |port| is_within(port, "32768\t60999\n");
        assert_eq!([8554, 32_767, 61_000].map(is_in), [Some(false); 3]);
        assert_eq!([32_768, 60_999].map(is_in), [Some(true); 2]);
        assert_eq!(is_within(1, ""), None);
    }

    #[test]
    fn reads_rows() {
        let tcp = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 314159 1 0000000000000000 100 0 0 10 0";
        let row = parse_row(tcp).unwrap();
        assert_eq!((row.port, row.listening, row.inode), (8080, true, 314_159));
        let udp = " 1534: 00000000000000000000000001000000:14E9 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000   104        0 2718 2 0000000000000000 42";
        let row = parse_row(udp).unwrap();
        assert_eq!(
            row,
            Row {
                port: 5353,
                listening: false,
                inode: 2718,
                drops: 42
            }
        );
        assert_eq!(
            parse_row(
                "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
            ),
            None
        );
        for end in 0..40 {
            assert_eq!(parse_row(&tcp[..end]), None);
        }
    }

    #[test]
    fn own_sockets_are_found() {
        let own = std::process::id();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("[::1]:0").unwrap();
        let tcp_port = tcp.local_addr().unwrap().port();
        let udp_port = udp.local_addr().unwrap().port();
        assert_eq!(owner(tcp_port, Transport::Tcp, &[own]), PortOwner::Ours);
        assert_eq!(owner(udp_port, Transport::Udp, &[own]), PortOwner::Ours);
        let other = PortOwner::Other {
            pid: own,
            name: proc::name(own),
        };
        assert_eq!(owner(tcp_port, Transport::Tcp, &[]), other);
    }

    #[test]
    fn free_port_has_no_owner() {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        assert_eq!(owner(port, Transport::Tcp, &[]), PortOwner::Nobody);
    }
}
