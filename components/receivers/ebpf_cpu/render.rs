//! Renders an interval as a batch, with OpenTelemetry's attribute names.

use std::collections::HashMap;
use std::sync::Arc;

use profcol_ebpf_interpreters::context::LibraryContexts;
use profcol_ebpf_interpreters::names::{InterpretedNames, Role};
use profcol_ebpf_interpreters::{Execution, Runtime, SourceFrame};
use profcol_ebpf_loader::{
    Clock, EndReason, Frame, InterpretedFrame, ProcessKey, SampledFile, SampledFiles, StackFrame,
    file_number, unreadable,
};
use profcol_profile::{
    AttributeIdx, AttributeRef, Function, Idx, Interner, KeyValue, Line, Location, LocationIdx,
    LocationRef, Mapping, MappingIdx, MappingRef, Model, Profile, Resource, ResourceProfiles,
    SampleRef, Samples, Scope, ScopeProfiles, StackIdx, StringIdx, Value, ValueType,
};
use profcol_symbols::{GeneratedCode, JitNames, JitProcesses, KernelSymbolizer};

use super::attributes::{Attributes, key};
use super::config::InterpreterFrames;
use super::dotnet::{self, DotNetProcesses};
use super::function_key;
use super::interval::{Interval, Observation, SeenStack};
use super::processes::{Processes, text};
use super::thread_context::ThreadContext;

const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";

/// The sources of names.
pub struct NameSources<'a> {
    pub executables: &'a SampledFiles,
    pub kernel: &'a KernelSymbolizer,
    pub processes: &'a Processes,
    pub attributes: &'a Attributes,
    pub jit: &'a JitProcesses<ProcessKey>,
    pub interpreted: &'a InterpretedNames<ProcessKey>,
    pub dotnet: &'a DotNetProcesses,
    pub contexts: &'a LibraryContexts<ProcessKey>,
    pub interpreter_frames: InterpreterFrames,
    pub prefer_perf_map: bool,
}

pub fn render<'a>(
    seen: &'a Interval,
    names: &'a NameSources<'a>,
    clock: Clock,
    frequency: u64,
) -> Model {
    let mut rendering = Rendering {
        names,
        rows: Interner::new(),
        files: HashMap::new(),
        frames: HashMap::new(),
        kernel_frames: HashMap::new(),
        interpreted: HashMap::new(),
        stacks: HashMap::new(),
        jit: None,
        is_dotnet: false,
        process: ProcessKey::default(),
        contexts: seen.contexts(),
    };
    let duration = seen.duration();
    let stacks = seen.stacks();
    let observations = seen.observations();
    let sample_type = rendering.value_type("samples", "count");
    let (counted, unit) = clock.counts();
    let period_type = rendering.value_type(counted, unit);
    let period = i64::try_from(clock.period(frequency)).unwrap_or(i64::MAX);
    let scope: Arc<Scope> = Arc::new(Scope {
        name: "profcol/ebpf_cpu".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..Scope::default()
    });
    let mut resources = Vec::new();
    for of_process in observations.chunk_by(|(a, _), (b, _)| a.process == b.process) {
        if let Some((first, _)) = of_process.first() {
            rendering.enter(first);
        }
        let mut samples = Samples::default();
        for &(observation, found) in of_process {
            let Some(stack) = stacks.get(observation.stack as usize) else {
                continue;
            };
            let context = rendering.context(observation);
            let attributes = rendering.sample_attributes(observation, &context);
            let link = rendering.rows.link(context.link);
            let times = found.times.iter();
            let timestamps: Vec<u64> = times.map(|&time| seen.unix_time(time)).collect();
            // Without values, each timestamp counts as one.
            let count = i64::try_from(found.count).unwrap_or(i64::MAX);
            let values = if timestamps.is_empty() {
                &[count][..]
            } else {
                &[]
            };
            samples.push(SampleRef {
                stack: rendering.stack(observation, stack),
                link,
                attributes: &attributes,
                timestamps: &timestamps,
                values,
            });
        }
        let Some((first, _)) = of_process.first() else {
            continue;
        };
        resources.push(ResourceProfiles {
            resource: Some(Arc::new(rendering.resource(first))),
            scopes: vec![ScopeProfiles {
                scope: Some(Arc::clone(&scope)),
                profiles: vec![Arc::new(Profile {
                    sample_type: Some(sample_type),
                    samples,
                    time_unix_nano: seen.start.unix,
                    duration_nano: duration,
                    period_type: Some(period_type),
                    period,
                    ..Profile::default()
                })],
                schema_url: SCHEMA_URL.into(),
            }],
            schema_url: SCHEMA_URL.into(),
        });
    }
    Model {
        dictionary: Arc::new(rendering.rows.finish()),
        resources,
    }
}

