//! WebRTC client: signalling over one connection, or two with Janus over HTTP, and media over
//! PeerConnections with a socket each.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::certificate::Certificate;
use super::config::ClientConfig;
use super::signalling::{Connection, Direction, Signalling, SignallingAction, SignallingTarget};
use super::url::Url;
use kit::connect_failure::ConnectFailure;
use kit::media::source::MediaSource;
use kit::media::talk::TurnSchedule;
use kit::publication::Publisher;
use kit::url::UrlError;
use session::{
    ArrivalTimes, ChannelError, ChannelId, CloseReason, Context, Input, Note, Outcome, Output,
    Port, Session, Sinks, StreamRow,
};

mod congestion;
mod feedback;
mod link;
mod links;
mod media_checks;
mod negotiate;
mod publish;
mod releasing_relays;
mod setup;
mod shutdown;
mod signalling_state;
mod silent_streams;
mod startup;
mod turn_relay;

use link::PeerLink;
use links::Links;
use media_checks::MediaChecks;
use publish::RtpFeed;
use releasing_relays::ReleasingRelays;
use setup::Setup;
use shutdown::EndedStreams;
use signalling_state::SignallingState;
use startup::Startup;

/// Interval between receiver reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Interval of checks for repeated NACKs. The first NACK for a gap does not wait for them.
const NACK_CHECK_INTERVAL: Duration = Duration::from_millis(40);

/// Time after the last BYE in which late packets are still accepted.
const BYE_GRACE: Duration = Duration::from_millis(200);

/// Granularity of deadlines while media flows. Deadlines are rounded up to a multiple of it, so
/// that all clients of a worker wake up together.
const DEADLINE_GRID: Duration = Duration::from_millis(20);

/// Lifecycle of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not started.
    Idle,
    Active,
    /// The signalling ends the session, and TURN allocations are released.
    Leaving,
    Ended,
}

/// WebRTC client of one URL.
#[derive(Debug)]
pub struct Client {
    /// Shared with the links.
    setup: Arc<Setup>,
    phase: Phase,
    signalling: SignallingState,
    last_channel: u32,
    /// Local address of the first signalling connection. Sockets for media are bound to it.
    local: Option<IpAddr>,
    links: Links,
    /// Plain RTP that is sent to a Janus mount point.
    feed: Option<Box<RtpFeed>>,
    releasing_relays: ReleasingRelays,
    startup: Startup,
    /// True once players were told that the stream is published.
    published: bool,
    checks: MediaChecks,
    /// Outcome, known once the client leaves.
    outcome: Option<Outcome>,
    /// End of the time that a leaving client has for its goodbye.
    leave_deadline: Time,
    ended_streams: EndedStreams,
    publisher: Publisher,
}

impl Client {
    /// Creates a client of `url`.
    ///
    /// # Errors
    /// [`UrlError`] if the URL is invalid.
    pub fn new(
        config: impl Into<Arc<ClientConfig>>,
        url: &str,
        seed: u64,
        certificate: Arc<Certificate>,
    ) -> Result<Client, UrlError> {
        let setup = Setup::new(config.into(), Url::parse(url)?, seed, certificate);
        Ok(Client {
            phase: Phase::Idle,
            signalling: SignallingState::new(setup.signalling()),
            last_channel: 0,
            local: None,
            links: Links::default(),
            feed: None,
            releasing_relays: ReleasingRelays::default(),
            startup: Startup::new(&setup),
            published: false,
            checks: MediaChecks::default(),
            outcome: None,
            leave_deadline: Time::NEVER,
            ended_streams: EndedStreams::default(),
            publisher: Publisher::default(),
            setup: Arc::new(setup),
        })
    }

    /// Sets the media that the client publishes or feeds.
    pub fn with_source(mut self, source: Arc<MediaSource>) -> Client {
        self.signalling
            .kind
            .set_fed_streams(RtpFeed::media(&source));
        self.setup_mut().source = Some(source);
        self
    }

    /// Sends audio as a voice with this speaking schedule.
    pub(super) fn with_talk(mut self, talk: TurnSchedule) -> Client {
        self.setup_mut().talk_schedule = Some(Box::new(talk));
        self
    }

    /// Sets the wall-clock time at [`Time::ZERO`], since 1970. Published media is stamped with it.
    pub fn with_wall_clock(mut self, wall_clock: Duration) -> Client {
        self.setup_mut().wall_clock = Some(wall_clock);
        self.signalling.kind.set_wall_clock(wall_clock);
        self
    }

    /// Enables the search for time codes in decrypted frames.
    pub fn with_time_codes(mut self) -> Client {
        self.setup_mut().reads_time_codes = true;
        self
    }

    /// Makes the client play a later channel of a client that changes channel.
    pub fn for_later_channel(mut self) -> Client {
        self.startup.is_later_channel = true;
        self
    }

