//! Handling of Janus' messages.

use measure::Time;
use serde_json::Value;

use super::message::janus_failure;
use super::requests::RequestKind;
use super::{Janus, JanusMessage, Jsep, KEEPALIVE_INTERVAL, MessageContent, Phase, Role};
use crate::failure::Failure;
use crate::metrics as m;
use crate::signalling::{PeerNumber, SDP_MAX, SignallingAction, SignallingContext};
use crate::url::Resource;

impl Janus {
    /// Fails because a request was refused.
    pub(super) fn refused(
        &mut self,
        scope: &mut SignallingContext<'_>,
        failure: Failure,
        what: &str,
        code: u64,
        reason: &str,
    ) {
        scope.recorder.add(m::REFUSALS, 1);
        let what = format!("error {code} for `{what}`: {reason}");
        self.fail(scope, failure, what);
    }

    pub(super) fn message(&mut self, scope: &mut SignallingContext<'_>, message: JanusMessage) {
        let is_final = !matches!(
            message.content,
            MessageContent::Ack | MessageContent::Trickle(_)
        );
        let answered = match message.content {
            // Only an acknowledgement answers these requests.
            MessageContent::Ack => {
                let number = message.transaction.unwrap_or(0);
                let request = self.pending.get(&number).map(|pending| &pending.kind);
                if let Some(RequestKind::KeepAlive | RequestKind::Trickle) = request {
                    self.take_answered(number);
                }
                return;
            }
            _ if is_final => message
                .transaction
                .and_then(|number| self.take_answered(number)),
            _ => None,
        };
        if answered.is_some() {
            scope.recorder.add(m::RESPONSES, 1);
        }
        let handle = message.sender.and_then(|id| {
            let mut handles = self.handles.iter();
            handles.position(|handle| handle.id == Some(id))
        });
        match message.content {
            MessageContent::Success { id, data } => {
                if let Some((request, _)) = answered {
                    self.handle_success(scope, request, id, &data);
                }
            }
            MessageContent::Error { code, reason } => match answered {
                Some((RequestKind::Destroy, _)) => self.finish(scope),
                // The handle has already been detached.
                Some((RequestKind::Detach | RequestKind::Trickle, _)) => {}
                Some((request, _)) => {
                    self.refused(scope, janus_failure(code), request.name(), code, &reason)
                }
                None if self.phase == Phase::Leaving => {}
                None => self.refused(scope, janus_failure(code), "?", code, &reason),
            },
            MessageContent::Event { data, jsep } => {
                if let Some(handle) = handle {
                    self.event(scope, handle, answered, data, jsep);
                }
            }
            MessageContent::SlowLink { uplink, lost } => {
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
            MessageContent::HangUp { reason } => {
                let Some(handle) = handle.filter(|&handle| !self.handles[handle].is_detached)
                else {
                    return;
                };
                if let Role::Publisher(_) = self.handles[handle].role {
                    // The publisher has left, or Janus is about to report that it has. Otherwise
                    // the note tells what is missing from now on.
                    scope.note("feed_hung_up", format!("{reason} ({})", self.shown_url));
                    return self.detach(scope, handle);
                }
                self.fail(scope, Failure::HungUp, reason);
            }
            MessageContent::Timeout => {
                self.fail(scope, Failure::SessionTimeout, "the session timed out");
            }
            MessageContent::Trickle(Some(candidate)) => {
                if let Some(handle) = handle {
                    scope.push(SignallingAction::RemoteCandidate {
                        peer: PeerNumber(handle as u32),
                        candidate,
                    });
                }
            }
            MessageContent::Ack | MessageContent::Trickle(None) | MessageContent::Other => {}
        }
    }

    /// Removes the answered request and returns it. `None` if it is unknown, or has not been sent
    /// yet: nobody can know its answer then.
    fn take_answered(&mut self, number: u64) -> Option<(RequestKind, Time)> {
        let sent_at = self.pending.get(&number)?.sent_at?;
        let pending = self.pending.remove(&number)?;
        Some((pending.kind, sent_at))
    }

    /// Handles a request that succeeded.
    pub(super) fn handle_success(
        &mut self,
        scope: &mut SignallingContext<'_>,
        request: RequestKind,
        id: Option<u64>,
        data: &Value,
    ) {
        match request {
            RequestKind::Create => {
                let Some(id) = id else {
                    let what = "no session id in the answer to `create`";
                    return self.fail(scope, Failure::MalformedJson, what);
                };
                self.phase = Phase::Session(id);
                // A long poll keeps the session alive.
                if self.long_poll.is_none() {
                    self.keepalive_at = scope.now + KEEPALIVE_INTERVAL;
                }
                let role = match self.place {
                    Resource::Mountpoint(_) => Role::Mountpoint,
                    _ => Role::Participant,
                };
                self.attach(scope, role);
            }
            RequestKind::Attach(handle) => {
                let Some(id) = id else {
                    let what = "no handle id in the answer to `attach`";
                    return self.fail(scope, Failure::MalformedJson, what);
                };
                self.handles[handle].id = Some(id);
                match self.handles[handle].role {
                    Role::Mountpoint if self.fed_streams.is_empty() => self.watch(scope, handle),
                    Role::Mountpoint => self.create_mountpoint(scope, handle),
                    Role::Participant => self.create_or_join(scope, handle),
                    Role::AllPublishers | Role::Publisher(_) => self.subscribe(scope, handle),
                }
            }
            RequestKind::Plugin(handle, name) => match self.place {
                Resource::Mountpoint(_) => self.handle_immediate_answer(scope, name, data),
                _ => self.plugin_done(scope, handle, name, data),
            },
            RequestKind::Destroy => self.finish(scope),
            RequestKind::KeepAlive | RequestKind::Trickle | RequestKind::Detach => {}
        }
    }

    /// Handles an event of a plug-in.
    pub(super) fn event(
        &mut self,
        scope: &mut SignallingContext<'_>,
        handle: usize,
        answers: Option<(RequestKind, Time)>,
        data: Value,
        jsep: Option<Jsep>,
    ) {
        let name = match &answers {
            Some((RequestKind::Plugin(_, name), at)) => Some((*name, *at)),
            _ => None,
        };
        let offers = jsep.as_ref().is_some_and(|jsep| jsep.is_offer);
        if let Some(jsep) = jsep {
            self.handle_jsep(scope, handle, name, jsep);
        }
        match self.place {
            Resource::Mountpoint(_) => self.streaming_event(scope, name, &data),
            _ => self.room_event(scope, handle, name, &data, offers),
        }
    }

    pub(super) fn handle_jsep(
        &mut self,
        scope: &mut SignallingContext<'_>,
        handle: usize,
        answers: Option<(&'static str, Time)>,
        jsep: Jsep,
    ) {
        // Janus may renegotiate a handle before it knows that the handle is detached.
        if self.handles[handle].is_detached {
            return;
        }
        let peer = PeerNumber(handle as u32);
        if let Some((_, at)) = answers {
            let delay = match jsep.is_offer {
                true => m::OFFER_DELAY,
                false => m::ANSWER_DELAY,
            };
            scope.record_delay(delay, at);
        }
        let Jsep { is_offer, sdp } = jsep;
        if sdp.len() > SDP_MAX {
            let what = format!("a session description of {} bytes", sdp.len());
            return self.fail(scope, Failure::SdpTooLong, what);
        }
        match is_offer {
            true => {
                scope.push(SignallingAction::AnswerOffer { peer, offer: sdp });
            }
            false => scope.push(SignallingAction::RemoteAnswer { peer, answer: sdp }),
        }
    }
}