struct Rendering<'a> {
    names: &'a NameSources<'a>,
    rows: Interner,
    files: HashMap<u32, Option<Arc<SampledFile>>>,
    frames: HashMap<u64, LocationIdx>,
    kernel_frames: HashMap<u64, LocationIdx>,
    /// Interpreted frames of the process being rendered.
    interpreted: HashMap<(InterpretedFrame, Option<InterpretedFrame>), (LocationIdx, Role)>,
    /// Stacks by their number and end reason, which is a frame, too.
    stacks: HashMap<(u32, u32), StackIdx>,
    /// Names of the process being rendered.
    jit: Option<&'a JitNames>,
    is_dotnet: bool,
    process: ProcessKey,
    contexts: HashMap<u32, &'a [u8]>,
}

impl<'a> Rendering<'a> {
    /// Starts the samples of a process.
    fn enter(&mut self, observation: &Observation) {
        let names = self.names.jit.names(&observation.process);
        let is_dotnet = self.names.dotnet.contains(&observation.process);
        if self.jit.is_some() || names.is_some() || is_dotnet || !self.interpreted.is_empty() {
            self.interpreted.clear();
            // The same address is other code in another process.
            self.stacks.clear();
            let is_shared = |&frame: &u64| Frame(frame).file() != file_number::ANONYMOUS;
            self.frames.retain(|frame, _| is_shared(frame));
        }
        self.jit = names;
        self.is_dotnet = is_dotnet;
        self.process = observation.process;
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType {
            kind: self.rows.string(kind),
            unit: self.rows.string(unit),
        }
    }

    fn resource(&self, observation: &Observation) -> Resource {
        let switches = self.names.attributes;
        let mut attributes = Vec::new();
        let mut add = |is_on: bool, key: &str, value: Option<Value>| {
            if is_on && let Some(value) = value {
                attributes.push(KeyValue::new(key, value));
            }
        };
        let host = Some(self.names.processes.host.as_str()).filter(|name| !name.is_empty());
        add(switches.host_name, key::host_name, host.map(Value::from));
        let integer = |value: u32| Some(i64::from(value).into());
        let pid = observation.process.pid;
        add(switches.pid, key::pid, integer(pid));
        if let Some(known) = self.names.processes.get(&observation.process) {
            let executable = self.names.executables.get(known.executable);
            let executable = executable.as_deref();
            let path = executable
                .map(|executable| executable.path.as_str())
                .filter(|path| !path.is_empty());
            let name = path
                .and_then(|path| path.rsplit('/').next())
                .unwrap_or(&known.name);
            let build_id = executable.and_then(|executable| executable.gnu_build_id.as_deref());
            let is_inside = known.own_pid != 0 && known.own_pid != pid;
            let vpid = is_inside.then(|| i64::from(known.own_pid).into());
            let cgroup = Some(known.cgroup.as_str()).filter(|path| !path.is_empty());
            let container = known.container.as_deref();
            add(
                switches.executable_name,
                key::executable_name,
                Some(name.into()),
            );
            let comm = Some(known.name.as_str()).filter(|name| !name.is_empty());
            add(switches.comm, key::comm, comm.map(Value::from));
            add(
                switches.executable_path,
                key::executable_path,
                path.map(Value::from),
            );
            add(
                switches.executable_build_id,
                key::executable_build_id,
                build_id.map(Value::from),
            );
            add(
                switches.command_args,
                key::command_args,
                list(&known.arguments),
            );
            add(switches.parent_pid, key::parent_pid, integer(known.parent));
            add(
                switches.owner,
                key::owner,
                Some(known.owner.as_str().into()),
            );
            add(
                switches.creation_time,
                key::creation_time,
                Some(known.created.as_str().into()),
            );
            add(switches.vpid, key::vpid, vpid);
            add(switches.cgroup, key::cgroup, cgroup.map(Value::from));
            add(
                switches.container_id,
                key::container_id,
                container.map(Value::from),
            );
        }
        Resource {
            attributes,
            ..Resource::default()
        }
    }

