//! A function that was read from a process, of any runtime: its frames, and what they are in a stack.

use std::time::Duration;

use crate::dotnet::DotNetFunction;
use crate::hotspot::{self, JavaFrame};
use crate::source_frame::{Execution, SourceFrame};
use crate::{beam, luajit, perl, php, python, ruby, v8};

/// Delay before a method of .NET is read again: assemblies may be unloaded, and their addresses used anew.
const RECHECK_DELAY: Duration = Duration::from_secs(10);
/// The delay for methods that are made at run time, and collected like other objects.
const DYNAMIC_RECHECK_DELAY: Duration = Duration::from_millis(100);
/// The delay for functions of Python that run in a new thread, whose instructions are not known yet.
const NEW_COPY_DELAY: Duration = Duration::from_millis(10);

/// The data of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterpretedFunction(pub(crate) Function);

/// The role of a frame in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Function,
    /// Runtime code between functions.
    Machinery,
    /// The frames after it belong to the carrier thread.
    FirstOfThread,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Python(python::Code),
    V8(v8::FrameFunctions),
    Java(hotspot::Code),
    Ruby(ruby::Sequence),
    Php(php::PhpFunction),
    Perl(perl::Statement),
    LuaJit(luajit::Prototype),
    Beam(beam::BeamFunction),
    DotNet(DotNetFunction),
}

impl InterpretedFunction {
    /// The frames at a position, innermost first: several if functions are inlined, none if only the native frame
    /// is meaningful.
    pub fn frames(&self, position: u32) -> Vec<SourceFrame<'_>> {
        match &self.0 {
            Function::Python(code) => vec![SourceFrame {
                name: (&*code.name).into(),
                file: (&*code.file).into(),
                first_line: code.first_line,
                line: code.line(position),
            }],
            Function::V8(frames) => frames.at(position),
            Function::Php(function) => vec![SourceFrame {
                name: (&*function.name).into(),
                file: (&*function.file).into(),
                first_line: function.first_line,
                line: function.line(position),
            }],
            Function::Perl(statement) => vec![SourceFrame {
                name: (&*statement.name).into(),
                file: (&*statement.file).into(),
                first_line: 0,
                line: match statement.line {
                    0 => position,
                    line => line,
                },
            }],
            Function::LuaJit(prototype) => vec![SourceFrame {
                name: (&*prototype.name).into(),
                file: (&*prototype.file).into(),
                first_line: prototype.first_line,
                line: prototype.line(position),
            }],
            Function::Beam(function) => vec![SourceFrame {
                name: (&*function.name).into(),
                file: (&*function.file).into(),
                first_line: function.first_line,
                line: function.line,
            }],
            Function::DotNet(function) => vec![function.frame()],
            Function::Ruby(sequence) => vec![SourceFrame {
                name: (&*sequence.name).into(),
                file: (&*sequence.file).into(),
                first_line: sequence.first_line,
                line: sequence.line(position),
            }],
            Function::Java(code) => {
                let frames = code.frames(position).into_iter();
                let frames = frames.map(|frame| SourceFrame {
                    name: frame.name.into(),
                    file: frame.file.into(),
                    first_line: 0,
                    line: frame.line,
                });
                frames.collect()
            }
        }
    }

    /// The name by which the instruction at a position calls another function: LuaJIT's functions have no names of
    /// their own.
    pub fn called(&self, position: u32) -> Option<&str> {
        match &self.0 {
            Function::LuaJit(prototype) => prototype.called(position),
            _ => None,
        }
    }

    pub fn role(&self, position: u32) -> Role {
        match &self.0 {
            Function::Java(hotspot::Code::Stubs(_)) => Role::Machinery,
            Function::DotNet(function) if function.is_stub => Role::Machinery,
            Function::Beam(function) if function.is_shared_code => Role::Machinery,
            Function::Java(code) => {
                let frames = code.frames(position);
                let begins = frames.iter().any(JavaFrame::begins_virtual_thread);
                if begins {
                    Role::FirstOfThread
                } else {
                    Role::Function
                }
            }
            Function::Python(_)
            | Function::V8(_)
            | Function::Ruby(_)
            | Function::Php(_)
            | Function::Perl(_)
            | Function::LuaJit(_)
            | Function::Beam(_)
            | Function::DotNet(_) => Role::Function,
        }
    }

    /// How a frame runs at a position. None if that is not known: CPython, PHP, Ruby and LuaJIT have the same frames for
    /// functions that they interpret and that they compiled.
    pub fn execution(&self, position: u32) -> Option<Execution> {
        match &self.0 {
            Function::V8(frames) => frames.execution(position),
            Function::Java(hotspot::Code::Interpreted(_)) | Function::Perl(_) => {
                Some(Execution::Interpreted)
            }
            Function::Java(hotspot::Code::Compiled(_)) | Function::Beam(_) => Some(Execution::Jit),
            Function::DotNet(function) if function.is_stub => None,
            Function::DotNet(function) if function.is_precompiled => Some(Execution::Aot),
            Function::DotNet(_) => Some(Execution::Jit),
            Function::Java(hotspot::Code::Stubs(_))
            | Function::Python(_)
            | Function::Ruby(_)
            | Function::Php(_)
            | Function::LuaJit(_) => None,
        }
    }

    /// How long a name is used before it is read again, if the function is sampled at this position.
    pub(crate) fn recheck_delay(&self, position: u32) -> Duration {
        match &self.0 {
            Function::Python(code) if code.is_in_new_copy(position) => NEW_COPY_DELAY,
            Function::DotNet(function) if function.is_dynamic => DYNAMIC_RECHECK_DELAY,
            Function::DotNet(_) => RECHECK_DELAY,
            _ => Duration::MAX,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match &self.0 {
            Function::Python(code) => code.bytes(),
            Function::V8(frames) => frames.bytes(),
            Function::Java(code) => code.bytes(),
            Function::Ruby(sequence) => sequence.bytes(),
            Function::Php(function) => function.bytes(),
            Function::Perl(statement) => statement.bytes(),
            Function::LuaJit(prototype) => prototype.bytes(),
            Function::Beam(function) => function.bytes(),
            Function::DotNet(function) => function.bytes(),
        }
    }
}
