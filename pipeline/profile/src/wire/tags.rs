//! The fields of OTLP profiles v1development (opentelemetry-proto 1.10), by message.
//!
//! `KNOWN` is the highest field number of a message: up to it an unlisted tag has the wrong wire type, above it fields
//! are unknown and skipped.

use crate::proto::tag::{fixed64, len, varint};

pub mod request {
    pub const RESOURCE_PROFILES: u32 = super::len(1);
    pub const DICTIONARY: u32 = super::len(2);
    pub const KNOWN: u32 = 2;
}

pub mod dictionary {
    pub const MAPPINGS: u32 = super::len(1);
    pub const LOCATIONS: u32 = super::len(2);
    pub const FUNCTIONS: u32 = super::len(3);
    pub const LINKS: u32 = super::len(4);
    pub const STRINGS: u32 = super::len(5);
    pub const ATTRIBUTES: u32 = super::len(6);
    pub const STACKS: u32 = super::len(7);
    pub const KNOWN: u32 = 7;
}

pub mod resource_profiles {
    pub const RESOURCE: u32 = super::len(1);
    pub const SCOPES: u32 = super::len(2);
    pub const SCHEMA_URL: u32 = super::len(3);
    pub const KNOWN: u32 = 3;
}

pub mod resource {
    pub const ATTRIBUTES: u32 = super::len(1);
    pub const DROPPED_ATTRIBUTES: u32 = super::varint(2);
    pub const ENTITY_REFS: u32 = super::len(3);
    pub const KNOWN: u32 = 3;
}

pub mod entity_ref {
    pub const SCHEMA_URL: u32 = super::len(1);
    pub const KIND: u32 = super::len(2);
    pub const ID_KEYS: u32 = super::len(3);
    pub const DESCRIPTION_KEYS: u32 = super::len(4);
    pub const KNOWN: u32 = 4;
}

pub mod scope_profiles {
    pub const SCOPE: u32 = super::len(1);
    pub const PROFILES: u32 = super::len(2);
    pub const SCHEMA_URL: u32 = super::len(3);
    pub const KNOWN: u32 = 3;
}

pub mod scope {
    pub const NAME: u32 = super::len(1);
    pub const VERSION: u32 = super::len(2);
    pub const ATTRIBUTES: u32 = super::len(3);
    pub const DROPPED_ATTRIBUTES: u32 = super::varint(4);
    pub const KNOWN: u32 = 4;
}

pub mod profile {
    pub const SAMPLE_TYPE: u32 = super::len(1);
    pub const SAMPLES: u32 = super::len(2);
    pub const TIME: u32 = super::fixed64(3);
    pub const DURATION: u32 = super::varint(4);
    pub const PERIOD_TYPE: u32 = super::len(5);
    pub const PERIOD: u32 = super::varint(6);
    pub const PROFILE_ID: u32 = super::len(7);
    pub const DROPPED_ATTRIBUTES: u32 = super::varint(8);
    pub const PAYLOAD_FORMAT: u32 = super::len(9);
    pub const PAYLOAD: u32 = super::len(10);
    pub const ATTRIBUTES: u32 = super::len(11);
    pub const ATTRIBUTE: u32 = super::varint(11);
    pub const KNOWN: u32 = 11;
}

pub mod value_type {
    pub const KIND: u32 = super::varint(1);
    pub const UNIT: u32 = super::varint(2);
    pub const KNOWN: u32 = 2;
}

pub mod sample {
    pub const STACK: u32 = super::varint(1);
    pub const ATTRIBUTES: u32 = super::len(2);
    pub const ATTRIBUTE: u32 = super::varint(2);
    pub const LINK: u32 = super::varint(3);
    /// Up to proto 1.9 field 3 was the list of attributes.
    pub const OLD_ATTRIBUTES: u32 = super::len(3);
    pub const VALUES: u32 = super::len(4);
    pub const VALUE: u32 = super::varint(4);
    pub const TIMESTAMPS: u32 = super::len(5);
    pub const TIMESTAMP: u32 = super::fixed64(5);
    pub const KNOWN: u32 = 5;
}

pub mod mapping {
    pub const START: u32 = super::varint(1);
    pub const LIMIT: u32 = super::varint(2);
    pub const OFFSET: u32 = super::varint(3);
    pub const FILENAME: u32 = super::varint(4);
    pub const ATTRIBUTES: u32 = super::len(5);
    pub const ATTRIBUTE: u32 = super::varint(5);
    pub const KNOWN: u32 = 5;
}

pub mod location {
    pub const MAPPING: u32 = super::varint(1);
    pub const ADDRESS: u32 = super::varint(2);
    pub const LINES: u32 = super::len(3);
    pub const ATTRIBUTES: u32 = super::len(4);
    pub const ATTRIBUTE: u32 = super::varint(4);
    pub const KNOWN: u32 = 4;
}

pub mod line {
    pub const FUNCTION: u32 = super::varint(1);
    pub const LINE: u32 = super::varint(2);
    pub const COLUMN: u32 = super::varint(3);
    pub const KNOWN: u32 = 3;
}

pub mod function {
    pub const NAME: u32 = super::varint(1);
    pub const SYSTEM_NAME: u32 = super::varint(2);
    pub const FILENAME: u32 = super::varint(3);
    pub const START_LINE: u32 = super::varint(4);
    pub const KNOWN: u32 = 4;
}

pub mod stack {
    pub const LOCATIONS: u32 = super::len(1);
    pub const LOCATION: u32 = super::varint(1);
    pub const KNOWN: u32 = 1;
}

pub mod link {
    pub const TRACE_ID: u32 = super::len(1);
    pub const SPAN_ID: u32 = super::len(2);
    pub const KNOWN: u32 = 2;
}

/// `KeyValueAndUnit`
pub mod attribute {
    pub const KEY: u32 = super::varint(1);
    pub const VALUE: u32 = super::len(2);
    pub const UNIT: u32 = super::varint(3);
    pub const KNOWN: u32 = 3;
}

pub mod key_value {
    pub const KEY: u32 = super::len(1);
    pub const VALUE: u32 = super::len(2);
    pub const KEY_INDEX: u32 = super::varint(3);
    pub const KNOWN: u32 = 3;
}

pub mod any_value {
    pub const STRING: u32 = super::len(1);
    pub const BOOL: u32 = super::varint(2);
    pub const INT: u32 = super::varint(3);
    pub const DOUBLE: u32 = super::fixed64(4);
    pub const ARRAY: u32 = super::len(5);
    pub const MAP: u32 = super::len(6);
    pub const BYTES: u32 = super::len(7);
    pub const STRING_INDEX: u32 = super::varint(8);
    pub const KNOWN: u32 = 8;
}

/// `ArrayValue` and `KeyValueList`
pub mod list {
    pub const ITEMS: u32 = super::len(1);
}