    fn context(&self, observation: &Observation) -> ThreadContext {
        let bytes = self.contexts.get(&observation.context);
        let keys = self.names.contexts.keys(&observation.process);
        bytes.map_or_else(ThreadContext::default, |bytes| {
            ThreadContext::read(bytes, keys)
        })
    }

    fn sample_attributes(
        &mut self,
        observation: &Observation,
        context: &ThreadContext,
    ) -> Vec<AttributeIdx> {
        let switches = self.names.attributes;
        let mut attributes = Vec::new();
        if switches.thread_name {
            let name = text(&observation.thread_name);
            attributes.push(self.attribute(key::thread_name, name.as_str().into()));
        }
        if switches.thread_id {
            attributes.push(self.attribute(key::thread_id, i64::from(observation.thread).into()));
        }
        if switches.cpu {
            attributes.push(self.attribute(key::cpu, i64::from(observation.cpu).into()));
        }
        if let Some(goroutine) = context.goroutine {
            attributes.push(self.attribute(key::goroutine, goroutine.into()));
        }
        for (label, value) in &context.labels {
            let key = format!("{}.{label}", key::labels);
            attributes.push(self.attribute(&key, value.as_str().into()));
        }
        if let Some(reason) = broken_end(observation.end) {
            attributes.push(self.attribute("profcol.stack.end_reason", reason.into()));
        }
        attributes
    }

    fn stack(&mut self, observation: &Observation, stack: &SeenStack<'_>) -> StackIdx {
        let key = (observation.stack, observation.end);
        if let Some(&known) = self.stacks.get(&key) {
            return known;
        }
        let mut locations: Vec<LocationIdx> =
            Vec::with_capacity(stack.kernel.len() + stack.user.len() + 1);
        locations.extend(
            stack
                .kernel
                .addresses()
                .enumerate()
                // All frames but the first are return addresses, which may point past the end of a function.
                .map(|(depth, address)| {
                    self.kernel_frame(address.saturating_sub(u64::from(depth > 0)))
                }),
        );
        self.user_stack(stack, &mut locations);
        if let Some(reason) = broken_end(observation.end) {
            locations.push(self.marker(reason));
        }
        let row = self.rows.stack(&locations);
        self.stacks.insert(key, row);
        row
    }

