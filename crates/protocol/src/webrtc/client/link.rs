//! One PeerConnection of a client, with its own socket.

use std::net::SocketAddr;

use measure::Time;

use super::publish::Sent;
use super::relay::Relay;
use super::{Client, Phase};
use crate::connect_failure::ConnectFailure;
use crate::session::{
    ChannelError, ChannelId, Context, Datagram, Media, Open, Output, Reading, SinkId,
};
use crate::webrtc::config::Receive;
use crate::webrtc::failure::Failure;
use crate::webrtc::metrics as m;
use crate::webrtc::peer::{self, Peer, PeerConfig, PeerEvent, PeerFailure, Received};
use crate::webrtc::sdp::SessionDescription;
use crate::webrtc::signalling::{Direction, PeerNumber};
use crate::webrtc::tracks::{FEEDBACK_WITHIN, Tracks};
use crate::webrtc::turn::RelayChannel;
use crate::webrtc::url::Place;

/// Maximum number of rows of ended streams. Their number is unbounded in a room where participants
/// come and go. Streams beyond the limit count only in the figures of the population.
const ROWS_MAX: usize = 2048;

/// A PeerConnection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: PeerNumber,
    pub(super) channel: ChannelId,
    pub(super) direction: Direction,
    /// Local address: that of the socket or, through TURN, the relayed one. `None` until it is
    /// known.
    local: Option<SocketAddr>,
    pub(super) peer: Option<Box<Peer>>,
    /// TURN relay, if media has to go through one.
    pub(super) relay: Option<Box<Relay>>,
    /// The server's offer, until the socket is open.
    pub(super) offer: Option<String>,
    /// Candidates that the server sent before the socket was open.
    pub(super) early: Vec<String>,
    /// Our offer, until it is answered.
    pub(super) offered: Option<Box<SessionDescription>>,
    /// Number of answers that we sent.
    pub(super) answers: u64,
    /// Sink that counts received media. `None` on a link that sends.
    pub(super) sink: Option<SinkId>,
    /// Time when the socket was requested or, through TURN, when the relayed address was allocated.
    pub(super) begun: Time,
    /// Time when both descriptions were known.
    pub(super) agreed: Option<Time>,
    /// Time when ICE first selected a candidate pair.
    pub(super) found: Option<Time>,
    /// Time when media could flow: DTLS was connected and, if needed, a TURN channel was bound.
    pub(super) stands: Option<Time>,
    /// Time when DTLS was connected, if the TURN channel was not bound yet.
    pub(super) secured: Option<Time>,
    /// True once media was received.
    pub(super) has_media: bool,
    /// Time of the next receiver reports.
    pub(super) report_at: Option<Time>,
    /// Time of the next NACKs.
    pub(super) ask_at: Option<Time>,
    /// Time of the next transport feedback or REMB.
    pub(super) tell_at: Option<Time>,
    /// True if REMB was negotiated.
    pub(super) takes_remb: bool,
    /// Media that is sent. Empty on a link that receives.
    pub(super) sent: Sent,
    /// Counts that the recorder already has: datagrams that were not authentic, replayed,
    /// malformed, from too many sources, refused STUN, and foreign.
    pub(super) counted: [u64; 6],
}

impl Link {
    /// Earliest deadline of the link.
    pub(super) fn deadline(&self) -> Option<Time> {
        let peer = self.peer.as_ref().and_then(|peer| peer.deadline());
        let relay = self.relay.as_ref().and_then(|relay| relay.deadline());
        let own = [self.report_at, self.ask_at, self.tell_at, relay];
        let own = own.into_iter().flatten().min();
        [peer, own, self.sent.next_due()]
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
        let all = [peer, self.ask_at, self.tell_at, relay];
        all.into_iter().flatten().any(|due| due <= now)
    }

    /// Time since which a relayed address is awaited. `None` if none is.
    pub(super) fn waits_for_turn(&self) -> Option<Time> {
        (self.relay.is_some() && self.peer.is_none()).then_some(self.begun)
    }

    /// True if media cannot be sent yet because its TURN channel is not bound.
    fn waits_for_channel(&self) -> bool {
        let waits = |relay: &Relay| relay.channel().is_none();
        self.direction == Direction::Send && self.relay.as_deref().is_some_and(waits)
    }

    /// Time since which only the TURN channel is missing. `None` if it is not.
    pub(super) fn waits_for_channel_since(&self) -> Option<Time> {
        self.secured.filter(|_| self.stands.is_none())
    }

    /// TURN channel for outgoing media. `None` without TURN, or before it is bound.
    pub(super) fn relay_channel(&self) -> Option<RelayChannel> {
        self.relay.as_ref()?.channel()
    }

    /// Reason that the TURN server gave for refusing all addresses of the server.
    fn refusal(&self) -> Option<String> {
        self.relay.as_ref()?.refusal()
    }

