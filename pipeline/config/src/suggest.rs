//! "Did you mean …?"

/// The known word nearest to `word`, if close enough to be a typo.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The edit distance is quadratic; a typo is not that long.
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_lowercase();
    known
        .into_iter()
        .map(|candidate| {
            (
                strsim::osa_distance(&lower, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(distance, candidate)| *distance <= allowed(word.len().min(candidate.len())))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// One edit per three letters, at most three.
fn allowed(length: usize) -> usize {
    (length / 3).clamp(1, 3).min(length.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_near_words() {
        let known = ["endpoint", "grpc", "http", "timeout", "tls"];
        for (word, expected) in [
            ("endpiont", Some("endpoint")),
            ("htttp", Some("http")),
            ("Timeout", Some("timeout")),
            ("time_out", Some("timeout")),
            ("tsl", Some("tls")),
            ("compression", None),
            ("x", None),
        ] {
            assert_eq!(did_you_mean(word, known), expected, "{word}");
        }
    }
}
