//! Subscribers that use all of str0m: the library handles ICE, DTLS, SRTP, RTCP and feedback, and
//! decrypts every packet. One thread, one socket per subscriber, `epoll`. The library hands out RTP
//! packets instead of frames (`set_rtp_mode`), which is its cheapest mode.
//!
//!   str0m-peer whep  URL  ADDRESS SUBSCRIBERS SECONDS   subscribe at a WHEP endpoint
//!   str0m-peer janus URL  ADDRESS SUBSCRIBERS SECONDS   subscribe to a mount point of Janus over
//!                                                       HTTP: `http://host:8080/janus/1`
//!
//! ADDRESS is the local address. The program exits after SECONDS and prints what all subscribers
//! received, as JSON.

mod signalling;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::error::Error;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};
use str0m::net::{Protocol, Receive};
use str0m::rtp::RtpPacket;
use str0m::{Candidate, Event, Input, Output, Rtc};

use signalling::Signalling;

pub type Failure = Box<dyn Error>;

/// Size of the receive buffer. Longer datagrams are truncated, but servers keep below the MTU.
const LONGEST: usize = 2_000;

/// Counts of one subscriber.
#[derive(Default)]
struct Counts {
    packets: u64,
    /// Lowest and highest extended sequence number.
    range: Option<(u64, u64)>,
    first: Option<Instant>,
}

impl Counts {
    fn packet(&mut self, packet: &RtpPacket, now: Instant) {
        let number = *packet.seq_no;
        let (lowest, highest) = self.range.unwrap_or((number, number));
        self.range = Some((lowest.min(number), highest.max(number)));
        self.first.get_or_insert(now);
        self.packets += 1;
    }

    fn expected(&self) -> u64 {
        self.range
            .map_or(0, |(lowest, highest)| highest - lowest + 1)
    }
}

struct Subscriber {
    rtc: Rtc,
    socket: UdpSocket,
    local: SocketAddr,
    /// Time of its newest entry in the timers.
    deadline: Option<Instant>,
    due: Instant,
    counts: Counts,
}

