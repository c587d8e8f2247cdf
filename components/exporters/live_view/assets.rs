//! The files of the page, ready to send.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG};
use http::{HeaderValue, Response};

/// A file with its compressed form.
pub(super) struct Asset {
    pub path: &'static str,
    content_type: HeaderValue,
    plain: Bytes,
    gzip: Bytes,
    tag: HeaderValue,
}

pub(super) fn all() -> Vec<Asset> {
    vec![
        Asset::new(
            "/",
            "text/html; charset=utf-8",
            profcol_flamegraph::viewer::PAGE.to_owned(),
        ),
        Asset::new(
            "/style.css",
            "text/css; charset=utf-8",
            profcol_flamegraph::viewer::STYLE.to_owned(),
        ),
        Asset::new(
            "/page.js",
            "text/javascript; charset=utf-8",
            profcol_flamegraph::viewer::page_script(),
        ),
    ]
}

impl Asset {
    fn new(path: &'static str, content_type: &'static str, text: String) -> Self {
        let gzip = profcol_pprof::gzip(text.as_bytes());
        let hash = twox_hash::XxHash3_128::oneshot(text.as_bytes());
        Self {
            path,
            content_type: HeaderValue::from_static(content_type),
            plain: text.into(),
            gzip: gzip.into(),
            tag: HeaderValue::from_str(&format!("\"{hash:032x}\""))
                .unwrap_or_else(|_| HeaderValue::from_static("\"\"")),
        }
    }

    pub fn is(&self, tag: Option<&HeaderValue>) -> bool {
        tag == Some(&self.tag)
    }

    pub fn bytes(&self, takes_gzip: bool) -> Bytes {
        match takes_gzip {
            true => self.gzip.clone(),
            false => self.plain.clone(),
        }
    }

    pub fn content_type(&self) -> HeaderValue {
        self.content_type.clone()
    }

    /// The files are revalidated on each request, since a newer profcol has a newer page.
    pub fn add_headers(&self, response: &mut Response<Bytes>) {
        let headers = response.headers_mut();
        headers.insert(ETAG, self.tag.clone());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    }
}
