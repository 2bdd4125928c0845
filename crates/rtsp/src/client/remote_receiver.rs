//! Media sent to an address other than the one that requests come from (`destination`; RFC 2326,
//! 12.39): to another address of this machine, or to another machine on which a receiver counts it.
//!
//! The ports at that address are open before a server is asked to send there, so that media is
//! never directed to a host that has not agreed to receive it.

use std::net::IpAddr;
use std::time::Duration;

use measure::Time;

use super::request::Pending;
use super::{Client, Phase};
use crate::codec::Method;
use crate::failure::Failure;
use crate::headers::Transport;
use crate::metrics as m;
use kit::media::rtp::RtpReceiver;
use kit::media::sdp::Description;
use kit::remote_receiver::messages::{ClientMessage, StreamRequest};
use kit::remote_receiver::{Link, ReceiverEvent};
use session::{ChannelId, Context, MediaEvent, Open, Output};

/// Media that another machine receives.
#[derive(Debug, Default)]
pub(super) struct RemoteMedia {
    /// Connection to that machine.
    pub(super) link: Option<Link>,
    /// Deadline of its answer.
    pub(super) deadline: Option<Time>,
    /// True if the server did not confirm the requested destination.
    pub(super) unconfirmed: bool,
}

impl Client {
    /// Returns the destination of the media, if it differs from the address that requests come
    /// from.
    pub(super) fn destination(&self) -> Option<IpAddr> {
        match &self.remote.link {
            Some(link) => link.peer_address().map(|reached| reached.ip()),
            None => self.config.media.as_ref().and_then(|media| media.address),
        }
    }

    /// Starts connecting to a remote receiver, if the media goes to one. Meanwhile, the client
    /// sends its first requests to the server.
    pub(super) fn connect_receiver(&mut self, cx: &mut Context<'_>) {
        // A client that only asks for the description receives no media.
        let Some(media) = self.config.media.as_ref().filter(|_| !self.describe_only) else {
            return;
        };
        let Some(to) = media.clients_at.or(media.receiver) else {
            return;
        };
        // The receiver refuses an empty secret.
        let secret = media.secret.clone().unwrap_or_default();
        let channel = self.new_channel();
        self.remote.link = Some(Link::new(channel, secret));
        cx.out.push_back(Output::Open {
            channel,
            open: Open::Tcp {
                host: to.ip().to_string(),
                port: to.port(),
                timeout: self.config.connect_timeout.0,
            },
        });
    }

    pub(super) fn is_link(&self, channel: ChannelId) -> bool {
        let link = self.remote.link.as_ref();
        link.is_some_and(|link| link.channel() == channel)
    }

    /// Asks the receiver to open ports for all streams of the description.
    pub(super) fn order_receiver_ports(&mut self, cx: &mut Context<'_>, description: &Description) {
        let Some(link) = &mut self.remote.link else {
            return;
        };
        let half = self.config.end_silence.0.min(self.config.silence.0) / 2;
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        // At most 32 streams of a description are used.
        for (stream, media) in (0u8..).zip(&description.medias) {
            let wanted = StreamRequest {
                stream,
                clock_rate: media.clock_rate(),
                payload_types: media.payload_types(),
                playout_buffer: nanos(self.config.playout_buffer.0),
                reports: self.config.receiver_reports && !media.refuses_receiver_reports(),
                every: nanos(half),
            };
            link.send_request(cx, ClientMessage::Open(wanted));
        }
        self.remote.deadline = Some(cx.now + self.config.request_timeout.0);
    }

    /// Sends a message about the stream with this index to the remote receiver. Returns `false` if
    /// there is none.
    pub(super) fn tell_receiver(
        &mut self,
        cx: &mut Context<'_>,
        index: usize,
        message: impl FnOnce(u8) -> ClientMessage,
    ) -> bool {
        let Some(link) = &mut self.remote.link else {
            return false;
        };
        // At most 32 streams of a description are used.
        link.send_request(cx, message(index as u8));
        true
    }

