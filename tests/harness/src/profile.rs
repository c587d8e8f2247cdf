//! Reads an exported profile and symbolizes its frames with the programs' symbol tables.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use profcol_otlp::json;
use profcol_profile::{Dictionary, Link, LocationIdx, Model, SampleRef, Value};

/// All exported samples.
#[derive(Default)]
pub struct Profile {
    pub samples: Vec<Sample>,
    /// Bytes of the file read so far.
    read: usize,
}

/// One stack at one or more times.
#[derive(Clone, Debug)]
pub struct Sample {
    pub pid: u32,
    pub executable: String,
    pub build_id: String,
    pub thread: u32,
    pub thread_name: String,
    /// Of the program itself, without the prefix of their keys.
    pub labels: BTreeMap<String, String>,
    pub goroutine: Option<i64>,
    pub link: Link,
    /// Why the stack is incomplete.
    pub end_reason: Option<String>,
    /// Innermost first.
    pub frames: Vec<Frame>,
    pub count: usize,
    /// In nanoseconds since 1970; empty if samples are only counted.
    pub times: Vec<u64>,
}

impl Sample {
    /// Whether it was taken before the unwind table was built, which takes longer on a busy machine.
    pub fn is_before_table(&self) -> bool {
        self.end_reason.as_deref() == Some("table_pending")
    }
}

#[derive(Clone, Debug)]
pub struct Frame {
    pub kind: String,
    /// `profcol.frame.code`; empty if there is none.
    pub code: String,
    pub file: String,
    pub address: u64,
    /// Set for kernel frames, generated code and markers.
    pub function: Option<String>,
    /// Source file and line of generated code.
    pub source: (String, i64),
}

impl Profile {
    pub fn of(samples: Vec<Sample>) -> Self {
        Self { samples, read: 0 }
    }

    /// Reads the lines that the exporter has written since the last call.
    pub fn read_on(&mut self, path: &Path) {
        let text = fs::read(path).unwrap_or_default();
        let new = text.get(self.read..).unwrap_or_default();
        // The last line may be incomplete.
        let whole = new
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |end| end + 1);
        self.read += whole;
        for line in new[..whole]
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            read_model(&json::decode(line).unwrap(), &mut self.samples);
        }
    }
}

fn read_model(model: &Model, samples: &mut Vec<Sample>) {
    let dictionary = &*model.dictionary;
    for resource in &model.resources {
        let attributes = &resource.resource.as_ref().unwrap().attributes;
        let find = |key: &str| {
            attributes
                .iter()
                .find(|found| &*found.key == key)
                .map(|found| &found.value)
        };
        let pid = find("process.pid").and_then(Value::as_int).unwrap();
        let text = |key| find(key).and_then(Value::as_str).unwrap_or_default();
        // In a virtual machine it differs from this host's.
        assert!(!text("host.name").is_empty());
        for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
            for sample in profile.samples.iter() {
                let attribute = |key| sample_attribute(dictionary, &sample, key);
                samples.push(Sample {
                    pid: u32::try_from(pid).unwrap(),
                    executable: text("process.executable.path").to_owned(),
                    build_id: text("process.executable.build_id.gnu").to_owned(),
                    thread: number(dictionary, &sample, "thread.id")
                        .and_then(|id| u32::try_from(id).ok())
                        .unwrap_or_default(),
                    thread_name: attribute("thread.name").unwrap_or_default(),
                    labels: labels(dictionary, &sample),
                    goroutine: number(dictionary, &sample, "go.goroutine.id"),
                    link: dictionary
                        .links
                        .get(sample.link)
                        .copied()
                        .unwrap_or_default(),
                    end_reason: attribute("profcol.stack.end_reason"),
                    frames: dictionary
                        .stacks
                        .get(sample.stack)
                        .iter()
                        .flat_map(|&location| frames(dictionary, location))
                        .collect(),
                    count: match sample.values {
                        [count] => usize::try_from(*count).unwrap(),
                        _ => sample.timestamps.len(),
                    },
                    times: sample.timestamps.to_vec(),
                });
            }
        }
    }
}

const LABELS: &str = "process.context.label.";

fn labels(dictionary: &Dictionary, sample: &SampleRef<'_>) -> BTreeMap<String, String> {
    let attributes = sample.attributes.iter();
    let labels = attributes.filter_map(|&index| {
        let attribute = dictionary.attributes.get(index)?;
        let key = dictionary.strings.get(attribute.key).strip_prefix(LABELS)?;
        Some((key.to_owned(), attribute.value.as_str()?.to_owned()))
    });
    labels.collect()
}

fn number(dictionary: &Dictionary, sample: &SampleRef<'_>, key: &str) -> Option<i64> {
    sample.attributes.iter().find_map(|&index| {
        let attribute = dictionary.attributes.get(index)?;
        let is_it = dictionary.strings.get(attribute.key) == key;
        is_it.then(|| attribute.value.as_int())?
    })
}

