//! Where connections without media come from: source addresses in turn when one has no ports left,
//! and Unix sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use mio::net::TcpStream;
use mio::{Interest, Token};
use protocol::session::ChannelId;

use super::Worker;
use super::outputs::Pending;
use super::sessions::{Channel, SessionKey};
use super::sockets::{Socket, channel_error};
use super::stream::{State, Stream};

/// How many addresses connections to 127.0.0.0/8 come from, where none are named: 127.0.0.1,
/// 127.0.0.2 and so on.
const LOOPBACK_SOURCES: usize = 64;

/// How many connections come from an address before it is the next one's turn.
const PORTS_A_TURN: usize = 7_000;

/// The ends of a Unix socket, which have no addresses.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

impl Worker {
    /// Whether a session's client sends or receives media. A server's side counts as one that does.
    pub(super) fn has_media(&self, key: SessionKey) -> bool {
        let population = self.sessions.get(key.place).map(|slot| slot.population);
        let plan = population.and_then(|population| self.populations[population].plan.as_ref());
        plan.is_none_or(|plan| plan.media)
    }

    /// Begins to connect, from the address whose turn it is: when that has no port left, from the
    /// next.
    pub(super) fn connect_from(
        &mut self,
        key: SessionKey,
        to: SocketAddr,
    ) -> io::Result<TcpStream> {
        let Some(population) = self.sessions.get(key.place).map(|slot| slot.population) else {
            return TcpStream::connect(to);
        };
        // Long before none is left the kernel takes milliseconds to find one: so an address is used
        // for a quarter of its ports, by all workers together.
        let turn = PORTS_A_TURN / (self.others.len() + 1);
        let own = &mut self.populations[population];
        let named = own.plan.as_ref().map_or(&[][..], |plan| &plan.sources);
        let local: Vec<IpAddr> = named
            .iter()
            .copied()
            .filter(|source| source.is_ipv4() == to.is_ipv4())
            .collect();
        let count = match (local.len(), to.ip()) {
            (0, IpAddr::V4(address)) if address.is_loopback() => LOOPBACK_SOURCES,
            (0, _) => 1,
            (named, _) => named,
        };
        if own.from_source >= turn {
            own.source = (own.source + 1) % count;
            own.from_source = 0;
        }
        let mut error = io::ErrorKind::AddrNotAvailable.into();
        for tried in 0..count {
            let at = (own.source + tried) % count;
            let source = match local.get(at) {
                Some(source) => Some(*source),
                None if at == 0 => None,
                None => Some(IpAddr::V4(Ipv4Addr::from(0x7f00_0001 + at as u32))),
            };
            match net::connect::connect_from(source, to) {
                Ok(socket) => {
                    own.from_source = if at == own.source {
                        own.from_source + 1
                    } else {
                        1
                    };
                    own.source = at;
                    return Ok(TcpStream::from_std(socket));
                }
                Err(refused)
                    if matches!(
                        refused.kind(),
                        io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse
                    ) =>
                {
                    error = refused;
                }
                Err(other) => return Err(other),
            }
        }
        let ports = net::connect::ephemeral_ports();
        let ports = ports.map_or_else(
            || "its ports".to_owned(),
            |ports| {
                format!(
                    "the {} ports {} to {} (net.ipv4.ip_local_port_range)",
                    ports.clone().count(),
                    ports.start(),
                    ports.end()
                )
            },
        );
        let from = match count {
            1 => "the one source address".to_owned(),
            count => format!("{count} source addresses"),
        };
        let help = match named.is_empty() {
            true => "name addresses of this machine in `source_addresses`",
            false => "name more in `source_addresses`",
        };
        let text = format!(
            "no port is left for another connection to {to}: {from} have used {ports} each; {help}, or listen on more ports"
        );
        self.note("no_ports", Some(population), text);
        Err(error)
    }

    /// Connects to a Unix socket.
    pub(super) fn connect_unix(&mut self, key: SessionKey, channel: ChannelId, path: &Path) {
        match self.begin_unix(key, channel, path) {
            Ok(()) => {
                let opened = Pending::Opened {
                    channel,
                    local: NOWHERE,
                    remote: None,
                };
                self.pending.push_back((key, opened));
            }
            Err(error) => self.fail_to_open(key, channel, channel_error(&error)),
        }
    }

    fn begin_unix(&mut self, key: SessionKey, channel: ChannelId, path: &Path) -> io::Result<()> {
        let mut socket = TcpStream::from_std(net::connect::connect_unix(path)?);
        let entry = self.sockets.vacant_entry();
        let place = entry.key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll
            .registry()
            .register(&mut socket, Token(place), interest)?;
        let mut stream = Stream::new(
            socket,
            State::Open {
                session: key,
                channel,
            },
        );
        stream.unix = true;
        entry.insert(Socket::Stream(stream));
        if let Some(slot) = self.slot(key) {
            slot.set_channel(channel, Channel::Stream(place));
        }
        Ok(())
    }
}
