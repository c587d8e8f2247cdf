//! ReadyToRun: the native code that an assembly was compiled to ahead of time.
//!
//! ```text
//! header ──► runtime functions       start (end, on x86-64) and unwind data of each piece of code, by address
//!            method entry points     row of MethodDef ──► number of its first runtime function
//!            instance entry points   signature of a generic instance ──► the same
//!            hot-cold map            cold pieces of methods, behind all hot ones
//! ```
//!
//! A method's further pieces (exception handlers) follow its first.

use profcol_elf::{Extent, Source};

use crate::bytes::{Bytes, Window};
use crate::error::{damaged, unsupported};
use crate::image::Directory;
use crate::native_format::{NativeArray, hashtable_entries, unsigned};
use crate::{Assembly, DebugInfoFormat, DotNetError, IlMap, Machine, MethodToken, signature};

const SIGNATURE: [u8; 4] = *b"RTR\0";
/// From .NET Core 2.1, whose instances are in the present hash table, to the newest with a known layout.
const VERSIONS: std::ops::RangeInclusive<u16> = 2..=17;
const MAX_SECTIONS: u32 = 64;
/// Maximum size of a section; the largest framework assembly has one megabyte.
const MAX_SECTION: u64 = 32 << 20;
/// Generic instances; the framework's assemblies have up to 13,000.
const MAX_INSTANCES: usize = 1 << 18;
/// Signatures of instances are short.
const MAX_SIGNATURE: usize = 1 << 10;
/// Seven integers of at most eleven nibbles.
const DEBUG_INFO_HEADER: usize = 40;
const MAX_DEBUG_INFO: u64 = 1 << 20;
/// Alignment between methods; more is a gap.
const MAX_PADDING: u32 = 64;

/// A flag: the native code is in a composite image.
const COMPONENT: u32 = 0x20;

mod section {
    pub const RUNTIME_FUNCTIONS: u32 = 102;
    pub const METHOD_ENTRY_POINTS: u32 = 103;
    pub const DEBUG_INFO: u32 = 105;
    pub const INSTANCE_ENTRY_POINTS: u32 = 109;
    pub const COMPONENT_ASSEMBLIES: u32 = 115;
    pub const HOT_COLD_MAP: u32 = 120;
}

/// Tables of tokens, in the highest byte.
const METHOD_DEF: u32 = 0x06 << 24;
const MEMBER_REF: u32 = 0x0a << 24;
/// A method of another module.
const FOREIGN: u32 = 0;
/// No method.
const GAP: u32 = u32::MAX;
const ROW: u32 = 0x00ff_ffff;

/// A method whose start is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    start: u32,
    token: u32,
    /// Number of its first runtime function; for a cold piece, that of the hot one.
    function: u32,
}

/// The methods of an assembly by the addresses of their native code.
#[derive(Debug)]
pub struct ReadyToRun {
    pub version: (u16, u16),
    /// Sorted. The last one is a gap.
    entries: Vec<Entry>,
    debug_info: Option<Extent>,
}

/// The native code of a method, or its hot or cold part. Addresses are relative to the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2rMethod {
    /// `None` for an instance of a method of another assembly that only that assembly can name.
    pub token: Option<MethodToken>,
    pub start: u32,
    /// The end of its code, or the start of the next method.
    pub end: u32,
    pub(crate) function: u32,
}

