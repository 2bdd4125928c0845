use proptest::prelude::*;

use super::*;

fn kinds() -> impl Strategy<Value = HandshakeType> {
    any::<i32>().prop_map(|word| HandshakeType::from_wire(word % 4000))
}

prop_compose! {
    fn handshakes()(
        words in any::<[u32; 7]>(),
        halves in any::<(u16, u16)>(),
        kind in kinds(),
        peer_ip in any::<[u8; 16]>(),
    ) -> Handshake {
        let [version, initial_sequence, mtu, flow_window, socket_id, cookie, _] = words;
        let (encryption, extension) = halves;
        Handshake {
            version, encryption, extension, initial_sequence, mtu, flow_window, kind, socket_id,
            cookie, peer_ip,
        }
    }
}

proptest! {
    #[test]
    fn handshakes_round_trip(
        fixed in handshakes(),
        version in any::<u32>(),
        latencies in any::<(u16, u16)>(),
        name in "\\PC{1,120}",
        key in proptest::collection::vec(any::<[u8; 4]>(), 1..30),
    ) {
        let hs = HsMessage {
            version,
            flags: Flags::LIVE,
            receive_latency_ms: latencies.0,
            send_latency_ms: latencies.1,
        };
        let key = key.as_flattened();
        let mut bytes = Vec::new();
        fixed.write(&mut bytes);
        hs.write(Extension::HS_REQUEST, &mut bytes);
        write_extension(Extension::KM_REQUEST, key, &mut bytes);
        write_text(Extension::STREAM_ID, &name, &mut bytes);
        let (read, extensions) = Handshake::parse(&bytes).unwrap();
        prop_assert_eq!(read, fixed);
        let extensions: Result<Vec<_>, _> = extensions.collect();
        prop_assert_eq!(extensions.unwrap(), vec![
            Extension::HsRequest(hs),
            Extension::KmRequest(key),
            Extension::StreamId(name),
        ]);
    }

    #[test]
    fn arbitrary_input_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((_, extensions)) = Handshake::parse(&bytes) {
            prop_assert!(extensions.count() <= bytes.len() / 4);
        }
    }
}

#[test]
fn malformed_handshakes_have_distinct_errors() {
    assert_eq!(
        Handshake::parse(&[0; 47]).unwrap_err(),
        HandshakeError::Short(47)
    );
    assert_eq!(
        Handshake::parse(&[0; 50]).unwrap_err(),
        HandshakeError::Unaligned(2)
    );
    let with = |tail: &[u8]| {
        let mut bytes = vec![0; FIXED];
        bytes.extend_from_slice(tail);
        let (_, extensions) = Handshake::parse(&bytes).unwrap();
        extensions.filter_map(Result::err).next()
    };
    let cut = HandshakeError::ExtensionLength {
        kind: 1,
        claimed: 3,
        left: 1,
    };
    assert_eq!(with(&[0, 1, 0, 3, 0, 0, 0, 0]), Some(cut));
    let short = HandshakeError::ExtensionContent { kind: 1, length: 4 };
    assert_eq!(with(&[0, 1, 0, 1, 0, 0, 0, 0]), Some(short));
    let empty = HandshakeError::ExtensionContent { kind: 5, length: 0 };
    assert_eq!(with(&[0, 5, 0, 0]), Some(empty));
    assert_eq!(
        with(&[0, 5, 0, 1, 0xff, 0xff, 0xff, 0xff]),
        Some(HandshakeError::InvalidUtf8(5))
    );
    assert_eq!(with(&[0, 9, 0, 1, 1, 2, 3, 4]), None);
}

#[test]
fn text_words_are_reversed() {
    let mut bytes = Vec::new();
    write_text(Extension::STREAM_ID, "STREAM", &mut bytes);
    assert_eq!(bytes, b"\0\x05\0\x02ERTS\0\0MA");
}

#[test]
fn invalid_values_are_reported() {
    let good = Handshake {
        version: 5,
        encryption: 0,
        extension: 0,
        initial_sequence: 7,
        mtu: 1500,
        flow_window: 8192,
        kind: HandshakeType::Conclusion,
        socket_id: 1,
        cookie: 0,
        peer_ip: [0; 16],
    };
    assert_eq!(good.check(), Ok(()));
    let check = |change: fn(&mut Handshake)| {
        let mut bad = good;
        change(&mut bad);
        bad.check().unwrap_err()
    };
    assert_eq!(check(|h| h.mtu = 75), HandshakeError::Mtu(75));
    assert_eq!(check(|h| h.mtu = 1 << 16), HandshakeError::Mtu(1 << 16));
    assert_eq!(check(|h| h.flow_window = 1), HandshakeError::FlowWindow(1));
    assert_eq!(check(|h| h.socket_id = 0), HandshakeError::NoSocketId);
    let sequence = 1 << 31;
    assert_eq!(
        check(|h| h.initial_sequence = 1 << 31),
        HandshakeError::InitialSequence(sequence)
    );
}

#[test]
fn rejections_have_libsrt_names() {
    assert_eq!(Rejection::new(1010).name(), Some("SRT_REJ_BADSECRET"));
    assert_eq!(Rejection::new(2404), Rejection::NOTFOUND);
    assert_eq!(Rejection::new(3001).name(), None);
    assert_eq!(Rejection::new(5), Rejection::UNKNOWN);
    assert_eq!(
        Rejection::BADSECRET.to_string(),
        "SRT_REJ_BADSECRET (1010): wrong passphrase"
    );
    assert_eq!(
        HandshakeType::from_wire(2403),
        HandshakeType::Rejected(Rejection::FORBIDDEN)
    );
    assert!(Rejection::ALL.iter().all(|reason| reason.name().is_some()));
}

#[test]
fn key_state_is_parsed_in_both_byte_orders() {
    assert_eq!(KmState::from_wire([4, 0, 0, 0]), Some(KmState::BadSecret));
    assert_eq!(KmState::from_wire([0, 0, 0, 3]), Some(KmState::NoSecret));
    assert_eq!(KmState::from_wire([0, 3, 0, 0]), None);
    assert_eq!(KmState::from_wire([9, 0, 0, 0]), None);
    assert_eq!(KmState::BadSecret.to_wire(), [4, 0, 0, 0]);
}
