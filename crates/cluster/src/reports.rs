//! Reports of a runner in transfer: numbered batches, each a message of the log.

use std::collections::BTreeMap;

use engine::{MergedWindow, RunnerFigures, RunnerReport, TesterPart};
use libdeflater::{CompressionLvl, Compressor, Decompressor};
use measure::{Catalogue, HistogramId, Time, Window, tester};
use runfile::{ClientOutcome, ClientRow, EventRow, blob};
use serde::{Deserialize, Serialize};

/// Maximum length of a piece of a batch. Messages of nats-server have at most 1 MiB by default.
const PIECE_MAX: usize = 512 << 10;

/// Maximum length of a batch.
pub(crate) const BATCH_MAX: usize = 64 << 20;

/// Level of compression: more takes more time and gains little.
const LEVEL: i32 = 3;

/// Bytes of the length of a batch.
const LENGTH_BYTES: usize = 4;

/// Flag of a piece that another one continues.
const CONTINUES: u8 = 1;

/// Something that came does not follow the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Encodes the reports of a runner.
#[derive(Debug)]
pub(crate) struct Encoder {
    /// Names of the populations.
    names: Vec<String>,
}

impl Encoder {
    pub(crate) fn new(names: Vec<String>) -> Encoder {
        Encoder { names }
    }

    /// Encodes reports as pieces, each of which is a message.
    pub(crate) fn encode(&self, reports: &[RunnerReport]) -> Vec<Vec<u8>> {
        let wire = reports.iter().filter_map(|report| self.report(report));
        let wire: Vec<WireReport> = wire.collect();
        // Encoding into memory does not fail.
        let bytes = compress(&postcard::to_stdvec(&wire).unwrap_or_default());
        let count = bytes.len().div_ceil(PIECE_MAX);
        let pieces = bytes.chunks(PIECE_MAX).enumerate();
        let flag = |number| u8::from(number + 1 < count) * CONTINUES;
        pieces
            .map(|(number, piece)| [&[flag(number)], piece].concat())
            .collect()
    }

    /// Returns the report in transfer; `None` for topic messages, which the log does not have.
    fn report(&self, report: &RunnerReport) -> Option<WireReport> {
        Some(match report {
            RunnerReport::Window(window) => WireReport::Window(WireWindow::of(window)?),
            RunnerReport::Client(row) => WireReport::Client(self.client(row)?),
            RunnerReport::Event(event) => WireReport::Event {
                time: event.time.as_nanos(),
                kind: event.kind.clone(),
                subject: event.subject.clone(),
                text: event.text.clone(),
            },
            RunnerReport::Fault(text) => WireReport::Fault(text.clone()),
            RunnerReport::Lost(text) => WireReport::Lost(text.clone()),
            RunnerReport::Ended => WireReport::Ended,
            RunnerReport::TopicMessage { .. } => return None,
        })
    }

    fn client(&self, row: &ClientRow) -> Option<WireClient> {
        let population = self.names.iter().position(|name| *name == row.subject)?;
        let time = |time: Option<Time>| time.map(|time| time.as_nanos());
        Some(WireClient {
            id: row.id,
            population: u32::try_from(population).ok()?,
            slot: row.slot,
            generation: row.generation,
            url: row.url.clone(),
            due: row.due.as_nanos(),
            begun: time(row.begun),
            first_media: time(row.first_media),
            ended: time(row.ended),
            outcome: row.outcome,
            reason: row.reason.clone(),
            detail: row.detail.clone(),
            streams: row.streams.to_string(),
        })
    }
}

/// Compresses a batch: its length in four bytes, then deflate (RFC 1951). Rows of clients repeat
/// each other.
fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut compressor = Compressor::new(CompressionLvl::new(LEVEL).unwrap_or_default());
    let mut compressed = vec![0; LENGTH_BYTES + compressor.deflate_compress_bound(bytes.len())];
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    compressed[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    // The bound is enough.
    let used = compressor.deflate_compress(bytes, &mut compressed[LENGTH_BYTES..]);
    compressed.truncate(LENGTH_BYTES + used.unwrap_or(0));
    compressed
}

fn decompress(compressed: &[u8]) -> Result<Vec<u8>, Malformed> {
    let (length, compressed) = compressed.split_first_chunk().ok_or(Malformed)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| Malformed)?;
    if length > BATCH_MAX {
        return Err(Malformed);
    }
    let mut bytes = vec![0; length];
    let used = Decompressor::new().deflate_decompress(compressed, &mut bytes);
    match used {
        Ok(used) if used == length => Ok(bytes),
        _ => Err(Malformed),
    }
}

