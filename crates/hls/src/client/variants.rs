//! Variants of a multivariant playlist: which one is played, and changes during playback.

use std::time::Duration;

use super::failing::Failed;
use super::track::{Lane, NextPlaylist, Wanted, count_wasted};
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
    /// Variant that was left because of a segment, until the playlists of the current one have
    /// arrived.
    left: Option<Stream>,
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

impl Stream {
    fn url_of(&self, track: usize) -> Option<&Url> {
        match track {
            0 => Some(&self.url),
            _ => self.audio.as_ref(),
        }
    }
}

impl Variants {
    /// The variant that is played.
    fn stream(&self) -> Option<&Stream> {
        self.streams.get(self.current)?.first()
    }

    /// Changes to another variant of the current bit rate, whose playlist of this track is not at
    /// `failed`. Returns the variant before.
    fn replace(&mut self, track: usize, failed: &Url) -> Option<Stream> {
        let streams = self.streams.get_mut(self.current)?;
        let differs = |own: &Stream| {
            let url = own.url_of(track);
            url.is_some_and(|url| !url.is_same_resource(failed))
        };
        let found = streams.iter().skip(1).position(differs)?;
        streams.drain(..=found).next()
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
        let mut refused = None;
        for same in playable.chunk_by(|one, other| one.bandwidth == other.bandwidth) {
            let mut streams = Vec::new();
            for variant in same {
                match self.stream(playlist, variant, base) {
                    Ok(stream) => streams.push(stream),
                    Err(refusal) => refused = refused.or(Some(refusal)),
                }
            }
            if !streams.is_empty() {
                self.variants.rates.push(same[0].bandwidth);
                self.variants.streams.push(streams);
            }
        }
        match refused {
            Some(refusal) if self.variants.rates.is_empty() => return self.fail(cx, refusal),
            Some(refusal) => {
                let (kind, text) = ("variant_failed", refusal.detail);
                cx.out.push_back(Output::Note(Note { kind, text }));
            }
            None => {}
        }
        let own = &mut self.variants;
        if self.config.variant == VariantChoice::Adaptive {
            let adaptation = Adaptation::new(self.config.bandwidth_of(own.seed));
            own.current = adaptation.choose(&own.rates, None);
            own.adaptation = Some(adaptation);
        }
        let Some(stream) = self.variants.stream() else {
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

    /// Returns the URLs of a variant.
    fn stream(
        &self,
        playlist: &MultivariantPlaylist,
        variant: &Variant,
        base: &Url,
    ) -> Result<Stream, Refusal> {
        let resolve = |uri: &str| self.shared.resolve(&self.config, base, uri);
        let url = resolve(&variant.uri)?;
        let audio = audio_of(playlist, variant).map(resolve).transpose()?;
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
        let Some(stream) = self.variants.stream() else {
            return;
        };
        let (url, audio) = (stream.url.clone(), stream.audio.clone());
        self.change_playlist(cx, 0, url);
        self.plan_audio(cx, audio, false);
    }

    /// Lets the audio go on with another playlist after its current segment.
    fn plan_audio(&mut self, cx: &mut Context<'_>, audio: Option<Url>, is_final: bool) {
        // The audio goes on as it is if the variant has none of its own.
        if let Some(track) = self.tracks.get_mut(1) {
            let audio = audio.filter(|audio| !audio.is_same_resource(&track.url));
            track.next_playlist = audio.map(|url| NextPlaylist { url, is_final });
            self.advance(cx, 1);
        }
    }

    /// Goes on at once with the playlist to which the track was to change after its segment,
    /// because a request failed. Returns `false` if there is none.
    pub(super) fn change_early(&mut self, cx: &mut Context<'_>, failed: &Failed<'_>) -> bool {
        let Some(next) = self.tracks[failed.track].next_playlist.take() else {
            return false;
        };
        self.leave_playlist(cx, failed.track, next, failed);
        true
    }

    /// Goes on with another variant after a failure. Returns `false` if there is no other.
    /// `is_hopeless` is false if another attempt with the same variant may succeed.
    pub(super) fn leave_stream(
        &mut self,
        cx: &mut Context<'_>,
        failed: &Failed<'_>,
        is_hopeless: bool,
    ) -> bool {
        let track = failed.track;
        let is_playlist = failed.lane == Lane::Playlists;
        let is_new = match track {
            0 => self.variants.previous.is_some(),
            _ => self.tracks[track].previous_url.is_some(),
        };
        let is_needed = is_playlist || !self.tracks[track].has_left_wanted();
        if is_needed && (is_hopeless || is_new) && self.fail_over(cx, failed) {
            return true;
        }
        if !is_playlist {
            return false;
        }
        let is_back = match track {
            0 => self.return_to_previous(cx),
            _ => self.return_to_previous_audio(cx, track),
        };
        is_back
            || is_hopeless && self.return_to_left(cx, failed)
            || is_hopeless && track == 0 && self.leave_rate(cx, failed)
    }

    /// Goes on with another variant of the same bit rate at the same place. Returns `false` if
    /// there is none.
    fn fail_over(&mut self, cx: &mut Context<'_>, failed: &Failed<'_>) -> bool {
        let url = self.tracks[failed.track].url.clone();
        let Some(left) = self.variants.replace(failed.track, &url) else {
            return false;
        };
        cx.recorder.add(m::FAILOVERS, 1);
        self.variants.left = (failed.lane == Lane::Media).then_some(left);
        self.change_tracks(cx, failed);
        true
    }

    /// Returns to the variant that was left because of a segment, if the playlist of the current
    /// one cannot be had either. Returns `false` if there is none.
    fn return_to_left(&mut self, cx: &mut Context<'_>, failed: &Failed<'_>) -> bool {
        let own = &mut self.variants;
        let Some(left) = own.left.take() else {
            return false;
        };
        if let Some(streams) = own.streams.get_mut(own.current) {
            *streams = vec![left];
        }
        self.change_tracks(cx, failed);
        true
    }

    /// Lets all tracks go on with the current variant after a failure: the one that failed at once,
    /// and the audio of another after its current segment.
    fn change_tracks(&mut self, cx: &mut Context<'_>, failed: &Failed<'_>) {
        let Some(stream) = self.variants.stream() else {
            return;
        };
        let (url, audio) = (stream.url.clone(), stream.audio.clone());
        let video = &self.tracks[0];
        if !video.is_over && !video.url.is_same_resource(&url) {
            let is_final = true;
            self.leave_playlist(cx, 0, NextPlaylist { url, is_final }, failed);
        }
        if failed.track == 0 {
            return self.plan_audio(cx, audio, true);
        }
        let current = &self.tracks[failed.track].url;
        if let Some(url) = audio.filter(|audio| !audio.is_same_resource(current)) {
            let is_final = true;
            self.leave_playlist(cx, failed.track, NextPlaylist { url, is_final }, failed);
        }
    }

    /// Goes on with a variant of another bit rate, and never tries the current one again. Returns
    /// `false` if there is none.
    fn leave_rate(&mut self, cx: &mut Context<'_>, failed: &Failed<'_>) -> bool {
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
        self.change_tracks(cx, failed);
        true
    }

    /// Lets a track go on with another playlist at once. A segment that is being received, or was
    /// to be requested again, is requested from there.
    fn leave_playlist(
        &mut self,
        cx: &mut Context<'_>,
        track: usize,
        next: NextPlaylist,
        failed: &Failed<'_>,
    ) {
        let own = &mut self.tracks[track];
        let is_piece = matches!(own.wanted, Some(Wanted::Piece(_)));
        let is_left = own.has_left_wanted();
        let mut asked_at = failed.asked_at;
        if is_piece && (failed.track, failed.lane) != (track, Lane::Media) {
            asked_at = own.media.give_up(cx).map(|request| request.since);
            cx.recorder.add(m::BYTES_WASTED, own.body_bytes);
        }
        let since = own.attempts.since().or(asked_at.filter(|_| is_piece));
        let again = own.attempts.forget().is_some() || own.wanted.is_some();
        own.wanted.take_if(|_| is_piece);
        if is_piece && is_left {
            self.count_failed_segment(cx);
        }
        self.change_playlist(cx, track, next.url);
        let own = &mut self.tracks[track];
        if again && !is_left {
            own.attempts.begin_again(since, failed.refusal);
        }
        if next.is_final {
            own.previous_url = None;
        }
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
                if !own.waste_open_range(cx) {
                    count_wasted(cx, own.body_bytes);
                }
            }
            Some(_) => drop(own.media.give_up(cx)),
            None => {}
        }
        let own = &mut self.tracks[track];
        own.waste_open_range(cx);
        for bytes in own.change_playlist(url, &self.config).into_iter().flatten() {
            count_wasted(cx, bytes);
        }
        self.request_playlist(cx, track);
    }

    /// Notes that a playlist of the current variant has arrived.
    pub(super) fn confirm_variant(&mut self, track: usize) {
        if track == 0 {
            self.variants.previous = None;
        }
        let has_arrived = |own: &Track| own.playlist.is_some() && own.next_playlist.is_none();
        if self.tracks.iter().all(has_arrived) {
            self.variants.left = None;
        }
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
