//! A source's session: one channel, one flow.

use std::net::IpAddr;
use std::time::Duration;

use super::target::{Carriage, Target};
use crate::media::ts::flow::{RtpStart, TsFlow, TsSettings};
use crate::session::{
    ChannelId, Context, Failure, FlowId, Input, Interface, Open, Outcome, Output, Record, Session,
};
use measure::Time;
use mediagen::ts::looped_stream::LoopedStream;
use std::sync::Arc;

/// What a source is to send, and how.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Where to.
    pub target: Target,
    /// What.
    pub looped: Arc<LoopedStream>,
    /// The local address that it comes from.
    pub local: IpAddr,
    /// The interface by which it leaves. Default: that of `local`; where that is unspecified, as
    /// routes have it.
    pub interface: Option<Interface>,
    /// How many hops datagrams live. One of 1 stays in the network that it is sent to.
    pub ttl: u8,
    /// How long it sends; until it is stopped without.
    pub length: Option<Duration>,
    /// By how much of the time between two datagrams it begins later than others, from 0 to 1:
    /// sources that begin at once would else all send at the same moments.
    pub offset: f64,
    /// What the wall clock showed, since 1970, when time began.
    pub wall_clock: Duration,
}

/// Where all that a source sends goes.
const CHANNEL: ChannelId = ChannelId(0);

/// A source sets to work so much later than it could, so that all of a run stand by then.
const HEAD_START: Duration = Duration::from_millis(20);

/// Sends a transport stream to a group until it is stopped, or for a time.
#[derive(Debug)]
pub struct GroupSender {
    settings: SourceSettings,
    seed: u64,
    flow: Option<FlowId>,
    over: bool,
}

impl GroupSender {
    /// A source. Its number, and where its RTP begins, follow from `seed`.
    pub fn new(settings: SourceSettings, seed: u64) -> GroupSender {
        GroupSender {
            settings,
            seed,
            flow: None,
            over: false,
        }
    }

    fn begin(&mut self, cx: &mut Context<'_>) {
        let SourceSettings {
            target,
            ref looped,
            length,
            wall_clock,
            offset,
            ..
        } = self.settings;
        let seed = self.seed;
        let mut flow = TsFlow::new(TsSettings {
            looped: looped.clone(),
            group: target.group,
            source: seed,
            rtp: (target.carriage == Carriage::Rtp).then_some(RtpStart {
                ssrc: seed as u32,
                sequence: (seed >> 32) as u16,
                timestamp: (seed >> 16) as u32,
            }),
            wall_clock,
            length,
        });
        let later = flow.interval().mul_f64(offset.clamp(0.0, 1.0));
        flow.start(cx.now + HEAD_START + later);
        let flow = cx.flows.insert(flow);
        self.flow = Some(flow);
        let group = target.group;
        cx.out.extend([
            Output::Peer {
                channel: CHANNEL,
                media: group,
                control: group,
            },
            Output::StartFlow {
                flow,
                channel: CHANNEL,
            },
            Output::Playing { at: cx.now },
        ]);
    }

    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        if let Some(id) = self.flow.take() {
            cx.out.push_back(Output::StopFlow { flow: id });
            // What it says then is final.
            let flow: Box<TsFlow> = cx.flows.take(id);
            cx.out.push_back(Output::Record(Record::new(flow.sent())));
        }
        cx.out.push_back(Output::Ended(outcome));
    }
}

impl Session for GroupSender {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            Input::Start { .. } => cx.out.push_back(Output::Open {
                channel: CHANNEL,
                open: Open::MulticastSender {
                    local: self.settings.local,
                    interface: self.settings.interface.clone(),
                    ttl: self.settings.ttl,
                },
            }),
            Input::Opened { .. } => self.begin(cx),
            Input::OpenFailed { error, .. } => {
                let detail = format!("cannot send to {}: {error}", self.settings.target);
                let reason = "no_socket";
                self.end(cx, Outcome::Failed(Failure { reason, detail }));
            }
            Input::FlowEnded { .. } => self.end(cx, Outcome::Completed),
            Input::Stop { .. } => self.end(cx, Outcome::Stopped),
            Input::Bytes { .. }
            | Input::Datagram { .. }
            | Input::Datagrams { .. }
            | Input::Closed { .. }
            | Input::Media { .. }
            | Input::Exchanged { .. }
            | Input::Told { .. }
            | Input::Deadline => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        None
    }
}
