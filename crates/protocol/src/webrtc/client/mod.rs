//! A client: signalling on one connection, media over PeerConnections that each have a socket.

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

/// How often reports are sent on what came.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Interval of checks for repeated NACKs. The first NACK for a gap does not wait for them.
const ASK_EVERY: Duration = Duration::from_millis(40);

/// How long what was late may still come when all sources have said goodbye.
const AFTER_GOODBYE: Duration = Duration::from_millis(200);

/// Times at which nothing is done at once, but up to so much later, while media goes: all clients
/// of a worker are woken together.
const GRID: Duration = Duration::from_millis(20);

/// How far a client has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not started.
    Idle,
    /// It is at work.
    Active,
    /// The server is told that it leaves.
    Leaving,
    /// Over.
    Ended,
}

/// A client of one URL.
#[derive(Debug)]
pub struct Client {
    /// That of all clients of a population.
    config: Arc<ClientConfig>,
    url: Url,
    seed: u64,
    certificate: Arc<Certificate>,
    signalling: Box<dyn Signalling>,
    wanted: VecDeque<Wanted>,
    phase: Phase,
    /// The connection of the signalling, where there is one, and where it leads.
    channel: Option<ChannelId>,
    /// A second one beside it, of signallings that have two.
    second: Option<ChannelId>,
    target: Option<Target>,
    channels: u32,
    /// Our address in the first connection: sockets of media have it too.
    local: Option<IpAddr>,
    links: Vec<Link>,
    /// What it feeds to the server in plain RTP.
    feed: Option<Box<Feed>>,
    /// What of links that are over a TURN server has to be told yet.
    returning: Vec<Returning>,
    /// Whether the signalling has nothing more to say, while that is so.
    has_left: bool,
    source: Option<Arc<MediaSource>>,
    /// When its voice is heard, where it does not send sound all the time.
    talk: Option<Box<Talk>>,
    /// Our source in reports, and our name there.
    ssrc: u32,
    cname: String,
    /// When the first request was due, and when the client set to work.
    due: Time,
    started: Time,
    /// Whether there is media to be received from the beginning, which delays are measured of: not
    /// of who comes into an empty room, or only publishes.
    expects: bool,
    /// Whether media has begun to come or to leave, and to come.
    began: bool,
    receives: bool,
    /// Whether what is published was said to be there.
    published: bool,
    /// When to look whether media has come.
    check: Option<Time>,
    /// When it leaves, because the server said that its media is over.
    over_at: Option<Time>,
    /// Since when somebody sends whom it is to receive; none while nobody does.
    expects_since: Option<Time>,
    /// How it ends, and until when it has to, while it leaves.
    outcome: Option<Outcome>,
    leave_by: Time,
    /// Media was to come on up to then, where it did not.
    silent_until: Option<Time>,
    /// Rows of streams that are over.
    rows: Vec<StreamSummary>,
    wall_clock: Option<Duration>,
    /// Whether frames may bear time codes.
    time_codes: bool,
    publisher: Publisher,
}

impl Client {
    /// A client that is sent to `url`.
    ///
    /// # Errors
    /// What is wrong with the URL.
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

    /// Lets it publish that.
    pub fn publishing(mut self, source: Arc<MediaSource>) -> Client {
        self.signalling.tell_media(Feed::media(&source));
        self.source = Some(source);
        self
    }

    /// Its sound is a voice of that talk.
    pub(super) fn talking(mut self, talk: Talk) -> Client {
        self.talk = Some(Box::new(talk));
        self
    }

    /// Says what the wall clock showed, since 1970, when time began: what is published is stamped
    /// with it.
    pub fn with_wall_clock(mut self, wall_clock: Duration) -> Client {
        self.wall_clock = Some(wall_clock);
        self.signalling.tell_wall_clock(wall_clock);
        self
    }

    /// Has it look for time codes in frames, where they are decrypted.
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

    /// Begins for good.
    fn set_to_work(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Active;
        self.check = None;
        self.signal(cx, |signalling, scope| signalling.begin(scope));
    }

    /// Lets the signalling do something. What it wants is done by [`Client::carry_out`].
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

    /// Does what the signalling wants.
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
            // Nothing begins any more.
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

    /// Media begins to come, or to leave.
    fn begins(&mut self, cx: &mut Context<'_>, at: Time) {
        if !std::mem::replace(&mut self.began, true) {
            cx.out.push_back(Output::Playing { at });
        }
    }

    /// Media begins to come.
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

    /// Does what is due.
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
            // One that was dropped left its place to the next.
            at += usize::from(self.links.get(at).is_some_and(|link| link.number == number));
        }
        if !self.returning.is_empty() {
            self.look_at_returning(cx);
        }
        self.due_feed(cx);
        self.look_at_media(cx);
    }

    /// When something is due that belongs to no PeerConnection, while it is at work.
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

/// What the layers of a simulcast are like, the best first; none where there is one.
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

/// The next time on the grid.
fn on_grid(at: Time) -> Time {
    let grid = GRID.as_nanos() as u64;
    Time::from_nanos(at.as_nanos().div_ceil(grid).saturating_mul(grid))
}
