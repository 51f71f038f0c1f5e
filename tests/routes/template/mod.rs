//! Compares the template with the code and the documents: routes here, other checks in the modules below.

mod aws;
mod documents;
mod policies;
mod sums;

use std::collections::BTreeSet;

use tidemark_local::template::{Bindings, EventSource, HttpRoute, Template};
use tidemark_tests::repository;

/// The template as the local stack resolves it, with the default of every parameter.
fn resolved() -> Template {
    Template::load(&repository().join("template.yaml"), &Bindings::default()).unwrap()
}

fn routes(template: &Template) -> Vec<HttpRoute> {
    let events = template.functions.values().flat_map(|function| &function.events);
    let route = |source: &EventSource| match source {
        EventSource::Http(route) => Some(route.clone()),
        EventSource::Sqs(_) | EventSource::Stream(_) | EventSource::Schedule(_) => None,
    };
    events.filter_map(|event| route(&event.source)).collect()
}

#[test]
fn functions_and_template_have_the_same_routes() {
    let of_functions: Vec<&str> = crate::openapi::routes().map(|route| route.key).collect();
    let of_template: Vec<String> = routes(&resolved()).iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    assert_eq!(of_functions.iter().copied().collect::<BTreeSet<_>>(), of_template.iter().map(String::as_str).collect());
    assert_eq!(of_functions.len(), of_template.len(), "each route once");
}

#[test]
fn the_template_resolves_with_every_combination_of_own_resources() {
    let network = [("VpcId", "vpc-1"), ("SubnetIds", "subnet-1,subnet-2")];
    let redis = [("RedisUrl", "rediss://user:secret@redis.example.com:6380"), ("RedisCluster", "true")];
    let others = [("JwtScope", "feed"), ("TableEncryption", "KMS"), ("AlarmEmail", "a@b.c"), ("RedisReplicas", "0")];
    for given in [vec![], network.to_vec(), redis.to_vec(), [network, redis].concat(), others.to_vec()] {
        let parameters = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let bindings = Bindings { parameters, ..Bindings::default() };
        let template = Template::load(&repository().join("template.yaml"), &bindings).unwrap();
        for function in template.functions.values() {
            let url = &function.environment["REDIS_URL"];
            match bindings.parameters.get("RedisUrl") {
                Some(own) => assert_eq!(url, own),
                None => {
                    assert!(url.starts_with("rediss://tidemark:{{resolve:secretsmanager:RedisPassword:SecretString}}@"), "{url}")
                }
            }
            assert_eq!(function.environment["REDIS_CLUSTER"], "true");
        }
    }
}

#[test]
fn only_health_needs_no_authorization_and_no_route_is_a_catch_all() {
    for route in routes(&resolved()) {
        assert_eq!(route.authorized, route.path != "/v1/health", "{} {}", route.method, route.path);
        assert!(route.method != "ANY" && !route.path.contains("+}"), "{} {}", route.method, route.path);
    }
}
