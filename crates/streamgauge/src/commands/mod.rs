//! The commands, each in its own file, and what running a scenario takes, whichever asks for it.

mod attend;
pub(crate) mod calibrate;
pub(crate) mod check;
pub(crate) mod demo;
pub(crate) mod link;
pub(crate) mod listings;
pub(crate) mod load;
pub(crate) mod manual;
pub(crate) mod play;
pub(crate) mod receive;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod series;
pub(crate) mod serve;
pub(crate) mod servers;
