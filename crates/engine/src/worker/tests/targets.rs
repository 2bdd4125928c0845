//! Targets that the owner of a machine does not permit.

use super::*;
use crate::network::target_filter::TargetPolicy;

/// Permits nothing but one address.
struct Only(IpAddr);

impl TargetPolicy for Only {
    fn permits_name(&self, _: &str) -> bool {
        false
    }

    fn permits_address(&self, address: IpAddr) -> bool {
        address == self.0
    }
}

#[test]
fn nothing_is_sent_to_targets_that_are_not_permitted() {
    let listener = TcpListener::bind((LOCAL, 0)).expect("a port");
    listener.set_nonblocking(true).expect("it can");
    let socket = UdpSocket::bind((LOCAL, 0)).expect("a port");
    socket.set_nonblocking(true).expect("it can");
    let tcp_to = listener.local_addr().expect("it is bound");
    let udp_to = socket.local_addr().expect("it is bound");
    let client: MakeClient = Arc::new(move |_, _| {
        Ok(toy(move |cx, input, _| match input {
            Input::Start { .. } => {
                cx.out.push_back(tcp(tcp_to, Duration::from_secs(5)));
            }
            Input::OpenFailed {
                error: ChannelError::NotPermitted,
                channel: CHANNEL,
            } => cx.out.push_back(Output::Open {
                channel: ChannelId(1),
                open: Open::Udp {
                    local: SocketAddr::new(LOCAL, 0),
                    peer: None,
                    reading: ReadTiming::Soon(Duration::ZERO),
                    media: None,
                },
            }),
            Input::Opened { .. } => {
                cx.transmit(ChannelId(1), Some(udp_to), |bytes| {
                    bytes.extend(b"hello");
                });
                cx.out.push_back(Output::Ended(Outcome::Completed));
            }
            Input::OpenFailed { error, .. } => cx.out.push_back(failed("open", error)),
            _ => {}
        }))
    });
    let targets = TargetFilter::new(Only("192.0.2.1".parse().expect("an address")));
    let seen = play_to(
        targets,
        plans(1, &["toy"], |ports| ports, &client),
        |_, _, _| {},
    );
    assert_eq!(seen.tester(tester::SENDS_FAILED), 1);
    let ended = seen.clients[0].ended.as_ref().map(|(_, outcome)| outcome);
    assert!(matches!(ended, Some(Outcome::Completed)), "{ended:?}");
    assert!(listener.accept().is_err() && socket.recv(&mut [0; 9]).is_err());
}
