//! The field tags of `perftools.profiles.Profile` and its submessages.

pub(super) mod profile {
    use profcol_profile::proto::tag;

    pub const SAMPLE_TYPE: u32 = tag::len(1);
    pub const SAMPLE: u32 = tag::len(2);
    pub const MAPPING: u32 = tag::len(3);
    pub const LOCATION: u32 = tag::len(4);
    pub const FUNCTION: u32 = tag::len(5);
    pub const STRING: u32 = tag::len(6);
    pub const DROP_FRAMES: u32 = tag::varint(7);
    pub const KEEP_FRAMES: u32 = tag::varint(8);
    pub const TIME: u32 = tag::varint(9);
    pub const DURATION: u32 = tag::varint(10);
    pub const PERIOD_TYPE: u32 = tag::len(11);
    pub const PERIOD: u32 = tag::varint(12);
    pub const COMMENTS: u32 = tag::len(13);
    pub const COMMENT: u32 = tag::varint(13);
    pub const DEFAULT_SAMPLE_TYPE: u32 = tag::varint(14);
    pub const DOC_URL: u32 = tag::varint(15);
    pub const KNOWN: u32 = 15;
}

pub(super) mod value_type {
    use profcol_profile::proto::tag;

    pub const KIND: u32 = tag::varint(1);
    pub const UNIT: u32 = tag::varint(2);
    pub const KNOWN: u32 = 2;
}

pub(super) mod sample {
    use profcol_profile::proto::tag;

    pub const LOCATIONS: u32 = tag::len(1);
    pub const LOCATION: u32 = tag::varint(1);
    pub const VALUES: u32 = tag::len(2);
    pub const VALUE: u32 = tag::varint(2);
    pub const LABEL: u32 = tag::len(3);
    pub const KNOWN: u32 = 3;
}

pub(super) mod label {
    use profcol_profile::proto::tag;

    pub const KEY: u32 = tag::varint(1);
    pub const TEXT: u32 = tag::varint(2);
    pub const NUMBER: u32 = tag::varint(3);
    pub const UNIT: u32 = tag::varint(4);
    pub const KNOWN: u32 = 4;
}

pub(super) mod mapping {
    use profcol_profile::proto::tag;

    pub const ID: u32 = tag::varint(1);
    pub const MEMORY_START: u32 = tag::varint(2);
    pub const MEMORY_LIMIT: u32 = tag::varint(3);
    pub const FILE_OFFSET: u32 = tag::varint(4);
    pub const FILENAME: u32 = tag::varint(5);
    pub const BUILD_ID: u32 = tag::varint(6);
    pub const HAS_FUNCTIONS: u32 = tag::varint(7);
    pub const HAS_FILENAMES: u32 = tag::varint(8);
    pub const HAS_LINE_NUMBERS: u32 = tag::varint(9);
    pub const HAS_INLINE_FRAMES: u32 = tag::varint(10);
    pub const KNOWN: u32 = 10;
}

pub(super) mod location {
    use profcol_profile::proto::tag;

    pub const ID: u32 = tag::varint(1);
    pub const MAPPING: u32 = tag::varint(2);
    pub const ADDRESS: u32 = tag::varint(3);
    pub const LINE: u32 = tag::len(4);
    pub const IS_FOLDED: u32 = tag::varint(5);
    pub const KNOWN: u32 = 5;
}

pub(super) mod line {
    use profcol_profile::proto::tag;

    pub const FUNCTION: u32 = tag::varint(1);
    pub const LINE: u32 = tag::varint(2);
    pub const COLUMN: u32 = tag::varint(3);
    pub const KNOWN: u32 = 3;
}

pub(super) mod function {
    use profcol_profile::proto::tag;

    pub const ID: u32 = tag::varint(1);
    pub const NAME: u32 = tag::varint(2);
    pub const SYSTEM_NAME: u32 = tag::varint(3);
    pub const FILENAME: u32 = tag::varint(4);
    pub const START_LINE: u32 = tag::varint(5);
    pub const KNOWN: u32 = 5;
}
