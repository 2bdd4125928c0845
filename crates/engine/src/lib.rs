//! One run from start to stop: workers that run the clients or a reference server, and the
//! coordinator that collects their reports.

mod browsers;
mod client_row;
mod clients;
mod control;
mod coordinator;
mod coverage;
mod crew;
mod dealing;
mod error;
mod levels;
pub mod link;
mod links;
mod machine;
mod media_description;
mod messages;
mod network;
mod options;
mod ownership;
mod process;
mod progress;
mod reachability;
mod receive;
mod receive_path;
mod recording;
mod remote_worker;
mod report_loop;
mod resolver;
mod run;
mod run_parts;
mod runner;
mod send;
mod serve;
mod server_release;
mod sources;
mod subjects;
mod target_filter;
mod trace;
mod window_merger;
mod worker;
mod worker_count;
mod worker_pool;

pub use clients::read_source;
pub use control::Control;
pub use crew::Crew;
pub use dealing::Dealing;
pub use error::EngineError;
pub use levels::{Level, Levels};
pub use measure::Pacing;
pub use media_description::{DESCRIBE_TIMEOUT, describe};
pub use options::Options;
pub use progress::{
    ClientRole, Failures, Finished, Phase, PopulationProgress, Progress, Rates, StartDelay,
    TesterProgress,
};
pub use reachability::{Reachability, check_reachability};
pub use receive::{ReceiveOptions, ReceiveProgress, draw_secret, receive};
pub use receive_path::packet_ring_available;
pub use run::{run, run_levels, run_levels_on, run_on};
pub use runner::{
    Runner, RunnerCommand, RunnerFigures, RunnerInfo, RunnerOrder, RunnerPlan, RunnerRecord,
    RunnerReport,
};
pub use send::{SendFinished, SendOptions, SendProgress, looped_stream, send};
pub use serve::{ServeOptions, ServeProgress, serve};
pub use subjects::catalogue_of;
pub use target_filter::{TargetFilter, TargetPolicy};
pub use trace::Trace;
pub use window_merger::{MergedWindow, TesterPart, WindowMerger};
pub use worker::client_identity;
pub use worker_count::{files_needed, workers};
