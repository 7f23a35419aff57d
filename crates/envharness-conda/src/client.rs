//! The HTTP client: credentials of the usual files, retries with back-off, the proxy of the environment, offline.

use std::time::Duration;

use rattler_networking::{AuthenticationMiddleware, LazyClient, OfflineMiddleware};
use reqwest::{Method, Request, Response, StatusCode};
use reqwest_middleware::{ClientBuilder, Middleware, Next};

use crate::{CondaError, Options};

/// The first wait before a request is sent again; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// A server that says nothing for this long is taken for dead; package bodies may be slow but not silent.
const SILENCE: Duration = Duration::from_secs(60);

/// A client with the credentials of `RATTLER_AUTH_FILE`, `~/.rattler/credentials.json` and `~/.netrc`.
pub(crate) fn client(options: &Options) -> Result<LazyClient, CondaError> {
    let (offline, retries) = (options.offline, options.retries);
    Ok(LazyClient::new(move || {
        // Another part of the process may have chosen a provider; any will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let agent = concat!("envharness/", env!("CARGO_PKG_VERSION"));
        let plain = reqwest::Client::builder().user_agent(agent).connect_timeout(SILENCE).read_timeout(SILENCE).build();
        let mut builder = ClientBuilder::new(plain.unwrap_or_default());
        if offline {
            builder = builder.with(OfflineMiddleware);
        }
        builder = builder.with(Retry { retries });
        match AuthenticationMiddleware::from_env_and_defaults() {
            Ok(authentication) => builder = builder.with(authentication),
            Err(error) => tracing::warn!(%error, "no credentials are read"),
        }
        builder.build()
    }))
}

/// Sends a request again that failed for a passing reason.
struct Retry {
    retries: u32,
}

#[async_trait::async_trait]
impl Middleware for Retry {
    async fn handle(&self, request: Request, extensions: &mut http::Extensions, next: Next<'_>) -> reqwest_middleware::Result<Response> {
        let mut wait = FIRST_WAIT;
        for left in (0..=self.retries).rev() {
            let again = request.try_clone().filter(|_| left > 0 && matches!(*request.method(), Method::GET | Method::HEAD));
            let Some(copy) = again else { break };
            let outcome = next.clone().run(copy, extensions).await;
            let reason = match &outcome {
                Ok(response) if passes(response.status()) => response.status().to_string(),
                Err(reqwest_middleware::Error::Reqwest(error)) if error.is_connect() || error.is_timeout() || error.is_request() => {
                    error.to_string()
                }
                _ => return outcome,
            };
            tracing::warn!(reason, wait = ?wait, left, "a request is sent again");
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        next.run(request, extensions).await
    }
}

/// Whether an answer may be another one soon.
fn passes(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::REQUEST_TIMEOUT
}
