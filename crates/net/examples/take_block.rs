//! Parses blocks of a packet ring many times; `bench/instructions` counts the instructions
//! executed. It uses the ring's fuzzing entry point and must therefore be built with `--cfg
//! fuzzing`.
//!
//! Usage: `take_block block NUMBER`, where NUMBER is the number of packets.

use std::process::ExitCode;

/// Packets per block: about as many truncated packets as fit into 1 MiB.
const PACKETS: usize = 4000;
/// Number of destination ports, used in turn.
const PORTS: usize = 1000;
/// Captured bytes of a packet: the headers of IPv4 and UDP, and the beginning of RTP.
const KEPT: usize = 28 + 76;
const LENGTH: usize = 28 + 1000;
/// Offsets of the link-layer header and the network header in a frame, as the kernel lays them out.
const LINK: usize = 92;
const NETWORK: usize = LINK + 14;
/// Length of `struct tpacket_block_desc`.
const BLOCK_HEADER: usize = 48;

/// Builds a block in the kernel's layout (linux/if_packet.h), full of packets to 127.0.0.1.
fn block() -> Vec<u8> {
    let mut packet = [0u8; KEPT];
    packet[..20].copy_from_slice(&[
        0x45, 0, 4, 4, 0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1,
    ]);
    packet[20..28].copy_from_slice(&[0x9c, 0x40, 0x9c, 0x42, 3, 0xf0, 0, 0]);
    let distance = (NETWORK + KEPT).next_multiple_of(16);
    let mut block = vec![0; BLOCK_HEADER + PACKETS * distance];
    let set = |block: &mut [u8], at: usize, value: usize| {
        block[at..at + 4].copy_from_slice(&(value as u32).to_ne_bytes());
    };
    set(&mut block, 12, PACKETS);
    set(&mut block, 16, BLOCK_HEADER);
    for number in 0..PACKETS {
        let frame = &mut block[BLOCK_HEADER + number * distance..][..distance];
        let values = [distance, 1_700_000_000, 5, 14 + KEPT, 14 + LENGTH];
        for (place, value) in values.into_iter().enumerate() {
            set(frame, place * 4, value);
        }
        frame[24..26].copy_from_slice(&(LINK as u16).to_ne_bytes());
        frame[26..28].copy_from_slice(&(NETWORK as u16).to_ne_bytes());
        set(frame, 52, 1);
        let port = 40_000 + (number % PORTS * 2) as u16;
        packet[22..24].copy_from_slice(&port.to_be_bytes());
        frame[NETWORK..][..KEPT].copy_from_slice(&packet);
    }
    block
}

#[cfg(fuzzing)]
#[inline(never)]
fn measured_block(bytes: &[u8], times: usize) {
    for _ in 0..times {
        net::ring::read_any(std::hint::black_box(bytes));
    }
}

#[cfg(not(fuzzing))]
fn measured_block(_: &[u8], _: usize) {
    panic!("built without --cfg fuzzing");
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_default();
    let Some(number) = arguments.next().and_then(|text| text.parse::<usize>().ok()) else {
        return ExitCode::from(2);
    };
    if path != "block" {
        return ExitCode::from(2);
    }
    // Flags of `read_any`: a block, a range of 2048 ports, brief datagrams.
    let bytes = [&[6][..], &block()].concat();
    measured_block(&bytes, number.div_ceil(PACKETS));
    ExitCode::SUCCESS
}
