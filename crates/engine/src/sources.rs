//! The sources of a run: what it sends to multicast groups itself, from before its server starts
//! until its clients have ended.
//!
//! They are what `streamgauge send` plays, with a worker, a pacer and a clock of their own. What is
//! counted of the tester while they send is the run's: a source that is late, or whose datagrams
//! are refused, makes the measurement invalid.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, bounded};
use measure::{SourceStream, Window};
use net::{Clock, Namespace};
use protocol::media::ts::flow::SentStream;
use protocol::session::Interface;
use scenario::Scenario;

use crate::control::Control;
use crate::error::EngineError;
use crate::machine::since_1970;
use crate::send::{News, SendFinished, Sending, Stream, looped_stream, settings};

/// How many windows may wait until they are taken. Once a run has begun it takes each; what is more
/// than that before is not needed.
const WINDOWS: usize = 64;

/// Sources at work.
pub(crate) struct Sources {
    /// Each stream's URL and the name of its source, in the scenario's order.
    streams: Vec<(String, String)>,
    control: Control,
    /// What is counted of the tester while they send.
    windows: Receiver<Window>,
    thread: Option<JoinHandle<Result<SendFinished, EngineError>>>,
}

impl Sources {
    /// Sets those of a scenario to work, in the namespace `place` or where the calling thread is;
    /// `None` where it has none. They send when this returns.
    ///
    /// # Errors
    /// A file is not one that can be sent, there is no way to a group, or a socket cannot be had.
    pub(crate) fn start(
        scenario: &Scenario,
        place: Option<&Arc<Namespace>>,
    ) -> Result<Option<Sources>, EngineError> {
        if scenario.sources.is_empty() {
            return Ok(None);
        }
        let (mut streams, mut names) = (Vec::new(), Vec::new());
        for source in &scenario.sources {
            let rate = source.bitrate.map(|rate| rate.0);
            let looped = looped_stream(source.file.as_deref(), rate).map_err(|message| {
                let name = source.name.clone();
                EngineError::SourceFile { name, message }
            })?;
            let looped = Arc::new(looped);
            for &target in &source.to {
                names.push((target.to_string(), source.name.clone()));
                streams.push(Stream {
                    target,
                    looped: looped.clone(),
                    interface: Some(interface(&source.interface)),
                    ttl: source.ttl,
                });
            }
        }
        let control = Control::new();
        let (tell, windows) = bounded(WINDOWS);
        let (standing, stand) = bounded::<()>(1);
        let own = control.clone();
        let place = place.cloned();
        let (seed, stop_timeout) = (scenario.seed, scenario.stop_timeout);
        let thread = std::thread::Builder::new()
            .name("sources".to_owned())
            .spawn(move || {
                if let Some(place) = &place {
                    let failed = EngineError::system("cannot enter the network of the sources");
                    place.enter().map_err(failed)?;
                }
                let clock = Clock::start();
                let settings = settings(&streams, None, &clock)?;
                // Runs of one scenario have one seed, and their stamps are to be told apart all the
                // same.
                let seed = seed.wrapping_add(since_1970(&clock).as_nanos() as u64);
                let sending = Sending::start(settings, clock, stop_timeout, seed)?;
                // It is waited for by who started this thread.
                let _ = standing.send(());
                sending.follow(&own, stop_timeout, &mut |news| {
                    if let News::Window { tester, .. } = news {
                        // Where there is no room, the run has not begun, and has no use for it.
                        let _ = tell.try_send(tester.clone());
                    }
                    Ok(())
                })
            })
            .map_err(EngineError::system("cannot start the sources"))?;
        let mut sources = Sources {
            streams: names,
            control,
            windows,
            thread: Some(thread),
        };
        match stand.recv() {
            Ok(()) => Ok(Some(sources)),
            Err(_) => Err(sources.join().err().unwrap_or_else(broke_down)),
        }
    }

    /// Forgets what was counted so far: the run begins.
    pub(crate) fn begin(&self) {
        while self.windows.try_recv().is_ok() {}
    }

    /// What was counted of the tester in a window that has not been taken; none where none is over.
    pub(crate) fn window(&self) -> Option<Window> {
        self.windows.try_recv().ok()
    }

    /// Ends them, and says what they did.
    ///
    /// # Errors
    /// One could not send.
    pub(crate) fn stop(mut self) -> Result<measure::Sources, EngineError> {
        self.control.stop();
        let finished = self.join()?;
        let of = |url: &str| finished.streams.iter().find(|stream| stream.url == url);
        let streams = self.streams.iter();
        let streams = streams.filter_map(|(url, name)| Some(stream(name, of(url)?)));
        Ok(measure::Sources {
            streams: streams.collect(),
            pacing: finished.pacing,
        })
    }

    fn join(&mut self) -> Result<SendFinished, EngineError> {
        let ended = self.thread.take().map(JoinHandle::join);
        ended
            .and_then(Result::ok)
            .unwrap_or_else(|| Err(broke_down()))
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        self.control.kill();
        if let Some(thread) = self.thread.take() {
            // Nobody is left to be told how it ended.
            let _ = thread.join();
        }
    }
}

fn broke_down() -> EngineError {
    EngineError::Sending("the sources broke down".to_owned())
}

/// An interface as a scenario names it.
fn interface(text: &str) -> Interface {
    match text.parse() {
        Ok(address) => Interface::With(address),
        Err(_) => Interface::Named(text.to_owned()),
    }
}

fn stream(name: &str, sent: &SentStream) -> SourceStream {
    SourceStream {
        source: name.to_owned(),
        url: sent.url.clone(),
        number: format!("{:016x}", sent.source),
        bits_per_second: sent.bits_per_second,
        datagrams: sent.datagrams,
        sent: sent.sent,
        refused: sent.refused,
        bytes: sent.bytes,
    }
}
