mod capture;
mod with_sender;

use bytes::BytesMut;
use measure::Time;

use super::*;
use crate::arq::sender::PayloadCipher as _;
use crate::codec::handshake::{Extension, KmState};
use crate::codec::packet::{Control, ControlHeader, DataHeader, KeyFlag, Packet, Position};
use crate::seq::SeqNumber;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

fn secret() -> Secret {
    Secret::new("a passphrase").unwrap()
}

fn header(sequence: u32, key: KeyFlag) -> DataHeader {
    DataHeader {
        sequence: SeqNumber::new(sequence),
        position: Position::Solo,
        in_order: false,
        key,
        retransmitted: false,
        message: 1,
        timestamp: 7,
        destination: 9,
    }
}

#[test]
fn keys_are_wrapped_as_in_rfc_3394() {
    // RFC 3394, 4.1, 4.2, 4.3 and 4.6.
    let all = "000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F";
    let vectors = [
        (
            16,
            "00112233445566778899AABBCCDDEEFF",
            "1FA68B0A8112B447AEF34BD8FB5A7B829D3E862371D2CFE5",
        ),
        (
            24,
            "00112233445566778899AABBCCDDEEFF",
            "96778B25AE6CA435F92B5B97C050AED2468AB8A17AD84E5D",
        ),
        (
            32,
            "00112233445566778899AABBCCDDEEFF",
            "64E8C3F9CE0F5BA263E9777905818A2A93C8191E7D6E8AE7",
        ),
        (
            32,
            "00112233445566778899AABBCCDDEEFF000102030405060708090A0B0C0D0E0F",
            "28C9F404C4B810F4CBCCB35CFB87F8263F5786E2D80ED326CBC7F0E71A99F43BFB988B9B7A02DD21",
        ),
    ];
    for (length, keys, wrapped) in vectors {
        let (wrapping, keys, wrapped) = (&hex(all)[..length], hex(keys), hex(wrapped));
        assert_eq!(key_wrap::wrap(wrapping, &keys), wrapped);
        assert_eq!(key_wrap::unwrap(wrapping, &wrapped), Some(keys));
        let mut damaged = wrapped.clone();
        damaged[3] ^= 1;
        assert_eq!(key_wrap::unwrap(wrapping, &damaged), None);
    }
}

#[test]
fn pbkdf2_matches_rfc_6070() {
    let mut key = [0; 20];
    aws_lc_rs::pbkdf2::derive(
        aws_lc_rs::pbkdf2::PBKDF2_HMAC_SHA1,
        4096.try_into().unwrap(),
        b"salt",
        b"password",
        &mut key,
    );
    assert_eq!(
        key.as_slice(),
        hex("4b007901b765489abead49d926f721d065a429c1")
    );
}

#[test]
fn passphrase_length_is_limited() {
    assert_eq!(
        Passphrase::new("x".repeat(9)).unwrap_err(),
        PassphraseError(9)
    );
    assert_eq!(
        Passphrase::new("x".repeat(80)).unwrap_err(),
        PassphraseError(80)
    );
    assert!(Passphrase::new("x".repeat(10)).is_ok());
    assert!(Passphrase::new("x".repeat(79)).is_ok());
    assert!(!format!("{:?}", secret()).contains("a pass"));
}

#[test]
fn both_sides_decrypt_each_other_with_any_cipher() {
    for mode in [CipherMode::Ctr, CipherMode::Gcm] {
        for length in KeyLength::ALL {
            for version in [0x0001_0503, 0x0001_0505] {
                let secret = secret().with_cipher(mode).with_key_length(length);
                let offer = KeyOffer::new(&secret, 3);
                let message = offer.message().to_vec();
                let theirs = accept_keys(Some(&secret), &message, version, 4);
                let (mut there, mut their_opener) = theirs.unwrap();
                let (mut here, mut opener) = offer.accept(version);
                for (from, to) in [(&mut here, &mut their_opener), (&mut there, &mut opener)] {
                    let mut payload = BytesMut::from(&[0x47; 1316][..]);
                    let key = from.encrypt(&header(5, KeyFlag::None), &mut payload);
                    assert_eq!(key, KeyFlag::Even);
                    assert_eq!(payload.len(), 1316 + from.overhead());
                    assert_ne!(payload[..16], [0x47; 16]);
                    let again = DataHeader {
                        retransmitted: true,
                        ..header(5, key)
                    };
                    assert_eq!(to.decrypt_copy(&again, &payload).unwrap(), [0x47; 1316]);
                    payload[5] ^= 1;
                    let damaged = to.decrypt_copy(&again, &payload);
                    assert_eq!(damaged.is_err(), mode == CipherMode::Gcm);
                    assert_eq!(
                        to.decrypt_copy(&header(5, KeyFlag::Odd), &payload),
                        Err(DecryptError::NoKey)
                    );
                    assert_eq!(
                        to.decrypt_copy(&header(5, KeyFlag::None), &[0]),
                        Err(DecryptError::Clear)
                    );
                }
            }
        }
    }
}

