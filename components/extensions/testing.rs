//! What the tests of several components here need.

use profcol_config::{Config, Problems, Sources, yaml};

/// Reads options as a configuration file does; `Err` has every problem, a line each.
pub fn load<C: Config>(text: &str) -> Result<C, String> {
    let mut sources = Sources::default();
    let source = sources
        .add("test", text, None)
        .expect("a test's options are short");
    let node = yaml::parse(&sources, source).expect("a test's options are YAML");
    let mut problems = Problems::default();
    profcol_config::load(&node, &mut problems).ok_or_else(|| problems.to_string())
}
