//! Conditions on the attributes of a resource: a part of the Collector's transformation language (OTTL).
//!
//! ```text
//! or         := and ("or" and)*
//! and        := not ("and" not)*
//! not        := "not" not | "(" or ")" | "true" | "false" | comparison | match
//! comparison := attribute ("==" | "!=") (string | number | "true" | "false" | "nil")
//! match      := "IsMatch" "(" attribute "," string ")"
//! attribute  := ["resource" "."] "attributes" "[" string "]"
//! ```

use profcol_profile::{Attributes, Value};
use regex::Regex;

use super::error::{ConditionError, MAX_DEPTH, MAX_LENGTH};
use super::lexer::{Lexer, Token};

#[derive(Debug)]
pub enum Condition {
    Is(bool),
    Equals { key: String, value: Value },
    Matches { key: String, regex: Regex },
    Not(Box<Condition>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
}

/// Why a condition has no result for a resource.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("IsMatch needs text, a number or a boolean, but the attribute {key:?} is {kind}")]
pub struct EvaluationError {
    key: String,
    kind: &'static str,
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    next: Token,
    /// Where `next` begins.
    position: usize,
    depth: usize,
}

// === impl Condition ===

impl Condition {
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let mut parser = Parser::new(text)?;
        parser.whole()
    }

    /// Parses `route()` or `route() where <condition>`.
    pub fn parse_statement(text: &str) -> Result<Self, ConditionError> {
        let mut parser = Parser::new(text)?;
        parser.word("route", "`route()`")?;
        parser.symbol("(", "`route()`")?;
        parser.symbol(")", "`route()`")?;
        if parser.next == Token::End {
            return Ok(Self::Is(true));
        }
        parser.word("where", "`where` or the end")?;
        parser.whole()
    }

    pub fn holds(&self, attributes: &Attributes) -> Result<bool, EvaluationError> {
        let value = |key: &str| {
            let mut attributes = attributes.iter();
            let found = attributes.find(|it| *it.key == *key);
            found.map_or(&Value::Empty, |it| &it.value)
        };
        Ok(match self {
            Self::Is(result) => *result,
            Self::Equals { key, value: wanted } => equals(value(key), wanted),
            Self::Matches { key, regex } => match value(key) {
                Value::Empty => false,
                Value::Str(text) => regex.is_match(text),
                Value::Bool(flag) => regex.is_match(if *flag { "true" } else { "false" }),
                Value::Int(number) => regex.is_match(&number.to_string()),
                Value::Double(number) => regex.is_match(&number.to_string()),
                other => {
                    return Err(EvaluationError {
                        key: key.clone(),
                        kind: match other {
                            Value::Bytes(_) => "bytes",
                            Value::Array(_) => "a list",
                            _ => "a map",
                        },
                    });
                }
            },
            Self::Not(inner) => !inner.holds(attributes)?,
            Self::All(parts) => {
                for part in parts {
                    if !part.holds(attributes)? {
                        return Ok(false);
                    }
                }
                true
            }
            Self::Any(parts) => {
                for part in parts {
                    if part.holds(attributes)? {
                        return Ok(true);
                    }
                }
                false
            }
        })
    }
}

/// Numbers compare by value, others by type and value.
fn equals(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Int(a), Value::Double(b)) | (Value::Double(b), Value::Int(a)) => *a as f64 == *b,
        (Value::Double(a), Value::Double(b)) => a == b,
        _ => value == wanted,
    }
}