fn sample_attribute(dictionary: &Dictionary, sample: &SampleRef<'_>, key: &str) -> Option<String> {
    sample.attributes.iter().find_map(|&index| {
        let attribute = dictionary.attributes.get(index)?;
        let is_it = dictionary.strings.get(attribute.key) == key;
        is_it.then(|| attribute.value.as_str().unwrap_or_default().to_owned())
    })
}

/// Several frames if functions are inlined.
fn frames(dictionary: &Dictionary, location: LocationIdx) -> Vec<Frame> {
    let found = dictionary.locations.get(location);
    let mapping = dictionary.mappings.get(found.location.mapping).mapping;
    let attribute = |key| {
        let known = found.attributes.iter().find_map(|&index| {
            let attribute = dictionary.attributes.get(index)?;
            let is_it = dictionary.strings.get(attribute.key) == key;
            is_it.then(|| attribute.value.as_str().unwrap_or_default().to_owned())
        });
        known.unwrap_or_default()
    };
    let text = |index| dictionary.strings.get(index).to_owned();
    let native = Frame {
        kind: attribute("profile.frame.type"),
        code: attribute("profcol.frame.code"),
        file: text(mapping.filename),
        address: found.location.address,
        function: None,
        source: (String::new(), 0),
    };
    if found.lines.is_empty() {
        return vec![native];
    }
    let lines = found.lines.iter().map(|line| {
        let function = dictionary.functions.get(line.function);
        Frame {
            function: function.map(|function| text(function.name)),
            source: (
                function.map_or(String::new(), |function| text(function.filename)),
                line.line,
            ),
            ..native.clone()
        }
    });
    lines.collect()
}

/// The functions of a program by address, from its own symbol table.
pub struct Symbols {
    pub build_id: String,
    path: String,
    /// Sorted by start.
    functions: Vec<(u64, u64, String)>,
    /// PLT ranges, with the length of the header.
    linkage: Vec<(u64, u64, u64)>,
    cache: HashMap<u64, String>,
}

impl Symbols {
    pub fn read(path: &Path) -> Self {
        Self::read_as(path, path)
    }

    /// Reads a file that its processes know by another path.
    pub fn read_as(path: &Path, known: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let mut functions: Vec<_> = file
            .symbols()
            // Assembly may not mark symbols as functions.
            .filter(|symbol| [SymbolKind::Text, SymbolKind::Unknown].contains(&symbol.kind()))
            .filter(|symbol| symbol.address() != 0)
            .map(|symbol| {
                // Split-off parts belong to their function.
                let name = symbol.name().unwrap_or_default();
                let name = name.strip_suffix(".cold").unwrap_or(name);
                (symbol.address(), symbol.size(), name.to_owned())
            })
            .collect();
        functions.sort();
        let linkage = file
            .sections()
            .filter(|section| section.name().is_ok_and(|name| name.starts_with(".plt")))
            .map(|section| {
                let start = section.address();
                let header = header(section.data().unwrap_or_default());
                (start, start + section.size(), header)
            })
            .collect();
        let build_id = file.build_id().unwrap().unwrap_or_default();
        Self {
            build_id: build_id.iter().map(|byte| format!("{byte:02x}")).collect(),
            path: known.to_str().unwrap().to_owned(),
            functions,
            linkage,
            cache: HashMap::new(),
        }
    }

    /// The name of a frame in this program.
    pub fn name(&mut self, frame: &Frame) -> Option<String> {
        if frame.file != self.path {
            return None;
        }
        if !self.cache.contains_key(&frame.address) {
            self.cache.insert(frame.address, self.find(frame.address));
        }
        self.cache.get(&frame.address).cloned()
    }

    /// The canonical name of a function with aliases.
    pub fn alias(&self, name: &str) -> String {
        let name = name.strip_suffix(".cold").unwrap_or(name);
        let named = self.functions.iter().find(|(.., known)| known == name);
        named.map_or_else(|| name.to_owned(), |&(start, ..)| self.find(start))
    }

    fn find(&self, address: u64) -> String {
        let mut linkage = self.linkage.iter();
        if let Some((start, _, header)) =
            linkage.find(|(start, end, _)| (*start..*end).contains(&address))
        {
            let is_header = address < start + header;
            return if is_header { "plt0" } else { "plt" }.into();
        }
        let behind = self
            .functions
            .partition_point(|&(start, ..)| start <= address);
        self.functions[..behind]
            .iter()
            .rev()
            .take(8)
            // Some handwritten functions have no size.
            .find(|&&(start, size, _)| size == 0 || address < start + size)
            .map_or_else(|| format!("{address:#x}"), |(.., name)| name.clone())
    }
}

/// The size of the PLT header in a table with lazy binding. It pushes a word of its own.
fn header(table: &[u8]) -> u64 {
    const PUSH: &[u8] = &[0xff, 0x35];
    const MARKED_PUSHES: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x53, 0xff, 0x35];
    if table.starts_with(PUSH) {
        16
    } else if table.starts_with(MARKED_PUSHES) {
        32
    } else {
        0
    }
}