/// Joins the pieces of one runner, and decodes its batches.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Catalogues of the populations.
    catalogues: Vec<Catalogue>,
    names: Vec<String>,
    pieces: Vec<u8>,
    next_window: u64,
}

impl Decoder {
    /// `populations` are names and catalogues.
    pub(crate) fn new(populations: &[(String, Catalogue)]) -> Decoder {
        let (names, catalogues) = populations.iter().cloned().unzip();
        Decoder {
            catalogues,
            names,
            pieces: Vec::new(),
            next_window: 0,
        }
    }

    /// Adds a piece. Returns the reports of its batch if it is the last one.
    pub(crate) fn add(&mut self, piece: &[u8]) -> Result<Vec<RunnerReport>, Malformed> {
        let (flag, bytes) = piece.split_first().ok_or(Malformed)?;
        if self.pieces.len() + bytes.len() > BATCH_MAX {
            return Err(Malformed);
        }
        self.pieces.extend_from_slice(bytes);
        if flag & CONTINUES != 0 {
            return Ok(Vec::new());
        }
        let whole = std::mem::take(&mut self.pieces);
        let whole = decompress(&whole)?;
        let wire: Vec<WireReport> = postcard::from_bytes(&whole).map_err(|_| Malformed)?;
        wire.into_iter().map(|report| self.report(report)).collect()
    }

    fn report(&mut self, report: WireReport) -> Result<RunnerReport, Malformed> {
        Ok(match report {
            WireReport::Window(window) => RunnerReport::Window(Box::new(self.window(window)?)),
            WireReport::Client(row) => RunnerReport::Client(Box::new(self.client(row)?)),
            WireReport::Event {
                time,
                kind,
                subject,
                text,
            } => RunnerReport::Event(EventRow {
                time: Time::from_nanos(time),
                kind,
                subject,
                text,
            }),
            WireReport::Fault(text) => RunnerReport::Fault(text),
            WireReport::Lost(text) => RunnerReport::Lost(text),
            WireReport::Ended => RunnerReport::Ended,
        })
    }

    fn window(&mut self, window: WireWindow) -> Result<MergedWindow<RunnerFigures>, Malformed> {
        let sound = window.index == self.next_window
            && sound_seconds(window.seconds).is_ok()
            && window.populations.len() == self.catalogues.len();
        if !sound {
            return Err(Malformed);
        }
        self.next_window += 1;
        let populations = window.populations.into_iter().zip(&self.catalogues);
        let own = tester::TESTER_CATALOGUE;
        let workers = window.workers.into_iter();
        let figures = RunnerFigures {
            workers: workers
                .map(|(member, seconds, figures)| {
                    Ok(TesterPart {
                        member,
                        seconds: sound_seconds(seconds)?,
                        figures: figures.window(own)?,
                    })
                })
                .collect::<Result<_, Malformed>>()?,
            process: window.process.window(own)?,
        };
        Ok(MergedWindow {
            index: window.index,
            begins: Time::from_nanos(window.begins),
            seconds: window.seconds,
            populations: populations
                .map(|(figures, catalogue)| figures.window(*catalogue))
                .collect::<Result<_, _>>()?,
            testers: vec![TesterPart {
                member: 0,
                seconds: window.seconds,
                figures,
            }],
        })
    }

    fn client(&self, row: WireClient) -> Result<ClientRow, Malformed> {
        let time = |nanos: Option<u64>| nanos.map(Time::from_nanos);
        let population = usize::try_from(row.population).map_err(|_| Malformed)?;
        Ok(ClientRow {
            id: row.id,
            subject: self.names.get(population).ok_or(Malformed)?.clone(),
            slot: row.slot,
            generation: row.generation,
            url: row.url,
            due: Time::from_nanos(row.due),
            begun: time(row.begun),
            first_media: time(row.first_media),
            ended: time(row.ended),
            outcome: row.outcome,
            reason: row.reason,
            detail: row.detail,
            streams: serde_json::from_str(&row.streams).map_err(|_| Malformed)?,
        })
    }
}

/// Returns the length of a window if it is possible.
fn sound_seconds(seconds: f64) -> Result<f64, Malformed> {
    match (0.0..=60.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err(Malformed),
    }
}

