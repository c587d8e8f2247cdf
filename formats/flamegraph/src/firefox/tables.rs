//! The tables of a processed profile, version 60 of the format: since then all threads share stacks, frames and
//! functions. Later versions of the Firefox Profiler upgrade it when they load it.

use serde::Serialize;

use crate::code::FrameKind;

pub(super) const VERSION: u32 = 60;

/// A viewer takes the first grey one for frames without a category.
pub(super) const CATEGORIES: [Category; 6] = [
    Category::new("User", "yellow"),
    Category::new("Kernel", "orange"),
    Category::new("JIT", "purple"),
    Category::new("Interpreted", "green"),
    Category::new("Runtime", "lightblue"),
    Category::new("Other", "grey"),
];

const NO_RESOURCE: i64 = -1;
const NO_ADDRESS: i64 = -1;
/// The type of a resource.
const LIBRARY: u32 = 1;

#[derive(Serialize)]
pub(super) struct File {
    pub meta: Meta,
    pub libs: [(); 0],
    pub pages: [(); 0],
    pub shared: Shared,
    pub threads: Vec<Thread>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    pub product: String,
    /// Milliseconds, as all times; Unix time here, since the start elsewhere.
    pub start_time: f64,
    pub profiling_start_time: f64,
    pub profiling_end_time: f64,
    pub interval: f64,
    pub categories: [Category; CATEGORIES.len()],
    pub process_type: u32,
    pub stackwalk: u32,
    /// Version of the format that Firefox records; readers of processed profiles ignore it.
    pub version: u32,
    pub preprocessed_profile_version: u32,
    pub marker_schema: [(); 0],
    pub imported_from: &'static str,
    pub symbolicated: bool,
    pub symbolication_not_supported: bool,
    pub uses_only_one_stack_type: bool,
    pub source_code_is_not_on_searchfox: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_units: Option<SampleUnits>,
}

