//! Plain HTTP requests, and the handshake of a WebSocket.

use bytes::Bytes;
use envharness_wire::handshake::{accept_for, key_of};
use envharness_wire::v1::PROTOCOL;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio_websockets::{ClientBuilder, Config, Limits, WebSocketStream};

use crate::address::Address;
use crate::error::ClientError;
use crate::settings::{Settings, Speech};
use crate::socket::Socket;
use crate::stream::{Stream, dial};

/// The largest page that is read: a contract, a status.
const MOST_PAGE: usize = 16 * 1024 * 1024;

fn connect_error(address: &Address, reason: impl ToString, hint: Option<&str>) -> ClientError {
    ClientError::Connect { address: address.to_string(), reason: reason.to_string(), hint: hint.map(ToOwned::to_owned) }
}

fn request(address: &Address, settings: &Settings, method: Method, path: &str) -> Result<http::request::Builder, ClientError> {
    let mut request = Request::builder().method(method).uri(format!("{}{path}", address.prefix)).header(HOST, address.authority());
    match (&settings.token, &address.basic) {
        (Some(token), _) => request = request.header(AUTHORIZATION, format!("Bearer {token}")),
        (None, Some(basic)) => request = request.header(AUTHORIZATION, basic),
        (None, None) => {}
    }
    for (name, value) in &settings.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) else {
            return Err(connect_error(address, "a header has a character that none may have", None));
        };
        request = request.header(name, value);
    }
    Ok(request)
}

async fn send(address: &Address, settings: &Settings, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
    let stream = dial(address, settings).await?;
    let failed = |error: hyper::Error| connect_error(address, error, None);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.map_err(failed)
}

/// The body of a GET (`body` none) or of a POST of JSON, with its status. An answer to a POST is a message, and may be as long as one.
pub(crate) async fn fetch(address: &Address, settings: &Settings, path: &str, body: Option<Bytes>) -> Result<(u16, Bytes), ClientError> {
    let (method, most) = match body {
        Some(_) => (Method::POST, settings.most_message),
        None => (Method::GET, settings.most_message.min(MOST_PAGE)),
    };
    let mut builder = request(address, settings, method, path)?.header(CONNECTION, "close");
    if body.is_some() {
        builder = builder.header(CONTENT_TYPE, "application/json");
    }
    let request = builder.body(Full::new(body.unwrap_or_default())).map_err(|error| connect_error(address, error, None))?;
    let response = send(address, settings, request).await?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), most).collect().await;
    body.map(|body| (status, body.to_bytes())).map_err(|error| ClientError::Protocol { reason: error.to_string() })
}

/// A WebSocket, and whether `envharness.v1` is spoken on it.
pub(crate) async fn open(address: &Address, settings: &Settings, path: &str) -> Result<(WebSocketStream<Socket>, bool), ClientError> {
    let limit = settings.connect_timeout;
    match tokio::time::timeout(limit, handshake(address, settings, path)).await {
        Ok(opened) => opened,
        Err(_) => Err(connect_error(address, format!("no connection within {} s", limit.as_secs_f64()), None)),
    }
}

async fn handshake(address: &Address, settings: &Settings, path: &str) -> Result<(WebSocketStream<Socket>, bool), ClientError> {
    let mut random = [0_u8; 16];
    getrandom::fill(&mut random).map_err(|error| connect_error(address, error, None))?;
    let key = key_of(random);
    let mut builder = request(address, settings, Method::GET, path)?
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, &key);
    builder = match settings.speech {
        Speech::Auto => builder.header(SEC_WEBSOCKET_PROTOCOL, format!("{PROTOCOL}, openenv")),
        Speech::V1 => builder.header(SEC_WEBSOCKET_PROTOCOL, PROTOCOL),
        Speech::OpenEnv => builder,
    };
    let request = builder.body(Full::new(Bytes::new())).map_err(|error| connect_error(address, error, None))?;
    let mut response = send(address, settings, request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refusal(address, response).await);
    }
    let wrong = |reason: &str| ClientError::Protocol { reason: reason.to_owned() };
    if response.headers().get(SEC_WEBSOCKET_ACCEPT).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned)
        != accept_for(key.as_bytes())
    {
        return Err(wrong("its handshake does not answer ours"));
    }
    let chosen = response.headers().get(SEC_WEBSOCKET_PROTOCOL).is_some_and(|value| value == PROTOCOL);
    if let Some(wanted) = &settings.contract {
        let found = response.headers().get("x-envharness-contract").and_then(|value| value.to_str().ok());
        if found != Some(wanted.as_str()) {
            let found = found.unwrap_or("whose digest it does not tell").to_owned();
            return Err(ClientError::Contract { wanted: wanted.clone(), found });
        }
    }
    if settings.speech == Speech::V1 && !chosen {
        return Err(ClientError::NotAvailable(format!("{address} does not speak {PROTOCOL}")));
    }
    let upgraded = hyper::upgrade::on(&mut response).await.map_err(|error| connect_error(address, error, None))?;
    let parts = upgraded.downcast::<TokioIo<Stream>>().map_err(|_| wrong("its connection cannot be taken over"))?;
    let socket = Socket::new(parts.read_buf, parts.io.into_inner());
    let limits = Limits::default().max_payload_len(Some(settings.most_message.saturating_add(1 << 20)));
    let config = Config::default().frame_size(usize::MAX).flush_threshold(usize::MAX);
    Ok((ClientBuilder::new().limits(limits).config(config).take_over(socket), chosen))
}

/// What a server said in place of a WebSocket.
async fn refusal(address: &Address, response: Response<Incoming>) -> ClientError {
    let status = response.status();
    let body = Limited::new(response.into_body(), 64 * 1024).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let told: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let detail = told["detail"].as_str().map(|detail| format!(": {detail}")).unwrap_or_default();
    let hint = match status.as_u16() {
        401 => Some("give the server's token by `token=`"),
        404 => Some("there is no environment server at this address"),
        _ => None,
    };
    connect_error(address, format!("it answered {status}{detail}"), hint)
}
