//! The client against a server scripted by hand.
