//! Recognition of bodies that are not transport streams.

use std::fmt;

/// Number of bytes kept of a body.
const PREFIX_BYTES_MAX: usize = 48;

/// Minimum number of bytes to recognize another format: a transport stream may begin anywhere
/// within a packet.
const RECOGNIZABLE_BYTES_MIN: usize = 16;

/// Beginning of a body, and the media type that the server stated.
#[derive(Debug)]
pub(super) struct BodyPrefix {
    content_type: Option<String>,
    bytes: Vec<u8>,
}

impl BodyPrefix {
    pub(super) fn new(content_type: Option<&str>) -> BodyPrefix {
        BodyPrefix {
            content_type: content_type.map(str::to_owned),
            bytes: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn extend(&mut self, bytes: &[u8]) {
        let room = PREFIX_BYTES_MAX.saturating_sub(self.bytes.len());
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Returns the name of another format, if the first bytes identify it.
    pub(super) fn recognized_format(&self) -> Option<&'static str> {
        if self.bytes.len() < RECOGNIZABLE_BYTES_MIN {
            return None;
        }
        const MAGIC: [(&[u8], &str); 6] = [
            (&[0x1f, 0x8b, 8], "gzip"),
            (b"#EXTM3U", "a playlist of HLS, which is not supported"),
            (b"<!doctype", "HTML"),
            (b"<html", "HTML"),
            (b"<?xml", "XML"),
            (b"FLV\x01", "FLV"),
        ];
        let text = self.bytes.trim_ascii_start();
        let begins = |magic: &[u8]| {
            text.get(..magic.len())
                .is_some_and(|own| own.eq_ignore_ascii_case(magic))
        };
        MAGIC
            .iter()
            .find(|(magic, _)| begins(magic))
            .map(|&(_, name)| name)
    }
}

impl fmt::Display for BodyPrefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.recognized_format() {
            Some(name) => write!(out, "the body is {name}")?,
            None => out.write_str("the body is not a transport stream")?,
        }
        match &self.content_type {
            Some(kind) => write!(out, " (Content-Type: {kind})")?,
            None => out.write_str(" (no Content-Type)")?,
        }
        let shown: String = self
            .bytes
            .iter()
            .flat_map(|&byte| byte.escape_ascii())
            .map(char::from)
            .collect();
        write!(out, " and begins with `{shown}`")
    }
}
