//! What is found in a recording: streams of frames.

use bytes::Bytes;

use super::vpx;
use crate::clip::Coding;

/// One frame, cut into payloads of RTP.
#[derive(Debug, PartialEq)]
pub(super) struct Frame {
    /// When it is due, in nanoseconds, in the file's own counting.
    pub(super) due: u64,
    /// Whether it can be decoded by itself.
    pub(super) is_key: bool,
    pub(super) payloads: Vec<Bytes>,
}

/// One stream of a file.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) coding: Coding,
    pub(super) frames: Vec<Frame>,
}

/// The most frames of a stream: more than an hour has.
const FRAMES_MAX: usize = 1_000_000;

impl Recorded {
    /// Adds a frame as its codec has it, cut into payloads. One without bytes was left out by who
    /// encoded it.
    pub(super) fn add(&mut self, due: u64, data: &[u8], mtu: usize) -> Result<(), String> {
        if data.is_empty() {
            return Ok(());
        }
        if self.frames.len() >= FRAMES_MAX {
            return Err(format!("it holds more than {FRAMES_MAX} frames"));
        }
        if self.frames.is_empty()
            && let Some(profile) = vpx::vp9_profile(data).filter(|_| self.coding.name == "VP9")
        {
            self.coding.parameters = format!("profile-id={profile}");
        }
        self.frames.push(cut(&self.coding, due, data, mtu)?);
        Ok(())
    }
}

/// The longest payload that is taken: what Ethernet carries, without the headers of IPv4, UDP and
/// RTP.
const PAYLOAD_MAX: usize = 1500 - 20 - 8 - 12;

impl Recorded {
    /// Whether each packet goes into a datagram, and each frame is as long as frames are.
    pub(super) fn check_payloads(&self) -> Result<(), String> {
        for frame in &self.frames {
            if let Some(long) =
                (frame.payloads.iter().map(Bytes::len)).find(|&own| own > PAYLOAD_MAX)
            {
                return Err(format!(
                    "it has a packet of {long} bytes, and a datagram carries {PAYLOAD_MAX}"
                ));
            }
            if frame.payloads.iter().map(Bytes::len).sum::<usize>() > vpx::FRAME_MAX {
                return Err("it has a frame of more than 8 MiB".to_owned());
            }
        }
        Ok(())
    }
}

/// A codec, or that it is not known.
pub(super) fn coding(name: &str) -> Result<Coding, String> {
    Coding::named(name).ok_or_else(|| format!("its `{name}` is of no codec that is known"))
}

/// A frame as its codec has it, to be cut.
fn cut(coding: &Coding, due: u64, data: &[u8], mtu: usize) -> Result<Frame, String> {
    let (is_key, payloads) = match coding.name {
        "VP8" => vpx::vp8(data, mtu),
        "VP9" => vpx::vp9(data, mtu),
        // A packet is a frame (RFC 7587, 4.2).
        "Opus" => (true, vec![Bytes::copy_from_slice(data)]),
        other => return Err(format!("its {other} cannot be sent")),
    };
    if payloads.is_empty() || data.len() > vpx::FRAME_MAX {
        return Err(format!(
            "a frame of its {} is empty, or too long",
            coding.name
        ));
    }
    Ok(Frame {
        due,
        is_key,
        payloads,
    })
}
