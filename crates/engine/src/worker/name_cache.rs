//! Cache of resolved host names. Each name is resolved once per worker.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use session::{ChannelError, ReadTiming, SocketMedia, with_port};

use super::ids::ChannelKey;
use super::links::Mailbox;
use crate::messages::Command;
use crate::network::resolver::{Resolver, ResolverAnswer};

/// Maximum number of names in the cache.
const NAMES_MAX: usize = 10_000;

/// A channel that waits for the addresses of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingLookup {
    pub(super) owner: ChannelKey,
    pub(super) port: u16,
    pub(super) wanted: SocketKind,
}

/// Kind of socket to open after the name is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketKind {
    /// A TCP connection, with or without TLS.
    Connection,
    /// A UDP socket.
    Datagrams {
        /// Local port; 0 for any.
        local_port: u16,
        reading: ReadTiming,
        media: Option<SocketMedia>,
    },
}

enum CacheEntry {
    Asked(Vec<PendingLookup>),
    Known(Vec<SocketAddr>),
}

/// Names that are resolved or being resolved.
pub(super) struct NameCache {
    resolver: Resolver,
    mailbox: Mailbox,
    names: HashMap<String, CacheEntry>,
}

impl NameCache {
    /// Creates an empty cache. Answers of the resolver are sent to `mailbox`.
    pub(super) fn new(resolver: Resolver, mailbox: Mailbox) -> NameCache {
        NameCache {
            resolver,
            mailbox,
            names: HashMap::new(),
        }
    }

    /// Looks up a host name or address literal for a channel. Returns `None` if the name is being
    /// resolved: the answer arrives as [`Command::Resolved`]. Fails if the cache or the resolver's
    /// queue is full.
    pub(super) fn look_up(
        &mut self,
        host: String,
        asking: PendingLookup,
    ) -> Result<Option<Vec<SocketAddr>>, ChannelError> {
        // The resolver handles literals with a zone (`fe80::1%eth0`), because it knows the
        // interfaces.
        let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(literal) => literal.to_owned(),
            None => host,
        };
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(Some(vec![SocketAddr::new(address, asking.port)]));
        }
        match self.names.get_mut(&host) {
            Some(CacheEntry::Known(addresses)) => {
                return Ok(Some(all_with_port(addresses, asking.port)));
            }
            Some(CacheEntry::Asked(all)) => all.push(asking),
            None => {
                let mailbox = self.mailbox.clone();
                let answer = move |answer| mailbox.send(Command::Resolved(answer));
                if self.names.len() >= NAMES_MAX || !self.resolver.ask(host.clone(), answer) {
                    return Err(ChannelError::NameNotFound);
                }
                self.names.insert(host, CacheEntry::Asked(vec![asking]));
            }
        }
        Ok(None)
    }

    /// Processes an answer of the resolver. Returns the addresses for each channel that waits for
    /// them.
    pub(super) fn resolved(
        &mut self,
        answer: ResolverAnswer,
    ) -> Vec<(PendingLookup, Vec<SocketAddr>)> {
        let Some(CacheEntry::Asked(all)) = self.names.remove(&answer.host) else {
            return Vec::new();
        };
        let addresses = answer.addresses;
        let each = all.into_iter();
        let each = each.map(|asking| (asking, all_with_port(&addresses, asking.port)));
        let answers = each.collect();
        // Failed lookups are not cached: the next client asks the resolver again.
        if !addresses.is_empty() {
            self.names.insert(answer.host, CacheEntry::Known(addresses));
        }
        answers
    }
}

fn all_with_port(addresses: &[SocketAddr], port: u16) -> Vec<SocketAddr> {
    let addresses = addresses.iter();
    addresses.map(|&address| with_port(address, port)).collect()
}

#[cfg(test)]
mod tests {
    use session::ChannelId;

    use super::super::ids::SessionKey;
    use super::*;

    fn names() -> NameCache {
        let (mailbox, _) = Mailbox::new().expect("a waker");
        NameCache::new(Resolver::start().expect("a thread"), mailbox)
    }

    fn asking(channel: u32, port: u16) -> PendingLookup {
        PendingLookup {
            owner: SessionKey::NONE.channel(ChannelId(channel)),
            port,
            wanted: SocketKind::Connection,
        }
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn address_literal_needs_no_lookup() {
        let mut names = names();
        for (host, expected) in [("127.0.0.1", "127.0.0.1:7"), ("[::1]", "[::1]:7")] {
            let known = Ok(Some(vec![address(expected)]));
            assert_eq!(names.look_up(host.to_owned(), asking(0, 7)), known);
        }
    }

    #[test]
    fn concurrent_lookups_share_one_cached_answer() {
        let mut names = names();
        let host = || "a.example".to_owned();
        for (channel, port) in [(1, 80), (2, 81)] {
            assert_eq!(names.look_up(host(), asking(channel, port)), Ok(None));
        }
        let answer = |addresses| ResolverAnswer {
            host: host(),
            addresses,
        };
        let answers = names.resolved(answer(vec![address("10.0.0.1:0")]));
        let expected = [(1, 80, "10.0.0.1:80"), (2, 81, "10.0.0.1:81")];
        let expected =
            expected.map(|(channel, port, to)| (asking(channel, port), vec![address(to)]));
        assert_eq!(answers, expected);
        let known = Ok(Some(vec![address("10.0.0.1:82")]));
        assert_eq!(names.look_up(host(), asking(3, 82)), known);
        assert!(
            names.resolved(answer(Vec::new())).is_empty(),
            "nobody waits"
        );
    }

    #[test]
    fn failed_lookup_is_not_cached() {
        let mut names = names();
        let host = || "b.example".to_owned();
        for _ in 0..2 {
            assert_eq!(names.look_up(host(), asking(1, 80)), Ok(None));
            let answers = names.resolved(ResolverAnswer {
                host: host(),
                addresses: Vec::new(),
            });
            assert_eq!(answers, [(asking(1, 80), Vec::new())]);
        }
    }
}
