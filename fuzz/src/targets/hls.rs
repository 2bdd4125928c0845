//! HLS: playlists, a player whose server answers anything, and a server that is asked anything.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use hls::client::Client;
use hls::config::{ClientConfig, LowLatency, VariantChoice};
use hls::playlist::{Origin, PARTS_MAX, Playlist, SEGMENTS_MAX, VARIANTS_MAX, Variables};
use hls::server::{Server, ServerConfig};
use kit::http1::Url;
use measure::{Recorder, Time};
use protocols::HLS_PROTOCOL;
use session::{
    ChannelId, CloseReason, Context, FlowId, Flows, Handover, Input as Event, Outbox, Output,
    Session, Sinks,
};

use crate::input::Input;

/// A multivariant playlist whose variable others import.
const VARIABLES: &str =
    "#EXTM3U\n#EXT-X-DEFINE:NAME=\"v\",VALUE=\"w\"\n#EXT-X-STREAM-INF:BANDWIDTH=1\na\n";

/// Reads a playlist. What is read is bounded, and playback begins within it.
pub(super) fn playlist(bytes: &[u8]) {
    let mut variables = Variables::default();
    if let Ok(Playlist::Multivariant(found)) = Playlist::parse(VARIABLES.as_bytes(), None) {
        variables = found.variables;
    }
    let origin = Origin {
        target: "/a.m3u8?token=b%2fc&n",
        variables: Some(&variables),
    };
    match Playlist::parse_at(bytes, None, origin) {
        Err(_) => {}
        Ok(Playlist::Multivariant(found)) => {
            assert!(found.variants.len() <= VARIANTS_MAX && found.audio.len() <= VARIANTS_MAX);
        }
        Ok(Playlist::Media(found)) => {
            assert!(found.segments.len() <= SEGMENTS_MAX);
            assert!(found.parts.len() <= PARTS_MAX);
            for in_parts in [false, true] {
                let stated = found.start_offset;
                let stated = stated.map(|start| found.distance_of(start, in_parts));
                for distance in [None, stated] {
                    let start = found.start(distance, in_parts);
                    assert!(found.media_sequence <= start.sequence && start <= found.end());
                    let ahead = found.duration_from(start, in_parts);
                    assert!(found.lead(distance, in_parts) <= ahead);
                }
            }
            // An update of it is bounded too.
            if let Ok(Playlist::Media(next)) = Playlist::parse_at(bytes, Some(&found), origin) {
                assert!(next.segments.len() <= SEGMENTS_MAX);
            }
            assert!(!found.target_duration.is_zero());
        }
    }
}

/// A player, its open connections, and its time.
struct Player {
    client: Client,
    recorder: Recorder,
    now: Time,
    open: Vec<ChannelId>,
    has_ended: bool,
}

impl Player {
    fn handle(&mut self, event: Event<'_>) {
        let mut out = VecDeque::new();
        let mut cx = Context {
            now: self.now,
            recorder: &mut self.recorder,
            sinks: &mut Sinks::default(),
            flows: &mut Flows::default(),
            out: &mut out,
            outbox: &mut Outbox::default(),
        };
        self.client.handle(&mut cx, event);
        let mut opened = Vec::new();
        for output in out {
            assert!(!self.has_ended, "{output:?} after the end");
            match output {
                Output::Open { channel, .. } => {
                    self.open.push(channel);
                    opened.push(channel);
                }
                Output::Close { channel } => {
                    assert!(self.open.contains(&channel));
                    self.open.retain(|open| *open != channel);
                }
                Output::Send { channel, .. } => assert!(self.open.contains(&channel)),
                Output::Ended(_) => self.has_ended = true,
                _ => {}
            }
        }
        assert!(self.open.len() <= 4);
        for channel in opened {
            if self.has_ended {
                return;
            }
            self.handle(Event::Opened {
                channel,
                local: ([10, 0, 0, 2], 40_000).into(),
                remote: None,
            });
        }
    }
}

/// Settings by the bits of a byte.
fn config(bits: u8) -> ClientConfig {
    ClientConfig {
        variant: match bits & 1 {
            0 => VariantChoice::Highest,
            _ => VariantChoice::Adaptive,
        },
        low_latency: match bits >> 1 & 3 {
            0 => LowLatency::None,
            1 => LowLatency::Parts,
            _ => LowLatency::Hints,
        },
        ..ClientConfig::default()
    }
}

