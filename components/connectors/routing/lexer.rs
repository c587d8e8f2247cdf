//! The words of a condition.

use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

use super::error::ConditionError;

/// Longest first.
const SYMBOLS: [&str; 8] = ["==", "!=", "(", ")", "[", "]", ",", "."];

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Word(String),
    Text(String),
    Integer(i64),
    Float(f64),
    Symbol(&'static str),
    /// Anything else.
    Other(char),
    End,
}

pub(super) struct Lexer<'a> {
    chars: Peekable<Chars<'a>>,
    /// Characters read.
    position: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            chars: text.chars().peekable(),
            position: 0,
        }
    }

    /// The next token, and where it begins, counted from 1.
    pub(super) fn next(&mut self) -> Result<(usize, Token), ConditionError> {
        self.take_while(char::is_whitespace);
        let position = self.position + 1;
        let Some(first) = self.chars.peek().copied() else {
            return Ok((position, Token::End));
        };
        let token = match first {
            '"' => self.text(position)?,
            '-' | '0'..='9' => self.number(position)?,
            first if is_word(first) => Token::Word(self.take_while(is_word)),
            _ => self.symbol(first),
        };
        Ok((position, token))
    }

    fn advance(&mut self) -> Option<char> {
        self.position += 1;
        self.chars.next()
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(next) = self.chars.next_if(|next| belongs(*next)) {
            self.position += 1;
            taken.push(next);
        }
        taken
    }

    fn symbol(&mut self, first: char) -> Token {
        self.advance();
        let mut with_next = String::from(first);
        with_next.extend(self.chars.peek());
        let mut symbols = SYMBOLS.into_iter();
        match symbols.find(|symbol| with_next.starts_with(*symbol)) {
            Some(symbol) => {
                if symbol.len() > 1 {
                    self.advance();
                }
                Token::Symbol(symbol)
            }
            None => Token::Other(first),
        }
    }

    fn number(&mut self, position: usize) -> Result<Token, ConditionError> {
        let text = self.take_while(|next| next.is_ascii_alphanumeric() || "+-.".contains(next));
        let token = match text.parse().map(Token::Integer) {
            Ok(integer) => Some(integer),
            Err(_) => text
                .parse()
                .ok()
                .filter(|it: &f64| it.is_finite())
                .map(Token::Float),
        };
        token.ok_or_else(|| ConditionError::BadText {
            position,
            reason: format!("{text:?} is not a number"),
        })
    }

    fn text(&mut self, position: usize) -> Result<Token, ConditionError> {
        self.advance();
        let mut text = String::new();
        loop {
            let at = self.position + 1;
            match self.advance() {
                Some('"') => return Ok(Token::Text(text)),
                Some('\\') => text.push(match self.advance() {
                    Some(it @ ('"' | '\\')) => it,
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('t') => '\t',
                    _ => {
                        let reason = "unknown escape: a backslash in a string is written `\\\\`";
                        return Err(ConditionError::BadText {
                            position: at,
                            reason: reason.to_owned(),
                        });
                    }
                }),
                Some(it) => text.push(it),
                None => {
                    return Err(ConditionError::BadText {
                        position,
                        reason: "a string without end".to_owned(),
                    });
                }
            }
        }
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Symbol(symbol) => write!(f, "`{symbol}`"),
            Self::Other(other) => write!(f, "{other:?}"),
            Self::End => f.write_str("the end"),
        }
    }
}
