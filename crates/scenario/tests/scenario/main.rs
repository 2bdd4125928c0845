//! Scenarios, right and wrong, as files, settings and one-liners.

mod capacity;
mod compare;
mod data_files;
mod link;
mod messages;
mod network;
mod valid;
mod vary;
