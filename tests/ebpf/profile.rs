//! Reads an exported profile back and names its frames, by the symbol tables of the programs themselves.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use object::{Object, ObjectSymbol, SymbolKind};
use profcol_profile::{Dictionary, LocationIdx, Model, SampleRef, Value, json};

/// Every sample that was exported.
pub struct Profile {
    pub samples: Vec<Sample>,
}

/// One stack at one or more times.
#[derive(Debug)]
pub struct Sample {
    pub pid: u32,
    pub executable: String,
    pub thread_name: String,
    /// Why the stack is not whole.
    pub end_reason: Option<String>,
    /// Innermost first.
    pub frames: Vec<Frame>,
    pub count: usize,
}

#[derive(Clone, Debug)]
pub struct Frame {
    pub kind: String,
    pub file: String,
    pub address: u64,
    /// Of the kernel's frames and of markers.
    pub function: Option<String>,
}

impl Profile {
    pub fn read(path: &Path) -> Self {
        let text = fs::read(path).unwrap();
        let mut samples = Vec::new();
        for line in text
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let model = json::decode(line).unwrap();
            read_model(&model, &mut samples);
        }
        Self { samples }
    }

    pub fn of_process(&self, pid: u32) -> Vec<&Sample> {
        self.samples
            .iter()
            .filter(|sample| sample.pid == pid)
            .collect()
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
        let executable = find("process.executable.path")
            .and_then(Value::as_str)
            .unwrap_or_default();
        for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
            for sample in profile.samples.iter() {
                let attribute = |key| sample_attribute(dictionary, &sample, key);
                samples.push(Sample {
                    pid: u32::try_from(pid).unwrap(),
                    executable: executable.to_owned(),
                    thread_name: attribute("thread.name").unwrap_or_default(),
                    end_reason: attribute("profcol.stack.end_reason"),
                    frames: dictionary
                        .stacks
                        .get(sample.stack)
                        .iter()
                        .map(|&location| frame(dictionary, location))
                        .collect(),
                    count: sample.timestamps.len(),
                });
            }
        }
    }
}

fn sample_attribute(dictionary: &Dictionary, sample: &SampleRef<'_>, key: &str) -> Option<String> {
    sample.attributes.iter().find_map(|&index| {
        let attribute = dictionary.attributes.get(index)?;
        let is_it = dictionary.strings.get(attribute.key) == key;
        is_it.then(|| attribute.value.as_str().unwrap_or_default().to_owned())
    })
}

fn frame(dictionary: &Dictionary, location: LocationIdx) -> Frame {
    let found = dictionary.locations.get(location);
    let mapping = dictionary.mappings.get(found.location.mapping).mapping;
    let kind = found.attributes.iter().find_map(|&index| {
        let attribute = dictionary.attributes.get(index)?;
        let is_it = dictionary.strings.get(attribute.key) == "profile.frame.type";
        is_it.then(|| attribute.value.as_str().unwrap_or_default().to_owned())
    });
    let function = found
        .lines
        .first()
        .and_then(|line| dictionary.functions.get(line.function));
    Frame {
        kind: kind.unwrap_or_default(),
        file: dictionary.strings.get(mapping.filename).to_owned(),
        address: found.location.address,
        function: function.map(|function| dictionary.strings.get(function.name).to_owned()),
    }
}

/// The functions of a program by address, from its own symbol table.
pub struct Symbols {
    path: String,
    functions: Vec<(u64, u64, String)>,
    cache: HashMap<u64, String>,
}

impl Symbols {
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let functions = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.address() != 0)
            .map(|symbol| {
                (
                    symbol.address(),
                    symbol.size(),
                    without_suffix(symbol.name().unwrap_or_default()),
                )
            })
            .collect();
        Self {
            path: path.to_str().unwrap().to_owned(),
            functions,
            cache: HashMap::new(),
        }
    }

    /// The names of the frames that lie in this program, in their order; `?` is a frame elsewhere.
    pub fn names(&mut self, frames: &[Frame]) -> Vec<String> {
        frames.iter().map(|frame| self.name(frame)).collect()
    }

    fn name(&mut self, frame: &Frame) -> String {
        if frame.file != self.path {
            return "?".into();
        }
        let functions = &self.functions;
        let name = self.cache.entry(frame.address).or_insert_with(|| {
            functions
                .iter()
                .find(|&&(start, size, _)| (start..start + size.max(1)).contains(&frame.address))
                .map_or_else(
                    || format!("{:#x}", frame.address),
                    |(.., name)| name.clone(),
                )
        });
        name.clone()
    }
}

/// Compilers move the rarely run part of `f` to a function `f.cold`.
fn without_suffix(name: &str) -> String {
    name.split_once('.')
        .map_or(name, |(name, _)| name)
        .to_owned()
}
