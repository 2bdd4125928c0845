//! Test vectors of the RFCs and of libsrtp, and both sides against each other.

use proptest::prelude::*;

use super::cipher::SessionKeys;
use super::hex::hex;
use super::key_derivation::{Label, RTCP, RTP};
use super::master_key::MasterKey;
use super::*;

/// Session keys of the examples in RFC 7714.
fn example(profile: SrtpProfile) -> SessionKeys {
    let key: Vec<u8> = (0..profile.key_length() as u8).collect();
    SessionKeys::from_gcm(profile, &key, b"Quid pro quo")
}

const PACKET: &str =
    "8040f17b 8041f8d3 5501a0b2 47616c6c 6961206573742 06f6d6e69 7320646976 69736120
    696e20706172746573207472 6573";

/// RFC 7714, 16.1.1 and 16.2.1.
#[test]
fn rtp_sealed_with_gcm_matches_the_rfc() {
    for (profile, sealed) in [
        (
            SrtpProfile::AeadAes128Gcm,
            "8040f17b 8041f8d3 5501a0b2 f24de3a3 fb34de6c acba861c 9d7e4bca be633bd5 0d294e6f
             42a5f47a 51c7d19b 36de3adf 8833899d 7f27beb1 6a9152cf 765ee439 0cce",
        ),
        (
            SrtpProfile::AeadAes256Gcm,
            "8040f17b 8041f8d3 5501a0b2 32b1de78 a822fe12 ef9f78fa 332e33aa b1801238 9a58e2f3
             b50b2a02 76ffae0f 1ba63799 b87b7aa3 db36dfff d6b0f9bb 7878d7a7 6c13",
        ),
    ] {
        let mut packet = hex(PACKET);
        RtpSealer::new(&example(profile))
            .seal(&mut packet)
            .expect("it is RTP");
        assert_eq!(packet, hex(sealed), "{profile:?}");
        let mut out = Vec::new();
        let mut opener = RtpOpener::new(&example(profile));
        assert_eq!(opener.open(&packet, &mut out), Ok(&hex(PACKET)[..]));
    }
}

/// RFC 7714, 17.1 and 17.3.
#[test]
fn rtcp_sealed_with_gcm_matches_the_rfc() {
    let compound = hex(
        "81c8000d 4d617273 4e545031 4e545032 52545020 0000042a 0000e930 4c756e61
        deadbeef deadbeef deadbeef deadbeef deadbeef",
    );
    for (profile, sealed) in [
        (
            SrtpProfile::AeadAes128Gcm,
            "81c8000d 4d617273 63e94885 dcdab67c a727d766 2f6b7e99 7ff5c0f7 6c06f32d c676a5f1
             730d6fda 4ce09b46 86303ded 0bb9275b c84aa458 96cf4d2f c5abf872 45d9eade 800005d4",
        ),
        (
            SrtpProfile::AeadAes256Gcm,
            "81c8000d 4d617273 d50ae4d1 f5ce5d30 4ba297e4 7d470c28 2c3ece5d bffe0a50 a2eaa5c1
             110555be 8415f658 c61de047 6f1b6fad 1d1eb30c 4446839f 57ff6f6c b26ac3be 800005d4",
        ),
    ] {
        let mut out = Vec::new();
        RtcpSealer::new(example(profile), 0x5d4)
            .seal(&compound, &mut out)
            .expect("it is RTCP");
        assert_eq!(out, hex(sealed), "{profile:?}");
        let mut plain = Vec::new();
        let mut opener = RtcpOpener::new(example(profile));
        assert_eq!(opener.open(&out, &mut plain), Ok(&compound[..]));
    }
}

/// Master key of RFC 3711, B.3, which the tests of libsrtp use too.
fn libsrtp(labels: [Label; 3]) -> SessionKeys {
    let key = hex("E1F97A0D3E018BE0D64FA32C06DE4139");
    let salt = hex("0EC675AD498AFEEBB6960B3AABE6");
    SessionKeys::derive(
        &MasterKey::new(SrtpProfile::AesCm128HmacSha1_80, &key, &salt),
        labels,
    )
}