#[test]
fn mismatches_are_answered_with_their_state() {
    let offer = KeyOffer::new(&secret(), 3);
    let answer =
        |secret: Option<&Secret>| accept_keys(secret, offer.message(), 0x0001_0505, 4).err();
    assert_eq!(answer(None), Some(KmState::NoSecret));
    let other = Secret::new("another passphrase").unwrap();
    assert_eq!(answer(Some(&other)), Some(KmState::BadSecret));
    let gcm = secret().with_cipher(CipherMode::Gcm);
    assert_eq!(answer(Some(&gcm)), Some(KmState::BadCryptoMode));
    assert_eq!(answer(Some(&secret())), None);
}

#[test]
fn keys_are_announced_before_each_change() {
    let offer = KeyOffer::new(&secret(), 3);
    let (mut encryptor, mut decryptor) = offer.accept(0x0001_0505);
    encryptor.set_refresh(Refresh {
        packets_per_key: 100,
        announce_before_packets: 20,
    });
    let head = ControlHeader {
        timestamp: 0,
        destination: 9,
    };
    let (mut announced, mut keys) = (0, Vec::new());
    for sequence in 0..1000 {
        let mut payload = BytesMut::from(&[0x47; 188][..]);
        let key = encryptor.encrypt(&header(sequence, KeyFlag::None), &mut payload);
        keys.push(key);
        let mut out = Vec::new();
        if encryptor.due() == Time::ZERO && encryptor.write_next(Time::ZERO, head, &mut out) {
            announced += 1;
            let Ok(Packet::Control(_, Control::UserDefined { subtype, cif, .. })) =
                Packet::parse(&out)
            else {
                panic!("{out:?}")
            };
            assert_eq!(subtype, Extension::KM_REQUEST);
            let mut reply = Vec::new();
            assert!(decryptor.key_request(cif, &mut reply));
            assert!(encryptor.due() > Time::ZERO);
            encryptor.control(
                &Control::UserDefined {
                    subtype: Extension::KM_RESPONSE,
                    info: 0,
                    cif: &reply,
                },
                Time::ZERO,
            );
            assert_eq!(encryptor.due(), Time::NEVER);
        }
        assert_eq!(
            decryptor
                .decrypt_copy(&header(sequence, key), &payload)
                .unwrap(),
            [0x47; 188]
        );
    }
    assert_eq!(announced, 10);
    assert_eq!(keys[99..101], [KeyFlag::Even, KeyFlag::Odd]);
    assert_eq!(keys[199..201], [KeyFlag::Odd, KeyFlag::Even]);
}

#[test]
fn unanswered_announcements_are_sent_ten_times() {
    let (mut encryptor, _) = KeyOffer::new(&secret(), 3).accept(0x0001_0505);
    encryptor.set_refresh(Refresh {
        packets_per_key: 2,
        announce_before_packets: 1,
    });
    let head = ControlHeader {
        timestamp: 0,
        destination: 9,
    };
    for sequence in 0..2 {
        encryptor.encrypt(
            &header(sequence, KeyFlag::None),
            &mut BytesMut::from(&[0; 188][..]),
        );
    }
    let mut times = 0;
    while encryptor.due() != Time::NEVER {
        let due = encryptor.due();
        assert!(encryptor.write_next(due, head, &mut Vec::new()));
        times += 1;
    }
    assert_eq!(times, 10);
}

#[test]
fn packets_are_processed_without_allocation() {
    let (mut encryptor, mut decryptor) = KeyOffer::new(&secret(), 3).accept(0x0001_0505);
    let mut payload = BytesMut::with_capacity(1400);
    payload.extend_from_slice(&[0x47; 1316]);
    let header = header(1, KeyFlag::Even);
    let counted = allocation_counter::measure(|| {
        for _ in 0..100 {
            encryptor.encrypt(&header, &mut payload);
            let _ = decryptor.decrypt_copy(&header, &payload);
        }
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn malformed_key_material_is_reported() {
    use key_material::{KeyMaterial, KeyMaterialError as E};
    let good = KeyOffer::new(&secret(), 3).message().to_vec();
    assert_eq!(KeyMaterial::parse(&good).unwrap().write(), good);
    let with = |place: usize, byte: u8| {
        let mut bad = good.clone();
        bad[place] = byte;
        KeyMaterial::parse(&bad).unwrap_err()
    };
    assert_eq!(with(0, 0x22), E::Version(0x22));
    assert_eq!(with(1, 0), E::Sign);
    assert_eq!(with(3, 0), E::NoKey);
    assert_eq!(with(3, 3), E::Length(good.len()));
    assert_eq!(with(7, 1), E::WrappingKey(1));
    assert_eq!(with(8, 3), E::Cipher { cipher: 3, auth: 0 });
    assert_eq!(with(9, 1), E::Cipher { cipher: 2, auth: 1 });
    assert_eq!(with(10, 1), E::Stream(1));
    assert_eq!(with(14, 2), E::Salt(8));
    assert_eq!(with(15, 5), E::KeyLength(20));
    assert_eq!(KeyMaterial::parse(&good[..40]).unwrap_err(), E::Length(40));
    assert_eq!(KeyMaterial::parse(&good[..9]).unwrap_err(), E::Length(9));
}
