//! Configuration text: YAML, expansion of `${…}` and merging, with nothing of the host in reach. Whatever the text is, there is
//! an answer, and an error can be shown.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Err(unresolved) = profcol_config::parse_untrusted(data) {
        assert!(!unresolved.to_string().is_empty());
    }
});
