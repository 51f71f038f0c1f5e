//! Measurements of Tidemark's own code and of the layouts that it replaces, on this machine.

pub mod big_author;
pub mod measure;
