//! WebRTC client: signalling over one connection, or two with Janus over HTTP, and media over
//! PeerConnections with a socket each.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::certificate::Certificate;
use super::config::{ClientConfig, Layer};
use super::signalling::janus::{self, Janus, Subscribe};
use super::signalling::livekit::{self, LiveKit};
use super::signalling::whip::{self, Whip};
use super::signalling::{Common, Direction, Scope, Signalling, Target, Wanted};
use super::url::{Place, Url};
use crate::connect_failure::ConnectFailure;
use crate::media::rtp::StreamSummary;
use crate::media::source::{LAYERS, MediaSource, SourceConfig};
use crate::media::talk::Talk;
use crate::metrics as clients;
use crate::mix::mix;
use crate::publication::Publisher;
use crate::session::{
    ChannelError, ChannelId, Closed, Context, Input, MediaEvent, Note, Open, Outcome, Output, Port,
    Session, Sinks, StreamRow, Times,
};
use crate::url::UrlError;

mod congestion;
mod end;
mod feedback;
mod link;
mod negotiate;
mod publish;
mod relay;
mod silent;

use link::Link;
use publish::Feed;
use relay::Returning;

/// Interval between receiver reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Interval of checks for repeated NACKs. The first NACK for a gap does not wait for them.
const ASK_EVERY: Duration = Duration::from_millis(40);

/// Time after the last BYE in which late packets are still accepted.
const AFTER_GOODBYE: Duration = Duration::from_millis(200);

