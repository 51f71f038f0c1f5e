//! The result of one edge, from the response of `POST /v1/following`.

use std::collections::HashMap;

use serde_json::Value;

use crate::api::slug;

/// The result of one edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The request created the edge.
    Made,
    /// The edge existed before.
    Existed,
    /// The API refused the edge, for the reason of this slug. A repetition has the same result.
    Refused(String),
    /// 429 or 503 for this edge. Send it again.
    Busy(String),
    Failed(String),
}

/// Returns one outcome for each requested author, in the same order. A result with `created: false` means that the
/// edge existed; a result without `created` counts as made.
pub(crate) fn read_results(asked: &[u64], body: &Value) -> Vec<Outcome> {
    let results = body["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    let by_author: HashMap<u64, &Value> =
        results.iter().filter_map(|result| Some((result["author"].as_str()?.parse().ok()?, result))).collect();
    let missing = || Outcome::Failed("no result for this author in the response".to_owned());
    asked.iter().map(|author| by_author.get(author).map_or_else(missing, |result| read_result(result))).collect()
}

fn read_result(result: &Value) -> Outcome {
    match &result["error"] {
        Value::Null if result["following"] == true && result["created"] == false => Outcome::Existed,
        Value::Null if result["following"] == true => Outcome::Made,
        Value::Null => Outcome::Failed("not following, and no reason given".to_owned()),
        Value::String(reason) => Outcome::Refused(slug(reason).to_owned()),
        problem => {
            let name = match problem["type"].as_str() {
                Some(kind) => slug(kind).to_owned(),
                None => "without a type".to_owned(),
            };
            match problem["status"].as_u64() {
                Some(status @ (429 | 503)) => Outcome::Busy(format!("{status} {name}")),
                Some(status @ (401 | 403 | 500..)) => Outcome::Failed(format!("{status} {name}")),
                _ => Outcome::Refused(name),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_form_of_a_result_is_parsed() {
        let body = json!({"results": [
            {"author": "6", "following": false, "error": {"type": "/problems/internal", "status": 500}},
            {"author": "1", "following": true, "since": "2026-11-20T08:00:00.123Z", "created": true},
            {"author": "2", "following": true, "created": false},
            {"author": "3", "following": true},
            {"author": "4", "following": false, "error": {"type": "/problems/following-limit", "title": "t", "status": 422, "detail": "d"}},
            {"author": "5", "following": false, "error": "self-follow"},
            {"author": "7", "following": false, "error": {"type": "/problems/unavailable", "status": 503}},
            {"author": "8", "following": false},
        ]});
        assert_eq!(
            read_results(&[1, 2, 3, 4, 5, 6, 7, 8, 9], &body),
            [
                Outcome::Made,
                Outcome::Existed,
                Outcome::Made,
                Outcome::Refused("following-limit".to_owned()),
                Outcome::Refused("self-follow".to_owned()),
                Outcome::Failed("500 internal".to_owned()),
                Outcome::Busy("503 unavailable".to_owned()),
                Outcome::Failed("not following, and no reason given".to_owned()),
                Outcome::Failed("no result for this author in the response".to_owned()),
            ]
        );
    }

    #[test]
    fn an_invalid_response_fails_every_edge() {
        assert!(read_results(&[1, 2], &json!(null)).iter().all(|outcome| matches!(outcome, Outcome::Failed(_))));
    }
}
