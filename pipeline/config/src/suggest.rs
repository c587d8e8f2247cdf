//! "Did you mean …?"

/// The word nearest to `word`, if one is near enough that a slip of the finger explains it.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance costs length times length; nobody mistypes a novel.
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

/// One slip in three letters, at most three.
fn allowed(length: usize) -> usize {
    (length / 3).clamp(1, 3).min(length.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_near_word_only() {
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
