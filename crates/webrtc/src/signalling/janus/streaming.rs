//! Streaming plug-in of Janus: watching a mount point, or creating and feeding one.

use measure::Time;
use serde_json::{Value, json};

use super::message::{NO_SUCH_MOUNTPOINT, plugin_error, streaming_failure};
use super::{Janus, SignallingAction, SignallingContext};
use crate::failure::Failure;
use crate::metrics as m;
use crate::signalling::FeedPorts;
use crate::url::{JanusId, Resource};

/// Maximum number of mount points that are named if the wanted one is missing.
const NAMED_MAX: usize = 10;
/// Maximum number of characters of each name.
const NAME_MAX: usize = 32;

/// Describes which mount points exist.
fn describe_mountpoints(list: &Value) -> String {
    let Some(list) = list.as_array() else {
        return "the server does not list its mount points".to_owned();
    };
    let ids = list.iter().filter_map(|own| JanusId::from_json(&own["id"]));
    let names = ids.map(|id| id.to_string().chars().take(NAME_MAX).collect::<String>());
    let named: Vec<_> = names.take(NAMED_MAX).collect();
    match list.len().saturating_sub(named.len()) {
        _ if named.is_empty() => "the server lists none".to_owned(),
        0 => format!("the server lists {}", named.join(", ")),
        more => format!("the server lists {} and {more} more", named.join(", ")),
    }
}

impl Janus {
    /// Requests the mount point. Janus then sends an offer.
    pub(super) fn watch(&mut self, scope: &mut SignallingContext<'_>, handle: usize) {
        let Resource::Mountpoint(id) = &self.place else {
            return;
        };
        let body = self.with_pin(json!({"id": id.to_json()}));
        self.send_plugin_request(scope, handle, "watch", body, None);
    }

    /// Creates the mount point that is fed, at ports that Janus chooses.
    pub(super) fn create_mountpoint(&mut self, scope: &mut SignallingContext<'_>, handle: usize) {
        let Resource::Mountpoint(id) = &self.place else {
            return;
        };
        let media = self.fed_streams.iter().enumerate().map(|(index, own)| {
            json!({
                "type": own.kind,
                "mid": index.to_string(),
                "port": 0,
                "rtcpport": 0,
                "pt": own.payload_type,
                "codec": own.codec.to_ascii_lowercase(),
                "fmtp": own.parameters,
            })
        });
        let body = self.with_pin(json!({
            "type": "rtp",
            "id": id.to_json(),
            "description": "fed by streamgauge",
            "permanent": false,
            "media": media.collect::<Vec<_>>(),
        }));
        self.send_plugin_request(scope, handle, "create", body, None);
    }

    /// Handles an immediate answer: the mount point was created, or the mount points are listed.
    pub(super) fn handle_immediate_answer(
        &mut self,
        scope: &mut SignallingContext<'_>,
        name: &str,
        data: &Value,
    ) {
        if let Some(known) = &mut self.missing_mountpoint {
            known.push_str("; ");
            known.push_str(&describe_mountpoints(&data["list"]));
            return self.fail(scope, Failure::NotFound, "");
        }
        if let Some((code, reason)) = plugin_error(data) {
            return self.refused(scope, streaming_failure(code), name, code, &reason);
        }
        if name != "create" || self.has_mountpoint {
            return;
        }
        let port_of = |index: usize| {
            let mid = index.to_string();
            let mut all = data["stream"]["ports"].as_array()?.iter();
            let own = all.find(|own| own["mid"].as_str() == Some(&mid))?;
            let port = |name: &str| own[name].as_u64().and_then(|port| u16::try_from(port).ok());
            Some(FeedPorts {
                media: port("port").filter(|port| *port > 0)?,
                control: port("rtcp_port").filter(|port| *port > 0),
            })
        };
        let ports: Option<Vec<FeedPorts>> = (0..self.fed_streams.len()).map(port_of).collect();
        let Some(ports) = ports else {
            let what = "no usable ports in the answer to `create`";
            return self.fail(scope, Failure::MalformedJson, what);
        };
        self.has_mountpoint = true;
        scope.push(SignallingAction::FeedTo { ports });
    }

    /// Destroys the mount point that this client has created.
    pub(super) fn destroy_mountpoint(&mut self, scope: &mut SignallingContext<'_>) {
        if let Resource::Mountpoint(id) = &self.place
            && std::mem::take(&mut self.has_mountpoint)
        {
            let body = json!({"id": id.to_json()});
            self.send_plugin_request(scope, 0, "destroy", body, None);
        }
    }

    /// Handles an event of the plug-in.
    pub(super) fn streaming_event(
        &mut self,
        scope: &mut SignallingContext<'_>,
        answers: Option<(&'static str, Time)>,
        data: &Value,
    ) {
        if let Some((code, reason)) = plugin_error(data) {
            let what = answers.map_or("?", |(name, _)| name);
            if what == "watch" && code == NO_SUCH_MOUNTPOINT {
                scope.recorder.add(m::REFUSALS, 1);
                self.missing_mountpoint = Some(format!("error {code} for `watch`: {reason}"));
                return self.send_plugin_request(scope, 0, "list", json!({}), None);
            }
            return self.refused(scope, streaming_failure(code), what, code, &reason);
        }
        if data["result"]["status"].as_str() == Some("stopped") {
            self.fail(scope, Failure::HungUp, "the mount point was stopped");
        }
    }
}