// === impl Parser ===

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self, ConditionError> {
        if text.len() > MAX_LENGTH {
            return Err(ConditionError::TooLong);
        }
        let mut parser = Self {
            lexer: Lexer::new(text),
            next: Token::End,
            position: 0,
            depth: 0,
        };
        parser.advance()?;
        Ok(parser)
    }

    /// Moves to the next token and returns the current one.
    fn advance(&mut self) -> Result<Token, ConditionError> {
        let (position, token) = self.lexer.next()?;
        self.position = position;
        Ok(std::mem::replace(&mut self.next, token))
    }

    fn unexpected(&self, expected: &'static str) -> ConditionError {
        ConditionError::Unexpected {
            position: self.position,
            expected,
            found: self.next.to_string(),
        }
    }

    fn symbol(
        &mut self,
        symbol: &'static str,
        expected: &'static str,
    ) -> Result<(), ConditionError> {
        match self.next == Token::Symbol(symbol) {
            true => self.advance().map(drop),
            false => Err(self.unexpected(expected)),
        }
    }

    fn word(&mut self, word: &str, expected: &'static str) -> Result<(), ConditionError> {
        match self.is_word(word) {
            true => self.advance().map(drop),
            false => Err(self.unexpected(expected)),
        }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(&self.next, Token::Word(next) if next == word)
    }

    fn text(&mut self, expected: &'static str) -> Result<String, ConditionError> {
        match &self.next {
            Token::Text(text) => {
                let text = text.clone();
                self.advance()?;
                Ok(text)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    fn whole(&mut self) -> Result<Condition, ConditionError> {
        let condition = self.any()?;
        match self.next {
            Token::End => Ok(condition),
            _ => Err(self.unexpected("`and`, `or` or the end")),
        }
    }

    fn any(&mut self) -> Result<Condition, ConditionError> {
        let first = self.all()?;
        let mut parts = vec![first];
        while self.is_word("or") {
            self.advance()?;
            parts.push(self.all()?);
        }
        Ok(Condition::Any(parts))
    }

    fn all(&mut self) -> Result<Condition, ConditionError> {
        let first = self.one()?;
        let mut parts = vec![first];
        while self.is_word("and") {
            self.advance()?;
            parts.push(self.one()?);
        }
        Ok(Condition::All(parts))
    }

    fn one(&mut self) -> Result<Condition, ConditionError> {
        if self.depth == MAX_DEPTH {
            let position = self.position;
            return Err(ConditionError::TooDeep { position });
        }
        self.depth += 1;
        let condition = self.nested_one();
        self.depth -= 1;
        condition
    }

    fn nested_one(&mut self) -> Result<Condition, ConditionError> {
        if self.is_word("not") {
            self.advance()?;
            let inner = self.one()?;
            return Ok(Condition::Not(Box::new(inner)));
        }
        if self.next == Token::Symbol("(") {
            self.advance()?;
            let inner = self.any()?;
            self.symbol(")", "`)`, `and` or `or`")?;
            return Ok(inner);
        }
        for (word, result) in [("true", true), ("false", false)] {
            if self.is_word(word) {
                self.advance()?;
                return Ok(Condition::Is(result));
            }
        }
        match self.is_word("IsMatch") {
            true => self.is_match(),
            false => self.comparison(),
        }
    }

    fn is_match(&mut self) -> Result<Condition, ConditionError> {
        self.advance()?;
        self.symbol("(", "`(`")?;
        let key = self.attribute()?;
        self.symbol(",", "`,`")?;
        let position = self.position;
        let pattern = self.text("a regular expression in double quotes")?;
        let regex = Regex::new(&pattern).map_err(|error| ConditionError::BadText {
            position,
            reason: format!("invalid regular expression: {error}"),
        })?;
        self.symbol(")", "`)`")?;
        Ok(Condition::Matches { key, regex })
    }

    fn comparison(&mut self) -> Result<Condition, ConditionError> {
        let key = self.attribute()?;
        let is_negated = match self.next {
            Token::Symbol("==") => false,
            Token::Symbol("!=") => true,
            _ => return Err(self.unexpected("`==` or `!=`")),
        };
        self.advance()?;
        let value = match &self.next {
            Token::Text(text) => Value::from(text.as_str()),
            Token::Integer(number) => Value::Int(*number),
            Token::Float(number) => Value::Double(*number),
            Token::Word(word) if word == "true" => Value::Bool(true),
            Token::Word(word) if word == "false" => Value::Bool(false),
            Token::Word(word) if word == "nil" => Value::Empty,
            _ => return Err(self.unexpected("a string, number, boolean or `nil`")),
        };
        self.advance()?;
        let equals = Condition::Equals { key, value };
        Ok(match is_negated {
            true => Condition::Not(Box::new(equals)),
            false => equals,
        })
    }

    fn attribute(&mut self) -> Result<String, ConditionError> {
        const EXPECTED: &str = "an attribute or `IsMatch`";
        if self.is_word("resource") {
            self.advance()?;
            self.symbol(".", "`.attributes`")?;
        }
        self.word("attributes", EXPECTED)?;
        self.symbol("[", "`[\"key\"]`")?;
        let key = self.text("a key in double quotes")?;
        self.symbol("]", "`]`")?;
        Ok(key)
    }
}
