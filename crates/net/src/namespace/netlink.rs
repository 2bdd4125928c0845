//! As much of rtnetlink(7) as it takes to set up interfaces, addresses and routes.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::multicast::Interface;

/// How long the kernel may take for an answer, which it gives before a request returns.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Bytes of the header that each message begins with (`nlmsghdr`; netlink(7)).
const HEADER: usize = 16;

/// `VETH_INFO_PEER` (linux/veth.h).
const VETH_INFO_PEER: u16 = 1;

/// What a rule may have: the addresses that it is about, and its table; and that it leads to that
/// (linux/fib_rules.h).
const FRA_SRC: u16 = 2;
const FRA_TABLE: u16 = 15;
const FR_ACT_TO_TBL: u8 = 1;

/// The longest name of an interface.
const NAME_MAX: usize = libc::IFNAMSIZ - 1;

/// A way to the kernel's tables of the namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Of the calling thread's namespace.
    pub(super) fn open() -> io::Result<Netlink> {
        // The protocol 0 is NETLINK_ROUTE.
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, None)?;
        socket.set_read_timeout(Some(ANSWER_WITHIN))?;
        Ok(Netlink {
            socket,
            sequence: 0,
        })
    }

    /// Switches an interface on, and multicast with it.
    pub(super) fn set_up(&mut self, interface: &str) -> io::Result<()> {
        let flags = (libc::IFF_UP | libc::IFF_MULTICAST) as u32;
        let mut request = Request::new(libc::RTM_NEWLINK, 0);
        request.link(index(interface)?, flags);
        self.ask(request)
    }

    /// Makes a pair of interfaces: one here, the other in the namespace of that descriptor.
    pub(super) fn add_veth(
        &mut self,
        own: &str,
        peer: &str,
        space: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        request.link(0, 0);
        request.name(own)?;
        let info = request.open(libc::IFLA_LINKINFO);
        request.attribute(libc::IFLA_INFO_KIND, b"veth");
        let data = request.open(libc::IFLA_INFO_DATA);
        let other = request.open(VETH_INFO_PEER);
        request.link(0, 0);
        request.name(peer)?;
        request.attribute(libc::IFLA_NET_NS_FD, &space.as_raw_fd().to_ne_bytes());
        request.close(other);
        request.close(data);
        request.close(info);
        self.ask(request)
    }

    /// Gives an interface an address, which can be used at once.
    pub(super) fn add_address(
        &mut self,
        interface: &str,
        address: IpAddr,
        prefix: u8,
    ) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        // Nobody else can have it, so nobody has to be asked (RFC 4862, 5.4).
        let flags = match address {
            IpAddr::V4(_) => 0,
            IpAddr::V6(_) => libc::IFA_F_NODAD as u8,
        };
        // The family, the prefix, the flags, the scope and the interface (`ifaddrmsg`).
        request.put(&[family(address), prefix, flags, libc::RT_SCOPE_UNIVERSE]);
        request.put(&index(interface)?.to_ne_bytes());
        request.address(libc::IFA_LOCAL, address);
        request.address(libc::IFA_ADDRESS, address);
        self.ask(request)
    }

    /// Has what is sent to a network leave by that interface.
    pub(super) fn add_route(
        &mut self,
        network: IpAddr,
        prefix: u8,
        interface: &str,
    ) -> io::Result<()> {
        let kind = (libc::RT_TABLE_MAIN, libc::RT_SCOPE_LINK, libc::RTN_UNICAST);
        self.route(network, prefix, interface, kind)
    }

    /// Has all that is sent from an address leave by that interface, wherever it goes. `table` is a
    /// table of routes that nobody else has.
    pub(super) fn add_way_from(
        &mut self,
        source: IpAddr,
        interface: &str,
        table: u8,
    ) -> io::Result<()> {
        let (anywhere, bits) = match source {
            IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), 32),
            IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), 128),
        };
        let kind = (table, libc::RT_SCOPE_LINK, libc::RTN_UNICAST);
        self.route(anywhere, 0, interface, kind)?;
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut request = Request::new(libc::RTM_NEWRULE, flags);
        // The family, the prefixes of destination and source, the type of service, the table, two
        // bytes of nothing, what is done, and flags (`fib_rule_hdr`).
        request.put(&[family(source), 0, bits, 0, table, 0, 0, FR_ACT_TO_TBL]);
        request.put(&0u32.to_ne_bytes());
        request.address(FRA_SRC, source);
        request.attribute(FRA_TABLE, &u32::from(table).to_ne_bytes());
        self.ask(request)
    }

    /// The same of a network whose addresses are this machine's own.
    pub(super) fn add_local_route(
        &mut self,
        network: IpAddr,
        prefix: u8,
        interface: &str,
    ) -> io::Result<()> {
        let kind = (libc::RT_TABLE_LOCAL, libc::RT_SCOPE_HOST, libc::RTN_LOCAL);
        self.route(network, prefix, interface, kind)
    }

    fn route(
        &mut self,
        network: IpAddr,
        prefix: u8,
        interface: &str,
        (table, scope, kind): (u8, u8, u8),
    ) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        // The family, the prefixes of destination and source, the type of service, the table, who
        // made it, the scope, the kind, and flags (`rtmsg`).
        let made_by = libc::RTPROT_STATIC;
        request.put(&[family(network), prefix, 0, 0, table, made_by, scope, kind]);
        request.put(&0u32.to_ne_bytes());
        request.address(libc::RTA_DST, network);
        request.attribute(libc::RTA_OIF, &index(interface)?.to_ne_bytes());
        self.ask(request)
    }

    /// Sends a request, and hears what the kernel says of it.
    fn ask(&mut self, request: Request) -> io::Result<()> {
        self.sequence += 1;
        self.socket.write_all(&request.finish(self.sequence))?;
        let mut answer = [0; 8192];
        loop {
            let length = self.socket.read(&mut answer)?;
            if let Some(result) = outcome(&answer[..length], self.sequence) {
                return result;
            }
        }
    }
}

