//! One run from start to stop: workers that run the clients or a reference server, and the
//! coordinator that collects their reports.

mod attend;
mod browsers;
mod clients;
mod collect;
mod control;
mod coordinator;
mod coverage;
mod crew;
mod error;
mod linger;
pub mod link;
mod links;
mod machine;
mod media;
mod messages;
mod network;
mod ownership;
mod process;
mod progress;
mod reach;
mod receive;
mod receive_path;
mod remote_worker;
mod resolver;
mod run;
mod send;
mod serve;
mod sources;
mod subjects;
mod team_size;
mod trace;
mod worker;

pub use clients::read_source;
pub use control::Control;
pub use error::EngineError;
pub use measure::Pacing;
pub use media::{DESCRIBE_TIMEOUT, describe};
pub use progress::{
    ClientRole, Failures, Finished, Phase, PopulationProgress, Progress, Rates, TesterProgress,
};
pub use reach::{Reachability, check_reachability};
pub use receive::{ReceiveOptions, ReceiveProgress, draw_secret, receive};
pub use run::{Options, run};
pub use send::{SendFinished, SendOptions, SendProgress, looped_stream, send};
pub use serve::{ServeOptions, ServeProgress, serve};
pub use subjects::catalogue_of;
pub use team_size::{files_needed, workers};
pub use trace::Trace;
