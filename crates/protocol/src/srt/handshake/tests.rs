//! Two ends in virtual time, over a network that loses, repeats and reorders.

mod caller_and_listener;
pub(super) mod network;
mod rendezvous;
