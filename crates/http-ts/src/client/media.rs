//! Video and audio of a stream, and its end.

use measure::Time;

use super::{Client, Failure};
use crate::metrics as m;
use kit::media::rtp::StreamSummary;
use kit::media::ts::metrics as ts;
use kit::mediagen::ts::packet::PACKET_LEN;
use kit::viewer::Viewing;
use session::{Context, Note, Output};

impl Client {
    /// Returns a failure if the viewer received video without a random-access point.
    pub(super) fn no_picture_failure(&self) -> Option<(Failure, String)> {
        let checker = self.checker.as_ref().filter(|_| self.has_media)?;
        let time = checker.without_picture()?;
        let detail = format!(
            "no random-access point in {:.3} s of video, so no picture, {}",
            time.as_secs_f64(),
            self.describe_addresses()
        );
        Some((Failure::NoPicture, detail))
    }

    /// Counts and reports video or audio that was silent while the rest of the stream arrived. In a
    /// stream that has ended, one may be shorter than the other, so only media that never arrived
    /// counts.
    pub(super) fn count_silent_streams(&self, cx: &mut Context<'_>, is_live: bool) {
        let Some(checker) = self.checker.as_ref().filter(|_| self.has_media) else {
            return;
        };
        for silent in checker
            .silent_media()
            .filter(|silent| is_live || silent.never_arrived())
        {
            cx.recorder.add(ts::STREAMS_SILENT, 1);
            cx.out.push_back(Output::Note(Note {
                kind: "silent_stream",
                text: format!("{silent}: {}", self.current_url),
            }));
        }
    }

    /// State of the viewer at its end, over all channels.
    pub(super) fn viewing(&self, now: Time) -> Viewing {
        let zapping = self.zapping.as_ref();
        let earlier = zapping.and_then(|zapping| zapping.earlier_summary.as_deref());
        let mut delivery = earlier.map(StreamSummary::delivery).unwrap_or_default();
        if let Some(checker) = &self.checker {
            let last = StreamSummary::from_checker("", 0, checker).delivery();
            delivery.stalled += last.stalled;
            delivery.expected += last.expected;
            delivery.missing += last.missing;
        }
        Viewing {
            due: self.planned_start,
            first_media: self.first_media,
            ended: now,
            delivery,
        }
    }

    /// Notes packets that are longer than specified (ISO/IEC 13818-1, 2.4.3.2).
    #[cold]
    pub(super) fn note_packet_size(&self, cx: &mut Context<'_>, stride: usize) {
        if stride != PACKET_LEN {
            let text = format!(
                "the stream has packets of {stride} bytes instead of {PACKET_LEN}: {}",
                self.current_url
            );
            let kind = "packet_size";
            cx.out.push_back(Output::Note(Note { kind, text }));
        }
    }

    /// Notes the end of a stream that the server ended in order. Returns what ended it.
    pub(super) fn note_end(&self, cx: &mut Context<'_>) -> String {
        let by = match self.stated_length {
            Some(length) => {
                cx.recorder.add(m::ENDED_BY_LENGTH, 1);
                format!("its Content-Length of {length} bytes")
            }
            None => "the end of its body".to_owned(),
        };
        cx.out.push_back(Output::Note(Note {
            kind: "stream_ended",
            text: format!(
                "the server ended the stream by {by}, {}: {}",
                self.describe_progress(cx.now),
                self.current_url
            ),
        }));
        by
    }
}
