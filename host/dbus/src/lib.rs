//! Messages of D-Bus, as far as it takes to ask for the properties of an object.
//!
//! What is sent is of the little order of bytes; what comes may be of either, and is read as something that anybody
//! could have sent: nothing that comes can do more than be refused.

#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
#[cfg(test)]
mod tests;

/// A message may have headers and a body of so many bytes: those of a unit with a thousand dependencies are a tenth of it.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// What is in front of the headers' fields, with their length.
pub const START: usize = 16;
/// So deep values are nested in what systemd tells, and twice as deep.
const MAX_DEPTH: usize = 16;

const CALL: u8 = 1;
const RETURN: u8 = 2;
const ERROR: u8 = 3;
/// Nobody is started for our sake.
const NO_AUTO_START: u8 = 2;
const VERSION: u8 = 1;

/// Numbers of the fields in a header.
mod field {
    pub const PATH: u8 = 1;
    pub const INTERFACE: u8 = 2;
    pub const MEMBER: u8 = 3;
    pub const ERROR_NAME: u8 = 4;
    pub const REPLY_SERIAL: u8 = 5;
    pub const DESTINATION: u8 = 6;
    pub const SIGNATURE: u8 = 8;
}

/// A question: a method of an object, with at most one text for it.
pub struct Call<'a> {
    pub destination: &'a str,
    pub path: &'a str,
    pub interface: &'a str,
    pub member: &'a str,
    pub argument: Option<&'a str>,
}

impl Call<'_> {
    /// `serial` is what the answer refers to; not 0.
    pub fn encode(&self, serial: u32) -> Vec<u8> {
        let mut body = Vec::new();
        if let Some(argument) = self.argument {
            put_text(&mut body, argument);
        }
        let mut bytes = vec![b'l', CALL, NO_AUTO_START, VERSION];
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(serial.to_le_bytes());
        // The length of the fields, which is known once they are there.
        bytes.extend([0; 4]);
        for (number, kind, text) in [
            (field::PATH, "o", self.path),
            (field::DESTINATION, "s", self.destination),
            (field::INTERFACE, "s", self.interface),
            (field::MEMBER, "s", self.member),
        ] {
            put_field(&mut bytes, number, kind);
            put_text(&mut bytes, text);
        }
        if self.argument.is_some() {
            put_field(&mut bytes, field::SIGNATURE, "g");
            put_signature(&mut bytes, "s");
        }
        let fields = (bytes.len() - START) as u32;
        for (place, byte) in bytes.iter_mut().skip(START - 4).zip(fields.to_le_bytes()) {
            *place = byte;
        }
        pad(&mut bytes, 8);
        bytes.extend(body);
        bytes
    }
}

fn put_field(bytes: &mut Vec<u8>, number: u8, kind: &str) {
    pad(bytes, 8);
    bytes.push(number);
    put_signature(bytes, kind);
}

fn put_signature(bytes: &mut Vec<u8>, signature: &str) {
    bytes.push(signature.len() as u8);
    bytes.extend(signature.as_bytes());
    bytes.push(0);
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    pad(bytes, 4);
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.push(0);
}

fn pad(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

/// Why bytes are no message that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("unexpected end of file")]
    Short,
    #[error("it is longer than {MAX_MESSAGE_BYTES} bytes")]
    Long,
    #[error("unknown byte order or version")]
    Unknown,
    #[error("a text is no text")]
    Text,
    #[error("its values are not as it says")]
    Signature,
}

type Read<T> = Result<T, Malformed>;

/// How many bytes of fields, and how many of the body, follow the first [`START`].
pub fn lengths(start: &[u8; START]) -> Read<(usize, usize)> {
    let (order, version) = (start[0], start[3]);
    if version != VERSION {
        return Err(Malformed::Unknown);
    }
    let mut reader = Reader::new(start, order)?;
    reader.at = 4;
    let body = reader.u32()? as usize;
    reader.at = 12;
    let fields = reader.u32()? as usize;
    match fields > MAX_MESSAGE_BYTES || body > MAX_MESSAGE_BYTES {
        true => Err(Malformed::Long),
        // Up to the body there is padding.
        false => Ok((fields.next_multiple_of(8), body)),
    }
}

