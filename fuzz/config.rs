//! Configuration text: YAML, expansion of `${…}` and merging, without access to the host. Any text yields a
//! configuration or an error that can be displayed.

#![cfg_attr(fuzzing, no_main)]

use profcol_fuzz::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Err(unresolved) = profcol_config::parse_untrusted(data) {
        assert!(!unresolved.to_string().is_empty());
    }
});
