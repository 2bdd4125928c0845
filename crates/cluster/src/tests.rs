//! Tests of several parts together.

mod equality;
