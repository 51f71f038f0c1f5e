//! Tokens of an issuer that serves its keys on this machine.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use axum::{Json, Router, http::StatusCode, routing::get};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use tidemark::{
    AuthorizerSettings, Clock,
    domain::Timestamp,
    metrics::{Line, Metrics},
};

use super::*;

const NOW: u64 = 1_800_000_000;

struct Set(AtomicU64);

impl Clock for Set {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.0.load(Ordering::Relaxed) * 1_000)
    }
}

struct Silent;

impl Metrics for Silent {
    fn write(&self, _: &Line) {}
}

struct Issuer {
    url: String,
    pem: String,
    clock: Arc<Set>,
    /// The number of reads of the keys.
    reads: Arc<AtomicU64>,
    is_down: Arc<AtomicBool>,
}

impl Issuer {
    async fn start() -> Self {
        let pair = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
        let key = EncodingKey::from_rsa_pem(pair.serialize_pem().as_bytes()).unwrap();
        let mut jwk = jsonwebtoken::jwk::Jwk::from_encoding_key(&key, Algorithm::RS256).unwrap();
        jwk.common.key_id = Some("k1".to_owned());
        let jwk = json!(jwk);
        let for_another_purpose = [("k3", "use", json!("enc")), ("k4", "key_ops", json!(["encrypt"]))];
        let others = for_another_purpose.map(|(kid, member, value)| changed(&changed(&jwk, "kid", json!(kid)), member, value));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let odd = json!({ "kty": "of another kind", "kid": "k0" });
        let keys = [&[odd], &others[..], &[jwk]].concat();
        let (keys, reads) = (json!({ "keys": keys }), Arc::new(AtomicU64::new(0)));
        let is_down = Arc::new(AtomicBool::new(false));
        let configuration = json!({ "issuer": url, "jwks_uri": format!("{url}keys") });
        let (count, down) = (Arc::clone(&reads), Arc::clone(&is_down));
        let serve_keys = async move || {
            count.fetch_add(1, Ordering::Relaxed);
            if down.load(Ordering::Relaxed) { Err(StatusCode::BAD_GATEWAY) } else { Ok(Json(keys.clone())) }
        };
        let app = Router::new()
            .route("/.well-known/openid-configuration", get(async move || Json(configuration.clone())))
            .route("/keys", get(serve_keys));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, pem: pair.serialize_pem(), clock: Arc::new(Set(AtomicU64::new(NOW))), reads, is_down }
    }

    fn authorizer(&self, scope: Option<&str>) -> Authorizer {
        let settings = AuthorizerSettings {
            issuer: self.url.clone(),
            audiences: vec!["tidemark".to_owned()],
            scope: scope.map(str::to_owned),
            user_claim: "sub".to_owned(),
            metrics_namespace: "Tidemark".to_owned(),
        };
        Authorizer::new(settings, self.clock.clone(), Arc::new(Silent)).unwrap()
    }

    fn claims(&self) -> Value {
        json!({ "iss": self.url, "aud": ["tidemark"], "sub": "7", "exp": NOW + 600, "iat": NOW, "scope": "feed other" })
    }

    fn token(&self, kid: &str, claims: &Value) -> String {
        self.token_with(Header { kid: Some(kid.to_owned()), ..Header::new(Algorithm::RS256) }, claims)
    }

    fn token_with(&self, header: Header, claims: &Value) -> String {
        encode(&header, claims, &EncodingKey::from_rsa_pem(self.pem.as_bytes()).unwrap()).unwrap()
    }
}

fn event(token: &str) -> LambdaEvent<ConnectRequest> {
    let event = json!({ "type": "REQUEST", "methodArn": "arn:x/live/$connect", "queryStringParameters": { "token": token } });
    LambdaEvent::new(serde_json::from_value(event).unwrap(), Context::default())
}

/// The effect of the policy, and the claim.
async fn asked(authorizer: &Authorizer, token: &str) -> (String, Value) {
    let response = handle(authorizer, event(token)).await.unwrap();
    let statement = &response["policyDocument"]["Statement"][0];
    assert_eq!(statement["Resource"], "arn:x/live/$connect");
    (statement["Effect"].as_str().unwrap().to_owned(), response["context"]["claim"].clone())
}

fn denied() -> (String, Value) {
    ("Deny".to_owned(), Value::Null)
}

fn changed(claims: &Value, name: &str, value: Value) -> Value {
    let mut claims = claims.clone();
    claims[name] = value;
    claims
}

