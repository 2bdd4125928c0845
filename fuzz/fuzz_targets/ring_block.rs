//! Any bytes as a block of the packet ring, or as packets out of one: nothing may panic, hang or leave its bounds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| net::ring::read_any(bytes));
