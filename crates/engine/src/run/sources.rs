//! The sources of a run: streams that the run itself sends to multicast groups, from before the
//! server starts until all clients have ended.
//!
//! This is the code of `streamgauge send`; the sources have a worker, pacer and clock of their own.
//! Tester metrics that are counted while the sources send are part of the run: a source that is
//! late, or whose datagrams the kernel refuses, makes the measurement invalid.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, bounded};
use kit::media::ts::flow::SentStream;
use measure::{SourceStream, Window};
use net::{Clock, Namespace};
use scenario::Scenario;
use session::Interface;

use crate::control::Control;
use crate::error::EngineError;
use crate::machine::since_1970;
use crate::modes::send::{
    RunningSources, SendEvent, SendFinished, Stream, looped_stream, settings,
};

/// Capacity of the window queue. A running coordinator takes every window; windows that overflow
/// before the run begins are not needed.
const WINDOWS: usize = 64;

/// Running sources.
pub(crate) struct Sources {
    /// URL and source name of each stream, in the order of the scenario.
    streams: Vec<(String, String)>,
    control: Control,
    /// Windows of the tester metrics.
    windows: Receiver<Window>,
    thread: Option<JoinHandle<Result<SendFinished, EngineError>>>,
}

impl Sources {
    /// Starts the sources of a scenario, in `namespace` or, if `None`, in the namespace of the
    /// calling thread. Returns `None` if the scenario has none. They are sending on return.
    ///
    /// # Errors
    /// A file is not suitable, a group has no route, or a socket cannot be opened.
    pub(crate) fn start(
        scenario: &Scenario,
        namespace: Option<&Arc<Namespace>>,
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
        let namespace = namespace.cloned();
        let (seed, stop_timeout) = (scenario.seed, scenario.stop_timeout);
        let thread = std::thread::Builder::new()
            .name("sources".to_owned())
            .spawn(move || {
                if let Some(namespace) = &namespace {
                    let failed = EngineError::system("cannot enter the network of the sources");
                    namespace.enter().map_err(failed)?;
                }
                let clock = Clock::start();
                let settings = settings(&streams, None, &clock)?;
                // Runs of one scenario share its seed, but their source numbers must differ.
                let seed = seed.wrapping_add(since_1970(&clock).as_nanos() as u64);
                let sending = RunningSources::start(settings, clock, stop_timeout, seed)?;
                // The thread that started this one waits for it.
                let _ = standing.send(());
                sending.run_to_end(&own, stop_timeout, &mut |event| {
                    if let SendEvent::Window(_, tester) = event {
                        // The queue is full only before the run begins, when windows are not
                        // needed.
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
            Err(_) => Err(sources.join().err().unwrap_or_else(thread_panicked)),
        }
    }

    /// Discards the windows counted before the run began.
    pub(crate) fn begin(&self) {
        while self.windows.try_recv().is_ok() {}
    }

    /// True if the sources ended on their own.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns the next complete window, or `None`.
    pub(crate) fn window(&self) -> Option<Window> {
        self.windows.try_recv().ok()
    }

    /// Stops the sources and returns what they sent.
    ///
    /// # Errors
    /// A source failed.
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
            .unwrap_or_else(|| Err(thread_panicked()))
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        self.control.kill();
        if let Some(thread) = self.thread.take() {
            // The result is of no interest any more.
            let _ = thread.join();
        }
    }
}

fn thread_panicked() -> EngineError {
    EngineError::Sending("the thread of the sources panicked".to_owned())
}

/// Interface as written in the scenario: an address or a name.
fn interface(text: &str) -> Interface {
    match text.parse() {
        Ok(address) => Interface::Address(address),
        Err(_) => Interface::Name(text.to_owned()),
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
