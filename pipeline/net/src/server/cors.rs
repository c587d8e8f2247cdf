//! Cross-origin resource sharing: which web pages may send requests.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::settings::Cors;

/// Always allowed request headers.
const ALWAYS: [&str; 5] = [
    "accept",
    "accept-language",
    "content-type",
    "content-language",
    "origin",
];
const METHODS: [Method; 3] = [Method::GET, Method::POST, Method::HEAD];

/// Compiled rules.
#[derive(Debug)]
pub(super) struct CorsRules {
    origins: Vec<String>,
    headers: Vec<String>,
    exposed: Option<HeaderValue>,
    max_age: Option<HeaderValue>,
}

impl CorsRules {
    /// `None` if no origin is allowed: browsers then block pages by default.
    pub fn new(settings: &Cors) -> Option<CorsRules> {
        let headers = if settings.allowed_headers.is_empty() {
            vec!["x-requested-with".to_owned()]
        } else {
            settings
                .allowed_headers
                .iter()
                .map(|name| name.to_ascii_lowercase())
                .collect()
        };
        (!settings.allowed_origins.is_empty()).then(|| CorsRules {
            origins: settings
                .allowed_origins
                .iter()
                .map(|origin| origin.to_ascii_lowercase())
                .collect(),
            headers,
            exposed: HeaderValue::from_str(&settings.exposed_headers.join(", "))
                .ok()
                .filter(|value| !value.is_empty()),
            max_age: (settings.max_age > 0).then(|| HeaderValue::from(settings.max_age)),
        })
    }

    /// Responds to preflight requests.
    pub fn preflight(&self, head: &Parts) -> Option<Response<Bytes>> {
        let method = head.headers.get(ACCESS_CONTROL_REQUEST_METHOD)?;
        if head.method != Method::OPTIONS {
            return None;
        }
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(
            VARY,
            HeaderValue::from_static(
                "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
            ),
        );
        let requested = head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS);
        let fine = METHODS
            .iter()
            .any(|known| known.as_str().as_bytes() == method.as_bytes())
            && requested.is_none_or(|requested| self.allows_headers(requested));
        if let (true, Some(origin)) = (fine, self.allowed_origin(&head.headers)) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, method.clone());
            headers.insert(
                ACCESS_CONTROL_ALLOW_CREDENTIALS,
                HeaderValue::from_static("true"),
            );
            if let Some(requested) = requested {
                headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
            }
            if let Some(max_age) = &self.max_age {
                headers.insert(ACCESS_CONTROL_MAX_AGE, max_age.clone());
            }
        }
        Some(response)
    }

    /// Adds the CORS headers to a response.
    pub fn mark(&self, request: &HeaderMap, response: &mut HeaderMap) {
        response.insert(VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = self.allowed_origin(request) {
            response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            response.insert(
                ACCESS_CONTROL_ALLOW_CREDENTIALS,
                HeaderValue::from_static("true"),
            );
            if let Some(exposed) = &self.exposed {
                response.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed.clone());
            }
        }
    }

    fn allowed_origin(&self, request: &HeaderMap) -> Option<HeaderValue> {
        let origin = request.get(ORIGIN)?;
        let text = origin.to_str().ok()?.to_ascii_lowercase();
        if self.origins.iter().any(|allowed| allowed == "*") {
            return Some(HeaderValue::from_static("*"));
        }
        self.origins
            .iter()
            .any(|allowed| matches(allowed, &text))
            .then(|| origin.clone())
    }

    fn allows_headers(&self, requested: &HeaderValue) -> bool {
        let Ok(requested) = requested.to_str() else {
            return false;
        };
        let allowed = |name: &str| {
            let name = name.trim().to_ascii_lowercase();
            ALWAYS.contains(&name.as_str())
                || self
                    .headers
                    .iter()
                    .any(|allowed| *allowed == name || allowed == "*")
        };
        requested.split(',').all(allowed)
    }
}

/// Whether the text matches a pattern with at most one `*`.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => {
            text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_support_a_wildcard() {
        for (pattern, origin, fits) in [
            ("https://a.example", "https://a.example", true),
            ("https://*.example", "https://a.b.example", true),
            ("https://*.example", "https://.exampl", false),
            ("https://*.example", "https://example", false),
            ("aa*aa", "aaa", false),
        ] {
            assert_eq!(matches(pattern, origin), fits, "{pattern} {origin}");
        }
    }

    #[test]
    fn a_preflight_is_granted_only_if_all_of_it_is_allowed() {
        let rules = CorsRules::new(&Cors {
            allowed_origins: vec!["https://ok".to_owned()],
            allowed_headers: vec!["X-Token".to_owned()],
            exposed_headers: vec![],
            max_age: 60,
        })
        .unwrap();
        for (origin, method, headers, granted) in [
            ("https://ok", "POST", "content-type, x-token", true),
            ("https://bad", "POST", "content-type", false),
            ("https://ok", "DELETE", "content-type", false),
            ("https://ok", "POST", "x-other", false),
        ] {
            let (head, ()) = http::Request::options("/")
                .header(ORIGIN, origin)
                .header(ACCESS_CONTROL_REQUEST_METHOD, method)
                .header(ACCESS_CONTROL_REQUEST_HEADERS, headers)
                .body(())
                .unwrap()
                .into_parts();
            let response = rules.preflight(&head).unwrap();
            assert_eq!(
                response.headers().contains_key(ACCESS_CONTROL_ALLOW_ORIGIN),
                granted,
                "{origin} {method} {headers}"
            );
        }
    }
}
