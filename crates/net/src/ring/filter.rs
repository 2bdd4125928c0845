//! The filter that the kernel runs for every packet of one protocol: classic BPF (linux/filter.h).
//!
//! The filter accepts UDP to a range of ports, and packets that may be part of such a datagram
//! without containing a port; on request also TCP to the same ports. UDP takes as many instructions
//! with TCP as without. The result is the number of bytes to capture, counted from the link-layer
//! header.
//!
//! Headers are loaded relative to the network header as located by the kernel (`SKF_NET_OFF`),
//! whatever the link layer. However, many kernels can read only the first memory fragment of a
//! packet that way, and a failed load rejects the packet. For the common link layers (Ethernet or
//! loopback, without a VLAN tag in the packet), loads are therefore relative to the beginning of
//! the packet: they reach all of it, and they are faster.

use std::ops::RangeInclusive;

use socket2::SockFilter;

use super::{Brief, Family};

/// Longer packets are captured whole: they may hold several datagrams of a local sender, whose
/// headers are spread over the packet. Longer than any packet on a link with the usual MTU of 1500.
pub(super) const WHOLE_ABOVE: u32 = 1600;

/// Captured bytes of a TCP segment: Ethernet with a VLAN tag, the longest IPv4 header, and the TCP
/// header without its options. No more is copied, however long the segment is.
pub(super) const SEGMENT_KEPT: u32 = 18 + 60 + 20;

/// Longer than any packet.
const WHOLE: u32 = 0x4_0000;

const NET_OFF: u32 = libc::SKF_NET_OFF as u32;
const HARDWARE_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_HATYPE) as u32;
/// A random number, which the kernel draws for each load.
const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
const ETHERNET_BYTES: u32 = 14;
/// Length of a VLAN tag that the packet still contains.
const VLAN_BYTES: u32 = 4;
const UDP_BYTES: u32 = 8;

const TCP: u32 = 6;
const UDP: u32 = 17;
const HOP_BY_HOP: u32 = 0;
const ROUTING: u32 = 43;
const FRAGMENT: u32 = 44;
const DESTINATION_OPTIONS: u32 = 60;

/// One instruction; the targets of jumps are marks until the program is assembled.
#[derive(Clone, Copy, Debug)]
struct Step {
    code: u32,
    k: u32,
    /// Targets if the condition holds and if it does not; `None` is the next instruction.
    to: (Option<Mark>, Option<Mark>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// Checks of the headers relative to the beginning of the packet.
    Absolute,
    /// Checks of the headers relative to the network header.
    Network,
    /// A later fragment, or a port in the range.
    Accept,
    KeepAll,
    /// IPv4 of which only the headers and the first bytes are captured; the index register holds
    /// the length of the IP header.
    BriefV4,
    /// The same in IPv6, without extension headers.
    BriefV6,
    /// A TCP segment to a port in the range.
    AcceptSegment,
    Refuse,
    /// A target within the checks of the headers; each of the two copies has its own.
    Within(u8, Base),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Packet,
    Header,
}

impl Base {
    fn offset(self) -> u32 {
        match self {
            Base::Packet => ETHERNET_BYTES,
            Base::Header => NET_OFF,
        }
    }
}

/// An assembled instruction: code, jump if true, jump if false, operand.
pub(super) type Instruction = (u16, u8, u8, u32);

/// A filter under construction.
#[derive(Default)]
struct Program {
    steps: Vec<Step>,
    marks: Vec<(Mark, usize)>,
}

impl Program {
    fn mark(&mut self, mark: Mark) {
        self.marks.push((mark, self.steps.len()));
    }

    fn push(&mut self, code: u32, k: u32) {
        self.branch(code, k, None, None);
    }

    fn branch(&mut self, code: u32, k: u32, yes: Option<Mark>, no: Option<Mark>) {
        self.steps.push(Step {
            code,
            k,
            to: (yes, no),
        });
    }

    fn load(&mut self, size: u32, offset: u32) {
        self.push(libc::BPF_LD | size | libc::BPF_ABS, offset);
    }

    /// Continues if the accumulator is `k`, else jumps to `no`.
    fn require(&mut self, k: u32, no: Mark) {
        self.branch(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            k,
            None,
            Some(no),
        );
    }

