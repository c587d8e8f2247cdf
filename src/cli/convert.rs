//! The options of `profcol convert` and `profcol diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Args, Clone, Debug)]
pub struct Convert {
    /// pprof, OTLP in protobuf or JSON, or folded stacks
    pub from: PathBuf,
    /// Its ending says the format: .html, .svg, .pb.gz, .folded, .speedscope.json, .otlp, .otlp.json
    pub to: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub struct Diff {
    /// The profile before
    pub before: PathBuf,
    /// The profile after
    pub after: PathBuf,
    /// How values are compared
    #[arg(long, value_enum, default_value_t = Compare::Share)]
    pub compare: Compare,
    /// Functions to show
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub functions: usize,
    /// Fail with exit code 1 where a function grew by more than this share of the profile, such as `5%`
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub fail_over: Option<f64>,
    /// Write both to a page with a flame graph of the difference
    #[arg(short, long, value_name = "FILE.html")]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compare {
    /// By their share of their profile
    Share,
    /// As they are
    Value,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse();
    match number {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("has to be a share such as 5%".to_owned()),
    }
}
