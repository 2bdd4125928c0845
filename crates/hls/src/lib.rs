//! HTTP Live Streaming: players of playlists and their segments, and a reference server.

mod adaptation;
mod boxes;
mod caching;
mod calibration;
pub mod client;
mod coding;
pub mod config;
mod connection;
mod content;
mod descriptor;
pub mod failure;
mod inspection;
pub mod metrics;
mod playback;
pub mod playlist;
pub mod server;
mod start;

pub use descriptor::PROTOCOL;
