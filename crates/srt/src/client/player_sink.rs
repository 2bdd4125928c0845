//! Media sink of a client that plays: the worker delivers each data packet to it, and the session
//! reads it when it acknowledges packets.

use std::time::Duration;

use measure::{Recorder, Time};

use super::media_receiver::MediaReceiver;
use crate::codec::packet::{DataHeader, PAYLOAD_MAX, Packet};
use crate::metrics as m;
use kit::metrics as clients;
use session::{Arrival, CaptureNeeds, MediaEvent, MediaFilter, Sink};

/// Data packets have a first bit of 0 (draft-sharabayko-srt-01, section 3).
pub(super) const MARK: MediaFilter = MediaFilter {
    first_byte: [0x00, 0x7f],
    excluded_second_byte: None,
};

/// Payloads are checked, so whole datagrams are needed. Feedback is due within 1 ms, because libsrt
/// sends it within 0.1 ms.
pub(crate) const NEEDS: CaptureNeeds = CaptureNeeds {
    delay_max: Some(Duration::from_millis(1)),
    ..CaptureNeeds::ALL
};

/// Maximum number of packets kept before the session knows that the connection is established: a
/// packet ring may deliver them earlier than a socket delivers the end of the handshake. At 20 Mb/s
/// this is a quarter of a second.
const EARLY_MAX: usize = 512;

/// Media sink of a client.
#[derive(Debug)]
pub(super) struct PlayerSink {
    socket_id: u32,
    /// `Some` once the connection is established.
    pub(super) receiver: Option<MediaReceiver>,
    /// Packets that arrived earlier, in order.
    early: Vec<(Time, Box<[u8]>)>,
    /// Arrival time of the last packet for this socket.
    pub(super) last_arrival_at: Time,
    /// Number of consecutive malformed packets.
    pub(super) malformed: u32,
}

impl Sink for PlayerSink {
    fn packet(&mut self, arrival: &Arrival<'_>, recorder: &mut Recorder) -> Option<MediaEvent> {
        // A truncated packet cannot be checked.
        let whole = arrival.bytes.len() == arrival.length;
        let bytes = arrival.bytes.get(..arrival.length).filter(|_| whole);
        if self.receiver.is_some() {
            let was_due = self.feedback_is_due();
            self.handle_datagram(bytes.unwrap_or_default(), arrival.at, recorder);
            let is_new = self.feedback_is_due() && !was_due;
            return is_new.then_some(MediaEvent::FeedbackDue { at: arrival.at });
        } else if self.early.len() < EARLY_MAX {
            let bytes = bytes.unwrap_or_default();
            self.early.push((arrival.at, bytes.into()));
        } else {
            recorder.add(clients::LOST_IN_TESTER, 1);
        }
        None
    }
}

impl PlayerSink {
    /// Creates the sink of a client with that socket id, whose connection is not established yet.
    pub(super) fn new(socket_id: u32) -> PlayerSink {
        PlayerSink {
            socket_id,
            receiver: None,
            early: Vec::new(),
            last_arrival_at: Time::ZERO,
            malformed: 0,
        }
    }

    fn feedback_is_due(&self) -> bool {
        self.receiver
            .as_ref()
            .is_some_and(MediaReceiver::feedback_is_due)
    }

    /// Starts to receive on the established connection, beginning with the packets that arrived
    /// too early.
    pub(super) fn begin(&mut self, receiver: MediaReceiver, recorder: &mut Recorder) {
        self.receiver = Some(receiver);
        for (at, bytes) in std::mem::take(&mut self.early) {
            self.handle_datagram(&bytes, at, recorder);
        }
    }

    /// Handles a data packet for this socket.
    pub(super) fn data(
        &mut self,
        header: &DataHeader,
        payload: &[u8],
        at: Time,
        recorder: &mut Recorder,
    ) {
        self.last_arrival_at = at;
        if let Some(receiver) = &mut self.receiver {
            receiver.data(header, payload, at, recorder);
        }
    }

