//! Case conversion as in Go: one character for one character, in any language.

/// Converts where Unicode has a single-character upper case, including the titlecase Greek letters with iota subscript.
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
    // The only letter with a longer lower case starts with its single-character one.
    let letter = |letter: char| letter.to_lowercase().next().unwrap_or(letter);
    text.chars().map(letter).collect()
}

fn only(mut letters: impl Iterator<Item = char>) -> Option<char> {
    let first = letters.next();
    first.filter(|_| letters.next().is_none())
}
