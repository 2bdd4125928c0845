//! One PeerConnection of a client, with its own socket.

use std::net::SocketAddr;
use std::sync::Arc;

use measure::Time;

use super::Client;
use super::publish::OutgoingMedia;
use super::setup::Setup;
use super::turn_relay::TurnRelay;
use crate::config::Receive;
use crate::failure::Failure;
use crate::metrics as m;
use crate::peer::{self, Peer, PeerConfig, PeerEvent, PeerFailure, Received};
use crate::sdp::SessionDescription;
use crate::signalling::{Direction, PeerNumber};
use crate::tracks::{FEEDBACK_DELAY_MAX, Tracks};
use crate::turn::RelayChannel;
use crate::url::Resource;
use kit::connect_failure::ConnectFailure;
use kit::lifecycle::{self, FAILED_WAIT_MIN};
use session::seeds::derive_seed;
use session::{
    ChannelError, ChannelId, Context, Datagram, MediaEvent, Open, Output, ReadTiming, SinkId,
    SocketMedia,
};

/// A PeerConnection.
#[derive(Debug)]
pub(super) struct PeerLink {
    pub(super) setup: Arc<Setup>,
    pub(super) number: PeerNumber,
    /// Channel of the socket. A client uses each channel once, so the channel identifies the link.
    pub(super) channel: ChannelId,
    pub(super) direction: Direction,
    /// Local address: that of the socket or, through TURN, the relayed one. `None` until it is
    /// known.
    local: Option<SocketAddr>,
    pub(super) peer: Option<Box<Peer>>,
    /// TURN relay, if media has to go through one.
    pub(super) relay: Option<Box<TurnRelay>>,
    /// The server's offer, until the socket is open.
    pub(super) pending_offer: Option<String>,
    /// Candidates that the server sent before the socket was open.
    pub(super) early_candidates: Vec<String>,
    /// Our offer, until it is answered.
    pub(super) local_offer: Option<Box<SessionDescription>>,
    /// Number of answers that we sent.
    pub(super) answers: u64,
    /// Sink that counts received media. `None` on a link that sends.
    pub(super) sink: Option<SinkId>,
    /// Time when the socket was requested or, through TURN, when the relayed address was allocated.
    pub(super) requested_at: Time,
    /// Time when both descriptions were known.
    pub(super) negotiated_at: Option<Time>,
    /// Time when ICE first selected a candidate pair.
    pub(super) ice_connected_at: Option<Time>,
    /// Time when media could flow: DTLS was connected and, if needed, a TURN channel was bound.
    pub(super) connected_at: Option<Time>,
    /// Time when DTLS was connected, if the TURN channel was not bound yet.
    pub(super) dtls_connected_at: Option<Time>,
    /// Time of the next receiver reports.
    pub(super) report_at: Option<Time>,
    /// Time of the next NACKs.
    pub(super) nack_at: Option<Time>,
    /// Time of the next transport feedback or REMB.
    pub(super) feedback_at: Option<Time>,
    /// True if REMB was negotiated.
    pub(super) has_remb: bool,
    /// Events that the client has not handled yet.
    pub(super) events: Vec<LinkEvent>,
    /// Media that is sent. Empty on a link that receives.
    pub(super) outgoing_media: OutgoingMedia,
    /// Counts that the recorder already has: datagrams that were not authentic, replayed,
    /// malformed, from too many sources, refused STUN, and foreign.
    pub(super) recorded_counts: [u64; 6],
}

/// Event of a link that concerns the whole client.
#[derive(Debug)]
pub(super) enum LinkEvent {
    /// Our description is ready for the signalling.
    Described(String),
    /// Media can flow.
    Connected,
    /// The first media has arrived at this time.
    MediaBegan(Time),
    /// All sources of a WHEP session have sent BYE.
    SourcesLeft,
    /// Media is sent.
    Sending,
    /// The server seems to receive the media that is sent.
    Live,
}

/// Result of an update of a link. An error is the failure of the client, and a detail.
pub(super) type LinkResult = Result<(), (Failure, String)>;

