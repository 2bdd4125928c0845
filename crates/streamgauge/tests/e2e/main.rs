//! The command from outside: real processes, real sockets, on the loopback interface.

mod actions;
mod apart;
mod bad_input;
mod calibrate;
mod catalogue;
mod contest;
mod demo;
mod endings;
mod faults;
mod http_ts;
mod limits;
mod media;
mod multicast;
mod namespace;
mod publish;
mod relay;
mod scripted;
mod secure;
mod send;
mod series;
mod servers;
mod starved;
mod support;
mod trace;
mod whose_server;
mod zapping;
