//! Other work than the clients of a run: sending, serving, receiving for another machine, and the
//! pages of golden browsers.

pub(crate) mod browsers;
pub(crate) mod receive;
pub(crate) mod report_loop;
pub(crate) mod send;
pub(crate) mod serve;
