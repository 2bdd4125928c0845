//! WebSockets (RFC 6455) without I/O, for both sides: the opening handshake and the frames after
//! it.

mod frames;
mod handshake;

pub use frames::{
    Assembly, BINARY, CLOSE, Frame, Item, Limits, Malformed, NORMAL, PING, PONG, TEXT, mask,
    overhead, write_control, write_header, write_message,
};
pub use handshake::{Acceptance, Upgrade, parse_url};