/// What came.
#[derive(Debug)]
pub struct Message {
    kind: u8,
    order: u8,
    reply_to: Option<u32>,
    error: Option<String>,
    signature: String,
    body: Vec<u8>,
}

impl Message {
    /// One that is there as a whole.
    pub fn read(bytes: &[u8]) -> Read<Self> {
        let start = bytes.first_chunk().ok_or(Malformed::Short)?;
        let (fields, body) = lengths(start)?;
        let (head, rest) = bytes
            .split_at_checked(START + fields)
            .ok_or(Malformed::Short)?;
        let body = rest.get(..body).ok_or(Malformed::Short)?;
        Self::decode(head, body.to_vec())
    }

    /// `head` is all that stands before the body.
    pub fn decode(head: &[u8], body: Vec<u8>) -> Read<Self> {
        let &[order, kind, ..] = head else {
            return Err(Malformed::Short);
        };
        let mut message = Self {
            kind,
            order,
            reply_to: None,
            error: None,
            signature: String::new(),
            body,
        };
        let mut reader = Reader::new(head, order)?;
        reader.at = START - 4;
        let end = START + reader.u32()? as usize;
        while reader.at < end {
            reader.align(8)?;
            let number = reader.u8()?;
            let signature = reader.signature()?;
            match (number, signature) {
                (field::REPLY_SERIAL, b"u") => message.reply_to = Some(reader.u32()?),
                (field::ERROR_NAME, b"s") => message.error = Some(reader.text()?.to_owned()),
                (field::SIGNATURE, b"g") => {
                    let signature = reader.signature()?;
                    message.signature = String::from_utf8_lossy(signature).into_owned();
                }
                _ => reader.skip_all(signature, 0)?,
            }
        }
        Ok(message)
    }

    /// Whether it is the answer to the call of that number; if so with the name of the error that it tells.
    pub fn answers(&self, serial: u32) -> Option<Result<(), &str>> {
        if self.reply_to != Some(serial) {
            return None;
        }
        match self.kind {
            RETURN => Some(Ok(())),
            ERROR => Some(Err(self
                .error
                .as_deref()
                .unwrap_or("an error without a name"))),
            _ => None,
        }
    }

    /// Tells each property of the answer of `GetAll`; those of other types than [`Property`] has are passed over.
    pub fn properties<'a>(&'a self, mut tell: impl FnMut(&'a str, Property<'a>)) -> Read<()> {
        if self.signature != "a{sv}" {
            return Err(Malformed::Signature);
        }
        let mut reader = Reader::new(&self.body, self.order)?;
        let length = reader.u32()? as usize;
        reader.align(8)?;
        let end = reader.at + length;
        while reader.at < end {
            reader.align(8)?;
            let name = reader.text()?;
            let signature = reader.signature()?;
            match signature {
                b"s" => tell(name, Property::Text(reader.text()?)),
                b"b" => tell(name, Property::Flag(reader.u32()? != 0)),
                b"t" => tell(name, Property::Number(reader.u64()?)),
                b"ay" => {
                    let length = reader.u32()? as usize;
                    tell(name, Property::Bytes(reader.take(length)?));
                }
                other => reader.skip_all(other, 0)?,
            }
        }
        Ok(())
    }
}