#[derive(Serialize)]
pub(super) struct Category {
    pub name: &'static str,
    pub color: &'static str,
    pub subcategories: [&'static str; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SampleUnits {
    pub time: &'static str,
    pub event_delay: &'static str,
    #[serde(rename = "threadCPUDelta")]
    pub cpu_delta: &'static str,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shared {
    pub string_array: Vec<String>,
    pub sources: Sources,
    pub stack_table: Stacks,
    pub frame_table: Frames,
    pub func_table: Functions,
    pub resource_table: Resources,
    pub native_symbols: NativeSymbols,
}

#[derive(Default, Serialize)]
pub(super) struct Sources {
    pub length: usize,
    pub uuid: Vec<Option<String>>,
    pub filename: Vec<usize>,
}

#[derive(Default, Serialize)]
pub(super) struct Stacks {
    pub length: usize,
    pub frame: Vec<usize>,
    pub prefix: Vec<Option<usize>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Frames {
    pub length: usize,
    pub address: Vec<i64>,
    pub inline_depth: Vec<u32>,
    pub category: Vec<usize>,
    pub subcategory: Vec<usize>,
    pub func: Vec<usize>,
    pub native_symbol: Vec<Option<usize>>,
    #[serde(rename = "innerWindowID")]
    pub inner_window_id: Vec<Option<u64>>,
    pub line: Vec<Option<i64>>,
    pub column: Vec<Option<i64>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Functions {
    pub length: usize,
    pub name: Vec<usize>,
    #[serde(rename = "isJS")]
    pub is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    pub relevant_for_js: Vec<bool>,
    pub resource: Vec<i64>,
    pub source: Vec<Option<usize>>,
    pub line_number: Vec<Option<i64>>,
    pub column_number: Vec<Option<i64>>,
}

#[derive(Default, Serialize)]
pub(super) struct Resources {
    pub length: usize,
    pub lib: Vec<Option<usize>>,
    pub name: Vec<usize>,
    pub host: Vec<Option<usize>>,
    #[serde(rename = "type")]
    pub kind: Vec<u32>,
}

/// A row of [`Functions`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Function {
    pub name: usize,
    pub resource: Option<usize>,
    pub source: Option<usize>,
    pub line: Option<i64>,
}

/// A row of [`Frames`]: a line of a function. Addresses are left out: they matter to symbolizers only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Frame {
    pub function: usize,
    pub kind: FrameKind,
    pub inline_depth: u32,
    pub line: Option<i64>,
    pub column: Option<i64>,
}

/// Empty: functions have their names already.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NativeSymbols {
    length: usize,
    lib_index: [(); 0],
    address: [(); 0],
    name: [(); 0],
    function_size: [(); 0],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Thread {
    pub process_type: &'static str,
    pub process_startup_time: f64,
    pub process_shutdown_time: Option<f64>,
    pub register_time: f64,
    pub unregister_time: Option<f64>,
    pub paused_ranges: [(); 0],
    pub name: String,
    pub process_name: String,
    pub is_main_thread: bool,
    pub pid: String,
    pub tid: i64,
    pub samples: Samples,
    pub markers: Markers,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Samples {
    pub length: usize,
    pub stack: Vec<Option<usize>>,
    pub time: Vec<f64>,
    pub weight: Vec<f64>,
    pub weight_type: &'static str,
    /// Nanoseconds since the previous sample.
    #[serde(rename = "threadCPUDelta", skip_serializing_if = "Option::is_none")]
    pub cpu_delta: Option<Vec<u64>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Markers {
    length: usize,
    data: [(); 0],
    name: [(); 0],
    start_time: [(); 0],
    end_time: [(); 0],
    phase: [(); 0],
    category: [(); 0],
}

// === impl Category ===

impl Category {
    const fn new(name: &'static str, color: &'static str) -> Self {
        Self {
            name,
            color,
            subcategories: ["Other"],
        }
    }
}

/// An index into [`CATEGORIES`]. Inlined frames have the kind of the code that they are in.
fn category(kind: FrameKind) -> usize {
    match kind {
        FrameKind::Native | FrameKind::Inlined => 0,
        FrameKind::Kernel => 1,
        FrameKind::Jit => 2,
        FrameKind::Interpreted => 3,
        FrameKind::Runtime => 4,
        FrameKind::Marker => 5,
    }
}

// === impl Shared ===

impl Shared {
    pub fn add_source(&mut self, filename: usize) -> usize {
        self.sources.length += 1;
        self.sources.uuid.push(None);
        self.sources.filename.push(filename);
        self.sources.length - 1
    }

    pub fn add_resource(&mut self, name: usize) -> usize {
        let table = &mut self.resource_table;
        table.length += 1;
        table.lib.push(None);
        table.name.push(name);
        table.host.push(None);
        table.kind.push(LIBRARY);
        table.length - 1
    }

    pub fn add_function(&mut self, function: Function) -> usize {
        let resource = function.resource.and_then(|it| i64::try_from(it).ok());
        let table = &mut self.func_table;
        table.length += 1;
        table.name.push(function.name);
        table.is_js.push(false);
        table.relevant_for_js.push(false);
        table.resource.push(resource.unwrap_or(NO_RESOURCE));
        table.source.push(function.source);
        table.line_number.push(function.line);
        table.column_number.push(None);
        table.length - 1
    }

    pub fn add_frame(&mut self, frame: Frame) -> usize {
        let table = &mut self.frame_table;
        table.length += 1;
        table.address.push(NO_ADDRESS);
        table.inline_depth.push(frame.inline_depth);
        table.category.push(category(frame.kind));
        table.subcategory.push(0);
        table.func.push(frame.function);
        table.native_symbol.push(None);
        table.inner_window_id.push(None);
        table.line.push(frame.line);
        table.column.push(frame.column);
        table.length - 1
    }

    pub fn add_stack(&mut self, prefix: Option<usize>, frame: usize) -> usize {
        let table = &mut self.stack_table;
        table.length += 1;
        table.frame.push(frame);
        table.prefix.push(prefix);
        table.length - 1
    }
}
