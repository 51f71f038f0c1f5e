//! Two releases replace each other, function by function, while histories run.

use std::{
    collections::BTreeSet,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use tidemark_tests::{World, number_from, repository, until};

use crate::{
    delivery::binaries,
    histories::{OPERATIONS_TOGETHER as OPERATIONS, Shared, TOGETHER, batch_beside},
};

const PROCESSES: usize = 2;

/// `make upgrade-check` builds the other release. One process of a function is replaced, as a canary, and later the
/// others. `fan-out` comes first, as in docs/upgrading.md. Only reconcile, which looks for differences, is always of
/// this release.
#[tokio::test]
#[ignore = "needs the functions of another release: make upgrade-check"]
async fn histories_agree_with_the_model_while_releases_replace_each_other() {
    let new = binaries();
    let old = PathBuf::from(std::env::var_os("TIDEMARK_OTHER_RELEASE").expect("TIDEMARK_OTHER_RELEASE is a folder"));
    let folders = std::fs::read_dir(repository().join("functions")).unwrap();
    let all = folders.map(|folder| folder.unwrap().file_name().into_string().unwrap()).filter(|name| name != "reconcile");
    // A function that the other release lacks is always of this one.
    let (mut both, only_new): (Vec<String>, Vec<String>) = all.partition(|name| old.join(name).is_file());
    both.sort_by_key(|name| (name != "fan-out", name.clone()));
    let serving = tempfile::tempdir().unwrap();
    let link = |name: &str, release: &Path| {
        let (link, next) = (serving.path().join(name), serving.path().join("next"));
        symlink(release.join(name), &next).unwrap();
        std::fs::rename(next, link).unwrap();
    };
    both.iter().for_each(|name| link(name, &old));
    only_new.iter().for_each(|name| link(name, &new));
    let mut world = World::start(|options: &mut tidemark_local::Options| {
        options.process_functions = both.iter().chain(&only_new).cloned().collect();
        options.processes = PROCESSES;
        options.bin_dir = Some(serving.path().to_owned());
        options.retry_delay = Duration::from_secs(2);
    })
    .await;
    println!("in both releases: {both:?}; only in this one: {only_new:?}");
    for round in 0..number_from("TIDEMARK_ROUNDS", 3) {
        let release = if round % 2 == 0 { &new } else { &old };
        let steps = both.len() * PROCESSES;
        let roll = async |shared: &Shared| {
            for step in 0..steps {
                shared.done.reached(step * OPERATIONS / steps).await;
                let name = &both[step / PROCESSES];
                link(name, release);
                shared
                    .in_world(async |world| {
                        let pids = || world.stack.process_ids(name).into_iter();
                        let replaced = async || {
                            // A process that had ended by itself was replaced by one of the new release.
                            let old = pids().find(|pid| release_of(*pid).is_some_and(|of| of != *release));
                            old.is_none_or(|pid| world.stack.replace_process(name, pid))
                        };
                        until(name, replaced).await;
                    })
                    .await;
            }
        };
        world = batch_beside(world, round * TOGETHER, roll).await;
        for pid in both.iter().flat_map(|name| world.stack.process_ids(name)) {
            assert_eq!(release_of(pid).as_ref(), Some(release));
        }
        println!("{OPERATIONS} operations while the functions became those of {}", release.display());
        let report = world.walk_over_all_users(true, Duration::from_secs(1)).await;
        assert_eq!((report.differences, report.failed), (BTreeSet::new(), 0), "after round {round}");
    }
    world.finish().await;
}

/// The folder of a process's binary; `None` if the process has ended.
fn release_of(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()?.parent().map(Path::to_owned)
}
