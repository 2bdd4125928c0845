//! Media that goes to another address than the one requests come from (RFC 2326, 12.39: `destination`).
//!
//! The ports at that address are held before a server is asked to send there, so that media is never directed to where nobody
//! has agreed to take it.

use std::net::IpAddr;

use super::Client;
use super::request::Pending;
use crate::rtsp::codec::Method;
use crate::rtsp::failure::Failure;
use crate::rtsp::headers::Transport;

impl Client {
    /// Where the server is asked to send media, where that is not where requests come from.
    pub(super) fn destination(&self) -> Option<IpAddr> {
        self.config.media.as_ref().and_then(|media| media.address)
    }

    /// Whether an answer of that status means that the server sends media to no other address. 463 is RTSP 2.0's
    /// (RFC 7826), and some servers of 1.0 know it too.
    pub(super) fn refuses_destination(&self, pending: &Pending, status: u16) -> bool {
        pending.method == Method::Setup
            && self.destination().is_some()
            && matches!(status, 400 | 403 | 451 | 461 | 463)
    }

    /// Looks whether the server will send media to where it was asked to; if not, says where.
    pub(super) fn confirm_destination(&mut self, answer: &Transport) -> Result<(), String> {
        let Some(asked) = self.destination() else {
            return Ok(());
        };
        match &answer.destination {
            Some(said) if said.parse() == Ok(asked) => Ok(()),
            Some(said) => Err(format!(
                "asked for destination={asked}, answered destination={said}"
            )),
            // It may do so all the same; whether media comes will tell.
            None => {
                self.unconfirmed = true;
                Ok(())
            }
        }
    }

    /// Why no media came at all.
    pub(super) fn no_media(&self) -> Failure {
        match self.unconfirmed {
            true => Failure::DestinationIgnored,
            false => Failure::NoMedia,
        }
    }
}
