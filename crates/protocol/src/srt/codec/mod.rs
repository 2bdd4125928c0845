//! What goes over the wire. Nothing here keeps state, and nothing is copied.

pub mod packet;
