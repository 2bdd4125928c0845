//! The terminal and the process: messages, signals, limits.

pub(crate) mod console;
pub(crate) mod descriptor_limit;
pub(crate) mod repeat_command;
pub(crate) mod signals;
pub(crate) mod version;
pub(crate) mod wrap;