/// Output of libsrtp for a packet (`srtp_validate`).
#[test]
fn rtp_sealed_in_counter_mode_matches_libsrtp() {
    let plain = hex("800f1234 decafbad cafebabe abababab abababab abababab abababab");
    let mut packet = plain.clone();
    RtpSealer::new(&libsrtp(RTP))
        .seal(&mut packet)
        .expect("it is RTP");
    let sealed = "800f1234 decafbad cafebabe 4e55dc4c e79978d8 8ca4d215 949d2402 b78d6acc
        99ea179b 8dbb";
    assert_eq!(packet, hex(sealed));
    let mut out = Vec::new();
    let mut opener = RtpOpener::new(&libsrtp(RTP));
    assert_eq!(opener.open(&packet, &mut out), Ok(&plain[..]));
}

#[test]
fn rtcp_sealed_in_counter_mode_matches_libsrtp() {
    let plain = hex("81c8000b cafebabe abababab abababab abababab abababab");
    let mut sealed = Vec::new();
    RtcpSealer::new(libsrtp(RTCP), 1)
        .seal(&plain, &mut sealed)
        .expect("it is RTCP");
    let expected = "81c8000b cafebabe 7128035b e487b9bd bef89041 f977a5a8 80000001
        993e08cd 54d6c123 0798";
    assert_eq!(sealed, hex(expected));
    let mut out = Vec::new();
    let mut opener = RtcpOpener::new(libsrtp(RTCP));
    assert_eq!(opener.open(&sealed, &mut out), Ok(&plain[..]));
}

/// Keys of both sides of a connection, made from a seed.
fn key_pair(profile: SrtpProfile, seed: u8) -> [SrtpKeys; 2] {
    let length = 2 * (profile.key_length() + profile.salt_length());
    let material: Vec<u8> = (0..length)
        .map(|index| (index as u8).wrapping_mul(seed))
        .collect();
    [true, false].map(|is_client| {
        SrtpKeys::from_exported(profile, &material, is_client).expect("it is as long as it must be")
    })
}

