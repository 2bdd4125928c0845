//! Handling of Janus' messages.

use measure::Time;
use serde_json::Value;

use super::message::of_error;
use super::requests::Asked;
use super::{Janus, Jsep, KEEPALIVE_EVERY, Kind, Message, Phase, Role};
use crate::webrtc::failure::Failure;
use crate::webrtc::metrics as m;
use crate::webrtc::signalling::{PeerNumber, SDP_MAX, Scope, Wanted};
use crate::webrtc::url::Place;

impl Janus {
    /// Fails because a request was refused.
    pub(super) fn refused(&mut self, scope: &mut Scope<'_>, what: &str, code: u64, reason: &str) {
        self.refused_as(scope, of_error(code), what, (code, reason));
    }

    pub(super) fn refused_as(
        &mut self,
        scope: &mut Scope<'_>,
        failure: Failure,
        what: &str,
        (code, reason): (u64, &str),
    ) {
        scope.recorder.add(m::REFUSALS, 1);
        let detail = format!("error {code} for `{what}`: {reason} ({})", self.url);
        self.fail(scope, failure, detail);
    }

    pub(super) fn message(&mut self, scope: &mut Scope<'_>, message: Message) {
        let is_final = !matches!(message.kind, Kind::Ack | Kind::Trickle(_));
        let sync = match message.kind {
            // Only an acknowledgement answers these requests.
            Kind::Ack => {
                let number = message.transaction.unwrap_or(0);
                let asked = self.pending.get(&number).map(|pending| &pending.asked);
                if let Some(Asked::KeepAlive | Asked::Trickle) = asked {
                    self.answered(number);
                }
                return;
            }
            _ if is_final => message.transaction.and_then(|number| self.answered(number)),
            _ => None,
        };
        if sync.is_some() {
            scope.recorder.add(m::RESPONSES, 1);
        }
        let handle = message.sender.and_then(|id| {
            let mut handles = self.handles.iter();
            handles.position(|handle| handle.id == Some(id))
        });
        match message.kind {
            Kind::Success { id, data } => {
                if let Some(asked) = sync {
                    self.done(scope, asked, id, &data);
                }
            }
            Kind::Error { code, reason } => match sync {
                Some((Asked::Destroy, _)) => self.left(scope),
                // The handle has already been detached.
                Some((Asked::Detach | Asked::Trickle, _)) => {}
                Some((asked, _)) => self.refused(scope, asked.name(), code, &reason),
                None if self.phase == Phase::Leaving => {}
                None => self.refused(scope, "?", code, &reason),
            },
            Kind::Event { data, jsep } => {
                if let Some(handle) = handle {
                    self.event(scope, handle, sync, data, jsep);
                }
            }
            Kind::SlowLink { uplink, lost } => {
                // The uplink of Janus is the downlink of the client.
                let counter = if uplink {
                    m::SLOW_DOWNLINKS
                } else {
                    m::SLOW_UPLINKS
                };
                scope.recorder.add(counter, 1);
                scope
                    .recorder
                    .add(m::SLOW_LINK_LOST, lost.min(u64::from(u32::MAX)));
            }
            Kind::HangUp { reason } => {
                let Some(handle) = handle.filter(|&handle| !self.handles[handle].gone) else {
                    return;
                };
                if let Role::Feed(_) = self.handles[handle].role {
                    // The publisher has left, or Janus is about to report that it has. Otherwise
                    // the note tells what is missing from now on.
                    let kind = "feed_hung_up";
                    let text = format!("{reason} ({})", self.url);
                    scope.want(Wanted::Note { kind, text });
                    return self.detach(scope, handle);
                }
                let detail = format!("{reason} ({})", self.url);
                self.fail(scope, Failure::HungUp, detail);
            }
            Kind::Timeout => {
                let detail = format!("the session timed out ({})", self.url);
                self.fail(scope, Failure::SessionTimeout, detail);
            }
            Kind::Trickle(Some(candidate)) => {
                if let Some(handle) = handle {
                    scope.want(Wanted::Candidate {
                        peer: PeerNumber(handle as u32),
                        candidate,
                    });
                }
            }
            Kind::Ack
            | Kind::WebrtcUp
            | Kind::Media { .. }
            | Kind::Detached
            | Kind::Trickle(None)
            | Kind::Other(_) => {}
        }
    }

