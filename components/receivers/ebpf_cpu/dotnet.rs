//! Processes that run .NET. Its compiled code appears as generated code between native frames of the runtime.

use std::collections::HashSet;

use profcol_ebpf_interpreters::SampledFunction;
use profcol_ebpf_interpreters::names::FunctionKey;
use profcol_ebpf_loader::{
    Frame, ProcessKey, SampledFiles, StackFrame, file_number, interpreter_runtime,
};

/// Beyond this many, the processes are found again by their next samples.
const MAX_PROCESSES: usize = 8192;

#[derive(Default)]
pub struct DotNetProcesses(HashSet<ProcessKey>);

impl DotNetProcesses {
    pub fn contains(&self, process: &ProcessKey) -> bool {
        self.0.contains(process)
    }

    /// Whether the process runs .NET. Every thread that runs compiled code was started by the runtime.
    pub fn observe(
        &mut self,
        process: ProcessKey,
        mut stack: impl Iterator<Item = StackFrame>,
        files: &SampledFiles,
    ) -> bool {
        if self.contains(&process) {
            return true;
        }
        let is_dotnet = stack.any(|frame| match frame {
            StackFrame::Native(frame) if frame.has_file() => files.is_dotnet_runtime(frame.file()),
            StackFrame::Native(_) | StackFrame::Interpreted(_) => false,
        });
        if is_dotnet {
            if self.0.len() >= MAX_PROCESSES {
                self.0.clear();
            }
            self.0.insert(process);
        }
        is_dotnet
    }
}

/// The method with code at the address of a frame without a file.
pub fn method_key(process: ProcessKey, frame: Frame) -> FunctionKey<ProcessKey> {
    FunctionKey {
        process,
        file: file_number::ANONYMOUS,
        function: SampledFunction {
            runtime: interpreter_runtime::DOTNET,
            address: frame.offset(),
            generation: 0,
            code_address: 0,
        },
    }
}
