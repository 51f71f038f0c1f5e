//! The demo: a small graph, a few posts, two readers.

mod sample;
pub mod screen;
pub mod show;
pub mod stack;
