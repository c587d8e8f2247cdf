//! What instructions say, held against what compilers say.

use crate::{Executable, Table, instructions, span::Spans};
use profcol_ebpf_common::rule::{Cfa, Rule, Saved};
use std::fs::File;
use std::path::Path;

#[derive(Debug, Default)]
struct Compared {
    equal: usize,
    not_understood: usize,
    /// Address, what the instructions say, and what the compiler says.
    different: Vec<(u64, Rule, Rule)>,
}

/// Derives rules for all code of a file as if it had no unwind information, which it has.
fn compare(path: &Path) -> Compared {
    let source = File::open(path).unwrap();
    let executable = Executable::read(&source).unwrap();
    let table = Table::build(&executable, &source).unwrap();
    let mut compared = Compared::default();
    for (start, _, rule) in instructions::rules(&executable, &source, &Spans::default()) {
        let segment = executable.segment_at(start).unwrap();
        let said = table.lookup(start - segment.address + segment.file_offset);
        match (rule, said) {
            (_, Rule::Gap | Rule::Unsupported | Rule::SignalFrame) => {}
            (Rule::Unsupported, _) => compared.not_understood += 1,
            _ if is_same(rule, said) => compared.equal += 1,
            _ => compared.different.push((start, rule, said)),
        }
    }
    compared
}

/// Whether two rules lead to the same caller. The CFA may be told from either register.
fn is_same(rule: Rule, said: Rule) -> bool {
    let (
        Rule::Frame { cfa, fp, .. },
        Rule::Frame {
            cfa: said_cfa,
            fp: said_fp,
            ..
        },
    ) = (rule, said)
    else {
        return rule == said;
    };
    let same_cfa = match (cfa, said_cfa) {
        (Cfa::Sp(a), Cfa::Sp(b)) | (Cfa::Fp(a), Cfa::Fp(b)) => a == b,
        _ => true,
    };
    // Before the register is changed, and once it is loaded again, it holds what its slot holds.
    same_cfa && (fp == said_fp || [fp, said_fp].contains(&Saved::Same))
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures are of interest")]
fn says_of_compiled_code_what_the_compiler_says() {
    let path = std::env::var("ELF").map_or_else(|_| std::env::current_exe().unwrap(), Into::into);
    let compared = compare(&path);
    println!(
        "{} equal, {} not understood, {} different",
        compared.equal,
        compared.not_understood,
        compared.different.len()
    );
    for (at, rule, said) in compared.different.iter().take(40) {
        println!("{at:x}: {rule:?}, not {said:?}");
    }
    assert!(compared.equal > 1000);
    assert!(compared.different.len() * 1000 < compared.equal);
}
