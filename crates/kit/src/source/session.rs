//! Session of a source: one channel and one flow.

use std::net::IpAddr;
use std::time::Duration;

use super::target::{Destination, Encapsulation};
use crate::media::ts::flow::{RtpStart, TsFlow, TsFlowSettings};
use crate::mediagen::ts::looped_stream::LoopedStream;
use measure::Time;
use session::{
    ChannelId, Context, Failure, FlowId, Input, Interface, Open, Outcome, Output, Record, Session,
};
use std::sync::Arc;

/// Settings of a source.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Destination.
    pub target: Destination,
    /// Transport stream to send in a loop.
    pub looped: Arc<LoopedStream>,
    /// Local address to send from.
    pub local: IpAddr,
    /// Interface to send on. `None` means the interface of `local`, or if that is unspecified, the
    /// one of the routing table.
    pub interface: Option<Interface>,
    /// Time to live (hop limit) of datagrams. With 1 they stay in the local network.
    pub ttl: u8,
    /// Duration of sending; `None` sends until the source is stopped.
    pub length: Option<Duration>,
    /// Delay of the start as a share of the interval between two datagrams, from 0 to 1, so that
    /// sources which start together do not send at the same moments.
    pub offset: f64,
    /// Wall-clock time since 1970 at the start of the run's clock.
    pub wall_clock: Duration,
}

/// The only channel of a source.
const CHANNEL: ChannelId = ChannelId(0);

/// Delay before the first datagram, so that all sources of a run are ready by then.
const HEAD_START: Duration = Duration::from_millis(20);

/// Sends a transport stream to a group, for a time or until it is stopped.
#[derive(Debug)]
pub struct GroupSender {
    settings: SourceSettings,
    seed: u64,
    flow: Option<FlowId>,
    has_ended: bool,
}

impl GroupSender {
    /// Creates a source. Its source number and the initial values of its RTP follow from `seed`.
    pub fn new(settings: SourceSettings, seed: u64) -> GroupSender {
        GroupSender {
            settings,
            seed,
            flow: None,
            has_ended: false,
        }
    }

    fn begin(&mut self, cx: &mut Context<'_>) {
        let own = &self.settings;
        let (group, seed) = (own.target.group, self.seed);
        let mut flow = TsFlow::new(TsFlowSettings {
            looped: own.looped.clone(),
            group,
            source: seed,
            rtp: (own.target.carriage == Encapsulation::Rtp).then_some(RtpStart {
                ssrc: seed as u32,
                sequence: (seed >> 32) as u16,
                timestamp: (seed >> 16) as u32,
            }),
            wall_clock: own.wall_clock,
            length: own.length,
        });
        let later = flow.interval().mul_f64(own.offset.clamp(0.0, 1.0));
        flow.start(cx.now + HEAD_START + later);
        let flow = cx.flows.insert(flow);
        self.flow = Some(flow);
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
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        if let Some(id) = self.flow.take() {
            cx.out.push_back(Output::StopFlow { flow: id });
            // The counts of a stopped flow are final.
            let flow: Box<TsFlow> = cx.flows.remove_as(id);
            cx.out
                .push_back(Output::Record(Record::new(flow.statistics())));
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
            | Input::ExchangeEnded { .. }
            | Input::TopicMessage { .. }
            | Input::Deadline => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        None
    }
}
