//! The Streaming plug-in: a mount point is watched.

use measure::Time;
use serde_json::{Value, json};

use super::message::plugin_error;
use super::{Janus, Scope};
use crate::webrtc::failure::Failure;
use crate::webrtc::url::Place;

impl Janus {
    /// Asks for the mount point: Janus then offers.
    pub(super) fn watch(&mut self, scope: &mut Scope<'_>, handle: usize) {
        let Place::Mountpoint(id) = &self.settings.place else {
            return;
        };
        let mut body = json!({"id": id.to_json()});
        if let Some(pin) = &self.settings.pin {
            body["pin"] = pin.as_str().into();
        }
        self.ask_plugin(scope, handle, "watch", body, None);
    }

    /// The plug-in says something.
    pub(super) fn streaming_event(
        &mut self,
        scope: &mut Scope<'_>,
        answers: Option<(&'static str, Time)>,
        data: &Value,
    ) {
        if let Some((code, reason)) = plugin_error(data) {
            let what = answers.map_or("?", |(name, _)| name);
            return self.refused(scope, what, code, &reason);
        }
        if data["result"]["status"].as_str() == Some("stopped") {
            let detail = format!("the mount point was stopped, by {}", self.url);
            self.fail(scope, Failure::HungUp, detail);
        }
    }
}
