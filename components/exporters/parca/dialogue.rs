//! Sending a batch in either layout.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use profcol_net::grpc::{Code, Status};
use profcol_net::{GrpcCall, GrpcClient, GrpcStream, Message};
use profcol_parca::ipc::{self, NotEncoded};
use profcol_parca::service::{WRITE, WRITE_ARROW, record, request};
use profcol_parca::v1::{encode_samples, encode_stacks, read_wanted};
use profcol_parca::{Frames, LabelRules, StackId, StackIds, Table, v2};
use profcol_profile::{Model, Profiles, StackIdx};
use tokio::task::spawn_blocking;

/// A record with the ids of all stacks of a batch; it is one of ours that comes back.
const LARGEST_ANSWER: usize = 64 << 20;

/// Why a batch was not taken.
#[derive(Debug)]
pub enum Failure {
    /// The server says so, of a message of that many bytes.
    Refused {
        status: Status,
        bytes: usize,
    },
    Defect(NotEncoded),
    /// Encoding ended early.
    Broken(String),
}

impl From<NotEncoded> for Failure {
    fn from(error: NotEncoded) -> Self {
        Self::Defect(error)
    }
}

/// One message with everything.
pub async fn send_v2(
    client: &GrpcClient,
    profiles: &Profiles,
    rules: &Arc<LabelRules>,
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    let (profiles, rules) = (profiles.clone(), Arc::clone(rules));
    let encoding = blocking(move || {
        let model = profiles.model();
        let table = Table::new(model, &rules);
        if table.rows() == 0 {
            return Ok(None);
        }
        let frames = Frames::new(model);
        let mut ids = StackIds::new(&frames);
        v2::encode(&table, &frames, &mut ids).map(Some)
    });
    let Some(record) = encoding.await? else {
        return Ok(());
    };
    let bytes = record.len();
    let message = Message::from(request(&record));
    let call = GrpcCall {
        path: WRITE_ARROW,
        message: &message,
        headers: HeaderMap::new(),
        timeout,
    };
    let sent = client.unary(call).await;
    sent.map_err(|status| Failure::Refused { status, bytes })?;
    Ok(())
}

/// The samples first, and then the stacks that the server asks for.
pub async fn send_v1(
    client: &GrpcClient,
    profiles: &Profiles,
    rules: &Arc<LabelRules>,
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    let first = {
        let (profiles, rules) = (profiles.clone(), Arc::clone(rules));
        blocking(move || First::encode(profiles.model(), &rules))
    };
    let Some(first) = first.await? else {
        return Ok(());
    };
    let dialogue = converse(client, profiles, first, timeout);
    let Some(timeout) = timeout else {
        return dialogue.await;
    };
    match tokio::time::timeout(timeout, dialogue).await {
        Ok(ended) => ended,
        Err(_) => Err(Failure::Refused {
            status: Status::new(Code::DeadlineExceeded, "context deadline exceeded"),
            bytes: 0,
        }),
    }
}

/// The first message of a dialogue, and what may be asked for after it.
struct First {
    samples: Vec<u8>,
    stacks: HashMap<StackId, StackIdx>,
}

impl First {
    fn encode(model: &Model, rules: &LabelRules) -> Result<Option<Self>, NotEncoded> {
        let table = Table::new(model, rules);
        if table.rows() == 0 {
            return Ok(None);
        }
        let frames = Frames::new(model);
        let mut ids = StackIds::new(&frames);
        let samples = encode_samples(&table, &mut ids)?;
        let stacks = table.stacks.iter();
        let stacks = stacks.map(|&stack| (ids.id(stack), stack)).collect();
        Ok(Some(Self { samples, stacks }))
    }
}

async fn converse(
    client: &GrpcClient,
    profiles: &Profiles,
    first: First,
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    let bytes = first.samples.len();
    let refused = |status| Failure::Refused { status, bytes };
    let mut stream = client.stream(WRITE, timeout).await.map_err(refused)?;
    let message = request(&first.samples);
    stream.send(message, false).await.map_err(refused)?;
    let Some(wanted) = wanted(&mut stream).await.map_err(refused)? else {
        return Ok(());
    };
    // Whatever is asked for is answered, also what was never sent.
    let stacks: Vec<(StackId, Option<StackIdx>)> = wanted
        .into_iter()
        .map(|id| (id, first.stacks.get(&id).copied()))
        .collect();
    let profiles = profiles.clone();
    let encoding = blocking(move || {
        let frames = Frames::new(profiles.model());
        encode_stacks(&frames, &stacks)
    });
    let stacks = encoding.await?;
    let bytes = stacks.len();
    let refused = |status| Failure::Refused { status, bytes };
    let message = request(&stacks);
    stream.send(message, true).await.map_err(refused)?;
    while stream.receive().await.map_err(refused)?.is_some() {}
    Ok(())
}

/// Encoding takes milliseconds, in which other calls go on.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NotEncoded> + Send + 'static,
) -> Result<T, Failure> {
    match spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(error) => Err(Failure::Broken(error.to_string())),
    }
}

/// The ids of the stacks that the server wants; none where it has said that all is well.
async fn wanted(stream: &mut GrpcStream) -> Result<Option<Vec<StackId>>, Status> {
    let Some(answer) = stream.receive().await? else {
        return Ok(None);
    };
    let bad = |reason: String| {
        let message = format!("the server asked for stacks in a way that is not known: {reason}");
        Status::new(Code::Internal, message)
    };
    let record = record(&answer).map_err(|error| bad(error.to_string()))?;
    if record.is_empty() {
        return Ok(None);
    }
    let batch = ipc::read(record, LARGEST_ANSWER).map_err(|error| bad(error.to_string()))?;
    let Some(batch) = batch else {
        return Ok(None);
    };
    let ids = read_wanted(&batch).map_err(|error| bad(error.to_string()))?;
    let ids = ids.iter().map(|id| {
        let is_ours: Result<StackId, _> = (**id).try_into();
        is_ours.map_err(|_| bad(format!("an id of {} bytes", id.len())))
    });
    ids.collect::<Result<_, _>>().map(Some)
}