fn packet(ssrc: u32, sequence: u16, payload: &[u8]) -> Vec<u8> {
    let [high, low] = sequence.to_be_bytes();
    let mut packet = vec![0x80, 96, high, low, 0, 0, 0, 0];
    packet.extend_from_slice(&ssrc.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

fn any_profile() -> impl Strategy<Value = SrtpProfile> {
    prop::sample::select(&SrtpProfile::ALL[..])
}

/// Complete RTP packet with contributing sources and an extension.
fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    (
        prop::collection::vec(any::<u32>(), 0..4),
        prop::option::of((any::<u16>(), prop::collection::vec(any::<u32>(), 0..5))),
        prop::collection::vec(any::<u8>(), 0..200),
    )
        .prop_map(|(contributing, extension, payload)| {
            let mut bytes = packet(7, 1, &[]);
            bytes[0] |= contributing.len() as u8 | u8::from(extension.is_some()) << 4;
            for source in contributing {
                bytes.extend_from_slice(&source.to_be_bytes());
            }
            if let Some((profile, words)) = extension {
                bytes.extend_from_slice(&profile.to_be_bytes());
                bytes.extend_from_slice(&(words.len() as u16).to_be_bytes());
                for word in words {
                    bytes.extend_from_slice(&word.to_be_bytes());
                }
            }
            bytes.extend_from_slice(&payload);
            bytes
        })
}

proptest! {
    #[test]
    fn only_authentic_rtp_is_opened(
        profile in any_profile(), plain in any_packet(), place: prop::sample::Index, bit in 0u8..8,
    ) {
        let [here, there] = key_pair(profile, 3);
        let mut sealed = plain.clone();
        prop_assert_eq!(here.rtp_sealer().seal(&mut sealed), Ok(()));
        prop_assert_eq!(sealed.len(), plain.len() + here.rtp_sealer().overhead());
        // A flow seals header and payload separately.
        let header = RtpParts::parse(&plain).expect("it is RTP").header_length;
        let mut payload = plain[header..].to_vec();
        let tag = here.rtp_sealer().seal_parts(&plain[..header], &mut payload);
        payload.extend_from_slice(&tag.expect("it is RTP"));
        prop_assert_eq!(&sealed[header..], &payload[..]);

        let mut opener = there.rtp_opener();
        let mut out = Vec::new();
        // Any wrong bit.
        let mut wrong = sealed.clone();
        wrong[place.index(sealed.len())] ^= 1 << bit;
        let refused = opener.open(&wrong, &mut out);
        prop_assert!(matches!(refused, Err(SrtpError::Unauthentic | SrtpError::Malformed)));
        // The keys of the other direction.
        prop_assert_eq!(here.rtp_opener().open(&sealed, &mut out), Err(SrtpError::Unauthentic));
        prop_assert_eq!(opener.open(&sealed, &mut out), Ok(&plain[..]));
        prop_assert_eq!(opener.open(&sealed, &mut out), Err(SrtpError::Replayed));
        let counts = opener.counts();
        prop_assert_eq!((counts.opened, counts.replayed), (1, 1));
        prop_assert_eq!(counts.unauthentic + counts.malformed, 1);
    }

    #[test]
    fn only_authentic_rtcp_is_opened(
        profile in any_profile(), rest in prop::collection::vec(any::<u8>(), 0..100),
        place: prop::sample::Index, bit in 0u8..8,
    ) {
        let [here, there] = key_pair(profile, 5);
        let plain = [&[0x81, 201, 0, 1, 0, 0, 0, 9][..], &rest].concat();
        let (mut sealer, mut sealed) = (here.rtcp_sealer(), b"before".to_vec());
        prop_assert_eq!(sealer.seal(&plain, &mut sealed), Ok(()));
        let sealed = sealed.split_off(6);
        prop_assert_eq!(sealed.len(), plain.len() + sealer.overhead());
        let (mut opener, mut out) = (there.rtcp_opener(), Vec::new());
        let mut wrong = sealed.clone();
        wrong[place.index(sealed.len())] ^= 1 << bit;
        let refused = opener.open(&wrong, &mut out);
        prop_assert!(matches!(refused, Err(SrtpError::Unauthentic | SrtpError::Malformed)));
        prop_assert_eq!(opener.open(&sealed, &mut out), Ok(&plain[..]));
        prop_assert_eq!(opener.open(&sealed, &mut out), Err(SrtpError::Replayed));
        prop_assert_eq!(opener.counts().opened, 1);
    }

    /// Arbitrary bytes are never opened, and each refusal is counted.
    #[test]
    fn arbitrary_bytes_are_refused_and_counted(
        profile in any_profile(), bytes in prop::collection::vec(any::<u8>(), 0..80), version: bool,
    ) {
        let mut bytes = bytes;
        if let (true, Some(first)) = (version, bytes.first_mut()) {
            *first = *first & 0x3f | 0x80;
        }
        let [here, _] = key_pair(profile, 7);
        let (mut rtp, mut rtcp, mut out) = (here.rtp_opener(), here.rtcp_opener(), Vec::new());
        prop_assert!(rtp.open(&bytes, &mut out).is_err());
        prop_assert!(rtcp.open(&bytes, &mut out).is_err());
        prop_assert_eq!(rtp.counts().malformed + rtp.counts().unauthentic, 1);
        prop_assert_eq!(rtcp.counts().malformed + rtcp.counts().unauthentic, 1);
    }
}

proptest! {
#![proptest_config(ProptestConfig::with_cases(24))]

/// Over any number of rollovers, with loss, reordering and duplicates, each packet that arrives is
/// opened once.
#[test]
fn rollovers_are_followed_over_a_lossy_network(
    profile in any_profile(), first: u16, seed: u64, steps in 3000u32..9000,
) {
    use rand::{RngExt, SeedableRng};
    let mut random = rand_pcg::Pcg64::seed_from_u64(seed);
    let [here, there] = key_pair(profile, 11);
    let (mut sealer, mut opener) = (here.rtp_sealer(), there.rtp_opener());
    let (mut late, mut out): (Vec<(u32, Vec<u8>)>, _) = (Vec::new(), Vec::new());
    // Leaps pass several rollovers in little time. Each is less than half of the number space.
    let mut sequence = u64::from(first);
    for step in 0..steps {
        sequence += if random.random_bool(0.02) { random.random_range(1..900) } else { 1 };
        let mut bytes = packet(9, sequence as u16, &step.to_be_bytes());
        prop_assert_eq!(sealer.seal(&mut bytes), Ok(()));
        // A receiver that joins after a rollover cannot know of it (RFC 3711, 3.3.1).
        let fate = if step == 0 { 9 } else { random.random_range(0..10) };
        match fate {
            0 => {}
            1 => late.push((step, bytes)),
            2 => {
                prop_assert!(opener.open(&bytes, &mut out).is_ok());
                prop_assert_eq!(opener.open(&bytes, &mut out), Err(SrtpError::Replayed));
            }
            _ => prop_assert!(opener.open(&bytes, &mut out).is_ok()),
        }
        while let Some((_, bytes)) = late.pop_if(|(since, _)| *since + 3 < step) {
            let opened = opener.open(&bytes, &mut out);
            prop_assert!(matches!(opened, Ok(_) | Err(SrtpError::Replayed)));
        }
    }
    prop_assert_eq!(opener.counts().unauthentic, 0);
}}

/// A server starts a receiver's sequence numbers at 1 and then sends an earlier packet. libsrtp
/// thereby passes a rollover.
#[test]
fn late_packet_after_the_join_breaks_nothing() {
    for lost in [false, true] {
        let [here, there] = key_pair(SrtpProfile::AeadAes256Gcm, 13);
        let (mut sealer, mut opener) = (here.rtp_sealer(), there.rtp_opener());
        let mut out = Vec::new();
        for sequence in [1, 2, 65521, 3, 4, 5] {
            let mut bytes = packet(9, sequence, b"media");
            sealer.seal(&mut bytes).expect("it is RTP");
            // If this packet is lost, the receiver cannot see that the sender is one rollover
            // ahead.
            if lost && sequence == 65521 {
                continue;
            }
            assert!(
                opener.open(&bytes, &mut out).is_ok(),
                "{sequence}, lost {lost}"
            );
        }
        assert_eq!(opener.counts().unauthentic, 0);
    }
}

#[test]
fn sources_are_bounded_and_forged_ones_are_not_stored() {
    let [here, there] = key_pair(SrtpProfile::AeadAes128Gcm, 17);
    let (mut sealer, mut opener) = (here.rtp_sealer(), there.rtp_opener());
    let mut out = Vec::new();
    for ssrc in 0..5000u32 {
        let mut forged = packet(0x8000_0000 | ssrc, 1, &[0; 30]);
        assert_eq!(opener.open(&forged, &mut out), Err(SrtpError::Unauthentic));
        forged[3] = 2;
        let mut bytes = packet(ssrc, 1, b"media");
        let sealed = sealer.seal(&mut bytes);
        match ssrc {
            0..2048 => {
                assert_eq!(sealed, Ok(()));
                assert!(opener.open(&bytes, &mut out).is_ok(), "{ssrc}");
            }
            _ => assert_eq!(sealed, Err(SrtpError::TooManySources)),
        }
    }
}

#[test]
fn keying_material_of_wrong_length_is_refused() {
    for profile in SrtpProfile::ALL {
        for length in [0, 55, 57, 61, 87, 89] {
            assert!(SrtpKeys::from_exported(profile, &vec![1; length], true).is_none());
        }
    }
}

proptest! {
    #[test]
    fn payload_start_decrypts_without_the_rest(
        which in 0..SrtpProfile::ALL.len(),
        first in any::<u16>(),
        steps in proptest::collection::vec(1..20_000u16, 1..40),
        payload in proptest::collection::vec(any::<u8>(), 2..60),
    ) {
        let profile = SrtpProfile::ALL[which];
        let [here, there] = key_pair(profile, 5);
        let (mut sealer, mut start) = (here.rtp_sealer(), there.payload_start());
        let mut sequence = first;
        for step in steps {
            let mut bytes = packet(7, sequence, &payload);
            let header = bytes.len() - payload.len();
            sealer.seal(&mut bytes).expect("it is in order");
            let kept = header + 2;
            let read: Option<[u8; 2]> = start.decrypt(&bytes[..kept]);
            prop_assert_eq!(read, Some([payload[0], payload[1]]));
            prop_assert_eq!(start.decrypt::<2>(&bytes[..kept - 1]), None);
            sequence = sequence.wrapping_add(step);
        }
    }
}
