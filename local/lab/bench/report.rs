//! The output: tables on stdout, numbers in a JSON file.

use std::{
    collections::HashSet,
    fmt::Display,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use serde::Serialize;

use super::Part;

const PLACEHOLDER: &str = "{part}";

/// The file of each part. It is checked before the first measurement.
pub(super) fn files(parts: &[Part], out: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let out = out.to_str().context("--out is not UTF-8")?;
    let files: Vec<PathBuf> = parts.iter().map(|part| out.replace(PLACEHOLDER, part.name()).into()).collect();
    if files.iter().collect::<HashSet<_>>().len() < files.len() {
        bail!("{} parts would overwrite each other in {out}; put {PLACEHOLDER} into --out", parts.len());
    }
    Ok(files)
}

/// Prints the tables of a part and writes all its numbers as JSON, in the order of the fields.
pub(super) fn publish<T: Serialize + Display>(report: &T, file: &Path) -> anyhow::Result<()> {
    println!("{report}");
    write(file, &(serde_json::to_string_pretty(report)? + "\n"))?;
    println!("written to {}", file.display());
    Ok(())
}

/// Writes a file. Creates its folder if necessary.
fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
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
