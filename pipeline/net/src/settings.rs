//! Small helpers of all settings.

use http::{HeaderMap, HeaderName, HeaderValue};
use profcol_config::{Duration, Headers};

/// The time, where 0 stands for "no limit".
pub(crate) fn limit(duration: Duration) -> Option<std::time::Duration> {
    (!duration.is_zero()).then(|| duration.to_std())
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Checks names and values once, for use in requests and answers.
pub(crate) fn header_map(headers: &Headers) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers.iter() {
        let name: HeaderName = name
            .parse()
            .map_err(|_| format!("{name:?} is not a valid header name"))?;
        let mut value = HeaderValue::from_str(value.expose())
            .map_err(|_| format!("the value of header `{name}` contains invalid characters"))?;
        // Kept out of debug output and of the peer's header table.
        value.set_sensitive(true);
        map.append(name, value);
    }
    Ok(map)
}
