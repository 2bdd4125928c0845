//! Flows driven by hand.
