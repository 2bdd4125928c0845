//! Publishing client: has the stream name released, sends `publish`, and sends media as fast as the
//! connection takes it.

use std::sync::Arc;

use measure::Time;

use super::{CHANNEL, CONNECTION, Client, Phase, send};
use crate::codec::amf0::Value;
use crate::codec::message::Command;
use crate::codec::write;
use crate::failure::Failure;
use crate::flow::{FlowConfig, FlowFaults, MediaFlow, Sent};
use crate::metrics as m;
use crate::source::Tracks;
use kit::publication::{self, Publication};
use session::seeds::derive_seed;
use session::{Context, FlowId, Output};

/// State of a publishing client.
#[derive(Debug)]
pub(super) struct Publishing {
    tracks: Arc<Tracks>,
    flow: Option<FlowId>,
    count_at: Option<Time>,
    counted: Sent,
}

impl Client {
    /// Makes the client publish `tracks` instead of playing.
    pub fn publishing(mut self, tracks: Arc<Tracks>) -> Client {
        self.publishing = Some(Box::new(Publishing {
            tracks,
            flow: None,
            count_at: None,
            counted: Sent::default(),
        }));
        self
    }

    /// Sets the chunk size and has the stream name released, as some servers require. Does not wait
    /// for the answers, as encoders do not.
    pub(super) fn prepare_to_publish(&mut self, cx: &mut Context<'_>) {
        if self.publishing.is_none() {
            return;
        }
        let mut bytes = Vec::new();
        write::set_chunk_size(self.config.chunk_size, &mut bytes);
        self.chunk_size = self.config.chunk_size;
        for name in ["releaseStream", "FCPublish"] {
            self.last_transaction += 1;
            let arguments = vec![Value::Null, Value::string(&*self.url.stream)];
            let command = Command::new(name, self.last_transaction, arguments);
            write::command(&command, CONNECTION, self.chunk_size, &mut bytes);
        }
        cx.recorder.add(m::COMMANDS, 2);
        send(cx, bytes);
    }

    pub(super) fn send_publish(&mut self, cx: &mut Context<'_>) {
        // RTMP, 7.2.2.6.
        let arguments = vec![
            Value::Null,
            Value::string(&*self.url.stream),
            Value::string("live"),
        ];
        self.send_command(cx, Phase::Publish, self.message_stream, arguments);
    }

    /// Handles the answer to `publish`: starts sending, and notifies clients that wait for the
    /// stream.
    pub(super) fn handle_publish_started(&mut self, cx: &mut Context<'_>) {
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        self.phase = Phase::Publishing;
        self.next_check_at = None;
        let mut bytes = Vec::new();
        let tracks = &publishing.tracks;
        tracks.write_preamble(self.message_stream, 0, true, self.chunk_size, &mut bytes);
        send(cx, bytes);
        let mut flow = MediaFlow::new(FlowConfig {
            tracks: tracks.clone(),
            stream: self.message_stream,
            chunk_size: self.chunk_size,
            wall_clock: self.wall_clock.unwrap_or_default(),
            source: derive_seed(&[self.seed, 1]) as u32,
            drop_after: self.config.drop_after.map(|after| after.0),
            length: None,
            faults: FlowFaults::default(),
            seed: self.seed,
        });
        flow.start(cx.now);
        let flow = cx.flows.insert(flow);
        publishing.flow = Some(flow);
        publishing.count_at = Some(publication::next_count(cx.now));
        cx.out.push_back(Output::StartFlow {
            flow,
            channel: CHANNEL,
        });
        cx.out.push_back(Output::Playing { at: cx.now });
        Publication::LIVE.publish(cx, self.url.topic());
    }

    /// Time of the next update of the figures.
    pub(super) fn next_count_at(&self) -> Option<Time> {
        self.publishing.as_ref().and_then(|own| own.count_at)
    }

    /// Updates the figures, if that is due.
    pub(super) fn count_if_due(&mut self, cx: &mut Context<'_>) {
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        if publishing.count_at.is_none_or(|at| cx.now < at) {
            return;
        }
        publishing.count_at = Some(publication::next_count(cx.now));
        publishing.count(cx);
        // The limit applies to one second: a server acknowledges media as long as it accepts it.
        self.messages_without_media = 0;
    }

    /// Handles the end of the flow, which ends unasked only if nothing can be sent.
    pub(super) fn handle_flow_ended(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Publishing {
            self.fail(cx, Failure::Reset, "nothing can be sent");
        }
    }

    /// Stops sending, and adds the remaining figures.
    pub(super) fn end_publishing(&mut self, cx: &mut Context<'_>) {
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        publishing.count_at = None;
        if publishing.flow.is_none() {
            return;
        }
        publishing.count(cx);
        if let Some(flow) = publishing.flow.take() {
            cx.out.push_back(Output::StopFlow { flow });
            cx.flows.remove(flow);
        }
        Publication::GONE.publish(cx, self.url.topic());
    }
}

impl Publishing {
    /// Adds what was sent since the last update, and the current backlog.
    fn count(&mut self, cx: &mut Context<'_>) {
        let Some(flow) = self.flow else {
            return;
        };
        let now = cx.now;
        let (sent, delays, waiting) = cx.flows.access_as(flow, |flow: &mut MediaFlow| {
            (flow.sent(), flow.take_delays(), flow.backlog_bytes(now))
        });
        let before = std::mem::replace(&mut self.counted, sent);
        let frames = |sent: &Sent| sent.video_frames + sent.audio_frames;
        cx.recorder
            .add(m::SENT_FRAMES, frames(&sent) - frames(&before));
        cx.recorder
            .add(m::SENT_BYTES, sent.payload_bytes - before.payload_bytes);
        cx.recorder
            .add(m::SENT_WIRE_BYTES, sent.wire_bytes - before.wire_bytes);
        cx.recorder
            .add(m::NOT_TAKEN, sent.not_taken - before.not_taken);
        for delay in delays {
            cx.recorder.record(m::SEND_QUEUE_DELAY, delay);
        }
        cx.recorder.record(m::SEND_QUEUE, waiting);
    }
}
