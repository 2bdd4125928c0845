//! Streams of the source that a client publishes or feeds: what is offered, and what is sent.

use kit::mediagen::ladder::Encoder;
use measure::Time;

use super::media::StreamMedia;
use crate::client::setup::Setup;
use crate::sdp::{Codec, Direction, LocalSource, MediaKind, OfferedMedia, extension};
use crate::signalling::livekit;
use crate::url::Resource;
use kit::media::rtp::{
    Clip, EncoderFlow, EncoderFlowSettings, Faults, FlowSettings, RtpFlow, TalkFlow, TalkSettings,
};
use kit::media::source::{MediaSource, SIMULCAST_LAYERS};
use session::seeds::derive_seed;

/// RIDs of the layers of a simulcast, best first.
pub(super) type LayerRids = [&'static str; SIMULCAST_LAYERS as usize];

/// RIDs of high, middle and low quality, as most web pages use them.
pub(super) const LAYER_RIDS: LayerRids = ["h", "m", "l"];

/// Stream of the source: a layer of a clip. The best layer, or the only one, is 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceStream {
    pub(super) clip: usize,
    pub(super) layer: usize,
}

impl Setup {
    /// Returns the seed of a value of a stream.
    fn stream_seed(&self, value: u64, of: SourceStream) -> u64 {
        derive_seed(&[self.seed, value, of.clip as u64 | (of.layer as u64) << 32])
    }

    /// Returns the SSRC of a stream.
    pub(super) fn own_ssrc(&self, of: SourceStream) -> u32 {
        self.stream_seed(41, of) as u32
    }

    /// Returns the SSRC of the retransmissions of a stream.
    pub(super) fn rtx_ssrc(&self, of: SourceStream) -> u32 {
        self.stream_seed(44, of) as u32
    }

    /// Returns the first sequence number of the retransmissions of a stream.
    pub(super) fn rtx_first_sequence(&self, of: SourceStream) -> u16 {
        self.stream_seed(45, of) as u16 & 0x3fff
    }

    /// Returns a payload type for retransmissions that no clip uses.
    fn rtx_payload_type(&self, index: usize) -> u8 {
        let clips = self.source.iter().flat_map(|source| &source.clips);
        let taken: Vec<u8> = clips.map(|clip| clip.payload_type()).collect();
        let mut free = (96..=127u8).filter(|number| !taken.contains(number));
        free.nth(index).unwrap_or(127)
    }

    /// Returns the RIDs by which the server knows the layers of a simulcast.
    pub(in crate::client) fn layer_rids(&self) -> LayerRids {
        match self.url.resource {
            Resource::LiveKit(_) => livekit::LAYER_RIDS,
            _ => LAYER_RIDS,
        }
    }

    /// Returns the offered sections of the source.
    pub(in crate::client) fn offered_source(&self) -> Vec<OfferedMedia> {
        let Some(source) = &self.source else {
            return Vec::new();
        };
        let mut medias = Vec::new();
        for (index, clip) in source.clips.iter().enumerate() {
            let (kind, mut codec) = Codec::of_clip(clip);
            let rate = codec.clock_rate;
            if !clip.parameters().is_empty() {
                // Parameter sets are sent in packets, so the offer need not contain them (RFC 6184,
                // 8.1).
                let named = |part: &&str| !part.trim().starts_with("sprop-");
                let parts: Vec<&str> = clip.parameters().split(';').filter(named).collect();
                codec = codec.with_parameters(&parts.join(";"));
            }
            let mut codecs = vec![codec];
            if kind == MediaKind::Video {
                let rtx = Codec::new(self.rtx_payload_type(index), "rtx", rate);
                codecs.push(rtx.with_parameters(&format!("apt={}", clip.payload_type())));
            }
            let layered = index == 0 && !source.lower_layers.is_empty();
            let layer_uris = [extension::MID, extension::RID, extension::REPAIRED_RID];
            let layer_uris = layer_uris.into_iter().filter(|_| layered);
            let best = SourceStream {
                clip: index,
                layer: 0,
            };
            let source = LocalSource {
                ssrc: self.own_ssrc(best),
                rtx_ssrc: Some(self.rtx_ssrc(best)),
                cname: self.cname.clone(),
                stream_id: "streamgauge".to_owned(),
                track_id: format!("{}{index}", clip.media()),
                layers: match layered {
                    true => self.layer_rids().map(str::to_owned).to_vec(),
                    false => Vec::new(),
                },
            };
            // An extension must have the same id in all sections of a transport.
            let numbered = self.config.follows_congestion();
            let transport_uri = numbered.then_some(extension::TRANSPORT_CC);
            let talks = kind == MediaKind::Audio && self.talk_schedule.is_some();
            let voice_uri = talks.then_some(extension::AUDIO_LEVEL);
            medias.push(OfferedMedia {
                kind,
                direction: Direction::SendOnly,
                codecs,
                extensions: transport_uri
                    .into_iter()
                    .chain(voice_uri)
                    .chain(layer_uris)
                    .map(str::to_owned)
                    .collect(),
                source: Some(source),
            });
        }
        medias
    }

    /// Creates and starts one of the streams of the source.
    pub(super) fn start_media(
        &self,
        now: Time,
        source: &MediaSource,
        of: SourceStream,
    ) -> StreamMedia {
        let ssrc = self.own_ssrc(of);
        // The first number is far below the wrap-around, so that receivers have settled on an SRTP
        // index before it.
        let first_seq = self.stream_seed(42, of) as u16 & 0x3fff;
        let first_timestamp = self.stream_seed(43, of) as u32;
        let (clip, pacing) = (source.clips[of.clip].clone(), source.pacing);
        if let (Some(talk), "audio") = (&self.talk_schedule, clip.media()) {
            let mut flow = TalkFlow::new(TalkSettings {
                clip,
                dtx_payload: Clip::opus_quiet(),
                talk: (**talk).clone(),
                ssrc,
                first_seq,
                first_timestamp,
            });
            flow.start(now);
            return StreamMedia::Talk(Box::new(flow));
        }
        let encoded = match of.layer {
            0 => source.ladder.as_ref(),
            lower => source.lower_layers.get(lower - 1),
        };
        if let Some(ladder) = encoded.filter(|_| of.clip == 0) {
            let mut flow = EncoderFlow::new(EncoderFlowSettings {
                encoder: Encoder::new(ladder.clone()),
                pacing,
                ssrc,
                first_seq,
                first_timestamp,
            });
            if let Some(wall_clock) = self.wall_clock {
                flow = flow.with_time_codes(wall_clock);
            }
            flow.start(now);
            return StreamMedia::Live(flow);
        }
        let mut flow = RtpFlow::new(FlowSettings {
            clip,
            pacing,
            ssrc,
            first_seq,
            first_timestamp,
            length: None,
            faults: Faults::default(),
            seed: 0,
            log: false,
        });
        if let Some(wall_clock) = self.wall_clock {
            flow = flow.with_time_codes(wall_clock);
        }
        flow.start(now);
        StreamMedia::Clip(flow)
    }
}