    /// Continues if the accumulator is `k` or more, else jumps to `no`.
    fn at_least(&mut self, k: u32, no: Mark) {
        self.branch(
            libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K,
            k,
            None,
            Some(no),
        );
    }

    /// Accepts the datagram. The first byte of its payload, in the accumulator, selects how much is
    /// captured.
    fn keep_by_first_byte(&mut self, wanted: &FilterRule, brief: Mark) {
        let less = if wanted.brief.is_some() {
            None
        } else {
            Some(Mark::Accept)
        };
        self.branch(
            libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K,
            u32::from(wanted.whole_if),
            Some(Mark::KeepAll),
            less,
        );
        if let Some(Brief { unless, .. }) = wanted.brief {
            self.branch(
                libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K,
                u32::from(unless),
                Some(Mark::Accept),
                Some(brief),
            );
        }
    }

    /// Captures a random share of datagrams whole.
    fn keep_sample(&mut self, wanted: &FilterRule) {
        if let Some(bits) = wanted.whole_sample {
            self.load(libc::BPF_W, RANDOM);
            let mask = u32::MAX
                .checked_shr(32 - u32::from(bits.min(32)))
                .unwrap_or(0);
            // No bits: every packet.
            self.push(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask);
            self.jump_if(0, Mark::KeepAll);
        }
    }

    /// Jumps to the capture of the whole packet if it may hold several datagrams.
    fn keep_all_of_long(&mut self) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0);
        self.branch(
            libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K,
            WHOLE_ABOVE,
            Some(Mark::KeepAll),
            None,
        );
    }

    /// Jumps to `yes` if the accumulator is `k`, else continues.
    fn jump_if(&mut self, k: u32, yes: Mark) {
        self.branch(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            k,
            Some(yes),
            None,
        );
    }

    fn finish(self) -> Vec<Instruction> {
        let place = |mark: Mark| {
            let found = self.marks.iter().find(|(name, _)| *name == mark);
            found.expect("every mark that is jumped to is set").1
        };
        let distance = |from: usize, mark: Option<Mark>| {
            mark.map_or(0, |mark| {
                let steps = place(mark).checked_sub(from + 1);
                let steps = steps.expect("jumps go forward");
                u8::try_from(steps).expect("the program is short")
            })
        };
        let steps = self.steps.iter().enumerate();
        steps
            .map(|(index, step)| {
                let code = u16::try_from(step.code).expect("codes have 16 bits");
                (
                    code,
                    distance(index, step.to.0),
                    distance(index, step.to.1),
                    step.k,
                )
            })
            .collect()
    }
}

/// Packets that a filter accepts, and the number of bytes captured of each.
#[derive(Clone, Debug)]
pub(super) struct FilterRule {
    pub(super) family: Family,
    /// Destination ports.
    pub(super) ports: RangeInclusive<u16>,
    /// Captured bytes of a UDP packet.
    pub(super) snapshot: u32,
    /// UDP datagrams are captured whole if any of these bits is set in their first payload byte.
    pub(super) whole_if: u8,
    /// Share of UDP datagrams that are captured whole: one in 2 to the power of this, at random.
    pub(super) whole_sample: Option<u8>,
    /// UDP datagrams of which only the first bytes of the payload are captured.
    pub(super) brief: Option<Brief>,
    /// Accepts TCP too, and captures its header.
    pub(super) segments: bool,
}

