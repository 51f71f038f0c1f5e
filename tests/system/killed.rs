//! A worker's process is killed during a delivery.

use std::time::{Duration, Instant};

use tidemark_tests::world_with;

#[test]
fn posts_are_delivered_exactly_once_when_a_worker_is_killed() {
    let configure = |options: &mut tidemark_local::Options| {
        options.process_functions.insert("fan-out".to_owned());
        options.bin_dir = Some(binaries());
        options.processes = 2;
    };
    world_with(configure, async |world| {
        let readers: Vec<u64> = (1..=40).collect();
        world.follow(readers.clone(), 99).await;
        for &reader in &readers {
            world.user(reader).feed_ids().await;
        }
        let publish = async {
            world.user(99).publish_all(0..30).await;
        };
        let mut killed = 0;
        let kill = async {
            let until = Instant::now() + Duration::from_secs(20);
            while killed < 4 && Instant::now() < until {
                if let Some(pid) = world.stack.process_ids("fan-out").first()
                    && !world.stack.status().await.unwrap().idle
                {
                    let done = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
                    killed += u32::from(done.success());
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        futures::join!(publish, kill);
        assert!(killed > 0);
        world.idle().await;
        for &reader in &readers {
            assert_eq!(world.user(reader).unread_total().await, 30, "reader {reader}");
            assert_eq!(world.user(reader).feed_ids().await.len(), 30);
        }
        for seq in 1..=30 {
            let delivery = world.user(99).get(&format!("/v1/posts/99-{seq}/delivery")).await.ok();
            assert_eq!((&delivery["state"], &delivery["delivered"]), (&"done".into(), &40.into()));
        }
    });
}

/// The folder of the functions' binaries. `make test` builds them before this test runs.
pub(crate) fn binaries() -> std::path::PathBuf {
    let test = std::env::current_exe().unwrap();
    let dir = test.parent().and_then(|deps| deps.parent()).unwrap().to_owned();
    assert!(dir.join("fan-out").is_file(), "build the function first: cargo build -p tidemark-fan-out");
    dir
}
