//! The result table: medians per contestant, and the median of the pairwise ratios.

use crate::options::Case;
use crate::trial::Trial;

pub const HEADER: &str = "\
| load | compression | body | connections | delivery | collector, samples per core-second | profcol | ratio (min-max) \
| collector, peak MB | profcol | ratio | collector, bytes out per request | profcol | refused |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// The runs of a case; the n-th runs of both contestants form a pair.
#[derive(Default)]
pub struct Row {
    pub collector: Vec<Trial>,
    pub profcol: Vec<Trial>,
}

impl Row {
    pub fn to_markdown(&self, case: &Case) -> String {
        let speed = self.compare(Trial::samples_per_core_second);
        let peak = self.compare(|trial| trial.peak_bytes as f64 / 1e6);
        let bytes = |trials: &[Trial]| -> String {
            let figures: Option<Vec<f64>> = trials.iter().map(Trial::bytes_per_request).collect();
            figures.map_or("?".to_owned(), |figures| format!("{:.0}", median(figures)))
        };
        let refused = |trials: &[Trial]| trials.iter().map(Trial::refused).sum::<u64>();
        format!(
            "| {case} | {:.0} | {:.0} | **{:.2}** ({:.2}-{:.2}) | {:.0} | {:.0} | **{:.2}** | {} | {} | {}, {} |",
            speed.collector,
            speed.profcol,
            speed.ratio,
            speed.lowest,
            speed.highest,
            peak.collector,
            peak.profcol,
            peak.ratio,
            bytes(&self.collector),
            bytes(&self.profcol),
            refused(&self.collector),
            refused(&self.profcol),
        )
    }

    fn compare(&self, figure: impl Fn(&Trial) -> f64) -> Comparison {
        let collector: Vec<f64> = self.collector.iter().map(&figure).collect();
        let profcol: Vec<f64> = self.profcol.iter().map(&figure).collect();
        let ratios: Vec<f64> = collector
            .iter()
            .zip(&profcol)
            .map(|(theirs, ours)| ours / theirs)
            .collect();
        Comparison {
            lowest: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            highest: ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ratio: median(ratios),
            collector: median(collector),
            profcol: median(profcol),
        }
    }
}

struct Comparison {
    collector: f64,
    profcol: f64,
    ratio: f64,
    lowest: f64,
    highest: f64,
}

/// For an even count the mean of the middle two; NaN if empty.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle.wrapping_sub(1)), values.get(middle)) {
        (Some(low), Some(high)) if values.len().is_multiple_of(2) => f64::midpoint(*low, *high),
        (_, Some(value)) => *value,
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        for (values, expected) in [
            (&[3.0][..], 3.0),
            (&[9.0, 1.0], 5.0),
            (&[5.0, 1.0, 2.0], 2.0),
        ] {
            assert_eq!(median(values.to_vec()), expected, "{values:?}");
        }
    }
}
