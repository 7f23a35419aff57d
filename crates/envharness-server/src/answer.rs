//! HTTP responses.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

/// The body of every response.
pub type Body = BoxBody<Bytes, hyper::Error>;

/// A whole body.
pub fn body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// A response with a type.
pub fn typed(status: StatusCode, kind: &'static str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(body(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// JSON text.
pub fn json_text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    typed(status, "application/json", text)
}

/// A JSON value.
pub fn json_value(status: StatusCode, value: &Value) -> Response<Body> {
    json_text(status, value.to_string())
}

/// `{"detail": …}`, as FastAPI tells errors.
pub fn detail(status: StatusCode, detail: impl Into<Value>) -> Response<Body> {
    json_value(status, &json!({"detail": detail.into()}))
}

/// `{"detail": …}` of JSON text.
pub fn detail_text(status: StatusCode, items: &[u8]) -> Response<Body> {
    json_text(status, [b"{\"detail\":", items, b"}"].concat())
}

/// An unknown path.
pub fn not_found() -> Response<Body> {
    detail(StatusCode::NOT_FOUND, "Not Found")
}

/// A known path with another method.
pub fn not_allowed(methods: &'static str) -> Response<Body> {
    let mut response = detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

/// What Starlette says when the environment raises.
pub fn internal_error() -> Response<Body> {
    typed(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", "Internal Server Error")
}
