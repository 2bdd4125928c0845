//! Two peers against each other, in virtual time, over a network that loses, delays, reorders and
//! repeats; and peers whose other side is hostile.

mod connecting;
mod hostile;
mod network;