    /// Reason why no address of the server is usable; `None` if one is.
    pub(super) fn why_no_remote(&self) -> Option<String> {
        self.peer.as_ref()?.why_no_remote()
    }

    /// Sends the pending output of the PeerConnection.
    fn send_waiting(&mut self, cx: &mut Context<'_>) {
        let channel = self.channel;
        let peer = self.peer.as_deref_mut();
        if let Some(relay) = &mut self.relay {
            return relay.send_waiting(cx, channel, peer);
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
    pub(super) fn limit(&self, client: &crate::webrtc::config::ClientConfig) -> Option<Time> {
        // Requests for a relayed address have their own time-outs.
        if self.waits_for_turn().is_some() {
            return None;
        }
        match (self.agreed, self.found, self.stands) {
            (_, _, Some(_)) => None,
            // Requests for a channel have their own time-outs, too.
            _ if self.secured.is_some() => None,
            // Each request has its own time-out. This one is for an answer without a description.
            (None, ..) => Some(self.begun + 2 * client.request_timeout.0),
            (_, Some(found), None) => Some(found + client.dtls_timeout.0),
            (Some(agreed), None, None) => Some(agreed + client.ice_timeout.0),
        }
    }
}

impl Client {
    pub(super) fn link(&mut self, number: PeerNumber) -> Option<usize> {
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
        let headers = self.config.receive == Receive::Headers;
        let sink = (direction == Direction::Receive).then(|| {
            let mut tracks = Tracks::new(self.config.playout_buffer.0);
            if self.config.nack {
                tracks.ask_for_missing();
            }
            if let Some(wall_clock) = self.wall_clock
                && self.time_codes
                && !headers
            {
                tracks.look_for_codes(wall_clock);
            }
            if !headers {
                tracks.open_packets();
            }
            cx.sinks.insert(tracks)
        });
        // Nearly all clients have one link. Without this, the first push would reserve room for
        // four.
        self.links.reserve_exact(usize::from(self.links.is_empty()));
        self.links.push(Link {
            number,
            channel,
            direction,
            local: None,
            peer: None,
            relay: None,
            offer,
            early: Vec::new(),
            offered: None,
            answers: 0,
            sink,
            begun: cx.now,
            agreed: None,
            found: None,
            stands: None,
            secured: None,
            has_media: false,
            report_at: None,
            ask_at: None,
            tell_at: None,
            takes_remb: false,
            sent: Sent::default(),
            counted: [0; 6],
        });
        if self.config.turn.is_some() {
            return self.open_relay(cx, channel);
        }
        let media = sink.map(|sink| Media {
            sink,
            mark: peer::MEDIA_MARK,
        });
        cx.out.push_back(Output::Open {
            channel,
            open: Open::Udp {
                local: SocketAddr::new(local, 0),
                peer: None,
                // Answers to ICE and DTLS are awaited.
                reading: Reading::AtOnce,
                media,
            },
        });
    }

    /// Starts the PeerConnection: its socket is open, or its relayed address is allocated.
    pub(super) fn link_opened(&mut self, cx: &mut Context<'_>, at: usize, local: SocketAddr) {
        let link = &mut self.links[at];
        let seed = crate::mix::mix(&[self.seed, 31, u64::from(link.number.0)]);
        let mut config = PeerConfig::new(self.certificate.clone(), seed);
        config.connect_timeout = self.config.ice_timeout.0 + self.config.dtls_timeout.0;
        let mut peer = match link.offer {
            Some(_) => Peer::answerer(cx.now, &config),
            None => Peer::offerer(cx.now, &config),
        };
        match link.relay {
            None => peer.add_local_candidate(cx.now, local),
            Some(_) => peer.add_relayed_candidate(cx.now, local),
        };
        link.local = Some(local);
        link.peer = Some(Box::new(peer));
        match link.offer.take() {
            Some(offer) => self.answer(cx, at, &offer),
            None => self.offer(cx, at),
        }
        while !self.is_leaving()
            && let Some(text) = self
                .links
                .get_mut(at)
                .and_then(|link| (!link.early.is_empty()).then(|| link.early.remove(0)))
        {
            self.candidate(cx, at, &text);
        }
    }

    /// Fails the client because a socket, or the connection to the TURN server, could not be
    /// opened.
    pub(super) fn link_failed(&mut self, cx: &mut Context<'_>, at: usize, error: ChannelError) {
        let failure = ConnectFailure::from(error);
        let detail = match &self.config.turn {
            None => format!("cannot open a socket for media: {error}"),
            Some(turn) => format!("{error} (TURN server {})", turn.url),
        };
        self.drop_link(cx, at);
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
        self.drain(cx, at);
    }

    pub(super) fn datagram(&mut self, cx: &mut Context<'_>, at: usize, datagram: &Datagram<'_>) {
        let link = &mut self.links[at];
        let Some(peer) = &mut link.peer else {
            return;
        };
        link.sent.round_trip = peer.round_trip();
        match peer.handle_datagram(cx.now, datagram.from, datagram.bytes) {
            Received::Rtcp(compound) => {
                if let Some(sink) = link.sink {
                    let tracks = cx.sinks.get::<Tracks>(sink);
                    tracks.reports(compound, datagram.at, cx.recorder);
                    if tracks.are_gone() && self.url.place == Place::Whep {
                        self.over_at.get_or_insert(cx.now + super::AFTER_GOODBYE);
                    }
                }
                link.sent.reports(compound, cx.now, cx.flows, cx.recorder);
                self.look_whether_live(cx, at);
            }
            // The sink receives media.
            Received::Rtp | Received::Handled | Received::Dropped(_) => {}
        }
    }

    /// Sends the output of a PeerConnection and handles its events. Called after each call of the
    /// peer.
    pub(super) fn drain(&mut self, cx: &mut Context<'_>, at: usize) {
        let link = &mut self.links[at];
        link.send_waiting(cx);
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
            relay.send_waiting(cx, link.channel, None);
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
                    Some(relay) => relay.found(cx.now, remote),
                }
                if link.found.is_none() {
                    link.found = Some(cx.now);
                    let waited = cx.now.since(link.agreed.unwrap_or(cx.now));
                    cx.recorder.record(m::ICE_DELAY, waited.as_nanos() as u64);
                }
            }
            // Flows send without the session, so through TURN they need a bound channel.
            PeerEvent::DtlsConnected if link.waits_for_channel() => link.secured = Some(cx.now),
            PeerEvent::DtlsConnected => self.stands(cx, at),
            PeerEvent::Closed => {
                if self.is_leaving() {
                    return;
                }
                let detail = self.of_link(at, "the server closed the DTLS connection");
                self.fail(cx, Failure::DtlsClosed, detail);
            }
            PeerEvent::Failed(failure) => self.peer_failed(cx, at, failure),
        }
    }

    pub(super) fn stands(&mut self, cx: &mut Context<'_>, at: usize) {
        let link = &mut self.links[at];
        if link.stands.is_some() {
            return;
        }
        link.stands = Some(cx.now);
        cx.recorder.add(m::PEERS_CONNECTED, 1);
        let secured = link.secured.unwrap_or(cx.now);
        let waited = secured.since(link.found.unwrap_or(secured));
        cx.recorder.record(m::DTLS_DELAY, waited.as_nanos() as u64);
        let number = link.number;
        if let (Some(sink), Some(peer)) = (link.sink, &mut link.peer) {
            match self.config.receive {
                Receive::Headers => {
                    let trailer = peer
                        .srtp_profile()
                        .map_or(0, |profile| profile.tag_length());
                    let keys = peer.srtp_keys();
                    let tracks = cx.sinks.get::<Tracks>(sink);
                    tracks.set_trailer(trailer);
                    tracks.check_first(keys);
                }
                Receive::Decrypted => {
                    let opener = peer.take_rtp_opener();
                    cx.sinks.get::<Tracks>(sink).set_opener(cx.now, opener);
                }
            }
            if self.config.receiver_reports {
                link.report_at = Some(cx.now + super::REPORT_EVERY);
            }
            if cx.sinks.get::<Tracks>(sink).has_questions() {
                link.ask_at = Some(cx.now + super::ASK_EVERY);
            }
            self.check.get_or_insert(cx.now + self.config.no_media.0);
            self.begin_to_tell(cx, at);
        }
        let link = &mut self.links[at];
        if link.direction == Direction::Send {
            self.begin_sending(cx, at);
        }
        self.signal(cx, |signalling, scope| signalling.stands(scope, number));
    }

    /// Handles the first media of a sink.
    pub(super) fn media_began(&mut self, cx: &mut Context<'_>, sink: SinkId, first: Time) {
        let mut links = self.links.iter_mut();
        if let Some(link) = links.find(|link| link.sink == Some(sink))
            && !std::mem::replace(&mut link.has_media, true)
        {
            let waited = first.since(link.stands.unwrap_or(first));
            cx.recorder
                .record(m::FIRST_MEDIA_DELAY, waited.as_nanos() as u64);
            // After the handshake, one wake-up serves all clients.
            cx.out.push_back(Output::Read {
                channel: link.channel,
                reading: Reading::Soon(FEEDBACK_WITHIN),
            });
        }
        self.check = Some(first + self.config.silence.0);
        self.begins_to_receive(cx, first);
    }

    /// Requests missing packets at once: a sink has found a gap.
    pub(super) fn media_is_missing(&mut self, cx: &mut Context<'_>, sink: SinkId) {
        let mut links = self.links.iter_mut();
        if let Some(link) = links.find(|link| link.sink == Some(sink)) {
            link.ask_at = Some(cx.now);
        }
    }

    /// Sends transport feedback at once: the first packet with a transport-wide sequence number has
    /// arrived, while the client checked only once a second.
    pub(super) fn media_is_numbered(&mut self, cx: &mut Context<'_>, sink: SinkId) {
        let mut links = self.links.iter_mut();
        if let Some(link) = links.find(|link| link.sink == Some(sink)) {
            link.tell_at = link.tell_at.map(|_| cx.now);
        }
    }

    /// Fails the client because a PeerConnection has failed.
    pub(super) fn peer_failed(&mut self, cx: &mut Context<'_>, at: usize, failure: PeerFailure) {
        if failure == PeerFailure::IceTimedOut
            && let Some(refusal) = self.links[at].refusal()
        {
            return self.fail(cx, Failure::TurnRefused, refusal);
        }
        if failure == PeerFailure::IceTimedOut
            && let Some(why) = self.links[at].why_no_remote()
        {
            let detail = self.of_link(at, &why);
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
        let detail = self.of_link(at, &failure.to_string());
        self.fail(cx, reason, detail);
    }

    /// Returns a detail with the addresses of the PeerConnection appended.
    pub(super) fn of_link(&self, at: usize, what: &str) -> String {
        let link = &self.links[at];
        let peer = link.peer.as_ref();
        let by = match &self.config.turn {
            Some(turn) => format!(", via {}", turn.url),
            None => String::new(),
        };
        let ends = match (link.local, peer.and_then(|peer| peer.remote_address())) {
            (Some(local), Some(remote)) => format!("{local} to {remote}"),
            (Some(local), None) => format!("{local} to {}", self.url),
            _ => self.url.to_string(),
        };
        format!("{what} ({ends}{by})")
    }

    /// Handles everything that is due in a PeerConnection.
    pub(super) fn due_link(&mut self, cx: &mut Context<'_>, at: usize) {
        let now = cx.now;
        if self.due_relay(cx, at) {
            return;
        }
        let link = &mut self.links[at];
        if let Some(peer) = &mut link.peer
            && peer.deadline().is_some_and(|due| due <= now)
        {
            peer.handle_timeout(now);
            self.drain(cx, at);
            if self.phase == Phase::Ended || at >= self.links.len() {
                return;
            }
        }
        if self.links[at]
            .limit(&self.config)
            .is_some_and(|due| due <= now)
        {
            let link = &self.links[at];
            let (failure, what) = match (link.agreed, link.found) {
                (None, _) => (
                    Failure::RequestTimeout,
                    "no session description from the server in time",
                ),
                (_, None) => match (link.refusal(), link.why_no_remote()) {
                    (Some(refusal), _) => return self.fail(cx, Failure::TurnRefused, refusal),
                    (None, Some(why)) => {
                        let detail = self.of_link(at, &why);
                        return self.fail(cx, Failure::NoCandidates, detail);
                    }
                    (None, None) => (Failure::IceTimeout, "no working candidate pair in time"),
                },
                (_, Some(_)) => (
                    Failure::DtlsTimeout,
                    "the DTLS handshake did not complete in time",
                ),
            };
            let detail = self.of_link(at, what);
            return self.fail(cx, failure, detail);
        }
        let link = &mut self.links[at];
        if link.report_at.is_some_and(|due| due <= now) {
            link.report_at = Some(now + super::REPORT_EVERY);
            self.report_received(cx, at);
            if self.is_leaving() || at >= self.links.len() {
                return;
            }
        }
        self.ask_for_missing(cx, at);
        self.tell_of_transport(cx, at);
        self.due_sending(cx, at);
    }

    /// Ends a PeerConnection: notifies the server, and adds its figures to the recorder.
    pub(super) fn drop_link(&mut self, cx: &mut Context<'_>, at: usize) {
        self.end_sending(cx, at);
        self.count_link(cx, at);
        if let Some(peer) = &mut self.links[at].peer {
            peer.close(cx.now);
        }
        // Pending output includes the close, even if the PeerConnection has failed.
        let mut link = self.links.remove(at);
        link.send_waiting(cx);
        if let Some(sink) = link.sink {
            let mut tracks = cx.sinks.remove::<Tracks>(sink);
            tracks.finish(self.silent_until, cx.recorder);
            let url = self.url.to_string();
            let room = ROWS_MAX.saturating_sub(self.rows.len());
            self.rows.extend(tracks.rows(&url).into_iter().take(room));
        }
        let channel = link.channel;
        match link.relay.take() {
            Some(relay) => self.give_back(cx, channel, relay),
            None => cx.out.push_back(Output::Close { channel }),
        }
    }
}
