//! A minimal client of rtnetlink(7), for interfaces, addresses and routes.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::multicast::{Interface, unspecified};

/// Timeout for the kernel's answer, which it normally sends before the request returns.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Length of the header of each message (`nlmsghdr`; netlink(7)).
const HEADER_BYTES: usize = 16;

/// `VETH_INFO_PEER` (linux/veth.h).
const VETH_INFO_PEER: u16 = 1;

/// Attributes of a routing rule, source address and table, and the action of using that table
/// (linux/fib_rules.h).
const FRA_SRC: u16 = 2;
const FRA_TABLE: u16 = 15;
const FR_ACT_TO_TBL: u8 = 1;

/// Maximum length of an interface name.
const NAME_MAX: usize = libc::IFNAMSIZ - 1;

/// Connection to the kernel's network configuration of one namespace.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a connection for the calling thread's namespace.
    pub(super) fn open() -> io::Result<Netlink> {
        // Protocol 0 is NETLINK_ROUTE.
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, None)?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Netlink {
            socket,
            sequence: 0,
        })
    }

    /// Brings an interface up and enables multicast on it.
    pub(super) fn set_up(&mut self, interface: &str) -> io::Result<()> {
        let flags = (libc::IFF_UP | libc::IFF_MULTICAST) as u32;
        let mut request = Request::new(libc::RTM_NEWLINK, 0);
        request.link(index(interface)?, flags);
        self.execute(request)
    }

    /// Creates a pair of interfaces, one in this namespace and its peer in the namespace of the
    /// descriptor.
    pub(super) fn add_veth(
        &mut self,
        own: &str,
        peer: &str,
        namespace: BorrowedFd<'_>,
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
        request.attribute(libc::IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
        request.close(other);
        request.close(data);
        request.close(info);
        self.execute(request)
    }

    /// Adds an address to an interface. It is usable at once.
    pub(super) fn add_address(
        &mut self,
        interface: &str,
        address: IpAddr,
        prefix: u8,
    ) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        // No other interface can have the address, so duplicate address detection is skipped (RFC
        // 4862, 5.4).
        let flags = match address {
            IpAddr::V4(_) => 0,
            IpAddr::V6(_) => libc::IFA_F_NODAD as u8,
        };
        // `ifaddrmsg`: family, prefix length, flags, scope, interface.
        request.put(&[family(address), prefix, flags, libc::RT_SCOPE_UNIVERSE]);
        request.put(&index(interface)?.to_ne_bytes());
        request.address(libc::IFA_LOCAL, address);
        request.address(libc::IFA_ADDRESS, address);
        self.execute(request)
    }

    /// Routes traffic to a network through `interface`.
    pub(super) fn add_route(
        &mut self,
        network: IpAddr,
        prefix: u8,
        interface: &str,
    ) -> io::Result<()> {
        let kind = (libc::RT_TABLE_MAIN, libc::RT_SCOPE_LINK, libc::RTN_UNICAST);
        self.route(network, prefix, interface, kind)
    }

    /// Routes all traffic from `source` through `interface`, whatever its destination. `table` is a
    /// routing table that nothing else uses.
    pub(super) fn add_source_route(
        &mut self,
        source: IpAddr,
        interface: &str,
        table: u8,
    ) -> io::Result<()> {
        let bits = if source.is_ipv4() { 32 } else { 128 };
        let kind = (table, libc::RT_SCOPE_LINK, libc::RTN_UNICAST);
        self.route(unspecified(source), 0, interface, kind)?;
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut request = Request::new(libc::RTM_NEWRULE, flags);
        // `fib_rule_hdr`: family, prefix lengths of destination and source, type of service, table,
        // two reserved bytes, action, flags.
        request.put(&[family(source), 0, bits, 0, table, 0, 0, FR_ACT_TO_TBL]);
        request.put(&0u32.to_ne_bytes());
        request.address(FRA_SRC, source);
        request.attribute(FRA_TABLE, &u32::from(table).to_ne_bytes());
        self.execute(request)
    }

    /// Adds a route to a network whose addresses are local.
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
        // `rtmsg`: family, prefix lengths of destination and source, type of service, table,
        // origin, scope, type, flags.
        let origin = libc::RTPROT_STATIC;
        request.put(&[family(network), prefix, 0, 0, table, origin, scope, kind]);
        request.put(&0u32.to_ne_bytes());
        request.address(libc::RTA_DST, network);
        request.attribute(libc::RTA_OIF, &index(interface)?.to_ne_bytes());
        self.execute(request)
    }

    /// Sends a request and waits for the kernel's answer.
    fn execute(&mut self, request: Request) -> io::Result<()> {
        self.sequence += 1;
        self.socket.write_all(&request.finish(self.sequence))?;
        let mut answer = [0; 8192];
        loop {
            let length = self.socket.read(&mut answer)?;
            if let Some(result) = find_answer(&answer[..length], self.sequence) {
                return result;
            }
        }
    }
}

/// Finds the answer to request `sequence` in messages of the kernel. Returns `None` if they contain
/// none.
fn find_answer(mut messages: &[u8], sequence: u32) -> Option<io::Result<()>> {
    while let Some((header, _)) = messages.split_first_chunk::<HEADER_BYTES>() {
        let word = |at: usize| {
            let bytes = header[at..].first_chunk().expect("within the header");
            u32::from_ne_bytes(*bytes)
        };
        let length = usize::try_from(word(0)).ok()?;
        let kind = u32::from(u16::from_ne_bytes([header[4], header[5]]));
        if kind == libc::NLMSG_ERROR as u32 && word(8) == sequence {
            // A negative error number; 0 means success.
            let error = messages
                .get(HEADER_BYTES..)
                .and_then(|rest| rest.first_chunk())?;
            return Some(match i32::from_ne_bytes(*error) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
            });
        }
        // A length below that of the header would loop forever.
        let whole = length.max(HEADER_BYTES).next_multiple_of(4);
        messages = messages.get(whole..)?;
    }
    None
}

