//! Helpers for settings.

use http::{HeaderMap, HeaderName, HeaderValue};
use profcol_config::{Duration, Headers};

use crate::SettingsError;

/// The duration; `None` for 0, which means no limit.
pub(crate) fn limit(duration: Duration) -> Option<std::time::Duration> {
    (!duration.is_zero()).then(|| duration.to_std())
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Validates names and values once, for requests and responses.
pub(crate) fn header_map(headers: &Headers) -> Result<HeaderMap, SettingsError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers.iter() {
        let name: HeaderName = name
            .parse()
            .map_err(|_| SettingsError::HeaderName(name.to_owned()))?;
        let mut value = HeaderValue::from_str(value.expose())
            .map_err(|_| SettingsError::HeaderValue(name.clone()))?;
        // Hides the value from debug output and HPACK indexing.
        value.set_sensitive(true);
        map.append(name, value);
    }
    Ok(map)
}
