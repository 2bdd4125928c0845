//! Wire formats: stateless, and zero-copy except for text extensions.

pub mod handshake;
pub mod packet;
pub mod stream_id;
