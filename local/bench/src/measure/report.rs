//! The output: tables on stdout, numbers in a JSON file.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Serialize;

use super::Part;

const PLACEHOLDER: &str = "{part}";

/// The results of a part: tables as text, all numbers as JSON.
pub(super) trait Report: fmt::Display {
    /// The numbers as JSON, in the order of the fields.
    fn json(&self) -> serde_json::Result<String>;
}

impl<T: Serialize + fmt::Display> Report for T {
    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}

/// The file of each part. It is checked before the first measurement.
pub(super) fn files(parts: &[Part], out: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let out = out.to_str().context("--out is not UTF-8")?;
    let files: Vec<PathBuf> = parts.iter().map(|part| out.replace(PLACEHOLDER, part.name()).into()).collect();
    if files.iter().collect::<HashSet<_>>().len() < files.len() {
        bail!("{} parts would overwrite each other in {out}; put {PLACEHOLDER} into --out", parts.len());
    }
    Ok(files)
}

/// Writes a chart next to the numbers.
pub(super) fn picture(svg: &str, file: &Path) -> anyhow::Result<()> {
    let file = file.with_extension("svg");
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    std::fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))
}

/// Prints the tables and writes the numbers.
pub(super) fn publish(report: &dyn Report, file: &Path) -> anyhow::Result<()> {
    println!("{report}");
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    std::fs::write(file, report.json()? + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    println!("written to {}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_file_of_its_own() {
        let out = Path::new("some/{part}.json");
        assert_eq!(files(&[Part::Views], out).unwrap(), [PathBuf::from("some/views.json")]);
        assert_eq!(files(&[Part::Views], Path::new("a.json")).unwrap(), [PathBuf::from("a.json")]);
        assert!(files(&[Part::Views, Part::Views], Path::new("a.json")).is_err());
    }
}
