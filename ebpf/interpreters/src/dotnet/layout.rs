//! Places in the state of CoreCLR. All of these versions keep range sections, code heaps and method descriptors alike.

/// What differs between versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The first number of the version.
    pub major: u32,
    /// In a module: what it was loaded from.
    pub module_assembly: u64,
    /// In an image: its contents as in the file, and as loaded by sections.
    pub flat_image: u64,
    pub loaded_image: u64,
    /// In the descriptor of a method without metadata: its name.
    pub dynamic_name: u64,
    /// Whether the nibble map has the distance to the start of long methods.
    pub has_distances: bool,
}

const LAYOUTS: &[Layout] = &[
    Layout {
        major: 8,
        module_assembly: 0x110,
        flat_image: 0x70,
        loaded_image: 0x78,
        dynamic_name: 0x18,
        has_distances: false,
    },
    Layout {
        major: 9,
        module_assembly: 0x118,
        flat_image: 0x70,
        loaded_image: 0x78,
        dynamic_name: 0x20,
        has_distances: false,
    },
    Layout {
        major: 10,
        module_assembly: 0xd8,
        flat_image: 0x78,
        loaded_image: 0x80,
        dynamic_name: 0x20,
        has_distances: true,
    },
];

impl Layout {
    /// The layout of a version, or why it is not supported.
    pub fn of_version(version: &str) -> Result<Self, &'static str> {
        let major = version
            .split('.')
            .next()
            .and_then(|major| major.parse().ok());
        match major {
            Some(0..8) => Err("8 is the oldest supported version"),
            Some(major) => {
                let layout = LAYOUTS.iter().find(|layout| layout.major == major);
                layout.copied().ok_or("10 is the newest supported version")
            }
            None => Err("its version is unknown"),
        }
    }

    /// The layout of each supported version.
    pub fn all() -> &'static [Self] {
        LAYOUTS
    }
}

/// The header of a compiled method.
pub mod code_header {
    pub const DEBUG_INFO: u64 = 0;
    pub const METHOD: u64 = 24;
}

/// The descriptor of a method.
pub mod method_desc {
    pub const TOKEN_REMAINDER: usize = 0;
    pub const CHUNK_INDEX: usize = 2;
    pub const FLAGS: usize = 6;
    pub const BYTES: usize = 8;

    pub const KIND: u16 = 7;
    /// It has no metadata.
    pub const DYNAMIC: u16 = 7;
    pub const ALIGN: u64 = 8;
    pub const TOKEN_BITS: u32 = 12;
}

/// The head of a chunk of descriptors.
pub mod method_chunk {
    pub const METHOD_TABLE: usize = 0;
    pub const TOKEN_RANGE: usize = 18;
    pub const BYTES: u64 = 24;
}

/// From a method's type to the contents of its assembly.
pub mod module {
    pub const OF_METHOD_TABLE: u64 = 24;
    /// From what a module was loaded from to its image.
    pub const IMAGE: u64 = 8;
    pub const IMAGE_BASE: u64 = 8;
    pub const IMAGE_SIZE: u64 = 16;
    pub const IMAGE_FLAGS: u64 = 20;
    /// The image's sections are at their own addresses.
    pub const IS_MAPPED: u32 = 1;
}
