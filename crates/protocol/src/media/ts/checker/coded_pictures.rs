//! Time codes of pictures: their end-to-end delay, and pictures that did not arrive completely.

use std::time::Duration;

use measure::{Recorder, Time};

use crate::media::shared::{TimeCodes, time_code_metrics};
use crate::media::ts::metrics as m;
use mediagen::time_code::TimeCode;

/// PID that no packet has.
const NO_PID: u16 = u16::MAX;

/// Metrics of pictures in transport streams.
struct PictureMetrics;

time_code_metrics!(PictureMetrics);

/// Pictures of a stream that have time codes.
#[derive(Debug)]
pub(super) struct CodedPictures {
    /// PID of the picture that is arriving, if it has a code.
    pid: u16,
    /// Arrival of its last packet so far.
    last: Time,
    /// Continuity errors of its PID when it began.
    errors: u64,
    /// Number in the time code of that picture.
    number: u32,
    /// Present from the first code on.
    codes: Option<Box<TimeCodes>>,
}

impl Default for CodedPictures {
    fn default() -> CodedPictures {
        CodedPictures {
            pid: NO_PID,
            last: Time::ZERO,
            errors: 0,
            number: 0,
            codes: None,
        }
    }
}

impl CodedPictures {
    /// Handles a packet within a unit.
    #[inline]
    pub(super) fn packet(&mut self, pid: u16, at: Time) {
        if pid == self.pid {
            self.last = at;
        }
    }

    /// Handles the first packet of a picture, with its payload. `errors` is the number of
    /// continuity errors of its PID so far, `wall_clock` the wall clock at the start of the run.
    pub(super) fn begin(
        &mut self,
        (pid, at): (u16, Time),
        payload: &[u8],
        errors: u64,
        wall_clock: Duration,
        recorder: &mut Recorder,
    ) {
        let code = TimeCode::find_in_stream(payload);
        if self.pid == pid {
            if code.is_some_and(|code| code.number == self.number) {
                // A packet may be sent twice (ISO/IEC 13818-1, 2.4.3.3).
                return;
            }
            // An error at this packet concerns the picture before it.
            if self.errors == errors {
                self.complete(recorder);
            }
        }
        self.pid = NO_PID;
        let Some(code) = code else {
            return;
        };
        let new = || Box::new(TimeCodes::new(wall_clock));
        let codes = self.codes.get_or_insert_with(new);
        codes.frame_code::<PictureMetrics>(code.number, code, recorder);
        (self.pid, self.last) = (pid, at);
        (self.errors, self.number) = (errors, code.number);
    }

    fn complete(&mut self, recorder: &mut Recorder) {
        if let Some(codes) = &mut self.codes {
            codes.frame_complete::<PictureMetrics>(self.number, self.last, recorder);
        }
    }

    /// Handles the end of the stream: whether its last picture is complete is unknown.
    pub(super) fn finish(&mut self, recorder: &mut Recorder) {
        if let Some(codes) = &mut self.codes
            && std::mem::replace(&mut self.pid, NO_PID) != NO_PID
        {
            codes.frame_truncated::<PictureMetrics>(self.number, recorder);
        }
    }
}
