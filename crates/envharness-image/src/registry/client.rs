//! One registry: requests that are sent again, and the authorization it asks for.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use serde::Deserialize;

use super::credentials::{self, Credentials};
use crate::error::ImageError;
use crate::images::Watch;

/// How a registry is spoken to.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The registry of names without one.
    pub default_registry: String,
    /// Never use the network.
    pub offline: bool,
    /// How often a request that failed for a passing reason is sent again.
    pub retries: u32,
    /// The environment: files of credentials are found by it.
    pub variables: BTreeMap<String, String>,
}

/// The first wait before a request is sent again; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const SILENCE: Duration = Duration::from_secs(60);

/// A registry and a repository in it.
pub(crate) struct Client<'a> {
    /// The registry, as a person knows it.
    pub registry: String,
    /// `http://127.0.0.1:5000/v2/team/name`.
    pub address: String,
    http: reqwest::Client,
    credentials: Option<Credentials>,
    authorization: Mutex<Option<String>>,
    retries: u32,
    watch: &'a dyn Watch,
}

#[derive(Deserialize)]
struct Token {
    #[serde(alias = "access_token")]
    token: String,
}

impl<'a> Client<'a> {
    pub(crate) fn new(registry: &str, path: &str, options: &Options, watch: &'a dyn Watch) -> Result<Self, ImageError> {
        if options.offline {
            return Err(ImageError::Offline(registry.to_owned()));
        }
        // Another part of the process may have chosen a provider; any will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let agent = concat!("envharness/", env!("CARGO_PKG_VERSION"));
        let http = reqwest::Client::builder().user_agent(agent).connect_timeout(SILENCE).read_timeout(SILENCE).build();
        let unreachable = |error: reqwest::Error| ImageError::Unreachable { registry: registry.to_owned(), reason: chain(&error) };
        let (host, path) = match registry {
            "docker.io" | "index.docker.io" if !path.contains('/') => ("registry-1.docker.io", format!("library/{path}")),
            "docker.io" | "index.docker.io" => ("registry-1.docker.io", path.to_owned()),
            other => (other, path.to_owned()),
        };
        let scheme = if is_loopback(host) { "http" } else { "https" };
        Ok(Self {
            registry: registry.to_owned(),
            address: format!("{scheme}://{host}/v2/{path}"),
            http: http.map_err(unreachable)?,
            credentials: credentials::find(registry, &options.variables)?,
            authorization: Mutex::default(),
            retries: options.retries,
            watch,
        })
    }

    /// Sends a request, again when it failed for a passing reason or when the registry asks for a name. `fill` adds body and
    /// headers each time.
    pub(crate) async fn send(
        &self,
        method: Method,
        address: &str,
        action: &str,
        fill: &dyn Fn(RequestBuilder) -> Result<RequestBuilder, ImageError>,
    ) -> Result<Response, ImageError> {
        let mut wait = FIRST_WAIT;
        let mut left = self.retries;
        let mut asked = false;
        loop {
            if self.watch.interrupted() {
                return Err(ImageError::Interrupted);
            }
            let mut request = fill(self.http.request(method.clone(), address))?;
            // A blob may lie at another host, which our name is no business of.
            if address.starts_with(&self.origin())
                && let Some(known) = self.authorization.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
            {
                request = request.header(header::AUTHORIZATION, known);
            }
            let outcome = request.send().await;
            let reason = match outcome {
                Ok(response) if response.status() == StatusCode::UNAUTHORIZED && !asked => {
                    asked = true;
                    self.authorize(&response, action).await?;
                    continue;
                }
                Ok(response) if passes(response.status()) && left > 0 => response.status().to_string(),
                Ok(response) => return Ok(response),
                Err(error) if left > 0 => chain(&error),
                Err(error) => return Err(self.unreachable(&error)),
            };
            tracing::warn!(reason, ?wait, left, "a request is sent again");
            tokio::time::sleep(wait).await;
            wait *= 2;
            left -= 1;
        }
    }

    pub(crate) fn unreachable(&self, error: &reqwest::Error) -> ImageError {
        ImageError::Unreachable { registry: self.registry.clone(), reason: chain(error) }
    }

    fn origin(&self) -> String {
        self.address.split("/v2/").next().map(|origin| format!("{origin}/")).unwrap_or_default()
    }