/// A value, of the types that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property<'a> {
    Text(&'a str),
    Flag(bool),
    Number(u64),
    Bytes(&'a [u8]),
}

/// Where a message, or its body, is read.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    is_big: bool,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], order: u8) -> Read<Self> {
        let is_big = match order {
            b'l' => false,
            b'B' => true,
            _ => return Err(Malformed::Unknown),
        };
        let at = 0;
        Ok(Self { bytes, at, is_big })
    }

    fn take(&mut self, length: usize) -> Read<&'a [u8]> {
        let rest = self.bytes.get(self.at..).ok_or(Malformed::Short)?;
        let taken = rest.get(..length).ok_or(Malformed::Short)?;
        self.at += length;
        Ok(taken)
    }

    fn align(&mut self, to: usize) -> Read<()> {
        self.take(self.at.next_multiple_of(to) - self.at)
            .map(|_| ())
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        self.align(N)?;
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| Malformed::Short)
    }

    fn u8(&mut self) -> Read<u8> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn u32(&mut self) -> Read<u32> {
        let bytes = self.array()?;
        Ok(match self.is_big {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        })
    }

    fn u64(&mut self) -> Read<u64> {
        let bytes = self.array()?;
        Ok(match self.is_big {
            true => u64::from_be_bytes(bytes),
            false => u64::from_le_bytes(bytes),
        })
    }

    fn text(&mut self) -> Read<&'a str> {
        let length = self.u32()? as usize;
        let text = self.take(length)?;
        self.zero()?;
        std::str::from_utf8(text).map_err(|_| Malformed::Text)
    }

    fn signature(&mut self) -> Read<&'a [u8]> {
        let length = self.u8()?.into();
        let signature = self.take(length)?;
        self.zero()?;
        Ok(signature)
    }

    fn zero(&mut self) -> Read<()> {
        match self.u8()? {
            0 => Ok(()),
            _ => Err(Malformed::Text),
        }
    }

    /// Passes over values of these types.
    fn skip_all(&mut self, mut signature: &[u8], depth: usize) -> Read<()> {
        while !signature.is_empty() {
            let (first, rest) = first(signature, depth)?;
            self.skip(first, depth)?;
            signature = rest;
        }
        Ok(())
    }

    /// Passes over one value of this one type.
    fn skip(&mut self, signature: &[u8], depth: usize) -> Read<()> {
        match signature {
            [b'y'] => self.array::<1>().map(|_| ()),
            [b'n' | b'q'] => self.array::<2>().map(|_| ()),
            [b'b' | b'i' | b'u' | b'h'] => self.array::<4>().map(|_| ()),
            [b'x' | b't' | b'd'] => self.array::<8>().map(|_| ()),
            [b's' | b'o'] => self.text().map(|_| ()),
            [b'g'] => self.signature().map(|_| ()),
            [b'v'] => {
                let signature = self.signature()?;
                self.skip_all(signature, depth + 1)
            }
            [b'a', element @ ..] => {
                let length = self.u32()? as usize;
                self.align(alignment(element))?;
                self.take(length).map(|_| ())
            }
            [b'(' | b'{', fields @ .., _] => {
                self.align(8)?;
                self.skip_all(fields, depth + 1)
            }
            _ => Err(Malformed::Signature),
        }
    }
}

fn alignment(signature: &[u8]) -> usize {
    match signature.first() {
        Some(b'n' | b'q') => 2,
        Some(b'b' | b'i' | b'u' | b'h' | b's' | b'o' | b'a') => 4,
        Some(b'x' | b't' | b'd' | b'(' | b'{') => 8,
        _ => 1,
    }
}

/// The first of these types, and the others.
fn first(signature: &[u8], depth: usize) -> Read<(&[u8], &[u8])> {
    let length = length_of_first(signature, depth)?;
    signature
        .split_at_checked(length)
        .ok_or(Malformed::Signature)
}

fn length_of_first(signature: &[u8], depth: usize) -> Read<usize> {
    if depth > MAX_DEPTH {
        return Err(Malformed::Signature);
    }
    let (kind, mut rest) = signature.split_first().ok_or(Malformed::Signature)?;
    let end = match kind {
        b'a' => return Ok(1 + length_of_first(rest, depth + 1)?),
        b'(' => b')',
        b'{' => b'}',
        b'y' | b'n' | b'q' | b'b' | b'i' | b'u' | b'h' | b'x' | b't' | b'd' | b's' | b'o'
        | b'g' | b'v' => return Ok(1),
        _ => return Err(Malformed::Signature),
    };
    let mut length = 2;
    while rest.first() != Some(&end) {
        let (first, others) = first(rest, depth + 1)?;
        length += first.len();
        rest = others;
    }
    Ok(length)
}