impl PeerLink {
    /// Earliest deadline of the link.
    pub(super) fn deadline(&self) -> Option<Time> {
        let all = [
            self.peer.as_ref().and_then(|peer| peer.deadline()),
            self.relay.as_ref().and_then(|relay| relay.deadline()),
            self.report_at,
            self.nack_at,
            self.feedback_at,
            self.outgoing_media.next_due(),
            self.setup_deadline(),
        ];
        all.into_iter().flatten().min()
    }

    /// True if something is due that depends on datagrams which may have arrived already: missing
    /// packets may be among them, and transport feedback covers them. Reports and sent media do not
    /// depend on them.
    pub(super) fn awaits(&self, now: Time) -> bool {
        let peer = self.peer.as_ref().and_then(|peer| peer.deadline());
        let relay = self.relay.as_ref().and_then(|relay| relay.deadline());
        let all = [peer, self.nack_at, self.feedback_at, relay];
        all.into_iter().flatten().any(|due| due <= now)
    }

    /// Time since which a relayed address is awaited. `None` if none is.
    pub(super) fn relay_awaited_since(&self) -> Option<Time> {
        (self.relay.is_some() && self.peer.is_none()).then_some(self.requested_at)
    }

    /// True if media cannot be sent yet because its TURN channel is not bound.
    fn lacks_turn_channel(&self) -> bool {
        let is_unbound = |relay: &TurnRelay| relay.channel().is_none();
        self.direction == Direction::Send && self.relay.as_deref().is_some_and(is_unbound)
    }

    /// Time since which only the TURN channel is missing. `None` if it is not.
    fn channel_awaited_since(&self) -> Option<Time> {
        self.dtls_connected_at
            .filter(|_| self.connected_at.is_none())
    }

    /// TURN channel for outgoing media. `None` without TURN, or before it is bound.
    pub(super) fn relay_channel(&self) -> Option<RelayChannel> {
        self.relay.as_ref()?.channel()
    }

    /// Reason why no address of the server is usable; `None` if one is.
    fn no_remote_reason(&self) -> Option<String> {
        self.peer.as_ref()?.no_remote_reason()
    }

    /// Sends the pending output of the PeerConnection.
    pub(super) fn send_pending(&mut self, cx: &mut Context<'_>) {
        let channel = self.channel;
        let peer = self.peer.as_deref_mut();
        if let Some(relay) = &mut self.relay {
            return relay.send_pending(cx, channel, peer);
        }
        let Some(peer) = peer else { return };
        let mut bytes = Vec::new();
        while let Some(to) = peer.poll_transmit(&mut bytes) {
            cx.transmit(channel, Some(to), |out| out.extend_from_slice(&bytes));
            bytes.clear();
        }
    }

    /// Deadline of the current step of the set-up, at which the client fails. `None` if another
    /// time-out applies.
    fn setup_deadline(&self) -> Option<Time> {
        // Requests for a relayed address have their own time-outs.
        if self.relay_awaited_since().is_some() {
            return None;
        }
        match (self.negotiated_at, self.ice_connected_at, self.connected_at) {
            (_, _, Some(_)) => None,
            // Requests for a channel have their own time-outs, too.
            _ if self.dtls_connected_at.is_some() => None,
            // Each request has its own time-out. This one is for an answer without a description.
            (None, ..) => Some(self.requested_at + 2 * self.setup.config.request_timeout.0),
            (_, Some(ice_connected), None) => {
                Some(ice_connected + self.setup.config.dtls_timeout.0)
            }
            (Some(negotiated), None, None) => Some(negotiated + self.setup.config.ice_timeout.0),
        }
    }

    /// Returns a detail with the addresses of the PeerConnection appended.
    pub(super) fn describe(&self, what: &str) -> String {
        let by = match &self.setup.config.turn {
            Some(turn) => format!(", via {}", turn.url),
            None => String::new(),
        };
        let remote = self.peer.as_ref().and_then(|peer| peer.remote_address());
        let ends = match (self.local, remote) {
            (Some(local), Some(remote)) => format!("{local} to {remote}"),
            (Some(local), None) => format!("{local} to {}", self.setup.url),
            _ => self.setup.url.to_string(),
        };
        format!("{what} ({ends}{by})")
    }

