//! Sender of a voice: all packets while it talks, and few while it is silent (DTX).

use std::sync::Arc;
use std::time::Duration;

use crate::mediagen::clip::Clip;
use bytes::Bytes;
use measure::Time;

use super::encoder_flow::{make_tag, tag_length, tag_number};
use super::flow::ticks;
use super::header::Header;
use super::report::ReportedSource;
use super::served_stream::DepartureCounter;
use crate::media::talk::{Turn, TurnSchedule};
use session::{Flow, FlowPacket, Handover, PacketHeader, Tag};

/// Number of frames between two packets of silence: 400 ms, as in libopus.
const DTX_FRAMES: u64 = 20;

/// Audio level of silence (RFC 6464, 3).
const SILENCE_LEVEL: u8 = 127;

/// Flag in the byte of an audio level: the packet contains voice (RFC 6464, 3).
pub const VOICE_FLAG: u8 = 0x80;

/// Settings of a [`TalkFlow`].
#[derive(Debug)]
pub struct TalkSettings {
    /// Media to send while the voice talks: each packet is a frame.
    pub clip: Arc<Clip>,
    /// Payload of a packet of silence.
    pub dtx_payload: Bytes,
    /// Schedule of the turns.
    pub talk: TurnSchedule,
    pub ssrc: u32,
    /// Sequence number of the first packet.
    pub first_seq: u16,
    /// RTP timestamp of the first frame.
    pub first_timestamp: u32,
}

/// A frame to be sent.
#[derive(Clone, Copy, Debug, Default)]
struct PlannedFrame {
    /// Frame number: all frames count, sent or not.
    frame: u64,
    /// Turn to which the frame belongs; `None` for silence.
    turn: Option<Turn>,
    /// True for the first frame of a turn (RFC 7587, 4.2).
    begins: bool,
}

/// Sends a voice.
#[derive(Debug)]
pub struct TalkFlow {
    settings: TalkSettings,
    began: Option<Time>,
    stopped: bool,
    next: PlannedFrame,
    packets: u64,
    /// Number of packets with voice that left.
    voiced: u64,
    /// Audio level of the packet that was handed out last.
    level: u8,
    tally: DepartureCounter,
}

impl TalkFlow {
    pub fn new(settings: TalkSettings) -> TalkFlow {
        TalkFlow {
            settings,
            began: None,
            stopped: false,
            next: PlannedFrame::default(),
            packets: 0,
            voiced: 0,
            level: SILENCE_LEVEL,
            tally: DepartureCounter::default(),
        }
    }

    /// Starts at `at`, even in the middle of a turn.
    pub fn start(&mut self, at: Time) {
        self.began = Some(at);
        self.next = self.plan(at, 0, 0);
    }

    /// Stops sending.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Audio level of the packet that was handed out last, as in its header extension (RFC 6464,
    /// 3).
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Number of packets that left, and their payload bytes.
    pub fn sent(&self) -> (u64, u64) {
        self.tally.sent_with_copies()
    }

    /// Number of packets with voice that left.
    pub fn voiced(&self) -> u64 {
        self.voiced
    }

    /// Number of due packets so far that the network stack did not accept.
    pub fn rejected(&self) -> u64 {
        self.tally.not_taken
    }

    /// Returns a report on the packets that left so far; see [`super::RtpFlow::report`].
    pub fn report(&self, now: Time, wall_clock: Duration, name: &str, goodbye: bool) -> Vec<u8> {
        let played = now.since(self.began.unwrap_or(now));
        let ticks = ticks(played, self.settings.clip.clock_rate());
        let about = ReportedSource {
            ssrc: self.settings.ssrc,
            timestamp: self.settings.first_timestamp.wrapping_add(ticks),
            sent: self.sent(),
        };
        about.report(wall_clock + now.since_start(), name, goodbye)
    }

    fn due(&self, began: Time, frame: u64) -> Time {
        began + Duration::from_nanos(self.settings.clip.nanos(frame))
    }

    /// Returns the next frame to send, at `frame` or later: silence at `quiet` unless a turn begins
    /// by then.
    fn plan(&mut self, began: Time, frame: u64, quiet: u64) -> PlannedFrame {
        let silence = PlannedFrame {
            frame: quiet,
            ..PlannedFrame::default()
        };
        let now = self.due(began, frame).since_start();
        let ahead = self.due(began, quiet + 1).since_start() - now;
        let Some(turn) = self.settings.talk.turn(now, ahead) else {
            return silence;
        };
        let wait = turn.start.saturating_sub(began.since_start()).as_nanos();
        // The first frame that is not before the turn. A frame lasts exactly 20 ms.
        let length = u128::from(self.settings.clip.nanos(1));
        let first = u64::try_from(wait.div_ceil(length)).unwrap_or(u64::MAX);
        if first > quiet {
            return silence;
        }
        PlannedFrame {
            frame: first.max(frame),
            turn: Some(turn),
            begins: true,
        }
    }

    /// Returns the frame that follows a planned one.
    fn plan_after(&mut self, began: Time, last: PlannedFrame) -> PlannedFrame {
        let frame = last.frame + 1;
        match last.turn {
            Some(turn) if self.due(began, frame).since_start() < turn.end => PlannedFrame {
                frame,
                begins: false,
                ..last
            },
            // The silence is announced immediately.
            Some(_) => PlannedFrame {
                // Another turn may follow directly.
                begins: false,
                ..self.plan(began, frame, frame)
            },
            None => self.plan(began, frame, last.frame + DTX_FRAMES),
        }
    }
}

