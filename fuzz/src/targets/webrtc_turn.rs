//! A TURN client whose server sends anything.

use std::net::SocketAddr;
use std::time::Duration;

use measure::Time;
use webrtc::turn::{Allocation, FrameSplitter, TurnEvent, TurnReceived, TurnSettings, TurnUrl};

use crate::input::Input;

const START: Time = Time::from_nanos(1_000_000_000);

/// Length of a message header, and offset of the transaction ID in it.
const HEAD: usize = 20;
const TRANSACTION: usize = 8;

fn split(bytes: &[u8], size: usize) -> Vec<Vec<u8>> {
    let (mut frames, mut all) = (FrameSplitter::default(), Vec::new());
    for piece in bytes.chunks(size.max(1)) {
        let mut at = 0;
        loop {
            match frames.next(piece, &mut at) {
                Ok(Some((frame, taken))) => {
                    assert!(taken >= frame.len() && taken < frame.len() + 4);
                    all.push(frame.to_vec());
                }
                Ok(None) => break,
                Err(_) => return all,
            }
        }
    }
    all
}

/// Checks that framing gives the same result in pieces and as a whole. The client accepts any
/// messages, which have the transaction ID of its last request if the input says so. Its state and
/// its output are bounded.
pub(crate) fn turn(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some(url) = TurnUrl::parse(text)
    {
        assert!(url.port > 0 && !url.host.is_empty());
    }
    let mut input = Input::new(bytes);
    let size = usize::from(input.byte());
    assert_eq!(split(bytes, size), split(bytes, bytes.len()));
    let settings = TurnSettings {
        user: "u".to_owned(),
        password: "p".to_owned(),
        reliable: size & 1 == 1,
        ipv6: size & 2 == 2,
        timeout: Duration::from_secs(2),
    };
    let mut allocation = Allocation::new(START, settings, 1);
    let (mut now, mut last, mut out) = (START, [0; 12], Vec::new());
    let peer = |number: u8| SocketAddr::from(([10, 0, 0, number], 9));
    while !input.is_empty() {
        match input.byte() {
            kind @ 0..=127 => {
                let mut datagram = input.piece().to_vec();
                if kind & 1 == 0
                    && let Some(transaction_id) = datagram.get_mut(TRANSACTION..HEAD)
                {
                    transaction_id.copy_from_slice(&last);
                }
                let received = allocation.handle(now, &datagram);
                if let TurnReceived::Data { bytes, .. } = received {
                    assert!(allocation.relayed().is_some() && bytes.len() < datagram.len());
                }
            }
            number @ 128..=175 => allocation.send(now, peer(number), b"check", &mut out),
            number @ 176..=223 => allocation.bind(now, peer(number)),
            224 => allocation.close(now),
            more => {
                now += Duration::from_millis(u64::from(more) * 50);
                allocation.handle_timeout(now);
                // All timers that were due have fired, and none of them is due again at once.
                assert!(allocation.deadline().is_none_or(|due| due > now));
            }
        }
        let mut messages = 0;
        out.clear();
        while allocation.poll_transmit(&mut out) {
            if let Some(head) = out.get(..HEAD) {
                last.copy_from_slice(&head[TRANSACTION..]);
            }
            out.clear();
            messages += 1;
            assert!(
                messages <= 200,
                "the client sends too many messages at once"
            );
        }
        while let Some(event) = allocation.poll_event() {
            if let TurnEvent::Allocated { relayed } = event {
                assert!(relayed.port() > 0 && !relayed.ip().is_unspecified());
            }
        }
        assert!(!allocation.is_ended() || allocation.deadline().is_none());
    }
}
