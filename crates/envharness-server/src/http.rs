//! The HTTP routes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use envharness_wire::frame::{Answer, HTTP_SHAPE, Op};
use envharness_wire::handshake::accept_for;
use envharness_wire::json::{JsonError, Outer, scan};
use envharness_wire::v1::PROTOCOL;
use http::header::{
    CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::answer::{Body, body, detail, detail_text, internal_error, json_text, json_value, not_allowed, not_found, typed};
use crate::config::RunMode;
use crate::doors::protocols;
use crate::live::Ended;
use crate::server::Shared;
use crate::socket::Socket;
use crate::{mcp, pages, tasks, trunk, ws};

/// The header with the contract's digest.
const CONTRACT_HEADER: &str = "x-envharness-contract";
/// How long a request's body may take.
const BODY_TAKES: Duration = Duration::from_secs(30);

/// Answers one request.
pub(crate) async fn answer(shared: Arc<Shared>, peer: IpAddr, request: Request<Incoming>) -> Response<Body> {
    let client = client_of(&shared, peer, request.headers());
    if let Err((status, reason)) = shared.config.doors.check(request.uri().path(), request.headers()) {
        tracing::warn!(%client, path = request.uri().path(), status = status.as_u16(), "refused: {reason}");
        shared.metrics.error("REFUSED");
        let mut response = detail(status, reason);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer, Basic realm=\"envharness\""));
        }
        return response;
    }
    if let Some(upstream) = &shared.upstream {
        return upstream.pass(request, &shared).await;
    }
    if is_upgrade(request.headers()) && matches!(request.uri().path(), "/ws" | "/mcp") {
        return upgrade(&shared, client, request);
    }
    route(&shared, client, request).await
}

/// The client behind a trusted proxy, else the peer.
fn client_of(shared: &Shared, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    if !shared.config.trusted_proxies.contains(&peer) {
        return peer;
    }
    let chain = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let hops: Vec<IpAddr> = chain.flat_map(|value| value.split(',')).filter_map(|hop| hop.trim().parse().ok()).collect();
    hops.into_iter().rev().find(|hop| !shared.config.trusted_proxies.contains(hop)).unwrap_or(peer)
}

async fn route(shared: &Arc<Shared>, client: IpAddr, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let get = method == Method::GET || method == Method::HEAD;
    let play = shared.config.mode == RunMode::Simulation;
    match parts.as_slice() {
        ["health"] if get => json_value(StatusCode::OK, &json!({"status": "healthy"})),
        ["ready"] if get => ready(shared),
        ["metadata"] if get => metadata(shared).await,
        ["schema"] if get => with_digest(shared, json_text(StatusCode::OK, shared.served().schema.clone())),
        ["contract"] if get => with_digest(shared, json_text(StatusCode::OK, shared.served().contract.to_text())),
        ["metrics"] if get => {
            let text = shared.metrics.text(Some(&shared.served().host));
            typed(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text)
        }
        ["list_environments"] if get => json_value(StatusCode::OK, &json!([shared.served().name])),
        ["openapi.json"] if get => json_value(StatusCode::OK, &pages::openapi(shared)),
        ["docs" | "redoc"] if get => typed(StatusCode::OK, "text/html; charset=utf-8", pages::docs(shared)),
        ["state"] if play && get => once(shared, Op::State, b"").await,
        ["reset" | "step"] if play && method == Method::POST => {
            let op = if parts[0] == "reset" { Op::Reset } else { Op::Step };
            let is_json = says_json(request.headers());
            match text_of(shared, request).await {
                Ok(text) if !(is_json || text.is_empty() && op == Op::Reset) => not_typed(&text),
                Ok(text) => play_once(shared, op, &text).await,
                Err(refusal) => refusal,
            }
        }
        ["mcp"] if method == Method::POST => {
            let headers = request.headers().clone();
            match text_of(shared, request).await {
                Ok(text) => mcp::post(shared, client, &headers, &text).await,
                Err(refusal) => refusal,
            }
        }
        ["mcp"] if method == Method::DELETE => mcp::delete(shared, request.headers()),
        [env, "splits"] if get => tasks::splits(shared, env).await,
        [env, name] if method == Method::POST && tasks::route(name).is_some() => {
            let (env, name) = ((*env).to_owned(), (*name).to_owned());
            let is_json = says_json(request.headers());
            match (tasks::route(&name), text_of(shared, request).await) {
                (_, Ok(text)) if !is_json => not_typed(&text),
                (Some(fields), Ok(text)) => tasks::post(shared, &env, &name, fields, &text).await,
                (_, Err(refusal)) => refusal,
                (None, _) => not_found(),
            }
        }
        ["health" | "ready" | "metadata" | "schema" | "contract" | "metrics" | "list_environments" | "openapi.json" | "docs" | "redoc"] => {
            not_allowed("GET")
        }
        ["state"] if play => not_allowed("GET"),
        ["reset" | "step"] if play => not_allowed("POST"),
        ["mcp"] => not_allowed("POST, DELETE"),
        [_, "splits"] => not_allowed("GET"),
        [_, name] if tasks::route(name).is_some() => not_allowed("POST"),
        _ => not_found(),
    }
}

