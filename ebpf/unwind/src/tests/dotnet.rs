//! The rules of .NET code that was compiled ahead of time, compared with its instructions.

#![expect(clippy::print_stdout, reason = "the figures are of interest")]

use std::fs::{self, File};
use std::path::Path;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use profcol_dotnet::{Assembly, Bundle, ImageLayout, Part};
use profcol_ebpf_common::rule::{Cfa, Rule, SavedFp};
use profcol_elf::Source;
use profcol_test_skip::skip;

use crate::table::Table;

/// Single-file programs with code compiled ahead of time.
fn bundles() -> Vec<(File, Bundle)> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    let mut found = Vec::new();
    let mut directories = vec![tools.join("dotnet-8.0.30")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.is_symlink() {
                directories.push(path);
            } else if let Ok(file) = File::open(&path)
                && let Ok(Some(bundle)) = Bundle::read(&file)
            {
                found.push((file, bundle));
            }
        }
    }
    found
}

/// The frame at an instruction of a prologue.
#[derive(Clone, Copy)]
struct Frame {
    /// From the stack pointer to the caller's.
    bytes: i32,
    saved_fp: Option<i32>,
}

impl Frame {
    fn rule(self) -> Rule {
        let fp = match self.saved_fp {
            Some(at) => SavedFp::At(at),
            None => SavedFp::Same,
        };
        Rule::x86_64(Cfa::Sp(self.bytes), fp)
    }

    /// After an instruction; None after the prologue.
    fn after(mut self, instruction: &Instruction) -> Option<Self> {
        match instruction.mnemonic() {
            Mnemonic::Push if instruction.op0_kind() == OpKind::Register => {
                self.bytes += 8;
                if instruction.op0_register() == Register::RBP {
                    self.saved_fp = Some(-self.bytes);
                }
            }
            Mnemonic::Sub if instruction.op0_register() == Register::RSP => {
                self.bytes += i32::try_from(instruction.immediate(1)).ok()?;
            }
            _ => return None,
        }
        Some(self)
    }
}

#[test]
fn prologues_and_returns_have_the_rules_of_their_instructions() {
    let bundles = bundles();
    if bundles.is_empty() {
        skip("no .NET below target/tools/dotnet-8.0.30");
        return;
    }
    for (file, bundle) in bundles {
        let table = Table::of_bundle(&bundle, &file).unwrap().unwrap();
        println!("{} rows, {} rules", table.rows.len(), table.rules.len());
        let (mut functions, mut right, mut wrong) = (0, 0, 0);
        for part in bundle.files() {
            let part = Part {
                source: &file,
                offset: part.offset,
                size: part.size,
            };
            let Ok(assembly) = Assembly::read(&part, ImageLayout::File) else {
                continue;
            };
            let mut check = |at: u64, expected: Rule| match table.lookup(at) == expected {
                true => right += 1,
                false => wrong += 1,
            };
            for function in assembly.unwind_functions(&part).unwrap() {
                functions += 1;
                let offset = assembly.offset_of_rva(function.start).unwrap();
                let mut code = vec![0; (function.end - function.start) as usize];
                part.read_at(&mut code, offset).unwrap();
                let start = part.offset + offset;
                let mut frame = Some(Frame {
                    bytes: 8,
                    saved_fp: None,
                });
                for instruction in Decoder::with_ip(64, &code, start, DecoderOptions::NONE).iter() {
                    if let Some(known) = frame {
                        check(instruction.ip(), known.rule());
                        frame = known.after(&instruction);
                    } else if instruction.mnemonic() == Mnemonic::Ret {
                        check(instruction.ip(), Rule::x86_64(Cfa::Sp(8), SavedFp::Same));
                    }
                }
            }
        }
        println!("{functions} functions: {right} rules are right, {wrong} wrong");
        assert!(functions > 10_000, "{functions}");
        assert!(wrong * 500 < right, "{wrong} of {right}");
    }
}
