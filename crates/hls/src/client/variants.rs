//! Variants of a multivariant playlist: which one is played, and changes during playback.

use std::time::Duration;

use measure::Time;

use super::media::count_wasted;
use super::track::{Lane, Wanted};
use super::{Client, Track};
use crate::adaptation::Adaptation;
use crate::config::VariantChoice;
use crate::connection::Refusal;
use crate::metrics as m;
use crate::playlist::{MultivariantPlaylist, Variables, Variant};
use kit::http1::Url;
use session::{Context, Note, Output};

/// Variants that a player may play.
#[derive(Debug, Default)]
pub(super) struct Variants {
    /// Their bit rates, in ascending order: one, unless the player is adaptive.
    rates: Vec<u64>,
    /// Variants of each bit rate, in the order of the playlist. The first is played; the others
    /// replace it if it fails (RFC 8216, 6.2.4).
    streams: Vec<Vec<Stream>>,
    /// Index of the bit rate that is played.
    current: usize,
    /// Bit rate that was played before, until the playlist of the current one has arrived.
    previous: Option<usize>,
    /// Variables that media playlists may import.
    pub(super) defined: Variables,
    seed: u64,
    adaptation: Option<Adaptation>,
}

/// Playlists of a variant.
#[derive(Debug)]
struct Stream {
    url: Url,
    /// Audio rendition; `None` if it has no playlist of its own.
    audio: Option<Url>,
}

impl Variants {
    /// Changes to another variant of the current bit rate, in which the URL of this track is not
    /// the same. Returns it.
    fn replace(&mut self, track: usize) -> Option<&Stream> {
        let streams = self.streams.get_mut(self.current)?;
        let (failed, others) = streams.split_first()?;
        let differs = |own: &Stream| match (track, &failed.audio, &own.audio) {
            (0, ..) => !own.url.is_same_resource(&failed.url),
            (_, Some(failed), Some(own)) => !own.is_same_resource(failed),
            _ => false,
        };
        let found = others.iter().position(differs)?;
        streams.drain(..=found);
        streams.first()
    }