fn ready(shared: &Shared) -> Response<Body> {
    let (active, most) = shared.served().host.capacity();
    let status = if shared.draining() { "draining" } else { "ready" };
    let code = if shared.draining() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    json_value(
        code,
        &json!({"status": status, "active_sessions": active, "max_sessions": most, "free_sessions": most.saturating_sub(active)}),
    )
}

fn with_digest(shared: &Shared, mut response: Response<Body>) -> Response<Body> {
    if let Ok(value) = HeaderValue::from_str(&shared.served().digest) {
        response.headers_mut().insert(CONTRACT_HEADER, value);
    }
    response
}

/// The environment's own words, asked once.
async fn metadata(shared: &Arc<Shared>) -> Response<Body> {
    let served = shared.served();
    let asked = served.metadata.get_or_try_init(|| async {
        match served.host.ask(Op::Metadata, b"").await {
            Ok(reply) if reply.kind == Answer::Ok => Ok(reply.payload),
            Ok(reply) => {
                tracing::warn!("the environment's metadata cannot be had: {}", String::from_utf8_lossy(&reply.payload));
                Err(internal_error())
            }
            Err(failure) => Err(unavailable(&Ended::of(failure, None))),
        }
    });
    match asked.await {
        Ok(bytes) => json_text(StatusCode::OK, bytes.clone()),
        Err(response) => response,
    }
}

/// The body as text, within the limits.
async fn text_of(shared: &Shared, request: Request<Incoming>) -> Result<String, Response<Body>> {
    let limit = shared.config.most_message;
    let collected = tokio::time::timeout(BODY_TAKES, Limited::new(request.into_body(), limit).collect()).await;
    let bytes = match collected {
        Err(_) => return Err(detail(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return Err(detail(StatusCode::PAYLOAD_TOO_LARGE, format!("a message has at most {limit} bytes")));
        }
        Ok(Err(_)) => return Err(detail(StatusCode::BAD_REQUEST, "the body could not be read")),
        Ok(Ok(collected)) => collected.to_bytes(),
    };
    String::from_utf8(bytes.to_vec()).map_err(|_| detail(StatusCode::BAD_REQUEST, "There was an error parsing the body"))
}

/// The refusal of a body that is not JSON, in FastAPI's shape.
pub(crate) fn not_json(error: &JsonError) -> Response<Body> {
    let item = json!([{"type": "json_invalid", "loc": ["body", error.position], "msg": "JSON decode error", "input": {}, "ctx": {"error": error.reason}}]);
    detail_text(StatusCode::UNPROCESSABLE_ENTITY, item.to_string().as_bytes())
}

/// Whether a body says that it is JSON. A web page can send any other type across origins without asking.
fn says_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// The refusal of a body that does not say what it is, as FastAPI has it.
fn not_typed(text: &str) -> Response<Body> {
    let item = if text.is_empty() {
        json!([{"type": "missing", "loc": ["body"], "msg": "Field required", "input": null}])
    } else {
        json!([{"type": "model_attributes_type", "loc": ["body"],
            "msg": "Input should be a valid dictionary or object to extract fields from", "input": text}])
    };
    detail_text(StatusCode::UNPROCESSABLE_ENTITY, item.to_string().as_bytes())
}

async fn play_once(shared: &Arc<Shared>, op: Op, text: &str) -> Response<Body> {
    if text.is_empty() && op == Op::Step {
        let item = json!([{"type": "missing", "loc": ["body"], "msg": "Field required", "input": null}]);
        return detail_text(StatusCode::UNPROCESSABLE_ENTITY, item.to_string().as_bytes());
    }
    if !text.is_empty() {
        match scan(text) {
            Err(error) => return not_json(&error),
            Ok(Outer::Other("null")) if op == Op::Reset => return once(shared, op, b"").await,
            Ok(_) => {}
        }
    }
    once(shared, op, text.as_bytes()).await
}

/// One call to an instance of its own, as the reference has it: HTTP has no sessions.
async fn once(shared: &Arc<Shared>, op: Op, payload: &[u8]) -> Response<Body> {
    let Ok(_passing) = shared.passing.acquire().await else { return internal_error() };
    let mut session = match shared.served().host.open_passing().await {
        Ok(session) => session,
        Err(envharness_worker::Failure::Factory(payload)) => {
            tracing::warn!("the environment could not be made: {}", String::from_utf8_lossy(&payload));
            return internal_error();
        }
        Err(failure) => return unavailable(&Ended::of(failure, None)),
    };
    match session.call(op, HTTP_SHAPE, payload).await {
        Err(failure) => unavailable(&Ended::of(failure, None)),
        Ok(reply) => match reply.kind {
            Answer::Ok => json_text(StatusCode::OK, reply.payload),
            Answer::Invalid => detail_text(StatusCode::UNPROCESSABLE_ENTITY, &reply.payload),
            _ => {
                let told: Value = serde_json::from_slice(&reply.payload).unwrap_or_default();
                let (message, trace) = (told["message"].as_str().unwrap_or_default(), told["traceback"].as_str().unwrap_or_default());
                tracing::warn!(op = ?op, "the environment raised: {message}\n{trace}");
                internal_error()
            }
        },
    }
}

/// A failure of the machinery: never a 200, and told by its code.
pub(crate) fn unavailable(ended: &Ended) -> Response<Body> {
    let status = match ended.code {
        envharness_wire::Code::StepTimeout => StatusCode::GATEWAY_TIMEOUT,
        envharness_wire::Code::FactoryError => StatusCode::INTERNAL_SERVER_ERROR,
        envharness_wire::Code::WorkerDied => StatusCode::BAD_GATEWAY,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    json_value(status, &json!({"detail": ended.message, "code": ended.code.name(), "retryable": ended.code.retryable()}))
}

fn has_token(headers: &HeaderMap, name: http::header::HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case(token))
}

/// Whether a request asks for a WebSocket.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    has_token(headers, CONNECTION, "upgrade") && has_token(headers, UPGRADE, "websocket")
}