#[derive(Serialize, Deserialize)]
enum WireReport {
    Window(WireWindow),
    Client(WireClient),
    Event {
        time: u64,
        kind: String,
        subject: Option<String>,
        text: String,
    },
    Fault(String),
    Lost(String),
    Ended,
}

#[derive(Serialize, Deserialize)]
struct WireWindow {
    index: u64,
    begins: u64,
    seconds: f64,
    populations: Vec<WireFigures>,
    /// Number of each worker, length of its window, and its figures.
    workers: Vec<(u32, f64, WireFigures)>,
    process: WireFigures,
}

#[derive(Serialize, Deserialize)]
struct WireFigures {
    counters: Vec<i64>,
    gauges: Vec<Option<f64>>,
    /// By histogram ID: the run file's blob.
    histograms: Vec<(u16, Vec<u8>)>,
    failures: BTreeMap<String, u64>,
}

#[derive(Serialize, Deserialize)]
struct WireClient {
    id: u64,
    population: u32,
    slot: u32,
    generation: u32,
    url: String,
    due: u64,
    begun: Option<u64>,
    first_media: Option<u64>,
    ended: Option<u64>,
    outcome: Option<ClientOutcome>,
    reason: Option<String>,
    detail: Option<String>,
    /// JSON.
    streams: String,
}

impl WireWindow {
    fn of(window: &MergedWindow<RunnerFigures>) -> Option<WireWindow> {
        let figures = &window.testers.first()?.figures;
        let workers = figures.workers.iter();
        Some(WireWindow {
            index: window.index,
            begins: window.begins.as_nanos(),
            seconds: window.seconds,
            populations: window.populations.iter().map(WireFigures::of).collect(),
            workers: workers
                .map(|own| (own.member, own.seconds, WireFigures::of(&own.figures)))
                .collect(),
            process: WireFigures::of(&figures.process),
        })
    }
}

impl WireFigures {
    fn of(window: &Window) -> WireFigures {
        let histograms = window.histograms.iter();
        WireFigures {
            counters: window.counters.clone(),
            gauges: window.gauges.clone(),
            histograms: histograms
                .map(|(id, sparse)| (id.0, blob::encode(sparse)))
                .collect(),
            failures: window.failures.clone(),
        }
    }

