//! `GET /v1/health`.

use serde_json::json;
use tidemark_local::RedisData;
use tidemark_tests::world;

#[test]
fn health_names_unavailable_stores() {
    world(async |world| {
        let anybody = world.stranger(None);
        let well = json!({ "status": "ok", "redis": "ok", "dynamodb": "ok", "sqs": "ok" });
        assert_eq!(anybody.get("/v1/health").await.ok(), well);
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        let ill = json!({ "status": "degraded", "redis": "down", "dynamodb": "ok", "sqs": "ok" });
        assert_eq!(anybody.get("/v1/health").await.ok(), ill);
        world.stack.start_redis().await.unwrap();
        assert_eq!(anybody.get("/v1/health").await.ok(), well);
    });
}