    /// Removes the answered request and returns it. `None` if it is unknown, or has not been sent
    /// yet: nobody can know its answer then.
    fn answered(&mut self, number: u64) -> Option<(Asked, Time)> {
        let at = self.pending.get(&number)?.sent?;
        let pending = self.pending.remove(&number)?;
        Some((pending.asked, at))
    }

    /// Handles a request that succeeded.
    pub(super) fn done(
        &mut self,
        scope: &mut Scope<'_>,
        (asked, at): (Asked, Time),
        id: Option<u64>,
        data: &Value,
    ) {
        match asked {
            Asked::Create => {
                let Some(id) = id else {
                    let detail = format!("no session id in the answer to `create` ({})", self.url);
                    return self.fail(scope, Failure::MalformedJson, detail);
                };
                self.phase = Phase::Session(id);
                // A long poll keeps the session alive.
                if self.long_poll.is_none() {
                    self.keepalive_at = scope.now + KEEPALIVE_EVERY;
                }
                let role = match self.settings.place {
                    Place::Mountpoint(_) => Role::Mountpoint,
                    _ => Role::Participant,
                };
                self.attach(scope, role);
            }
            Asked::Attach(handle) => {
                let Some(id) = id else {
                    let detail = format!("no handle id in the answer to `attach` ({})", self.url);
                    return self.fail(scope, Failure::MalformedJson, detail);
                };
                self.handles[handle].id = Some(id);
                match self.handles[handle].role {
                    Role::Mountpoint if self.fed.is_empty() => self.watch(scope, handle),
                    Role::Mountpoint => self.mount(scope, handle),
                    Role::Participant => self.enter(scope, handle),
                    Role::Everybody | Role::Feed(_) => self.subscribe(scope, handle),
                }
            }
            Asked::Plugin(handle, name) => match self.settings.place {
                Place::Mountpoint(_) => self.mounted(scope, name, data),
                _ => self.plugin_done(scope, handle, (name, at), data),
            },
            Asked::Destroy => self.left(scope),
            Asked::KeepAlive | Asked::Trickle | Asked::Detach => {}
        }
    }

    /// Handles an event of a plug-in.
    pub(super) fn event(
        &mut self,
        scope: &mut Scope<'_>,
        handle: usize,
        answers: Option<(Asked, Time)>,
        data: Value,
        jsep: Option<Jsep>,
    ) {
        let name = match &answers {
            Some((Asked::Plugin(_, name), at)) => Some((*name, *at)),
            _ => None,
        };
        let offers = jsep.as_ref().is_some_and(|jsep| jsep.is_offer);
        if let Some(jsep) = jsep {
            self.described_by_janus(scope, handle, name, jsep);
        }
        match self.settings.place {
            Place::Mountpoint(_) => self.streaming_event(scope, name, &data),
            _ => self.room_event(scope, handle, name, &data, offers),
        }
    }

    pub(super) fn described_by_janus(
        &mut self,
        scope: &mut Scope<'_>,
        handle: usize,
        answers: Option<(&'static str, Time)>,
        jsep: Jsep,
    ) {
        // Janus may renegotiate a handle before it knows that the handle is detached.
        if self.handles[handle].gone {
            return;
        }
        let peer = PeerNumber(handle as u32);
        if let Some((_, at)) = answers {
            let delay = match jsep.is_offer {
                true => m::OFFER_DELAY,
                false => m::ANSWER_DELAY,
            };
            let waited = scope.now.since(at);
            scope.recorder.record(delay, waited.as_nanos() as u64);
        }
        let Jsep { is_offer, sdp } = jsep;
        if sdp.len() > SDP_MAX {
            let detail = format!(
                "a session description of {} bytes ({})",
                sdp.len(),
                self.url
            );
            return self.fail(scope, Failure::SdpTooLong, detail);
        }
        match is_offer {
            true => {
                self.handles[handle].answering = true;
                scope.want(Wanted::Answer { peer, offer: sdp });
            }
            false => scope.want(Wanted::Answered { peer, answer: sdp }),
        }
    }
}
