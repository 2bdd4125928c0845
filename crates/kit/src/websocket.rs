//! WebSockets (RFC 6455) without I/O, for both sides: the opening handshake and the frames after
//! it.

mod frames;
mod handshake;

pub use frames::{
    BINARY, CLOSE, FrameError, Limits, Message, NORMAL, PING, PONG, Reassembler, Received, TEXT,
    header_len, mask, write_control, write_header, write_message,
};
pub use handshake::{ClientHandshake, ServerHandshake, parse_url};
