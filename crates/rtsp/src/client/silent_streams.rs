//! Streams of a session that never sent packets, or stopped, while others played.

use super::{Client, Phase};
use kit::lifecycle::FAILED_WAIT_MIN;
use kit::media::rtp::RtpReceiver;
use kit::media::rtp::metrics::STREAMS_SILENT;
use kit::media::sdp::MediaKind;
use kit::media::silence;
use session::{Context, Note, Output};

impl Client {
    /// Counts silent streams at the end of playback, and notes which they are. If `failed`, the
    /// client fails anyway, and they are not counted, so that no fault counts twice.
    ///
    /// Text and data may be silent while they have nothing to send: they are noted, but not
    /// counted.
    pub(super) fn count_silent_streams(&self, cx: &mut Context<'_>, failed: bool) {
        if self.phase != Phase::Playing || self.starts.first_media.is_none() {
            return;
        }
        let Some(answered) = self.starts.play_answered else {
            return;
        };
        if cx.now.since(answered) < FAILED_WAIT_MIN {
            return;
        }
        for stream in &self.streams {
            let receiver = cx.sinks.get::<RtpReceiver>(stream.sink);
            let what = match receiver.last_arrival() {
                None => "no packet".to_owned(),
                Some(_) if failed || !self.silence_means_stopped() || stream.bye_at.is_some() => {
                    continue;
                }
                Some(last) => {
                    let first = receiver.position_arrival().unwrap_or(last);
                    let silent = cx.now.since(last.max(answered));
                    let bound = silence::bound(
                        last.since(first),
                        receiver.longest_gap(),
                        self.config.silence.0,
                    );
                    if silent < bound {
                        continue;
                    }
                    format!("no packet for {:.3} s", silent.as_secs_f64())
                }
            };
            let text = format!(
                "{what} of {} {}, while others played",
                stream.kind.name(),
                stream.url
            );
            cx.out.push_back(Output::Note(Note {
                kind: "silent_stream",
                text,
            }));
            let is_media = matches!(
                stream.kind,
                MediaKind::Video | MediaKind::Audio | MediaKind::Multiplex
            );
            if is_media && !failed {
                cx.recorder.add(STREAMS_SILENT, 1);
            }
        }
    }

    /// Returns whether a silent stream is known to have stopped. In a file, one stream may be
    /// shorter than the others; after a pause or a seek, a stream need not have started again; and
    /// a remote receiver reports only now and then.
    fn silence_means_stopped(&self) -> bool {
        self.playing_time.is_none() && self.timeline.is_none() && self.remote.link.is_none()
    }
}