    /// Returns the failure of a client whose PeerConnection has failed.
    pub(super) fn peer_failure(&self, failure: &PeerFailure) -> (Failure, String) {
        let reason = match failure {
            PeerFailure::IceTimedOut => return self.ice_timeout(&failure.to_string()),
            PeerFailure::ConsentExpired => Failure::IceFailed,
            PeerFailure::DtlsTimedOut => Failure::DtlsTimeout,
            PeerFailure::DtlsFailed(_) => Failure::DtlsFailed,
            PeerFailure::FingerprintMismatch => Failure::FingerprintMismatch,
            PeerFailure::NoSrtpProfile => Failure::NoSrtpProfile,
            PeerFailure::BadIceCredentials
            | PeerFailure::UnusableFingerprint
            | PeerFailure::BadSetup
            | PeerFailure::FingerprintChanged => Failure::BadSdp,
        };
        (reason, self.describe(&failure.to_string()))
    }

    /// Returns the failure of a client whose set-up deadline has passed.
    fn setup_failure(&self) -> (Failure, String) {
        if self.negotiated_at.is_none() {
            let what = "no session description from the server in time";
            return (Failure::RequestTimeout, self.describe(what));
        }
        if self.ice_connected_at.is_none() {
            return self.ice_timeout("no working candidate pair in time");
        }
        let what = "the DTLS handshake did not complete in time";
        (Failure::DtlsTimeout, self.describe(what))
    }

    /// Returns the failure of a client without a candidate pair, with a more specific reason if one
    /// is known.
    fn ice_timeout(&self, what: &str) -> (Failure, String) {
        let refusal = self.relay.as_ref().and_then(|relay| relay.refusal());
        match (refusal, self.no_remote_reason()) {
            (Some(refusal), _) => (Failure::TurnRefused, refusal),
            (None, Some(why)) => (Failure::NoCandidates, self.describe(&why)),
            (None, None) => (Failure::IceTimeout, self.describe(what)),
        }
    }

    /// Returns the failure of a client that is stopped, if it has waited for at least
    /// [`FAILED_WAIT_MIN`] for a step of the set-up.
    pub(super) fn overdue_failure(&self, now: Time) -> Option<(Failure, String)> {
        let overdue = |since: Time| {
            let waited = now.since(since);
            (waited >= FAILED_WAIT_MIN).then(|| lifecycle::describe_wait(waited))
        };
        if let Some(within) = self.relay_awaited_since().and_then(overdue) {
            let what = format!("no relayed address in {within}");
            return Some((Failure::TurnTimeout, self.describe(&what)));
        }
        if let Some(since) = self.channel_awaited_since() {
            let what = format!("no TURN channel in {}", overdue(since)?);
            return Some((Failure::TurnTimeout, self.describe(&what)));
        }
        let (failure, what) = match (self.negotiated_at, self.ice_connected_at, self.connected_at) {
            (Some(since), None, _) => {
                let within = overdue(since)?;
                match self.no_remote_reason() {
                    Some(why) => (Failure::NoCandidates, format!("{why}, in {within}")),
                    None => (
                        Failure::IceTimeout,
                        format!("no working candidate pair in {within}"),
                    ),
                }
            }
            (_, Some(since), None) => (
                Failure::DtlsTimeout,
                format!("DTLS not connected in {}", overdue(since)?),
            ),
            _ => return None,
        };
        Some((failure, self.describe(&what)))
    }

    /// Handles the opened socket or connection.
    pub(super) fn opened(&mut self, cx: &mut Context<'_>, local: SocketAddr) -> LinkResult {
        match &mut self.relay {
            None => return self.start(cx, local),
            Some(relay) => relay.request(cx.now, &self.setup, self.number),
        }
        self.flush(cx)
    }

    /// Returns the failure of a client whose socket, or connection to the TURN server, could not be
    /// opened.
    pub(super) fn open_failure(&self, error: ChannelError) -> (Failure, String) {
        let detail = match &self.setup.config.turn {
            None => format!("cannot open a socket for media: {error}"),
            Some(turn) => format!("{error} (TURN server {})", turn.url),
        };
        (ConnectFailure::from(error).into(), detail)
    }