impl Assembly {
    /// `None` without native code, including if that is in a composite image of several assemblies.
    pub fn ready_to_run(
        &self,
        source: &(impl Source + ?Sized),
    ) -> Result<Option<ReadyToRun>, DotNetError> {
        let directory = self.image.ready_to_run;
        if directory.size < 16 {
            return Ok(None);
        }
        let what = "the ReadyToRun header";
        let window = Window {
            source,
            extent: self.extent(what, directory)?,
        };
        let Some(header) = window.array::<16>(0)? else {
            return Ok(None);
        };
        let damage = || damaged(what);
        let mut bytes = Bytes(&header);
        // Otherwise an image of NGEN.
        if bytes.array() != Some(SIGNATURE) {
            return Ok(None);
        }
        let version = (
            bytes.u16().ok_or_else(damage)?,
            bytes.u16().ok_or_else(damage)?,
        );
        if !VERSIONS.contains(&version.0) {
            return Err(unsupported("unknown version of ReadyToRun"));
        }
        let flags = bytes.u32().ok_or_else(damage)?;
        if flags & COMPONENT != 0 {
            return Ok(None);
        }
        let count = bytes.u32().ok_or_else(damage)?;
        if count > MAX_SECTIONS {
            return Err(damaged("too many sections of native code"));
        }
        let table = Directory {
            rva: directory.rva.checked_add(16).ok_or_else(damage)?,
            size: count * 12,
        };
        let table = self.extent(what, table)?;
        let table = table.read(source, table.size)?;
        let sections = Sections {
            assembly: self,
            table: &table,
        };
        if sections.has(section::COMPONENT_ASSEMBLIES) {
            return Err(unsupported("a composite image of several assemblies"));
        }
        let Some(functions) =
            sections.extent("the runtime functions", section::RUNTIME_FUNCTIONS)?
        else {
            return Ok(None);
        };
        let functions = functions.read(source, MAX_SECTION)?;
        let mut functions = RuntimeFunctions {
            bytes: &functions,
            size: match self.image.machine {
                Machine::X86_64 => 12,
                Machine::Aarch64 => 8,
                Machine::Other => return Err(unsupported("native code of another machine")),
            },
            end: 0,
        };
        if self.image.machine == Machine::Aarch64 {
            functions.find_end(self, source)?;
        }
        let mut methods = Vec::new();
        let what = "the entry points of methods";
        if let Some(extent) = sections.extent(what, section::METHOD_ENTRY_POINTS)? {
            let bytes = extent.read(source, MAX_SECTION)?;
            method_entry_points(&bytes, self.methods(), &mut methods)?;
        }
        let what = "the entry points of generic instances";
        if let Some(extent) = sections.extent(what, section::INSTANCE_ENTRY_POINTS)? {
            instance_entry_points(&extent.read(source, MAX_SECTION)?, &mut methods)?;
        }
        let mut cold = Vec::new();
        if let Some(extent) = sections.extent("the hot-cold map", section::HOT_COLD_MAP)? {
            let bytes = extent.read(source, MAX_SECTION)?;
            cold_pieces(&bytes, &mut methods, &mut cold);
        }
        methods.sort_unstable();
        methods.dedup_by_key(|&mut (function, _)| function);
        Ok(Some(ReadyToRun {
            version,
            entries: entries(&functions, &methods, &cold)?,
            debug_info: sections.extent("debug information", section::DEBUG_INFO)?,
        }))
    }
}

impl ReadyToRun {
    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }

    /// The method with code at this address.
    pub fn method_at(&self, rva: u32) -> Option<R2rMethod> {
        let after = self.entries.partition_point(|entry| entry.start <= rva);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        let end = self.entries.get(after)?.start;
        method(entry, end)
    }

    /// All methods, by address.
    pub fn methods(&self) -> impl Iterator<Item = R2rMethod> {
        let ends = self.entries.iter().skip(1).map(|next| next.start);
        let entries = self.entries.iter().zip(ends);
        entries.filter_map(|(entry, end)| method(entry, end))
    }
}