/// Returns the filter for a rule.
pub(super) fn program(wanted: &FilterRule) -> Vec<Instruction> {
    let &FilterRule {
        family, snapshot, ..
    } = wanted;
    let mut program = Program::default();
    program.load(libc::BPF_W, HARDWARE_TYPE);
    program.jump_if(u32::from(libc::ARPHRD_ETHER), Mark::Absolute);
    program.require(u32::from(libc::ARPHRD_LOOPBACK), Mark::Network);
    program.mark(Mark::Absolute);
    program.load(libc::BPF_H, ETHERNET_BYTES - 2);
    program.require(u32::from(family.protocol()), Mark::Network);
    headers(&mut program, wanted, Base::Packet);
    program.mark(Mark::Network);
    headers(&mut program, wanted, Base::Header);
    if let Some(Brief { bytes, .. }) = wanted.brief {
        let around_ip = ETHERNET_BYTES + VLAN_BYTES + UDP_BYTES + u32::from(bytes);
        match family {
            Family::V4 => {
                program.mark(Mark::BriefV4);
                program.keep_all_of_long();
                program.push(libc::BPF_MISC | libc::BPF_TXA, 0);
                program.push(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, around_ip);
                program.push(libc::BPF_RET | libc::BPF_A, 0);
            }
            Family::V6 => {
                program.mark(Mark::BriefV6);
                program.keep_all_of_long();
                program.push(libc::BPF_RET | libc::BPF_K, around_ip + 40);
            }
        }
    }
    program.mark(Mark::Accept);
    program.keep_all_of_long();
    program.push(libc::BPF_RET | libc::BPF_K, snapshot);
    program.mark(Mark::KeepAll);
    program.push(libc::BPF_RET | libc::BPF_K, WHOLE);
    program.mark(Mark::AcceptSegment);
    program.push(libc::BPF_RET | libc::BPF_K, SEGMENT_KEPT);
    program.mark(Mark::Refuse);
    program.push(libc::BPF_RET | libc::BPF_K, 0);
    program.finish()
}

/// Appends the checks of the headers at `base`; they always end in a jump.
fn headers(program: &mut Program, wanted: &FilterRule, base: Base) {
    let &FilterRule {
        ref ports,
        segments,
        ..
    } = wanted;
    let at = base.offset();
    let by_first_byte =
        wanted.whole_if != 0 || wanted.brief.is_some() || wanted.whole_sample.is_some();
    let [tcp, payload] = [3, 4].map(|number| Mark::Within(number, base));
    let udp = if by_first_byte { payload } else { Mark::Accept };
    match wanted.family {
        Family::V4 => {
            program.load(libc::BPF_B, at.wrapping_add(9));
            program.require(UDP, if segments { tcp } else { Mark::Refuse });
            program.load(libc::BPF_H, at.wrapping_add(6));
            program.branch(
                libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K,
                0x1fff,
                Some(Mark::Accept),
                None,
            );
            program.push(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, at);
            program.push(
                libc::BPF_LD | libc::BPF_H | libc::BPF_IND,
                at.wrapping_add(2),
            );
            port(program, ports, udp);
            if by_first_byte {
                program.mark(payload);
                program.keep_sample(wanted);
                // An empty datagram has no first byte.
                program.push(
                    libc::BPF_LD | libc::BPF_H | libc::BPF_IND,
                    at.wrapping_add(4),
                );
                program.at_least(UDP_BYTES + 1, Mark::Accept);
                program.push(
                    libc::BPF_LD | libc::BPF_B | libc::BPF_IND,
                    at.wrapping_add(UDP_BYTES),
                );
                program.keep_by_first_byte(wanted, Mark::BriefV4);
            }
            if segments {
                program.mark(tcp);
                program.require(TCP, Mark::Refuse);
                // Only the first fragment contains a port, and none contains the segment's length.
                program.load(libc::BPF_H, at.wrapping_add(6));
                program.branch(
                    libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K,
                    0x3fff,
                    Some(Mark::Refuse),
                    None,
                );
                program.push(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, at);
                program.push(
                    libc::BPF_LD | libc::BPF_H | libc::BPF_IND,
                    at.wrapping_add(2),
                );
                port(program, ports, Mark::AcceptSegment);
            }
        }
        Family::V6 => {
            let [plain, other, behind] = [0, 1, 2].map(|number| Mark::Within(number, base));
            program.load(libc::BPF_B, at.wrapping_add(6));
            program.jump_if(UDP, plain);
            if segments {
                program.jump_if(TCP, tcp);
            }
            program.require(FRAGMENT, other);
            program.load(libc::BPF_B, at.wrapping_add(40));
            program.require(UDP, behind);
            program.load(libc::BPF_H, at.wrapping_add(42));
            program.branch(
                libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K,
                0xfff8,
                Some(Mark::Accept),
                None,
            );
            program.load(libc::BPF_H, at.wrapping_add(48 + 2));
            port(program, ports, Mark::Accept);
            program.mark(plain);
            program.load(libc::BPF_H, at.wrapping_add(40 + 2));
            port(program, ports, udp);
            if by_first_byte {
                program.mark(payload);
                program.keep_sample(wanted);
                program.load(libc::BPF_H, at.wrapping_add(40 + 4));
                program.at_least(UDP_BYTES + 1, Mark::Accept);
                program.load(libc::BPF_B, at.wrapping_add(40 + UDP_BYTES));
                program.keep_by_first_byte(wanted, Mark::BriefV6);
            }
            if segments {
                program.mark(tcp);
                program.load(libc::BPF_H, at.wrapping_add(40 + 2));
                port(program, ports, Mark::AcceptSegment);
            }
            // Headers further back are read later, by code that can loop. One extension header is
            // checked here, because the most frequent packets with one are not UDP (ICMPv6 with a
            // router alert).
            program.mark(other);
            program.jump_if(HOP_BY_HOP, behind);
            program.jump_if(ROUTING, behind);
            program.jump_if(FRAGMENT, behind);
            program.require(DESTINATION_OPTIONS, Mark::Refuse);
            program.mark(behind);
            program.load(libc::BPF_B, at.wrapping_add(40));
            program.jump_if(UDP, Mark::Accept);
            program.jump_if(ROUTING, Mark::Accept);
            program.jump_if(FRAGMENT, Mark::Accept);
            program.branch(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                DESTINATION_OPTIONS,
                Some(Mark::Accept),
                Some(Mark::Refuse),
            );
        }
    }
}