/// Agrees to a WebSocket (RFC 6455, section 4.2.2) and starts its session.
fn upgrade(shared: &Arc<Shared>, client: IpAddr, mut request: Request<Incoming>) -> Response<Body> {
    if request.method() != Method::GET {
        return not_allowed("GET");
    }
    if request.headers().get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        let mut response = detail(StatusCode::UPGRADE_REQUIRED, "the version of WebSocket spoken here is 13");
        response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return response;
    }
    let Some(accept) = request.headers().get(SEC_WEBSOCKET_KEY).and_then(|key| accept_for(key.as_bytes())) else {
        return detail(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key is not 16 bytes in base64");
    };
    let mcp = request.uri().path() == "/mcp";
    let offered = |name: &str| protocols(request.headers()).any(|protocol| protocol == name);
    let v1 = !mcp && offered(PROTOCOL);
    let chosen = if v1 { Some(PROTOCOL) } else { offered("openenv").then_some("openenv") };
    let attach = request.uri().query().and_then(session_of);
    let upgraded = hyper::upgrade::on(&mut request);
    let (shared, digest) = (shared.clone(), shared.served().digest.clone());
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let Some(socket) = Socket::of(upgraded) else { return };
        if mcp {
            mcp::serve(shared, socket, client).await;
        } else if v1 {
            trunk::serve(shared, socket, client).await;
        } else {
            ws::serve(shared, socket, client, attach).await;
        }
    });
    let mut response = Response::new(body(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    for (name, value) in [(SEC_WEBSOCKET_ACCEPT, Some(accept.as_str())), (SEC_WEBSOCKET_PROTOCOL, chosen)] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    if let Ok(value) = HeaderValue::from_str(&digest) {
        headers.insert(CONTRACT_HEADER, value);
    }
    response
}

/// The `session_id` of a query, percent-decoding included.
fn session_of(query: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("session_id="))?;
    let mut out = Vec::with_capacity(value.len());
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    let text = String::from_utf8_lossy(&out).into_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_of_queries() {
        assert_eq!(session_of("session_id=zz").as_deref(), Some("zz"));
        assert_eq!(session_of("a=b&session_id=z%20z+").as_deref(), Some("z z "));
        assert_eq!(session_of("session_id="), None);
        assert_eq!(session_of("session_id=%z"), None);
    }
}
