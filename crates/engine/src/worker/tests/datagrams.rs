//! Tests of single UDP sockets, beyond the conformance cases.

use super::conformance::one_client;
use super::*;
use crate::trace::tests::sent_datagrams;

#[test]
fn datagrams_refused_by_the_kernel_are_not_traced() {
    let receiver = UdpSocket::bind((LOCAL, 0)).expect("a free port");
    let to = receiver.local_addr().ok();
    let client: MakeClient = Arc::new(move |_, _| {
        Ok(toy(move |cx, input, _| match input {
            Input::Start { .. } => cx.out.push_back(Output::Open {
                channel: CHANNEL,
                open: Open::Udp {
                    local: SocketAddr::new(LOCAL, 0),
                    peer: None,
                    reading: ReadTiming::AtOnce,
                    media: None,
                },
            }),
            Input::Opened { .. } => {
                // Broadcast without SO_BROADCAST is refused.
                let refused = "127.255.255.255:9".parse().ok();
                for (to, bytes) in [(to, b"one"), (refused, b"two"), (to, b"six")] {
                    cx.transmit(CHANNEL, to, |out| out.extend_from_slice(bytes));
                }
                cx.out.push_back(Output::Ended(Outcome::Completed));
            }
            _ => {}
        }))
    });
    let sent = sent_datagrams(|tracer| {
        let mut duty = one_client(client, Leave::AtEnd);
        let plan = duty.populations[0].clients.as_mut().expect("it is one");
        plan.traced.insert(0, tracer);
        let seen = play(vec![duty], |_, _, _| {});
        assert_eq!(seen.tester(tester::SENDS_FAILED), 1);
    });
    assert_eq!(sent, [b"one", b"six"]);
}

#[test]
fn host_name_is_resolved_for_a_udp_socket() {
    let server = UdpSocket::bind((LOCAL, 0)).expect("a free port");
    let port = server.local_addr().expect("bound").port();
    let open = move |host: &'static str| {
        toy(move |cx, input, _| match input {
            Input::Start { .. } => cx.out.push_back(Output::Open {
                channel: CHANNEL,
                open: Open::UdpToHost {
                    host: host.to_owned(),
                    port,
                    local_port: 0,
                    timeout: PATIENCE,
                    reading: ReadTiming::AtOnce,
                    media: None,
                },
            }),
            Input::OpenFailed { error, .. } => cx.out.push_back(failed("open", error)),
            Input::Opened { remote, .. } => {
                assert_eq!(remote, Some(SocketAddr::new(LOCAL, port)));
                cx.transmit(CHANNEL, None, |out| out.extend_from_slice(b"hello"));
                cx.out.push_back(Output::Ended(Outcome::Completed));
            }
            _ => {}
        })
    };
    let seen = run_one(move || open("localhost"));
    assert_eq!(seen.outcomes(), [&Outcome::Completed]);
    let mut bytes = [0; 9];
    server
        .set_read_timeout(Some(PATIENCE))
        .expect("linux takes it");
    let (length, _) = server.recv_from(&mut bytes).expect("it came");
    assert_eq!(&bytes[..length], b"hello");
    let seen = run_one(move || open(""));
    assert_eq!(detail(&seen), format!("{:?}", ChannelError::NameNotFound));
}

#[test]
fn datagrams_are_delivered_before_the_deadline() {
    for reading in [
        ReadTiming::Soon(Duration::from_millis(1)),
        ReadTiming::AtDeadlines,
    ] {
        let seen = run_one(move || {
            let mut received = 0;
            toy(move |cx, input, deadline| match input {
                Input::Start { .. } => cx.out.push_back(Output::Open {
                    channel: CHANNEL,
                    open: Open::Udp {
                        local: SocketAddr::new(LOCAL, 0),
                        peer: None,
                        reading: ReadTiming::AtOnce,
                        media: None,
                    },
                }),
                Input::Opened { local, .. } => {
                    // From one mode to the other and back.
                    for reading in [reading, ReadTiming::AtOnce, ReadTiming::Late, reading] {
                        cx.out.push_back(Output::SetReadTiming {
                            channel: CHANNEL,
                            reading,
                        });
                    }
                    for bytes in [b"one", b"two"] {
                        cx.transmit(CHANNEL, Some(local), |out| out.extend_from_slice(bytes));
                    }
                    *deadline = Some(cx.now + Duration::from_millis(20));
                }
                Input::Datagrams { datagrams, .. } => received += datagrams.len(),
                Input::Deadline => {
                    assert_eq!(received, 2);
                    *deadline = None;
                    cx.out.push_back(Output::Ended(Outcome::Completed));
                }
                _ => {}
            })
        });
        assert_eq!(seen.outcomes(), [&Outcome::Completed], "{reading:?}");
    }
}

#[test]
fn datagrams_dropped_by_a_full_buffer_are_counted() {
    const SENT: u64 = 500;
    let received = Arc::new(Mutex::new(0u64));
    let log = received.clone();
    let client: MakeClient = Arc::new(move |_, _| {
        let log = log.clone();
        Ok(toy(move |cx, input, deadline| match input {
            Input::Start { .. } => cx.out.push_back(pair(None, false)),
            // While this handler runs, the worker reads nothing.
            Input::Opened { local, .. } => {
                let sender = UdpSocket::bind((LOCAL, 0)).expect("a port");
                for _ in 0..SENT {
                    sender
                        .send_to(&[0; 1000], local)
                        .expect("loopback takes it");
                }
                *deadline = Some(cx.now + Duration::from_millis(300));
            }
            Input::Datagram { .. } => *log.lock().expect("nobody panics with it") += 1,
            Input::Deadline => cx.out.push_back(Output::Ended(Outcome::Completed)),
            _ => {}
        }))
    });
    let tiny = |ports: PortRange| ports.with_receive_buffer(8192);
    let seen = run_on(1, &["toy"], tiny, client, |_, _, _| {});
    let received = *received.lock().expect("over");
    assert!(received > 0 && received < SENT, "{received}");
    assert_eq!(
        seen.tester(tester::SOCKET_OVERFLOW),
        (SENT - received) as i64
    );
}
