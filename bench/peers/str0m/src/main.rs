//! Subscribers on the whole of str0m: ICE, DTLS, SRTP, RTCP and feedback are the library's, and
//! every packet is decrypted. One thread, a socket for each subscriber, `epoll`; the library gives
//! RTP packets, not frames (`set_rtp_mode`), which is its cheapest way.
//!
//!   str0m-peer whep  URL  ADDRESS SUBSCRIBERS SECONDS   of a WHEP endpoint
//!   str0m-peer janus URL  ADDRESS SUBSCRIBERS SECONDS   of a mount point of Janus, by its HTTP
//!                                                       interface: `http://host:8080/janus/1`
//!
//! ADDRESS is the local one. It ends after SECONDS and says in JSON what all subscribers received.

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

/// A datagram that is longer is cut. Servers keep below the MTU.
const LONGEST: usize = 2_000;

/// What one subscriber received.
#[derive(Default)]
struct Counts {
    packets: u64,
    /// The lowest and the highest sequence number, extended.
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
    /// What its newest entry among the timers has.
    deadline: Option<Instant>,
    due: Instant,
    counts: Counts,
}

impl Subscriber {
    /// Sends and takes all that the library has to say; gives when it wants to be asked again.
    fn drain(&mut self, now: Instant) -> Result<Instant, Failure> {
        loop {
            match self.rtc.poll_output()? {
                Output::Timeout(at) => return Ok(at),
                Output::Transmit(out) => {
                    match self.socket.send_to(&out.contents, out.destination) {
                        // What the kernel has no room for is lost, as it would be on a network. An
                        // address that cannot be reached is a candidate that does not work.
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

    /// Reads its socket until that is empty.
    fn read(&mut self, buffer: &mut [u8]) -> Result<Instant, Failure> {
        let mut at = None;
        loop {
            let (length, source) = match self.socket.recv_from(buffer) {
                Ok(came) => came,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // ICMP's word of a candidate that nobody listens at.
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
    /// When each is to be asked again. Entries that another one replaced are skipped.
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

    /// Tells a subscriber the time.
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

    /// Handles what came and what is due; waits for it until `end` at most.
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

    /// What all of them had: packets, those that are missing, seconds from the first packet on, and
    /// how long the first packet took.
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
        // Those that are there already go on meanwhile.
        subscribers.turn(Instant::now())?;
    }
    while Instant::now() < end {
        subscribers.turn(end)?;
    }
    println!("{}", subscribers.report(Instant::now()));
    Ok(())
}
