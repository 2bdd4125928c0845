//! One run from start to stop: workers that run the clients or a reference server, and the
//! coordinator that collects their reports.

mod control;
mod error;
pub mod link;
mod machine;
mod messages;
mod modes;
mod network;
mod options;
mod process;
mod progress;
mod run;
mod runner;
mod trace;
mod window_merger;
mod worker;

pub use control::Control;
pub use error::EngineError;
pub use measure::Pacing;
pub use messages::RunnerCommand;
pub use modes::receive::{ReceiveOptions, ReceiveProgress, draw_secret, receive};
pub use modes::send::{SendFinished, SendOptions, SendProgress, looped_stream, send};
pub use modes::serve::{ServeOptions, ServeProgress, serve};
pub use network::target_filter::{TargetFilter, TargetPolicy};
pub use options::Options;
pub use progress::{
    ClientRole, Failures, Finished, Phase, PopulationProgress, Progress, Rates, StartDelay,
    TesterProgress,
};
pub use run::crew::Crew;
pub use run::dealing::Dealing;
pub use run::levels::{Level, Levels};
pub use run::media_description::{DESCRIBE_TIMEOUT, describe};
pub use run::reachability::{Reachability, check_reachability};
pub use run::subjects::catalogue_of;
pub use run::{run, run_levels, run_levels_on, run_on};
pub use runner::clients::read_source;
pub use runner::{
    Runner, RunnerFigures, RunnerInfo, RunnerOrder, RunnerPlan, RunnerRecord, RunnerReport,
};
pub use trace::Trace;
pub use window_merger::{MergedWindow, TesterPart, WindowMerger};
pub use worker::client_identity;
pub use worker::count::{files_needed, workers};
pub use worker::receive_path::packet_ring_available;