/// Jumps to `accept` if the accumulator holds a port of the range, else to `Refuse`.
fn port(program: &mut Program, ports: &RangeInclusive<u16>, accept: Mark) {
    program.branch(
        libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K,
        u32::from(*ports.start()),
        None,
        Some(Mark::Refuse),
    );
    program.branch(
        libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K,
        u32::from(*ports.end()),
        Some(Mark::Refuse),
        Some(accept),
    );
}

/// Converts a program to the kernel's format.
pub(super) fn assemble(program: &[Instruction]) -> Vec<SockFilter> {
    program
        .iter()
        .map(|&(code, yes, no, k)| SockFilter::new(code, yes, no, k))
        .collect()
}

#[cfg(test)]
mod tests {
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
        let (plain, with) = (says(family, packet, false), says(family, packet, true));
        assert!(with == plain || (plain, with) == (0, SEGMENT_KEPT));
        plain
    }

    fn says(family: Family, packet: &[u8], segments: bool) -> u32 {
        let with = |whole_if| {
            says_with(
                &FilterRule {
                    family,
                    ports: 5000..=5003,
                    snapshot: 164,
                    whole_if,
                    whole_sample: None,
                    brief: None,
                    segments,
                },
                packet,
            )
        };
        // The payloads here are zeroes.
        assert_eq!(with(0x20), with(0));
        with(0)
    }

    fn says_with(wanted: &FilterRule, packet: &[u8]) -> u32 {
        says_by(wanted, packet, 1)
    }

    fn says_by(wanted: &FilterRule, packet: &[u8], random: u32) -> u32 {
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
            let wanted = |family| FilterRule {
                family,
                ports: 5000..=5003,
                snapshot: 164,
                whole_if: bits,
                whole_sample: None,
                brief: None,
                segments: true,
            };
            for options in [0, 40] {
                let mut packet = v4(17, options, 0, 5000, 1200);
                packet[24 + options..26 + options].copy_from_slice(&1208u16.to_be_bytes());
                packet[28 + options] = byte;
                assert_eq!(says_with(&wanted(Family::V4), &packet), expected);
                // Another port.
                packet[22 + options] = 0xff;
                assert_eq!(says_with(&wanted(Family::V4), &packet), 0);
                // An empty payload.
                let mut packet = v4(17, options, 0, 5000, 0);
                packet[24 + options..26 + options].copy_from_slice(&8u16.to_be_bytes());
                assert_eq!(says_with(&wanted(Family::V4), &packet), 164);
            }
            let mut packet = v6(&[17], 0, 5000);
            packet[44..46].copy_from_slice(&104u16.to_be_bytes());
            packet[48] = byte;
            assert_eq!(says_with(&wanted(Family::V6), &packet), expected);
            packet[44..46].copy_from_slice(&8u16.to_be_bytes());
            assert_eq!(says_with(&wanted(Family::V6), &packet), 164);
        }
    }

    #[test]
    fn sample_of_datagrams_is_captured_whole() {
        for (brief, less) in [
            (None, 164),
            (
                Some(Brief {
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
                let says = |family, packet: &[u8]| {
                    let rule = FilterRule {
                        family,
                        ports: 5000..=5003,
                        snapshot: 164,
                        whole_if: 0,
                        whole_sample: Some(bits),
                        brief,
                        segments: true,
                    };
                    says_by(&rule, packet, random)
                };
                let expected = |ip_header: u32| match (whole, brief) {
                    (true, _) => WHOLE,
                    (false, None) => less,
                    (false, Some(_)) => less + ip_header,
                };
                let mut packet = v4(17, 0, 0, 5000, 1200);
                packet[24..26].copy_from_slice(&1208u16.to_be_bytes());
                packet[28] = 0x80;
                assert_eq!(says(Family::V4, &packet), expected(20));
                packet[22] = 0xff;
                assert_eq!(says(Family::V4, &packet), 0, "another port");
                assert_eq!(
                    says(Family::V4, &v4(6, 0, 0, 5000, 1200)),
                    SEGMENT_KEPT,
                    "TCP is no media"
                );
                let mut packet = v6(&[17], 0, 5000);
                packet[44..46].copy_from_slice(&104u16.to_be_bytes());
                packet[48] = 0x80;
                assert_eq!(says(Family::V6, &packet), expected(40));
            }
        }
    }

    #[test]
    fn only_first_bytes_of_brief_datagrams_are_captured() {
        let brief = Some(Brief {
            unless: 0x1f,
            bytes: 12,
        });
        for (byte, v4_kept, v6_kept) in [
            (0x80, 18 + 20 + 8 + 12, 18 + 40 + 8 + 12),
            (0x81, 164, 164),
            (0x90, 164, 164),
            (0xa0, WHOLE, WHOLE),
        ] {
            let wanted = |family| FilterRule {
                family,
                ports: 5000..=5003,
                snapshot: 164,
                whole_if: 0x20,
                whole_sample: None,
                brief,
                segments: true,
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
                    says_with(&wanted(Family::V4), &packet)
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
            assert_eq!(says_with(&wanted(Family::V6), &packet), v6_kept);
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
                    assert_eq!(says(Family::V4, &packet, true), expected);
                }
                for fragment in [0x2000, 0x2001, 1] {
                    let packet = v4(6, 0, fragment, port, length);
                    assert_eq!(says(Family::V4, &packet, true), 0);
                }
            }
            assert_eq!(says(Family::V6, &v6(&[6], 0, port), true), expected);
            // TCP behind extension headers is not looked for.
            assert_eq!(says(Family::V6, &v6(&[60, 6], 0, port), true), 0);
        }
        assert_eq!(says(Family::V4, &v4(1, 0, 0, 5000, 100), true), 0);
        assert_eq!(says(Family::V6, &v6(&[58], 0, 5000), true), 0);
    }

    proptest! {
        #[test]
        fn filter_terminates_on_any_packet(bytes in prop::collection::vec(any::<u8>(), 0..200), network in 0usize..40) {
            for family in [Family::V4, Family::V6] {
                for segments in [false, true] {
                    let brief = Some(Brief { unless: 0x1f, bytes: 12 });
                    let program = program(&FilterRule { family, ports: 1..=65_535, snapshot: 164, whole_if: 0x20, whole_sample: Some(6), brief, segments });
                    for hardware in [1, 772, 65_534] {
                        let kept = run(&program, &Shown { bytes: &bytes, network, hardware, random: 1 });
                        let known = [0, 164, WHOLE].contains(&kept) || (segments && kept == SEGMENT_KEPT);
                        let brief = kept.wrapping_sub(18 + 8 + 12);
                        prop_assert!(known || brief <= 60);
                    }
                }
            }
        }
    }
}
