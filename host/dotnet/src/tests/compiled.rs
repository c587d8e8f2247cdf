//! Assemblies from a compiler, and those of real runtimes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use profcol_elf::Source;
use profcol_test_skip::skip;

use crate::{Assembly, Bundle, BundleFileKind, ImageLayout, MethodToken, Part};

const PROGRAM: &str = r#"
using System.Collections.Generic;

namespace Outer.Space {
    public class Box<T> {
        public class Inner {
            public static R Map<R, S>(R value, S other) { return value; }
        }
        public T Value;
        public IEnumerable<T> Items() { yield return Value; }
    }
    interface IShape { double Area(); }
    struct Disc : IShape {
        double IShape.Area() { return 3; }
    }
}

class Program {
    static int Main(string[] args) {
        System.Func<int, int> twice = x => x * 2;
        return twice(args.Length) + new Outer.Space.Box<int>().GetHashCode();
    }
}
"#;

const METHODS: &[&str] = &[
    "Outer.Space.Box`1..ctor",
    "Outer.Space.Box`1.Items",
    "Outer.Space.Box`1.Inner..ctor",
    "Outer.Space.Box`1.Inner.Map[R,S]",
    "Outer.Space.IShape.Area",
    "Outer.Space.Disc.Outer.Space.IShape.Area",
    "Program..ctor",
    "Program.Main",
    "Program.<Main>m__0",
    "Outer.Space.Box`1.<Items>c__Iterator0..ctor",
    "Outer.Space.Box`1.<Items>c__Iterator0.MoveNext",
    "Outer.Space.Box`1.<Items>c__Iterator0.System.Collections.Generic.IEnumerator<T>.get_Current",
    "Outer.Space.Box`1.<Items>c__Iterator0.System.Collections.IEnumerator.get_Current",
    "Outer.Space.Box`1.<Items>c__Iterator0.Dispose",
    "Outer.Space.Box`1.<Items>c__Iterator0.Reset",
    "Outer.Space.Box`1.<Items>c__Iterator0.System.Collections.IEnumerable.GetEnumerator",
    "Outer.Space.Box`1.<Items>c__Iterator0.System.Collections.Generic.IEnumerable<T>.GetEnumerator",
];

/// Compiles the program; reports a missing compiler.
fn compile() -> Option<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("sample.cs");
    fs::write(&source, PROGRAM).unwrap();
    match Command::new("mcs").arg(&source).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            skip("no mcs: install mono-mcs");
            None
        }
        output => {
            let output = output.unwrap();
            let messages = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{messages}");
            Some(fs::read(source.with_extension("exe")).unwrap())
        }
    }
}

#[test]
fn methods_are_named_as_in_stack_traces() {
    let Some(file) = compile() else {
        return;
    };
    let assembly = Assembly::read(&file, ImageLayout::File).unwrap();
    assert_eq!(assembly.name(&file).unwrap(), "sample");
    let names: Vec<_> = (1..=assembly.methods())
        .map(|row| assembly.method(&file, row).unwrap())
        .collect();
    assert_eq!(names, METHODS);
    assert!(assembly.ready_to_run(&file).unwrap().is_none());
    for row in [0, assembly.methods() + 1, u32::MAX] {
        assembly.method(&file, row).unwrap_err();
    }
    // Those of other assemblies.
    let members: Vec<_> = (1..)
        .map_while(|row| {
            let token = MethodToken::MemberRef(row);
            assembly.method_by_token(&file, token).ok()
        })
        .collect();
    for member in [
        "System.Object..ctor",
        "System.Object.GetHashCode",
        "System.Func`2.Invoke",
        "Outer.Space.Box`1..ctor",
    ] {
        assert!(members.iter().any(|name| name == member), "{members:?}");
    }
}

#[test]
fn loaded_images_read_like_files() {
    let Some(file) = compile() else {
        return;
    };
    let assembly = Assembly::read(&file, ImageLayout::File).unwrap();
    // As the runtime would map it.
    let mut loaded = vec![0; 1 << 20];
    for (offset, &byte) in file.iter().enumerate() {
        if let Some(rva) = assembly.rva_of_offset(offset as u64) {
            assert_eq!(assembly.offset_of_rva(rva), Some(offset as u64));
            loaded[rva as usize] = byte;
        }
    }
    let assembly = Assembly::read(&loaded, ImageLayout::Loaded).unwrap();
    for (row, name) in (1..).zip(METHODS) {
        assert_eq!(assembly.method(&loaded, row).unwrap(), *name);
    }
    Assembly::read(&loaded, ImageLayout::File).unwrap_err();
}

/// The files below `target/tools/dotnet-*`.
fn installed() -> Vec<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    let directories = fs::read_dir(tools).into_iter().flatten().flatten();
    let mut directories: Vec<_> = directories
        .filter(|directory| {
            directory
                .file_name()
                .to_string_lossy()
                .starts_with("dotnet-")
        })
        .map(|directory| directory.path())
        .collect();
    let mut files = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

#[test]
fn runtimes_have_names_and_lines_for_all_of_their_code() {
    let mut checked = 0;
    for path in installed() {
        let file = File::open(&path).unwrap();
        if let Ok(Some(bundle)) = Bundle::read(&file) {
            let found = bundle.files().iter().find(|file| {
                file.kind == BundleFileKind::Assembly
                    && file.path.ends_with("System.Private.CoreLib.dll")
            });
            let library = found.unwrap_or_else(|| panic!("no core library in {path:?}"));
            assert_eq!(bundle.file_at(library.offset + 1), Some(library));
            check_core_library(&Part {
                source: &file,
                offset: library.offset,
                size: library.size,
            });
            checked += 1;
        } else if path.ends_with("System.Private.CoreLib.dll") {
            check_core_library(&file);
            checked += 1;
        }
    }
    if checked == 0 {
        skip("no .NET runtime below target/tools/dotnet-*");
    }
}

fn check_core_library(file: &impl Source) {
    // With one system call, and not some for each name.
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let assembly = Assembly::read(&bytes, ImageLayout::File).unwrap();
    assert_eq!(assembly.name(&bytes).unwrap(), "System.Private.CoreLib");
    assert!(assembly.methods() > 10_000);
    let names: Vec<_> = (1..=assembly.methods())
        .map(|row| assembly.method(&bytes, row).unwrap())
        .collect();
    for name in [
        "System.String.Concat",
        "System.Collections.Generic.Dictionary`2.TryInsert",
        "System.Threading.Thread.Sleep",
    ] {
        assert!(names.iter().any(|it| it == name), "{name}");
    }
    let debug = assembly.debug_directory(&bytes).unwrap();
    let Some(code) = assembly.ready_to_run(&bytes).unwrap() else {
        return;
    };
    let mut end = 0;
    let mut methods = 0;
    for method in code.methods() {
        assert!(end <= method.start && method.start < method.end);
        (end, methods) = (method.end, methods + 1);
        assert_eq!(code.method_at(method.start), Some(method));
        assert_eq!(code.method_at(method.end - 1), Some(method));
        assert!(
            matches!(method.token, Some(MethodToken::MethodDef(row)) if row <= assembly.methods())
        );
        if let Some(map) = code.il_map(&bytes, &method).unwrap() {
            let size = method.end - method.start;
            assert!(map.bounds().iter().all(|&(native, _)| native <= size));
        }
    }
    assert!(methods > 10_000);
    assert!(debug.pdb_id.is_some());
}
