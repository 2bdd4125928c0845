//! The filter that the kernel runs over every packet of one protocol: classic BPF (linux/filter.h).
//!
//! It passes UDP to a range of ports, and what may be part of such a datagram without telling a port.
//! Its result is how many bytes of the packet are kept, counted from the link-layer header.
//!
//! Headers are loaded relative to where the kernel says that the network header is
//! (`SKF_NET_OFF`), whatever link layer is below. But many kernels read that way only what lies in a
//! packet's first piece of memory, and a load that fails refuses the packet. So where the link layer is the
//! common one (Ethernet or loopback, without a VLAN tag in the packet), the loads are relative to the packet's beginning:
//! they reach everywhere, and are faster besides.

use std::ops::RangeInclusive;

use socket2::SockFilter;

use super::Family;

/// Packets longer than this are kept whole: they may stand for several datagrams of a local sender, whose
/// headers are spread over the packet. Longer than any packet on a link with the usual MTU of 1500.
pub(super) const WHOLE_ABOVE: u32 = 1600;

/// More than any packet has.
const WHOLE: u32 = 0x4_0000;

const NET_OFF: u32 = libc::SKF_NET_OFF as u32;
const HARDWARE_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_HATYPE) as u32;
const ETHERNET_BYTES: u32 = 14;

const UDP: u32 = 17;
const HOP_BY_HOP: u32 = 0;
const ROUTING: u32 = 43;
const FRAGMENT: u32 = 44;
const DESTINATION_OPTIONS: u32 = 60;

/// One instruction; a jump's targets are marks until the program is put together.
#[derive(Clone, Copy, Debug)]
struct Step {
    code: u32,
    k: u32,
    /// Where to go if the condition holds, and if not; the next instruction if there is no mark.
    to: (Option<Mark>, Option<Mark>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// At the headers relative to the packet's beginning.
    Absolute,
    /// At those relative to the network header.
    Network,
    /// Later fragment of either kind, or a port in the range.
    Accept,
    KeepAll,
    Refuse,
    /// Somewhere within the headers' part; of the two copies, each has its own.
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

/// The plain form of an instruction: code, jump if true, jump if false, operand.
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

    /// Goes on if the accumulator is `k`, else to `no`.
    fn require(&mut self, k: u32, no: Mark) {
        self.branch(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            k,
            None,
            Some(no),
        );
    }

    /// Goes to `yes` if the accumulator is `k`, else on.
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

/// The filter: UDP of `family` to `ports`, of which the first `snapshot` bytes are kept.
pub(super) fn udp(family: Family, ports: &RangeInclusive<u16>, snapshot: u32) -> Vec<Instruction> {
    let mut program = Program::default();
    program.load(libc::BPF_W, HARDWARE_TYPE);
    program.jump_if(u32::from(libc::ARPHRD_ETHER), Mark::Absolute);
    program.require(u32::from(libc::ARPHRD_LOOPBACK), Mark::Network);
    program.mark(Mark::Absolute);
    program.load(libc::BPF_H, ETHERNET_BYTES - 2);
    program.require(u32::from(family.protocol()), Mark::Network);
    headers(&mut program, family, ports, Base::Packet);
    program.mark(Mark::Network);
    headers(&mut program, family, ports, Base::Header);
    program.mark(Mark::Accept);
    program.push(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0);
    program.branch(
        libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K,
        WHOLE_ABOVE,
        Some(Mark::KeepAll),
        None,
    );
    program.push(libc::BPF_RET | libc::BPF_K, snapshot);
    program.mark(Mark::KeepAll);
    program.push(libc::BPF_RET | libc::BPF_K, WHOLE);
    program.mark(Mark::Refuse);
    program.push(libc::BPF_RET | libc::BPF_K, 0);
    program.finish()
}

/// Reads the headers at `base`; always ends in a jump.
fn headers(program: &mut Program, family: Family, ports: &RangeInclusive<u16>, base: Base) {
    let at = base.offset();
    match family {
        Family::V4 => {
            program.load(libc::BPF_B, at.wrapping_add(9));
            program.require(UDP, Mark::Refuse);
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
            port(program, ports);
        }
        Family::V6 => {
            let (plain, other) = (Mark::Within(0, base), Mark::Within(1, base));
            program.load(libc::BPF_B, at.wrapping_add(6));
            program.jump_if(UDP, plain);
            program.require(FRAGMENT, other);
            program.load(libc::BPF_B, at.wrapping_add(40));
            program.require(UDP, other);
            program.load(libc::BPF_H, at.wrapping_add(42));
            program.branch(
                libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K,
                0xfff8,
                Some(Mark::Accept),
                None,
            );
            program.load(libc::BPF_H, at.wrapping_add(48 + 2));
            port(program, ports);
            program.mark(plain);
            program.load(libc::BPF_H, at.wrapping_add(40 + 2));
            port(program, ports);
            // What stands behind other headers is looked at where loops can be written.
            program.mark(other);
            program.jump_if(HOP_BY_HOP, Mark::Accept);
            program.jump_if(ROUTING, Mark::Accept);
            program.branch(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                DESTINATION_OPTIONS,
                Some(Mark::Accept),
                Some(Mark::Refuse),
            );
        }
    }
}

/// Accepts if the accumulator holds a port of the range, and refuses else.
fn port(program: &mut Program, ports: &RangeInclusive<u16>) {
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
        Some(Mark::Accept),
    );
}

/// As the kernel wants it.
pub(super) fn assemble(program: &[Instruction]) -> Vec<SockFilter> {
    program
        .iter()
        .map(|&(code, yes, no, k)| SockFilter::new(code, yes, no, k))
        .collect()
}
