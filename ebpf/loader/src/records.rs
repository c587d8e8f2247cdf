//! Parses the records of the ring buffer.

use profcol_ebpf_common::context::{Context, LabelHeader, padded};
use profcol_ebpf_common::frame::Frame;
use profcol_ebpf_common::interpreter::{Detail, luajit, perl, ruby, runtime};
use profcol_ebpf_common::record::{self, File, Process, Sample};

use crate::names::Names;

/// One record, borrowed from the ring buffer.
#[derive(Debug)]
pub enum Record<'a> {
    Sample {
        sample: Sample,
        /// Kernel return addresses, innermost first.
        kernel: StackFrames<'a>,
        /// The user stack, called by the kernel stack.
        user: StackFrames<'a>,
        /// The context of the thread and its labels; empty if there is none.
        context: &'a [u8],
    },
    Process {
        process: Process,
        cgroup: Names<'a>,
        /// NUL-terminated strings; empty if not requested.
        arguments: &'a [u8],
    },
    File {
        file: File,
        path: Names<'a>,
    },
}

/// Stack frames, eight bytes each; possibly unaligned.
#[derive(Clone, Copy, Debug, Default)]
pub struct StackFrames<'a>(&'a [u8]);

impl<'a> StackFrames<'a> {
    /// From the result of [`StackFrames::bytes`].
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn len(&self) -> usize {
        self.0.len() / 8
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The raw bytes, equal for equal stacks.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    pub fn addresses(&self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.0
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
    }

    /// The frames of a user stack.
    pub fn stack(&self) -> impl Iterator<Item = StackFrame> + 'a {
        let mut words = self.addresses();
        let mut native = Frame(0);
        std::iter::from_fn(move || {
            let frame = Frame(words.next()?);
            let Some(runtime) = frame.runtime() else {
                native = frame;
                return Some(StackFrame::Native(frame));
            };
            let mut detail = Detail(words.next().unwrap_or_default());
            let (file, code_address) = match runtime {
                runtime::V8_GENERATED => (detail.position(), native.offset()),
                runtime::RUBY => {
                    let function = ruby::Function::from_detail(detail);
                    detail = Detail::new(function.fingerprint, function.position);
                    (native.file(), function.method.into())
                }
                runtime::PERL if perl::Function::is_in(frame.offset()) => {
                    let function = perl::Function::from_detail(detail);
                    detail = Detail::new(function.fingerprint, 0);
                    (native.file(), function.address)
                }
                _ => (native.file(), 0),
            };
            Some(StackFrame::Interpreted(InterpretedFrame {
                runtime,
                file,
                function: frame.offset(),
                detail,
                code_address,
            }))
        })
    }
}

/// A frame of a user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackFrame {
    Native(Frame),
    Interpreted(InterpretedFrame),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterpretedFrame {
    pub runtime: u32,
    /// The file of its runtime.
    pub file: u32,
    /// 0 if it could not be read.
    pub function: u64,
    pub detail: Detail,
    /// An address in the code that was generated for it, or that [of its method](ruby::Function::method) or of
    /// [what names it](perl::Function::address); 0 if there is none.
    pub code_address: u64,
}

impl InterpretedFrame {
    /// Whether the next frame calls this one, by a name that only its code has.
    pub fn is_named_by_caller(&self) -> bool {
        self.runtime == runtime::LUAJIT && self.detail.position() & luajit::position::CALLED != 0
    }
}

/// None for records that this version's programs do not send.
pub fn parse(bytes: &[u8]) -> Option<Record<'_>> {
    match u32::from_le_bytes(*bytes.first_chunk()?) {
        record::kind::SAMPLE => {
            let (sample, frames) = take::<Sample>(bytes)?;
            let (kernel, user) = frames.split_at_checked(sample.kernel_frames as usize * 8)?;
            let (user, context) = user.split_at_checked(sample.user_words as usize * 8)?;
            let context = context.get(..sample.context_words as usize * 8)?;
            Some(Record::Sample {
                sample,
                kernel: StackFrames(kernel),
                user: StackFrames(user),
                context,
            })
        }
        record::kind::PROCESS => {
            let (process, names) = take::<Process>(bytes)?;
            let (cgroup, arguments) = names.split_at_checked(process.names_bytes.into())?;
            Some(Record::Process {
                process,
                cgroup: Names::new(cgroup),
                arguments: arguments.get(..process.arguments_bytes.into())?,
            })
        }
        record::kind::FILE => {
            let (file, names) = take::<File>(bytes)?;
            let path = Names::new(names.get(..file.names_bytes as usize)?);
            Some(Record::File { file, path })
        }
        _ => None,
    }
}

