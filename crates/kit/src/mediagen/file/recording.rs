//! Streams of frames from a recording.

use bytes::Bytes;

use super::vpx;
use crate::mediagen::clip::Coding;

/// One frame, split into RTP payloads.
#[derive(Debug, PartialEq)]
pub(super) struct Frame {
    /// Send time in nanoseconds, on the file's clock.
    pub(super) due: u64,
    /// True if the frame can be decoded without other frames.
    pub(super) is_key: bool,
    pub(super) payloads: Vec<Bytes>,
}

/// One stream of a file.
#[derive(Debug)]
pub(super) struct RecordedStream {
    pub(super) coding: Coding,
    pub(super) frames: Vec<Frame>,
}

/// Maximum number of frames of a stream: more than an hour contains.
const FRAMES_MAX: usize = 1_000_000;

impl RecordedStream {
    /// Adds an encoded frame and splits it into payloads. Frames without bytes were dropped by the
    /// encoder and are ignored.
    pub(super) fn add(&mut self, due: u64, data: &[u8], mtu: usize) -> Result<(), String> {
        if data.is_empty() {
            return Ok(());
        }
        if self.frames.len() >= FRAMES_MAX {
            return Err(format!("the recording has more than {FRAMES_MAX} frames"));
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

/// Maximum payload length: an Ethernet frame without the headers of IPv4, UDP and RTP.
const PAYLOAD_MAX: usize = 1500 - 20 - 8 - 12;

impl RecordedStream {
    /// Checks that each packet fits into a datagram, and that no frame is too long.
    pub(super) fn check_payloads(&self) -> Result<(), String> {
        for frame in &self.frames {
            if let Some(long) =
                (frame.payloads.iter().map(Bytes::len)).find(|&own| own > PAYLOAD_MAX)
            {
                return Err(format!(
                    "a packet of {long} bytes exceeds the limit of {PAYLOAD_MAX} for a datagram"
                ));
            }
            if frame.payloads.iter().map(Bytes::len).sum::<usize>() > vpx::FRAME_MAX {
                return Err("a frame is longer than 8 MiB".to_owned());
            }
        }
        Ok(())
    }
}

/// Returns the codec with this name, or an error if it is unknown.
pub(super) fn coding(name: &str) -> Result<Coding, String> {
    Coding::named(name).ok_or_else(|| format!("unknown codec `{name}`"))
}

/// Splits an encoded frame into payloads.
fn cut(coding: &Coding, due: u64, data: &[u8], mtu: usize) -> Result<Frame, String> {
    let (is_key, payloads) = match coding.name {
        "VP8" => vpx::vp8(data, mtu),
        "VP9" => vpx::vp9(data, mtu),
        // A packet is a frame (RFC 7587, 4.2).
        "Opus" => (true, vec![Bytes::copy_from_slice(data)]),
        other => return Err(format!("{other} cannot be sent")),
    };
    if payloads.is_empty() || data.len() > vpx::FRAME_MAX {
        return Err(format!(
            "a frame of the {} stream is empty or too long",
            coding.name
        ));
    }
    Ok(Frame {
        due,
        is_key,
        payloads,
    })
}
