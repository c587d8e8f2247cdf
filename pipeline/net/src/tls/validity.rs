//! Parses a certificate's expiry, to report expired certificates before peers reject them.
//!
//! ```text
//! Certificate ::= SEQUENCE { tbs SEQUENCE {
//!     [0] version OPTIONAL, INTEGER serial, SEQUENCE algorithm, SEQUENCE issuer,
//!     SEQUENCE validity { notBefore Time, notAfter Time }, ... } ... }
//! ```

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// The expiry time as `YYYY-MM-DD hh:mm:ss UTC` if the certificate has expired. Unparseable certificates are left to
/// rustls.
pub(super) fn expired(certificate: &[u8], now: SystemTime) -> Option<String> {
    let end = not_after(certificate)?;
    let [year, month, day, hour, minute, second] = end;
    let seconds = days_since_1970(year, month, day)? * 86_400 + hour * 3600 + minute * 60 + second;
    let ended = UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?);
    (ended < now)
        .then(|| format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC"))
}

fn not_after(certificate: &[u8]) -> Option<[i64; 6]> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    for expected in [VERSION, INTEGER, SEQUENCE, SEQUENCE] {
        let (tag, _, tail) = element(rest)?;
        if tag == expected {
            rest = tail;
        } else if expected != VERSION {
            return None;
        }
    }
    let (_, validity, _) = element(rest)?;
    let (_, _, after) = element(validity)?;
    let (tag, time, _) = element(after)?;
    let time = std::str::from_utf8(time).ok()?;
    let (year, time) = match tag {
        UTC_TIME => {
            let (year, time) = time.split_at_checked(2)?;
            let year: i64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, time)
        }
        GENERALIZED_TIME => {
            let (year, time) = time.split_at_checked(4)?;
            (year.parse().ok()?, time)
        }
        _ => return None,
    };
    let pair = |at: usize| time.get(at..at + 2)?.parse::<i64>().ok();
    Some([year, pair(0)?, pair(2)?, pair(4)?, pair(6)?, pair(8)?])
}

/// Splits off the first DER element: tag, content, rest.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (len, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 4 {
            return None;
        }
        (
            digits
                .iter()
                .fold(0, |len, &digit| len << 8 | usize::from(digit)),
            rest,
        )
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

/// Days since 1970-01-01, with years starting in March so that leap days come last.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1950..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let leap_days = year / 4 - year / 100 + year / 400;
    Some(year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_days_since_the_epoch() {
        for (year, month, day, days) in [
            (1970, 1, 1, 0),
            (2000, 2, 29, 11_016),
            (2026, 11, 21, 20_778),
        ] {
            assert_eq!(days_since_1970(year, month, day), Some(days));
        }
    }

    #[test]
    fn reports_an_expired_certificate() {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 2, 3);
        let key = rcgen::KeyPair::generate().unwrap();
        let old = params.self_signed(&key).unwrap();
        let ended = expired(old.der(), SystemTime::now());
        assert_eq!(ended.as_deref(), Some("2020-02-03 00:00:00 UTC"));
        assert_eq!(expired(old.der(), UNIX_EPOCH), None);

        params.not_after = rcgen::date_time_ymd(2090, 1, 1);
        let good = params.self_signed(&key).unwrap();
        assert_eq!(expired(good.der(), SystemTime::now()), None);
    }

    #[test]
    fn ignores_damaged_certificates() {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        for len in 0..certificate.der().len().min(200) {
            assert_eq!(expired(&certificate.der()[..len], SystemTime::now()), None);
        }
    }
}
