//! The forge's workflows run targets of the Makefile, so that what they do can be done on any machine.

use std::collections::BTreeSet;

use serde_json::Value;
use tidemark_local::template::document;
use tidemark_tests::{files, repository, template::entries, text_of};

/// The targets of the Makefile.
fn targets() -> BTreeSet<String> {
    let text = text_of("Makefile");
    let described = text.lines().filter(|line| line.contains("## ") && !line.starts_with(['\t', ' ', '#', '@']));
    described.filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
}

/// The targets that a step runs. Those of a matrix stand for `${{ matrix.target }}`.
fn run_by(step: &Value, job: &Value) -> Vec<String> {
    let mut run = Vec::new();
    for line in step["run"].as_str().into_iter().flat_map(str::lines) {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["make", "${{", "matrix.target", "}}"] => {
                let matrix = job["strategy"]["matrix"]["target"].as_array().unwrap().iter();
                run.extend(matrix.map(|target| target.as_str().unwrap().split(' ').next().unwrap().to_owned()));
            }
            ["make", target, ..] => run.push(target.to_owned()),
            ["rustup", ..] | [".ci/run"] => {}
            _ => panic!("a workflow holds logic: {line}"),
        }
    }
    run
}

#[test]
fn workflows_run_targets_of_the_makefile_and_hold_no_logic() {
    // What .ci/run leaves out, and nothing else would run.
    const NIGHTLY: &str =
        "test-cluster test-tls test-elsewhere chaos sam-lint sam-audit sam-check page-check arm64 preflight-check
        openapi-breaking-check openapi-lint workflows-lint test";
    let (targets, mut nightly) = (targets(), BTreeSet::new());
    let paths = files(&repository().join(".github/workflows"), "yml");
    assert_eq!(paths.len(), 5, "{paths:?}");
    for path in paths {
        let workflow = document(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for job in entries(&workflow["jobs"]).values() {
            assert!(job["timeout-minutes"].is_u64(), "{}: a job without a limit", path.display());
            let run: Vec<String> = job["steps"].as_array().unwrap().iter().flat_map(|step| run_by(step, job)).collect();
            let unknown: Vec<&String> = run.iter().filter(|target| !targets.contains(*target)).collect();
            assert!(unknown.is_empty(), "{}: the Makefile has no {unknown:?}", path.display());
            if path.ends_with("nightly.yml") {
                nightly.extend(run);
            }
        }
    }
    let missing: Vec<&str> = NIGHTLY.split_whitespace().filter(|target| !nightly.contains(*target)).collect();
    assert!(missing.is_empty(), "nothing runs {missing:?}");
}

#[test]
fn dependency_updates_cover_every_folder_with_dependencies() {
    let updates = document(&text_of(".github/dependabot.yml")).unwrap();
    let mut covered = BTreeSet::new();
    for update in updates["updates"].as_array().unwrap() {
        let folders = update["directories"].as_array().cloned().unwrap_or_else(|| vec![update["directory"].clone()]);
        covered.extend(folders.iter().map(|folder| folder.as_str().unwrap().trim_start_matches('/').to_owned()));
    }
    for folder in &covered {
        assert!(repository().join(folder).is_dir(), "{folder} does not exist");
    }
    for name in ["requirements.txt", "package.json"] {
        for parent in ["local", "clients"] {
            for folder in repository().join(parent).read_dir().unwrap().map(|entry| entry.unwrap().path()) {
                let folder_name = folder.strip_prefix(repository()).unwrap().to_str().unwrap().to_owned();
                assert!(!folder.join(name).exists() || covered.contains(&folder_name), "{folder_name}/{name} is not updated");
            }
        }
    }
}
