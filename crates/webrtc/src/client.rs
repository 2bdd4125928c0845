//! WebRTC client: signalling over one connection, or two with Janus over HTTP, and media over
//! PeerConnections with a socket each.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use measure::{HistogramId, Time};

use super::certificate::Certificate;
use super::config::ClientConfig;
use super::signalling::{Direction, Signalling, SignallingAction, SignallingTarget};
use super::url::Url;
use kit::connect_failure::ConnectFailure;
use kit::media::source::MediaSource;
use kit::media::talk::TurnSchedule;
use kit::publication::Publisher;
use kit::url::UrlError;
use session::{
    ArrivalTimes, ChannelError, ChannelId, CloseReason, Context, Input, MediaEvent, Note, Outcome,
    Output, Port, Session, Sinks, StreamRow,
};

mod congestion;
mod feedback;
mod link;
mod media_checks;
mod negotiate;
mod publish;
mod setup;
mod shutdown;
mod signalling_state;
mod silent_streams;
mod startup;
mod turn_relay;
mod zap;

use link::PeerLink;
use media_checks::MediaChecks;
use publish::RtpFeed;
use setup::Setup;
use shutdown::EndedStreams;
use signalling_state::SignallingState;
use startup::Startup;
use turn_relay::ReleasingRelay;

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
    setup: Setup,
    phase: Phase,
    signalling: SignallingState,
    last_channel: u32,
    /// Local address of the first signalling connection. Sockets for media are bound to it.
    local: Option<IpAddr>,
    links: Vec<PeerLink>,
    /// Plain RTP that is sent to a Janus mount point.
    feed: Option<Box<RtpFeed>>,
    /// TURN allocations that are being released. Their PeerConnections have ended.
    releasing_relays: Vec<ReleasingRelay>,
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
            links: Vec::new(),
            feed: None,
            releasing_relays: Vec::new(),
            startup: Startup::new(&setup),
            published: false,
            checks: MediaChecks::default(),
            outcome: None,
            leave_deadline: Time::NEVER,
            ended_streams: EndedStreams::default(),
            publisher: Publisher::default(),
            setup,
        })
    }

    /// Sets the media that the client publishes or feeds.
    pub fn with_source(mut self, source: Arc<MediaSource>) -> Client {
        self.signalling
            .kind
            .set_fed_streams(RtpFeed::media(&source));
        self.setup.source = Some(source);
        self
    }

    /// Sends audio as a voice with this speaking schedule.
    pub(super) fn with_talk(mut self, talk: TurnSchedule) -> Client {
        self.setup.talk_schedule = Some(Box::new(talk));
        self
    }

    /// Sets the wall-clock time at [`Time::ZERO`], since 1970. Published media is stamped with it.
    pub fn with_wall_clock(mut self, wall_clock: Duration) -> Client {
        self.setup.wall_clock = Some(wall_clock);
        self.signalling.kind.set_wall_clock(wall_clock);
        self
    }

    /// Enables the search for time codes in decrypted frames.
    pub fn with_time_codes(mut self) -> Client {
        self.setup.reads_time_codes = true;
        self
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
            SignallingAction::Connect(target) => self.connect(cx, target, false),
            SignallingAction::ConnectSecond(_) if self.is_leaving() => {}
            SignallingAction::ConnectSecond(target) => self.connect(cx, target, true),
            SignallingAction::Send(bytes) => send(cx, self.signalling.channel, bytes),
            SignallingAction::SendSecond(bytes) => send(cx, self.signalling.second_channel, bytes),
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
            SignallingAction::AnswerOffer { peer, offer } => match self.link_index(peer) {
                Some(at) => self.answer(cx, at, &offer),
                None => self.open_link(cx, peer, Direction::Receive, Some(offer)),
            },
            SignallingAction::RemoteAnswer { peer, answer } => {
                if let Some(at) = self.link_index(peer) {
                    self.handle_answer(cx, at, &answer);
                }
            }
            SignallingAction::RemoteCandidate { peer, candidate } => {
                if let Some(at) = self.link_index(peer) {
                    self.candidate(cx, at, &candidate);
                }
            }
            SignallingAction::FeedTo { ports } => self.open_feed(cx, &ports),
            SignallingAction::ExpectMedia => self.startup.expects_media = true,
            SignallingAction::DropPeer { peer } => {
                if let Some(at) = self.link_index(peer) {
                    self.close_link(cx, at);
                }
            }
        }
    }

    fn connect(&mut self, cx: &mut Context<'_>, target: SignallingTarget, is_second: bool) {
        let (channel, config) = (self.next_channel(), &self.setup.config);
        self.signalling
            .connect(cx, channel, config, target, is_second);
    }

    fn opened(&mut self, cx: &mut Context<'_>, channel: ChannelId, local: SocketAddr) {
        if self.signalling.channel == Some(channel) {
            if self.local.is_none() {
                self.local = Some(session::udp_bind_address(local.ip()));
                self.startup.connected(cx);
            }
            return self.signalling.call(cx, Signalling::connected);
        }
        if self.signalling.second_channel == Some(channel) {
            return self.signalling.call(cx, Signalling::second_connected);
        }
        if self.feed_opened(cx, channel) {
            return;
        }
        let mut links = self.links.iter();
        if let Some(at) = links.position(|link| link.channel == channel) {
            match &self.setup.config.turn {
                None => self.link_opened(cx, at, local),
                Some(_) => self.relay_opened(cx, at),
            }
        }
    }

    fn open_failed(&mut self, cx: &mut Context<'_>, channel: ChannelId, error: ChannelError) {
        if self.signalling.channel == Some(channel)
            || self.signalling.second_channel == Some(channel)
        {
            match self.signalling.second_channel == Some(channel) {
                true => self.signalling.second_channel = None,
                false => self.signalling.channel = None,
            }
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
        if self.feed_failed(cx, channel, error) {
            return;
        }
        let mut links = self.links.iter();
        if let Some(at) = links.position(|link| link.channel == channel) {
            self.link_open_failed(cx, at, error);
        }
    }

    fn closed(&mut self, cx: &mut Context<'_>, channel: ChannelId, how: CloseReason) {
        if self.signalling.channel == Some(channel) {
            self.signalling.channel = None;
            return self
                .signalling
                .call(cx, |own, scope| own.closed(scope, how));
        }
        if self.signalling.second_channel == Some(channel) {
            self.signalling.second_channel = None;
            return self.signalling.call(cx, |signalling, scope| {
                signalling.second_closed(scope, how);
            });
        }
        if self.feed_closed(cx, channel) {
            return;
        }
        let mut links = self.links.iter();
        if let Some(at) = links.position(|link| link.channel == channel) {
            self.relay_closed(cx, at, how);
        }
    }

    /// Handles everything that is due.
    fn handle_due(&mut self, cx: &mut Context<'_>) {
        let signalling_deadline = self.signalling.deadline();
        if signalling_deadline.is_some_and(|due| due <= cx.now) {
            self.signalling.call(cx, Signalling::handle_due);
        }
        let mut at = 0;
        while let Some(link) = self.links.get(at) {
            let number = link.number;
            let setup_deadline = link.setup_deadline(&self.setup.config);
            if link
                .deadline()
                .into_iter()
                .chain(setup_deadline)
                .any(|due| due <= cx.now)
            {
                self.handle_link_due(cx, at);
            }
            // If the link was dropped, the next one now has its index.
            at += usize::from(self.links.get(at).is_some_and(|link| link.number == number));
        }
        if !self.releasing_relays.is_empty() {
            self.drive_releasing_relays(cx);
        }
        self.handle_feed_due(cx);
        self.check_deadlines(cx);
    }

    /// Earliest deadline of an active client that belongs to no PeerConnection.
    fn client_deadline(&self) -> Time {
        let releasing = self
            .releasing_relays
            .iter()
            .filter_map(ReleasingRelay::deadline);
        let feed = self.feed.as_ref().and_then(|feed| feed.deadline());
        let own = [
            self.checks.next_at,
            self.checks.leave_at,
            self.signalling.deadline(),
            feed,
        ];
        let all = own.into_iter().flatten().chain(releasing);
        all.min().unwrap_or(Time::NEVER)
    }
}

