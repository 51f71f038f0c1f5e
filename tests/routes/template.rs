//! The template and the functions agree on the routes, both ways.

use std::collections::BTreeSet;

use tidemark_tests::repository;

/// Every route in the template, as `METHOD /path`.
fn routes_of_template() -> BTreeSet<String> {
    let text = std::fs::read_to_string(repository().join("template.yaml")).unwrap();
    let mut routes = BTreeSet::new();
    for line in text.lines().filter(|line| line.contains("Type: HttpApi,")) {
        let after = |name: &str| {
            let rest = line.split(&format!("{name}: ")).nth(1).unwrap();
            rest.trim_start_matches('"').split(['"', ',', '}']).next().unwrap().to_owned()
        };
        let path = if line.contains("Path: \"") {
            line.split("Path: \"").nth(1).unwrap().split('"').next().unwrap().to_owned()
        } else {
            after("Path")
        };
        assert!(routes.insert(format!("{} {path}", after("Method"))), "{line}");
    }
    routes
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
    let routes: BTreeSet<String> = functions.into_iter().flatten().map(|route| (*route).to_owned()).collect();
    assert_eq!(routes, routes_of_template());
}