/// Granularity of deadlines while media flows. Deadlines are rounded up to a multiple of it, so
/// that all clients of a worker wake up together.
const GRID: Duration = Duration::from_millis(20);

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
    /// Shared by all clients of the population.
    config: Arc<ClientConfig>,
    url: Url,
    seed: u64,
    certificate: Arc<Certificate>,
    signalling: Box<dyn Signalling>,
    /// Actions of the signalling that are still to be carried out.
    wanted: VecDeque<Wanted>,
    phase: Phase,
    /// Signalling connection, open or being opened.
    channel: Option<ChannelId>,
    /// Second signalling connection. Janus over HTTP uses it for events.
    second: Option<ChannelId>,
    /// Destination of the signalling connection.
    target: Option<Target>,
    /// Number of the last channel.
    channels: u32,
    /// Local address of the first signalling connection. Sockets for media are bound to it.
    local: Option<IpAddr>,
    links: Vec<Link>,
    /// Plain RTP that is sent to a Janus mount point.
    feed: Option<Box<Feed>>,
    /// TURN allocations that are being released. Their PeerConnections have ended.
    returning: Vec<Returning>,
    /// True once the signalling has nothing more to send.
    has_left: bool,
    source: Option<Arc<MediaSource>>,
    /// Speaking schedule of the voice. `None` if audio is sent all the time.
    talk: Option<Box<Talk>>,
    /// SSRC of our receiver reports.
    ssrc: u32,
    /// CNAME of our streams and reports.
    cname: String,
    /// Planned start.
    due: Time,
    /// Actual start.
    started: Time,
    /// True if media is available from the start, so that start-up delays are recorded. False for a
    /// client that enters an empty room or only publishes.
    expects: bool,
    /// True once media is received or sent.
    began: bool,
    /// True once media is received.
    receives: bool,
    /// True once players were told that the stream is published.
    published: bool,
    /// Time of the next check for received media.
    check: Option<Time>,
    /// Time at which the client leaves because the server ended all streams (BYE).
    over_at: Option<Time>,
    /// Time since which media is expected. `None` while no one sends any to this client.
    expects_since: Option<Time>,
    /// Outcome, known once the client leaves.
    outcome: Option<Outcome>,
    /// End of the time that a leaving client has for its goodbye.
    leave_by: Time,
    /// Set if media stopped: packets missing up to this time count as lost.
    silent_until: Option<Time>,
    /// Rows of streams that have ended.
    rows: Vec<StreamSummary>,
    /// Wall-clock time at [`Time::ZERO`], since 1970.
    wall_clock: Option<Duration>,
    /// True if decrypted frames may carry time codes.
    time_codes: bool,
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
        let (config, url) = (config.into(), Url::parse(url)?);
        let common = Common {
            request_timeout: config.request_timeout.0,
            token: config.token.clone(),
            user_agent: config.user_agent.clone(),
            seed: mix(&[seed, 1]),
        };
        let signalling: Box<dyn Signalling> = match url.place {
            Place::Whep | Place::Whip => {
                let direction = match url.place {
                    Place::Whip => Direction::Send,
                    _ => Direction::Receive,
                };
                let settings = whip::Settings {
                    common,
                    follow: config.follow,
                    trickle: config.trickle,
                };
                Box::new(Whip::new(settings, url.at.clone(), direction))
            }
            Place::Room(_) | Place::Mountpoint(_) => {
                let settings = janus::Settings {
                    common,
                    place: url.place.clone(),
                    trickle: config.trickle,
                    publishes: config.participate.is_some(),
                    subscribe: config.subscribe,
                    api_secret: config.api_secret.clone(),
                    pin: config.pin.clone(),
                    room: config.room_request(),
                    substream: config.layer.map(|layer| u64::from(layer.number())),
                    last_n: config.last_n.map(|most| most as usize),
                    long_poll: url.long_poll,
                };
                Box::new(Janus::new(settings, url.at.clone()))
            }
            Place::LiveKit(ref room) => {
                let size = config.participate.as_ref().and_then(|source| source.size);
                let settings = livekit::Settings {
                    common,
                    room: room.clone(),
                    key: config.api_key.clone().zip(config.api_secret.clone()),
                    trickle: config.trickle,
                    publishes: config.participate.is_some(),
                    subscribes: config.subscribe != Subscribe::Nobody,
                    size: size.map(|size| (size.width, size.height)),
                    layers: config
                        .participate
                        .as_ref()
                        .map_or_else(Vec::new, sent_layers),
                    quality: config.layer.map(Layer::number),
                };
                Box::new(LiveKit::new(settings, url.at.clone()))
            }
        };
        let ssrc = mix(&[seed, 2]) as u32;
        let feeds = config.feed.is_some();
        let expects = matches!(url.place, Place::Whep | Place::Mountpoint(_)) && !feeds;
        Ok(Client {
            config,
            url,
            seed,
            certificate,
            signalling,
            wanted: VecDeque::new(),
            phase: Phase::Idle,
            channel: None,
            second: None,
            target: None,
            channels: 0,
            local: None,
            links: Vec::new(),
            feed: None,
            returning: Vec::new(),
            has_left: false,
            source: None,
            talk: None,
            ssrc,
            cname: format!("{:016x}", mix(&[seed, 3])),
            due: Time::ZERO,
            started: Time::ZERO,
            expects,
            began: false,
            receives: false,
            published: false,
            check: None,
            expects_since: None,
            over_at: None,
            outcome: None,
            leave_by: Time::NEVER,
            silent_until: None,
            rows: Vec::new(),
            wall_clock: None,
            time_codes: false,
            publisher: Publisher::default(),
        })
    }

    /// Sets the media that the client publishes or feeds.
    pub fn publishing(mut self, source: Arc<MediaSource>) -> Client {
        self.signalling.tell_media(Feed::media(&source));
        self.source = Some(source);
        self
    }

    /// Sends audio as a voice with this speaking schedule.
    pub(super) fn talking(mut self, talk: Talk) -> Client {
        self.talk = Some(Box::new(talk));
        self
    }

    /// Sets the wall-clock time at [`Time::ZERO`], since 1970. Published media is stamped with it.
    pub fn with_wall_clock(mut self, wall_clock: Duration) -> Client {
        self.wall_clock = Some(wall_clock);
        self.signalling.tell_wall_clock(wall_clock);
        self
    }

    /// Enables the search for time codes in decrypted frames.
    pub fn looking_for_codes(mut self) -> Client {
        self.time_codes = true;
        self
    }

    fn next_channel(&mut self) -> ChannelId {
        self.channels += 1;
        ChannelId(self.channels)
    }

    fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving | Phase::Ended)
    }

    /// Starts the signalling.
    fn set_to_work(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Active;
        self.check = None;
        self.signal(cx, |signalling, scope| signalling.begin(scope));
    }

    /// Calls the signalling. Its actions are carried out later, by [`Client::carry_out`].
    fn signal(
        &mut self,
        cx: &mut Context<'_>,
        does: impl FnOnce(&mut dyn Signalling, &mut Scope<'_>),
    ) {
        let mut scope = Scope {
            now: cx.now,
            recorder: cx.recorder,
            wanted: &mut self.wanted,
        };
        does(&mut *self.signalling, &mut scope);
        self.expects_since = match self.signalling.expects_media() {
            true => self.expects_since.or(Some(cx.now)),
            false => None,
        };
    }

    /// Carries out the actions of the signalling.
    fn carry_out(&mut self, cx: &mut Context<'_>) {
        while self.phase != Phase::Ended
            && let Some(wanted) = self.wanted.pop_front()
        {
            self.carry_out_one(cx, wanted);
        }
    }

    fn carry_out_one(&mut self, cx: &mut Context<'_>, wanted: Wanted) {
        match wanted {
            Wanted::Connect(target) => self.connect(cx, target),
            Wanted::ConnectSecond(_) if self.is_leaving() => {}
            Wanted::ConnectSecond(target) => self.connect_second(cx, target),
            Wanted::SendSecond(bytes) => {
                if let Some(channel) = self.second {
                    let port = Port::Media;
                    cx.out.push_back(Output::Send {
                        channel,
                        port,
                        bytes,
                    });
                }
            }
            Wanted::Send(bytes) => {
                if let Some(channel) = self.channel {
                    let port = Port::Media;
                    cx.out.push_back(Output::Send {
                        channel,
                        port,
                        bytes,
                    });
                }
            }
            Wanted::HangUp => {
                for channel in [self.channel.take(), self.second.take()] {
                    cx.out
                        .extend(channel.map(|channel| Output::Close { channel }));
                }
            }
            Wanted::Left => self.has_left(cx),
            Wanted::Failed { failure, detail } => self.signalling_failed(cx, failure, detail),
            Wanted::Note { kind, text } => cx.out.push_back(Output::Note(Note { kind, text })),
            // A leaving client starts nothing new.
            _ if self.is_leaving() => {}
            Wanted::Offer { peer, direction } => self.open_link(cx, peer, direction, None),
            Wanted::Answer { peer, offer } => match self.link(peer) {
                Some(at) => self.answer(cx, at, &offer),
                None => self.open_link(cx, peer, Direction::Receive, Some(offer)),
            },
            Wanted::Answered { peer, answer } => {
                if let Some(at) = self.link(peer) {
                    self.answered(cx, at, &answer);
                }
            }
            Wanted::Candidate { peer, candidate } => {
                if let Some(at) = self.link(peer) {
                    self.candidate(cx, at, &candidate);
                }
            }
            Wanted::Feed { ports } => self.open_feed(cx, &ports),
            Wanted::Expect => self.expects = true,
            Wanted::Forget { peer } => {
                if let Some(at) = self.link(peer) {
                    self.drop_link(cx, at);
                }
            }
        }
    }

    fn connect(&mut self, cx: &mut Context<'_>, target: Target) {
        if let Some(channel) = self.channel.take() {
            cx.out.push_back(Output::Close { channel });
        }
        let channel = self.next_channel();
        self.channel = Some(channel);
        let open = self.opening(&target);
        self.target = Some(target);
        cx.out.push_back(Output::Open { channel, open });
    }

    fn connect_second(&mut self, cx: &mut Context<'_>, target: Target) {
        if let Some(channel) = self.second.take() {
            cx.out.push_back(Output::Close { channel });
        }
        let channel = self.next_channel();
        self.second = Some(channel);
        let open = self.opening(&target);
        cx.out.push_back(Output::Open { channel, open });
    }

    fn opening(&self, target: &Target) -> Open {
        let Target { host, port, secure } = target.clone();
        let timeout = self.config.connect_timeout.0;
        match secure {
            true => Open::Tls {
                host,
                port,
                timeout,
                server_name: self.config.tls.server_name.clone(),
            },
            false => Open::Tcp {
                host,
                port,
                timeout,
            },
        }
    }

    fn opened(&mut self, cx: &mut Context<'_>, channel: ChannelId, local: SocketAddr) {
        if self.channel == Some(channel) {
            if self.local.is_none() {
                self.local = Some(crate::session::bind_beside(local.ip()));
                let delay = cx.now.since(self.started);
                cx.recorder
                    .record(clients::CONNECT_DELAY, delay.as_nanos() as u64);
            }
            return self.signal(cx, |signalling, scope| signalling.connected(scope));
        }
        if self.second == Some(channel) {
            return self.signal(cx, |signalling, scope| signalling.second_connected(scope));
        }
        if self.feed_opened(cx, channel) {
            return;
        }
        let mut links = self.links.iter();
        if let Some(at) = links.position(|link| link.channel == channel) {
            match &self.config.turn {
                None => self.link_opened(cx, at, local),
                Some(_) => self.relay_opened(cx, at),
            }
        }
    }

    fn open_failed(&mut self, cx: &mut Context<'_>, channel: ChannelId, error: ChannelError) {
        if self.channel == Some(channel) || self.second == Some(channel) {
            match self.second == Some(channel) {
                true => self.second = None,
                false => self.channel = None,
            }
            let target = self.target.as_ref();
            let target = target.map(|target| format!("{}:{}", target.host, target.port));
            let detail = format!("{error} ({})", target.unwrap_or_default());
            if self.is_leaving() {
                self.goodbye_unanswered(cx, &detail);
                return self.has_left(cx);
            }
            let failure = ConnectFailure::from(error);
            return self.fail(cx, failure.into(), detail);
        }
        if self.feed_failed(cx, channel, error) {
            return;
        }
        let mut links = self.links.iter();
        if let Some(at) = links.position(|link| link.channel == channel) {
            self.link_failed(cx, at, error);
        }
    }

    fn closed(&mut self, cx: &mut Context<'_>, channel: ChannelId, how: Closed) {
        if self.channel == Some(channel) {
            self.channel = None;
            return self.signal(cx, |signalling, scope| signalling.closed(scope, how));
        }
        if self.second == Some(channel) {
            self.second = None;
            return self.signal(cx, |signalling, scope| {
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

    /// Reports that the client plays, once it first receives or sends media.
    fn begins(&mut self, cx: &mut Context<'_>, at: Time) {
        if !std::mem::replace(&mut self.began, true) {
            cx.out.push_back(Output::Playing { at });
        }
    }

    /// Records the start-up delays when the first media arrives.
    fn begins_to_receive(&mut self, cx: &mut Context<'_>, at: Time) {
        if !std::mem::replace(&mut self.receives, true) && self.expects {
            for (histogram, from) in [
                (clients::STARTUP_DELAY, self.due),
                (clients::STARTUP_DELAY_FROM_SENT, self.started),
            ] {
                let delay = at.since(from);
                cx.recorder.record(histogram, delay.as_nanos() as u64);
            }
        }
        self.begins(cx, at);
    }

    /// Handles everything that is due.
    fn look(&mut self, cx: &mut Context<'_>) {
        let said = self.signalling.deadline().filter(|_| !self.has_left);
        if said.is_some_and(|due| due <= cx.now) {
            self.signal(cx, |signalling, scope| signalling.look(scope));
        }
        let mut at = 0;
        while let Some(link) = self.links.get(at) {
            let number = link.number;
            let limit = link.limit(&self.config);
            if link
                .deadline()
                .into_iter()
                .chain(limit)
                .any(|due| due <= cx.now)
            {
                self.due_link(cx, at);
            }
            // If the link was dropped, the next one now has its index.
            at += usize::from(self.links.get(at).is_some_and(|link| link.number == number));
        }
        if !self.returning.is_empty() {
            self.look_at_returning(cx);
        }
        self.due_feed(cx);
        self.look_at_media(cx);
    }

    /// Earliest deadline of an active client that belongs to no PeerConnection.
    fn due_beside_links(&self) -> Time {
        let returning = self.returning.iter().filter_map(Returning::deadline);
        let feed = self.feed.as_ref().and_then(|feed| feed.deadline());
        let own = [self.check, self.over_at, self.signalling.deadline(), feed];
        let all = own.into_iter().flatten().chain(returning);
        all.min().unwrap_or(Time::NEVER)
    }
}

impl Session for Client {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        if !self.returning.is_empty() {
            self.of_returning(cx, &input);
        }
        match input {
            _ if self.phase == Phase::Ended => return,
            Input::Start { due } if self.phase == Phase::Idle => {
                (self.due, self.started) = (due, cx.now);
                self.set_to_work(cx);
            }
            Input::Opened { channel, local, .. } => self.opened(cx, channel, local),
            Input::OpenFailed { channel, error } => self.open_failed(cx, channel, error),
            Input::Bytes { channel, bytes, .. } if self.channel == Some(channel) => {
                self.signal(cx, |signalling, scope| signalling.bytes(scope, bytes));
            }
            Input::Bytes { channel, bytes, .. } if self.second == Some(channel) => {
                self.signal(cx, |signalling, scope| {
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
                    self.relayed_bytes(cx, link, bytes, Times::new(runs, at));
                }
            }
            Input::Closed { channel, how } => self.closed(cx, channel, how),
            Input::Datagrams { channel, datagrams } => {
                let mut links = self.links.iter();
                match links.position(|link| link.channel == channel) {
                    Some(at) => self.datagrams(cx, at, datagrams),
                    None => self.feed_heard(cx, channel, datagrams),
                }
            }
            Input::Media {
                sink,
                event: MediaEvent::First { at },
            } => self.media_began(cx, sink, at),
            Input::Media {
                sink,
                event: MediaEvent::FeedbackDue { .. },
            } => self.media_is_missing(cx, sink),
            Input::Media {
                sink,
                event: MediaEvent::Numbered,
            } => self.media_is_numbered(cx, sink),
            Input::Told { message, .. } => self.publisher.hear(message, cx.now),
            Input::FlowEnded { flow } => self.sending_ended(cx, flow),
            Input::Stop { until } => self.stop(cx, until),
            _ => {}
        }
        self.carry_out(cx);
        if self.phase != Phase::Ended {
            self.look(cx);
            self.carry_out(cx);
        }
    }

    fn awaits(&self, now: Time) -> bool {
        let links = &self.links;
        self.phase != Phase::Active
            || links
                .iter()
                .any(|link| link.stands.is_none() || link.awaits(now))
            || self.due_beside_links() <= now
    }

    fn deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Idle | Phase::Ended => return None,
            Phase::Leaving => {
                let said = self.signalling.deadline().filter(|_| !self.has_left);
                let said = said.unwrap_or(Time::NEVER);
                let returning = self.returning.iter().filter_map(Returning::deadline);
                let returning = returning.min().unwrap_or(Time::NEVER);
                return Some(said.min(self.leave_by).min(returning));
            }
            Phase::Active => {}
        }
        let mut due = self.due_beside_links();
        let mut all_stand = !self.links.is_empty();
        for link in &self.links {
            all_stand &= link.stands.is_some();
            let limit = link.limit(&self.config);
            for own in link.deadline().into_iter().chain(limit) {
                due = due.min(own);
            }
        }
        match (due, all_stand) {
            (Time::NEVER, _) => None,
            (due, true) => Some(on_grid(due)),
            (due, false) => Some(due),
        }
    }

    fn streams(&self, sinks: &mut Sinks) -> Vec<StreamRow> {
        self.all_rows(sinks)
    }
}

/// Layers of the simulcast that is sent, best first. Empty without simulcast.
fn sent_layers(source: &SourceConfig) -> Vec<livekit::SentLayer> {
    let layers = if source.simulcast { 0..LAYERS } else { 0..0 };
    let layer = |layer| {
        let own = source.layer(layer);
        livekit::SentLayer {
            size: own.size.map(|size| (size.width, size.height)),
            bitrate: own.made_bitrate(),
        }
    };
    layers.map(layer).collect()
}

/// Rounds up to a multiple of [`GRID`].
fn on_grid(at: Time) -> Time {
    let grid = GRID.as_nanos() as u64;
    Time::from_nanos(at.as_nanos().div_ceil(grid).saturating_mul(grid))
}
