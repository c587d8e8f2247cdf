//! Component registration: one entry in the list of its kind.
//!
//! ```ignore
//! pub const ALL: &[Entry<dyn Exporter>] = &[entry::<debug::Debug>(), entry::<nop::Nop>()];
//! ```
//!
//! An entry is plain data, function pointers and names, without macros or link-time registration, so that all
//! components are listed in one place and tests can iterate over them.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use profcol_admission::Admission;
use profcol_config::{ComponentId, Config, Node, PipelineId, Problems};

use crate::{
    Capabilities, ComponentStatus, Connector, Exporter, Extension, Handles, Meter, Processor,
    Receiver, Shared,
};

/// A component's name, configuration and constructor.
pub trait Factory: 'static {
    /// The name in the configuration and of the component's directory.
    const NAME: &'static str;
    /// Former names, or names in other collectors; accepted in configurations.
    const ALIASES: &'static [&'static str] = &[];
    const STABILITY: Stability = Stability::Alpha;
    /// Whether two instances cannot run at the same time, as they would share a file or count samples twice. A reload
    /// then stops the old instance before it starts the new one; all others overlap.
    const IS_EXCLUSIVE: bool = false;
    /// Whether a processor answers before the next component has the batch, so that a crash loses what it holds.
    const ANSWERS_EARLY: bool = false;
    type Config: Config;
    /// `dyn Receiver`, `dyn Processor`, `dyn Exporter`, `dyn Connector` or `dyn Extension`.
    type Component: ?Sized;

    /// Capabilities the component needs. All others are dropped before components start, except `DAC_READ_SEARCH`,
    /// which is needed to read certificates, tokens and keys.
    fn capabilities(_: &Self::Config) -> Capabilities {
        Capabilities::NONE
    }

    /// Directories below which the component creates, changes or deletes files. With Landlock, all others are read-only. With
    /// any, `DAC_OVERRIDE` is kept.
    fn writes(_: &Self::Config) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Whether the component reads executables in another process, if there is one for that.
    fn reads_executables(_: &Self::Config) -> bool {
        false
    }

    /// The pipelines that a connector's configuration names, each with the path of the option.
    fn pipelines(_: &Self::Config) -> Vec<(String, PipelineId)> {
        Vec::new()
    }

    /// Creates the component without opening or starting anything: `profcol validate` builds too.
    fn build(
        config: &Self::Config,
        context: &BuildContext,
    ) -> Result<Box<Self::Component>, BuildError>;
}

/// A registry entry.
pub struct Entry<C: ?Sized> {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub stability: Stability,
    pub is_exclusive: bool,
    pub answers_early: bool,
    /// The JSON Schema of its configuration.
    pub schema: fn() -> serde_json::Value,
    pub capabilities: fn(&dyn AnyConfig) -> Capabilities,
    pub writes: fn(&dyn AnyConfig) -> Vec<PathBuf>,
    pub reads_executables: fn(&dyn AnyConfig) -> bool,
    pub pipelines: fn(&dyn AnyConfig) -> Vec<(String, PipelineId)>,
    /// Checks, decodes and validates a configuration; `None` on problems.
    pub load: fn(&Node, &mut Problems) -> Option<Box<dyn AnyConfig>>,
    pub build: fn(&dyn AnyConfig, &BuildContext) -> Result<Box<C>, BuildError>,
}

/// A type-erased decoded configuration.
pub trait AnyConfig: Any + fmt::Debug + Send + Sync {
    /// The configuration with all defaults; secrets in plain text.
    fn resolved(&self) -> Result<serde_json::Value, serde_json::Error>;
    fn as_any(&self) -> &dyn Any;
}

/// The context in which a component is built.
#[derive(Clone, Debug)]
pub struct BuildContext {
    pub id: ComponentId,
    /// The pipeline that a processor belongs to (each pipeline has its own instance), or those that a receiver or a
    /// connector feeds.
    pub pipelines: Arc<[PipelineId]>,
    pub meter: Meter,
    pub status: ComponentStatus,
    /// State shared between components of different kinds.
    pub shared: Shared,
    /// Process-wide memory and thread limits for requests.
    pub admission: Admission,
    pub extensions: Extensions,
    pub instance: InstanceId,
}

/// Identifies an instance of a component within the process: a reload may replace it by another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId(pub u64);