    fn setup_mut(&mut self) -> &mut Setup {
        Arc::make_mut(&mut self.setup)
    }

    fn next_channel(&mut self) -> ChannelId {
        self.last_channel += 1;
        ChannelId(self.last_channel)
    }

    fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving | Phase::Ended)
    }

    /// Carries out the actions of the signalling.
    fn run_actions(&mut self, cx: &mut Context<'_>) {
        while self.phase != Phase::Ended
            && let Some(action) = self.signalling.actions.pop_front()
        {
            self.run_action(cx, action);
        }
    }

    fn run_action(&mut self, cx: &mut Context<'_>, action: SignallingAction) {
        match action {
            SignallingAction::Connect(Connection::Second, _) if self.is_leaving() => {}
            SignallingAction::Connect(which, target) => self.connect(cx, which, target),
            SignallingAction::Send(which, bytes) => send(cx, self.signalling.channel(which), bytes),
            SignallingAction::Disconnect => self.signalling.disconnect(cx),
            SignallingAction::Left => self.signalling_has_ended(cx),
            SignallingAction::Failed { failure, detail } => {
                self.signalling_failed(cx, failure, detail)
            }
            SignallingAction::Note { kind, text } => note(cx, kind, text),
            // A leaving client starts nothing new.
            _ if self.is_leaving() => {}
            SignallingAction::CreateOffer { peer, direction } => {
                self.open_link(cx, peer, direction, None)
            }
            SignallingAction::AnswerOffer { peer, offer } => match self.links.id_of(peer) {
                Some(id) => self.update_link(cx, id, |link, cx| link.answer(cx, &offer)),
                None => self.open_link(cx, peer, Direction::Receive, Some(offer)),
            },
            SignallingAction::RemoteAnswer { peer, answer } => {
                if let Some(id) = self.links.id_of(peer) {
                    self.update_link(cx, id, |link, cx| link.handle_answer(cx, &answer));
                }
            }
            SignallingAction::RemoteCandidate { peer, candidate } => {
                if let Some(id) = self.links.id_of(peer) {
                    self.update_link(cx, id, |link, cx| link.add_candidate(cx, &candidate));
                }
            }
            SignallingAction::FeedTo { ports } => self.open_feed(cx, &ports),
            SignallingAction::ExpectMedia => self.startup.expects_media = true,
            SignallingAction::DropPeer { peer } => {
                if let Some(id) = self.links.id_of(peer) {
                    self.close_link(cx, id);
                }
            }
        }
    }

    fn connect(&mut self, cx: &mut Context<'_>, which: Connection, target: SignallingTarget) {
        let (channel, config) = (self.next_channel(), &self.setup.config);
        self.signalling.connect(cx, channel, config, which, target);
    }

    fn opened(&mut self, cx: &mut Context<'_>, channel: ChannelId, local: SocketAddr) {
        if let Some(which) = self.signalling.connection(channel) {
            if self.local.is_none() {
                self.local = Some(session::udp_bind_address(local.ip()));
                self.startup.connected(cx);
            }
            return self
                .signalling
                .call(cx, |own, scope| own.connected(scope, which));
        }
        if self.feed_opened(cx, channel) {
            return;
        }
        self.update_link(cx, channel, |link, cx| link.opened(cx, local));
    }

    fn open_failed(&mut self, cx: &mut Context<'_>, channel: ChannelId, error: ChannelError) {
        if let Some(which) = self.signalling.connection(channel) {
            self.signalling.closed(which);
            let target = self.signalling.target.as_ref();
            let target = target.map(|target| format!("{}:{}", target.host, target.port));
            let detail = format!("{error} ({})", target.unwrap_or_default());
            if self.is_leaving() {
                self.goodbye_unanswered(cx, &detail);
                return self.signalling_has_ended(cx);
            }
            let failure = ConnectFailure::from(error);
            return self.fail(cx, failure.into(), detail);
        }
        if !self.feed_failed(cx, channel, error) {
            self.update_link(cx, channel, |link, _| Err(link.open_failure(error)));
        }
    }

    fn closed(&mut self, cx: &mut Context<'_>, channel: ChannelId, how: CloseReason) {
        if let Some(which) = self.signalling.connection(channel) {
            self.signalling.closed(which);
            return self
                .signalling
                .call(cx, |own, scope| own.closed(scope, which, how));
        }
        if !self.feed_closed(cx, channel) {
            self.update_link(cx, channel, |link, _| link.relay_closed(how));
        }
    }

    /// Handles everything that is due.
    fn handle_due(&mut self, cx: &mut Context<'_>) {
        if self.signalling.deadline().is_some_and(|due| due <= cx.now) {
            self.signalling.call(cx, Signalling::handle_due);
        }
        let is_due = |link: &&PeerLink| link.deadline().is_some_and(|due| due <= cx.now);
        let links: Vec<_> = self
            .links
            .iter()
            .filter(is_due)
            .map(|link| link.channel)
            .collect();
        for link in links {
            self.update_link(cx, link, PeerLink::handle_due);
        }
        self.releasing_relays.drive(cx);
        self.finish_if_left(cx);
        self.handle_feed_due(cx);
        self.check_deadlines(cx);
    }

    /// Earliest deadline of an active client that belongs to no PeerConnection.
    fn client_deadline(&self) -> Time {
        let all = [
            self.checks.next_at,
            self.checks.leave_at,
            self.signalling.deadline(),
            self.feed.as_ref().and_then(|feed| feed.deadline()),
            self.releasing_relays.deadline(),
        ];
        all.into_iter().flatten().min().unwrap_or(Time::NEVER)
    }
}