/// Plays with a server that sends any bytes on any connection, closes it, or lets time pass.
pub(super) fn client(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let url = Url::parse("http://10.0.0.1/a/index.m3u8").expect("a URL");
    let config = Arc::new(config(input.byte()));
    let mut player = Player {
        client: Client::new(config, url, Some(Duration::from_secs(1_700_000_000))),
        recorder: Recorder::new(HLS_PROTOCOL.catalogue),
        now: Time::ZERO,
        open: Vec::new(),
        has_ended: false,
    };
    player.handle(Event::Start { due: Time::ZERO });
    while !input.is_empty() && !player.has_ended {
        let what = input.byte();
        let at = usize::from(what >> 2) % player.open.len().max(1);
        let channel = player.open.get(at).copied();
        match (what & 3, channel) {
            (0, Some(channel)) => {
                let bytes = input.piece();
                let at = player.now;
                player.handle(Event::Bytes {
                    channel,
                    bytes,
                    at,
                    runs: &[],
                });
            }
            (1, Some(channel)) => {
                player.open.retain(|open| *open != channel);
                let reason = CloseReason::End;
                player.handle(Event::Closed { channel, reason });
            }
            _ => {
                let due = player.client.deadline().expect("it waits for something");
                // No time passes while it does what is due, but it must not repeat it for ever.
                player.now = player.now.max(due);
                player.handle(Event::Deadline);
                let next = player.client.deadline();
                assert!(next.is_none_or(|next| next > player.now));
            }
        }
    }
    if !player.has_ended {
        player.handle(Event::Stop { until: player.now });
    }
    assert!(player.has_ended && player.client.deadline().is_none());
}

/// A server with parts, which ends after a minute.
static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let config = ServerConfig {
        bitrate: 100_000,
        part: Some(Duration::from_millis(500)),
        length: Some(Duration::from_secs(60)),
        ..ServerConfig::default()
    };
    Server::new(config).expect("it is valid")
});

/// Asks a server anything on a connection, with any pauses: it answers or ends, and keeps little.
pub(super) fn server(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut session = SERVER.session(1);
    let mut recorder = Recorder::new(SERVER.catalogue());
    let (mut flows, mut running): (Flows, Vec<FlowId>) = (Flows::default(), Vec::new());
    let (mut now, mut has_ended) = (Time::ZERO, false);
    let mut handle = |event: Event<'_>, now: Time, flows: &mut Flows, running: &mut Vec<FlowId>| {
        let mut out = VecDeque::new();
        let mut cx = Context {
            now,
            recorder: &mut recorder,
            sinks: &mut Sinks::default(),
            flows,
            out: &mut out,
            outbox: &mut Outbox::default(),
        };
        session.handle(&mut cx, event);
        for output in out {
            assert!(!has_ended, "{output:?} after the end");
            match output {
                Output::StartFlow { flow, .. } => running.push(flow),
                Output::StopFlow { flow } => running.retain(|own| *own != flow),
                Output::Ended(_) => has_ended = true,
                _ => {}
            }
        }
        assert!(running.len() <= 1);
        (session.deadline(), has_ended)
    };
    let channel = ChannelId(0);
    let (mut deadline, _) = handle(Event::Start { due: now }, now, &mut flows, &mut running);
    let mut is_over = false;
    while !input.is_empty() && !is_over {
        let event = match input.byte() & 3 {
            0 | 1 => Event::Bytes {
                channel,
                bytes: input.piece(),
                at: now,
                runs: &[],
            },
            2 => match running.pop() {
                Some(flow) => {
                    flows.access(flow, |own| {
                        while let Some(packet) = own.next_packet(now) {
                            own.packet_sent(packet.tag, Some(Handover::at(now)));
                        }
                    });
                    Event::FlowEnded { flow }
                }
                None => continue,
            },
            _ => match deadline {
                Some(due) => {
                    now = now.max(due);
                    Event::Deadline
                }
                None => continue,
            },
        };
        (deadline, is_over) = handle(event, now, &mut flows, &mut running);
    }
    if !is_over {
        let reason = CloseReason::End;
        let closed = Event::Closed { channel, reason };
        (deadline, is_over) = handle(closed, now, &mut flows, &mut running);
    }
    assert!(is_over && deadline.is_none());
}
