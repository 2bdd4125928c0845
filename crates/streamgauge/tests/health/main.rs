//! Tests of the tester's health, with its default bounds. Those that load the machine run one at a
//! time. Most have real-time priority if that is permitted, because they measure how much of the
//! machine the tester gets.

mod calibrate;
mod exclusive;
mod starved;
#[path = "../e2e/support.rs"]
#[allow(dead_code, reason = "the end-to-end tests need more of it")]
mod support;
