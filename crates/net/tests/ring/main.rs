//! Packet rings of the running kernel, held against plain sockets that receive the same packets.
//!
//! They need the capability CAP_NET_RAW, and some CAP_SYS_ADMIN; without it they say so and pass.

mod links;
mod local;
mod segments;
mod support;