    /// Starts the PeerConnection: its socket is open, or its relayed address is allocated.
    pub(super) fn start(&mut self, cx: &mut Context<'_>, local: SocketAddr) -> LinkResult {
        let seed = derive_seed(&[self.setup.seed, 31, u64::from(self.number.0)]);
        let mut config = PeerConfig::new(self.setup.certificate.clone(), seed);
        config.connect_timeout = self.setup.config.ice_timeout.0 + self.setup.config.dtls_timeout.0;
        let offer = self.pending_offer.take();
        let mut peer = match offer {
            Some(_) => Peer::answerer(cx.now, &config),
            None => Peer::offerer(cx.now, &config),
        };
        match self.relay {
            None => peer.add_local_candidate(cx.now, local),
            Some(_) => peer.add_relayed_candidate(cx.now, local),
        };
        self.local = Some(local);
        self.peer = Some(Box::new(peer));
        match offer {
            Some(offer) => self.answer(cx, &offer)?,
            None => self.offer(),
        }
        for candidate in std::mem::take(&mut self.early_candidates) {
            self.add_candidate(cx, &candidate)?;
        }
        Ok(())
    }

    /// Sends the output of the PeerConnection and handles its events. Called after each call of the
    /// peer.
    pub(super) fn flush(&mut self, cx: &mut Context<'_>) -> LinkResult {
        self.send_pending(cx);
        self.handle_relay_events(cx)?;
        while let Some(event) = self.peer.as_mut().and_then(|peer| peer.poll_event()) {
            match event {
                PeerEvent::IceConnected { remote } => self.ice_connected(cx, remote),
                // Flows send without the session, so through TURN they need a bound channel.
                PeerEvent::DtlsConnected if self.lacks_turn_channel() => {
                    self.dtls_connected_at = Some(cx.now)
                }
                PeerEvent::DtlsConnected => self.connected(cx)?,
                PeerEvent::Closed => {
                    let what = "the server closed the DTLS connection";
                    return Err((Failure::DtlsClosed, self.describe(what)));
                }
                PeerEvent::Failed(failure) => return Err(self.peer_failure(&failure)),
            }
        }
        // The request for a channel is sent as soon as ICE has selected a pair.
        if let Some(relay) = &mut self.relay {
            relay.send_pending(cx, self.channel, None);
        }
        Ok(())
    }

    fn ice_connected(&mut self, cx: &mut Context<'_>, remote: SocketAddr) {
        match &mut self.relay {
            None => cx.out.push_back(Output::Peer {
                channel: self.channel,
                media: remote,
                control: remote,
            }),
            Some(relay) => relay.bind_channel(cx.now, remote),
        }
        if self.ice_connected_at.is_none() {
            self.ice_connected_at = Some(cx.now);
            let negotiated_at = self.negotiated_at.unwrap_or(cx.now);
            cx.recorder
                .record_duration(m::ICE_DELAY, cx.now.since(negotiated_at));
        }
    }

    /// Starts to receive or send media, which can flow from now on.
    pub(super) fn connected(&mut self, cx: &mut Context<'_>) -> LinkResult {
        if self.connected_at.is_some() {
            return Ok(());
        }
        self.connected_at = Some(cx.now);
        self.events.push(LinkEvent::Connected);
        cx.recorder.add(m::PEERS_CONNECTED, 1);
        let dtls_connected = self.dtls_connected_at.unwrap_or(cx.now);
        let ice_connected = self.ice_connected_at.unwrap_or(dtls_connected);
        cx.recorder
            .record_duration(m::DTLS_DELAY, dtls_connected.since(ice_connected));
        let (Some(sink), Some(peer)) = (self.sink, &mut self.peer) else {
            return self.begin_sending(cx);
        };
        let tracks = cx.sinks.get::<Tracks>(sink);
        match self.setup.config.receive {
            Receive::Headers => {
                let profile = peer.srtp_profile();
                tracks.srtp_overhead = profile.map_or(0, |profile| profile.tag_length());
                tracks.authenticate_first_packets(peer.srtp_keys());
            }
            Receive::Decrypted => tracks.set_opener(cx.now, peer.take_rtp_opener()),
        }
        if self.setup.config.receiver_reports {
            self.report_at = Some(cx.now + super::REPORT_EVERY);
        }
        if tracks.has_requests() {
            self.nack_at = Some(cx.now + super::NACK_CHECK_INTERVAL);
        }
        self.start_feedback(cx);
        Ok(())
    }

