//! Variants of a multivariant playlist: which one is played, and changes during playback.

use std::time::Duration;

use super::media::count_wasted;
use super::{Client, Track};
use crate::adaptation::Adaptation;
use crate::config::VariantChoice;
use crate::metrics as m;
use crate::playlist::{MultivariantPlaylist, Variables, Variant};
use kit::http1::Url;
use session::Context;

/// Variants of an adaptive player; none of others.
#[derive(Debug, Default)]
pub(super) struct Variants {
    /// Bit rates and URLs, in ascending order.
    rates: Vec<u64>,
    urls: Vec<Url>,
    /// URLs of the playlists of their audio; `None` if it has none of its own.
    audio: Vec<Option<Url>>,
    current: usize,
    /// Variant that was played before, until the playlist of the current one has arrived.
    previous: Option<usize>,
    /// Variables that media playlists may import.
    pub(super) defined: Variables,
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
        self.variants.defined = playlist.variables.clone();
        let variants = playlist.variants.iter();
        let chosen = match self.config.variant {
            VariantChoice::First => playlist.variants.first(),
            VariantChoice::Lowest => variants.min_by_key(|variant| variant.bandwidth),
            // The first of several with the same bit rate: the others replace it if it fails.
            VariantChoice::Highest => variants.rev().max_by_key(|variant| variant.bandwidth),
            VariantChoice::Adaptive => {
                let mut sorted: Vec<_> = variants.collect();
                sorted.sort_by_key(|variant| variant.bandwidth);
                sorted.dedup_by_key(|variant| variant.bandwidth);
                let limit = self.config.bandwidth_of(self.variants.seed);
                let adaptation = Adaptation::new(limit);
                let own = &mut self.variants;
                own.rates = sorted.iter().map(|variant| variant.bandwidth).collect();
                own.current = adaptation.choose(&own.rates, None);
                own.adaptation = Some(adaptation);
                for variant in &sorted {
                    let resolve = |uri: &str| self.shared.resolve(&self.config, base, uri);
                    let audio = audio_of(playlist, variant).map(resolve);
                    match resolve(&variant.uri) {
                        Ok(url) => {
                            // One that cannot be requested is no reason not to play the variant.
                            let audio = audio.and_then(Result::ok);
                            let audio = audio.filter(|audio| !audio.is_same_resource(&url));
                            self.variants.urls.push(url);
                            self.variants.audio.push(audio);
                        }
                        Err(refusal) => return self.fail(cx, refusal),
                    }
                }
                sorted.get(self.variants.current).copied()
            }
        };
        let Some(chosen) = chosen else {
            return;
        };
        let audio = audio_of(playlist, chosen);
        let mut urls = Vec::new();
        for uri in [Some(chosen.uri.as_str()), audio] {
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
            self.tracks[track].start_offset = playlist.start;
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
        let own = &self.variants;
        let url = own.urls[own.current].clone();
        let audio = own.audio[own.current].clone();
        self.change_playlist(cx, 0, url);
        // The audio goes on as it is if the variant has none of its own.
        if let Some(track) = self.tracks.get_mut(1) {
            track.next_url = audio.filter(|audio| !audio.is_same_resource(&track.url));
            self.advance(cx, 1);
        }
    }

    /// Returns to the audio before, whose playlist the player had, and never tries the current one
    /// again. Returns `false` if the audio has not just changed.
    pub(super) fn return_to_previous_audio(&mut self, cx: &mut Context<'_>, track: usize) -> bool {
        let own = &mut self.tracks[track];
        let Some(previous) = own.previous_url.take() else {
            return false;
        };
        for audio in &mut self.variants.audio {
            audio.take_if(|audio| audio.is_same_resource(&own.url));
        }
        self.change_playlist(cx, track, previous);
        self.tracks[track].previous_url = None;
        true
    }

    /// Lets a track go on with another playlist.
    pub(super) fn change_playlist(&mut self, cx: &mut Context<'_>, track: usize, url: Url) {
        let own = &mut self.tracks[track];
        own.playlists.give_up(cx);
        for bytes in own.change_playlist(url).into_iter().flatten() {
            count_wasted(cx, bytes);
        }
        self.request_playlist(cx, track);
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
        own.audio.remove(own.current);
        own.current = match previous > own.current {
            true => previous - 1,
            false => previous,
        };
        self.request_variant(cx);
        true
    }
}

/// Returns the URI of the audio rendition of a variant, if that has a playlist of its own: the
/// default one of its group, otherwise the first.
fn audio_of<'a>(playlist: &'a MultivariantPlaylist, variant: &Variant) -> Option<&'a str> {
    let mut group = playlist
        .audio
        .iter()
        .filter(|audio| variant.audio.as_ref() == Some(&audio.group));
    let first = group.clone().next();
    let chosen = group.find(|audio| audio.is_default).or(first)?;
    chosen.uri.as_deref()
}
