//! Two peers against each other in virtual time, over a network that loses, delays, reorders and
//! duplicates; and peers with a hostile remote side.

mod connecting;
mod hostile;
mod network;
