//! Routes and their operations in `openapi.yaml`. A function declares its routes with [`routes!`](crate::routes!).

use serde_json::{Value, json};
use tidemark_app::ErasedCallers;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema, schema::AdditionalProperties},
};

use crate::{
    Kind, Policy,
    problem::{GatewayMessage, ProblemDetails},
};

pub struct Route {
    /// Method and path, as in `template.yaml`: `GET /v1/posts/{post}`.
    pub key: &'static str,
    pub policy: Policy,
    /// An Operation Object of OpenAPI. Parameters, headers and shared responses are in `shared/http/openapi.base.yaml`.
    pub operation: Value,
    pub schemas: Schemas,
}

pub type Schemas = Vec<(String, RefOr<Schema>)>;

/// Builds the operation of a route. It begins with the responses that every route may return; each method adds what
/// follows from its name.
#[must_use]
pub struct Operation {
    object: Value,
    parameters: Vec<Value>,
    success: &'static str,
    schemas: Schemas,
}

pub fn operation(tag: &str, id: &str, summary: &str) -> Operation {
    let mut object = json!({ "tags": [tag], "operationId": id, "summary": summary });
    for (status, response) in [("401", "Unauthorized"), ("429", "TooManyRequests"), ("500", "Internal"), ("503", "Unavailable")] {
        object["responses"][status] = reference("responses", response);
    }
    object["responses"]["403"] = reference("responses", "Erased");
    let schemas = vec![(GatewayMessage::name().into_owned(), GatewayMessage::schema())];
    Operation { object, parameters: Vec::new(), success: "200", schemas }
}

impl Operation {
    pub fn describe(mut self, text: &str) -> Self {
        self.object["description"] = json!(text);
        self
    }

    /// 200 with this body.
    pub fn returns<T: ToSchema>(self, description: &str) -> Self {
        self.success::<T>("200", description)
    }

    /// 201 with this body.
    pub fn creates<T: ToSchema>(self, description: &str) -> Self {
        self.success::<T>("201", description)
    }

    /// 202 with this body.
    pub fn accepted<T: ToSchema>(self, description: &str) -> Self {
        self.success::<T>("202", description)
    }

    pub fn no_content(self, description: &str) -> Self {
        self.without_body("204", description)
    }

    /// 200 without a body.
    pub fn empty(self, description: &str) -> Self {
        self.without_body("200", description)
    }

    fn without_body(mut self, status: &'static str, description: &str) -> Self {
        self.success = status;
        self.object["responses"][status] = json!({ "description": description });
        self
    }

    /// Takes this body, without further fields. 413 if it is too large.
    pub fn accepts<T: ToSchema>(mut self) -> Self {
        let others = self.schemas.len();
        self.object["requestBody"] = json!({ "required": true, "content": { "application/json": self.schema::<T>() } });
        self.schemas[others..].iter_mut().for_each(|(_, schema)| close(schema));
        self.responds("413", "BodyTooLarge")
    }

    /// Takes this body, or none.
    pub fn may_accept<T: ToSchema>(self) -> Self {
        let mut operation = self.accepts::<T>();
        operation.object["requestBody"]["required"] = json!(false);
        operation
    }

    /// Takes these parameters of `shared/http/openapi.base.yaml`.
    pub fn parameters<const N: usize>(mut self, names: [&str; N]) -> Self {
        self.parameters.extend(names.map(|name| reference("parameters", name)));
        self
    }

    /// A header of `shared/http/openapi.base.yaml` in the response.
    pub fn header(mut self, name: &str, component: &str) -> Self {
        self.object["responses"][self.success]["headers"][name] = reference("headers", component);
        self
    }

    pub fn page(self) -> Self {
        self.parameters(["limit", "cursor"]).header("Link", "Link")
    }

    /// The response has an `ETag`, by this header of `shared/http/openapi.base.yaml`. 304 if the client has it already.
    pub fn tagged(self, component: &str) -> Self {
        self.parameters(["If-None-Match"]).header("ETag", component).responds("304", "NotModified")
    }

    pub fn idempotent(self) -> Self {
        let keyed = self.parameters(["Idempotency-Key"]).responds("409", "InFlight");
        keyed.refuses(Kind::KeyReused, "the key was used with another body")
    }

    /// A response of `shared/http/openapi.base.yaml`.
    pub fn responds(mut self, status: &str, component: &str) -> Self {
        self.object["responses"][status] = reference("responses", component);
        self
    }

