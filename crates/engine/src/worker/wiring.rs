//! Wiring of the parts of a worker: passes the events of one part and the outputs of sessions to
//! the other parts.
//!
//! The parts know neither each other's sessions nor the loop. Everything here is a method of the
//! worker that calls one part and passes on its result. The loop itself is in the parent module.

mod channels;
mod clients;
mod connecting;
mod connection_reads;
mod datagram_reads;
mod delivery;
mod outputs;
