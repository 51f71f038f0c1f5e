//! Measurements of Tidemark's own code on this machine, beside what it replaces.

pub mod big_author;
pub mod measure;