    fn remove(&mut self, index: usize) {
        self.rates.remove(index);
        self.streams.remove(index);
    }
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
        let rates = playlist.variants.iter().map(|variant| variant.bandwidth);
        let rate = match self.config.variant {
            VariantChoice::First => rates.clone().next(),
            VariantChoice::Lowest => rates.min(),
            VariantChoice::Highest => {
                let limit = self.config.bandwidth_of(self.variants.seed);
                let fits = |rate: &u64| limit.is_none_or(|limit| *rate as f64 <= limit);
                rates.clone().filter(fits).max().or(rates.min())
            }
            VariantChoice::Adaptive => None,
        };
        let mut playable: Vec<&Variant> = playlist.variants.iter().collect();
        playable.retain(|variant| rate.is_none_or(|rate| variant.bandwidth == rate));
        // Variants of the same bit rate stay in the order of the playlist.
        playable.sort_by_key(|variant| variant.bandwidth);
        let groups = playable.chunk_by(|one, other| one.bandwidth == other.bandwidth);
        let own = &mut self.variants;
        own.rates = groups.clone().map(|same| same[0].bandwidth).collect();
        if self.config.variant == VariantChoice::Adaptive {
            let adaptation = Adaptation::new(self.config.bandwidth_of(own.seed));
            own.current = adaptation.choose(&own.rates, None);
            own.adaptation = Some(adaptation);
        }
        let current = own.current;
        for (index, same) in groups.enumerate() {
            let mut streams = Vec::new();
            let mut refused = None;
            for variant in same {
                match self.stream(playlist, variant, base, index == current) {
                    Ok(stream) => streams.push(stream),
                    Err(refusal) => refused = refused.or(Some(refusal)),
                }
            }
            match refused {
                Some(refusal) if streams.is_empty() => return self.fail(cx, refusal),
                Some(refusal) => {
                    let (kind, text) = ("variant_failed", refusal.detail);
                    cx.out.push_back(Output::Note(Note { kind, text }));
                }
                None => {}
            }
            self.variants.streams.push(streams);
        }
        let own = &self.variants;
        let Some(stream) = own.streams.get(own.current).and_then(|own| own.first()) else {
            return;
        };
        let urls = [Some(stream.url.clone()), stream.audio.clone()];
        for (track, url) in urls.into_iter().flatten().enumerate() {
            match self.tracks.get_mut(track) {
                Some(own) => own.url = url,
                None => self.tracks.push(Track::new(url)),
            }
            self.tracks[track].is_chosen = true;
            self.tracks[track].start_offset = playlist.start;
            self.request_playlist(cx, track);
        }
    }

    /// Returns the URLs of a variant. Audio that cannot be requested is left out, unless it is
    /// needed.
    fn stream(
        &self,
        playlist: &MultivariantPlaylist,
        variant: &Variant,
        base: &Url,
        needs_audio: bool,
    ) -> Result<Stream, Refusal> {
        let resolve = |uri: &str| self.shared.resolve(&self.config, base, uri);
        let url = resolve(&variant.uri)?;
        let audio = match audio_of(playlist, variant).map(resolve) {
            Some(Err(refusal)) if needs_audio => return Err(refusal),
            audio => audio.and_then(Result::ok),
        };
        // A variant may hold the audio itself, and name its own playlist as the rendition.
        let audio = audio.filter(|audio| !audio.is_same_resource(&url));
        Ok(Stream { url, audio })
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
        let Some(stream) = own.streams.get(own.current).and_then(|own| own.first()) else {
            return;
        };
        let (url, audio) = (stream.url.clone(), stream.audio.clone());
        self.change_playlist(cx, 0, url);
        self.change_audio(cx, audio);
    }

    /// Lets the audio go on with another playlist after its current segment.
    fn change_audio(&mut self, cx: &mut Context<'_>, audio: Option<Url>) {
        // The audio goes on as it is if the variant has none of its own.
        if let Some(track) = self.tracks.get_mut(1) {
            track.next_url = audio.filter(|audio| !audio.is_same_resource(&track.url));
            self.advance(cx, 1);
        }
    }

    /// Goes on with another variant after a failure. Returns `false` if there is no other.
    /// `is_hopeless` is false if another attempt with the same variant may succeed.
    pub(super) fn leave_stream(
        &mut self,
        cx: &mut Context<'_>,
        (track, lane): (usize, Lane),
        is_hopeless: bool,
        (asked_at, refusal): (Option<Time>, &Refusal),
    ) -> bool {
        let is_playlist = lane == Lane::Playlists;
        let is_new = match track {
            0 => self.variants.previous.is_some(),
            _ => self.tracks[track].previous_url.is_some(),
        };
        let is_needed = is_playlist || !self.tracks[track].has_left_wanted();
        let gives_up = is_needed && (is_hopeless || is_new);
        if gives_up && self.fail_over(cx, (track, lane), (asked_at, refusal)) {
            return true;
        }
        match track {
            _ if !is_playlist => false,
            0 => self.return_to_previous(cx) || is_hopeless && self.leave_rate(cx),
            _ => self.return_to_previous_audio(cx, track),
        }
    }

    /// Goes on with another variant of the same bit rate at the same place, and never tries the
    /// current one again. Returns `false` if there is none.
    fn fail_over(
        &mut self,
        cx: &mut Context<'_>,
        (track, lane): (usize, Lane),
        (asked_at, refusal): (Option<Time>, &Refusal),
    ) -> bool {
        let Some(stream) = self.variants.replace(track) else {
            return false;
        };
        let (url, audio) = (stream.url.clone(), stream.audio.clone());
        cx.recorder.add(m::FAILOVERS, 1);
        if lane == Lane::Media {
            self.tracks[track].plan_elsewhere(asked_at, refusal);
        }
        if !url.is_same_resource(&self.tracks[0].url) {
            self.change_playlist(cx, 0, url);
        }
        match audio {
            Some(audio) if track > 0 => {
                self.change_playlist(cx, track, audio);
                self.tracks[track].previous_url = None;
            }
            audio => self.change_audio(cx, audio),
        }
        true
    }

    /// Goes on with a variant of another bit rate, and never tries the current one again. Returns
    /// `false` if there is none.
    fn leave_rate(&mut self, cx: &mut Context<'_>) -> bool {
        let own = &mut self.variants;
        let Some(adaptation) = own.adaptation.filter(|_| own.rates.len() > 1) else {
            return false;
        };
        let left = own.rates[own.current];
        own.remove(own.current);
        own.current = adaptation.choose(&own.rates, None);
        let is_down = own.rates[own.current] < left;
        cx.recorder.add(m::SWITCHES, 1);
        cx.recorder.add(m::SWITCHES_DOWN, u64::from(is_down));
        self.request_variant(cx);
        true
    }

    /// Returns to the audio before, whose playlist the player had, and never tries the current one
    /// again. Returns `false` if the audio has not just changed.
    pub(super) fn return_to_previous_audio(&mut self, cx: &mut Context<'_>, track: usize) -> bool {
        let own = &mut self.tracks[track];
        let Some(previous) = own.previous_url.take() else {
            return false;
        };
        for stream in self.variants.streams.iter_mut().flatten() {
            let audio = &mut stream.audio;
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
        match own.wanted.take_if(|own| !matches!(own, Wanted::Piece(_))) {
            Some(Wanted::Hint(_)) => {
                own.media.give_up(cx);
                count_wasted(cx, own.body_bytes);
            }
            Some(_) => drop(own.media.give_up(cx)),
            None => {}
        }
        let own = &mut self.tracks[track];
        for bytes in own.change_playlist(url, &self.config).into_iter().flatten() {
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
        own.remove(own.current);
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
