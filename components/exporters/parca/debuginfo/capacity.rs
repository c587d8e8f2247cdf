//! The maximum size of an upload, so that it ends before the server's time limit.
//!
//! A server ends a call after its own time limit, however much has arrived, and then accepts no other upload of
//! the file for 17 minutes. So an upload that would not finish in time is not started. Time limit and rate are first
//! taken from the configuration, and then measured by uploads that ended or were cut off.

use std::time::Duration;

use profcol_net::grpc::Status;

/// The share of the time limit that an upload may take.
const TIME_LIMIT_SHARE: f64 = 0.8;
/// Smaller uploads do not show the rate: buffers on the way hold as much.
const MIN_MEASURED_BYTES: u64 = 4 << 20;
/// At least as much is assumed to fit into the time limit, so that small uploads are still tried, and show when the
/// server has become faster.
const MIN_SENT: u64 = 256 << 10;
/// The rate assumed without a rate limit, in bytes per second.
const DEFAULT_RATE: u64 = 10 << 20;

#[derive(Debug)]
pub struct Capacity {
    time_limit: Duration,
    bytes_per_second: f64,
    is_measured: bool,
}

/// The limit of an upload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UploadLimit {
    pub bytes: u64,
    pub time: Duration,
    /// Whether it was measured by uploads.
    pub is_measured: bool,
}

impl Capacity {
    pub fn new(timeout: Duration, rate_limit: u64) -> Self {
        let rate = match rate_limit {
            0 => DEFAULT_RATE,
            limit => limit,
        };
        Self {
            time_limit: timeout,
            bytes_per_second: rate as f64,
            is_measured: false,
        }
    }

    pub fn upload_limit(&self) -> UploadLimit {
        let time = self.time_limit.mul_f64(TIME_LIMIT_SHARE);
        UploadLimit {
            bytes: (time.as_secs_f64() * self.bytes_per_second) as u64,
            time,
            is_measured: self.is_measured,
        }
    }

    /// Records an upload that completed within `accepted`.
    pub fn ended(&mut self, bytes: u64, accepted: Duration) {
        // A low limit would stay forever if only large uploads could raise it.
        let min_bytes = MIN_MEASURED_BYTES.min(self.upload_limit().bytes / 2);
        let Some(rate) = rate(bytes, accepted, min_bytes) else {
            return;
        };
        // A slower rate counts only if the upload took almost all of the time.
        if rate > self.bytes_per_second || accepted > self.time_limit.mul_f64(TIME_LIMIT_SHARE) {
            self.bytes_per_second = rate;
            self.is_measured = true;
        }
    }

    /// Records an upload that the server cut off, or that timed out.
    pub fn broke(&mut self, sent: u64, accepted: Duration, status: Option<&Status>) {
        if status.is_some_and(Status::is_read_timeout) {
            self.time_limit = self.time_limit.min(accepted);
        }
        let rate = if status.is_none_or(Status::is_read_timeout) {
            // However little was sent: no more can be sent in all of the time.
            rate(sent.max(MIN_SENT), accepted, 0)
        } else {
            rate(sent, accepted, MIN_MEASURED_BYTES)
        };
        if let Some(rate) = rate {
            self.bytes_per_second = rate;
            self.is_measured = true;
        }
    }
}

fn rate(bytes: u64, accepted: Duration, min_bytes: u64) -> Option<f64> {
    let is_significant = bytes >= min_bytes && !accepted.is_zero();
    is_significant.then(|| bytes as f64 / accepted.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use profcol_net::grpc::Code;

    use super::*;

    const MIB: u64 = 1 << 20;
    const SECOND: Duration = Duration::from_secs(1);

    fn capacity() -> Capacity {
        Capacity::new(5 * SECOND, 10 * MIB)
    }

    fn timeout() -> Status {
        Status::new(Code::Unavailable, "read tcp 10.0.0.1: i/o timeout")
    }

    #[test]
    fn assumes_the_configured_rate_and_time_limit() {
        let upload_limit = UploadLimit {
            bytes: 40 * MIB,
            time: 4 * SECOND,
            is_measured: false,
        };
        assert_eq!(capacity().upload_limit(), upload_limit);
        assert_eq!(Capacity::new(5 * SECOND, 0).upload_limit(), upload_limit);
    }

    #[test]
    fn a_cut_off_upload_lowers_the_limit() {
        let mut capacity = capacity();
        // 90 of 127 MB arrived, as with a server with default settings.
        capacity.broke(90 * MIB, 5 * SECOND, Some(&timeout()));
        let upload_limit = capacity.upload_limit();
        assert_eq!(
            (upload_limit.bytes, upload_limit.is_measured),
            (72 * MIB, true)
        );
        capacity.broke(10 * MIB, 5 * SECOND, Some(&timeout()));
        assert_eq!(capacity.upload_limit().bytes, 8 * MIB);
    }

    #[test]
    fn learns_the_time_limit_of_the_server_if_it_is_below_ours() {
        let mut capacity = Capacity::new(60 * SECOND, 10 * MIB);
        capacity.broke(50 * MIB, 5 * SECOND, Some(&timeout()));
        assert_eq!(capacity.upload_limit().time, 4 * SECOND);
        // A restart of the server, say, does not show its time limit.
        let start_receiver = Status::new(Code::Unavailable, "connection reset by peer");
        capacity.broke(50 * MIB, SECOND, Some(&start_receiver));
        assert_eq!(capacity.upload_limit().time, 4 * SECOND);
    }

    #[test]
    fn a_fast_upload_raises_the_limit() {
        let mut capacity = capacity();
        capacity.ended(40 * MIB, 2 * SECOND);
        assert_eq!(capacity.upload_limit().bytes, 80 * MIB);
        // Slower uploads may have been throttled by the rate limit.
        capacity.ended(5 * MIB, 2 * SECOND);
        assert_eq!(capacity.upload_limit().bytes, 80 * MIB);
        // But not one that took all of the time.
        capacity.ended(20 * MIB, 5 * SECOND);
        assert_eq!(capacity.upload_limit().bytes, 16 * MIB);
    }

    #[test]
    fn a_slow_server_lowers_the_limit_until_small_uploads_are_fast() {
        for status in [None, Some(&timeout())] {
            let mut capacity = capacity();
            capacity.broke(2 * MIB, 5 * SECOND, status);
            let upload_limit = capacity.upload_limit();
            assert_eq!(
                (upload_limit.bytes, upload_limit.is_measured),
                (2 * MIB * 4 / 5, true)
            );
            // Half of the limit shows the rate.
            capacity.ended(MIB / 2, SECOND / 10);
            assert_eq!(capacity.upload_limit().bytes, 2 * MIB * 4 / 5);
            capacity.ended(MIB, SECOND);
            assert_eq!(capacity.upload_limit().bytes, 4 * MIB);
            // A server that stands still.
            capacity.broke(0, 5 * SECOND, status);
            assert_eq!(capacity.upload_limit().bytes, MIN_SENT * 4 / 5);
            capacity.ended(MIB / 8, SECOND / 8);
            assert_eq!(capacity.upload_limit().bytes, 4 * MIB);
        }
    }

    #[test]
    fn small_uploads_are_ignored() {
        let mut capacity = capacity();
        capacity.ended(MIB, Duration::from_millis(1));
        let reset = Status::new(Code::Unavailable, "connection reset by peer");
        capacity.broke(MIB, SECOND, Some(&reset));
        assert_eq!(capacity.upload_limit().bytes, 40 * MIB);
        assert!(!capacity.upload_limit().is_measured);
    }
}
