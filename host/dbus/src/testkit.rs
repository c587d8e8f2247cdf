//! Messages as a bus sends them.

/// A property.
#[derive(Clone, Debug)]
pub enum Shown {
    Text(&'static str),
    Flag(bool),
    Number(u64),
    Bytes(Vec<u8>),
    /// Two texts and a number in a structure, in a list: as conditions are told.
    Nested,
}

/// A message of either order of bytes: an answer, an error, or without a number a signal.
pub fn reply(
    is_big: bool,
    to: Option<u32>,
    error: Option<&str>,
    properties: &[(&str, Shown)],
) -> Vec<u8> {
    let new = || Bytes {
        bytes: Vec::new(),
        is_big,
    };
    let mut body = new();
    body.number(0);
    body.pad(8);
    let begin = body.bytes.len();
    for (name, value) in properties {
        body.pad(8);
        body.text(name);
        value.put(&mut body);
    }
    let length = (body.bytes.len() - begin) as u32;
    body.patch(0, length);

    let kind = match (to, error) {
        (None, _) => 4,
        (_, Some(_)) => 3,
        _ => 2,
    };
    let mut message = new();
    let order = if is_big { b'B' } else { b'l' };
    message.bytes.extend([order, kind, 1, 1]);
    message.number(body.bytes.len() as u32);
    message.number(77);
    message.number(0);
    if let Some(to) = to {
        message.field(5, "u");
        message.number(to);
    }
    if let Some(error) = error {
        message.field(4, "s");
        message.text(error);
    }
    // One of a number that nobody knows yet.
    message.field(99, "a(sv)");
    message.number(0);
    message.pad(8);
    message.field(8, "g");
    message.signature("a{sv}");
    let length = (message.bytes.len() - 16) as u32;
    message.patch(12, length);
    message.pad(8);
    message.bytes.extend(body.bytes);
    message.bytes
}

impl Shown {
    fn put(&self, bytes: &mut Bytes) {
        match self {
            Self::Text(text) => {
                bytes.signature("s");
                bytes.text(text);
            }
            Self::Flag(flag) => {
                bytes.signature("b");
                bytes.number(u32::from(*flag));
            }
            Self::Number(number) => {
                bytes.signature("t");
                bytes.pad(8);
                bytes.bytes.extend(match bytes.is_big {
                    true => number.to_be_bytes(),
                    false => number.to_le_bytes(),
                });
            }
            Self::Bytes(value) => {
                bytes.signature("ay");
                bytes.number(value.len() as u32);
                bytes.bytes.extend(value);
            }
            Self::Nested => {
                bytes.signature("(sa(sv)qv)");
                bytes.pad(8);
                bytes.text("one");
                bytes.number(0);
                bytes.pad(8);
                bytes.pad(2);
                bytes.bytes.extend([1, 1]);
                bytes.signature("(ynd)");
                bytes.pad(8);
                bytes.bytes.push(7);
                bytes.pad(2);
                bytes.bytes.extend([1, 1]);
                bytes.pad(8);
                bytes.bytes.extend([0; 8]);
            }
        }
    }
}

struct Bytes {
    bytes: Vec<u8>,
    is_big: bool,
}

impl Bytes {
    fn pad(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: u32) {
        self.pad(4);
        self.bytes.extend([0; 4]);
        self.patch(self.bytes.len() - 4, number);
    }

    fn patch(&mut self, at: usize, number: u32) {
        let number = match self.is_big {
            true => number.to_be_bytes(),
            false => number.to_le_bytes(),
        };
        self.bytes[at..at + 4].copy_from_slice(&number);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u32);
        self.bytes.extend(text.bytes());
        self.bytes.push(0);
    }

    fn signature(&mut self, signature: &str) {
        self.bytes.push(signature.len() as u8);
        self.bytes.extend(signature.bytes());
        self.bytes.push(0);
    }

    fn field(&mut self, number: u8, signature: &str) {
        self.pad(8);
        self.bytes.push(number);
        self.signature(signature);
    }
}
