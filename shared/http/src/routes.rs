//! The routes of all functions, their query parameters and the fields of their bodies. `routes.txt` is generated from
//! the functions' own routes.
//!
//! One function responds to requests that no route matches, so it has to know the routes of the others.

use std::{collections::HashMap, sync::LazyLock};

use percent_encoding::percent_decode_str;

/// The route key of an event that no route matches, and of every event of `cargo lambda`.
pub(crate) const DEFAULT: &str = "$default";

/// A line of `routes.txt`: `GET /v1/users user* profiles` or `POST /v1/lists .name`. A `*` marks a parameter that may
/// be repeated, a dot a field of the body.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Method and path: `GET /v1/posts/{post}`.
    pub(crate) key: &'static str,
    method: &'static str,
    path: &'static str,
    /// The query parameters, and whether each may be repeated.
    pub(crate) parameters: Vec<(&'static str, bool)>,
    /// The fields of the body; empty if the route takes none.
    pub(crate) fields: Vec<&'static str>,
}

/// All routes. Literal segments come before parameters, as in API Gateway.
static TABLE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let lines = include_str!("routes.txt").lines().filter(|line| !line.starts_with('#'));
    let mut entries: Vec<Entry> = lines.filter_map(entry).collect();
    entries.sort_by_cached_key(|entry| entry.path.split('/').map(|part| name(part).is_some()).collect::<Vec<_>>());
    entries
});

fn entry(line: &'static str) -> Option<Entry> {
    let (method, rest) = line.split_once(' ')?;
    let path = rest.split(' ').next()?;
    let parameter = |text: &'static str| text.strip_suffix('*').map_or((text, false), |name| (name, true));
    let (fields, parameters): (Vec<&str>, Vec<&str>) = rest.split(' ').skip(1).partition(|word| word.starts_with('.'));
    let parameters = parameters.into_iter().map(parameter).collect();
    let fields = fields.into_iter().map(|field| &field[1..]).collect();
    Some(Entry { key: &line[..method.len() + 1 + path.len()], method, path, parameters, fields })
}

/// The name of a path parameter.
fn name(part: &str) -> Option<&str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

impl Entry {
    /// The decoded path parameters of this path; `None` if the path does not match.
    fn parameters_in(&self, path: &str) -> Option<HashMap<String, String>> {
        let (own, given) = (self.path.split('/'), path.split('/'));
        if own.clone().count() != given.clone().count() {
            return None;
        }
        let mut parameters = HashMap::new();
        for (own, given) in own.zip(given) {
            match name(own) {
                Some(name) if !given.is_empty() => {
                    parameters.insert(name.to_owned(), percent_decode_str(given).decode_utf8_lossy().into_owned());
                }
                None if own == given => {}
                _ => return None,
            }
        }
        Some(parameters)
    }
}

pub(crate) fn of_key(key: &str) -> Option<&'static Entry> {
    TABLE.iter().find(|entry| entry.key == key)
}

/// The route of a request and its path parameters.
pub(crate) fn find(method: &str, path: &str) -> Option<(&'static Entry, HashMap<String, String>)> {
    let mut entries = TABLE.iter().filter(|entry| entry.method == method);
    entries.find_map(|entry| Some((entry, entry.parameters_in(path)?)))
}

/// The methods of a path, sorted.
pub(crate) fn methods(path: &str) -> Vec<&'static str> {
    let entries = TABLE.iter().filter(|entry| entry.parameters_in(path).is_some());
    let mut methods: Vec<&str> = entries.map(|entry| entry.method).collect();
    methods.sort_unstable();
    methods.dedup();
    methods
}

/// The path that the client probably meant: with `/v1`, without empty segments.
pub(crate) fn similar(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.first() != Some(&"v1") {
        parts.insert(0, "v1");
    }
    let path = format!("/{}", parts.join("/"));
    (!methods(&path).is_empty()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(method: &str, path: &str) -> Option<&'static str> {
        find(method, path).map(|(entry, _)| entry.key)
    }

    #[test]
    fn literal_segments_win_over_parameters_and_parameters_are_decoded() {
        assert_eq!(key("GET", "/v1/notices/unread"), Some("GET /v1/notices/unread"));
        assert_eq!(key("GET", "/v1/notices/7-1"), Some("GET /v1/notices/{notice}"));
        assert_eq!(key("PUT", "/v1/notices/unread"), Some("PUT /v1/notices/{notice}"));
        assert_eq!(find("GET", "/v1/users/a%2Fb").unwrap().1["user"], "a/b");
        for nothing in ["", "/", "/v1", "/v1/feed/", "//v1/feed", "/v1/users/", "/v1/users//following", "/V1/feed"] {
            assert_eq!(key("GET", nothing), None, "{nothing}");
            assert!(methods(nothing).is_empty(), "{nothing}");
        }
    }

    #[test]
    fn a_path_has_the_methods_of_all_functions() {
        assert_eq!(methods("/v1/posts/1-1"), ["DELETE", "GET", "PUT"]);
        assert_eq!(methods("/v1/posts/1-1/read"), ["DELETE", "PUT"]);
        assert_eq!(methods("/v1/nothing"), [""; 0]);
    }

    #[test]
    fn a_path_that_is_almost_right_is_recognized() {
        for almost in ["/feed", "/v1/feed/", "//v1//feed", "/feed/"] {
            assert_eq!(similar(almost).as_deref(), Some("/v1/feed"), "{almost}");
        }
        assert_eq!(similar("/v1/nothing"), None);
        assert_eq!(similar("/"), None);
    }
}