    fn user_stack(&mut self, stack: &SeenStack<'_>, locations: &mut Vec<LocationIdx>) {
        let hides_stubs = self.names.interpreter_frames == InterpreterFrames::Hide;
        let hides = hides_stubs
            && (stack.user.stack()).any(|frame| matches!(frame, StackFrame::Interpreted(_)));
        let mut is_behind_native = false;
        let mut is_named_by_map = false;
        let before = locations.len();
        let mut frames = stack.user.stack().peekable();
        while let Some(frame) = frames.next() {
            match frame {
                StackFrame::Native(frame) if hides && self.carries_calls(frame) => {
                    is_behind_native = false;
                    is_named_by_map = false;
                }
                StackFrame::Native(frame) => {
                    is_named_by_map =
                        self.names.prefer_perf_map && self.generated_code(frame).is_some();
                    match self.compiled_method(frame) {
                        _ if is_named_by_map => locations.push(self.user_frame(frame)),
                        Some((_, Role::Machinery)) if hides_stubs && locations.len() > before => {}
                        Some((row, _)) => locations.push(row),
                        None => locations.push(self.user_frame(frame)),
                    }
                    is_behind_native = true;
                }
                // The functions of the native frame, or compiled ones without a native frame of their own.
                StackFrame::Interpreted(frame) if is_named_by_map => {
                    let code = Frame::new(file_number::ANONYMOUS, frame.function);
                    if !is_behind_native && self.generated_code(code).is_some() {
                        locations.push(self.user_frame(code));
                    }
                    is_behind_native = false;
                }
                StackFrame::Interpreted(frame) => {
                    let caller = match frames.peek() {
                        Some(StackFrame::Interpreted(caller)) if frame.is_named_by_caller() => {
                            Some(*caller)
                        }
                        _ => None,
                    };
                    let Some((row, role)) = self.interpreted_frame(frame, caller) else {
                        continue;
                    };
                    if is_behind_native && hides {
                        // The interpreter's loop is replaced by the functions that it runs.
                        locations.pop();
                    }
                    is_behind_native = false;
                    if hides && role == Role::Machinery && locations.len() > before {
                        continue;
                    }
                    locations.push(row);
                    if role == Role::FirstOfThread {
                        return;
                    }
                }
            }
        }
    }

    fn carries_calls(&mut self, frame: Frame) -> bool {
        let executable = self.executable(frame.file());
        let interpreter = executable.as_deref().and_then(|it| it.interpreter.as_ref());
        interpreter.is_some_and(|it| it.carries_calls(frame.offset()))
    }

    /// `caller` is given if it has the name.
    fn interpreted_frame(
        &mut self,
        frame: InterpretedFrame,
        caller: Option<InterpretedFrame>,
    ) -> Option<(LocationIdx, Role)> {
        if let Some(&known) = self.interpreted.get(&(frame, caller)) {
            return Some(known);
        }
        let key = function_key(self.process, &frame);
        let mut role = Role::Function;
        let mut execution = None;
        let lines = match self.names.interpreted.get(&key) {
            Some(function) => {
                role = function.role(frame.detail.position());
                execution = function.execution(frame.detail.position());
                let frames = function.frames(frame.detail.position());
                let calling = caller.and_then(|caller| {
                    let key = function_key(self.process, &caller);
                    let function = self.names.interpreted.get(&key)?;
                    Some((function, caller.detail.position()))
                });
                let name = calling
                    .as_ref()
                    .and_then(|(function, position)| function.called(*position));
                let lines = frames.into_iter().map(|frame| {
                    let name = name.map_or_else(|| frame.name.clone(), Into::into);
                    self.source_line(SourceFrame { name, ..frame })
                });
                let lines: Vec<Line> = lines.collect();
                if lines.is_empty() {
                    return None;
                }
                lines
            }
            None => {
                let runtime = Runtime::from_number(frame.runtime).map_or("", Runtime::name);
                let why = match (frame.function, frame.detail.position()) {
                    // Only the native frame identifies the code.
                    (0, _) if frame.code_address != 0 => return None,
                    (0, unreadable::NO_THREAD) => "unknown thread",
                    (0, _) => "unreadable",
                    _ => "no name",
                };
                vec![self.named_line(&format!("[{runtime}: {why}]"))]
            }
        };
        let kind = Runtime::from_number(frame.runtime).map_or("", Runtime::frame_type);
        let attributes = self.frame_attributes(kind, execution);
        let row = self.rows.location(LocationRef {
            location: Location::default(),
            lines: &lines,
            attributes: &attributes,
        });
        self.interpreted.insert((frame, caller), (row, role));
        Some((row, role))
    }