    /// A problem that only some routes have, and the reason for it.
    pub fn refuses(mut self, kind: Kind, reason: &str) -> Self {
        let content = json!({ "application/problem+json": self.schema::<ProblemDetails>() });
        let response = &mut self.object["responses"][kind.status().to_string()];
        let before = match response["description"].as_str() {
            Some(text) => format!("{text} "),
            None if kind.status() == 403 => "`erased`: the caller has asked to leave. ".to_owned(),
            None => String::new(),
        };
        *response = json!({ "description": format!("{before}`{}`: {reason}.", kind.slug()), "content": content });
        self
    }

    /// The author's posts may be kept from the caller.
    pub fn of_author(self) -> Self {
        self.refuses(Kind::Blocked, "the author blocks the caller").refuses_strangers()
    }

    /// The author may be private.
    pub fn refuses_strangers(self) -> Self {
        self.refuses(Kind::Private, "the author is private, and the caller is not an accepted follower")
    }

    /// A value of the request or the response, by a runtime expression, is a parameter of these operations.
    pub fn links<const N: usize>(mut self, operations: [&str; N], parameter: &str, expression: &str) -> Self {
        for operation in operations {
            let link = json!({ "operationId": operation, "parameters": { parameter: expression } });
            self.object["responses"][self.success]["links"][operation] = link;
        }
        self
    }

    /// Adds what follows from the path, its parameters, and from the policy. Every route may return 400, for an unknown
    /// parameter. A route that needs an identity asks Redis whether the caller may call, so its response may be
    /// degraded.
    pub fn at(mut self, key: &'static str, policy: Policy) -> Route {
        let inside = key.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        self.parameters.splice(..0, inside.map(|name| reference("parameters", name)));
        self = self.responds("400", "InvalidRequest");
        self = match (policy.budget, policy.scope, policy.erased) {
            (None, ..) => {
                self.object["security"] = json!([]);
                self.without(&["401", "403", "503"])
            }
            (Some(_), Some(scope), _) => {
                self.object["security"] = json!([{ "Jwt": [scope] }]);
                self.responds("403", "Forbidden").header("Degraded", "Degraded")
            }
            (Some(_), None, ErasedCallers::Allowed) => self.without(&["403"]).header("Degraded", "Degraded"),
            (Some(_), None, ErasedCallers::Refused) => self.header("Degraded", "Degraded"),
        };
        if !self.parameters.is_empty() {
            self.object["parameters"] = json!(self.parameters);
        }
        Route { key, policy, operation: self.object, schemas: self.schemas }
    }

    fn without(mut self, statuses: &[&str]) -> Self {
        if let Some(responses) = self.object["responses"].as_object_mut() {
            responses.retain(|status, _| !statuses.contains(&status.as_str()));
        }
        self
    }

    fn success<T: ToSchema>(mut self, status: &'static str, description: &str) -> Self {
        self.success = status;
        let content = json!({ "application/json": self.schema::<T>() });
        self.object["responses"][status] = json!({ "description": description, "content": content });
        self
    }

    fn schema<T: ToSchema>(&mut self) -> Value {
        T::schemas(&mut self.schemas);
        self.schemas.push((T::name().into_owned(), T::schema()));
        json!({ "schema": reference("schemas", &T::name()) })
    }
}

/// Says of an object with properties that it has no others.
fn close(schema: &mut RefOr<Schema>) {
    if let RefOr::T(Schema::Object(object)) = schema
        && !object.properties.is_empty()
    {
        object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
    }
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

/// Declares the routes of a function: method and path, the policy, the call of the handler, and the operation.
///
/// It defines `handle`, which calls the handler of the event's route under the route's policy, and `routes`, which only
/// tests call. A test compares the routes with `template.yaml` and the operations with `openapi.yaml`.
#[macro_export]
macro_rules! routes {
    (|$app:ident: &$App:ty, $request:ident| [$(($key:literal, $policy:expr, $call:expr, $operation:expr $(,)?)),* $(,)?]) => {
        pub fn routes() -> Vec<$crate::Route> {
            vec![$($operation.at($key, $policy)),*]
        }

        /// Handles one request. A failure is a response.
        pub async fn handle($app: &$App, event: $crate::Event) -> Result<$crate::GatewayResponse, std::convert::Infallible> {
            let policy_of = |route: &str| match route {
                $($key => Some($policy),)*
                _ => None,
            };
            Ok($crate::serve(&$app.admission, &$app.stores.recorder, event, policy_of, async |$request| match $request.route() {
                $($key => $call.await,)*
                route => Err($crate::Problem::of_another_function(route)),
            })
            .await)
        }
    };
}
