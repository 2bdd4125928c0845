//! What a process does beside the clients of a run: sending, serving, receiving for another machine, and pages.

pub(crate) mod browsers;
pub(crate) mod receive;
pub(crate) mod report_loop;
pub(crate) mod send;
pub(crate) mod serve;