    /// A method of .NET in generated code.
    fn compiled_method(&mut self, frame: Frame) -> Option<(LocationIdx, Role)> {
        if !self.is_dotnet || frame.file() != file_number::ANONYMOUS {
            return None;
        }
        let function = self
            .names
            .interpreted
            .get(&dotnet::method_key(self.process, frame))?;
        let lines = function.frames(0).into_iter();
        let lines: Vec<Line> = lines.map(|frame| self.source_line(frame)).collect();
        let attributes = self.frame_attributes(Runtime::DotNet.frame_type(), function.execution(0));
        let row = self.rows.location(LocationRef {
            location: Location::default(),
            lines: &lines,
            attributes: &attributes,
        });
        Some((row, function.role(0)))
    }

    fn source_line(&mut self, frame: SourceFrame<'_>) -> Line {
        let name = self.rows.string(&frame.name);
        let filename = self.rows.string(&frame.file);
        let function = self.rows.function(Function {
            name,
            system_name: name,
            filename,
            start_line: frame.first_line.into(),
        });
        Line {
            function,
            line: frame.line.into(),
            ..Line::default()
        }
    }

    /// The root frame of stacks that are not whole.
    fn marker(&mut self, reason: &str) -> LocationIdx {
        let name = format!("[stack ends: {reason}]");
        let line = self.named_line(&name);
        self.rows.location(LocationRef {
            location: Location::default(),
            lines: &[line],
            attributes: &[],
        })
    }

    fn kernel_frame(&mut self, address: u64) -> LocationIdx {
        if let Some(&known) = self.kernel_frames.get(&address) {
            return known;
        }
        let found = self.names.kernel.find(address);
        let line = found.function.map(|name| self.named_line(name));
        let filename = self.rows.string(found.file);
        let build_id = found
            .build_id
            .map(|id| self.attribute("process.executable.build_id.gnu", id.into()));
        let mapping = self.rows.mapping(MappingRef {
            mapping: Mapping {
                filename,
                ..Mapping::default()
            },
            attributes: build_id.as_slice(),
        });
        let attributes = self.frame_attributes("kernel", None);
        let row = self.rows.location(LocationRef {
            location: Location {
                mapping,
                address: found.offset,
            },
            lines: line.as_slice(),
            attributes: &attributes,
        });
        self.kernel_frames.insert(address, row);
        row
    }

    fn user_frame(&mut self, frame: Frame) -> LocationIdx {
        if let Some(&known) = self.frames.get(&frame.0) {
            return known;
        }
        let executable = self.executable(frame.file());
        let is_go = executable
            .as_ref()
            .is_some_and(|executable| executable.is_go);
        let precompiled = executable
            .as_ref()
            .and_then(|executable| executable.dotnet.as_ref()?.function(frame.offset()));
        let (kind, execution) = match (&precompiled, is_go) {
            (Some(_), _) => (Runtime::DotNet.frame_type(), Some(Execution::Aot)),
            (None, true) => ("go", None),
            (None, false) => ("native", None),
        };
        let attributes = self.frame_attributes(kind, execution);
        let (mapping, address, line) = match executable {
            Some(executable) if let Some(method) = &precompiled => {
                let (mapping, address) = self.mapping_and_address(&executable, frame.offset());
                (mapping, address, Some(self.source_line(method.frame())))
            }
            Some(executable) => {
                let (mapping, address) = self.mapping_and_address(&executable, frame.offset());
                let name = executable.functions.find(address);
                (mapping, address, name.map(|name| self.named_line(name)))
            }
            None => {
                let generated = self.generated_code(frame);
                let line = generated.map(|code| self.generated_line(code));
                let (mapping, address) =
                    self.mapping_and_address_without_file(frame, line.is_some());
                (mapping, address, line)
            }
        };
        let row = self.rows.location(LocationRef {
            location: Location { mapping, address },
            lines: line.as_slice(),
            attributes: &attributes,
        });
        self.frames.insert(frame.0, row);
        row
    }

