//! One PeerConnection of a client, with its own socket.

use std::net::SocketAddr;

use measure::Time;

use super::publish::OutgoingMedia;
use super::turn_relay::TurnRelay;
use super::{Client, Phase, record_delay};
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
use session::{
    ChannelError, ChannelId, Context, Datagram, Open, Output, ReadTiming, SinkId, SocketMedia,
};

/// A PeerConnection.
#[derive(Debug)]
pub(super) struct PeerLink {
    pub(super) number: PeerNumber,
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
    /// True once media was received.
    pub(super) has_media: bool,
    /// Time of the next receiver reports.
    pub(super) report_at: Option<Time>,
    /// Time of the next NACKs.
    pub(super) nack_at: Option<Time>,
    /// Time of the next transport feedback or REMB.
    pub(super) feedback_at: Option<Time>,
    /// True if REMB was negotiated.
    pub(super) has_remb: bool,
    /// Media that is sent. Empty on a link that receives.
    pub(super) outgoing_media: OutgoingMedia,
    /// Counts that the recorder already has: datagrams that were not authentic, replayed,
    /// malformed, from too many sources, refused STUN, and foreign.
    pub(super) recorded_counts: [u64; 6],
}

impl PeerLink {
    /// Earliest deadline of the link.
    pub(super) fn deadline(&self) -> Option<Time> {
        let peer = self.peer.as_ref().and_then(|peer| peer.deadline());
        let relay = self.relay.as_ref().and_then(|relay| relay.deadline());
        let own = [self.report_at, self.nack_at, self.feedback_at, relay];
        let own = own.into_iter().flatten().min();
        [peer, own, self.outgoing_media.next_due()]
            .into_iter()
            .flatten()
            .min()
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
    pub(super) fn channel_awaited_since(&self) -> Option<Time> {
        self.dtls_connected_at
            .filter(|_| self.connected_at.is_none())
    }

    /// TURN channel for outgoing media. `None` without TURN, or before it is bound.
    pub(super) fn relay_channel(&self) -> Option<RelayChannel> {
        self.relay.as_ref()?.channel()
    }

    /// Reason that the TURN server gave for refusing all addresses of the server.
    fn turn_refusal(&self) -> Option<String> {
        self.relay.as_ref()?.refusal()
    }

    /// Reason why no address of the server is usable; `None` if one is.
    pub(super) fn no_remote_reason(&self) -> Option<String> {
        self.peer.as_ref()?.no_remote_reason()
    }

    /// Sends the pending output of the PeerConnection.
    fn send_pending(&mut self, cx: &mut Context<'_>) {
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
    pub(super) fn setup_deadline(&self, client: &crate::config::ClientConfig) -> Option<Time> {
        // Requests for a relayed address have their own time-outs.
        if self.relay_awaited_since().is_some() {
            return None;
        }
        match (self.negotiated_at, self.ice_connected_at, self.connected_at) {
            (_, _, Some(_)) => None,
            // Requests for a channel have their own time-outs, too.
            _ if self.dtls_connected_at.is_some() => None,
            // Each request has its own time-out. This one is for an answer without a description.
            (None, ..) => Some(self.requested_at + 2 * client.request_timeout.0),
            (_, Some(ice_connected), None) => Some(ice_connected + client.dtls_timeout.0),
            (Some(negotiated), None, None) => Some(negotiated + client.ice_timeout.0),
        }
    }
}

impl Client {
    pub(super) fn link_index(&mut self, number: PeerNumber) -> Option<usize> {
        let mut links = self.links.iter();
        links.position(|link| link.number == number)
    }

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
        let channel = self.next_channel();
        let headers = self.setup.config.receive == Receive::Headers;
        let sink = (direction == Direction::Receive).then(|| {
            let mut tracks = Tracks::new(self.setup.config.playout_buffer.0);
            if self.setup.config.nack {
                tracks.enable_nack();
            }
            if let Some(wall_clock) = self.setup.wall_clock
                && self.setup.reads_time_codes
                && !headers
            {
                tracks.enable_time_codes(wall_clock);
            }
            if !headers {
                tracks.enable_decryption();
            }
            cx.sinks.insert(tracks)
        });
        // Nearly all clients have one link. Without this, the first push would reserve room for
        // four.
        self.links.reserve_exact(usize::from(self.links.is_empty()));
        self.links.push(PeerLink {
            number,
            channel,
            direction,
            local: None,
            peer: None,
            relay: None,
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
            has_media: false,
            report_at: None,
            nack_at: None,
            feedback_at: None,
            has_remb: false,
            outgoing_media: OutgoingMedia::default(),
            recorded_counts: [0; 6],
        });
        if self.setup.config.turn.is_some() {
            return self.open_relay(cx, channel);
        }
        let media = sink.map(|sink| SocketMedia {
            sink,
            filter: peer::MEDIA_MARK,
        });
        cx.out.push_back(Output::Open {
            channel,
            open: Open::Udp {
                local: SocketAddr::new(local, 0),
                peer: None,
                // Answers to ICE and DTLS are awaited.
                reading: ReadTiming::AtOnce,
                media,
            },
        });
    }

    /// Starts the PeerConnection: its socket is open, or its relayed address is allocated.
    pub(super) fn link_opened(&mut self, cx: &mut Context<'_>, at: usize, local: SocketAddr) {
        let link = &mut self.links[at];
        let seed = session::seeds::derive_seed(&[self.setup.seed, 31, u64::from(link.number.0)]);
        let mut config = PeerConfig::new(self.setup.certificate.clone(), seed);
        config.connect_timeout = self.setup.config.ice_timeout.0 + self.setup.config.dtls_timeout.0;
        let mut peer = match link.pending_offer {
            Some(_) => Peer::answerer(cx.now, &config),
            None => Peer::offerer(cx.now, &config),
        };
        match link.relay {
            None => peer.add_local_candidate(cx.now, local),
            Some(_) => peer.add_relayed_candidate(cx.now, local),
        };
        link.local = Some(local);
        link.peer = Some(Box::new(peer));
        match link.pending_offer.take() {
            Some(offer) => self.answer(cx, at, &offer),
            None => self.offer(cx, at),
        }
        while !self.is_leaving()
            && let Some(text) = self.links.get_mut(at).and_then(|link| {
                (!link.early_candidates.is_empty()).then(|| link.early_candidates.remove(0))
            })
        {
            self.candidate(cx, at, &text);
        }
    }

    /// Fails the client because a socket, or the connection to the TURN server, could not be
    /// opened.
    pub(super) fn link_open_failed(
        &mut self,
        cx: &mut Context<'_>,
        at: usize,
        error: ChannelError,
    ) {
        let failure = ConnectFailure::from(error);
        let detail = match &self.setup.config.turn {
            None => format!("cannot open a socket for media: {error}"),
            Some(turn) => format!("{error} (TURN server {})", turn.url),
        };
        self.close_link(cx, at);
        self.fail(cx, failure.into(), detail);
    }

    /// Handles received datagrams.
    pub(super) fn datagrams(&mut self, cx: &mut Context<'_>, at: usize, all: &[Datagram<'_>]) {
        for datagram in all {
            match self.links[at].relay {
                None => self.datagram(cx, at, datagram),
                Some(_) => self.relayed_datagram(cx, at, datagram),
            }
            if self.phase == Phase::Ended || at >= self.links.len() {
                return;
            }
        }
        self.flush_peer(cx, at);
    }