    pub(super) fn on_receiver_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8], at: Time) {
        let Some(link) = &mut self.remote.link else {
            return;
        };
        match link.received(cx, bytes, at) {
            Ok(all) => {
                for event in all {
                    if self.phase != Phase::Ended {
                        self.on_receiver_event(cx, event);
                    }
                }
            }
            Err(why) => self.receiver_lost(cx, &why),
        }
    }

    fn on_receiver_event(&mut self, cx: &mut Context<'_>, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Opened { stream, port } => {
                // A stream keeps its first ports, because the server knows them.
                let Some(opened) = self.streams.get_mut(stream).filter(|s| s.local_port == 0)
                else {
                    return;
                };
                opened.local_port = port;
                if self.streams.iter().all(|stream| stream.local_port != 0) {
                    self.remote.deadline = None;
                    let link = self.remote.link.as_ref();
                    if let Some(took) = link.and_then(Link::round_trip) {
                        cx.recorder.record_duration(m::RECEIVER_ROUND_TRIP, took);
                    }
                }
                if self.phase == Phase::Setup(stream) {
                    self.ask_setup(cx, stream);
                }
            }
            ReceiverEvent::FirstPacket { stream, at } => {
                // No packet arrives before PLAY was sent.
                let at = at.max(self.starts.play_sent.unwrap_or(at)).min(cx.now);
                if let Some(sink) = self.streams.get(stream).map(|stream| stream.sink) {
                    let receiver = cx.sinks.get::<RtpReceiver>(sink);
                    let so_far = (*receiver.counts(), receiver.stalled());
                    receiver.set_remote_counts(Some((at, at)), so_far);
                    self.media_event(cx, stream, MediaEvent::First { at });
                }
            }
            ReceiverEvent::InterimCounts { arrivals, state } => {
                if let Some(stream) = self.streams.get(usize::from(state.stream)) {
                    let arrivals = arrivals.map(|(first, last)| (first, last.min(cx.now)));
                    let stalled = Duration::from_nanos(state.stalled);
                    let receiver = stream.receiver(cx.sinks);
                    receiver.set_remote_counts(arrivals, (state.counts, stalled));
                }
            }
            ReceiverEvent::Bye { stream, at } => {
                if let Some(stream) = self.streams.get_mut(stream) {
                    stream.bye_at.get_or_insert(at);
                    self.next_check = Some(cx.now);
                }
            }
            ReceiverEvent::Closed => {
                if self.phase == Phase::TearingDown {
                    self.finish(cx);
                } else {
                    self.receiver_lost(cx, "it ended the reception");
                }
            }
        }
    }

    /// Fails the session because the receiver is lost. TEARDOWN stops the media sent to its ports.
    pub(super) fn receiver_lost(&mut self, cx: &mut Context<'_>, why: &str) {
        let receiver = self.config.media.as_ref().and_then(|media| media.receiver);
        let at = receiver.map_or(String::new(), |at| format!(" {at}"));
        self.remote.deadline = None;
        if let Some(link) = &mut self.remote.link {
            link.closed = true;
        }
        match self.phase {
            Phase::TearingDown if self.ending.is_some() => self.finish(cx),
            _ => {
                let detail = format!("the receiver{at}: {why}");
                self.fail(cx, Failure::ReceiverLost, detail);
            }
        }
    }

    pub(super) fn overdue_receiver(&mut self, cx: &mut Context<'_>) {
        if self.remote.deadline.is_some_and(|due| cx.now >= due) {
            let timeout = self.config.request_timeout;
            self.receiver_lost(cx, &format!("no ports within {timeout}"));
        }
    }

    /// Asks the receiver for its final counts, after the server stopped sending. Returns whether
    /// the client must wait for them.
    pub(super) fn finish_receiver(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(link) = self.remote.link.as_mut().filter(|link| !link.closed) else {
            return false;
        };
        if !std::mem::replace(&mut link.closing, true) {
            link.send_request(cx, ClientMessage::Close);
        }
        true
    }

    /// Closes the connection to the receiver.
    pub(super) fn close_link(&mut self, cx: &mut Context<'_>) {
        if let Some(link) = self.remote.link.take() {
            let channel = link.channel();
            cx.out.push_back(Output::Close { channel });
        }
    }

    /// Returns whether an answer with this status means that the server does not send media to
    /// another address. 463 is an RTSP 2.0 status (RFC 7826) that some RTSP 1.0 servers use.
    pub(super) fn refuses_destination(&self, pending: &Pending, status: u16) -> bool {
        pending.method == Method::Setup
            && self.destination().is_some()
            && matches!(status, 400 | 403 | 451 | 461 | 463)
    }

    /// Checks whether the server will send media to the requested destination. Returns the
    /// difference if it will not.
    pub(super) fn confirm_destination(&mut self, answer: &Transport) -> Result<(), String> {
        let Some(asked) = self.destination() else {
            return Ok(());
        };
        match &answer.destination {
            Some(stated) if stated.parse() == Ok(asked) => Ok(()),
            Some(stated) => Err(format!(
                "asked for destination={asked}, answered destination={stated}"
            )),
            // The server may still comply. Arriving media will show it.
            None => {
                self.remote.unconfirmed = true;
                Ok(())
            }
        }
    }

    /// Returns the failure of a session without any media.
    pub(super) fn no_media_failure(&self) -> Failure {
        match self.remote.unconfirmed {
            true => Failure::DestinationIgnored,
            false => Failure::NoMedia,
        }
    }
}