    fn window(self, catalogue: Catalogue) -> Result<Window, Malformed> {
        if self.counters.len() != catalogue.counters() || self.gauges.len() != catalogue.gauges() {
            return Err(Malformed);
        }
        let mut window = Window {
            counters: self.counters,
            gauges: self.gauges,
            failures: self.failures,
            ..Window::empty(catalogue)
        };
        for (id, bytes) in self.histograms {
            if usize::from(id) >= catalogue.histograms() {
                return Err(Malformed);
            }
            let sparse = blob::decode(&bytes).ok_or(Malformed)?;
            window.histograms.insert(HistogramId(id), sparse);
        }
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use measure::Recorder;
    use proptest::prelude::*;
    use protocols::PROTOCOLS;

    use super::*;

    /// A window with some values of each kind.
    fn window(catalogue: Catalogue, values: &[u64]) -> Window {
        let mut recorder = Recorder::new(catalogue);
        for (number, &value) in values.iter().enumerate() {
            if catalogue.histograms() > 0 {
                let id = (number % catalogue.histograms()) as u16;
                recorder.record(HistogramId(id), value);
            }
        }
        let mut window = recorder.take_window();
        for (number, &value) in values.iter().enumerate() {
            let counters = window.counters.len();
            window.counters[number % counters] -= value as i64 >> 2;
            if !window.gauges.is_empty() {
                let gauges = window.gauges.len();
                window.gauges[number % gauges] = Some(value as f64 / 3.0);
            }
            window.failures.insert(format!("reason_{number}"), value);
        }
        window
    }

    fn part<T>(member: u32, seconds: f64, figures: T) -> TesterPart<T> {
        TesterPart {
            member,
            seconds,
            figures,
        }
    }

    fn populations() -> Vec<(String, Catalogue)> {
        let all = PROTOCOLS.iter();
        all.map(|one| (one.name.to_owned(), one.catalogue))
            .collect()
    }

    fn reports(values: &[u64]) -> Vec<RunnerReport> {
        let own = tester::TESTER_CATALOGUE;
        let figures = RunnerFigures {
            workers: vec![
                part(0, 0.75, window(own, values)),
                part(1, 0.5, window(own, &[])),
            ],
            process: window(own, values),
        };
        let time = |nanos| Some(Time::from_nanos(nanos));
        vec![
            RunnerReport::Window(Box::new(MergedWindow {
                index: 0,
                begins: Time::from_nanos(5),
                seconds: 0.75,
                populations: populations()
                    .iter()
                    .map(|(_, catalogue)| window(*catalogue, values))
                    .collect(),
                testers: vec![part(0, 0.75, figures)],
            })),
            RunnerReport::Client(Box::new(ClientRow {
                id: 7,
                subject: populations()[1].0.clone(),
                slot: 3,
                generation: 1,
                url: "rtsp://h/a".to_owned(),
                due: Time::from_nanos(1),
                begun: time(2),
                first_media: None,
                ended: time(9),
                outcome: Some(ClientOutcome::Failed),
                reason: Some("refused".to_owned()),
                detail: Some("it said no".to_owned()),
                streams: serde_json::json!([{"packets": 3, "loss": null}]),
            })),
            RunnerReport::Event(EventRow {
                time: Time::from_nanos(4),
                kind: "note".to_owned(),
                subject: Some("viewers".to_owned()),
                text: "a text".to_owned(),
            }),
            RunnerReport::Fault("a fault".to_owned()),
            RunnerReport::Lost("a loss".to_owned()),
            RunnerReport::Ended,
        ]
    }

    proptest! {
        #[test]
        fn reports_survive_the_transfer(values in prop::collection::vec(0u64..1 << 40, 0..60)) {
            let names = populations().into_iter().map(|(name, _)| name).collect();
            let pieces = Encoder::new(names).encode(&reports(&values));
            let mut decoder = Decoder::new(&populations());
            let mut came = Vec::new();
            for piece in &pieces {
                came.extend(decoder.add(piece).expect("as written"));
            }
            prop_assert_eq!(came, reports(&values));
        }

        #[test]
        fn anything_else_is_refused_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            cut in 0usize..400,
            at in 0usize..400,
        ) {
            let mut decoder = Decoder::new(&populations());
            let _ = decoder.add(&bytes);
            let names = populations().into_iter().map(|(name, _)| name).collect();
            let mut piece = Encoder::new(names).encode(&reports(&[1, 2, 3])).remove(0);
            let length = piece.len();
            piece[at % length] ^= 0x55;
            let _ = Decoder::new(&populations()).add(&piece);
            piece.truncate(cut % length);
            let _ = Decoder::new(&populations()).add(&piece);
        }
    }

    #[test]
    fn rows_that_repeat_each_other_take_little() {
        let rows: Vec<RunnerReport> = (0..100).map(|_| reports(&[]).remove(1)).collect();
        let names = populations().into_iter().map(|(name, _)| name).collect();
        let pieces = Encoder::new(names).encode(&rows);
        assert!(pieces[0].len() < 1_000, "{}", pieces[0].len());
    }

    #[test]
    fn long_batches_have_several_pieces_and_windows_come_in_order() {
        let names: Vec<String> = populations().into_iter().map(|(name, _)| name).collect();
        let encoder = Encoder::new(names);
        // Letters that cannot be compressed by much.
        let letter = |number: u64| {
            let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
            char::from(b'!' + (mixed.wrapping_mul(mixed | 1) >> 57) as u8 % 90)
        };
        let text: String = (0..4 * PIECE_MAX as u64).map(letter).collect();
        let long = vec![RunnerReport::Fault(text)];
        let pieces = encoder.encode(&long);
        assert!(pieces.len() >= 3, "{}", pieces.len());
        let (last, others) = pieces.split_last().expect("there are some");
        let mut decoder = Decoder::new(&populations());
        for piece in others {
            assert_eq!(decoder.add(piece), Ok(Vec::new()));
        }
        assert_eq!(decoder.add(last), Ok(long));
        // A length that nobody sends, and one that is wrong.
        for length in [u32::MAX, 5] {
            let piece = [&[0][..], &length.to_le_bytes(), b"abc"].concat();
            assert_eq!(Decoder::new(&populations()).add(&piece), Err(Malformed));
        }
        let first = encoder.encode(&reports(&[])).remove(0);
        assert!(decoder.add(&first).is_ok());
        assert_eq!(decoder.add(&first), Err(Malformed), "the same window again");
        assert_eq!(decoder.add(&[]), Err(Malformed));
    }
}
