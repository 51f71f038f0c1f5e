//! Everything out of a stack into a file of lines, and such files into a stack. `docs/in-and-out.md` describes the
//! lines.
//!
//! Both work on the facts, of the local stack or of a deployed one. The import uses the writers of `tidemark_facts`
//! that migrations use. Counters are counted where they are written, and the projector updates the views.

mod bar;
pub mod export;
pub mod import;
pub mod line;
pub mod stack;

pub use import::Report;
