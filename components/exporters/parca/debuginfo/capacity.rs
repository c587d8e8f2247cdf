//! How much an upload may have, so that it ends before the server cuts it off.
//!
//! A server ends a call after a time of its own, however much has arrived, and takes no other upload of
//! the file for 17 minutes. So what cannot arrive in time is not begun. The time and the rate are
//! those of the configuration at first, and then those of uploads that ended or were cut off.

use std::time::Duration;

use profcol_net::grpc::{Code, Status};

/// The share of the time limit in which an upload has to be done.
const TIME_LIMIT_SHARE: f64 = 0.8;
/// What is smaller tells nothing of the rate: buffers on the way hold as much.
const MAX_FINISH_ATTEMPTS: u64 = 4 << 20;
/// The rate that is assumed where no limit is set, in bytes a second.
const DEFAULT_RATE: u64 = 10 << 20;

#[derive(Debug)]
pub struct Capacity {
    time_limit: Duration,
    bytes_per_second: f64,
    is_measured: bool,
}

/// What an upload may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UploadLimit {
    pub bytes: u64,
    pub time: Duration,
    /// Whether uploads showed it.
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

    /// An upload was made within `accepted`.
    pub fn ended(&mut self, bytes: u64, accepted: Duration) {
        let Some(rate) = rate(bytes, accepted) else {
            return;
        };
        // It may have been slower than it could have been, unless it took all the time that there was.
        if rate > self.bytes_per_second || accepted > self.time_limit.mul_f64(TIME_LIMIT_SHARE) {
            self.bytes_per_second = rate;
            self.is_measured = true;
        }
    }

    /// An upload was cut off by the server, or took longer than it may.
    pub fn broke(&mut self, sent: u64, accepted: Duration, status: Option<&Status>) {
        if status.is_some_and(is_time_limit) {
            self.time_limit = self.time_limit.min(accepted);
        }
        if let Some(rate) = rate(sent, accepted) {
            self.bytes_per_second = rate;
            self.is_measured = true;
        }
    }
}

fn rate(bytes: u64, accepted: Duration) -> Option<f64> {
    let is_telling = bytes >= MAX_FINISH_ATTEMPTS && !accepted.is_zero();
    is_telling.then(|| bytes as f64 / accepted.as_secs_f64())
}

/// What Go's HTTP server makes of its `ReadTimeout`.
fn is_time_limit(status: &Status) -> bool {
    status.code == Code::DeadlineExceeded || status.message.contains("i/o timeout")
}

#[cfg(test)]
mod tests {
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
    fn what_was_cut_off_fits_less_the_next_time() {
        let mut capacity = capacity();
        // 90 of 127 MB arrived, as at a server with default settings.
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
    fn learns_the_server_s_time_limit_where_it_is_below_ours() {
        let mut capacity = Capacity::new(60 * SECOND, 10 * MIB);
        capacity.broke(50 * MIB, 5 * SECOND, Some(&timeout()));
        assert_eq!(capacity.upload_limit().time, 4 * SECOND);
        // One that restarted, say, has cut off nothing by its limit.
        let start_receiver = Status::new(Code::Unavailable, "connection reset by peer");
        capacity.broke(50 * MIB, SECOND, Some(&start_receiver));
        assert_eq!(capacity.upload_limit().time, 4 * SECOND);
    }

    #[test]
    fn a_fast_upload_makes_room_for_larger_ones() {
        let mut capacity = capacity();
        capacity.ended(40 * MIB, 2 * SECOND);
        assert_eq!(capacity.upload_limit().bytes, 80 * MIB);
        // Slower ones may have been held back by the rate limit.
        capacity.ended(5 * MIB, 2 * SECOND);
        assert_eq!(capacity.upload_limit().bytes, 80 * MIB);
        // But not one that took all the time.
        capacity.ended(20 * MIB, 5 * SECOND);
        assert_eq!(capacity.upload_limit().bytes, 16 * MIB);
    }

    #[test]
    fn small_uploads_tell_nothing() {
        let mut capacity = capacity();
        capacity.ended(MIB, Duration::from_millis(1));
        capacity.broke(MIB, SECOND, None);
        assert_eq!(capacity.upload_limit().bytes, 40 * MIB);
        assert!(!capacity.upload_limit().is_measured);
    }
}