    /// Answers a 401: with a name and password, or with a token that they are given for.
    async fn authorize(&self, response: &Response, action: &str) -> Result<(), ImageError> {
        let refused = |reason: String| ImageError::Refused { registry: self.registry.clone(), action: action.to_owned(), reason };
        let challenge = response.headers().get(header::WWW_AUTHENTICATE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (scheme, parameters) = challenge.split_once(' ').unwrap_or((challenge, ""));
        let authorization = if scheme.eq_ignore_ascii_case("basic") {
            let known = self.credentials.as_ref().ok_or_else(|| refused("it wants a user and a password, and none is known".into()))?;
            known.basic()
        } else if scheme.eq_ignore_ascii_case("bearer") {
            let parameters = parameters_of(parameters);
            let realm = parameters.get("realm").ok_or_else(|| refused("it names no place for tokens".into()))?;
            let query: Vec<(&str, &str)> =
                ["service", "scope"].iter().filter_map(|key| Some((*key, parameters.get(*key)?.as_str()))).collect();
            let mut request = self.http.get(with_query(realm, &query).ok_or_else(|| refused(format!("`{realm}` is no address")))?);
            if let Some(known) = &self.credentials {
                request = request.header(header::AUTHORIZATION, known.basic());
            }
            let answer = request.send().await.map_err(|error| self.unreachable(&error))?;
            if !answer.status().is_success() {
                return Err(refused(format!("no token was given ({})", answer.status())));
            }
            let bytes = answer.bytes().await.map_err(|error| self.unreachable(&error))?;
            let token: Token = serde_json::from_slice(&bytes).map_err(|error| refused(format!("its token cannot be read: {error}")))?;
            format!("Bearer {}", token.token)
        } else {
            return Err(refused(format!("its way of authorization, `{scheme}`, is not known")));
        };
        *self.authorization.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(authorization);
        Ok(())
    }

    /// Turns an answer that is no success into an error.
    pub(crate) async fn expect(&self, response: Response, action: &str, name: &str) -> Result<Response, ImageError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await.unwrap_or_default();
        let said = serde_json::from_str::<serde_json::Value>(&text).ok().and_then(|body| {
            let first = body["errors"].get(0)?.clone();
            Some(format!("{}: {}", first["code"].as_str()?, first["message"].as_str()?))
        });
        let reason = said.map_or_else(|| status.to_string(), |said| format!("{said} ({})", status.as_u16()));
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                ImageError::Refused { registry: self.registry.clone(), action: action.to_owned(), reason }
            }
            StatusCode::NOT_FOUND => ImageError::NotThere { registry: self.registry.clone(), name: name.to_owned() },
            _ => ImageError::Registry { registry: self.registry.clone(), action: action.to_owned(), reason },
        })
    }
}

/// Registries of the machine itself need no TLS.
fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(name, _)| name);
    let name = name.trim_matches(['[', ']']);
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

pub(crate) fn with_query(address: &str, query: &[(&str, &str)]) -> Option<String> {
    let mut url = url::Url::parse(address).ok()?;
    url.query_pairs_mut().extend_pairs(query);
    Some(url.into())
}

fn passes(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::REQUEST_TIMEOUT
}

/// The causes of an error, without the address that the message has already.
fn chain(error: &reqwest::Error) -> String {
    let mut out = String::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        out = error.to_string();
        cause = error.source();
    }
    if out.is_empty() { error.to_string() } else { out }
}

/// `realm="https://x",scope="a,b"` as a table.
fn parameters_of(text: &str) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut rest = text.trim();
    while let Some((key, after)) = rest.split_once('=') {
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        out.insert(key.trim().to_ascii_lowercase(), value.to_owned());
        rest = left.trim_start_matches([',', ' ']);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_and_hosts_are_read() {
        let read = parameters_of(r#"realm="https://a/token",service="r", scope="repository:x:pull,push""#);
        assert_eq!(read["realm"], "https://a/token");
        assert_eq!(read["scope"], "repository:x:pull,push");
        assert!(is_loopback("127.0.0.1:5000") && is_loopback("localhost") && is_loopback("[::1]:5000"));
        assert!(!is_loopback("10.0.0.1:5000") && !is_loopback("localhost.example.org"));
    }
}
