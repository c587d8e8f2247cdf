//! Two errors of grpc-go servers that have no code or detail of their own: only their messages tell them apart.

use super::code::Code;
use super::status::Status;

/// A message was longer than the server receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageTooLarge {
    /// In bytes, where the message says so.
    pub limit: Option<usize>,
}

impl Status {
    /// `grpc: received message larger than max (5000 vs. 4096)`, or `… after decompression larger than max 4096`.
    pub fn message_too_large(&self) -> Option<MessageTooLarge> {
        let is_too_large =
            self.code == Code::ResourceExhausted && self.message.contains("larger than");
        is_too_large.then(|| MessageTooLarge {
            limit: limit(&self.message),
        })
    }

    /// The message did not arrive within the server's `ReadTimeout`.
    pub fn is_read_timeout(&self) -> bool {
        self.code == Code::DeadlineExceeded
            || self.code == Code::Unavailable && self.message.contains("i/o timeout")
    }
}

fn limit(message: &str) -> Option<usize> {
    let (_, numbers) = message.rsplit_once("larger than max ")?;
    let limit = match numbers.rsplit_once(" vs. ") {
        Some((_, limit)) => limit,
        None => numbers,
    };
    let digits: String = limit.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_limit_of_a_message() {
        for (message, expected) in [
            (
                "grpc: received message larger than max (5000 vs. 100)",
                Some(Some(100)),
            ),
            (
                "grpc: received message after decompression larger than max 90",
                Some(Some(90)),
            ),
            ("larger than max", Some(None)),
            (
                "trying to send message larger than max (1 vs. x)",
                Some(None),
            ),
            ("too many requests", None),
        ] {
            let status = Status::new(Code::ResourceExhausted, message);
            let found = status.message_too_large().map(|it| it.limit);
            assert_eq!(found, expected, "{message}");
            let other = Status::new(Code::Internal, message);
            assert_eq!(other.message_too_large(), None);
        }
    }

    #[test]
    fn a_read_timeout_is_a_deadline_or_says_so() {
        for (code, message, expected) in [
            (Code::DeadlineExceeded, "", true),
            (Code::Unavailable, "read tcp 10.0.0.1: i/o timeout", true),
            (Code::Unavailable, "connection refused", false),
            (Code::Internal, "i/o timeout", false),
        ] {
            assert_eq!(
                Status::new(code, message).is_read_timeout(),
                expected,
                "{code:?} {message}"
            );
        }
    }
}
