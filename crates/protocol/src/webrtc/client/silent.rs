//! Streams from which nothing came, or nothing any more, while others played on.

use std::time::Duration;

use super::{Client, Phase};
use crate::media::rtp::metrics::STREAMS_SILENT;
use crate::media::silence;
use crate::session::{Context, Note, Output};
use crate::webrtc::tracks::{Course, Tracks};

impl Client {
    /// Counts silent streams at the end of a client that has not failed, and says which they are.
    ///
    /// A stream that never came is one only where its publisher, of the same run, is known to send
    /// it: servers agree on sound of a publisher that has none.
    pub(super) fn look_for_silent_streams(&self, cx: &mut Context<'_>) {
        if self.phase != Phase::Active {
            return;
        }
        let silence = self.config.silence.0;
        // After that nothing was to come.
        let until = self.publisher_left_at().unwrap_or(cx.now);
        let mut courses = Vec::new();
        for link in &self.links {
            if let (Some(sink), Some(stood)) = (link.sink, link.stands) {
                let tracks = cx.sinks.get::<Tracks>(sink);
                courses.extend(tracks.courses(until, stood, silence));
            }
        }
        if courses.iter().all(|(_, course)| *course != Course::Goes) {
            return;
        }
        let patience = silence::bound(Duration::ZERO, Duration::ZERO, silence);
        for (kind, course) in courses {
            let what = match course {
                Course::Stopped(silent) => format!("no packet for {:.3} s", silent.as_secs_f64()),
                Course::NeverCame(waited) if waited >= patience && self.publisher_sends(kind) => {
                    "no packet".to_owned()
                }
                _ => continue,
            };
            let text = format!(
                "{what} of {} {}, while others played",
                kind.name(),
                self.url
            );
            cx.out.push_back(Output::Note(Note {
                kind: "silent_stream",
                text,
            }));
            cx.recorder.add(STREAMS_SILENT, 1);
        }
    }
}