    /// Handles a datagram that looks like a data packet. Hot path.
    fn handle_datagram(&mut self, bytes: &[u8], at: Time, recorder: &mut Recorder) {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::handshake::Flags;
    use crate::codec::packet::{KeyFlag, Position};
    use crate::handshake::{Negotiated, Security};
    use crate::metrics::SRT;
    use crate::seq::{SeqNumber, SocketClock};
    use kit::media::ts::metrics::TS;
    use kit::metrics::{CLIENTS, ZAPPING};
    use kit::viewer::VIEWERS;

    const OWN: u32 = 7;
    const CATALOGUE: measure::Catalogue =
        measure::Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &TS, &SRT]);

    fn recorder() -> Recorder {
        Recorder::new(CATALOGUE)
    }

    fn at(millis: u64) -> Time {
        Time::from_nanos(1_000_000_000 + millis * 1_000_000)
    }

    /// Packet with seven null packets of a transport stream, for that socket.
    fn packet(sequence: u32, destination: u32) -> Vec<u8> {
        let header = DataHeader {
            sequence: SeqNumber::new(sequence),
            position: Position::Solo,
            in_order: false,
            key: KeyFlag::None,
            retransmitted: false,
            message: sequence + 1,
            timestamp: sequence * 1000,
            destination,
        };
        let mut bytes = header.write().to_vec();
        for _ in 0..7 {
            bytes.extend([0x47, 0x1f, 0xff, 0x10]);
            bytes.extend([0xff; 184]);
        }
        bytes
    }

    fn arrive(player: &mut PlayerSink, recorder: &mut Recorder, bytes: &[u8], millis: u64) {
        let arrival = Arrival {
            at: at(millis),
            bytes,
            length: bytes.len(),
            overhead: 28,
        };
        assert_eq!(player.packet(&arrival, recorder), None);
    }

    fn playing() -> MediaReceiver {
        let negotiated = Negotiated {
            peer_socket_id: 9,
            initial_sequence: SeqNumber::new(0),
            peer_initial_sequence: SeqNumber::new(0),
            receive_latency: Duration::from_secs(5),
            send_latency: Duration::ZERO,
            tsbpd_receiving: true,
            tsbpd_sending: false,
            mtu: 1500,
            flow_window: 8192,
            stream_id: None,
            flags: Flags(0),
            version: 0x1_0501,
            reference: at(0),
            timestamp: 0,
            security: Security::Clear,
            encryptor: None,
            decryptor: None,
        };
        MediaReceiver::new(
            negotiated,
            SocketClock::new(at(0)),
            at(0),
            None,
            Duration::ZERO,
            false,
        )
    }

    #[test]
    fn early_packets_count_once_connected() {
        let (mut player, mut recorder) = (PlayerSink::new(OWN), recorder());
        for sequence in 0..EARLY_MAX as u32 + 3 {
            let bytes = packet(sequence, OWN);
            arrive(&mut player, &mut recorder, &bytes, sequence.into());
        }
        assert_eq!(recorder.counter(clients::LOST_IN_TESTER), 3);
        player.begin(playing(), &mut recorder);
        let receiver = player.receiver.as_mut().expect("it has begun");
        receiver.settle(at(600), &mut recorder);
        assert_eq!(receiver.media_times().map(|times| times.first), Some(at(0)));
        assert_eq!(recorder.counter(m::PKT_RECV_UNIQUE), EARLY_MAX as u64);
        // Later packets are not kept.
        arrive(&mut player, &mut recorder, &packet(515, OWN), 600);
        assert_eq!(player.last_arrival_at, at(600));
        assert!(player.early.is_empty());
    }

    #[test]
    fn gap_is_reported_once_until_it_is_requested() {
        let (mut player, mut recorder) = (PlayerSink::new(OWN), recorder());
        player.begin(playing(), &mut recorder);
        let mut event = |player: &mut PlayerSink, sequence: u32, millis| {
            let bytes = packet(sequence, OWN);
            let arrival = Arrival {
                at: at(millis),
                bytes: &bytes,
                length: bytes.len(),
                overhead: 28,
            };
            player.packet(&arrival, &mut recorder)
        };
        assert_eq!(event(&mut player, 0, 1), None);
        let due = Some(MediaEvent::FeedbackDue { at: at(2) });
        assert_eq!(event(&mut player, 2, 2), due);
        assert_eq!(event(&mut player, 4, 3), None, "the session has not looked");
        let mut sent = 0;
        let receiver = player.receiver.as_mut().expect("it has begun");
        receiver.write(at(4), |write| {
            let mut out = Vec::new();
            write(&mut out);
            sent += usize::from(!out.is_empty());
        });
        assert!(sent > 0 && receiver.periodic_nak_at() < Time::NEVER);
        assert_eq!(event(&mut player, 5, 5), None);
        let due = Some(MediaEvent::FeedbackDue { at: at(6) });
        assert_eq!(event(&mut player, 7, 6), due);
    }

    #[test]
    fn truncated_and_foreign_packets_are_malformed() {
        let (mut player, mut recorder) = (PlayerSink::new(OWN), recorder());
        player.begin(playing(), &mut recorder);
        let good = packet(0, OWN);
        let cut = Arrival {
            at: at(1),
            bytes: &good[..100],
            length: good.len(),
            overhead: 28,
        };
        player.packet(&cut, &mut recorder);
        for wrong in [&good[..10], &packet(0, OWN + 1), &[]] {
            arrive(&mut player, &mut recorder, wrong, 2);
        }
        assert_eq!((player.malformed, player.last_arrival_at), (4, Time::ZERO));
        assert_eq!(recorder.counter(m::PKT_MALFORMED), 4);
        arrive(&mut player, &mut recorder, &good, 3);
        assert_eq!((player.malformed, player.last_arrival_at), (0, at(3)));
    }
}
