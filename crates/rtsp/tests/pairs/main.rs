//! RTSP clients and servers against each other, in virtual time over a seeded network.

mod actions;
mod hostile;
mod multicast;
mod play;
mod publish;