/// What messages of the kernel say of the request of that number; nothing where they are about
/// something else.
fn outcome(mut messages: &[u8], sequence: u32) -> Option<io::Result<()>> {
    while let Some((header, _)) = messages.split_first_chunk::<HEADER>() {
        let word = |at: usize| {
            let bytes = header[at..].first_chunk().expect("within the header");
            u32::from_ne_bytes(*bytes)
        };
        let length = usize::try_from(word(0)).ok()?;
        let kind = u32::from(u16::from_ne_bytes([header[4], header[5]]));
        if kind == libc::NLMSG_ERROR as u32 && word(8) == sequence {
            // The number of an error, negative; 0 is success.
            let error = messages.get(HEADER..).and_then(|rest| rest.first_chunk())?;
            return Some(match i32::from_ne_bytes(*error) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
            });
        }
        // One that is shorter than its header would be read over and over.
        let whole = length.max(HEADER).next_multiple_of(4);
        messages = messages.get(whole..)?;
    }
    None
}

/// Reads any bytes as what the kernel says of a request: first the request's number.
///
/// # Panics
/// If what the kernel says of another request is taken for an answer, or an answer for something
/// else.
#[cfg(any(test, fuzzing))]
pub fn read_any(bytes: &[u8]) {
    let Some((sequence, messages)) = bytes.split_first_chunk() else {
        return;
    };
    let sequence = u32::from_ne_bytes(*sequence);
    let found = outcome(messages, sequence);
    let named = |number: u32| {
        let number = number.to_ne_bytes();
        messages.windows(4).any(|bytes| bytes == number)
    };
    assert!(found.is_none() || named(sequence));
    if let Some(Err(error)) = &found {
        let error = error
            .raw_os_error()
            .expect("the kernel's errors have numbers");
        assert!(error != 0 && named(error.wrapping_neg() as u32));
    }
    // A message about something else before it changes nothing; one that is cut off hides it.
    let mut other = Request::new(libc::RTM_NEWLINK, 0);
    other.attribute(1, &messages[..messages.len().min(1000)]);
    let mut both = other.finish(sequence.wrapping_add(1));
    both.extend_from_slice(messages);
    let again = outcome(&both, sequence);
    let kind = |found: &Option<io::Result<()>>| {
        let result = found.as_ref()?.as_ref();
        Some(result.err().and_then(io::Error::raw_os_error))
    };
    assert_eq!(kind(&again), kind(&found));
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn index(interface: &str) -> io::Result<u32> {
    Interface::Named(interface.to_owned()).index()
}

/// A message to the kernel while it is written.
#[derive(Debug)]
struct Request(Vec<u8>);

/// Where an attribute begins that others are within.
struct Nest(usize);

impl Request {
    fn new(kind: u16, flags: i32) -> Request {
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
        let mut request = Request(vec![0; HEADER]);
        request.0[4..6].copy_from_slice(&kind.to_ne_bytes());
        request.0[6..8].copy_from_slice(&flags.to_ne_bytes());
        request
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The family, the kind of device, its number, and the flags that are switched on
    /// (`ifinfomsg`).
    fn link(&mut self, index: u32, flags: u32) {
        self.put(&[0; 4]);
        self.put(&index.to_ne_bytes());
        self.put(&flags.to_ne_bytes());
        self.put(&flags.to_ne_bytes());
    }

    /// Begins an attribute: its length, which is known at its end, and its kind.
    fn open(&mut self, kind: u16) -> Nest {
        let nest = Nest(self.0.len());
        self.put(&[0; 2]);
        self.put(&kind.to_ne_bytes());
        nest
    }

    fn close(&mut self, nest: Nest) {
        let length =
            u16::try_from(self.0.len() - nest.0).expect("requests have some hundred bytes");
        self.0[nest.0..nest.0 + 2].copy_from_slice(&length.to_ne_bytes());
        // Attributes begin at multiples of four bytes; what fills up is not in their length.
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let nest = self.open(kind);
        self.put(value);
        self.close(nest);
    }

    fn address(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.attribute(kind, &address.octets()),
            IpAddr::V6(address) => self.attribute(kind, &address.octets()),
        }
    }

    fn name(&mut self, name: &str) -> io::Result<()> {
        if name.is_empty() || name.len() > NAME_MAX || name.contains('\0') {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let name = [name.as_bytes(), b"\0"].concat();
        self.attribute(libc::IFLA_IFNAME, &name);
        Ok(())
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).expect("some hundred bytes");
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A message of the kernel about a request, with an error's number.
    fn message(kind: u16, sequence: u32, error: i32) -> Vec<u8> {
        let mut message = Request(vec![0; HEADER]);
        message.0[4..6].copy_from_slice(&kind.to_ne_bytes());
        message.put(&error.to_ne_bytes());
        // The header of the request that it is about.
        message.put(&[0; HEADER]);
        message.finish(sequence)
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_for_what_the_kernel_says(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            error in -200i32..200,
        ) {
            read_any(&bytes);
            let answer = message(libc::NLMSG_ERROR as u16, 7, error);
            read_any(&[&7u32.to_ne_bytes()[..], &answer, &bytes].concat());
        }
    }

    #[test]
    fn the_answer_to_a_request_is_found_among_others() {
        let error = libc::NLMSG_ERROR as u16;
        let other = message(libc::RTM_NEWLINK, 0, 0);
        let good = [other.clone(), message(error, 7, 0)].concat();
        assert!(matches!(outcome(&good, 7), Some(Ok(()))));
        assert!(outcome(&good, 8).is_none());
        let bad = [other, message(error, 6, 0), message(error, 7, -libc::EPERM)].concat();
        let denied = outcome(&bad, 7).expect("it is there").expect_err("denied");
        assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn what_is_cut_or_lies_about_its_length_ends() {
        let whole = message(libc::NLMSG_ERROR as u16, 7, 0);
        for end in 0..HEADER + 4 {
            assert!(outcome(&whole[..end], 7).is_none(), "{end}");
        }
        for length in [0u32, 1, 15, 17, u32::MAX] {
            let mut lies = message(libc::RTM_NEWLINK, 7, 0);
            lies[..4].copy_from_slice(&length.to_ne_bytes());
            assert!(outcome(&lies, 9).is_none(), "{length}");
        }
    }

    #[test]
    fn attributes_lie_within_each_other_and_are_filled_up() {
        let mut request = Request::new(libc::RTM_NEWLINK, 0);
        let outer = request.open(18);
        request.attribute(1, b"veth");
        request.attribute(2, b"x");
        request.close(outer);
        let written = request.finish(3);
        let attributes = &written[HEADER..];
        let number = |at: usize| u16::from_ne_bytes([attributes[at], attributes[at + 1]]);
        assert_eq!((number(0), number(2)), (20, 18));
        assert_eq!((number(4), number(6)), (8, 1));
        assert_eq!((number(12), number(14)), (5, 2));
        assert_eq!(attributes.len(), 20);
        assert_eq!(written[..4], 36u32.to_ne_bytes());
    }

    #[test]
    fn names_that_are_too_long_are_refused() {
        let mut request = Request::new(libc::RTM_NEWLINK, 0);
        assert!(request.name("fifteen-bytes-x").is_ok());
        for name in ["", "sixteen-bytes-xx", "a\0b"] {
            assert!(request.name(name).is_err(), "{name:?}");
        }
    }
}
