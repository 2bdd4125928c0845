//! Messages between a client and its receiver: lines of JSON over a TCP connection, one message
//! each.
//!
//! Events carry their age at the time of sending, so that the two sides need no common clock.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::media::rtp::StreamCounts;
use crate::mediagen::steps;

/// Version of the protocol. Both sides must have the same.
pub const VERSION: u32 = 1;

/// Maximum length of a line in bytes.
pub const LINE_MAX: usize = 64 * 1024;

/// Maximum number of streams of one client.
pub const STREAMS_MAX: u8 = 32;

/// Maximum number of payload types of one stream.
const TYPES_MAX: usize = 128;

/// A message from a receiver to a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiverMessage {
    /// First message.
    Hello {
        /// See [`VERSION`].
        version: u32,
        /// Must be answered with its [`proof`](super::proof::proof).
        challenge: String,
    },
    /// The receiver takes the stream's media at this port, and RTCP at the next one.
    Opened {
        stream: u8,
        /// Address of the receiver.
        address: IpAddr,
        /// Even port of the pair.
        port: u16,
    },
    /// Refusal. The connection then ends.
    Refused {
        /// Reason of the refusal.
        why: String,
    },
    /// The first packet of a stream has arrived.
    First {
        stream: u8,
        /// Age in nanoseconds.
        age: u64,
    },
    /// Interim counts of a stream, sent periodically.
    Seen(StreamState),
    /// The sender of a stream has announced its end (RTCP BYE).
    Bye {
        stream: u8,
        /// Age in nanoseconds.
        age: u64,
    },
    /// Last message: counting is finished, and the ports are closed.
    Closed {
        /// Final counts of each stream.
        streams: Vec<StreamState>,
    },
}

/// Counts of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamState {
    pub stream: u8,
    /// Ages of the first and the last packet in nanoseconds.
    pub ages: Option<(u64, u64)>,
    pub counts: StreamCounts,
    /// Total duration of the stalls in nanoseconds.
    pub stalled: u64,
}

/// A message from a client to a receiver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientMessage {
    /// Proof that the client knows the secret; see [`proof`](super::proof::proof).
    Proof {
        /// Response to the challenge.
        proof: String,
    },
    /// Request to receive a stream's media.
    Open(StreamRequest),
    /// The server that will send a stream.
    Peer {
        stream: u8,
        /// Source address of the media. Packets from other addresses do not count.
        media: SocketAddr,
        /// Destination of the receiver's RTCP; port 0 if unknown.
        control: SocketAddr,
    },
    /// The server's first sequence number of a stream.
    Base {
        stream: u8,
        sequence: u16,
        /// Timestamp of the packet with that number, if it identifies the packet: see
        /// [`RtpReceiver::set_base`](crate::media::rtp::RtpReceiver::set_base).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rtptime: Option<u32>,
    },
    /// All streams have ended: finish counting and close the ports.
    Close,
}

/// A stream to receive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamRequest {
    /// Number of the stream, from 0.
    pub stream: u8,
    /// RTP clock rate; see [`ReceiverConfig`](crate::media::rtp::ReceiverConfig).
    pub clock_rate: u32,
    /// Accepted payload types.
    pub payload_types: Vec<u8>,
    /// Playout buffer in nanoseconds.
    pub playout_buffer: u64,
    /// `true` to send receiver reports (RFC 3550, 6.4.2).
    pub reports: bool,
    /// Interval between interim counts in nanoseconds.
    pub every: u64,
}

impl StreamRequest {
    /// Returns `true` if the request is within the limits.
    pub(super) fn is_valid(&self) -> bool {
        self.stream < STREAMS_MAX && self.payload_types.len() <= TYPES_MAX
    }
}

/// Serializes a message with its line end.
pub fn to_line(message: &impl Serialize) -> Vec<u8> {
    let mut line =
        serde_json::to_vec(message).expect("messages contain no maps with keys other than text");
    line.push(b'\n');
    line
}

