//! Publishing side of a client: a flow sends media, and retransmits what the server requests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use measure::{CounterId, Time};

use super::{Client, Phase};
use crate::arq::flow::{DepartureCounts, SourceFlow, SourceSettings};
use crate::arq::sender::{Bandwidth, SentMessageCounts};
use crate::arq::statistics::SenderStatistics;
use crate::codec::packet::{Control, wire_overhead};
use crate::handshake::Negotiated;
use crate::metrics as m;
use crate::source_media::SourceMedia;
use kit::lifecycle;
use kit::publication::Publication;
use session::seeds::derive_seed;
use session::{ChannelId, Context, FlowId, Output, ReadTiming};

/// Maximum delay of answers to the server.
const ANSWER_DELAY_MAX: Duration = Duration::from_millis(1);

/// Additional time after the latency for sent packets to be acknowledged and played.
const DELIVERY_MARGIN: Duration = Duration::from_millis(200);

/// Interval at which the sender is asked for control packets of its own, such as key announcements.
const SENDER_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Published media and its progress.
#[derive(Debug)]
pub(super) struct PublishState {
    media: SourceMedia,
    flow: Option<FlowId>,
    /// Latency of the server's receiver.
    latency: Duration,
    /// Bytes of headers of each packet on the wire.
    overhead: u64,
    counted: Counted,
    /// Time that packets waited in the send buffer, in nanoseconds.
    delays: Vec<u64>,
    /// Control packets to be sent, and the end of each.
    answers: Vec<u8>,
    answer_ends: Vec<usize>,
    /// Time at which the sender is asked next for control packets of its own.
    sender_poll_at: Time,
}

/// Counts of the sender, of departed packets and of messages.
type Counted = (SenderStatistics, DepartureCounts, SentMessageCounts);

/// One of those counts.
type Part = fn(&Counted) -> u64;

/// Counters, and what each counts.
const PARTS: [(CounterId, Part); 12] = [
    (m::PKT_SENT, |(_, left, _)| left.first + left.again),
    (m::PKT_SENT_UNIQUE, |(_, left, _)| left.first),
    (m::PKT_RETRANS, |(_, left, _)| left.again),
    (m::PKT_SND_LOSS, |(sender, ..)| sender.pkt_snd_loss),
    (m::PKT_SND_DROP, |(sender, ..)| sender.pkt_snd_drop),
    (m::PKT_RECV_ACK, |(sender, ..)| sender.pkt_recv_ack),
    (m::PKT_RECV_NAK, |(sender, ..)| sender.pkt_recv_nak),
    (m::SENT_BYTES, |(sender, ..)| sender.byte_sent_unique),
    (m::MESSAGES_SENT, |(.., messages)| messages.taken),
    (m::MESSAGES_ACKNOWLEDGED, |(.., messages)| {
        messages.acknowledged
    }),
    (m::MESSAGES_DROPPED, |(.., messages)| messages.dropped),
    (m::MESSAGES_NOT_TAKEN, |(.., messages)| messages.refused),
];

impl PublishState {
    pub(super) fn new(media: SourceMedia) -> PublishState {
        PublishState {
            media,
            flow: None,
            latency: Duration::ZERO,
            overhead: 0,
            counted: Default::default(),
            delays: Vec::new(),
            answers: Vec::new(),
            answer_ends: Vec::new(),
            sender_poll_at: Time::ZERO,
        }
    }

    /// Handles a control packet from the server.
    pub(super) fn control(&mut self, cx: &mut Context<'_>, control: &Control<'_>, at: Time) {
        let Some(flow) = self.flow else { return };
        let (now, answers, ends) = (cx.now, &mut self.answers, &mut self.answer_ends);
        let delays = &mut self.delays;
        // The sending thread cannot use the flow meanwhile, so the flow is accessed once.
        cx.flows.access_as(flow, |flow: &mut SourceFlow| {
            let sender = flow.sender();
            sender.control(control, at);
            while sender.write_next(now, answers) {
                ends.push(answers.len());
            }
            flow.take_delays(delays);
        });
        self.record_delays(cx);
    }

