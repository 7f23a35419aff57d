//! Who comes in: the host that was asked for, the page that asks, and the token.
//!
//! A server on loopback is reachable from every web page that the user opens (by DNS rebinding, or plainly, since WebSockets
//! know no same-origin policy); so both headers are checked, and without them nothing is believed.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use http::header::{AUTHORIZATION, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, StatusCode};
use subtle::ConstantTimeEq as _;

/// A secret that clients show. It never appears in logs.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Takes a token as it was read; surrounding white space does not belong to it.
    ///
    /// # Errors
    /// Why it is none: empty, or with a character that no header can carry.
    pub fn new(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        match text {
            "" => Err("the token is empty"),
            _ if !text.bytes().all(|b| b.is_ascii_graphic()) => Err("the token has a character that is not printable ASCII"),
            _ => Ok(Self(text.to_owned())),
        }
    }

    fn is(&self, shown: &str) -> bool {
        // The length is not secret; every byte of equal lengths is compared.
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The checks of every request.
#[derive(Debug, Clone, Default)]
pub struct Doors {
    /// The token, where there is one.
    pub token: Option<Token>,
    /// Host names that may be asked for beside the loopback's; `*` for all.
    pub allowed_hosts: Vec<String>,
    /// Origins of pages that may ask, beside the server's own; `*` for all.
    pub allowed_origins: Vec<String>,
    /// The address it listens on, where that is one address.
    pub bound: Option<IpAddr>,
}

/// The paths that probes ask without a token; they tell nothing of the environment.
const OPEN_PATHS: [&str; 2] = ["/health", "/ready"];

/// A refusal: status and reason.
pub type Refusal = (StatusCode, &'static str);

impl Doors {
    /// Whether a request may come in.
    ///
    /// # Errors
    /// The refusal to answer with.
    pub fn check(&self, path: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next().map(|h| h.to_str()), hosts.next()) {
            (Some(Ok(host)), None) => host,
            _ => return Err((StatusCode::BAD_REQUEST, "one Host header is needed")),
        };
        if !self.host_is_known(host) {
            return Err((StatusCode::MISDIRECTED_REQUEST, "this Host is not served here; --allowed-hosts names further ones"));
        }
        for origin in headers.get_all(ORIGIN) {
            let known = origin.to_str().is_ok_and(|origin| self.origin_is_known(origin, host));
            if !known {
                return Err((StatusCode::FORBIDDEN, "this Origin may not use the server; --allowed-origins names those that may"));
            }
        }
        match &self.token {
            Some(token) if !OPEN_PATHS.contains(&path) && !shows(headers, token) => Err((StatusCode::UNAUTHORIZED, "a token is needed")),
            _ => Ok(()),
        }
    }

    fn host_is_known(&self, host: &str) -> bool {
        let Some(name) = host_name(host) else { return false };
        if self
            .allowed_hosts
            .iter()
            .any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(&name) || allowed.eq_ignore_ascii_case(host))
        {
            return true;
        }
        let own = match name.parse::<IpAddr>() {
            Ok(ip) => self.bound.is_none_or(|bound| ip == bound || (bound.is_loopback() && ip.is_loopback())),
            Err(_) => name == "localhost",
        };
        // On all addresses the machine's names are not known; the token is the door then.
        own || (self.bound.is_none_or(|bound| !bound.is_loopback()) && self.allowed_hosts.is_empty())
    }

    fn origin_is_known(&self, origin: &str, host: &str) -> bool {
        if self.allowed_origins.iter().any(|allowed| allowed == "*" || allowed.trim_end_matches('/').eq_ignore_ascii_case(origin)) {
            return true;
        }
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        authority.is_some_and(|authority| !authority.is_empty() && authority.eq_ignore_ascii_case(host))
    }
}

/// The name in a `Host` header, lower-case, without port and brackets.
fn host_name(host: &str) -> Option<String> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, rest) = rest.split_once(']')?;
            (name, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some("0"))?)
        }
        None => match host.split_once(':') {
            Some((name, port)) => (name, port),
            None => (host, "0"),
        },
    };
    let valid = !name.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) && !port.is_empty();
    let clean = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b':' | b'_'));
    (valid && clean).then(|| name.to_ascii_lowercase())
}

/// Whether the headers show the token: as Bearer, as Basic (user or password), or among the subprotocols.
fn shows(headers: &HeaderMap, token: &Token) -> bool {
    let authorized = headers.get_all(AUTHORIZATION).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        let Some((scheme, shown)) = value.split_once(' ') else { return false };
        let shown = shown.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return token.is(shown);
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return false;
        }
        let decoded = base64::engine::general_purpose::STANDARD.decode(shown).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let Some(pair) = decoded else { return false };
        let (user, password) = pair.split_once(':').unwrap_or((&pair, ""));
        token.is(password) | token.is(user)
    });
    authorized || protocols(headers).any(|protocol| protocol.strip_prefix("bearer.").is_some_and(|shown| token.is(shown)))
}

/// The subprotocols that a handshake offers.
pub fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|protocol| !protocol.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doors(token: Option<&str>) -> Doors {
        Doors { token: token.map(|t| Token::new(t).unwrap()), bound: Some(IpAddr::from([127, 0, 0, 1])), ..Doors::default() }
    }

    fn check(doors: &Doors, headers: &[(&str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        doors.check("/ws", &map).map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn hosts() {
        for host in ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]:80", "LOCALHOST:80"] {
            assert_eq!(check(&doors(None), &[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example", "localhost.evil", "0.0.0.0:80", "192.168.1.2", "", "localhost:x", "[::1", "127.0.0.1.evil.example:80"]
        {
            assert_ne!(check(&doors(None), &[("host", host)]), 200, "{host}");
        }
        assert_eq!(check(&doors(None), &[]), 400);
        assert_eq!(check(&doors(None), &[("host", "localhost"), ("host", "localhost")]), 400);
    }

    #[test]
    fn origins() {
        let asked = |origin| check(&doors(None), &[("host", "localhost:80"), ("origin", origin)]);
        assert_eq!(asked("http://localhost:80"), 200);
        for origin in ["null", "http://evil.example", "http://localhost:81", "http://localhost.evil:80", "file://", "localhost:80"] {
            assert_eq!(asked(origin), 403, "{origin}");
        }
    }

    #[test]
    fn tokens() {
        let asked = |headers: &[(&str, &str)]| check(&doors(Some("s3cret")), &[&[("host", "localhost")], headers].concat());
        assert_eq!(asked(&[]), 401);
        assert_eq!(asked(&[("authorization", "Bearer s3cret")]), 200);
        assert_eq!(asked(&[("authorization", "Bearer s3cre")]), 401);
        assert_eq!(asked(&[("authorization", "Basic eDpzM2NyZXQ=")]), 200); // x:s3cret
        assert_eq!(asked(&[("authorization", "Basic czNjcmV0Og==")]), 200); // s3cret:
        assert_eq!(asked(&[("authorization", "Basic czNjcmV0")]), 200); // s3cret
        assert_eq!(asked(&[("sec-websocket-protocol", "openenv, bearer.s3cret")]), 200);
        assert_eq!(asked(&[("sec-websocket-protocol", "bearer.other")]), 401);
        assert!(format!("{:?}", doors(Some("s3cret"))).contains("Token(…)"));
    }
}