impl Session for Client {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        if !self.releasing_relays.is_empty() {
            self.pass_to_releasing_relay(cx, &input);
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
            Input::Bytes { channel, bytes, .. } if self.signalling.channel == Some(channel) => {
                self.signalling
                    .call(cx, |signalling, scope| signalling.bytes(scope, bytes));
            }
            Input::Bytes { channel, bytes, .. }
                if self.signalling.second_channel == Some(channel) =>
            {
                self.signalling.call(cx, |signalling, scope| {
                    signalling.second_bytes(scope, bytes);
                });
            }
            Input::Bytes {
                channel,
                bytes,
                at,
                runs,
            } => {
                let mut links = self.links.iter();
                if let Some(link) = links.position(|link| link.channel == channel) {
                    self.relayed_bytes(cx, link, bytes, ArrivalTimes::new(runs, at));
                }
            }
            Input::Closed {
                channel,
                reason: how,
            } => self.closed(cx, channel, how),
            Input::Datagrams { channel, datagrams } => {
                let mut links = self.links.iter();
                match links.position(|link| link.channel == channel) {
                    Some(at) => self.datagrams(cx, at, datagrams),
                    None => self.handle_feed_rtcp(cx, channel, datagrams),
                }
            }
            Input::Media {
                sink,
                event: MediaEvent::First { at },
            } => self.media_began(cx, sink, at),
            Input::Media {
                sink,
                event: MediaEvent::FeedbackDue { .. },
            } => self.request_missing_now(cx, sink),
            Input::Media {
                sink,
                event: MediaEvent::FirstTransportNumber,
            } => self.send_feedback_now(cx, sink),
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
        let links = &self.links;
        self.phase != Phase::Active
            || links
                .iter()
                .any(|link| link.connected_at.is_none() || link.awaits(now))
            || self.client_deadline() <= now
    }

    fn deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Idle | Phase::Ended => return None,
            Phase::Leaving => {
                let signalling_deadline = self.signalling.deadline();
                let signalling_deadline = signalling_deadline.unwrap_or(Time::NEVER);
                let releasing = self
                    .releasing_relays
                    .iter()
                    .filter_map(ReleasingRelay::deadline);
                let releasing = releasing.min().unwrap_or(Time::NEVER);
                return Some(signalling_deadline.min(self.leave_deadline).min(releasing));
            }
            Phase::Active => {}
        }
        let mut due = self.client_deadline();
        let mut all_connected = !self.links.is_empty();
        for link in &self.links {
            all_connected &= link.connected_at.is_some();
            let setup_deadline = link.setup_deadline(&self.setup.config);
            for own in link.deadline().into_iter().chain(setup_deadline) {
                due = due.min(own);
            }
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

/// Records a delay.
fn record_delay(cx: &mut Context<'_>, histogram: HistogramId, delay: Duration) {
    cx.recorder.record(histogram, delay.as_nanos() as u64);
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
