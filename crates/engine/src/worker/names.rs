//! The addresses behind the names that sessions connect to: each is looked up once.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use protocol::session::{ChannelId, Media, Reading};

use super::keys::SessionKey;
use super::links::Mailbox;
use crate::messages::Command;
use crate::resolver::{Addresses, Answer, Resolver};

/// How many names are known at most.
const NAMES: usize = 10_000;

/// A channel that wants to be connected to a port of a named host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asking {
    pub(super) session: SessionKey,
    pub(super) channel: ChannelId,
    pub(super) port: u16,
    pub(super) wanted: Wanted,
}

/// What is to be opened to a named host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A connection, with TLS or without.
    Connection,
    /// A UDP socket.
    Datagrams {
        /// The local port; 0 for any.
        local_port: u16,
        reading: Reading,
        media: Option<Media>,
    },
}

/// What comes of asking for a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LookUp {
    /// Its addresses; none where it has none.
    Known(Vec<SocketAddr>),
    /// The answer comes as a [`Command::Resolved`].
    Asked,
    /// Nobody can be asked.
    Refused,
}

enum Name {
    Asked(Vec<Asking>),
    Known(Addresses),
}

/// The names that a worker knows or has asked for.
pub(super) struct Names {
    resolver: Resolver,
    mailbox: Mailbox,
    names: HashMap<String, Name>,
}

impl Names {
    /// No name yet. Answers come into that mailbox.
    pub(super) fn new(resolver: Resolver, mailbox: Mailbox) -> Names {
        Names {
            resolver,
            mailbox,
            names: HashMap::new(),
        }
    }

    /// Looks a name up, which may be an address, for a channel.
    pub(super) fn look_up(&mut self, host: String, asking: Asking) -> LookUp {
        // A literal with a zone (`fe80::1%eth0`) goes to the resolver, which knows the interfaces.
        let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(literal) => literal.to_owned(),
            None => host,
        };
        if let Ok(address) = host.parse::<IpAddr>() {
            return LookUp::Known(vec![SocketAddr::new(address, asking.port)]);
        }
        match self.names.get_mut(&host) {
            Some(Name::Known(addresses)) => LookUp::Known(with_port(addresses, asking.port)),
            Some(Name::Asked(all)) => {
                all.push(asking);
                LookUp::Asked
            }
            None => {
                let mailbox = self.mailbox.clone();
                let answer = move |answer| mailbox.tell(Command::Resolved(answer));
                if self.names.len() >= NAMES || !self.resolver.ask(host.clone(), answer) {
                    return LookUp::Refused;
                }
                self.names.insert(host, Name::Asked(vec![asking]));
                LookUp::Asked
            }
        }
    }

    /// Takes an answer in; gives the addresses for each channel that waits for it.
    pub(super) fn answered(&mut self, answer: Answer) -> Vec<(Asking, Vec<SocketAddr>)> {
        let Some(Name::Asked(all)) = self.names.remove(&answer.host) else {
            return Vec::new();
        };
        let addresses: Addresses = answer.addresses.into();
        let each = all.into_iter();
        let each = each.map(|asking| (asking, with_port(&addresses, asking.port)));
        let told = each.collect();
        // That nothing is known of a name is not kept: the next client asks again.
        if !addresses.is_empty() {
            self.names.insert(answer.host, Name::Known(addresses));
        }
        told
    }
}

fn with_port(addresses: &[SocketAddr], port: u16) -> Vec<SocketAddr> {
    addresses
        .iter()
        .map(|&address| {
            // Changed in place, because an IPv6 address may have a zone.
            let mut address = address;
            address.set_port(port);
            address
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let (mailbox, _) = Mailbox::new().expect("a waker");
        Names::new(Resolver::start().expect("a thread"), mailbox)
    }

    fn asking(channel: u32, port: u16) -> Asking {
        Asking {
            session: SessionKey::NOBODY,
            channel: ChannelId(channel),
            port,
            wanted: Wanted::Connection,
        }
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_needs_no_answer() {
        let mut names = names();
        for (host, expected) in [("127.0.0.1", "127.0.0.1:7"), ("[::1]", "[::1]:7")] {
            let known = LookUp::Known(vec![address(expected)]);
            assert_eq!(names.look_up(host.to_owned(), asking(0, 7)), known);
        }
    }

    #[test]
    fn all_who_ask_for_a_name_get_one_answer_and_it_is_kept() {
        let mut names = names();
        let host = || "a.example".to_owned();
        for (channel, port) in [(1, 80), (2, 81)] {
            assert_eq!(names.look_up(host(), asking(channel, port)), LookUp::Asked);
        }
        let answer = |addresses| Answer {
            host: host(),
            addresses,
        };
        let told = names.answered(answer(vec![address("10.0.0.1:0")]));
        let expected = [(1, 80, "10.0.0.1:80"), (2, 81, "10.0.0.1:81")];
        let expected =
            expected.map(|(channel, port, to)| (asking(channel, port), vec![address(to)]));
        assert_eq!(told, expected);
        let known = LookUp::Known(vec![address("10.0.0.1:82")]);
        assert_eq!(names.look_up(host(), asking(3, 82)), known);
        assert!(
            names.answered(answer(Vec::new())).is_empty(),
            "nobody waits"
        );
    }

    #[test]
    fn a_name_without_addresses_is_asked_for_again() {
        let mut names = names();
        let host = || "b.example".to_owned();
        for _ in 0..2 {
            assert_eq!(names.look_up(host(), asking(1, 80)), LookUp::Asked);
            let told = names.answered(Answer {
                host: host(),
                addresses: Vec::new(),
            });
            assert_eq!(told, [(asking(1, 80), Vec::new())]);
        }
    }
}