    /// Handles an event of received media.
    pub(super) fn handle_media_event(&mut self, cx: &mut Context<'_>, event: MediaEvent) {
        match event {
            MediaEvent::First { at } => {
                self.events.push(LinkEvent::MediaBegan(at));
                let connected_at = self.connected_at.unwrap_or(at);
                cx.recorder
                    .record_duration(m::FIRST_MEDIA_DELAY, at.since(connected_at));
                // After the handshake, one wake-up serves all clients.
                cx.out.push_back(Output::SetReadTiming {
                    channel: self.channel,
                    reading: ReadTiming::Soon(FEEDBACK_DELAY_MAX),
                });
            }
            // A gap: missing packets are requested at once.
            MediaEvent::FeedbackDue { .. } => self.nack_at = Some(cx.now),
            // The client has checked only once a second for transport-wide sequence numbers.
            MediaEvent::FirstTransportNumber => {
                self.feedback_at = self.feedback_at.map(|_| cx.now);
            }
            _ => {}
        }
    }

    pub(super) fn handle_datagrams(
        &mut self,
        cx: &mut Context<'_>,
        datagrams: &[Datagram<'_>],
    ) -> LinkResult {
        for datagram in datagrams {
            match self.relay {
                None => self.handle_datagram(cx, datagram),
                Some(_) => self.handle_relayed_datagram(cx, datagram),
            }
        }
        self.flush(cx)
    }

    pub(super) fn handle_datagram(&mut self, cx: &mut Context<'_>, datagram: &Datagram<'_>) {
        let Some(peer) = &mut self.peer else {
            return;
        };
        self.outgoing_media.round_trip = peer.round_trip();
        let received = peer.handle_datagram(cx.now, datagram.from, datagram.bytes);
        // The sink receives media.
        let Received::Rtcp(compound) = received else {
            return;
        };
        if let Some(sink) = self.sink {
            let tracks = cx.sinks.get::<Tracks>(sink);
            tracks.handle_rtcp(compound, datagram.at, cx.recorder);
            if tracks.all_sources_left() && self.setup.url.resource == Resource::Whep {
                self.events.push(LinkEvent::SourcesLeft);
            }
        }
        self.outgoing_media
            .handle_rtcp(compound, cx.now, cx.flows, cx.recorder);
        self.check_live(cx.now);
    }

    /// Handles everything that is due.
    pub(super) fn handle_due(&mut self, cx: &mut Context<'_>) -> LinkResult {
        let now = cx.now;
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|due| due <= now);
        if let Some(relay) = &mut self.relay
            && relay.handle_due(now)
        {
            self.flush(cx)?;
        }
        if let Some(peer) = &mut self.peer
            && is_due(peer.deadline())
        {
            peer.handle_timeout(now);
            self.flush(cx)?;
        }
        if is_due(self.setup_deadline()) {
            return Err(self.setup_failure());
        }
        self.send_receiver_reports(cx);
        self.send_nacks(cx);
        self.send_transport_feedback(cx);
        self.check_live(now);
        if self.outgoing_media.count_if_due(cx) {
            self.send_sender_reports(cx, false);
        }
        self.flush(cx)
    }
}