    fn record_delays(&mut self, cx: &mut Context<'_>) {
        for delay in self.delays.drain(..) {
            cx.recorder.record(m::SEND_QUEUE_DELAY, delay);
        }
    }

    /// Time of the next check for dropped messages, which no packet from the server triggers. Never
    /// if messages have no TTL, or for a transport stream.
    pub(super) fn dropped_check_at(&self) -> Time {
        match &self.media {
            SourceMedia::Messages(messages) if messages.ttl.is_some() => self.sender_poll_at,
            _ => Time::NEVER,
        }
    }

    /// Sends the control packets that are due. Returns `true` if any packet was sent, including
    /// media.
    pub(super) fn write(&mut self, cx: &mut Context<'_>, channel: ChannelId) -> bool {
        let Some(flow) = self.flow else {
            return false;
        };
        let now = cx.now;
        let mut any = false;
        if now >= self.sender_poll_at {
            self.sender_poll_at = now + SENDER_POLL_INTERVAL;
            let (answers, ends) = (&mut self.answers, &mut self.answer_ends);
            let delays = &mut self.delays;
            let sent = cx.flows.access_as(flow, |flow: &mut SourceFlow| {
                while flow.sender().write_next(now, answers) {
                    ends.push(answers.len());
                }
                flow.take_delays(delays);
                flow.departure_counts()
            });
            self.record_delays(cx);
            // Media also keeps the connection alive.
            any = sent.first + sent.again > self.counted.1.first + self.counted.1.again;
        }
        let mut begin = 0;
        for end in self.answer_ends.drain(..) {
            let answer = &self.answers[begin..end];
            cx.transmit(channel, None, |out| out.extend_from_slice(answer));
            begin = end;
            any = true;
        }
        self.answers.clear();
        any
    }

    /// Adds the counts since the last call to the recorder, and samples the RTT and the send buffer
    /// if `levels` is true.
    pub(super) fn count(&mut self, cx: &mut Context<'_>, levels: bool) {
        let Some(flow) = self.flow else { return };
        let delays = &mut self.delays;
        let all = cx.flows.access_as(flow, |flow: &mut SourceFlow| {
            flow.take_delays(delays);
            let left = flow.departure_counts();
            let sender = flow.sender();
            (sender.statistics(), left, sender.messages())
        });
        self.record_delays(cx);
        let is_stream = all.2.is_none();
        let now = (all.0, all.1, all.2.unwrap_or_default());
        let before = std::mem::replace(&mut self.counted, now);
        for (counter, part) in PARTS {
            cx.recorder.add(counter, part(&now) - part(&before));
        }
        let not_taken = |(sender, left, _): &Counted| {
            let unsent = u64::from(is_stream) * sender.pkt_snd_drop_unsent;
            sender.pkt_snd_refused + unsent + left.not_taken
        };
        let wire_bytes = |(sender, left, _): &Counted| {
            let sent = left.first + left.again;
            sender.byte_sent_unique + sender.byte_retrans + sent * self.overhead
        };
        cx.recorder
            .add(m::NOT_TAKEN, not_taken(&now) - not_taken(&before));
        cx.recorder
            .add(m::SENT_WIRE_BYTES, wire_bytes(&now) - wire_bytes(&before));
        let (sender, ..) = now;
        if levels {
            cx.recorder
                .record(m::SND_BUFFER, sender.ms_snd_buf * 1_000_000);
            if sender.pkt_recv_ack > 0 {
                cx.recorder.record(m::RTT, sender.us_rtt * 1000);
            }
        }
    }
}

impl Client {
    /// Number in the stamps that distinguishes the streams of a run.
    fn source(&self) -> u64 {
        derive_seed(&[self.seed, 4])
    }

