//! Streams that a PeerConnection plays: a single one, or those of a room as they come and go.

use std::sync::Arc;

use measure::Time;

use super::Shared;
use super::playing::{Feed, Past, Playing};
use super::relay::Word;
use super::rooms::More;
use super::served::ServedPeer;
use crate::session::{Context, FlowId};
use crate::webrtc::feedback::{Message, messages};
use crate::webrtc::peer::Peer;
use crate::webrtc::transport_numbers::TransportNumbers;

/// All streams that a PeerConnection plays.
#[derive(Debug)]
pub(super) struct Feeds {
    shared: Arc<Shared>,
    number: u64,
    all: Vec<Playing>,
    /// True if the PeerConnection stays open without streams, because more may be added.
    stays: bool,
    begun: bool,
    /// Transport-wide sequence numbers of all packets, if negotiated.
    numbers: Option<TransportNumbers>,
    past: Past,
    pictures: u64,
    /// Packets that the player reported as received, and number of estimates that it sent (REMB).
    told: u64,
    rembs: u64,
}

impl Feeds {
    pub(super) fn new(shared: Arc<Shared>, number: u64, feeds: Vec<Feed>, stays: bool) -> Feeds {
        let playing = |feed| Playing::new(shared.clone(), number, feed);
        Feeds {
            all: feeds.into_iter().map(playing).collect(),
            shared,
            number,
            stays,
            begun: false,
            numbers: None,
            past: Past::default(),
            pictures: 0,
            told: 0,
            rembs: 0,
        }
    }

    /// Starts sending. Returns `false` if there is nothing to send, now or later.
    pub(super) fn begin(&mut self, cx: &mut Context<'_>, peer: &mut Peer) -> bool {
        self.begun = true;
        let mut any = false;
        for playing in std::mem::take(&mut self.all) {
            // The publisher may have left by now.
            any |= self.begin_one(cx, peer, playing);
        }
        self.take_more(cx, peer);
        any || self.stays
    }

    fn begin_one(&mut self, cx: &mut Context<'_>, peer: &Peer, mut playing: Playing) -> bool {
        let begins = playing.begin(cx, peer, &mut self.numbers);
        if begins {
            self.all.push(playing);
        }
        begins
    }

    /// Applies pending changes: starts added streams, and stops removed ones.
    pub(super) fn take_more(&mut self, cx: &mut Context<'_>, peer: &mut Peer) {
        if !self.begun {
            return;
        }
        let more = self.shared.rooms().take_more(self.number);
        for more in more {
            match more {
                More::Plays(feed) => {
                    let playing = Playing::new(self.shared.clone(), self.number, feed);
                    self.begin_one(cx, peer, playing);
                }
                More::Stops(ssrc) => {
                    let place = self.all.iter().position(|own| own.has(ssrc));
                    if let Some(place) = place {
                        let mut playing = self.all.remove(place);
                        playing.end(cx, peer, true, &mut self.past);
                    }
                }
            }
        }
    }

    /// Handles RTCP feedback of the player, up to the first malformed message.
    pub(super) fn feedback(&mut self, cx: &mut Context<'_>, compound: &[u8]) {
        for message in messages(compound).map_while(Result::ok) {
            match message {
                Message::Nack { media, missing, .. } => {
                    let mut all = self.all.iter();
                    if let Some(playing) = all.find(|own| own.has(media)) {
                        playing.ask(cx, media, &missing);
                    }
                }
                Message::PictureLoss { media, .. } => self.wants_picture(cx, media),
                Message::FullIntra { demands, .. } => {
                    // One key frame answers all requests in the message.
                    if let Some((media, _)) = demands.first() {
                        self.wants_picture(cx, *media);
                    }
                }
                Message::Remb { .. } => self.rembs += 1,
                Message::TransportCc(said) => {
                    self.told += said.arrivals.iter().flatten().count() as u64;
                }
            }
        }
    }

    fn wants_picture(&mut self, cx: &mut Context<'_>, media: u32) {
        self.pictures += 1;
        let own = self.all.iter().find(|own| own.has(media));
        if let Some(playing) = own.or_else(|| self.all.first().filter(|_| self.all.len() == 1)) {
            playing.wants_picture(cx);
        }
    }

    /// Delivers a message to the streams of the publication that it concerns.
    pub(super) fn told(&mut self, cx: &mut Context<'_>, peer: &mut Peer, message: &str) {
        let Some((word, number)) = Word::read(message) else {
            return;
        };
        let all = self.all.iter_mut();
        for playing in all.filter(|own| own.publisher() == Some(number)) {
            playing.told(cx, peer, word);
        }
    }

    /// Marks a flow as ended. Returns `true` if all flows have ended and no stream may be added.
    pub(super) fn ended(&mut self, cx: &mut Context<'_>, peer: &mut Peer, flow: FlowId) -> bool {
        let mut all = self.all.iter_mut();
        let over = all.position(|own| own.ended(flow));
        let Some(over) = over else {
            return false;
        };
        if self.stays {
            let mut playing = self.all.remove(over);
            playing.end(cx, peer, true, &mut self.past);
            return false;
        }
        self.all.len() == 1
    }

    pub(super) fn deadline(&self) -> Time {
        let due = self.all.iter().map(Playing::deadline);
        due.min().unwrap_or(Time::NEVER)
    }

    pub(super) fn look(&mut self, cx: &mut Context<'_>, peer: &mut Peer) {
        for playing in &mut self.all {
            playing.look(cx, peer);
        }
    }

    /// Sends sender reports on all streams.
    pub(super) fn report(&self, cx: &mut Context<'_>, peer: &mut Peer, goodbye: bool) {
        for playing in &self.all {
            playing.report(cx, peer, goodbye);
        }
    }

    /// Stops sending, and adds the counts to the record.
    pub(super) fn end(
        &mut self,
        cx: &mut Context<'_>,
        peer: &mut Peer,
        goodbye: bool,
        done: &mut ServedPeer,
    ) {
        for mut playing in std::mem::take(&mut self.all) {
            playing.end(cx, peer, goodbye, &mut self.past);
        }
        let past = std::mem::take(&mut self.past);
        done.sent = Some(past.sent);
        done.sent_media = past.media;
        done.key_frames_wanted = self.pictures;
        done.arrivals_told = self.told;
        done.rembs = self.rembs;
    }
}
