//! What counts the media of a client that plays: the worker hands it each data packet, and its
//! session looks at it when it acknowledges.

use measure::{Recorder, Time};

use super::playing::Playing;
use crate::session::{Arrival, MediaEvent, MediaMark, Needs, Sink};
use crate::srt::codec::packet::{DataHeader, PAYLOAD_MAX, Packet};
use crate::srt::metrics as m;

/// Data packets have a first bit of 0 (draft-sharabayko-srt-01, section 3).
pub(super) const MARK: MediaMark = MediaMark {
    first: [0x00, 0x7f],
    but_second: None,
};

/// Payloads are checked, so all of each datagram is read.
pub(in crate::srt) const NEEDS: Needs = Needs::ALL;

/// How many packets are kept that come before the session has heard that the connection stands: a
/// packet ring may bring them sooner than a socket brings the end of the handshake. At 20 Mb/s it
/// is a quarter of a second.
const EARLY_MAX: usize = 512;

/// The media of a client.
#[derive(Debug)]
pub(super) struct Player {
    socket_id: u32,
    /// Once the connection stands.
    playing: Option<Playing>,
    /// What came before, in its order.
    early: Vec<(Time, Box<[u8]>)>,
    /// When something came last that was for this socket.
    heard: Time,
    /// Malformed packets in a row.
    malformed: u32,
}

impl Sink for Player {
    fn packet(&mut self, arrival: &Arrival<'_>, recorder: &mut Recorder) -> Option<MediaEvent> {
        // What was cut short cannot be checked.
        let whole = arrival.bytes.len() == arrival.length;
        let bytes = arrival.bytes.get(..arrival.length).filter(|_| whole);
        if self.playing.is_some() {
            self.take(bytes.unwrap_or_default(), arrival.at, recorder);
        } else if let Some(bytes) = bytes
            && self.early.len() < EARLY_MAX
        {
            self.early.push((arrival.at, bytes.into()));
        }
        None
    }
}

impl Player {
    /// Of a client with that socket id, whose connection does not stand yet.
    pub(super) fn new(socket_id: u32) -> Player {
        Player {
            socket_id,
            playing: None,
            early: Vec::new(),
            heard: Time::ZERO,
            malformed: 0,
        }
    }

    /// The connection stands: takes in what came too early.
    pub(super) fn begin(&mut self, playing: Playing, recorder: &mut Recorder) {
        self.playing = Some(playing);
        for (at, bytes) in std::mem::take(&mut self.early) {
            self.take(&bytes, at, recorder);
        }
    }

    /// Takes a data packet in that is for this socket.
    pub(super) fn data(
        &mut self,
        header: &DataHeader,
        payload: &[u8],
        at: Time,
        recorder: &mut Recorder,
    ) {
        self.heard = at;
        if let Some(playing) = &mut self.playing {
            playing.data(header, payload, at, recorder);
        }
    }

    /// Takes in what looks like a data packet. The hot path.
    fn take(&mut self, bytes: &[u8], at: Time, recorder: &mut Recorder) {
        match Packet::parse(bytes) {
            Ok(Packet::Data(header, payload))
                if header.destination == self.socket_id && payload.len() <= PAYLOAD_MAX =>
            {
                self.malformed = 0;
                self.data(&header, payload, at, recorder);
            }
            _ => {
                recorder.add(m::PKT_MALFORMED, 1);
                self.malformed += 1;
            }
        }
    }

    /// What is received, once the connection stands.
    pub(super) fn playing(&mut self) -> Option<&mut Playing> {
        self.playing.as_mut()
    }

    /// When something came last.
    pub(super) fn heard(&self) -> Time {
        self.heard
    }

    /// How many packets in a row were malformed.
    pub(super) fn malformed(&self) -> u32 {
        self.malformed
    }
}
