//! What goes over the wire. Nothing here keeps state, and nothing is copied.

pub mod handshake;
pub mod packet;
pub mod stream_id;
