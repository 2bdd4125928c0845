//! Variants of a multivariant playlist: which one is played, and changes during playback.

use std::time::Duration;

use super::{Client, Track};
use crate::adaptation::Adaptation;
use crate::config::VariantChoice;
use crate::metrics as m;
use crate::playlist::MultivariantPlaylist;
use kit::http1::Url;
use session::Context;

/// Variants of an adaptive player; none of others.
#[derive(Debug, Default)]
pub(super) struct Variants {
    /// Bit rates and URLs, in ascending order.
    rates: Vec<u64>,
    urls: Vec<Url>,
    current: usize,
    /// Variant that was played before, until the playlist of the current one has arrived.
    previous: Option<usize>,
    seed: u64,
    adaptation: Option<Adaptation>,
}

impl Client {
    /// Sets the seed of what is drawn for the player.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Client {
        self.variants.seed = seed;
        self
    }

    /// Chooses a variant, and its audio rendition.
    pub(super) fn choose(
        &mut self,
        cx: &mut Context<'_>,
        playlist: &MultivariantPlaylist,
        base: &Url,
    ) {
        let variants = playlist.variants.iter();
        let chosen = match self.config.variant {
            VariantChoice::First => playlist.variants.first(),
            VariantChoice::Lowest => variants.min_by_key(|variant| variant.bandwidth),
            VariantChoice::Highest => variants.max_by_key(|variant| variant.bandwidth),
            VariantChoice::Adaptive => {
                let mut sorted: Vec<_> = variants.collect();
                sorted.sort_by_key(|variant| variant.bandwidth);
                let limit = self.config.bandwidth_of(self.variants.seed);
                let adaptation = Adaptation::new(limit);
                let own = &mut self.variants;
                own.rates = sorted.iter().map(|variant| variant.bandwidth).collect();
                own.current = adaptation.choose(&own.rates, None);
                own.adaptation = Some(adaptation);
                for variant in &sorted {
                    match self.shared.resolve(&self.config, base, &variant.uri) {
                        Ok(url) => self.variants.urls.push(url),
                        Err(refusal) => return self.fail(cx, refusal),
                    }
                }
                sorted.get(self.variants.current).copied()
            }
        };
        let Some(chosen) = chosen else {
            return;
        };
        let group = playlist
            .audio
            .iter()
            .filter(|audio| chosen.audio.as_ref() == Some(&audio.group));
        let audio = group
            .clone()
            .find(|audio| audio.is_default)
            .or_else(|| group.clone().next());
        let mut urls = Vec::new();
        for uri in [Some(&chosen.uri), audio.map(|audio| &audio.uri)] {
            let Some(uri) = uri else { continue };
            match self.shared.resolve(&self.config, base, uri) {
                Ok(url) => urls.push(url),
                Err(refusal) => return self.fail(cx, refusal),
            }
        }
        // A variant may hold the audio itself, and name its own playlist as the rendition.
        urls.dedup_by(|audio, variant| audio.is_same_resource(variant));
        for (track, url) in urls.into_iter().enumerate() {
            match self.tracks.get_mut(track) {
                Some(own) => own.url = url,
                None => self.tracks.push(Track::new(url)),
            }
            self.tracks[track].is_chosen = true;
            self.request_playlist(cx, track);
        }
    }

    /// Takes the measurement of a download, and changes to another variant if that fits better.
    pub(super) fn adapt(&mut self, cx: &mut Context<'_>, bytes: u64, took: Duration) {
        let own = &mut self.variants;
        let Some(adaptation) = &mut own.adaptation else {
            return;
        };
        adaptation.add(bytes, took);
        if !self.tracks[0].is_between_segments() {
            return;
        }
        let best = adaptation.choose(&own.rates, Some(own.current));
        let before = std::mem::replace(&mut own.current, best);
        if best == before {
            return;
        }
        own.previous = Some(before);
        cx.recorder.add(m::SWITCHES, 1);
        cx.recorder.add(m::SWITCHES_DOWN, u64::from(best < before));
        self.request_variant(cx);
    }

    fn request_variant(&mut self, cx: &mut Context<'_>) {
        let url = self.variants.urls[self.variants.current].clone();
        let track = &mut self.tracks[0];
        track.playlists.give_up(cx);
        track.change_playlist(url);
        self.request_playlist(cx, 0);
    }

    /// Notes that the playlist of the current variant has arrived.
    pub(super) fn confirm_variant(&mut self) {
        self.variants.previous = None;
    }

    /// Returns to the variant before, and never tries the current one again. Returns `false` if the
    /// player has not just changed.
    pub(super) fn return_to_previous(&mut self, cx: &mut Context<'_>) -> bool {
        let own = &mut self.variants;
        let Some(previous) = own.previous.take() else {
            return false;
        };
        own.rates.remove(own.current);
        own.urls.remove(own.current);
        own.current = match previous > own.current {
            true => previous - 1,
            false => previous,
        };
        self.request_variant(cx);
        true
    }
}
