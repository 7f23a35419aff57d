//! `/mcp`: JSON-RPC for OpenEnv's own clients and for stock clients of the Model Context Protocol, over HTTP and sockets.
//!
//! A stock client begins with `initialize` and is known from then on by its `Mcp-Session-Id` (Streamable HTTP, revision
//! 2025-06-18): it has a session of its own and gets results in the protocol's shape. Any other request is OpenEnv's: a session
//! where `session_id` names one, else an instance that lives for the call.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use envharness_wire::frame::{Answer, Op};
use envharness_wire::rpc::{
    self, AT_CAPACITY, Call, Failure, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR,
};
use envharness_worker::Reply;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use tokio_websockets::CloseCode;

use crate::answer::{Body, body, json_value, typed};
use crate::live::{Ended, Live};
use crate::server::Shared;
use crate::socket::Socket;
use crate::ws::{Heard, Wire};

/// The header that names a session of a stock client.
pub(crate) const SESSION_HEADER: &str = "mcp-session-id";

/// A POST to `/mcp`.
pub(crate) async fn post(shared: &Arc<Shared>, client: IpAddr, headers: &HeaderMap, text: &str) -> Response<Body> {
    let answer = |id: &Value, result| json_value(StatusCode::OK, &rpc::reply(id, result));
    let call = match Call::parse(text, &shared.served().validation.pydantic) {
        Ok(call) => call,
        // Over HTTP the reference does not say where the text breaks.
        // A list is no request to it either, and no batch.
        Err((id, failure)) if failure.code == PARSE_ERROR || !text.trim_start().starts_with('{') => {
            return answer(&id, Err(Failure::new(PARSE_ERROR, "Parse error")));
        }
        Err((id, failure)) => return answer(&id, Err(failure)),
    };
    let id = call.id.clone().unwrap_or(Value::Null);
    let named = headers.get(SESSION_HEADER).and_then(|value| value.to_str().ok());
    if call.method == "initialize" {
        return match Live::open(shared, client, b"").await {
            Err(ended) => answer(&id, Err(refusal(&ended))),
            Ok(live) => {
                live.standard.store(true, Ordering::Relaxed);
                let mut response = answer(&id, Ok(initialize(shared, &call)));
                if let Ok(value) = HeaderValue::from_str(&live.id) {
                    response.headers_mut().insert(SESSION_HEADER, value);
                }
                response
            }
        };
    }
    if call.method.starts_with("notifications/") {
        return typed(StatusCode::ACCEPTED, "application/json", "");
    }
    let Some(named) = named else {
        return answer(&id, call_in(shared, None, client, &call).await);
    };
    match shared.sessions.find(named).filter(|live| live.standard.load(Ordering::Relaxed)) {
        // The protocol's way to have the client initialize anew.
        None => json_value(StatusCode::NOT_FOUND, &rpc::reply(&id, Err(Failure::new(INVALID_PARAMS, format!("Unknown session: {named}"))))),
        Some(live) => {
            live.touch();
            let result = call_in(shared, Some(&live), client, &call).await;
            answer(&id, result.map(|result| rpc::as_standard(&call.method, result)))
        }
    }
}

/// A DELETE of `/mcp`: a stock client ends its session.
pub(crate) fn delete(shared: &Shared, headers: &HeaderMap) -> Response<Body> {
    let named = headers.get(SESSION_HEADER).and_then(|value| value.to_str().ok());
    let live = named.and_then(|id| shared.sessions.find(id)).filter(|live| live.standard.load(Ordering::Relaxed));
    let status = if live.is_some() { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND };
    if let Some(live) = live {
        live.end("its client ended it");
    }
    let mut response = Response::new(body(""));
    *response.status_mut() = status;
    response
}

fn initialize(shared: &Shared, call: &Call) -> Value {
    let asked = call.params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
    let version = rpc::PROTOCOL_VERSIONS.iter().find(|known| **known == asked).unwrap_or(&rpc::PROTOCOL_VERSIONS[0]);
    let served = shared.served();
    json!({"protocolVersion": version, "capabilities": {"tools": {"listChanged": false}},
        "serverInfo": {"name": served.name, "version": served.contract.version}})
}

fn refusal(ended: &Ended) -> Failure {
    let data = ended.more.iter().map(|(key, text)| ((*key).to_owned(), serde_json::from_str(text).unwrap_or(Value::Null)));
    Failure { code: AT_CAPACITY, message: ended.message.clone(), data: Value::Object(data.collect()) }
}

