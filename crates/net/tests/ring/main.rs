//! Packet rings of the running kernel, compared with plain sockets that receive the same packets.
//!
//! The tests need the capability CAP_NET_RAW, and some need CAP_SYS_ADMIN; without it they print a
//! note and pass.

mod links;
mod local;
mod segments;
mod support;
