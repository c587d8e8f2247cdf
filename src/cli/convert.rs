//! The options of `profcol convert` and `profcol diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Args, Clone, Debug)]
pub struct Convert {
    /// A profile in any of these formats except .svg, several OTLP messages as the file exporter writes them, or a recording
    /// (.padata), compressed or not; the content decides, not the extension
    pub from: PathBuf,
    /// The extension selects the format: .html, .svg, .pb.gz, .folded, .speedscope.json, .firefox.json, .firefox.json.gz, .otlp, .otlp.json
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
    /// Which time of a function is compared; other values, such as bytes, accordingly
    #[arg(long, value_enum, default_value_t = By::Own)]
    pub by: By,
    /// Functions to show
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub functions: usize,
    /// Exit with code 1 if the share of a function grew by more than this, such as `5%` of the profile. With `--compare
    /// value`: if a function, or the whole profile, grew by more than this, as a share of the profile before
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub fail_over: Option<f64>,
    /// Write a differential flame graph: an HTML page or an SVG image, by the file extension
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compare {
    /// As a share of each profile
    Share,
    /// As absolute values
    Value,
}

/// The time of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Self time: without the functions that it calls
    #[value(name = "self")]
    Own,
    /// Total time: with the functions that it calls
    Total,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse();
    match number {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("must be a percentage such as 5%".to_owned()),
    }
}