/// Parses arbitrary bytes as a sequence number and the kernel's messages about that request.
///
/// # Panics
/// If a message about another request is taken for the answer, or the answer for something else.
#[cfg(any(test, fuzzing))]
pub fn read_any(bytes: &[u8]) {
    let Some((sequence, messages)) = bytes.split_first_chunk() else {
        return;
    };
    let sequence = u32::from_ne_bytes(*sequence);
    let found = find_answer(messages, sequence);
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
    // A complete message about something else before the others must not change the result. A
    // truncated one would hide them.
    let mut other = Request::new(libc::RTM_NEWLINK, 0);
    other.attribute(1, &messages[..messages.len().min(1000)]);
    let mut both = other.finish(sequence.wrapping_add(1));
    both.extend_from_slice(messages);
    let again = find_answer(&both, sequence);
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

/// A message to the kernel, under construction.
#[derive(Debug)]
struct Request(Vec<u8>);

/// Start of an attribute whose length is not known yet.
struct OpenAttribute(usize);

impl Request {
    fn new(kind: u16, flags: i32) -> Request {
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
        let mut request = Request(vec![0; HEADER_BYTES]);
        request.0[4..6].copy_from_slice(&kind.to_ne_bytes());
        request.0[6..8].copy_from_slice(&flags.to_ne_bytes());
        request
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends `ifinfomsg`: family, device type, index, and the flags to switch on.
    fn link(&mut self, index: u32, flags: u32) {
        self.put(&[0; 4]);
        self.put(&index.to_ne_bytes());
        self.put(&flags.to_ne_bytes());
        self.put(&flags.to_ne_bytes());
    }

    /// Begins an attribute: its length, which [`Request::close`] fills in, and its kind.
    fn open(&mut self, kind: u16) -> OpenAttribute {
        let attribute = OpenAttribute(self.0.len());
        self.put(&[0; 2]);
        self.put(&kind.to_ne_bytes());
        attribute
    }

    fn close(&mut self, attribute: OpenAttribute) {
        let length =
            u16::try_from(self.0.len() - attribute.0).expect("requests have some hundred bytes");
        self.0[attribute.0..attribute.0 + 2].copy_from_slice(&length.to_ne_bytes());
        // Attributes are aligned to four bytes; their length excludes the padding.
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let attribute = self.open(kind);
        self.put(value);
        self.close(attribute);
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

    /// Returns a message of the kernel about a request, with an error number.
    fn message(kind: u16, sequence: u32, error: i32) -> Vec<u8> {
        let mut message = Request(vec![0; HEADER_BYTES]);
        message.0[4..6].copy_from_slice(&kind.to_ne_bytes());
        message.put(&error.to_ne_bytes());
        // Header of the request in question.
        message.put(&[0; HEADER_BYTES]);
        message.finish(sequence)
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_parsed_consistently(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            error in -200i32..200,
        ) {
            read_any(&bytes);
            let answer = message(libc::NLMSG_ERROR as u16, 7, error);
            read_any(&[&7u32.to_ne_bytes()[..], &answer, &bytes].concat());
        }
    }

    #[test]
    fn answer_is_found_among_other_messages() {
        let error = libc::NLMSG_ERROR as u16;
        let other = message(libc::RTM_NEWLINK, 0, 0);
        let good = [other.clone(), message(error, 7, 0)].concat();
        assert!(matches!(find_answer(&good, 7), Some(Ok(()))));
        assert!(find_answer(&good, 8).is_none());
        let bad = [other, message(error, 6, 0), message(error, 7, -libc::EPERM)].concat();
        let denied = find_answer(&bad, 7)
            .expect("it is there")
            .expect_err("denied");
        assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn truncated_messages_and_wrong_lengths_end_parsing() {
        let whole = message(libc::NLMSG_ERROR as u16, 7, 0);
        for end in 0..HEADER_BYTES + 4 {
            assert!(find_answer(&whole[..end], 7).is_none(), "{end}");
        }
        for length in [0u32, 1, 15, 17, u32::MAX] {
            let mut lies = message(libc::RTM_NEWLINK, 7, 0);
            lies[..4].copy_from_slice(&length.to_ne_bytes());
            assert!(find_answer(&lies, 9).is_none(), "{length}");
        }
    }

    #[test]
    fn attributes_nest_and_are_padded() {
        let mut request = Request::new(libc::RTM_NEWLINK, 0);
        let outer = request.open(18);
        request.attribute(1, b"veth");
        request.attribute(2, b"x");
        request.close(outer);
        let written = request.finish(3);
        let attributes = &written[HEADER_BYTES..];
        let number = |at: usize| u16::from_ne_bytes([attributes[at], attributes[at + 1]]);
        assert_eq!((number(0), number(2)), (20, 18));
        assert_eq!((number(4), number(6)), (8, 1));
        assert_eq!((number(12), number(14)), (5, 2));
        assert_eq!(attributes.len(), 20);
        assert_eq!(written[..4], 36u32.to_ne_bytes());
    }

    #[test]
    fn invalid_interface_names_are_rejected() {
        let mut request = Request::new(libc::RTM_NEWLINK, 0);
        assert!(request.name("fifteen-bytes-x").is_ok());
        for name in ["", "sixteen-bytes-xx", "a\0b"] {
            assert!(request.name(name).is_err(), "{name:?}");
        }
    }
}