impl ReadyToRun {
    /// The IL offsets of a method's native code. `None` without debug information, and for the cold part of a method.
    pub fn il_map(
        &self,
        source: &(impl Source + ?Sized),
        method: &R2rMethod,
    ) -> Result<Option<IlMap>, DotNetError> {
        let Some(extent) = self.debug_info else {
            return Ok(None);
        };
        let window = Window { source, extent };
        let Some(at) = NativeArray::read(&window)?.get(method.function)? else {
            return Ok(None);
        };
        // Equal information is stored once: then this is how far before.
        let damage = || damaged("debug information");
        let start = match unsigned(&window, at)? {
            (0, next) => next,
            (back, _) => at.checked_sub(back.into()).ok_or_else(damage)?,
        };
        let format = DebugInfoFormat::ReadyToRun(self.version.0);
        let (front, count) = window.peek::<DEBUG_INFO_HEADER>(start)?;
        let size = IlMap::size(front.get(..count).unwrap_or_default(), format)?;
        let range = Extent {
            what: extent.what,
            offset: extent.offset.saturating_add(start),
            size: size.ok_or_else(damage)?,
        };
        if start.saturating_add(range.size) > extent.size {
            return Err(damage());
        }
        let bytes = range.read(source, MAX_DEBUG_INFO)?;
        IlMap::read(&bytes, format).map(Some)
    }
}

fn method(entry: &Entry, end: u32) -> Option<R2rMethod> {
    let row = entry.token & ROW;
    let token = match entry.token {
        GAP => return None,
        FOREIGN => None,
        token if token & !ROW == METHOD_DEF => Some(MethodToken::MethodDef(row)),
        _ => Some(MethodToken::MemberRef(row)),
    };
    Some(R2rMethod {
        token,
        start: entry.start,
        end,
        function: entry.function,
    })
}

struct Sections<'a> {
    assembly: &'a Assembly,
    table: &'a [u8],
}

impl Sections<'_> {
    fn find(&self, kind: u32) -> Option<Directory> {
        let (entries, _) = self.table.as_chunks::<12>();
        entries.iter().find_map(|entry| {
            let mut bytes = Bytes(entry);
            let found = bytes.u32()? == kind;
            Directory::read(&mut bytes).filter(|range| found && range.size > 0)
        })
    }

    fn has(&self, kind: u32) -> bool {
        self.find(kind).is_some()
    }

    fn extent(&self, what: &'static str, kind: u32) -> Result<Option<Extent>, DotNetError> {
        let range = self.find(kind);
        range
            .map(|range| self.assembly.extent(what, range))
            .transpose()
    }
}

struct RuntimeFunctions<'b> {
    bytes: &'b [u8],
    size: usize,
    /// The end of the last function.
    end: u32,
}

impl RuntimeFunctions<'_> {
    fn count(&self) -> u32 {
        (self.bytes.len() / self.size) as u32
    }

    /// The end of the last function, from the first word of its unwind data: its length in instructions.
    fn find_end(
        &mut self,
        assembly: &Assembly,
        source: &(impl Source + ?Sized),
    ) -> Result<(), DotNetError> {
        let what = "the unwind data of native code";
        let (functions, _) = self.bytes.as_chunks::<8>();
        let last = functions.last().and_then(|last| {
            let mut bytes = Bytes(last);
            Some((bytes.u32()?, bytes.u32()?))
        });
        let Some((start, rva)) = last else {
            return Ok(());
        };
        let word = assembly.extent(what, Directory { rva, size: 4 })?;
        let word = Bytes(&word.read(source, 4)?).u32();
        let length = word.map(|word| (word & 0x3_ffff) * 4);
        let end = length.and_then(|length| start.checked_add(length));
        self.end = end.ok_or_else(|| damaged(what))?;
        Ok(())
    }

    /// The start of a function, and its end where the format has it.
    fn get(&self, function: u32) -> Option<(u32, Option<u32>)> {
        let at = (function as usize).checked_mul(self.size)?;
        let mut bytes = Bytes(self.bytes.get(at..)?);
        let start = bytes.u32()?;
        let second = bytes.u32()?;
        Some((start, (self.size == 12).then_some(second)))
    }
}

/// Numbers of runtime functions with tokens, from the array of methods.
fn method_entry_points(
    section: &[u8],
    rows: u32,
    methods: &mut Vec<(u32, u32)>,
) -> Result<(), DotNetError> {
    let window = window(section);
    let array = NativeArray::read(&window)?;
    for element in 0..array.count.min(rows) {
        if let Some(at) = array.get(element)? {
            methods.push((first_function(&window, at)?, METHOD_DEF | (element + 1)));
        }
    }
    Ok(())
}

