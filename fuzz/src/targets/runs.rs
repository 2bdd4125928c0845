//! Input from other machines, the kernel and old runs: a remote receiver and its clients,
//! exporters, netlink, run files.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kit::remote_receiver::messages::{
    ClientMessage, LINE_MAX, LineSplitter, ReceiverMessage, to_line,
};
use kit::remote_receiver::{Receiver, Secret, Terms, proof};
use measure::{Catalogue, Recorder, Time, Verdict, VerdictInput};
use protocols::PROTOCOLS;
use runfile::{
    ClientOutcome, ClientRow, EventRow, Header, Machine, Reader, RunFile, SubjectHeader, WindowRow,
};
use session::{ChannelId, Context, Flows, Input as Event, Output, Session, Sinks};

use crate::input::{Input, text};

/// Lines between a client and its remote receiver: pieces give the same result as the whole, and a
/// parsed message is written unchanged.
pub(super) fn apart_lines(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let length_max = usize::from(input.byte()) * 8;
    let cuts = input.cuts();
    let stream = input.rest();
    let read = |pieces: &[&[u8]]| {
        let (mut lines, mut found) = (LineSplitter::default(), Vec::new());
        for piece in pieces {
            if lines
                .feed(piece, length_max, |line| found.push(line.to_vec()))
                .is_err()
            {
                return (found, false);
            }
        }
        (found, true)
    };
    let (whole, fine) = read(&[stream]);
    let (in_pieces, in_pieces_fine) = read(&cuts.pieces(stream));
    assert_eq!(fine, in_pieces_fine);
    assert_eq!(whole, in_pieces);
    for found in whole {
        assert!(found.len() <= length_max);
        if let Ok(message) = serde_json::from_slice::<ClientMessage>(&found) {
            let again = serde_json::from_slice::<ClientMessage>(&to_line(&message));
            assert_eq!(again.expect("as written"), message);
        }
        if let Ok(message) = serde_json::from_slice::<ReceiverMessage>(&found) {
            let again = serde_json::from_slice::<ReceiverMessage>(&to_line(&message));
            assert_eq!(again.expect("as written"), message);
        }
    }
}

/// The session of a remote receiver, whose client may or may not know the secret: at most the
/// permitted number of streams are open, and all of them are released at the end.
pub(super) fn apart_session(bytes: &[u8]) {
    const STREAMS: usize = 3;
    let mut input = Input::new(bytes);
    let knows = input.byte() & 1 != 0;
    let cuts = input.cuts();
    let secret = Secret::new("known to both");
    let terms = Arc::new(Terms::new(secret.clone(), [1; 32], STREAMS));
    let mut session = Receiver::new(terms.clone(), 7);
    let protocol = PROTOCOLS.iter().find(|known| known.name == "rtsp");
    let mut recorder = Recorder::new(protocol.expect("the protocol is registered").catalogue);
    let (mut sinks, mut flows, mut out) = (Sinks::default(), Flows::default(), VecDeque::new());
    let mut now = Time::from_start(Duration::from_secs(1));
    let mut ended = false;
    let mut handle = |event: Event<'_>, now: Time, ended: &mut bool| {
        let mut events = VecDeque::new();
        let mut cx = Context {
            now,
            recorder: &mut recorder,
            sinks: &mut sinks,
            flows: &mut flows,
            out: &mut out,
            outbox: &mut session::Outbox::default(),
        };
        session.handle(&mut cx, event);
        while let Some(output) = out.pop_front() {
            assert!(!*ended, "{output:?} after the end");
            match output {
                Output::Open { channel, .. } => events.push_back(channel),
                Output::Ended(_) => *ended = true,
                _ => {}
            }
        }
        assert!(terms.streams() <= STREAMS);
        events
    };
    handle(Event::Start { due: now }, now, &mut ended);
    let local = "10.0.0.3:8561".parse().expect("an address");
    let opened = |channel: ChannelId| Event::Opened {
        channel,
        local,
        remote: None,
    };
    handle(opened(ChannelId(0)), now, &mut ended);
    let mut stream = Vec::new();
    if knows {
        let proof = proof(&secret, &terms.challenge(7));
        stream = to_line(&ClientMessage::Proof { proof });
    }
    stream.extend_from_slice(input.rest());
    for piece in cuts.pieces(&stream) {
        now += Duration::from_millis(1);
        let bytes = Event::Bytes {
            channel: ChannelId(0),
            bytes: piece,
            at: now,
            runs: &[],
        };
        let mut open = handle(bytes, now, &mut ended);
        while let Some(channel) = open.pop_front() {
            if !ended {
                handle(opened(channel), now, &mut ended);
            }
        }
        if ended {
            break;
        }
    }
    assert!(stream.len() <= LINE_MAX * 2 || ended);
    let until = now;
    if !ended {
        handle(Event::Stop { until }, now, &mut ended);
    }
    assert!(ended);
    assert_eq!((terms.streams(), terms.unproven()), (0, 0));
}

