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

use super::{Family, RingSettings, ShortCapture};

/// Longer packets are captured whole: they may hold several datagrams of a local sender, whose
/// headers are spread over the packet. Longer than any packet on a link with the usual MTU of 1500.
pub(super) const WHOLE_ABOVE: u32 = 1600;

/// Captured bytes of a TCP segment: Ethernet with a VLAN tag, the longest IPv4 header, and the TCP
/// header without its options. No more is copied, however long the segment is.
pub(super) const TCP_SNAPLEN: u32 = 18 + 60 + 20;

/// Longer than any packet.
pub(crate) const WHOLE: u32 = 0x4_0000;

const NET_OFF: u32 = libc::SKF_NET_OFF as u32;
const HARDWARE_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_HATYPE) as u32;
/// A random number, which the kernel draws for each load.
const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
const ETHERNET_BYTES: u32 = 14;
/// Length of a VLAN tag that the packet still contains.
const VLAN_BYTES: u32 = 4;
pub(crate) const UDP_BYTES: u32 = 8;

/// Jumps if the accumulator is the operand, is not smaller, is larger, or has a bit in common with
/// it.
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
pub(crate) const ABOVE: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
const COMMON_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;

const TCP: u32 = 6;
const UDP: u32 = 17;
const HOP_BY_HOP: u32 = 0;
const ROUTING: u32 = 43;
const FRAGMENT: u32 = 44;
const DESTINATION_OPTIONS: u32 = 60;

