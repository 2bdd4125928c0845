use proptest::prelude::*;

use super::*;

const WANTED: ReadLimits = ReadLimits {
    unframed_length: 0,
    kept_bytes_max: 1 << 16,
    length_max: 1 << 20,
};

fn length(bytes: u8, order: Order, includes_itself: bool) -> Framing {
    Framing::Length(LengthPrefix {
        bytes,
        order,
        includes_itself,
    })
}

fn delimiter(bytes: &[u8]) -> Framing {
    Framing::Delimiter(bytes.into())
}

/// Length of a message, and its body if that was kept.
type Message = (u64, Option<Vec<u8>>);

/// Returns the messages read from `stream`, split at `cuts`, and the error.
fn read(
    framing: &Framing,
    wanted: &ReadLimits,
    stream: &[u8],
    cuts: &[usize],
) -> (Vec<Message>, Option<Malformed>) {
    let mut reader = MessageReader::default();
    let mut found = Vec::new();
    let mut from = 0;
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    cuts.push(stream.len());
    cuts.sort_unstable();
    for cut in cuts {
        let mut input = &stream[from..cut];
        from = cut;
        loop {
            match reader.next_item(framing, wanted, &mut input) {
                Ok(Some(Received::Message(frame))) => {
                    found.push((frame.length, frame.body.map(<[u8]>::to_vec)))
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(malformed) => return (found, Some(malformed)),
            }
        }
        assert!(input.is_empty());
        let kept = reader.buffer.capacity();
        assert!(
            kept <= 2 * wanted.kept_bytes_max + 4 * DELIMITER_BYTES_MAX + 64,
            "{kept} bytes are kept"
        );
    }
    (found, None)
}

#[test]
fn length_prefixes_are_written_in_all_forms() {
    let written = |framing: &Framing| {
        let mut out = Vec::new();
        framing.write(b"abc", 0, &mut out);
        out
    };
    assert_eq!(written(&length(1, Order::Big, false)), b"\x03abc");
    assert_eq!(written(&length(2, Order::Big, true)), b"\x00\x05abc");
    assert_eq!(written(&length(4, Order::Little, false)), b"\x03\0\0\0abc");
    assert_eq!(
        written(&length(8, Order::Little, true)),
        b"\x0b\0\0\0\0\0\0\0abc"
    );
    assert_eq!(written(&delimiter(b"\r\n")), b"abc\r\n");
    assert_eq!(written(&Framing::None), b"abc");
    assert_eq!(length(1, Order::Big, true).length_max(), 254);
    assert_eq!(length(8, Order::Big, false).length_max(), u64::MAX);
}

#[test]
fn hostile_lengths_cost_no_memory() {
    let framing = length(4, Order::Big, false);
    let (found, wrong) = read(&framing, &WANTED, b"\xff\xff\xff\xffabc", &[]);
    assert_eq!(
        (found.len(), wrong),
        (0, Some(Malformed::TooLong(0xffff_ffff)))
    );
    let framing = length(8, Order::Little, false);
    let all = ReadLimits {
        length_max: u64::MAX,
        ..WANTED
    };
    let (found, wrong) = read(
        &framing,
        &all,
        &[&[0xff; 8][..], &[7; 5000]].concat(),
        &[3, 100, 3000],
    );
    assert_eq!((found.len(), wrong), (0, None));
    let framing = length(4, Order::Big, true);
    let (_, wrong) = read(&framing, &WANTED, b"\0\0\0\x03", &[2]);
    assert_eq!(wrong, Some(Malformed::Length(3)));
}

#[test]
fn missing_delimiter_hits_the_length_limit() {
    let few = ReadLimits {
        kept_bytes_max: 10,
        length_max: 100,
        ..WANTED
    };
    let cuts: Vec<usize> = (0..200).collect();
    let (found, wrong) = read(&delimiter(b"--end"), &few, &[b'-'; 200], &cuts);
    assert!(
        found.is_empty() && matches!(wrong, Some(Malformed::TooLong(101))),
        "{wrong:?}"
    );
    let (found, wrong) = read(
        &delimiter(b"--end"),
        &few,
        b"a---end0123456789ab--endxy--end",
        &cuts,
    );
    let expected = [
        (2, Some(b"a-".to_vec())),
        (12, None),
        (2, Some(b"xy".to_vec())),
    ];
    assert_eq!((found, wrong), (expected.to_vec(), None));
}

#[test]
fn invalid_websocket_frames_are_rejected() {
    let client = Framing::WebSocket {
        masked: true,
        text: false,
    };
    for (wrong, what) in [
        (&b"\x82\x81abcde"[..], "with a mask"),
        (b"\xc2\x01a", "reserved"),
        (b"\x83\x01a", "opcode"),
        (b"\x80\x01a", "nothing"),
        (b"\x02\x01a\x82\x01a", "within"),
        (b"\x89\x7e\x00\x80", "control"),
        (b"\x09\x01a", "control"),
    ] {
        let (_, malformed) = read(&client, &WANTED, wrong, &[1]);
        let text = malformed.map(|wrong| wrong.to_string()).unwrap_or_default();
        assert!(text.contains(what), "{text}");
    }
    let (_, malformed) = read(
        &client,
        &WANTED,
        b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
        &[],
    );
    assert_eq!(malformed, Some(Malformed::TooLong(u64::MAX)));
    // In three fragments, with a ping in between.
    let (found, wrong) = read(
        &client,
        &WANTED,
        b"\x01\x02ab\x89\x01x\x00\x01c\x80\x00",
        &[4, 9],
    );
    assert_eq!((found, wrong), (vec![(3, Some(b"abc".to_vec()))], None));
}

fn framings() -> impl Strategy<Value = Framing> {
    prop_oneof![
        (
            prop_oneof![Just(2u8), Just(4), Just(8)],
            any::<bool>(),
            any::<bool>()
        )
            .prop_map(|(bytes, big, own)| {
                length(bytes, if big { Order::Big } else { Order::Little }, own)
            }),
        prop::sample::select(vec![&b"\n"[..], b"\r\n", b"aab", b"abcabd"]).prop_map(delimiter),
        any::<bool>().prop_map(|masked| Framing::WebSocket {
            masked,
            text: false
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn messages_survive_a_round_trip_with_any_fragmentation(
        framing in framings(),
        bodies in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b'x')], 0..300), 0..8),
        cuts in prop::collection::vec(any::<usize>(), 0..30),
        keep in prop_oneof![Just(1usize << 16), Just(50)],
        key: u32,
    ) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for body in &bodies {
            // A body must not contain its delimiter, nor end with the beginning of it.
            let body: Vec<u8> = match &framing {
                Framing::Delimiter(_) => body.iter().filter(|&&byte| byte == b'x').copied().collect(),
                _ => body.clone(),
            };
            framing.write(&body, key, &mut stream);
            expected.push((body.len() as u64, body));
        }
        // A server reads what a client sends.
        let reading = match &framing {
            Framing::WebSocket { masked, text } => Framing::WebSocket { masked: !masked, text: *text },
            other => other.clone(),
        };
        let wanted = ReadLimits { kept_bytes_max: keep, ..WANTED };
        let (found, wrong) = read(&reading, &wanted, &stream, &cuts);
        prop_assert_eq!(wrong, None);
        prop_assert_eq!(found.len(), expected.len());
        for ((length, body), (whole, sent)) in found.iter().zip(&expected) {
            prop_assert_eq!(length, whole);
            match body {
                Some(body) => prop_assert_eq!(body, sent),
                None => prop_assert!(*length > keep as u64),
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_read_alike_with_any_fragmentation(
        framing in framings(),
        stream in prop::collection::vec(any::<u8>(), 0..2000),
        cuts in prop::collection::vec(any::<usize>(), 0..30),
        keep in 0usize..200,
    ) {
        let wanted = ReadLimits { unframed_length: 0, kept_bytes_max: keep, length_max: 100_000 };
        let whole = read(&framing, &wanted, &stream, &[]);
        let cut = read(&framing, &wanted, &stream, &cuts);
        let lengths = |found: &[Message]| found.iter().map(|(length, _)| *length).collect::<Vec<_>>();
        prop_assert_eq!(lengths(&whole.0), lengths(&cut.0));
        prop_assert_eq!(whole.1.is_some(), cut.1.is_some());
    }
}

#[test]
fn messages_are_read_in_linear_time() {
    let delimited = |text: &[u8]| Framing::Delimiter(text.into());
    let prefix = |bytes| {
        Framing::Length(LengthPrefix {
            bytes,
            order: Order::Big,
            includes_itself: false,
        })
    };
    let websocket = |masked| Framing::WebSocket { masked, text: true };
    // Near-delimiters, lengths of zero, endless messages, empty and tiny frames, pings.
    let cases: [(Framing, &[u8]); 12] = [
        (delimited(b"aaaaaaaaaaaaaaab"), b"a"),
        (delimited(b"\r\n"), b"\r"),
        (delimited(b"\n"), b"\n"),
        (delimited(b"\n"), b"x"),
        (prefix(1), b"\0"),
        (prefix(4), b"\0\0\0\x01x"),
        (prefix(4), b"\0\x01\0\0x"),
        (websocket(true), b"\x81\0"),
        (websocket(true), b"\x89\0"),
        (websocket(true), b"\x89\x7dxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
        (websocket(true), b"\x01\0"),
        (websocket(false), b"\x81\xfe\x01\0abcd"),
    ];
    for (framing, text) in cases {
        for keep in [0, 100, 1 << 20] {
            let wanted = ReadLimits {
                unframed_length: 0,
                kept_bytes_max: keep,
                length_max: u64::MAX,
            };
            // This message is fragmented, and the only one.
            let make = |size: usize| match text {
                b"\x01\0" => [text, &b"\0\0".repeat(size / 2 - 1)].concat(),
                _ => text.iter().copied().cycle().take(size).collect(),
            };
            let what = format!("{framing:?} of {text:?}, {keep} kept");
            steps::assert_linear(&what, 320, make, |pieces| {
                let mut reader = MessageReader::default();
                for piece in pieces {
                    let mut rest = piece;
                    loop {
                        match reader.next_item(&framing, &wanted, &mut rest) {
                            Ok(Some(_)) => {}
                            Ok(None) => break,
                            Err(_) => {
                                reader = MessageReader::default();
                                break;
                            }
                        }
                    }
                }
            });
        }
    }
}