/// Parses the response of an exporter.
pub(super) fn exporter_text(bytes: &[u8]) {
    sut::read_any_samples(&text(bytes));
}

/// Parses the kernel's response to a request.
pub(super) fn netlink(bytes: &[u8]) {
    net::namespace::read_any(bytes);
}

/// A distribution in a run file: what was read can be written and reads back unchanged.
pub(super) fn blob(bytes: &[u8]) {
    if let Some(sparse) = runfile::blob::decode(bytes) {
        let written = runfile::blob::encode(&sparse);
        assert!(written.len() <= bytes.len());
        assert_eq!(runfile::blob::decode(&written).as_ref(), Some(&sparse));
        let _ = (sparse.count(), sparse.mean());
        let mut last = 0;
        for quantile in [0.0, 0.5, 0.99, 1.0] {
            let value = sparse.quantile(quantile).unwrap_or(0);
            assert!(value >= last, "quantiles grow");
            last = value;
        }
        let mut twice = sparse.clone();
        twice.merge(&sparse);
        assert_eq!(twice.count(), 2 * sparse.count());
    }
}

fn catalogue(kind: &str) -> Option<Catalogue> {
    match kind {
        "tester" => Some(measure::TESTER_CATALOGUE),
        "server" => Some(measure::SERVER_CATALOGUE),
        _ => {
            let found = PROTOCOLS.iter().find(|known| known.name == kind)?;
            Some(found.catalogue)
        }
    }
}

/// Returns the path of the run file that is read, in memory if possible.
fn run_file_path() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() {
            memory
        } else {
            std::env::temp_dir()
        };
        folder.join(format!("streamgauge-fuzz-{}.run", std::process::id()))
    })
}

/// Returns a small run file as it is written.
fn base() -> &'static [u8] {
    static BASE: OnceLock<Vec<u8>> = OnceLock::new();
    BASE.get_or_init(|| {
        let path = run_file_path();
        let subjects = [("viewers", "rtsp"), ("tester", "tester")];
        let header = Header {
            version: "1.2.3".to_owned(),
            scenario: serde_json::json!({"name": "a test", "clients": {"viewers": {"urls": ["rtsp://h/a"]}}}),
            machine: Machine::default(),
            seed: 1,
            started_at: Duration::from_secs(1_700_000_000),
            warm_up: Duration::from_secs(1),
            starts_in_warm_up: false,
            window: Duration::from_secs(1),
            subjects: subjects
                .map(|(name, kind)| SubjectHeader {
                    name: name.to_owned(),
                    kind: kind.to_owned(),
                    catalogue: catalogue(kind).expect("the subject's kind is known"),
                })
                .into(),
        };
        let file = RunFile::create_over(path, &header).expect("the folder can be written");
        for index in 0..2 {
            let windows = subjects.map(|(name, kind)| {
                let mut recorder = Recorder::new(catalogue(kind).expect("its kind is known"));
                recorder.record(measure::HistogramId(0), 1000);
                (name.to_owned(), recorder.take_window())
            });
            file.window(WindowRow {
                index,
                start: Time::from_nanos(index * 1_000_000_000),
                seconds: 1.0,
                subjects: BTreeMap::from(windows),
            });
        }
        file.event(EventRow {
            time: Time::from_nanos(5),
            kind: "note".to_owned(),
            subject: None,
            text: "something".to_owned(),
        });
        file.client(ClientRow {
            id: 1,
            subject: "viewers".to_owned(),
            url: "rtsp://h/a".to_owned(),
            outcome: Some(ClientOutcome::Failed),
            reason: Some("refused".to_owned()),
            ..ClientRow::default()
        });
        file.verdict(&Verdict::decide(&[], VerdictInput::default()), &[]);
        file.finish().expect("the folder can be written");
        let bytes = std::fs::read(path).expect("it was just written");
        let _ = std::fs::remove_file(path);
        bytes
    })
}

/// Reads a run file with changes. Each change is an offset of three bytes (modulo the file's
/// length), a length, and the new bytes.
pub(super) fn runfile(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut file = base().to_vec();
    if input.byte() & 7 == 7 {
        file = input.rest().to_vec();
    }
    while !input.is_empty() {
        let at = u32::from_be_bytes([0, input.byte(), input.byte(), input.byte()]);
        let at = at as usize % file.len().max(1);
        let piece = input.piece();
        let end = file.len().min(at + piece.len());
        file[at..end].copy_from_slice(&piece[..end - at]);
    }
    let path = run_file_path();
    std::fs::write(path, &file).expect("the folder can be written");
    if let Ok(reader) = Reader::open(path, catalogue) {
        let _ = (reader.header(), reader.is_finished(), reader.totals());
        let _ = (reader.failures(), reader.verdict());
        for row in reader.windows() {
            let Ok(row) = row else { break };
            assert!(row.subjects.len() <= reader.subjects().len());
        }
        let _ = reader.clients().take(1000).count();
        let _ = reader.events().take(1000).count();
        let _ = reader.served().take(1000).count();
    }
    let _ = std::fs::remove_file(path);
}