    pub(super) fn datagram(&mut self, cx: &mut Context<'_>, at: usize, datagram: &Datagram<'_>) {
        let link = &mut self.links[at];
        let Some(peer) = &mut link.peer else {
            return;
        };
        link.outgoing_media.round_trip = peer.round_trip();
        match peer.handle_datagram(cx.now, datagram.from, datagram.bytes) {
            Received::Rtcp(compound) => {
                if let Some(sink) = link.sink {
                    let tracks = cx.sinks.get::<Tracks>(sink);
                    tracks.handle_rtcp(compound, datagram.at, cx.recorder);
                    if tracks.all_sources_left() && self.setup.url.resource == Resource::Whep {
                        self.checks
                            .leave_at
                            .get_or_insert(cx.now + super::BYE_GRACE);
                    }
                }
                link.outgoing_media
                    .handle_rtcp(compound, cx.now, cx.flows, cx.recorder);
                self.announce_when_live(cx, at);
            }
            // The sink receives media.
            Received::Rtp | Received::Handled | Received::Dropped(_) => {}
        }
    }

    /// Sends the output of a PeerConnection and handles its events. Called after each call of the
    /// peer.
    pub(super) fn flush_peer(&mut self, cx: &mut Context<'_>, at: usize) {
        let link = &mut self.links[at];
        link.send_pending(cx);
        if self.links[at].relay.is_some() {
            self.relay_events(cx, at);
            if self.phase == Phase::Ended || at >= self.links.len() {
                return;
            }
        }
        while let Some(event) = self
            .links
            .get_mut(at)
            .and_then(|link| link.peer.as_mut())
            .and_then(|peer| peer.poll_event())
        {
            self.peer_event(cx, at, event);
            if self.phase == Phase::Ended {
                return;
            }
        }
        // The request for a channel is sent as soon as ICE has selected a pair.
        if let Some(link) = self.links.get_mut(at)
            && let Some(relay) = &mut link.relay
        {
            relay.send_pending(cx, link.channel, None);
        }
    }

