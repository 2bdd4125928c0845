//! Single UDP sockets, where a worker does more than every carrier does.

use super::conformance::one_client;
use super::*;
use crate::trace::tests::sent_datagrams;

#[test]
fn what_the_kernel_does_not_take_is_not_in_a_trace() {
    let receiver = UdpSocket::bind((LOCAL, 0)).expect("a free port");
    let to = receiver.local_addr().ok();
    let client: MakeClient = Arc::new(move |_, _| {
        Ok(toy(move |cx, input, _| match input {
            Input::Start { .. } => cx.out.push_back(Output::Open {
                channel: CHANNEL,
                open: Open::Udp {
                    local: SocketAddr::new(LOCAL, 0),
                    peer: None,
                    reading: Reading::AtOnce,
                    media: None,
                },
            }),
            Input::Opened { .. } => {
                // Broadcast that was not asked for is refused.
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
