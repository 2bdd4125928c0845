use super::*;
use proptest::prelude::*;

/// A packet as the kernel shows it to a filter.
struct Shown<'a> {
    bytes: &'a [u8],
    /// Offset of the network header.
    network: usize,
    hardware: u32,
    random: u32,
}

/// Runs a program as described in linux/filter.h: a failed load ends it with 0.
fn run(program: &[Instruction], packet: &Shown<'_>) -> u32 {
    execute(program, packet).unwrap_or(0)
}

fn execute(program: &[Instruction], packet: &Shown<'_>) -> Option<u32> {
    let load = |at: u32, size: usize| {
        let at = if at == HARDWARE_TYPE {
            return Some(packet.hardware);
        } else if at == RANDOM {
            return Some(packet.random);
        } else if at >= NET_OFF {
            packet.network + (at - NET_OFF) as usize
        } else {
            at as usize
        };
        let bytes = packet.bytes.get(at..at + size)?;
        Some(
            bytes
                .iter()
                .fold(0, |sum, &byte| sum << 8 | u32::from(byte)),
        )
    };
    let (mut a, mut x) = (0, 0u32);
    let mut at = 0;
    loop {
        let (code, yes, no, k) = program[at];
        at += 1;
        let code = u32::from(code);
        let mut branch = |holds| at += usize::from(if holds { yes } else { no });
        const LD_W: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        const LD_H: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
        const LD_B: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
        const LD_B_IND: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_IND;
        const LD_H_IND: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
        const LD_LEN: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_LEN;
        const LDX_MSH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
        const JEQ: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        const JGT: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
        const JGE: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
        const JSET: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
        const RET: u32 = libc::BPF_RET | libc::BPF_K;
        const RET_A: u32 = libc::BPF_RET | libc::BPF_A;
        const TXA: u32 = libc::BPF_MISC | libc::BPF_TXA;
        const ADD: u32 = libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K;
        const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
        match code {
            LD_W => a = load(k, 4)?,
            LD_H => a = load(k, 2)?,
            LD_B => a = load(k, 1)?,
            LD_B_IND => a = load(x.wrapping_add(k), 1)?,
            LD_H_IND => a = load(x.wrapping_add(k), 2)?,
            LD_LEN => a = u32::try_from(packet.bytes.len()).expect("packets are short"),
            LDX_MSH => x = (load(k, 1)? & 0xf) * 4,
            JEQ => branch(a == k),
            JGT => branch(a > k),
            JGE => branch(a >= k),
            JSET => branch(a & k != 0),
            TXA => a = x,
            ADD => a = a.wrapping_add(k),
            AND => a &= k,
            RET => return Some(k),
            RET_A => return Some(a),
            _ => panic!("an instruction that the filter should not need: {code:#x}"),
        }
    }
}

fn v4(protocol: u8, options: usize, fragment: u16, port: u16, length: usize) -> Vec<u8> {
    let mut packet = vec![0; 20 + options + 8 + length];
    packet[0] = 0x45 + u8::try_from(options / 4).expect("at most 10 words");
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet[9] = protocol;
    packet[22 + options..24 + options].copy_from_slice(&port.to_be_bytes());
    packet
}

/// An IPv6 packet with extension headers of 8 bytes, followed by a port.
fn v6(headers: &[u8], fragment: u16, port: u16) -> Vec<u8> {
    let (first, rest) = headers.split_first().expect("at least one");
    let mut packet = vec![0; 40];
    packet[0] = 0x60;
    packet[6] = *first;
    for (own, next) in headers.iter().zip(rest) {
        let place = if *own == 44 { fragment } else { 0 }.to_be_bytes();
        packet.extend([*next, 0, place[0], place[1], 0, 0, 0, 0]);
    }
    packet.extend([0, 0]);
    packet.extend(port.to_be_bytes());
    packet.extend([0; 100]);
    packet
}

/// Returns the result of the filter for UDP, which must be the same on each link layer. The
/// filter for UDP and TCP must return the same, unless the packet is TCP.
fn kept(family: Family, packet: &[u8]) -> u32 {
    let (plain, with) = (
        captured(family, packet, false),
        captured(family, packet, true),
    );
    assert!(with == plain || (plain, with) == (0, TCP_SNAPLEN));
    plain
}

fn captured(family: Family, packet: &[u8], segments: bool) -> u32 {
    let with = |whole_if| {
        captured_by(
            &RingSettings {
                whole_if,
                segments,
                ..RingSettings::new(family, 5000..=5003)
            },
            packet,
        )
    };
    // The payloads here are zeroes.
    assert_eq!(with(0x20), with(0));
    with(0)
}

fn captured_by(wanted: &RingSettings, packet: &[u8]) -> u32 {
    captured_at_random(wanted, packet, 1)
}

