//! How a component makes itself known: one line in the list of its kind.
//!
//! ```ignore
//! pub const ALL: &[Entry<dyn Exporter>] = &[entry::<debug::Debug>(), entry::<nop::Nop>()];
//! ```
//!
//! A row is plain data: function pointers and names, no macro and no link-time registration, so
//! that everything that exists can be read in one place and walked by tests.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use profcol_admission::Admission;
use profcol_config::{ComponentId, Config, Node, PipelineId, Problems};

use crate::{
    Capabilities, ComponentStatus, DropFeedback, Executables, Exporter, Extension, Meter,
    Processor, Receiver, RecentLog, ServiceInfo, StatusBoard,
};

/// A component: its name, its configuration and how to make it.
pub trait Factory: 'static {
    /// The name in the configuration, and of the component's folder.
    const NAME: &'static str;
    /// Names that it had before, or has in other collectors; they go on working.
    const ALIASES: &'static [&'static str] = &[];
    const STABILITY: Stability = Stability::Alpha;
    type Config: Config;
    /// `dyn Receiver`, `dyn Processor`, `dyn Exporter` or `dyn Extension`.
    type Component: ?Sized;

    /// What of root's power it uses. A process that has more gives up the rest before anything
    /// starts; reading what others may not (`DAC_READ_SEARCH`) is always kept, for certificates,
    /// tokens and keys.
    fn capabilities(_: &Self::Config) -> Capabilities {
        Capabilities::NONE
    }

    /// Wires the component. Opens nothing and starts nothing: `profcol validate` builds too.
    fn build(
        config: &Self::Config,
        context: &BuildContext,
    ) -> Result<Box<Self::Component>, BuildError>;
}

/// One row of a registry.
pub struct Entry<C: ?Sized> {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub stability: Stability,
    /// The JSON Schema of its configuration.
    pub schema: fn() -> serde_json::Value,
    pub capabilities: fn(&dyn AnyConfig) -> Capabilities,
    /// Checks, decodes and validates; `None` where there are problems.
    pub load: fn(&Node, &mut Problems) -> Option<Box<dyn AnyConfig>>,
    pub build: fn(&dyn AnyConfig, &BuildContext) -> Result<Box<C>, BuildError>,
}

/// A decoded configuration whose type only its own entry knows.
pub trait AnyConfig: Any + fmt::Debug + Send + Sync {
    /// The configuration with all defaults; secrets in plain.
    fn resolved(&self) -> Result<serde_json::Value, serde_json::Error>;
    fn as_any(&self) -> &dyn Any;
}

/// What a component is given when it is built.
#[derive(Clone, Debug)]
pub struct BuildContext {
    pub id: ComponentId,
    /// The pipeline, for processors: each pipeline has its own instance.
    pub pipeline: Option<PipelineId>,
    pub meter: Meter,
    pub status: ComponentStatus,
    /// How everything else is doing.
    pub board: StatusBoard,
    /// What was logged last.
    pub log: RecentLog,
    pub service: Arc<ServiceInfo>,
    /// What processors tell receivers of processes that they drop.
    pub drop_feedback: DropFeedback,
    /// What receivers tell exporters of executables that they met.
    pub executables: Executables,
    /// How much memory and how many threads requests may take, in the whole process.
    pub admission: Admission,
    pub extensions: Arc<HashMap<ComponentId, Handles>>,
}

/// What an extension offers, by type.
#[derive(Clone, Default)]
pub struct Handles(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BuildError(pub String);

/// How far a component has come, in the Collector's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    Development,
    Alpha,
    Beta,
    Stable,
}

/// Which of the four kinds a component is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Receiver,
    Processor,
    Exporter,
    Extension,
}

/// Everything that a binary can build.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    pub receivers: &'static [Entry<dyn Receiver>],
    pub processors: &'static [Entry<dyn Processor>],
    pub exporters: &'static [Entry<dyn Exporter>],
    pub extensions: &'static [Entry<dyn Extension>],
    /// Components that other distributions have.
    pub foreign: &'static [ForeignComponent],
}

/// A component of other distributions.
#[derive(Clone, Copy, Debug)]
pub struct ForeignComponent {
    pub kind: Kind,
    pub names: &'static [&'static str],
    /// What a user should write in its place.
    pub instead: &'static str,
}

