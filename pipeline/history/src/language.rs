//! The label `language` of a sample: the language of its innermost function that has one.
//!
//! It is derived from the frames of a stack, once per query and chunk, and only if the query is about languages.

use profcol_flamegraph::Language;

use crate::Selector;
use crate::chunk::Chunk;

pub const LANGUAGE: &str = "language";

/// A set of languages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LanguageSet(u16);

/// The language of each node's stack; empty for a query that is not about languages.
#[derive(Default)]
pub(super) struct Languages(Vec<Language>);

/// What determines the labels of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Group {
    pub series: u32,
    pub language: Language,
}

/// The samples that a selector matches: the languages, by series.
pub(super) struct Matches(Vec<LanguageSet>);

// === impl LanguageSet ===

impl LanguageSet {
    const NONE: Self = Self(0);
    const ALL: Self = Self(u16::MAX);

    fn of(language: Language) -> Self {
        Self(1 << language as u16)
    }

    pub fn contains(self, language: Language) -> bool {
        self.0 & Self::of(language).0 != 0
    }

    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The names of the languages that a program is written in, without the kernel's code, which is part of most stacks.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let is_of_kernel = self == Self::of(Language::Kernel);
        let all = Language::ALL.into_iter().filter(move |&it| {
            let is_named = it != Language::Unknown && (it != Language::Kernel || is_of_kernel);
            is_named && self.contains(it)
        });
        all.map(Language::name)
    }
}

// === impl Languages ===

impl Languages {
    /// The language of the stack that ends at a node.
    pub fn of(&self, node: u32) -> Language {
        self.0.get(node as usize).copied().unwrap_or_default()
    }
}

// === impl Matches ===

impl Matches {
    pub fn contains(&self, group: Group) -> bool {
        let languages = self.0.get(group.series as usize);
        languages.is_some_and(|it| it.contains(group.language))
    }
}

// === impl Chunk ===

impl Chunk {
    pub(super) fn languages(&self) -> Languages {
        let mut languages: Vec<Language> = Vec::with_capacity(self.nodes.len());
        // Parents come before their children.
        for node in &self.nodes {
            let above = languages.get(node.parent as usize).copied();
            let of_stack =
                self.functions(*node)
                    .iter()
                    .fold(above.unwrap_or_default(), |above, &frame| {
                        match self.frames.get(frame).map(|it| it.language) {
                            None | Some(Language::Unknown) => above,
                            // It is only the language of stacks without another one.
                            Some(Language::Kernel) if above != Language::Unknown => above,
                            Some(own) => own,
                        }
                    });
            languages.push(of_stack);
        }
        Languages(languages)
    }

    /// All languages of each node's stack.
    pub(super) fn languages_on_stacks(&self) -> Vec<LanguageSet> {
        let mut sets: Vec<LanguageSet> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let above = sets.get(node.parent as usize).copied();
            let frames = self.functions(*node).iter();
            let of_frames = frames.filter_map(|&frame| self.frames.get(frame));
            sets.push(of_frames.fold(above.unwrap_or_default(), |all, frame| {
                all.with(LanguageSet::of(frame.language))
            }));
        }
        sets
    }

    pub(super) fn matches(&self, selector: &Selector) -> Matches {
        // A selector that is not about languages matches all or none.
        let (tried, otherwise) = match selector.names(LANGUAGE) {
            true => (&Language::ALL[..], LanguageSet::NONE),
            false => (&[Language::Unknown][..], LanguageSet::ALL),
        };
        let of_series = (0..self.series.len() as u32).map(|series| {
            let matched = tried.iter().filter(|&&language| {
                let group = Group { series, language };
                selector.is_empty() || selector.matches(|label| self.label(group, label))
            });
            matched.fold(LanguageSet::NONE, |all, &it| {
                all.with(LanguageSet::of(it)).with(otherwise)
            })
        });
        Matches(of_series.collect())
    }
}
