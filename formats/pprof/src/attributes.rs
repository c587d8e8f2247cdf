//! The attributes that store pprof fields.

/// In the order of the pprof fields.
pub(super) const MAPPING_FLAGS: [&str; 4] = [
    "pprof.mapping.has_functions",
    "pprof.mapping.has_filenames",
    "pprof.mapping.has_line_numbers",
    "pprof.mapping.has_inline_frames",
];
pub(super) const IS_FOLDED: &str = "pprof.location.is_folded";

pub(super) const COMMENT: &str = "pprof.profile.comment";
pub(super) const DROP_FRAMES: &str = "pprof.profile.drop_frames";
pub(super) const KEEP_FRAMES: &str = "pprof.profile.keep_frames";
pub(super) const DOC_URL: &str = "pprof.profile.doc_url";
pub(super) const DEFAULT_SAMPLE_TYPE: &str = "pprof.scope.default_sample_type";
pub(super) const SAMPLE_TYPE_ORDER: &str = "pprof.scope.sample_type_order";

const GNU_BUILD_ID: &str = "process.executable.build_id.gnu";
const GO_BUILD_ID: &str = "process.executable.build_id.go";
/// Not a semantic convention: none exists for an id of unknown kind.
const OTHER_BUILD_ID: &str = "pprof.mapping.build_id";

/// Keys of a mapping's build id, in lookup order of the tools.
pub(super) const BUILD_IDS: [&str; 4] = [
    GNU_BUILD_ID,
    GO_BUILD_ID,
    OTHER_BUILD_ID,
    "process.executable.build_id.htlhash",
];

/// The key for a build id of unknown kind.
pub(super) fn build_id_key(id: &str) -> &'static str {
    if id.len().is_multiple_of(2) && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        GNU_BUILD_ID
    } else if id.contains('/') {
        GO_BUILD_ID
    } else {
        OTHER_BUILD_ID
    }
}