/// The row of the component `F`.
pub const fn entry<F: Factory>() -> Entry<F::Component> {
    Entry {
        name: F::NAME,
        aliases: F::ALIASES,
        stability: F::STABILITY,
        schema: profcol_config::schema::schema_of::<F::Config>,
        capabilities: |config| {
            let config = config.as_any().downcast_ref::<F::Config>();
            config.map_or(Capabilities::NONE, F::capabilities)
        },
        load: |node, problems| {
            let config: F::Config = profcol_config::load(node, problems)?;
            Some(Box::new(config))
        },
        build: |config, context| match config.as_any().downcast_ref::<F::Config>() {
            Some(config) => F::build(config, context),
            None => Err(BuildError(format!(
                "{:?} is not a configuration of {}",
                config,
                F::NAME
            ))),
        },
    }
}

// === impl Entry ===

impl<C: ?Sized> Entry<C> {
    /// Whether `name` means this component, by its present or a former name.
    pub fn has_name(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

impl<C: ?Sized> fmt::Debug for Entry<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

// === impl Registry ===

impl Registry {
    /// What a user should write in place of a component that is not here.
    pub fn suggestion_for(&self, kind: Kind, name: &str) -> Option<String> {
        let mut foreign = self.foreign.iter().filter(|it| it.kind == kind);
        let foreign = foreign.find(|it| it.names.contains(&name));
        let elsewhere = || {
            let other = self.kind_of(name)?;
            let article = match other {
                Kind::Receiver | Kind::Processor => "a",
                Kind::Exporter | Kind::Extension => "an",
            };
            Some(format!(
                "`{name}` is {article} {other}: declare it under `{other}s`"
            ))
        };
        foreign.map(|it| it.instead.to_owned()).or_else(elsewhere)
    }

    fn kind_of(&self, name: &str) -> Option<Kind> {
        fn has<C: ?Sized>(entries: &[Entry<C>], name: &str) -> bool {
            entries.iter().any(|entry| entry.has_name(name))
        }
        let kinds = [
            (Kind::Receiver, has(self.receivers, name)),
            (Kind::Processor, has(self.processors, name)),
            (Kind::Exporter, has(self.exporters, name)),
            (Kind::Extension, has(self.extensions, name)),
        ];
        let found = kinds.into_iter().find(|(_, is_there)| *is_there);
        found.map(|(kind, _)| kind)
    }
}

// === impl AnyConfig ===

impl<C: Config> AnyConfig for C {
    fn resolved(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::to_value(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

// === impl BuildContext ===

impl BuildContext {
    /// What the extension `id` offers as a `T`.
    pub fn extension<T: Any + Send + Sync>(&self, id: &ComponentId) -> Result<Arc<T>, BuildError> {
        extension(&self.extensions, id)
    }
}

/// What the extension `id` offers as a `T`.
pub fn extension<T: Any + Send + Sync>(
    extensions: &HashMap<ComponentId, Handles>,
    id: &ComponentId,
) -> Result<Arc<T>, BuildError> {
    let Some(handles) = extensions.get(id) else {
        let id = id.to_string();
        return Err(BuildError(format!(
            "extension {id:?} is not running: configure it under `extensions` and list it in `service::extensions`"
        )));
    };
    handles.get::<T>().ok_or_else(|| {
        BuildError(format!(
            "extension {:?} does not provide the required interface",
            id.to_string()
        ))
    })
}

// === impl Handles ===

impl Handles {
    pub fn add<T: Any + Send + Sync>(&mut self, handle: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(handle));
    }

    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::downcast(self.0.get(&TypeId::of::<T>())?.clone()).ok()
    }
}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} handles", self.0.len())
    }
}

// === impl Kind, Stability ===

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Receiver => "receiver",
            Kind::Processor => "processor",
            Kind::Exporter => "exporter",
            Kind::Extension => "extension",
        })
    }
}

impl fmt::Display for Stability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stability::Development => "Development",
            Stability::Alpha => "Alpha",
            Stability::Beta => "Beta",
            Stability::Stable => "Stable",
        })
    }
}
