//! The template against the code and the documents: routes, and in the modules below what linters do not see.

mod documents;
mod policies;
mod sums;

use std::collections::BTreeSet;

use tidemark_local::template::{Bindings, EventSource, HttpRoute, Template};
use tidemark_tests::repository;

/// The template as the local stack resolves it, with every parameter's default.
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
    let functions = [
        tidemark_follow::ROUTES,
        tidemark_publish::ROUTES,
        tidemark_read_feed::ROUTES,
        tidemark_mark_read::ROUTES,
        tidemark_notice::ROUTES,
    ];
    let of_functions: BTreeSet<String> = functions.into_iter().flatten().map(|route| (*route).to_owned()).collect();
    let of_template: Vec<String> = routes(&resolved()).iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    assert_eq!(of_functions, of_template.iter().cloned().collect());
    assert_eq!(of_functions.len(), of_template.len(), "no route twice");
}

#[test]
fn nothing_but_health_is_open_to_strangers_and_no_route_catches_others() {
    for route in routes(&resolved()) {
        assert_eq!(route.authorized, route.path != "/v1/health", "{} {}", route.method, route.path);
        assert!(route.method != "ANY" && !route.path.contains("+}"), "{} {}", route.method, route.path);
    }
}
