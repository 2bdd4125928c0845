//! Time codes of pictures: their end-to-end delay, and pictures that did not arrive completely.

use std::time::Duration;

use measure::{Recorder, Time};

use crate::media::shared::{TimeCodes, time_code_metrics};
use crate::media::ts::metrics as m;
use crate::mediagen::time_code::TimeCode;

/// PID that no packet has.
const NO_PID: u16 = u16::MAX;

/// Metrics of pictures in transport streams.
struct PictureMetrics;

time_code_metrics!(PictureMetrics);

/// Pictures of a stream that have time codes.
#[derive(Debug, Default)]
pub(super) struct CodedPictures {
    /// Present from the first code on.
    stream: Option<Box<CodedStream>>,
}

/// Time codes of a stream, and the picture that is arriving.
#[derive(Debug)]
struct CodedStream {
    /// PID of the picture that is arriving, if it has a code.
    pid: u16,
    /// Arrival of the last packet of the picture so far.
    last: Time,
    /// Continuity errors of its PID when the picture began.
    errors: u64,
    /// Number in the time code of that picture.
    number: u32,
    codes: TimeCodes,
}

impl CodedPictures {
    /// Handles a packet within a unit.
    #[inline]
    pub(super) fn packet(&mut self, pid: u16, at: Time) {
        if let Some(stream) = &mut self.stream
            && pid == stream.pid
        {
            stream.last = at;
        }
    }

    /// Handles the first packet of a picture, with its payload. `errors` is the number of
    /// continuity errors of its PID so far, `wall_clock` the wall clock at the start of the run.
    pub(super) fn begin(
        &mut self,
        pid: u16,
        at: Time,
        payload: &[u8],
        errors: u64,
        wall_clock: Duration,
        recorder: &mut Recorder,
    ) {
        let code = TimeCode::find_in_stream(payload);
        if let Some(stream) = &mut self.stream
            && stream.pid == pid
        {
            if code.is_some_and(|code| code.number == stream.number) {
                // A packet may be sent twice (ISO/IEC 13818-1, 2.4.3.3).
                return;
            }
            // An error at this packet concerns the picture before it.
            if stream.errors == errors {
                let codes = &mut stream.codes;
                codes.frame_complete::<PictureMetrics>(stream.number, stream.last, recorder);
            }
        }
        let Some(code) = code else {
            if let Some(stream) = &mut self.stream {
                stream.pid = NO_PID;
            }
            return;
        };
        let stream = self.stream.get_or_insert_with(|| {
            Box::new(CodedStream {
                pid,
                last: at,
                errors,
                number: code.number,
                codes: TimeCodes::new(wall_clock),
            })
        });
        let codes = &mut stream.codes;
        codes.frame_code::<PictureMetrics>(code.number, code, recorder);
        (stream.pid, stream.last) = (pid, at);
        (stream.errors, stream.number) = (errors, code.number);
    }

    /// Handles the end of the stream: whether its last picture is complete is unknown.
    pub(super) fn finish(&mut self, recorder: &mut Recorder) {
        if let Some(stream) = &mut self.stream
            && std::mem::replace(&mut stream.pid, NO_PID) != NO_PID
        {
            let codes = &mut stream.codes;
            codes.frame_truncated::<PictureMetrics>(stream.number, recorder);
        }
    }
}