fn captured_at_random(wanted: &RingSettings, packet: &[u8], random: u32) -> u32 {
    let (family, program) = (wanted.family, program(wanted));
    let links: [(u32, &[u8]); 4] = [
        (libc::ARPHRD_ETHER.into(), &[]),
        (libc::ARPHRD_LOOPBACK.into(), &[]),
        (libc::ARPHRD_ETHER.into(), &[0x81, 0x00, 0x00, 0x07]),
        (libc::ARPHRD_NONE.into(), &[]),
    ];
    let results = links.map(|(hardware, tag)| {
        let mut bytes = Vec::new();
        if hardware != u32::from(libc::ARPHRD_NONE) {
            bytes.extend([2; 12]);
            bytes.extend(tag);
            bytes.extend(family.protocol().to_be_bytes());
        }
        let network = bytes.len();
        bytes.extend(packet);
        let shown = Shown {
            bytes: &bytes,
            network,
            hardware,
            random,
        };
        run(&program, &shown)
    });
    assert_eq!(results, [results[0]; 4]);
    results[0]
}

#[test]
fn ipv4_passes_udp_to_the_ports_whatever_its_options() {
    for options in [0, 4, 40] {
        for (port, expected) in [(4999, 0), (5000, 164), (5003, 164), (5004, 0)] {
            assert_eq!(kept(Family::V4, &v4(17, options, 0, port, 1200)), expected);
            // The first fragment has ports; "don't fragment" does not make a packet a fragment.
            assert_eq!(
                kept(Family::V4, &v4(17, options, 0x2000, port, 1200)),
                expected
            );
            assert_eq!(
                kept(Family::V4, &v4(17, options, 0x4000, port, 1200)),
                expected
            );
            assert_eq!(kept(Family::V4, &v4(6, options, 0, port, 1200)), 0);
        }
    }
    assert_eq!(kept(Family::V4, &v4(17, 0, 0x2001, 1, 1200)), 164);
    assert_eq!(kept(Family::V4, &v4(17, 0, 0x0fff, 1, 1200)), 164);
    assert_eq!(kept(Family::V4, &v4(6, 0, 0x2001, 1, 1200)), 0);
}

#[test]
fn packets_longer_than_the_mtu_are_captured_whole() {
    assert_eq!(kept(Family::V4, &v4(17, 0, 0, 5000, 1540)), 164);
    assert_eq!(kept(Family::V4, &v4(17, 0, 0, 5000, 1600)), WHOLE);
}

#[test]
fn datagrams_with_a_marked_bit_are_captured_whole() {
    for (bits, byte, expected) in [
        (0x20, 0x80, 164),
        (0x20, 0xa0, WHOLE),
        (0x30, 0x90, WHOLE),
        (0, 0xff, 164),
    ] {
        let wanted = |family| RingSettings {
            whole_if: bits,
            segments: true,
            ..RingSettings::new(family, 5000..=5003)
        };
        for options in [0, 40] {
            let mut packet = v4(17, options, 0, 5000, 1200);
            packet[24 + options..26 + options].copy_from_slice(&1208u16.to_be_bytes());
            packet[28 + options] = byte;
            assert_eq!(captured_by(&wanted(Family::V4), &packet), expected);
            // Another port.
            packet[22 + options] = 0xff;
            assert_eq!(captured_by(&wanted(Family::V4), &packet), 0);
            // An empty payload.
            let mut packet = v4(17, options, 0, 5000, 0);
            packet[24 + options..26 + options].copy_from_slice(&8u16.to_be_bytes());
            assert_eq!(captured_by(&wanted(Family::V4), &packet), 164);
        }
        let mut packet = v6(&[17], 0, 5000);
        packet[44..46].copy_from_slice(&104u16.to_be_bytes());
        packet[48] = byte;
        assert_eq!(captured_by(&wanted(Family::V6), &packet), expected);
        packet[44..46].copy_from_slice(&8u16.to_be_bytes());
        assert_eq!(captured_by(&wanted(Family::V6), &packet), 164);
    }
}

#[test]
fn sample_of_datagrams_is_captured_whole() {
    for (brief, less) in [
        (None, 164),
        (
            Some(ShortCapture {
                unless: 0x1f,
                bytes: 12,
            }),
            18 + 8 + 12,
        ),
    ] {
        for (bits, random, whole) in [
            (6, 0, true),
            (6, 64, true),
            (6, 0xffff_ffc0, true),
            (6, 1, false),
            (6, 63, false),
            (0, 12_345, true),
            (32, 0, true),
            (32, 1 << 31, false),
        ] {
            let captured = |family, packet: &[u8]| {
                let rule = RingSettings {
                    whole_sample: Some(bits),
                    brief,
                    segments: true,
                    ..RingSettings::new(family, 5000..=5003)
                };
                captured_at_random(&rule, packet, random)
            };
            let expected = |ip_header: u32| match (whole, brief) {
                (true, _) => WHOLE,
                (false, None) => less,
                (false, Some(_)) => less + ip_header,
            };
            let mut packet = v4(17, 0, 0, 5000, 1200);
            packet[24..26].copy_from_slice(&1208u16.to_be_bytes());
            packet[28] = 0x80;
            assert_eq!(captured(Family::V4, &packet), expected(20));
            packet[22] = 0xff;
            assert_eq!(captured(Family::V4, &packet), 0, "another port");
            assert_eq!(
                captured(Family::V4, &v4(6, 0, 0, 5000, 1200)),
                TCP_SNAPLEN,
                "TCP is no media"
            );
            let mut packet = v6(&[17], 0, 5000);
            packet[44..46].copy_from_slice(&104u16.to_be_bytes());
            packet[48] = 0x80;
            assert_eq!(captured(Family::V6, &packet), expected(40));
        }
    }
}