/// One instruction; the targets of jumps are labels until the program is assembled.
#[derive(Clone, Copy, Debug)]
struct Step {
    code: u32,
    k: u32,
    /// Targets if the condition holds and if it does not; `None` is the next instruction.
    to: (Option<Label>, Option<Label>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
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
pub(crate) enum Base {
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
pub(crate) type Instruction = (u16, u8, u8, u32);

/// A filter under construction.
#[derive(Default)]
pub(crate) struct Program {
    steps: Vec<Step>,
    labels: Vec<(Label, usize)>,
}

impl Program {
    /// Sets the position of a label: the next instruction.
    pub(crate) fn set_label(&mut self, label: Label) {
        self.labels.push((label, self.steps.len()));
    }

    pub(crate) fn push(&mut self, code: u32, k: u32) {
        self.branch(code, k, None, None);
    }

    /// Jumps to `yes` if the condition holds, else to `no`; `None` is the next instruction.
    pub(crate) fn branch(&mut self, code: u32, k: u32, yes: Option<Label>, no: Option<Label>) {
        self.steps.push(Step {
            code,
            k,
            to: (yes, no),
        });
    }

    pub(crate) fn load(&mut self, size: u32, offset: u32) {
        self.push(libc::BPF_LD | size | libc::BPF_ABS, offset);
    }

    /// Loads the length of the packet.
    pub(crate) fn load_length(&mut self) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0);
    }

    /// Loads from behind the IPv4 header, whose length the index register holds.
    fn load_behind(&mut self, size: u32, offset: u32) {
        self.push(libc::BPF_LD | size | libc::BPF_IND, offset);
    }

    /// Continues if the accumulator is `k`, else jumps to `no`.
    fn require(&mut self, k: u32, no: Label) {
        self.branch(EQUAL, k, None, Some(no));
    }

    /// Continues if the accumulator is `k` or more, else jumps to `no`.
    pub(crate) fn at_least(&mut self, k: u32, no: Label) {
        self.branch(AT_LEAST, k, None, Some(no));
    }

    /// Accepts the datagram. The first byte of its payload, in the accumulator, selects how much is
    /// captured.
    fn keep_by_first_byte(&mut self, rule: &RingSettings, brief: Label) {
        let less = rule.brief.is_none().then_some(Label::Accept);
        self.branch(COMMON_BIT, rule.whole_if.into(), Some(Label::KeepAll), less);
        if let Some(ShortCapture { unless, .. }) = rule.brief {
            self.branch(COMMON_BIT, unless.into(), Some(Label::Accept), Some(brief));
        }
    }

    /// Captures a random share of datagrams whole.
    fn keep_sample(&mut self, rule: &RingSettings) {
        if let Some(bits) = rule.whole_sample {
            self.load(libc::BPF_W, RANDOM);
            let mask = u32::MAX
                .checked_shr(32 - u32::from(bits.min(32)))
                .unwrap_or(0);
            // No bits: every packet.
            self.push(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask);
            self.jump_if(0, Label::KeepAll);
        }
    }

    /// Jumps to the capture of the whole packet if it may hold several datagrams.
    fn keep_all_of_long(&mut self) {
        self.load_length();
        self.branch(ABOVE, WHOLE_ABOVE, Some(Label::KeepAll), None);
    }

    /// Jumps to `yes` if the accumulator is `k`, else continues.
    fn jump_if(&mut self, k: u32, yes: Label) {
        self.branch(EQUAL, k, Some(yes), None);
    }

    pub(crate) fn finish(self) -> Vec<Instruction> {
        let position = |label: Label| {
            let found = self.labels.iter().find(|(name, _)| *name == label);
            found.expect("every label that is jumped to is set").1
        };
        let distance = |from: usize, label: Option<Label>| {
            label.map_or(0, |label| {
                let steps = position(label).checked_sub(from + 1);
                let steps = steps.expect("jumps go forward");
                u8::try_from(steps).expect("the program is short")
            })
        };
        let steps = self.steps.iter().enumerate();
        steps
            .map(|(index, step)| {
                let code = u16::try_from(step.code).expect("codes have 16 bits");
                let (yes, no) = step.to;
                (code, distance(index, yes), distance(index, no), step.k)
            })
            .collect()
    }
}

/// Returns the filter for a ring with these settings.
pub(super) fn program(rule: &RingSettings) -> Vec<Instruction> {
    let family = rule.family;
    let mut program = Program::default();
    program.load(libc::BPF_W, HARDWARE_TYPE);
    program.jump_if(u32::from(libc::ARPHRD_ETHER), Label::Absolute);
    program.require(u32::from(libc::ARPHRD_LOOPBACK), Label::Network);
    program.set_label(Label::Absolute);
    program.load(libc::BPF_H, ETHERNET_BYTES - 2);
    program.require(u32::from(family.protocol()), Label::Network);
    headers(&mut program, rule, Base::Packet);
    program.set_label(Label::Network);
    headers(&mut program, rule, Base::Header);
    if let Some(ShortCapture { bytes, .. }) = rule.brief {
        let around_ip = ETHERNET_BYTES + VLAN_BYTES + UDP_BYTES + u32::from(bytes);
        match family {
            Family::V4 => {
                program.set_label(Label::BriefV4);
                program.keep_all_of_long();
                program.push(libc::BPF_MISC | libc::BPF_TXA, 0);
                program.push(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, around_ip);
                program.push(libc::BPF_RET | libc::BPF_A, 0);
            }
            Family::V6 => {
                program.set_label(Label::BriefV6);
                program.keep_all_of_long();
                program.push(libc::BPF_RET | libc::BPF_K, around_ip + 40);
            }
        }
    }
    program.set_label(Label::Accept);
    program.keep_all_of_long();
    let snapshot = u32::try_from(rule.snaplen).unwrap_or(u32::MAX);
    program.push(libc::BPF_RET | libc::BPF_K, snapshot);
    program.set_label(Label::KeepAll);
    program.push(libc::BPF_RET | libc::BPF_K, WHOLE);
    program.set_label(Label::AcceptSegment);
    program.push(libc::BPF_RET | libc::BPF_K, TCP_SNAPLEN);
    program.set_label(Label::Refuse);
    program.push(libc::BPF_RET | libc::BPF_K, 0);
    program.finish()
}

/// Appends the checks of the headers at `base`; they always end in a jump.
fn headers(program: &mut Program, rule: &RingSettings, base: Base) {
    let (ports, segments) = (&rule.ports, rule.segments);
    let at = base.offset();
    let by_first_byte = rule.whole_if != 0 || rule.brief.is_some() || rule.whole_sample.is_some();
    let [tcp, payload] = [3, 4].map(|number| Label::Within(number, base));
    let udp = if by_first_byte {
        payload
    } else {
        Label::Accept
    };
    match rule.family {
        Family::V4 => {
            program.load(libc::BPF_B, at.wrapping_add(9));
            program.require(UDP, if segments { tcp } else { Label::Refuse });
            program.load(libc::BPF_H, at.wrapping_add(6));
            program.branch(COMMON_BIT, 0x1fff, Some(Label::Accept), None);
            program.push(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, at);
            program.load_behind(libc::BPF_H, at.wrapping_add(2));
            port(program, ports, udp);
            if by_first_byte {
                program.set_label(payload);
                program.keep_sample(rule);
                // An empty datagram has no first byte.
                program.load_behind(libc::BPF_H, at.wrapping_add(4));
                program.at_least(UDP_BYTES + 1, Label::Accept);
                program.load_behind(libc::BPF_B, at.wrapping_add(UDP_BYTES));
                program.keep_by_first_byte(rule, Label::BriefV4);
            }
            if segments {
                program.set_label(tcp);
                program.require(TCP, Label::Refuse);
                // Only the first fragment contains a port, and none contains the segment's length.
                program.load(libc::BPF_H, at.wrapping_add(6));
                program.branch(COMMON_BIT, 0x3fff, Some(Label::Refuse), None);
                program.push(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, at);
                program.load_behind(libc::BPF_H, at.wrapping_add(2));
                port(program, ports, Label::AcceptSegment);
            }
        }
        Family::V6 => {
            let [plain, other, behind] = [0, 1, 2].map(|number| Label::Within(number, base));
            program.load(libc::BPF_B, at.wrapping_add(6));
            program.jump_if(UDP, plain);
            if segments {
                program.jump_if(TCP, tcp);
            }
            program.require(FRAGMENT, other);
            program.load(libc::BPF_B, at.wrapping_add(40));
            program.require(UDP, behind);
            program.load(libc::BPF_H, at.wrapping_add(42));
            program.branch(COMMON_BIT, 0xfff8, Some(Label::Accept), None);
            program.load(libc::BPF_H, at.wrapping_add(48 + 2));
            port(program, ports, Label::Accept);
            program.set_label(plain);
            program.load(libc::BPF_H, at.wrapping_add(40 + 2));
            port(program, ports, udp);
            if by_first_byte {
                program.set_label(payload);
                program.keep_sample(rule);
                program.load(libc::BPF_H, at.wrapping_add(40 + 4));
                program.at_least(UDP_BYTES + 1, Label::Accept);
                program.load(libc::BPF_B, at.wrapping_add(40 + UDP_BYTES));
                program.keep_by_first_byte(rule, Label::BriefV6);
            }
            if segments {
                program.set_label(tcp);
                program.load(libc::BPF_H, at.wrapping_add(40 + 2));
                port(program, ports, Label::AcceptSegment);
            }
            // Headers further back are read later, by code that can loop. One extension header is
            // checked here, because the most frequent packets with one are not UDP (ICMPv6 with a
            // router alert).
            program.set_label(other);
            program.jump_if(HOP_BY_HOP, behind);
            program.jump_if(ROUTING, behind);
            program.jump_if(FRAGMENT, behind);
            program.require(DESTINATION_OPTIONS, Label::Refuse);
            program.set_label(behind);
            program.load(libc::BPF_B, at.wrapping_add(40));
            program.jump_if(UDP, Label::Accept);
            program.jump_if(ROUTING, Label::Accept);
            program.jump_if(FRAGMENT, Label::Accept);
            let (yes, no) = (Some(Label::Accept), Some(Label::Refuse));
            program.branch(EQUAL, DESTINATION_OPTIONS, yes, no);
        }
    }
}

/// Jumps to `accept` if the accumulator holds a port of the range, else to `Refuse`.
fn port(program: &mut Program, ports: &RangeInclusive<u16>, accept: Label) {
    let refuse = Some(Label::Refuse);
    program.branch(AT_LEAST, u32::from(*ports.start()), None, refuse);
    program.branch(ABOVE, u32::from(*ports.end()), refuse, Some(accept));
}

/// Converts a program to the kernel's format.
pub(crate) fn assemble(program: &[Instruction]) -> Vec<SockFilter> {
    program
        .iter()
        .map(|&(code, yes, no, k)| SockFilter::new(code, yes, no, k))
        .collect()
}

#[cfg(test)]
mod tests;
