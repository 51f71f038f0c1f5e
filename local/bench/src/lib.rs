//! Measurements of Tidemark's own code and of the layouts that it replaces, on this machine.

pub mod big_author;
pub mod measure;

use std::path::Path;

use anyhow::Context;
use tempfile::TempDir;

/// A temporary folder, in RAM if possible.
fn folder_in_ram() -> anyhow::Result<TempDir> {
    let (mut name, ram) = (tempfile::Builder::new(), Path::new("/dev/shm"));
    name.prefix("tidemark-bench-");
    if ram.is_dir() { name.tempdir_in(ram) } else { name.tempdir() }.context("no temporary folder")
}