#[tokio::test]
async fn a_token_of_the_issuer_is_allowed_and_every_wrong_one_is_denied() {
    let issuer = Issuer::start().await;
    let (authorizer, claims) = (issuer.authorizer(Some("feed")), issuer.claims());
    let good = issuer.token("k1", &claims);
    assert_eq!(asked(&authorizer, &good).await, ("Allow".to_owned(), json!("7")));
    let mut client = changed(&claims, "client_id", json!("tidemark"));
    client.as_object_mut().unwrap().remove("aud");
    assert_eq!(asked(&authorizer, &issuer.token("k1", &client)).await.0, "Allow");
    for (name, value) in [
        ("iss", json!("http://127.0.0.1:1/")),
        ("aud", json!("other")),
        ("aud", Value::Null),
        ("exp", json!(NOW - 61)),
        ("exp", Value::Null),
        ("nbf", json!(NOW + 61)),
        ("iat", json!(NOW + 61)),
        ("scope", json!("feeds")),
        ("sub", Value::Null),
    ] {
        assert_eq!(asked(&authorizer, &issuer.token("k1", &changed(&claims, name, value))).await, denied(), "{name}");
    }
    let other = Issuer::start().await;
    assert_eq!(asked(&authorizer, &other.token("k1", &claims)).await, denied(), "signed by another key");
    let secret = EncodingKey::from_secret(issuer.pem.as_bytes());
    let hmac = Header { kid: Some("k1".to_owned()), ..Header::new(Algorithm::HS256) };
    assert_eq!(asked(&authorizer, &encode(&hmac, &claims, &secret).unwrap()).await, denied(), "HMAC");
    for wrong in ["", "7", "a.b.c", &good[..good.len() - 2]] {
        assert_eq!(asked(&authorizer, wrong).await, denied(), "{wrong}");
    }
}

#[tokio::test]
async fn the_platforms_of_a_token_are_told_with_the_claim() {
    let issuer = Issuer::start().await;
    let authorizer = issuer.authorizer(None);
    for (given, expected) in [
        (json!("7 8"), json!(r#"{"platforms":[7,8],"sub":[7]}"#)),
        (json!([7, "8"]), json!(r#"{"platforms":[7,8],"sub":[7]}"#)),
        (Value::Null, json!(r#"{"sub":[7]}"#)),
    ] {
        let token = issuer.token("k1", &changed(&issuer.claims(), "platforms", given));
        assert_eq!(handle(&authorizer, event(&token)).await.unwrap()["context"], json!({ "claim": "7", "platforms": expected }));
    }
}

#[tokio::test]
async fn a_key_for_another_purpose_verifies_no_token() {
    let issuer = Issuer::start().await;
    let (authorizer, claims) = (issuer.authorizer(None), issuer.claims());
    for kid in ["k3", "k4"] {
        assert_eq!(asked(&authorizer, &issuer.token(kid, &claims)).await, denied(), "{kid}");
    }
    assert_eq!(asked(&authorizer, &issuer.token("k1", &claims)).await.0, "Allow");
}

#[tokio::test]
async fn a_token_with_an_extension_that_must_be_understood_is_denied() {
    let issuer = Issuer::start().await;
    let (authorizer, claims) = (issuer.authorizer(None), issuer.claims());
    for names in [vec!["b64"], vec!["exp"], vec![]] {
        let crit = Some(names.iter().copied().map(str::to_owned).collect());
        let header = Header { kid: Some("k1".to_owned()), crit, ..Header::new(Algorithm::RS256) };
        assert_eq!(asked(&authorizer, &issuer.token_with(header, &claims)).await, denied(), "{names:?}");
    }
}

#[tokio::test]
async fn keys_are_read_once_and_again_for_an_unknown_key_or_after_an_hour() {
    let issuer = Issuer::start().await;
    let (authorizer, claims) = (issuer.authorizer(None), changed(&issuer.claims(), "exp", json!(NOW + 100_000)));
    let (known, unknown) = (issuer.token("k1", &claims), issuer.token("k2", &claims));
    for _ in 0..3 {
        assert_eq!(asked(&authorizer, &known).await.0, "Allow");
        assert_eq!(asked(&authorizer, &unknown).await, denied());
    }
    assert_eq!(issuer.reads.load(Ordering::Relaxed), 1, "an unknown key alone does not read them again at once");
    issuer.clock.0.fetch_add(31, Ordering::Relaxed);
    assert_eq!(asked(&authorizer, &unknown).await, denied());
    assert_eq!(issuer.reads.load(Ordering::Relaxed), 2);
    issuer.clock.0.fetch_add(3_600, Ordering::Relaxed);
    assert_eq!(asked(&authorizer, &known).await.0, "Allow");
    assert_eq!(issuer.reads.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn without_the_keys_no_token_is_allowed_and_the_keys_are_read_every_five_seconds() {
    let issuer = Issuer::start().await;
    let (authorizer, good) = (issuer.authorizer(None), issuer.token("k1", &issuer.claims()));
    issuer.is_down.store(true, Ordering::Relaxed);
    for seconds in [0, 4, 1] {
        issuer.clock.0.fetch_add(seconds, Ordering::Relaxed);
        assert!(handle(&authorizer, event(&good)).await.is_err(), "the failure is visible");
    }
    assert_eq!(issuer.reads.load(Ordering::Relaxed), 2);
    issuer.is_down.store(false, Ordering::Relaxed);
    issuer.clock.0.fetch_add(5, Ordering::Relaxed);
    assert_eq!(asked(&authorizer, &good).await.0, "Allow");
}
