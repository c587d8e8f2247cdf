//! Letters in the other case as Go has them: each for one, whatever the language.

/// Where Unicode has one letter for it; titles of Greek letters with an iota below are one.
pub fn upper(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_uppercase();
    }
    let letter = |letter: char| match letter {
        '\u{1f80}'..='\u{1faf}' => char::from_u32(u32::from(letter) | 8).unwrap_or(letter),
        '\u{1fb3}' => '\u{1fbc}',
        '\u{1fc3}' => '\u{1fcc}',
        '\u{1ff3}' => '\u{1ffc}',
        _ => only(letter.to_uppercase()).unwrap_or(letter),
    };
    text.chars().map(letter).collect()
}

pub fn lower(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    // The one letter with a longer lower case begins with its short one.
    let letter = |letter: char| letter.to_lowercase().next().unwrap_or(letter);
    text.chars().map(letter).collect()
}

fn only(mut letters: impl Iterator<Item = char>) -> Option<char> {
    let first = letters.next();
    first.filter(|_| letters.next().is_none())
}