impl Client {
    /// Opens the socket of a new PeerConnection.
    pub(super) fn open_link(
        &mut self,
        cx: &mut Context<'_>,
        number: PeerNumber,
        direction: Direction,
        offer: Option<String>,
    ) {
        let Some(local) = self.local else {
            return;
        };
        let (channel, config) = (self.next_channel(), &self.setup.config);
        let headers = config.receive == Receive::Headers;
        let sink = (direction == Direction::Receive).then(|| {
            let mut tracks = Tracks::new(config.playout_buffer.0);
            tracks.nack_enabled = config.nack;
            if !headers {
                let wall_clock = self.setup.wall_clock;
                tracks.time_code_origin = wall_clock.filter(|_| self.setup.reads_time_codes);
                tracks.enable_decryption();
            }
            cx.sinks.insert(tracks)
        });
        let open = match &config.turn {
            None => Open::Udp {
                local: SocketAddr::new(local, 0),
                peer: None,
                // Answers to ICE and DTLS are awaited.
                reading: ReadTiming::AtOnce,
                media: sink.map(|sink| SocketMedia {
                    sink,
                    filter: peer::MEDIA_MARK,
                }),
            },
            Some(turn) => TurnRelay::open(turn, config.connect_timeout.0),
        };
        let relay = config.turn.as_ref().map(|_| {
            let reliable = !matches!(open, Open::UdpToHost { .. });
            Box::new(TurnRelay::new(reliable, local.is_ipv6()))
        });
        cx.out.push_back(Output::Open { channel, open });
        self.links.push(PeerLink {
            setup: self.setup.clone(),
            number,
            channel,
            direction,
            local: None,
            peer: None,
            relay,
            pending_offer: offer,
            early_candidates: Vec::new(),
            local_offer: None,
            answers: 0,
            sink,
            requested_at: cx.now,
            negotiated_at: None,
            ice_connected_at: None,
            connected_at: None,
            dtls_connected_at: None,
            report_at: None,
            nack_at: None,
            feedback_at: None,
            has_remb: false,
            events: Vec::new(),
            outgoing_media: OutgoingMedia::default(),
            recorded_counts: [0; 6],
        });
    }

    /// Updates a link, and handles its events.
    pub(super) fn update_link(
        &mut self,
        cx: &mut Context<'_>,
        id: ChannelId,
        update: impl FnOnce(&mut PeerLink, &mut Context<'_>) -> LinkResult,
    ) {
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        let result = update(link, cx);
        let (number, receives) = (link.number, link.direction == Direction::Receive);
        for event in std::mem::take(&mut link.events) {
            match event {
                LinkEvent::Described(text) => self
                    .signalling
                    .call(cx, |own, scope| own.local_description(scope, number, &text)),
                LinkEvent::Connected => {
                    let no_media_at = receives.then_some(cx.now + self.setup.config.no_media.0);
                    self.checks.next_at = self.checks.next_at.or(no_media_at);
                }
                LinkEvent::MediaBegan(at) => {
                    self.checks.next_at = Some(at + self.setup.config.silence.0);
                    self.startup.media_began(cx, at);
                }
                LinkEvent::SourcesLeft => {
                    let leave_at = cx.now + super::BYE_GRACE;
                    self.checks.leave_at.get_or_insert(leave_at);
                }
                LinkEvent::Sending => self.startup.published(cx),
                LinkEvent::Live if self.published => {}
                LinkEvent::Live => {
                    self.published = true;
                    self.announce_published(cx, true);
                }
            }
        }
        if let Err((failure, mut detail)) = result {
            if failure == Failure::DtlsClosed && self.signalling.kind.expects_media() {
                detail += "; MediaMTX does so if H.264 has B-frames: its log tells";
            }
            self.fail(cx, failure, detail);
        }
    }

    /// Ends a PeerConnection: notifies the server, and adds its figures to the recorder.
    pub(super) fn close_link(&mut self, cx: &mut Context<'_>, id: ChannelId) {
        let Some(mut link) = self.links.remove(id) else {
            return;
        };
        link.end_sending(cx);
        link.count(cx);
        if let Some(peer) = &mut link.peer {
            peer.close(cx.now);
        }
        // Pending output includes the close, even if the PeerConnection has failed.
        link.send_pending(cx);
        if let Some(sink) = link.sink {
            let mut tracks = cx.sinks.remove::<Tracks>(sink);
            tracks.finish(self.checks.loss_counted_until, cx.recorder);
            self.ended_streams
                .add(tracks.rows(&self.setup.url.to_string()));
        }
        let channel = link.channel;
        match link.relay {
            Some(relay) => self.releasing_relays.release(cx, channel, relay),
            None => cx.out.push_back(Output::Close { channel }),
        }
    }
}