/// The context of a thread, and its labels.
pub fn context(bytes: &[u8]) -> Option<(Context, Labels<'_>)> {
    let (context, labels) = take(bytes)?;
    Some((context, Labels(labels)))
}

/// Keys and values, in the order of the process; any of them may be truncated or not be text.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a>(&'a [u8]);

impl<'a> Iterator for Labels<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, text) = take::<LabelHeader>(self.0)?;
        let (key, rest) = text.split_at_checked(header.key_bytes.into())?;
        let value = rest.get(..header.value_bytes.into())?;
        let size = padded(header.key_bytes.into(), header.value_bytes.into());
        self.0 = self
            .0
            .get(usize::try_from(size).ok()?..)
            .unwrap_or_default();
        Some((key, value))
    }
}

fn take<T: bytemuck::Pod>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let (head, rest) = bytes.split_at_checked(size_of::<T>())?;
    Some((bytemuck::try_pod_read_unaligned(head).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use profcol_ebpf_common::interpreter::runtime;

    #[test]
    fn reads_a_sample_and_its_frames() {
        let sample = Sample {
            kind: record::kind::SAMPLE,
            kernel_frames: 1,
            user_words: 4,
            ..Sample::default()
        };
        let mut bytes = bytemuck::bytes_of(&sample).to_vec();
        let detail = Detail::new(5, 6);
        let function = Frame::interpreted(runtime::PYTHON, 0x789);
        let native = [Frame::new(20, 0x123), Frame::new(21, 0x456)];
        for frame in [7u64, native[0].0, function.0, detail.0, native[1].0] {
            bytes.extend(frame.to_le_bytes());
        }
        let Some(Record::Sample { kernel, user, .. }) = parse(&bytes) else {
            panic!("is a sample");
        };
        assert_eq!(kernel.addresses().collect::<Vec<_>>(), [7]);
        assert_eq!(
            user.stack().collect::<Vec<_>>(),
            [
                StackFrame::Native(native[0]),
                StackFrame::Interpreted(InterpretedFrame {
                    runtime: runtime::PYTHON,
                    file: 20,
                    function: 0x789,
                    detail,
                    code_address: 0,
                }),
                StackFrame::Native(native[1]),
            ]
        );
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length]).is_none(), "{length} bytes");
        }
    }

    #[test]
    fn reads_a_context_and_its_labels() {
        let header = |key_bytes, value_bytes| LabelHeader {
            key_bytes,
            value_bytes,
            unused: 0,
        };
        let mut bytes = bytemuck::bytes_of(&Context {
            goroutine: 7,
            ..Context::default()
        })
        .to_vec();
        for (key, value) in [("tenant", "acme"), ("", "odd"), ("path", "")] {
            bytes.extend(bytemuck::bytes_of(&header(
                key.len() as u16,
                value.len() as u16,
            )));
            bytes.extend([key.as_bytes(), value.as_bytes()].concat());
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        let (found, labels) = context(&bytes).expect("is a context");
        assert_eq!(found.goroutine, 7);
        let expected: [(&[u8], &[u8]); 3] = [(b"tenant", b"acme"), (b"", b"odd"), (b"path", b"")];
        assert_eq!(labels.collect::<Vec<_>>(), expected);
        for length in 0..bytes.len() {
            let labels = context(&bytes[..length]).map_or(0, |(_, labels)| labels.count());
            assert!(labels < 4, "{length} bytes");
        }
        let mut forged = bytemuck::bytes_of(&Context::default()).to_vec();
        forged.extend(bytemuck::bytes_of(&header(u16::MAX, 9)));
        assert_eq!(context(&forged).map(|(_, labels)| labels.count()), Some(0));
    }

    #[test]
    fn reads_a_file_and_its_path() {
        let file = File {
            kind: record::kind::FILE,
            names_bytes: 10,
            ..File::default()
        };
        let mut bytes = bytemuck::bytes_of(&file).to_vec();
        bytes.extend(b"true\0bin\0\0");
        let Some(Record::File { path, .. }) = parse(&bytes) else {
            panic!("is a file");
        };
        assert_eq!(path.path().to_str(), Some("/bin/true"));
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length]).is_none(), "{length} bytes");
        }
    }
}
