//! The commands, each in its own file, and the code that they share for running a scenario.

pub(crate) mod calibrate;
pub(crate) mod capacity;
pub(crate) mod check;
pub(crate) mod cluster;
pub(crate) mod compare;
pub(crate) mod demo;
mod free_port;
pub(crate) mod link;
pub(crate) mod listings;
pub(crate) mod load;
mod long_running;
pub(crate) mod manual;
pub(crate) mod play;
pub(crate) mod receive;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod runner;
pub(crate) mod send;
pub(crate) mod series;
mod series_output;
pub(crate) mod serve;
pub(crate) mod servers;