/// One call: in the given session, in the one that `session_id` names, or in an instance of its own.
pub(crate) async fn call_in(shared: &Arc<Shared>, own: Option<&Arc<Live>>, client: IpAddr, call: &Call) -> Result<Value, Failure> {
    let named = call.params.get("session_id").and_then(Value::as_str);
    match call.method.as_str() {
        "ping" => return Ok(json!({})),
        "initialize" => return Ok(initialize(shared, call)),
        "openenv/session/create" => {
            return match own {
                Some(live) => Ok(json!({"session_id": live.id})),
                None => match Live::open(shared, client, b"").await {
                    Ok(live) => Ok(json!({"session_id": live.id})),
                    Err(ended) => Err(refusal(&ended)),
                },
            };
        }
        "openenv/session/close" => {
            let id = named
                .filter(|id| !id.is_empty())
                .ok_or_else(|| Failure::new(INVALID_PARAMS, "Invalid params - 'session_id' is required"))?;
            if own.is_some_and(|live| live.id == id) {
                return Err(Failure::new(INVALID_REQUEST, "Cannot close active WebSocket-managed session via MCP method"));
            }
            let live = shared.sessions.find(id).ok_or_else(|| Failure::new(INVALID_PARAMS, format!("Unknown session_id: {id}")))?;
            if live.attached.load(Ordering::Relaxed) {
                live.closing.store(true, Ordering::Relaxed);
                return Ok(json!({"session_id": id, "closed": false, "closing": true}));
            }
            live.end("its client ended it");
            return Ok(json!({"session_id": id, "closed": true}));
        }
        "tools/list" | "tools/call" => {}
        other => return Err(Failure::new(METHOD_NOT_FOUND, format!("Method not found: {other}"))),
    }
    if call.method == "tools/call" && !call.params.get("name").is_some_and(Value::is_string) {
        return Err(Failure::new(INVALID_PARAMS, "Missing 'name' in params"));
    }
    let mut params = call.params.clone();
    params.remove("session_id");
    let payload = json!({"method": call.method, "params": params}).to_string();
    let live = match (own, named) {
        (Some(live), None) => Some(live.clone()),
        (Some(live), Some(id)) if live.id == id => Some(live.clone()),
        (_, Some(id)) => Some(shared.sessions.find(id).ok_or_else(|| Failure::new(INVALID_PARAMS, format!("Unknown session_id: {id}")))?),
        (None, None) => None,
    };
    let told = |ended: &Ended| Failure::new(INTERNAL_ERROR, format!("{} (code: {})", ended.message, ended.code.name()));
    let reply = match live {
        Some(live) => live.call(Op::Mcp, 0, payload.as_bytes()).await.map_err(|ended| told(&ended))?,
        None => {
            let opened = shared.served().host.open_passing().await;
            let mut session = opened.map_err(|failure| told(&Ended::of(failure, None)))?;
            session.call(Op::Mcp, 0, payload.as_bytes()).await.map_err(|failure| told(&Ended::of(failure, None)))?
        }
    };
    result_of(&reply)
}

fn result_of(reply: &Reply) -> Result<Value, Failure> {
    let value: Value = serde_json::from_slice(&reply.payload).map_err(|error| Failure::new(INTERNAL_ERROR, error.to_string()))?;
    match reply.kind {
        Answer::Ok => Ok(value),
        Answer::Invalid => Err(Failure::new(INVALID_PARAMS, value.to_string())),
        _ => Err(Failure::new(INTERNAL_ERROR, value["message"].as_str().unwrap_or_default())),
    }
}

/// `WS /mcp`: a session on a socket that speaks bare JSON-RPC.
pub(crate) async fn serve(shared: Arc<Shared>, socket: Socket, client: IpAddr) {
    let mut wire = Wire::new(&shared, socket);
    let live = match wire.during(Live::open(&shared, client, b"")).await {
        None => return,
        Some(Ok(live)) => live,
        Some(Err(ended)) => {
            wire.send(rpc::reply(&Value::Null, Err(refusal(&ended))).to_string().into_bytes()).await;
            return wire.close(CloseCode::NORMAL_CLOSURE, "").await;
        }
    };
    live.attached.store(true, Ordering::Relaxed);
    loop {
        let heard = tokio::select! {
            heard = wire.next() => heard,
            death = live.died() => {
                let ended = Ended::of(envharness_worker::Failure::Died(death), Some(&live.id));
                let failure = Failure::new(INTERNAL_ERROR, format!("{} (code: {})", ended.message, ended.code.name()));
                wire.send(rpc::reply(&Value::Null, Err(failure)).to_string().into_bytes()).await;
                live.end("its worker has ended");
                return wire.close(CloseCode::INTERNAL_SERVER_ERROR, ended.code.name()).await;
            }
        };
        let message = match heard {
            Heard::Message(message) => message,
            Heard::Poked if shared.draining() => break,
            Heard::Poked => continue,
            Heard::Gone => break,
        };
        let (id, result) = match Call::parse(message.as_text().unwrap_or_default(), &live.served.validation.pydantic) {
            Err((id, failure)) => (id, Err(failure)),
            Ok(call) if call.method.starts_with("notifications/") && call.id.is_none() => continue,
            Ok(call) => {
                let id = call.id.clone().unwrap_or(Value::Null);
                match wire.during(call_in(&shared, Some(&live), client, &call)).await {
                    Some(result) => (id, result),
                    None => break,
                }
            }
        };
        if !wire.send(rpc::reply(&id, result).to_string().into_bytes()).await {
            break;
        }
    }
    live.end("its socket has ended");
    wire.close(CloseCode::NORMAL_CLOSURE, "").await;
}
