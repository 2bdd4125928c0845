//! Datagrams of `srt-live-transmit` 1.5.1: a caller sends to a listener with a passphrase and
//! AES-256, and changes its key every 100 packets. The capture contains the media packets at which
//! a key starts. A line is `>` (from the caller) or `<` (to the caller), and a datagram.

use super::super::{KeyLength, Secret, accept_keys};
use super::hex;
use crate::codec::handshake::{
    Extension, FIXED, Flags, Handshake, HandshakeType, VERSION_5_MAGIC, write_extension, write_text,
};
use crate::codec::packet::{Control, KeyFlag, Packet};

const CAPTURE: &str = include_str!("../../testdata/srt-live-transmit_encrypted.txt");
const PASSPHRASE: &str = "a passphrase of the test";

fn datagrams() -> Vec<(bool, Vec<u8>)> {
    let lines = CAPTURE.lines().map(|line| line.split_once(' ').unwrap());
    lines.map(|(from, text)| (from == ">", hex(text))).collect()
}

fn handshakes() -> Vec<(Handshake, Vec<Extension<'static>>, Vec<u8>)> {
    let read = datagrams().into_iter().filter_map(|(_, datagram)| {
        let Ok(Packet::Control(_, Control::Handshake(cif))) = Packet::parse(&datagram) else {
            return None;
        };
        let cif: &'static [u8] = cif.to_vec().leak();
        let (fixed, extensions) = Handshake::parse(cif).unwrap();
        let extensions = extensions.map(Result::unwrap).collect();
        Some((fixed, extensions, cif.to_vec()))
    });
    read.collect()
}

#[test]
fn handshakes_of_libsrt_round_trip() {
    let said = handshakes();
    let kinds: Vec<HandshakeType> = said.iter().map(|(fixed, ..)| fixed.kind).collect();
    let (first, second) = (HandshakeType::Induction, HandshakeType::Conclusion);
    assert_eq!(kinds, [first, first, second, second]);
    let versions: Vec<u32> = said.iter().map(|(fixed, ..)| fixed.version).collect();
    assert_eq!(versions, [4, 5, 5, 5]);
    assert_eq!(said[1].0.extension, VERSION_5_MAGIC);
    assert_eq!(
        KeyLength::of_advertised(said[2].0.encryption),
        Some(KeyLength::Aes256)
    );
    assert_eq!(said[2].0.peer_ip[..5], [1, 0, 0, 127, 0]);

    for (fixed, extensions, bytes) in &said {
        let mut again = Vec::new();
        fixed.write(&mut again);
        assert_eq!(again[..], bytes[..FIXED]);
        for extension in extensions {
            let kind = extension.kind();
            match extension {
                Extension::HsRequest(hs) | Extension::HsResponse(hs) => {
                    assert_eq!(hs.version, 0x0001_0501);
                    assert_eq!(hs.flags, Flags::LIVE.with(Flags::PACKET_FILTER));
                    hs.write(kind, &mut again);
                }
                Extension::KmRequest(key) | Extension::KmResponse(key) => {
                    write_extension(kind, key, &mut again);
                }
                Extension::StreamId(text) => {
                    assert_eq!(text, "#!::r=one,m=publish");
                    write_text(kind, text, &mut again);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(again, *bytes);
    }
}

#[test]
fn media_of_libsrt_is_decrypted_across_key_changes() {
    let secret = Secret::new(PASSPHRASE).unwrap();
    let extensions = handshakes().into_iter().flat_map(|(_, all, _)| all);
    let mut keys = extensions.filter_map(|extension| match extension {
        Extension::KmRequest(key) => Some(key),
        _ => None,
    });
    let key = keys.next();
    let (_, mut decryptor) = accept_keys(Some(&secret), key.unwrap(), 0x0001_0501, 1).unwrap();
    let (mut keys, mut reply) = (Vec::new(), Vec::new());
    for (from_caller, datagram) in datagrams() {
        match Packet::parse(&datagram).unwrap() {
            Packet::Data(header, payload) => {
                keys.push(header.key);
                let media = decryptor.decrypt_copy(&header, payload).unwrap();
                assert_eq!(media.len(), 1316);
                // Seven packets, each filled with the same byte after its sync byte.
                for packet in media.chunks(188) {
                    assert_eq!(packet[0], 0x47);
                    assert!(packet[1..].iter().all(|byte| *byte == media[1]));
                }
            }
            Packet::Control(_, Control::UserDefined { cif, .. }) if from_caller => {
                reply.clear();
                assert!(decryptor.key_request(cif, &mut reply));
            }
            // Answer of the real listener to the same request.
            Packet::Control(_, Control::UserDefined { cif, .. }) => assert_eq!(cif, reply),
            Packet::Control(..) => {}
        }
    }
    assert_eq!(
        keys,
        [KeyFlag::Even, KeyFlag::Odd, KeyFlag::Even, KeyFlag::Odd]
    );
}

#[test]
fn wrong_passphrase_is_rejected() {
    let other = Secret::new("another passphrase").unwrap();
    for (_, extensions, _) in handshakes() {
        for extension in extensions {
            if let Extension::KmRequest(key) = extension {
                assert!(accept_keys(Some(&other), key, 0x0001_0501, 1).is_err());
            }
        }
    }
}