#[test]
fn only_first_bytes_of_brief_datagrams_are_captured() {
    let brief = Some(ShortCapture {
        unless: 0x1f,
        bytes: 12,
    });
    for (byte, v4_kept, v6_kept) in [
        (0x80, 18 + 20 + 8 + 12, 18 + 40 + 8 + 12),
        (0x81, 164, 164),
        (0x90, 164, 164),
        (0xa0, WHOLE, WHOLE),
    ] {
        let wanted = |family| RingSettings {
            whole_if: 0x20,
            brief,
            segments: true,
            ..RingSettings::new(family, 5000..=5003)
        };
        for options in [0u8, 40] {
            let at = usize::from(options);
            let kept = |length: usize, fragment: u16| {
                let mut packet = v4(17, at, fragment, 5000, length);
                let udp = u16::try_from(8 + length).expect("a datagram's length");
                packet[24 + at..26 + at].copy_from_slice(&udp.to_be_bytes());
                if length > 0 {
                    packet[28 + at] = byte;
                }
                captured_by(&wanted(Family::V4), &packet)
            };
            let more = if v4_kept < 100 { u32::from(options) } else { 0 };
            assert_eq!(kept(1200, 0), v4_kept + more);
            // An empty payload has no first byte. A packet of several datagrams and a later
            // fragment are not brief.
            assert_eq!(kept(0, 0), 164);
            assert_eq!(kept(1600, 0), WHOLE);
            assert_eq!(kept(1200, 1), 164);
        }
        let mut packet = v6(&[17], 0, 5000);
        packet[44..46].copy_from_slice(&104u16.to_be_bytes());
        packet[48] = byte;
        assert_eq!(captured_by(&wanted(Family::V6), &packet), v6_kept);
    }
}

#[test]
fn ipv6_passes_udp_to_the_ports_and_possible_udp() {
    for (port, expected) in [(4999, 0), (5000, 164), (5003, 164), (5004, 0)] {
        assert_eq!(kept(Family::V6, &v6(&[17], 0, port)), expected);
        assert_eq!(kept(Family::V6, &v6(&[44, 17], 1, port)), expected);
    }
    for fragment in [8, 0xfff8] {
        assert_eq!(kept(Family::V6, &v6(&[44, 17], fragment, 1)), 164);
    }
    for headers in [
        &[0, 17][..],
        &[60, 17],
        &[43, 17],
        &[0, 60, 44, 17],
        &[44, 60, 17],
    ] {
        assert_eq!(kept(Family::V6, &v6(headers, 0, 1)), 164, "{headers:?}");
    }
    for headers in [&[6][..], &[58], &[0, 58], &[60, 6], &[44, 6]] {
        assert_eq!(kept(Family::V6, &v6(headers, 0, 5000)), 0, "{headers:?}");
    }
}

#[test]
fn requested_tcp_passes_with_its_header_only() {
    for (port, expected) in [(4999, 0), (5000, 98), (5003, 98), (5004, 0)] {
        for length in [0, 1400, 60_000] {
            for options in [0, 40] {
                let packet = v4(6, options, 0x4000, port, length);
                assert_eq!(captured(Family::V4, &packet, true), expected);
            }
            for fragment in [0x2000, 0x2001, 1] {
                let packet = v4(6, 0, fragment, port, length);
                assert_eq!(captured(Family::V4, &packet, true), 0);
            }
        }
        assert_eq!(captured(Family::V6, &v6(&[6], 0, port), true), expected);
        // TCP behind extension headers is not looked for.
        assert_eq!(captured(Family::V6, &v6(&[60, 6], 0, port), true), 0);
    }
    assert_eq!(captured(Family::V4, &v4(1, 0, 0, 5000, 100), true), 0);
    assert_eq!(captured(Family::V6, &v6(&[58], 0, 5000), true), 0);
}

proptest! {
    #[test]
    fn filter_terminates_on_any_packet(bytes in prop::collection::vec(any::<u8>(), 0..200), network in 0usize..40) {
        for family in [Family::V4, Family::V6] {
            for segments in [false, true] {
                let brief = Some(ShortCapture { unless: 0x1f, bytes: 12 });
                let program = program(&RingSettings {
                    whole_if: 0x20,
                    whole_sample: Some(6),
                    brief,
                    segments,
                    ..RingSettings::new(family, 1..=65_535)
                });
                for hardware in [1, 772, 65_534] {
                    let kept = run(&program, &Shown { bytes: &bytes, network, hardware, random: 1 });
                    let known = [0, 164, WHOLE].contains(&kept) || (segments && kept == TCP_SNAPLEN);
                    let brief = kept.wrapping_sub(18 + 8 + 12);
                    prop_assert!(known || brief <= 60);
                }
            }
        }
    }
}
