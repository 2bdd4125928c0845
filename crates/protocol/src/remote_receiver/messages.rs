//! What a client and its receiver say to each other: lines of JSON over a TCP connection, one
//! message each.
//!
//! Ages are how long ago something was when it was said, so that the two need no common clock.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::media::rtp::StreamCounts;
use mediagen::steps;

/// The version of this language. Both must speak the same.
pub const VERSION: u32 = 1;

/// The longest line, in bytes.
pub const LINE_MAX: usize = 64 * 1024;

/// Most streams of one client.
pub const STREAMS_MAX: u8 = 32;

/// Most payload types of one stream.
const TYPES_MAX: usize = 128;

/// What a receiver says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// Comes first.
    Hello {
        /// See [`VERSION`].
        version: u32,
        /// What has to be answered with its [`proof`](super::proof).
        challenge: String,
    },
    /// It takes the stream's media at this port, and RTCP at the next.
    Opened {
        /// Which stream.
        stream: u8,
        /// Its own address.
        address: IpAddr,
        /// The even port.
        port: u16,
    },
    /// It will not; the connection ends.
    Refused {
        /// Why.
        why: String,
    },
    /// The first packet of a stream has arrived.
    First {
        /// Which stream.
        stream: u8,
        /// How long ago, in nanoseconds.
        age: u64,
    },
    /// How a stream stands, every now and then.
    Seen(StreamState),
    /// The sender of a stream has said that it ended (RTCP BYE).
    Bye {
        /// Which stream.
        stream: u8,
        /// How long ago, in nanoseconds.
        age: u64,
    },
    /// All is counted, and the ports are closed. The last.
    Closed {
        /// How each stream ended.
        streams: Vec<StreamState>,
    },
}

/// What has come of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamState {
    /// Which stream.
    pub stream: u8,
    /// How long ago its first and last packets came, in nanoseconds.
    pub ages: Option<(u64, u64)>,
    /// What was counted.
    pub counts: StreamCounts,
}

/// What a client asks of a receiver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// It may ask: see [`proof`](super::proof).
    Proof {
        /// Of the challenge.
        proof: String,
    },
    /// Take a stream's media.
    Open(StreamOrder),
    /// A server was found that will send.
    Peer {
        /// Which stream.
        stream: u8,
        /// Where media comes from; other addresses' packets do not count.
        media: SocketAddr,
        /// Where its RTCP goes to; port 0 where that is not known.
        control: SocketAddr,
    },
    /// The server said with which sequence number the stream begins.
    Base {
        /// Which stream.
        stream: u8,
        /// The number.
        sequence: u16,
        /// The timestamp of the packet with that number, where it tells which that is: see
        /// [`RtpReceiver::set_base`](crate::media::rtp::RtpReceiver::set_base).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rtptime: Option<u32>,
    },
    /// All streams are over: count them to the end, and close the ports.
    Close,
}

/// A stream whose media is to be taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamOrder {
    /// Its number, from 0.
    pub stream: u8,
    /// See [`ReceiverConfig`](crate::media::rtp::ReceiverConfig).
    pub clock_rate: u32,
    /// The same.
    pub payload_types: Vec<u8>,
    /// The same, in nanoseconds.
    pub playout_buffer: u64,
    /// Whether receiver reports are sent (RFC 3550, 6.4.2).
    pub reports: bool,
    /// How often it is to be said how the stream stands, in nanoseconds.
    pub every: u64,
}

impl StreamOrder {
    /// Whether it can be meant.
    pub(super) fn is_sound(&self) -> bool {
        self.stream < STREAMS_MAX && self.payload_types.len() <= TYPES_MAX
    }
}

/// A message as it is sent.
pub fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line =
        serde_json::to_vec(message).expect("messages have no map with keys that are no text");
    line.push(b'\n');
    line
}

/// Takes lines out of what comes.
#[derive(Debug, Default)]
pub struct Lines(Vec<u8>);

/// A line is longer than is taken.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

impl Lines {
    /// Takes bytes in, and hands out each line that is whole; what is held never grows past `most`.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        most: usize,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), TooLong> {
        while let Some(end) = steps::find(bytes, b'\n') {
            let (rest, after) = (&bytes[..end], &bytes[end + 1..]);
            if self.0.len() + rest.len() > most {
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
        if self.0.len() + bytes.len() > most {
            return Err(TooLong);
        }
        steps::took(bytes.len());
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
        fn lines_come_whole_wherever_they_were_cut(
            lines in proptest::collection::vec("[a-z]{0,20}", 0..10),
            cuts in proptest::collection::vec(1usize..7, 1..20),
        ) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let (mut taken, mut found) = (Lines::default(), Vec::new());
            let mut rest = text.as_bytes();
            for &cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at(cut.min(rest.len()));
                rest = later;
                taken
                    .feed(now, 20, |line| found.push(String::from_utf8(line.to_vec()).expect("letters")))
                    .expect("none is longer");
            }
            prop_assert_eq!(found, lines);
        }

        #[test]
        fn what_is_held_is_bounded(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut taken = Lines::default();
            for part in bytes.chunks(7) {
                if taken.feed(part, 16, |line| assert!(line.len() <= 16)).is_err() {
                    break;
                }
                prop_assert!(taken.0.len() <= 16);
            }
        }
    }

    #[test]
    fn lines_are_taken_in_linear_time() {
        for text in ["\n", "x", "{}\n", &format!("{}\n", "x".repeat(60_000))] {
            let make = |size| text.bytes().cycle().take(size).collect();
            steps::assert_linear("lines", 8, make, |pieces| {
                let mut lines = Lines::default();
                for piece in pieces {
                    let fed = lines.feed(piece, LINE_MAX, |line| steps::took(line.len()));
                    if fed.is_err() {
                        lines = Lines::default();
                    }
                }
            });
        }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let wanted = StreamOrder {
            stream: 1,
            clock_rate: 90_000,
            payload_types: vec![96],
            playout_buffer: 1_000_000_000,
            reports: true,
            every: 500_000_000,
        };
        assert!(wanted.is_sound());
        for asked in [
            Asked::Proof {
                proof: "ab".to_owned(),
            },
            Asked::Open(wanted.clone()),
            Asked::Peer {
                stream: 0,
                media: "[2001:db8::1]:5000".parse().expect("an address"),
                control: "10.0.0.1:0".parse().expect("an address"),
            },
            Asked::Base {
                stream: 0,
                sequence: 65_535,
                rtptime: None,
            },
            Asked::Base {
                stream: 1,
                sequence: 0,
                rtptime: Some(u32::MAX),
            },
            Asked::Close,
        ] {
            let line = line(&asked);
            assert_eq!(
                serde_json::from_slice::<Asked>(&line).expect("as written"),
                asked
            );
        }
        let said = Said::Closed {
            streams: vec![StreamState {
                ages: Some((5, 3)),
                ..StreamState::default()
            }],
        };
        let text = line(&said);
        assert_eq!(
            serde_json::from_slice::<Said>(&text).expect("as written"),
            said
        );
        let many = StreamOrder {
            stream: 32,
            ..wanted
        };
        assert!(!many.is_sound());
    }
}
