//! Tracks that the client publishes, and layers of the tracks that it receives.

use super::LiveKit;
use super::message::{
    AddTrackRequest, ParticipantInfo, Request, SignalTarget, TrackSource, TrackType,
    UpdateTrackSettings, VideoLayer,
};
use crate::config::Layer;
use crate::metrics as m;
use crate::sdp;
use crate::signalling::SignallingContext;
use kit::media::source::{SIMULCAST_LAYERS, SourceConfig};

/// RIDs by which the server knows layers, best first.
pub const LAYER_RIDS: [&str; 3] = ["f", "h", "q"];

impl LiveKit {
    /// Announces the tracks in our offer. The server accepts no others.
    pub(super) fn add_tracks(&mut self, scope: &mut SignallingContext<'_>, sdp: &str) {
        self.tracks_announced_at = scope.now;
        let description = sdp::SessionDescription::parse(sdp).unwrap_or_default();
        for section in &description.media {
            let mut words = section.msid.as_deref().unwrap_or_default().split(' ');
            let Some(cid) = words.nth(1) else {
                continue;
            };
            let mut track = AddTrackRequest {
                cid: cid.to_owned(),
                name: cid.to_owned(),
                kind: TrackType::Audio as i32,
                source: TrackSource::Microphone as i32,
                ..AddTrackRequest::default()
            };
            if section.kind == sdp::MediaKind::Video {
                track.kind = TrackType::Video as i32;
                track.source = TrackSource::Camera as i32;
                if let Some(source) = &self.config.participate {
                    (track.width, track.height) = size_of(source);
                    track.layers = layers(source);
                }
            }
            self.unaccepted_tracks.push(cid.to_owned());
            scope.recorder.add(m::REQUESTS, 1);
            self.send(scope, Request::AddTrack(track));
        }
    }

    /// Requests the configured layer of new tracks.
    pub(super) fn choose_layers(
        &mut self,
        scope: &mut SignallingContext<'_>,
        participants: &[ParticipantInfo],
    ) {
        let layer = self.config.layer.filter(|_| self.config.receives_others());
        let Some(quality) = layer.map(Layer::number) else {
            return;
        };
        let track_sids = self.room.new_videos(participants);
        if !track_sids.is_empty() {
            let quality = i32::from(quality);
            let settings = UpdateTrackSettings {
                track_sids,
                quality,
            };
            self.send(scope, Request::TrackSettings(settings));
        }
    }

    /// Sends our offer, once the server has accepted all its tracks.
    pub(super) fn offer_if_ready(&mut self, scope: &mut SignallingContext<'_>) {
        if !self.unaccepted_tracks.is_empty() {
            return;
        }
        if let Some(sdp) = self.pending_offer.take() {
            self.offer_sent_at = Some(scope.now);
            scope.recorder.add(m::REQUESTS, 1);
            self.send_description(scope, SignalTarget::Publisher, 1, sdp);
        }
    }
}

/// Returns width and height of a source, or zeros if they are unknown.
fn size_of(source: &SourceConfig) -> (u32, u32) {
    let size = source.size.map(|size| (size.width, size.height));
    size.unwrap_or_default()
}

/// Describes the layers of the simulcast for the server. There are none without simulcast.
fn layers(source: &SourceConfig) -> Vec<VideoLayer> {
    let layers = (0..SIMULCAST_LAYERS).filter(|_| source.simulcast);
    let layers = layers.zip((0..3).rev()).zip(LAYER_RIDS);
    let layers = layers.map(|((layer, quality), rid)| {
        let own = source.layer(layer);
        let (width, height) = size_of(&own);
        VideoLayer {
            quality,
            width,
            height,
            bitrate: u32::try_from(own.generated_bitrate()).unwrap_or(u32::MAX),
            spatial_layer: quality,
            rid: rid.to_owned(),
        }
    });
    layers.collect()
}