    /// The file's segment and the address in it, both as in the file before loading.
    fn mapping_and_address(&mut self, executable: &SampledFile, offset: u64) -> (MappingIdx, u64) {
        let filename = self.rows.string(&executable.path);
        let mut ids: Vec<AttributeIdx> = Vec::new();
        for (key, id) in [
            ("process.executable.build_id.gnu", &executable.gnu_build_id),
            ("process.executable.build_id.go", &executable.go_build_id),
            ("process.executable.build_id.htlhash", &executable.file_id),
        ] {
            if let Some(id) = id {
                ids.push(self.attribute(key, id.as_str().into()));
            }
        }
        let (mapping, address) = match executable.segment(offset) {
            Some(segment) => (
                Mapping {
                    memory_start: segment.address,
                    memory_limit: segment.address.wrapping_add(segment.memory_size),
                    file_offset: segment.file_offset,
                    filename,
                },
                offset
                    .wrapping_sub(segment.file_offset)
                    .wrapping_add(segment.address),
            ),
            None => (
                Mapping {
                    filename,
                    ..Mapping::default()
                },
                offset,
            ),
        };
        let mapping = self.rows.mapping(MappingRef {
            mapping,
            attributes: &ids,
        });
        (mapping, address)
    }

    /// The name that the process's runtime gave this code.
    fn generated_code(&self, frame: Frame) -> Option<GeneratedCode<'a>> {
        let names = self
            .jit
            .filter(|_| frame.file() == file_number::ANONYMOUS)?;
        names.find(frame.offset())
    }

    fn mapping_and_address_without_file(
        &mut self,
        frame: Frame,
        has_name: bool,
    ) -> (MappingIdx, u64) {
        let filename = match frame.file() {
            file_number::UNMAPPED => return (Idx::UNSET, frame.offset()),
            file_number::ANONYMOUS if has_name => self.rows.string("[jit]"),
            file_number::ANONYMOUS => self.rows.string("[anon]"),
            _ => self.rows.string("[unknown]"),
        };
        let mapping = self.rows.mapping(MappingRef {
            mapping: Mapping {
                filename,
                ..Mapping::default()
            },
            attributes: &[],
        });
        (mapping, frame.offset())
    }

    fn executable(&mut self, number: u32) -> Option<Arc<SampledFile>> {
        let known = self.files.entry(number);
        known
            .or_insert_with(|| self.names.executables.get(number))
            .clone()
    }

    fn named_line(&mut self, name: &str) -> Line {
        let name = self.rows.string(name);
        let function = self.rows.function(Function {
            name,
            system_name: name,
            ..Function::default()
        });
        Line {
            function,
            ..Line::default()
        }
    }

    fn generated_line(&mut self, code: GeneratedCode<'_>) -> Line {
        let name = self.rows.string(code.name);
        let filename = self.rows.string(code.file);
        let function = self.rows.function(Function {
            name,
            system_name: name,
            filename,
            ..Function::default()
        });
        Line {
            function,
            line: code.line.into(),
            ..Line::default()
        }
    }

    fn frame_attributes(&mut self, kind: &str, execution: Option<Execution>) -> Vec<AttributeIdx> {
        let mut attributes = vec![self.attribute("profile.frame.type", kind.into())];
        if let Some(execution) = execution {
            attributes.push(self.attribute("profcol.frame.code", execution.name().into()));
        }
        attributes
    }

    fn attribute(&mut self, key: &str, value: Value) -> AttributeIdx {
        let key = self.rows.string(key);
        self.rows.attribute(AttributeRef {
            key,
            value: &value,
            unit: StringIdx::UNSET,
        })
    }
}

fn list(texts: &[String]) -> Option<Value> {
    let values = texts.iter().map(|text| Value::from(text.as_str()));
    (!texts.is_empty()).then(|| Value::Array(values.collect()))
}

/// Why a stack is not whole.
fn broken_end(code: u32) -> Option<&'static str> {
    match EndReason::from_code(code) {
        Some(reason) if reason.is_whole() => None,
        Some(reason) => Some(reason.name()),
        None => Some("unknown"),
    }
}