    fn peer_event(&mut self, cx: &mut Context<'_>, at: usize, event: PeerEvent) {
        let link = &mut self.links[at];
        match event {
            PeerEvent::IceConnected { remote } => {
                match &mut link.relay {
                    None => cx.out.push_back(Output::Peer {
                        channel: link.channel,
                        media: remote,
                        control: remote,
                    }),
                    Some(relay) => relay.bind_channel(cx.now, remote),
                }
                if link.ice_connected_at.is_none() {
                    link.ice_connected_at = Some(cx.now);
                    let waited = cx.now.since(link.negotiated_at.unwrap_or(cx.now));
                    record_delay(cx, m::ICE_DELAY, waited);
                }
            }
            // Flows send without the session, so through TURN they need a bound channel.
            PeerEvent::DtlsConnected if link.lacks_turn_channel() => {
                link.dtls_connected_at = Some(cx.now)
            }
            PeerEvent::DtlsConnected => self.link_connected(cx, at),
            PeerEvent::Closed => {
                if self.is_leaving() {
                    return;
                }
                let mut detail = self.describe_link(at, "the server closed the DTLS connection");
                if self.signalling.kind.expects_media() {
                    detail += "; MediaMTX does so if H.264 has B-frames: its log tells";
                }
                self.fail(cx, Failure::DtlsClosed, detail);
            }
            PeerEvent::Failed(failure) => self.peer_failed(cx, at, failure),
        }
    }

    pub(super) fn link_connected(&mut self, cx: &mut Context<'_>, at: usize) {
        let link = &mut self.links[at];
        if link.connected_at.is_some() {
            return;
        }
        link.connected_at = Some(cx.now);
        cx.recorder.add(m::PEERS_CONNECTED, 1);
        let dtls_connected = link.dtls_connected_at.unwrap_or(cx.now);
        let waited = dtls_connected.since(link.ice_connected_at.unwrap_or(dtls_connected));
        record_delay(cx, m::DTLS_DELAY, waited);
        let number = link.number;
        if let (Some(sink), Some(peer)) = (link.sink, &mut link.peer) {
            match self.setup.config.receive {
                Receive::Headers => {
                    let trailer = peer
                        .srtp_profile()
                        .map_or(0, |profile| profile.tag_length());
                    let keys = peer.srtp_keys();
                    let tracks = cx.sinks.get::<Tracks>(sink);
                    tracks.set_srtp_overhead(trailer);
                    tracks.authenticate_first_packets(keys);
                }
                Receive::Decrypted => {
                    let opener = peer.take_rtp_opener();
                    cx.sinks.get::<Tracks>(sink).set_opener(cx.now, opener);
                }
            }
            if self.setup.config.receiver_reports {
                link.report_at = Some(cx.now + super::REPORT_EVERY);
            }
            if cx.sinks.get::<Tracks>(sink).has_requests() {
                link.nack_at = Some(cx.now + super::NACK_CHECK_INTERVAL);
            }
            self.checks
                .next_at
                .get_or_insert(cx.now + self.setup.config.no_media.0);
            self.start_feedback(cx, at);
        }
        let link = &mut self.links[at];
        if link.direction == Direction::Send {
            self.begin_sending(cx, at);
        }
        self.signalling.call(cx, |signalling, scope| {
            signalling.peer_connected(scope, number)
        });
    }

    /// Handles the first media of a sink.
    pub(super) fn media_began(&mut self, cx: &mut Context<'_>, sink: SinkId, first: Time) {
        let mut links = self.links.iter_mut();
        if let Some(link) = links.find(|link| link.sink == Some(sink))
            && !std::mem::replace(&mut link.has_media, true)
        {
            let waited = first.since(link.connected_at.unwrap_or(first));
            record_delay(cx, m::FIRST_MEDIA_DELAY, waited);
            // After the handshake, one wake-up serves all clients.
            cx.out.push_back(Output::SetReadTiming {
                channel: link.channel,
                reading: ReadTiming::Soon(FEEDBACK_DELAY_MAX),
            });
        }
        self.checks.next_at = Some(first + self.setup.config.silence.0);
        self.startup.media_began(cx, first);
    }

    /// Requests missing packets at once: a sink has found a gap.
    pub(super) fn request_missing_now(&mut self, cx: &mut Context<'_>, sink: SinkId) {
        let mut links = self.links.iter_mut();
        if let Some(link) = links.find(|link| link.sink == Some(sink)) {
            link.nack_at = Some(cx.now);
        }
    }

