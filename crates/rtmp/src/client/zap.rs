//! The client as the player of one of several channels.

use measure::Time;

use super::{CONNECTION, Client, Phase, send};
use crate::codec::amf0::Value;
use crate::codec::message::Command;
use crate::codec::write;
use crate::url::Url;
use kit::zapping::Viewer;
use session::{Context, Output, Sinks};

impl Client {
    /// Makes the client play a later channel of a client that changes channel.
    pub fn for_later_channel(mut self) -> Client {
        self.is_later_channel = true;
        self
    }

    /// Asks the server to delete the stream (RTMP, 7.2.2.3). The server does not answer.
    pub(super) fn send_delete_stream(&self, cx: &mut Context<'_>) {
        let arguments = vec![Value::Null, Value::Number(self.message_stream.into())];
        let command = Command::new("deleteStream", 0.0, arguments);
        let mut bytes = Vec::new();
        write::command(&command, CONNECTION, self.chunk_size, &mut bytes);
        send(cx, bytes);
    }
}

impl Viewer for Client {
    fn first_picture(&self, _sinks: &mut Sinks) -> Option<Time> {
        self.playing.as_ref()?.first_picture()
    }

    fn change_stream(&mut self, cx: &mut Context<'_>, url: &str, due: Time) -> bool {
        let Ok(url) = Url::parse(url, self.config.app.as_deref()) else {
            return false;
        };
        if self.phase != Phase::Playing || !self.url.is_same_application(&url) {
            return false;
        }
        self.send_delete_stream(cx);
        if let Some(playing) = &mut self.playing {
            playing.finish(None, cx.recorder);
        }
        self.judge_viewer(cx);
        cx.out.push_back(Output::Streams(self.rows()));
        self.url = url;
        (self.planned_start, self.started) = (due, cx.now);
        (self.is_later_channel, self.is_reused) = (true, true);
        self.playing = None;
        self.play_answered_at = None;
        self.message_stream = 0;
        self.other_stream = None;
        self.is_recorded = false;
        self.unpublished = None;
        self.messages_without_media = 0;
        self.send_create_stream(cx);
        true
    }

    fn is_change_answered(&self) -> bool {
        self.play_answered_at.is_some()
    }
}