/// The same from the hash table of generic instances.
fn instance_entry_points(section: &[u8], methods: &mut Vec<(u32, u32)>) -> Result<(), DotNetError> {
    let window = window(section);
    for at in hashtable_entries(&window, MAX_INSTANCES)? {
        let damage = || damaged("the signature of a generic instance");
        let start = usize::try_from(at).ok();
        let rest = start.and_then(|start| section.get(start..));
        let rest = rest.ok_or_else(damage)?;
        let mut bytes = Bytes(rest.get(..MAX_SIGNATURE).unwrap_or(rest));
        let before = bytes.0.len();
        let token = signature::method(&mut bytes).ok_or_else(damage)?;
        let at = at + (before - bytes.0.len()) as u64;
        let token = match token {
            Some(MethodToken::MethodDef(row)) if row <= ROW => METHOD_DEF | row,
            Some(MethodToken::MemberRef(row)) if row <= ROW => MEMBER_REF | row,
            _ => FOREIGN,
        };
        methods.push((first_function(&window, at)?, token));
    }
    Ok(())
}

/// The number before a list of fixups.
fn first_function(window: &Window<'_, [u8]>, at: u64) -> Result<u32, DotNetError> {
    let (id, _) = unsigned(window, at)?;
    Ok(match id & 1 {
        0 => id >> 1,
        _ => id >> 2,
    })
}

/// Adds the first cold piece of each split method, by the token of the hot one.
fn cold_pieces(section: &[u8], methods: &mut Vec<(u32, u32)>, cold: &mut Vec<(u32, u32)>) {
    methods.sort_unstable();
    let (pairs, _) = section.as_chunks::<8>();
    for pair in pairs {
        let mut bytes = Bytes(pair);
        let (Some(piece), Some(hot)) = (bytes.u32(), bytes.u32()) else {
            continue;
        };
        let at = methods.partition_point(|&(function, _)| function < hot);
        if let Some(&(function, token)) = methods.get(at)
            && function == hot
        {
            cold.push((piece, token));
        }
    }
    methods.extend_from_slice(cold);
    cold.sort_unstable();
}

/// The methods, sorted by runtime functions, with their addresses.
fn entries(
    functions: &RuntimeFunctions<'_>,
    methods: &[(u32, u32)],
    cold: &[(u32, u32)],
) -> Result<Vec<Entry>, DotNetError> {
    let damage = || damaged("the runtime functions");
    let mut entries: Vec<Entry> = Vec::with_capacity(methods.len() + 1);
    let nexts = methods.iter().skip(1).map(|&(next, _)| Some(next));
    for (&(function, token), next) in methods.iter().zip(nexts.chain([None])) {
        let (start, _) = functions.get(function).ok_or_else(damage)?;
        let is_cold = cold.binary_search(&(function, token)).is_ok();
        entries.push(Entry {
            start,
            token,
            function: if is_cold { u32::MAX } else { function },
        });
        // The last piece of this method.
        let last = next.unwrap_or(functions.count()).saturating_sub(1);
        let (last_start, last_end) = functions.get(last).ok_or_else(damage)?;
        let next_start = match next {
            Some(next) => Some(functions.get(next).ok_or_else(damage)?.0),
            None => None,
        };
        if last_start < start || next_start.is_some_and(|next| next <= start) {
            return Err(damage());
        }
        let end = match (last_end, next_start) {
            (Some(end), Some(next)) if next.saturating_sub(end) <= MAX_PADDING => continue,
            (None, Some(_)) => continue,
            (Some(end), _) if end > start => end,
            (None, None) if functions.end > start => functions.end,
            _ => return Err(damage()),
        };
        entries.push(Entry {
            start: end,
            token: GAP,
            function: u32::MAX,
        });
    }
    entries.shrink_to_fit();
    Ok(entries)
}

fn window(section: &[u8]) -> Window<'_, [u8]> {
    Window {
        source: section,
        extent: Extent {
            what: "a section of native code",
            offset: 0,
            size: section.len() as u64,
        },
    }
}