/// The extensions that a component may use.
#[derive(Clone, Debug, Default)]
pub struct Extensions {
    offered: Arc<HashMap<ComponentId, Handles>>,
    used: Arc<Mutex<BTreeSet<ComponentId>>>,
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct BuildError(Box<dyn Error + Send + Sync>);

impl BuildError {
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

/// A component's maturity, in the Collector's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    Development,
    Alpha,
    Beta,
    Stable,
}

/// The kinds of components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Receiver,
    Processor,
    Exporter,
    Connector,
    Extension,
}

/// All components of a binary.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    pub receivers: &'static [Entry<dyn Receiver>],
    pub processors: &'static [Entry<dyn Processor>],
    pub exporters: &'static [Entry<dyn Exporter>],
    pub connectors: &'static [Entry<dyn Connector>],
    pub extensions: &'static [Entry<dyn Extension>],
    /// Components of other distributions.
    pub foreign: &'static [ForeignComponent],
}

/// A component of other distributions.
#[derive(Clone, Copy, Debug)]
pub struct ForeignComponent {
    pub kind: Kind,
    pub names: &'static [&'static str],
    /// The suggested replacement.
    pub instead: &'static str,
}

/// The entry of the component `F`.
pub const fn entry<F: Factory>() -> Entry<F::Component> {
    Entry {
        name: F::NAME,
        aliases: F::ALIASES,
        stability: F::STABILITY,
        is_exclusive: F::IS_EXCLUSIVE,
        answers_early: F::ANSWERS_EARLY,
        schema: profcol_config::schema::schema_of::<F::Config>,
        capabilities: |config| {
            let config = config.as_any().downcast_ref::<F::Config>();
            config.map_or(Capabilities::NONE, F::capabilities)
        },
        writes: |config| {
            let config = config.as_any().downcast_ref::<F::Config>();
            config.map_or_else(Vec::new, F::writes)
        },
        reads_executables: |config| {
            let config = config.as_any().downcast_ref::<F::Config>();
            config.is_some_and(F::reads_executables)
        },
        pipelines: |config| {
            let config = config.as_any().downcast_ref::<F::Config>();
            config.map_or_else(Vec::new, F::pipelines)
        },
        load: |node, problems| {
            let config: F::Config = profcol_config::load(node, problems)?;
            Some(Box::new(config))
        },
        build: |config, context| match config.as_any().downcast_ref::<F::Config>() {
            Some(config) => F::build(config, context),
            None => Err(BuildError::new(format!(
                "{:?} is not a configuration of {}",
                config,
                F::NAME
            ))),
        },
    }
}

// === impl Entry ===

impl<C: ?Sized> Entry<C> {
    /// Whether `name` is this component's name or alias.
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
    /// The suggested replacement for an unknown component.
    pub fn suggestion_for(&self, kind: Kind, name: &str) -> Option<String> {
        let mut foreign = self.foreign.iter().filter(|it| it.kind == kind);
        let foreign = foreign.find(|it| it.names.contains(&name));
        let elsewhere = || {
            let other = self.kind_of(name)?;
            let article = match other {
                Kind::Receiver | Kind::Processor | Kind::Connector => "a",
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
            (Kind::Connector, has(self.connectors, name)),
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
    /// The handle of type `T` that the extension `id` offers.
    pub fn extension<T: Any + Send + Sync>(&self, id: &ComponentId) -> Result<Arc<T>, BuildError> {
        self.extensions.get(id)
    }
}

// === impl Extensions ===

impl Extensions {
    pub fn new(offered: Arc<HashMap<ComponentId, Handles>>) -> Self {
        Self {
            offered,
            used: Arc::default(),
        }
    }

    /// The handle of type `T` that the extension `id` offers.
    pub fn get<T: Any + Send + Sync>(&self, id: &ComponentId) -> Result<Arc<T>, BuildError> {
        self.used.lock().insert(id.clone());
        let Some(handles) = self.offered.get(id) else {
            let id = id.to_string();
            return Err(BuildError::new(format!(
                "extension {id:?} is not running: configure it under `extensions` and list it in `service::extensions`"
            )));
        };
        handles.get::<T>().ok_or_else(|| {
            BuildError::new(format!(
                "extension {:?} does not provide the required interface",
                id.to_string()
            ))
        })
    }

    /// The extensions asked for so far: when one of them is replaced, so is the component.
    pub fn used(&self) -> Vec<ComponentId> {
        self.used.lock().iter().cloned().collect()
    }
}

// === impl Kind, Stability ===

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Receiver => "receiver",
            Kind::Processor => "processor",
            Kind::Exporter => "exporter",
            Kind::Connector => "connector",
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
