//! Two ends in virtual time, over a network that loses, duplicates and reorders datagrams.

mod caller_and_listener;
pub(super) mod network;
mod rendezvous;
