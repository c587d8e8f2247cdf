//! Names of files.

use std::fs;

use super::recording::free_name;

#[test]
fn no_name_is_taken_twice_whatever_the_clock_says() {
    let process = std::process::id();
    let check = |there: &[&str], now: u64, expected: u64| {
        let folder = tempfile::tempdir().unwrap();
        for name in there {
            let name = name.replace("PID", &process.to_string());
            fs::write(folder.path().join(name), "").unwrap();
        }
        let name = free_name(folder.path(), now).unwrap();
        assert_eq!(name, format!("{expected}-{process}.padata"), "{there:?}");
    };
    check(&[], 7, 7);
    check(&["7-1.padata", "8-PID.padata"], 7, 7);
    check(&["7-PID.padata"], 7, 8);
    check(&["7-PID.padata.zst", "8-PID.padata", "10-PID.padata"], 7, 9);
    check(&["7-PID.padata.zst.damaged"], 7, 8);
    check(&["7-PID.padata.refused"], 7, 8);
    // A note would say of a new file that it was delivered.
    check(&[".7-PID.padata.progress"], 7, 8);
    check(&["7-PID.padata.unfinished"], 7, 8);
    let crowd: Vec<String> = (0..1500)
        .map(|second| format!("{second}-PID.padata.zst"))
        .collect();
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    check(&crowd, 0, 1500);
}
