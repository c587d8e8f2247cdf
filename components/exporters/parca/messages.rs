//! Encodes a batch as messages.
//!
//! Everything is encoded before a call starts: Parca's server ends a call after five seconds, and
//! so far has requested every stack in every call.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use profcol_parca::ipc::NotEncoded;
use profcol_parca::service::{WRITE_ARROW, WRITE_RAW, request};
use profcol_parca::v1::{encode_samples, encode_stacks, encode_stacks_without_columns};
use profcol_parca::{Frames, LabelRules, StackId, StackIds, Table, raw, v2};
use profcol_pprof::AddProfilesError;
use profcol_profile::{Profiles, StackIdx};
use tokio::task::{JoinError, spawn_blocking};

/// The three schemas of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    V1,
    V2,
    Pprof,
}

/// The server's support for lines in stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    WithColumns,
    /// The schema of Parca before 0.27.
    WithoutColumns,
}

/// How to encode a batch.
#[derive(Clone)]
pub struct EncodeOptions {
    pub rules: Arc<LabelRules>,
    pub schema: Schema,
    pub lines: Lines,
}

pub enum Messages {
    One { path: &'static str, message: Bytes },
    WriteStream(Box<WriteStream>),
}

/// The samples, and the response to requests for stacks.
pub struct WriteStream {
    pub samples: Bytes,
    /// The message with all stacks.
    pub stacks: Bytes,
    known: HashMap<StackId, StackIdx>,
    profiles: Profiles,
    lines: Lines,
}

/// Why a batch cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error(transparent)]
    Record(#[from] NotEncoded),
    #[error("failed to encode a pprof: {0}")]
    Pprof(#[from] AddProfilesError),
    #[error("the encoding task failed: {0}")]
    Broken(#[from] JoinError),
    #[error("the server requested {requested} stacks, {known} are known")]
    TooManyRequested { requested: usize, known: usize },
}

/// Maximum number of unknown stacks that a server may request.
const MAX_UNKNOWN: usize = 1024;

impl Messages {
    pub async fn encode(profiles: &Profiles, options: &EncodeOptions) -> Result<Self, EncodeError> {
        let (profiles, options) = (profiles.clone(), options.clone());
        blocking(move || Self::encode_now(&profiles, &options)).await
    }

    fn encode_now(profiles: &Profiles, options: &EncodeOptions) -> Result<Self, EncodeError> {
        let model = profiles.model();
        let table = Table::new(model, &options.rules);
        let frames = Frames::new(model);
        let mut ids = StackIds::new(&frames);
        Ok(match options.schema {
            Schema::V1 => {
                let samples = encode_samples(&table, &mut ids)?;
                let stacks = table.stacks.iter();
                let known = stacks.map(|&stack| (ids.id(stack), stack)).collect();
                let write_stream = WriteStream {
                    samples: request(&samples),
                    stacks: stacks_message(&frames, &all(&known), options.lines)?,
                    known,
                    profiles: profiles.clone(),
                    lines: options.lines,
                };
                Self::WriteStream(Box::new(write_stream))
            }
            Schema::V2 => Self::One {
                path: WRITE_ARROW,
                message: request(&v2::encode(&table, &frames, &mut ids)?),
            },
            Schema::Pprof => Self::One {
                path: WRITE_RAW,
                message: raw::encode(&table, &frames)?,
            },
        })
    }

    /// The message with the samples.
    pub fn first(&self) -> &Bytes {
        match self {
            Self::One { message, .. } => message,
            Self::WriteStream(write_stream) => &write_stream.samples,
        }
    }

    /// The size of the longest message.
    pub fn longest(&self) -> usize {
        match self {
            Self::One { message, .. } => message.len(),
            Self::WriteStream(write_stream) => {
                write_stream.samples.len().max(write_stream.stacks.len())
            }
        }
    }
}

impl WriteStream {
    /// Answers every requested ID, even if it was never sent: a server fails a call in
    /// which one is missing.
    pub async fn answer(&self, requested: Vec<StackId>) -> Result<Bytes, EncodeError> {
        let is_all = requested.len() == self.known.len();
        if is_all && requested.iter().all(|id| self.known.contains_key(id)) {
            return Ok(self.stacks.clone());
        }
        let known = self.known.len();
        if requested.len() > known + MAX_UNKNOWN {
            let requested = requested.len();
            return Err(EncodeError::TooManyRequested { requested, known });
        }
        let stacks = requested.into_iter();
        let stacks: Vec<_> = stacks
            .map(|id| (id, self.known.get(&id).copied()))
            .collect();
        let (profiles, lines) = (self.profiles.clone(), self.lines);
        blocking(move || stacks_message(&Frames::new(profiles.model()), &stacks, lines)).await
    }
}

type KnownStacks = Vec<(StackId, Option<StackIdx>)>;

fn all(known: &HashMap<StackId, StackIdx>) -> KnownStacks {
    let mut all: KnownStacks = known
        .iter()
        .map(|(&id, &stack)| (id, Some(stack)))
        .collect();
    // Neighbors in the batch are similar, which compresses better.
    all.sort_unstable_by_key(|(_, stack)| stack.map(StackIdx::get));
    all
}

fn stacks_message(
    frames: &Frames<'_>,
    stacks: &[(StackId, Option<StackIdx>)],
    lines: Lines,
) -> Result<Bytes, EncodeError> {
    let record = match lines {
        Lines::WithColumns => encode_stacks(frames, stacks)?,
        Lines::WithoutColumns => encode_stacks_without_columns(frames, stacks)?,
    };
    Ok(request(&record))
}

/// Encoding takes milliseconds, so it runs on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EncodeError> + Send + 'static,
) -> Result<T, EncodeError> {
    let done = spawn_blocking(work).await;
    done?
}