/// Splits received bytes into lines.
#[derive(Debug, Default)]
pub struct LineSplitter(Vec<u8>);

/// A line exceeds the maximum length.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

impl LineSplitter {
    /// Adds bytes and passes each complete line to `each`. Never buffers more than `max` bytes.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        max: usize,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), TooLong> {
        while let Some(end) = steps::find(bytes, b'\n') {
            let (rest, after) = (&bytes[..end], &bytes[end + 1..]);
            if self.0.len() + rest.len() > max {
                return Err(TooLong);
            }
            if self.0.is_empty() {
                each(rest);
            } else {
                self.0.extend_from_slice(rest);
                each(&self.0);
                self.0.clear();
            }
            bytes = after;
        }
        if self.0.len() + bytes.len() > max {
            return Err(TooLong);
        }
        steps::count_bytes(bytes.len());
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_are_complete_wherever_input_is_split(
            lines in proptest::collection::vec("[a-z]{0,20}", 0..10),
            cuts in proptest::collection::vec(1usize..7, 1..20),
        ) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let (mut taken, mut found) = (LineSplitter::default(), Vec::new());
            let mut rest = text.as_bytes();
            for &cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at(cut.min(rest.len()));
                rest = later;
                taken
                    .feed(now, 20, |line| found.push(String::from_utf8(line.to_vec()).expect("letters")))
                    .expect("no line is longer");
            }
            prop_assert_eq!(found, lines);
        }

        #[test]
        fn buffered_bytes_are_bounded(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut taken = LineSplitter::default();
            for part in bytes.chunks(7) {
                if taken.feed(part, 16, |line| assert!(line.len() <= 16)).is_err() {
                    break;
                }
                prop_assert!(taken.0.len() <= 16);
            }
        }
    }

    #[test]
    fn lines_are_split_in_linear_time() {
        for text in ["\n", "x", "{}\n", &format!("{}\n", "x".repeat(60_000))] {
            let make = |size| text.bytes().cycle().take(size).collect();
            steps::assert_linear("lines", 8, make, |pieces| {
                let mut lines = LineSplitter::default();
                for piece in pieces {
                    let fed = lines.feed(piece, LINE_MAX, |line| steps::count_bytes(line.len()));
                    if fed.is_err() {
                        lines = LineSplitter::default();
                    }
                }
            });
        }
    }

    #[test]
    fn messages_survive_serialization() {
        let wanted = StreamRequest {
            stream: 1,
            clock_rate: 90_000,
            payload_types: vec![96],
            playout_buffer: 1_000_000_000,
            reports: true,
            every: 500_000_000,
        };
        assert!(wanted.is_valid());
        for asked in [
            ClientMessage::Proof {
                proof: "ab".to_owned(),
            },
            ClientMessage::Open(wanted.clone()),
            ClientMessage::Peer {
                stream: 0,
                media: "[2001:db8::1]:5000".parse().expect("an address"),
                control: "10.0.0.1:0".parse().expect("an address"),
            },
            ClientMessage::Base {
                stream: 0,
                sequence: 65_535,
                rtptime: None,
            },
            ClientMessage::Base {
                stream: 1,
                sequence: 0,
                rtptime: Some(u32::MAX),
            },
            ClientMessage::Close,
        ] {
            let line = to_line(&asked);
            assert_eq!(
                serde_json::from_slice::<ClientMessage>(&line).expect("as written"),
                asked
            );
        }
        let message = ReceiverMessage::Closed {
            streams: vec![StreamState {
                ages: Some((5, 3)),
                ..StreamState::default()
            }],
        };
        let text = to_line(&message);
        assert_eq!(
            serde_json::from_slice::<ReceiverMessage>(&text).expect("as written"),
            message
        );
        let many = StreamRequest {
            stream: 32,
            ..wanted
        };
        assert!(!many.is_valid());
    }
}