    /// Starts to publish, and notifies the clients that wait for the stream.
    pub(super) fn publish(&mut self, cx: &mut Context<'_>, mut negotiated: Negotiated) {
        let source = self.source();
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        self.phase = Phase::Publishing;
        self.check = None;
        let remote = self.addresses.and_then(|(_, remote)| remote);
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        publishing.overhead = wire_overhead(remote.is_some_and(|to| to.is_ipv6())) as u64;
        publishing.latency = negotiated.send_latency;
        if let SourceMedia::Stream(_) = publishing.media {
            cx.recorder
                .record_duration(m::AGREED_LATENCY, negotiated.send_latency);
        }
        let written = self.config.max_bandwidth.map(|rate| rate.0);
        let bandwidth = match self.url.max_bandwidth.or(written) {
            Some(most) => Bandwidth::Fixed(most),
            None => {
                let overhead = self.url.overhead.unwrap_or(self.config.overhead);
                publishing.media.bandwidth(overhead)
            }
        };
        let media = &publishing.media;
        let sender = media.sender(&mut negotiated, self.clock, bandwidth);
        let settings = SourceSettings {
            address: remote.unwrap_or(nowhere),
            source,
            wall_clock: self.wall_clock.unwrap_or_default(),
            length: None,
        };
        let mut flow = media.flow(settings, sender);
        flow.collect_delays();
        flow.start(cx.now);
        let flow = cx.flows.insert(flow);
        publishing.flow = Some(flow);
        cx.out.push_back(Output::StartFlow {
            flow,
            channel: self.channel,
        });
        // The server measures the round trip by the delay of our answers.
        cx.out.push_back(Output::SetReadTiming {
            channel: self.channel,
            reading: ReadTiming::Soon(ANSWER_DELAY_MAX),
        });
        lifecycle::record_startup(cx.recorder, cx.now, self.planned_start, self.started);
        cx.out.push_back(Output::Playing { at: cx.now });
        Publication::LIVE.publish(cx, self.url.stream_name());
    }

    /// Stops making media, and waits until sent media is acknowledged and played, but not beyond
    /// `until`. Returns `false` if there is nothing to wait for.
    pub(super) fn finish_publishing(&mut self, cx: &mut Context<'_>, until: Time) -> bool {
        let Some(publishing) = self.publishing.as_mut() else {
            return false;
        };
        let Some(flow) = publishing.flow.filter(|_| self.phase == Phase::Publishing) else {
            return false;
        };
        cx.flows
            .access_as(flow, |flow: &mut SourceFlow| flow.finish());
        self.phase = Phase::Finishing;
        self.check = Some(match publishing.media {
            // Receivers deliver the last packet when its latency has passed.
            SourceMedia::Stream(_) => (cx.now + publishing.latency + DELIVERY_MARGIN).min(until),
            // Every message must arrive: the flow ends when all have arrived.
            SourceMedia::Messages(_) => until,
        });
        true
    }

    /// Schedules the end once all messages are acknowledged or dropped, and receivers had time to
    /// deliver them.
    pub(super) fn messages_settled(&mut self, now: Time) {
        let media = self.publishing.as_ref().map(|publishing| &publishing.media);
        if let (Phase::Finishing, Some(SourceMedia::Messages(_))) = (self.phase, media) {
            let until = self.check.unwrap_or(Time::NEVER);
            self.check = Some(until.min(now + DELIVERY_MARGIN));
        }
    }

    /// Stops sending, and reports the figures. `waited` is true if sent media had time to be
    /// acknowledged.
    pub(super) fn end_publishing(&mut self, cx: &mut Context<'_>, waited: bool) {
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        if publishing.flow.is_none() {
            return;
        }
        publishing.count(cx, false);
        let Some(flow) = publishing.flow.take() else {
            return;
        };
        let (made, last) = cx.flows.access_as(flow, |flow: &mut SourceFlow| {
            (flow.made(), flow.sender().statistics())
        });
        if waited {
            cx.recorder.add(m::PKT_SND_UNACKED, last.pkt_flight_size);
        }
        let messages = publishing.counted.2;
        let settled = messages.acknowledged + messages.dropped;
        cx.recorder
            .add(m::MESSAGES_UNACKED, messages.taken - settled);
        cx.out.push_back(Output::StopFlow { flow });
        cx.flows.remove(flow);
        let had = Some((self.source(), made));
        Publication::Gone { had }.publish(cx, self.url.stream_name());
    }
}
