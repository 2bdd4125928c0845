//! Tests of connections without a worker, over loopback sockets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Instant;

use session::ChannelId;

use super::stream::{CONTROL_ROOM_BYTES, SEND_QUEUE_BYTES};
use super::*;

const SESSION: SessionKey = SessionKey {
    index: 1,
    serial: 1,
};

const CHANNEL: ChannelId = ChannelId(3);

struct Bench {
    connections: Connections,
    runtime: Runtime,
    listener: TcpListener,
}

impl Bench {
    fn new() -> Bench {
        let waker = net::Waker::new().expect("linux has it");
        let (reports, _) = crossbeam_channel::unbounded();
        Bench {
            connections: Connections::new(None, 1, 1),
            runtime: Runtime::new(&waker, reports).expect("linux has it"),
            listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"),
        }
    }

    fn connect(&mut self, to: SocketAddr, others: Vec<SocketAddr>) -> usize {
        let request = ConnectRequest {
            owner: SESSION.channel(CHANNEL),
            population: Some(0),
            media: false,
            sources: &[],
            tracer: None,
            on_ring: false,
        };
        let (connections, runtime) = (&mut self.connections, &mut self.runtime);
        match connections.connect(runtime, &request, to, others, &mut None) {
            Ok(index) => index,
            Err(_) => panic!("there are ports"),
        }
    }

    /// Calls `ask` until it returns a value.
    fn wait<T>(&mut self, mut ask: impl FnMut(&mut Bench) -> Option<T>) -> T {
        let give_up = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(came) = ask(self) {
                return came;
            }
            assert!(Instant::now() < give_up, "nothing comes of it");
            std::thread::park_timeout(Duration::from_micros(100));
        }
    }

    fn attempt(&mut self, index: usize) -> Attempt {
        self.wait(|bench| bench.connections.finish_connecting(index, Time::ZERO))
    }

    /// Returns an established connection and its other end.
    fn open(&mut self) -> (usize, std::net::TcpStream) {
        let to = self.listener.local_addr().expect("it is bound");
        let index = self.connect(to, Vec::new());
        assert!(self.connections.is_beginning(index));
        let (theirs, _) = self.listener.accept().expect("it connects");
        match self.attempt(index) {
            Attempt::Open { owner, remote, .. } => {
                assert_eq!((owner, remote), (SESSION.channel(CHANNEL), to));
            }
            _ => panic!("it connects"),
        }
        assert!(self.connections.is_of(index, SESSION.channel(CHANNEL)));
        (index, theirs)
    }
}

#[test]
fn bytes_are_delivered_to_their_session_before_the_end() {
    let mut bench = Bench::new();
    let (index, mut theirs) = bench.open();
    theirs.write_all(b"hello").expect("there is room");
    drop(theirs);
    let Bench {
        connections,
        runtime,
        ..
    } = &mut bench;
    let action = connections.on_readable(index, runtime);
    assert!(matches!(action, ReadyAction::Read(WantedRead::All)));
    let reading = connections.begin_reading(index, WantedRead::All);
    let mut reading = reading.expect("something is wanted");
    let step = connections.read_once(&mut reading, runtime);
    match step {
        Step::Bytes { to, .. } => assert_eq!(to, SESSION.channel(CHANNEL)),
        _ => panic!("they are there"),
    }
    assert_eq!(reading.bytes(), b"hello");
    assert_eq!(reading.runs.last().map(|run| run.end), Some(5));
    assert!(!connections.goes_on(&mut reading, runtime), "it took all");
    let step = connections.read_once(&mut reading, runtime);
    assert!(matches!(step, Step::Ended));
    connections.end_reading(reading);
    assert!(connections.remove_broken(index, CloseReason::End).is_some());
    assert_eq!(connections.count(), 0);
}

#[test]
fn refused_attempt_returns_the_remaining_addresses() {
    let mut bench = Bench::new();
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let to = nobody.local_addr().expect("it is bound");
    drop(nobody);
    let index = bench.connect(to, vec![to]);
    match bench.attempt(index) {
        Attempt::Failed { error, others, .. } => {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            assert_eq!(others, [to]);
        }
        _ => panic!("nobody listens"),
    }
    assert_eq!(bench.connections.count(), 0);
}

#[test]
fn full_queue_refuses_control_and_drains_after_close() {
    let mut bench = Bench::new();
    let to = bench.listener.local_addr().expect("it is bound");
    let index = bench.connect(to, Vec::new());
    // The connection is not established yet, so nothing is sent.
    let all = SEND_QUEUE_BYTES + CONTROL_ROOM_BYTES;
    let sent = bench.connections.send_control(index, &vec![7; all]);
    assert!(sent.is_ok());
    let sent = bench.connections.send_control(index, b"x");
    assert_eq!(sent, Err(CloseReason::SendQueueFull));
    let (mut theirs, _) = bench.listener.accept().expect("it connects");
    assert!(matches!(bench.attempt(index), Attempt::Open { .. }));
    bench.connections.close(index, &mut bench.runtime);
    assert!(bench.connections.any_closes());
    let mut received = vec![0; all];
    let reader = std::thread::spawn(move || {
        theirs.read_exact(&mut received).expect("all of it comes");
        received
    });
    bench.wait(|bench| match bench.connections.flush(index) {
        Ok(stays_open) => (!stays_open).then_some(()),
        Err(_) => panic!("it is read"),
    });
    assert!(reader.join().expect("it read all") == vec![7; all]);
    assert!(!bench.connections.any_closes());
}

#[test]
fn connecting_and_closing_are_given_up_after_a_timeout() {
    let mut bench = Bench::new();
    let to = bench.listener.local_addr().expect("it is bound");
    let index = bench.connect(to, Vec::new());
    let error = bench.connections.give_up_connecting(index);
    assert_eq!(error, Some(ChannelError::TimedOut));
    let (index, _theirs) = bench.open();
    assert_eq!(
        bench.connections.give_up_connecting(index),
        None,
        "it stands"
    );
    let stream = bench.connections.get_mut(index).expect("it is open");
    stream.state = State::Closing { serial: 5 };
    assert!(bench.connections.is_closing(index, 5));
    bench.connections.give_up_closing(index, 4);
    assert_eq!(bench.connections.count(), 1, "that is another's");
    bench.connections.give_up_closing(index, 5);
    assert_eq!(bench.connections.count(), 0);
}
