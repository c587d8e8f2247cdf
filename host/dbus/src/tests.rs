use super::*;
use crate::testkit::{Shown, reply};

#[test]
fn calls_are_as_the_protocol_has_them() {
    let hello = Call {
        destination: "org.freedesktop.DBus",
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        member: "Hello",
        argument: None,
    };
    let expected = b"l\x01\x02\x01\0\0\0\0\x01\0\0\0\x6e\0\0\0\
        \x01\x01o\0\x15\0\0\0/org/freedesktop/DBus\0\0\0\
        \x06\x01s\0\x14\0\0\0org.freedesktop.DBus\0\0\0\0\
        \x02\x01s\0\x14\0\0\0org.freedesktop.DBus\0\0\0\0\
        \x03\x01s\0\x05\0\0\0Hello\0\0\0";
    assert_eq!(hello.encode(1), expected);
    let asks = Call {
        argument: Some("abc"),
        ..hello
    };
    let bytes = asks.encode(2);
    assert_eq!(&bytes[4..8], [8, 0, 0, 0], "the length of the body");
    assert!(
        bytes.ends_with(b"\x08\x01g\0\x01s\0\0\x03\0\0\0abc\0"),
        "{bytes:?}"
    );
}

fn properties(message: &Message) -> Result<Vec<(String, String)>, Malformed> {
    let mut told = Vec::new();
    message.properties(|name, property| {
        let shown = match property {
            Property::Text(text) => text.to_owned(),
            Property::Flag(flag) => flag.to_string(),
            Property::Number(number) => number.to_string(),
            Property::Bytes(bytes) => format!("{bytes:?}"),
        };
        told.push((name.to_owned(), shown));
    })?;
    Ok(told)
}

fn answer(is_big: bool) -> Vec<u8> {
    let properties = [
        ("Id", Shown::Text("a.service")),
        ("Conditions", Shown::Nested),
        ("InvocationID", Shown::Bytes(vec![1, 2, 3])),
        ("ConditionResult", Shown::Flag(true)),
        ("AssertTimestamp", Shown::Number(1 << 40)),
    ];
    reply(is_big, Some(7), None, &properties)
}

#[test]
fn answers_are_read_in_both_orders_of_bytes() {
    for is_big in [false, true] {
        let message = Message::read(&answer(is_big)).unwrap();
        assert_eq!(message.answers(7), Some(Ok(())));
        assert_eq!(message.answers(8), None);
        let told = properties(&message).unwrap();
        let told: Vec<_> = told
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let expected = [
            ("Id", "a.service"),
            ("InvocationID", "[1, 2, 3]"),
            ("ConditionResult", "true"),
            ("AssertTimestamp", "1099511627776"),
        ];
        assert_eq!(told, expected);
        let error = Message::read(&reply(is_big, Some(7), Some("a.b.C"), &[])).unwrap();
        assert_eq!(error.answers(7), Some(Err("a.b.C")));
        let signal = Message::read(&reply(is_big, None, None, &[])).unwrap();
        assert_eq!(signal.answers(0), None);
    }
}

#[test]
fn no_answer_can_do_harm() {
    let good = answer(false);
    for length in 0..good.len() {
        assert!(Message::read(&good[..length]).is_err(), "cut at {length}");
    }
    // What is read of a damaged one does not matter: that it is read does.
    let mut bytes = good.clone();
    for place in 0..good.len() {
        for value in 0..=255 {
            bytes[place] = value;
            if let Ok(message) = Message::read(&bytes) {
                let _ = properties(&message);
            }
        }
        bytes[place] = good[place];
    }
    let mut long = good.clone();
    long[4..8].copy_from_slice(&(MAX_MESSAGE_BYTES as u32 + 1).to_le_bytes());
    assert_eq!(Message::read(&long).unwrap_err(), Malformed::Long);
    let mut old = good;
    old[3] = 0;
    assert_eq!(Message::read(&old).unwrap_err(), Malformed::Unknown);
}

#[test]
fn types_are_nested_only_so_deep() {
    let deep = |signature: &str| {
        let mut bytes = reply(false, Some(7), None, &[]);
        // In the place of the field that nobody knows.
        let place = bytes.windows(5).position(|it| it == b"a(sv)").unwrap();
        bytes.truncate(place - 1);
        bytes.push(signature.len() as u8);
        bytes.extend(signature.bytes());
        bytes.push(0);
        bytes.extend([0; 64]);
        let fields = (bytes.len() - START) as u32;
        bytes[12..16].copy_from_slice(&fields.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes[4..8].fill(0);
        Message::read(&bytes).map(|_| ())
    };
    let nested = |depth: usize| format!("{}y{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(deep(&nested(100)), Err(Malformed::Signature));
    assert_eq!(deep(&"a".repeat(200)), Err(Malformed::Signature));
    assert_eq!(deep("("), Err(Malformed::Signature));
    assert_eq!(deep("z"), Err(Malformed::Signature));
}
