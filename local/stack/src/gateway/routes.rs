//! Matches requests to routes as API Gateway does: the most specific path wins, literal segments before parameters.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use crate::template::{EventSource, HttpRoute, Template};

#[derive(Clone, Debug)]
enum Segment {
    Literal(String),
    Parameter(String),
    /// `{name+}` matches this segment and all that follow.
    Greedy(String),
}

impl Segment {
    fn parse(text: &str) -> Self {
        match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some(name) => match name.strip_suffix('+') {
                Some(name) => Self::Greedy(name.to_owned()),
                None => Self::Parameter(name.to_owned()),
            },
            None => Self::Literal(text.to_owned()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Literal(_) => 0,
            Self::Parameter(_) => 1,
            Self::Greedy(_) => 2,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) http: HttpRoute,
    /// The function's logical id.
    pub(crate) function: String,
    segments: Vec<Segment>,
}

impl Route {
    /// The route in the form `PUT /v1/following/{author}`, or `$default`.
    pub(crate) fn key(&self) -> String {
        let HttpRoute { method, path, .. } = &self.http;
        if path == DEFAULT { DEFAULT.to_owned() } else { format!("{method} {path}") }
    }
}

/// The path of the route that matches what no other route matches.
const DEFAULT: &str = "$default";

#[derive(Debug, Default)]
pub(crate) struct Routes(Vec<Route>);

impl Routes {
    /// Collects the routes of a template. Fails if two functions own the same route.
    pub(crate) fn of(template: &Template) -> Result<Self> {
        Self::collect(template.sources().filter_map(|(function, source)| match source {
            EventSource::Http(route) => Some((function.logical_id.as_str(), route)),
            _ => None,
        }))
    }

    fn collect<'a>(list: impl Iterator<Item = (&'a str, &'a HttpRoute)>) -> Result<Self> {
        let mut routes = Self::default();
        for (function, route) in list {
            routes.add(function, route)?;
        }
        // The most specific path comes first. Paths are compared segment by segment.
        routes.0.sort_by_cached_key(|route| route.segments.iter().map(Segment::rank).collect::<Vec<_>>());
        Ok(routes)
    }

    fn add(&mut self, function: &str, route: &HttpRoute) -> Result<()> {
        let segments: Vec<Segment> = route.path.split('/').map(Segment::parse).collect();
        let shape = |segments: &[Segment]| -> Vec<Option<String>> {
            segments.iter().map(|segment| if let Segment::Literal(text) = segment { Some(text.clone()) } else { None }).collect()
        };
        if let Some(other) =
            self.0.iter().find(|other| other.http.method == route.method && shape(&other.segments) == shape(&segments))
        {
            bail!("resources `{}` and `{function}` both serve {} {}", other.function, route.method, route.path);
        }
        self.0.push(Route { http: route.clone(), function: function.to_owned(), segments });
        Ok(())
    }

    /// The route of a request and its decoded path parameters.
    pub(crate) fn find(&self, method: &str, path: &str) -> Option<(&Route, BTreeMap<String, String>)> {
        let given: Vec<&str> = path.split('/').collect();
        let serves = |route: &&Route| route.http.method == method || route.http.method == "ANY";
        let mut exact = self.0.iter().filter(|route| route.http.path != DEFAULT).filter(serves);
        let found = exact.find_map(|route| Some((route, parameters(&route.segments, &given)?)));
        found.or_else(|| Some((self.0.iter().find(|route| route.http.path == DEFAULT)?, BTreeMap::new())))
    }
}

fn parameters(segments: &[Segment], given: &[&str]) -> Option<BTreeMap<String, String>> {
    let mut out = BTreeMap::new();
    for (index, segment) in segments.iter().enumerate() {
        let part = given.get(index)?;
        match segment {
            Segment::Literal(text) if text == part => {}
            Segment::Literal(_) => return None,
            Segment::Parameter(_) | Segment::Greedy(_) if part.is_empty() => return None,
            Segment::Parameter(name) => {
                out.insert(name.clone(), decode(part));
            }
            Segment::Greedy(name) => {
                out.insert(name.clone(), decode(&given[index..].join("/")));
                return Some(out);
            }
        }
    }
    (given.len() == segments.len()).then_some(out)
}

/// Decodes percent-encoding. Leaves an invalid encoding unchanged.
fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: &str, path: &str) -> HttpRoute {
        HttpRoute { method: method.to_owned(), path: path.to_owned(), authorized: true, scopes: Vec::new() }
    }

    fn routes(list: &[(&str, &str)]) -> Routes {
        let list: Vec<HttpRoute> = list.iter().map(|(method, path)| route(method, path)).collect();
        Routes::collect(list.iter().map(|route| ("F", route))).unwrap()
    }

    fn key(routes: &Routes, method: &str, path: &str) -> String {
        let found = routes.find(method, path);
        found.map_or_else(|| "none".to_owned(), |(route, parameters)| format!("{} {parameters:?}", route.key()))
    }

    #[test]
    fn literal_segments_win_over_parameters() {
        let routes = routes(&[
            ("GET", "/v1/notices/{notice}"),
            ("GET", "/v1/notices/unread"),
            ("POST", "/v1/notices/reads"),
            ("GET", "/{proxy+}"),
        ]);
        assert_eq!(key(&routes, "GET", "/v1/notices/unread"), "GET /v1/notices/unread {}");
        assert_eq!(key(&routes, "GET", "/v1/notices/7-1"), r#"GET /v1/notices/{notice} {"notice": "7-1"}"#);
        assert_eq!(key(&routes, "GET", "/v1/notices/reads"), r#"GET /v1/notices/{notice} {"notice": "reads"}"#);
        assert_eq!(key(&routes, "GET", "/v2/a/b"), r#"GET /{proxy+} {"proxy": "v2/a/b"}"#);
    }

    #[test]
    fn the_default_route_gets_what_no_other_route_matches() {
        let list = [("PUT", "/v1/following/{author}"), ("POST", "/v1/following")];
        let (without, with) = (routes(&list), routes(&[&list[..], &[("ANY", "$default")]].concat()));
        for (method, path) in [("GET", "/v1/following/5"), ("PUT", "/v1/following/"), ("PUT", "/v1/following/5/6"), ("GET", "/")]
        {
            assert_eq!(key(&without, method, path), "none", "{method} {path}");
            assert_eq!(key(&with, method, path), "$default {}", "{method} {path}");
        }
        assert_eq!(key(&with, "PUT", "/v1/following/5"), r#"PUT /v1/following/{author} {"author": "5"}"#);
    }

    #[test]
    fn parameters_are_decoded() {
        let routes = routes(&[("GET", "/a/{x}")]);
        assert_eq!(key(&routes, "GET", "/a/b%2Fc+d%zz"), r#"GET /a/{x} {"x": "b/c+d%zz"}"#);
    }

    #[test]
    fn one_route_has_one_owner() {
        let mut routes = routes(&[("GET", "/a/{x}")]);
        assert!(routes.add("G", &route("GET", "/a/{y}")).is_err());
    }
}