impl Flow for TalkFlow {
    fn next_due(&self) -> Option<Time> {
        let began = self.began.filter(|_| !self.stopped)?;
        Some(self.due(began, self.next.frame))
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        let due = self.next_due().filter(|due| *due <= now)?;
        let (began, planned) = (self.began?, self.next);
        self.next = self.plan_after(began, planned);
        let own = &self.settings;
        let timestamp = own
            .first_timestamp
            .wrapping_add(own.clip.ticks(planned.frame));
        let seq = own.first_seq.wrapping_add(self.packets as u16);
        let mut header = Header::new(own.clip.payload_type(), seq, timestamp, own.ssrc);
        header.marker = planned.begins;
        let payload = match planned.turn {
            Some(turn) => {
                self.level = VOICE_FLAG | turn.level(planned.frame);
                let packets = &own.clip.packets;
                packets[(planned.frame % packets.len() as u64) as usize]
                    .payload
                    .clone()
            }
            None => {
                self.level = SILENCE_LEVEL;
                own.dtx_payload.clone()
            }
        };
        let tag = make_tag(self.packets, payload.len());
        self.packets += 1;
        Some(FlowPacket {
            due,
            header: PacketHeader::EMPTY.append(&header.to_bytes()),
            payload,
            tag,
        })
    }

    fn packet_sent(&mut self, tag: Tag, left: Option<Handover>) {
        let length = tag_length(tag);
        let voice = length > self.settings.dtx_payload.len() as u64;
        self.voiced += u64::from(voice && left.is_some());
        self.tally.count_departure(tag_number(tag), left, length);
    }

    fn needs_send_times(&self) -> bool {
        !self.tally.has_sent()
    }
}

#[cfg(test)]
mod tests {
    use measure::units::TimeSpan;

    use super::*;
    use crate::media::talk::{Member, TalkConfig};

    fn flows(speakers: f64, of: u64) -> Vec<TalkFlow> {
        let config = TalkConfig {
            speakers,
            turn: TimeSpan(Duration::from_secs(2)),
        };
        let flow = |index| {
            let member = Member {
                seed: 3,
                index,
                group_size: of,
            };
            TalkFlow::new(TalkSettings {
                clip: Arc::new(Clip::opus()),
                dtx_payload: Clip::opus_quiet(),
                talk: TurnSchedule::new(config, member),
                ssrc: index as u32,
                first_seq: 65_530,
                first_timestamp: u32::MAX - 500,
            })
        };
        (0..of).map(flow).collect()
    }

    #[test]
    fn silence_sends_one_packet_every_400_ms() {
        let began = Time::from_nanos(700_000_001);
        let end = began + Duration::from_secs(120);
        let mut talked = 0;
        for flow in &mut flows(0.8, 3) {
            flow.start(began);
            let (mut last, mut number): (Option<(Time, bool)>, u16) = (None, 65_530);
            while let Some(due) = flow.next_due().filter(|due| *due < end) {
                let packet = flow.next_packet(due).expect("it is due");
                let header = Header::parse(&packet.header, 12).expect("a header");
                assert_eq!(header.sequence, number);
                number = number.wrapping_add(1);
                // The timestamp advances with time, whatever is sent.
                let frame = due.since(began).as_nanos() / 20_000_000;
                let ticks = header.timestamp.wrapping_sub(u32::MAX - 500);
                assert_eq!(u128::from(ticks), frame * 960);
                let voice = flow.level() & VOICE_FLAG != 0;
                assert_eq!(packet.payload.len(), if voice { 80 } else { 3 });
                assert_eq!(voice, flow.level() != SILENCE_LEVEL);
                let gap = last.map(|(at, _)| due.since(at).as_millis());
                match (last, voice) {
                    (Some((_, false)), true) => assert!(header.marker && gap <= Some(400)),
                    (None, true) => assert!(header.marker),
                    (Some((_, true)), _) => assert!(gap == Some(20) && !header.marker),
                    (Some((_, false)), false) => assert!(gap == Some(400) && !header.marker),
                    (None, false) => assert!(!header.marker),
                }
                last = Some((due, voice));
                talked += u64::from(voice);
            }
        }
        // Together they talk most of the time.
        let mean = talked as f64 * 0.02 / 120.0;
        assert!((0.5..1.1).contains(&mean), "{mean}");
    }

    #[test]
    fn packets_that_left_are_counted_and_reported() {
        let mut flow = flows(1.0, 1).remove(0);
        flow.start(Time::ZERO);
        let packet = flow.next_packet(Time::ZERO).expect("it talks at once");
        let at = Time::from_nanos(5);
        let left = Handover {
            began: at,
            ended: at,
        };
        flow.packet_sent(packet.tag, Some(left));
        let packet = flow
            .next_packet(Time::from_nanos(20_000_000))
            .expect("the next");
        flow.packet_sent(packet.tag, None);
        assert_eq!((flow.sent(), flow.rejected()), ((1, 80), 1));
        assert_eq!(flow.voiced(), 1);
        let report = flow.report(Time::from_nanos(1_000_000_000), Duration::ZERO, "a", false);
        // One second after the first timestamp.
        assert_eq!(
            report[16..20],
            (u32::MAX - 500).wrapping_add(48_000).to_be_bytes()
        );
        flow.stop();
        assert_eq!(flow.next_due(), None);
    }
}