impl Session for Client {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        if !self.releasing_relays.is_empty() {
            self.releasing_relays.handle(cx, &input);
            self.finish_if_left(cx);
        }
        match input {
            _ if self.phase == Phase::Ended => return,
            Input::Start { due } if self.phase == Phase::Idle => {
                (self.startup.planned, self.startup.started) = (due, cx.now);
                self.phase = Phase::Active;
                self.signalling.call(cx, Signalling::begin);
            }
            Input::Opened { channel, local, .. } => self.opened(cx, channel, local),
            Input::OpenFailed { channel, error } => self.open_failed(cx, channel, error),
            Input::Bytes {
                channel,
                bytes,
                at,
                runs,
            } => match self.signalling.connection(channel) {
                Some(which) => self
                    .signalling
                    .call(cx, |own, scope| own.bytes(scope, which, bytes)),
                None => self.update_link(cx, channel, |link, cx| {
                    link.handle_relayed_bytes(cx, bytes, ArrivalTimes::new(runs, at))
                }),
            },
            Input::Closed {
                channel,
                reason: how,
            } => self.closed(cx, channel, how),
            Input::Datagrams { channel, datagrams } => {
                self.update_link(cx, channel, |link, cx| link.handle_datagrams(cx, datagrams));
                self.handle_feed_rtcp(cx, channel, datagrams);
            }
            Input::Media { sink, event } => {
                let link = self.links.iter().find(|link| link.sink == Some(sink));
                if let Some(id) = link.map(|link| link.channel) {
                    self.update_link(cx, id, |link, cx| {
                        link.handle_media_event(cx, event);
                        Ok(())
                    });
                }
            }
            Input::TopicMessage { message, .. } => self.publisher.handle_message(message, cx.now),
            Input::FlowEnded { flow } => self.handle_flow_ended(cx, flow),
            Input::Stop { until } => self.stop(cx, until),
            _ => {}
        }
        self.run_actions(cx);
        if self.phase != Phase::Ended {
            self.handle_due(cx);
            self.run_actions(cx);
        }
    }

    fn awaits_input(&self, now: Time) -> bool {
        let mut links = self.links.iter();
        self.phase != Phase::Active
            || links.any(|link| link.connected_at.is_none() || link.awaits(now))
            || self.client_deadline() <= now
    }

    fn deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Idle | Phase::Ended => return None,
            Phase::Leaving => {
                let signalling = self.signalling.deadline().into_iter();
                let all = signalling.chain(self.releasing_relays.deadline());
                return all.chain([self.leave_deadline]).min();
            }
            Phase::Active => {}
        }
        let mut due = self.client_deadline();
        let mut all_connected = !self.links.is_empty();
        for link in self.links.iter() {
            all_connected &= link.connected_at.is_some();
            due = due.min(link.deadline().unwrap_or(Time::NEVER));
        }
        match (due, all_connected) {
            (Time::NEVER, _) => None,
            (due, true) => Some(round_up_to_grid(due)),
            (due, false) => Some(due),
        }
    }

    fn streams(&self, sinks: &mut Sinks) -> Vec<StreamRow> {
        self.all_rows(sinks)
    }
}

/// Rounds up to a multiple of [`DEADLINE_GRID`].
fn round_up_to_grid(at: Time) -> Time {
    let grid = DEADLINE_GRID.as_nanos() as u64;
    Time::from_nanos(at.as_nanos().div_ceil(grid).saturating_mul(grid))
}

/// Adds an event to the run's list of events.
fn note(cx: &mut Context<'_>, kind: &'static str, text: String) {
    cx.out.push_back(Output::Note(Note { kind, text }));
}

/// Sends bytes on a connection. `None` sends nothing.
fn send(cx: &mut Context<'_>, channel: Option<ChannelId>, bytes: Vec<u8>) {
    let port = Port::Media;
    cx.out.extend(channel.map(|channel| Output::Send {
        channel,
        port,
        bytes,
    }));
}