impl Subscriber {
    /// Handles all output of the library. Returns the time at which the library must be called
    /// again.
    fn drain(&mut self, now: Instant) -> Result<Instant, Failure> {
        loop {
            match self.rtc.poll_output()? {
                Output::Timeout(at) => return Ok(at),
                Output::Transmit(out) => {
                    match self.socket.send_to(&out.contents, out.destination) {
                        // A datagram for which the kernel has no room is lost, as it would be on a
                        // network. An address that cannot be reached is a candidate that does not
                        // work.
                        Ok(_) => {}
                        Err(error) if error.kind() != ErrorKind::InvalidInput => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Output::Event(Event::RtpPacket(packet)) => self.counts.packet(&packet, now),
                Output::Event(_) => {}
            }
        }
    }

    /// Reads the socket until it is empty.
    fn read(&mut self, buffer: &mut [u8]) -> Result<Instant, Failure> {
        let mut at = None;
        loop {
            let (length, source) = match self.socket.recv_from(buffer) {
                Ok(came) => came,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // ICMP error from a candidate at which nobody listens.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error.into()),
            };
            let now = Instant::now();
            let Ok(contents) = buffer[..length].try_into() else {
                continue;
            };
            let destination = self.local;
            let receive = Receive {
                proto: Protocol::Udp,
                source,
                destination,
                contents,
            };
            self.rtc.handle_input(Input::Receive(now, receive))?;
            at = Some(self.drain(now)?);
        }
        match at {
            Some(at) => Ok(at),
            None => self.drain(Instant::now()),
        }
    }
}

struct Subscribers {
    poll: Poll,
    events: Events,
    all: Vec<Subscriber>,
    /// Times at which each subscriber must be called again. Replaced entries are skipped.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    buffer: Vec<u8>,
}

impl Subscribers {
    fn add(&mut self, signalling: &Signalling, local: IpAddr) -> Result<(), Failure> {
        let due = Instant::now();
        let mut socket = UdpSocket::bind(SocketAddr::new(local, 0))?;
        let local = socket.local_addr()?;
        let mut rtc = Rtc::builder().set_rtp_mode(true).build(due);
        rtc.add_local_candidate(Candidate::host(local, "udp")?);
        signalling.connect(&mut rtc)?;
        let index = self.all.len();
        self.poll
            .registry()
            .register(&mut socket, Token(index), Interest::READABLE)?;
        let counts = Counts::default();
        self.all.push(Subscriber {
            rtc,
            socket,
            local,
            deadline: None,
            due,
            counts,
        });
        self.advance(index, Instant::now())
    }

    /// Passes the time to a subscriber.
    fn advance(&mut self, index: usize, now: Instant) -> Result<(), Failure> {
        let subscriber = &mut self.all[index];
        subscriber.rtc.handle_input(Input::Timeout(now))?;
        let at = subscriber.drain(now)?;
        self.ask_again(index, at);
        Ok(())
    }

    fn ask_again(&mut self, index: usize, at: Instant) {
        if self.all[index].deadline != Some(at) {
            self.all[index].deadline = Some(at);
            self.timers.push(Reverse((at, index)));
        }
    }

    /// Handles due timers and received datagrams. Waits for them until `end` at most.
    fn turn(&mut self, end: Instant) -> Result<(), Failure> {
        let now = Instant::now();
        while let Some(&Reverse((at, index))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            if self.all[index].deadline == Some(at) {
                self.all[index].deadline = None;
                self.advance(index, now)?;
            }
        }
        let until = self
            .timers
            .peek()
            .map_or(end, |&Reverse((at, _))| at.min(end));
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        match self.poll.poll(
            &mut events,
            Some(until.saturating_duration_since(Instant::now())),
        ) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => other?,
        }
        for event in &events {
            let index = event.token().0;
            let at = self.all[index].read(&mut self.buffer)?;
            self.ask_again(index, at);
        }
        self.events = events;
        Ok(())
    }

    /// Returns the totals of all subscribers: packets, lost packets, seconds since the first
    /// packet, and the delay of the first packet.
    fn report(&self, now: Instant) -> serde_json::Value {
        let delays: Vec<f64> = self
            .all
            .iter()
            .filter_map(|one| Some(one.counts.first?.duration_since(one.due).as_secs_f64()))
            .collect();
        let firsts = self.all.iter().filter_map(|one| one.counts.first);
        let received: u64 = self.all.iter().map(|one| one.counts.packets).sum();
        let expected: u64 = self.all.iter().map(|one| one.counts.expected()).sum();
        serde_json::json!({
            "subscribers": self.all.len(),
            "received": received,
            "lost": expected.saturating_sub(received),
            "playing": firsts.clone().count(),
            "playing_s": firsts.map(|first| (now - first).as_secs_f64()).sum::<f64>(),
            "startup_delay": {
                "mean": delays.iter().sum::<f64>() / delays.len().max(1) as f64,
                "max": delays.iter().copied().fold(0.0, f64::max),
            },
        })
    }
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, url, local, count, seconds] = words.as_slice() else {
        return Err("str0m-peer whep|janus URL ADDRESS SUBSCRIBERS SECONDS".into());
    };
    let end = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
    let (signalling, local) = (Signalling::new(kind, url)?, local.parse()?);
    str0m::crypto::from_feature_flags().install_process_default();
    let mut subscribers = Subscribers {
        poll: Poll::new()?,
        events: Events::with_capacity(1_024),
        all: Vec::new(),
        timers: BinaryHeap::new(),
        buffer: vec![0; LONGEST],
    };
    for _ in 0..count.parse::<usize>()? {
        subscribers.add(&signalling, local)?;
        // Existing subscribers continue meanwhile.
        subscribers.turn(Instant::now())?;
    }
    while Instant::now() < end {
        subscribers.turn(end)?;
    }
    println!("{}", subscribers.report(Instant::now()));
    Ok(())
}
