//! What connects the parts of a worker: each event of one, and each output of a session, to whom it
//! concerns.
//!
//! The parts know neither each other's sessions nor the loop. Everything here is a method of the
//! worker that calls one part and passes on what it returns; the loop itself is in the module
//! above.

mod arrivals;
mod channels;
mod clients;
mod connecting;
mod datagram_arrivals;
mod hearing;
mod outputs;
