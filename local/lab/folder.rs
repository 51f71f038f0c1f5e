//! The folder of a measured stack.

use std::path::Path;

use anyhow::Context;
use tempfile::TempDir;

/// A temporary folder, in RAM if possible.
pub(crate) fn in_ram() -> anyhow::Result<TempDir> {
    let (mut name, ram) = (tempfile::Builder::new(), Path::new("/dev/shm"));
    name.prefix("tidemark-lab-");
    if ram.is_dir() { name.tempdir_in(ram) } else { name.tempdir() }.context("no temporary folder")
}