    /// Sends transport feedback at once: the first packet with a transport-wide sequence number has
    /// arrived, while the client checked only once a second.
    pub(super) fn send_feedback_now(&mut self, cx: &mut Context<'_>, sink: SinkId) {
        let mut links = self.links.iter_mut();
        if let Some(link) = links.find(|link| link.sink == Some(sink)) {
            link.feedback_at = link.feedback_at.map(|_| cx.now);
        }
    }

    /// Fails the client because a PeerConnection has failed.
    pub(super) fn peer_failed(&mut self, cx: &mut Context<'_>, at: usize, failure: PeerFailure) {
        if failure == PeerFailure::IceTimedOut
            && let Some(refusal) = self.links[at].turn_refusal()
        {
            return self.fail(cx, Failure::TurnRefused, refusal);
        }
        if failure == PeerFailure::IceTimedOut
            && let Some(why) = self.links[at].no_remote_reason()
        {
            let detail = self.describe_link(at, &why);
            return self.fail(cx, Failure::NoCandidates, detail);
        }
        let reason = match failure {
            PeerFailure::IceTimedOut => Failure::IceTimeout,
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
        let detail = self.describe_link(at, &failure.to_string());
        self.fail(cx, reason, detail);
    }

    /// Returns a detail with the addresses of the PeerConnection appended.
    pub(super) fn describe_link(&self, at: usize, what: &str) -> String {
        let link = &self.links[at];
        let peer = link.peer.as_ref();
        let by = match &self.setup.config.turn {
            Some(turn) => format!(", via {}", turn.url),
            None => String::new(),
        };
        let ends = match (link.local, peer.and_then(|peer| peer.remote_address())) {
            (Some(local), Some(remote)) => format!("{local} to {remote}"),
            (Some(local), None) => format!("{local} to {}", self.setup.url),
            _ => self.setup.url.to_string(),
        };
        format!("{what} ({ends}{by})")
    }

    /// Handles everything that is due in a PeerConnection.
    pub(super) fn handle_link_due(&mut self, cx: &mut Context<'_>, at: usize) {
        let now = cx.now;
        if self.due_relay(cx, at) {
            return;
        }
        let link = &mut self.links[at];
        if let Some(peer) = &mut link.peer
            && peer.deadline().is_some_and(|due| due <= now)
        {
            peer.handle_timeout(now);
            self.flush_peer(cx, at);
            if self.phase == Phase::Ended || at >= self.links.len() {
                return;
            }
        }
        if self.links[at]
            .setup_deadline(&self.setup.config)
            .is_some_and(|due| due <= now)
        {
            let link = &self.links[at];
            let (failure, what) = match (link.negotiated_at, link.ice_connected_at) {
                (None, _) => (
                    Failure::RequestTimeout,
                    "no session description from the server in time",
                ),
                (_, None) => match (link.turn_refusal(), link.no_remote_reason()) {
                    (Some(refusal), _) => return self.fail(cx, Failure::TurnRefused, refusal),
                    (None, Some(why)) => {
                        let detail = self.describe_link(at, &why);
                        return self.fail(cx, Failure::NoCandidates, detail);
                    }
                    (None, None) => (Failure::IceTimeout, "no working candidate pair in time"),
                },
                (_, Some(_)) => (
                    Failure::DtlsTimeout,
                    "the DTLS handshake did not complete in time",
                ),
            };
            let detail = self.describe_link(at, what);
            return self.fail(cx, failure, detail);
        }
        let link = &mut self.links[at];
        if link.report_at.is_some_and(|due| due <= now) {
            link.report_at = Some(now + super::REPORT_EVERY);
            self.send_receiver_reports(cx, at);
            if self.is_leaving() || at >= self.links.len() {
                return;
            }
        }
        self.send_nacks(cx, at);
        self.send_transport_feedback(cx, at);
        self.handle_sending_due(cx, at);
    }

    /// Ends a PeerConnection: notifies the server, and adds its figures to the recorder.
    pub(super) fn close_link(&mut self, cx: &mut Context<'_>, at: usize) {
        self.end_sending(cx, at);
        self.count_link(cx, at);
        if let Some(peer) = &mut self.links[at].peer {
            peer.close(cx.now);
        }
        // Pending output includes the close, even if the PeerConnection has failed.
        let mut link = self.links.remove(at);
        link.send_pending(cx);
        if let Some(sink) = link.sink {
            let mut tracks = cx.sinks.remove::<Tracks>(sink);
            tracks.finish(self.checks.loss_counted_until, cx.recorder);
            self.ended_streams
                .add(tracks.rows(&self.setup.url.to_string()));
        }
        let channel = link.channel;
        match link.relay.take() {
            Some(relay) => self.release_relay(cx, channel, relay),
            None => cx.out.push_back(Output::Close { channel }),
        }
    }
}
