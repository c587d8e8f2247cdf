//! The agent's side with readers in threads: honest, hostile, broken ones.

mod debuginfo;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use profcol_debuginfo::CommonLink;
use profcol_elf::Source;
use profcol_symbols::OnHost;
use prost::Message;

use super::*;
use crate::channel::{Channel, MAX_MESSAGE, Received, SendMode};
use crate::messages::{
    CompanionKind, Empty, Ready, Request, RequestKind, Response, ResponseKind, Shrunk, WireAnswer,
    WireCompanionRequest, WireFrame, WireOpened, WireResolved,
};
use crate::testkit::{Serve, in_threads, one_after_the_other};

const TURN: Duration = Duration::from_secs(60);
const HONEST: Serve = |socket| serve(socket, String::new());

/// A function of this program.
#[inline(never)]
fn landmark() -> u32 {
    std::process::id()
}

/// The addresses of some functions of this program.
fn addresses() -> Vec<FileAddress> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    [
        landmark as fn() -> u32 as usize as u64,
        addresses as *const () as u64,
    ]
    .map(|at| {
        let offset = maps.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let offset = number(words.nth(1)?);
            let is_in = (number(start)..number(end)).contains(&at);
            is_in.then(|| at - number(start) + offset)
        });
        FileAddress::FileOffset(offset.unwrap() + 1)
    })
    .into()
}

fn this_program() -> OpenExecutable {
    with_companions(Rc::new(OneFile(None)))
}

fn with_companions(companions: Rc<dyn CompanionFiles>) -> OpenExecutable {
    OpenExecutable {
        file: Arc::new(File::open("/proc/self/exe").unwrap()),
        companions,
        max_unpacked: 1 << 30,
    }
}

/// A companion file of every kind, or none.
struct OneFile(Option<File>);

impl CompanionFiles for OneFile {
    fn separate(&self, _: &dyn Source) -> Option<File> {
        self.0.as_ref()?.try_clone().ok()
    }

    fn common(&self, _: &CommonLink) -> Option<File> {
        self.0.as_ref()?.try_clone().ok()
    }

    fn package(&self) -> Option<File> {
        self.0.as_ref()?.try_clone().ok()
    }

    fn split(&self, _: &Path, _: &Path) -> Option<File> {
        self.0.as_ref()?.try_clone().ok()
    }
}

/// A reader, and the failures that it reported.
fn reader(readers: &Readers) -> (Reader, Arc<Mutex<Vec<&'static str>>>) {
    let reports: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let noted = Arc::clone(&reports);
    let limits = Limits {
        max_idle: Duration::from_millis(100),
        ..Limits::new(64 << 20, false)
    };
    let report = move |failure: &ReaderFailure| noted.lock().unwrap().push(failure.reason());
    let reader = Reader::new(readers, limits, Rc::new(|| true), report);
    (reader, reports)
}

fn names(reader: &mut Reader, key: u64) -> Vec<String> {
    let found = reader
        .find(key, &addresses(), Some(Style::Short), TURN)
        .unwrap();
    let names = found.answers.into_iter().map(|answer| {
        let frames = answer.unwrap();
        assert!(frames.iter().all(|frame| frame.line > 0), "{frames:?}");
        frames.last().unwrap().name.to_string()
    });
    names.collect()
}

const NAMES: [&str; 2] = [
    "profcol_reader::tests::landmark",
    "profcol_reader::tests::addresses",
];

#[test]
fn another_process_finds_the_same_as_this_one() {
    let mut found = Vec::new();
    for readers in [Readers::default(), in_threads()] {
        let (mut reader, reports) = reader(&readers);
        assert_eq!(reader.uses_process(), readers.is_available());
        let opened = reader.open(7, this_program()).unwrap();
        assert!(opened.weight > 0 && opened.damage.is_none());
        assert_eq!(names(&mut reader, 7), NAMES);
        let nowhere = [FileAddress::Virtual(1), FileAddress::FileOffset(u64::MAX)];
        let unresolved = reader.find(7, &nowhere, None, TURN).unwrap().answers;
        assert_eq!(unresolved, [const { Err(Unresolved::NotFound) }; 2]);
        let mangled = reader.find(7, &addresses(), None, TURN).unwrap();
        assert!(reader.shrink(7, 0).unwrap() <= opened.weight);
        // At least one at a time, whatever it costs.
        let first = reader.find(7, &addresses(), None, Duration::ZERO).unwrap();
        assert_eq!(first.answers.len(), 1);
        assert_eq!(mangled.answers[0], first.answers[0]);
        reader.forget(7);
        assert_eq!(
            reader.find(7, &addresses(), None, TURN),
            Err(ReadError::NoNames)
        );
        let no_program = OpenExecutable {
            file: Arc::new(File::open("/proc/self/maps").unwrap()),
            ..this_program()
        };
        let refused = reader.open(8, no_program).map(|_| ()).unwrap_err();
        assert!(matches!(refused, ReadError::Refused(_)), "{refused:?}");
        assert!(reports.lock().unwrap().is_empty());
        found.push(mangled.answers);
    }
    assert_eq!(found[0], found[1]);
}

/// Serves requests with `answer`, until it has none.
fn answering(
    socket: OwnedFd,
    answer: impl Fn(RequestKind) -> Option<ResponseKind>,
) -> io::Result<()> {
    let mut channel = Channel::new(socket);
    let respond = |channel: &Channel, kind: ResponseKind| {
        let content = Response::from(kind).encode_to_vec();
        channel.send(&content, &[], SendMode::Blocking)
    };
    respond(&channel, ResponseKind::Ready(Ready::default()))?;
    loop {
        match channel.receive()? {
            Received::Message(message) => {
                let request = Request::decode(&*message.content)?.kind.unwrap();
                let Some(answer) = answer(request) else {
                    return Ok(());
                };
                respond(&channel, answer)?;
            }
            Received::WouldBlock => channel.wait(None)?,
            Received::Closed => return Ok(()),
        }
    }
}

fn asks_for(companion: CompanionKind) -> Option<ResponseKind> {
    let kind = Some(companion);
    Some(ResponseKind::Companion(WireCompanionRequest { kind }))
}

/// This program without symbols.
fn stripped(directory: &Path) -> PathBuf {
    let path = directory.join("stripped");
    let strip = std::process::Command::new("strip")
        .arg("-o")
        .args([&path, &std::env::current_exe().unwrap()])
        .status();
    assert!(strip.unwrap().success());
    path
}

/// Opens everything, and answers requests with this.
fn hostile(request: RequestKind, answer: WireResolved) -> Option<ResponseKind> {
    Some(match request {
        RequestKind::Open(_) => ResponseKind::Opened(WireOpened {
            weight: u64::MAX,
            damage: Some("x".repeat(MAX_MESSAGE / 2)),
        }),
        _ => ResponseKind::Resolved(answer),
    })
}

#[test]
fn a_hostile_reader_is_replaced() {
    let hostile_ones: Vec<Serve> = vec![
        // A text that it did not send.
        |socket| {
            answering(socket, |request| {
                let frames = vec![WireFrame::default()];
                let is_too_much_work = false;
                let answer = WireAnswer {
                    frames,
                    is_too_much_work,
                };
                let addresses = vec![answer];
                hostile(
                    request,
                    WireResolved {
                        addresses,
                        ..WireResolved::default()
                    },
                )
            })
        },
        // No answer.
        |socket| answering(socket, |request| hostile(request, WireResolved::default())),
        // An answer to another question.
        |socket| answering(socket, |_| Some(ResponseKind::Shrunk(Shrunk { weight: 1 }))),
        // Too many requests for companion files.
        |socket| answering(socket, |_| asks_for(CompanionKind::Package(Empty {}))),
        |socket| {
            answering(socket, |_| {
                Some(ResponseKind::Companion(WireCompanionRequest::default()))
            })
        },
        // Nonsense.
        |socket| {
            let channel = Channel::new(socket);
            let content = Response::from(ResponseKind::Ready(Ready::default())).encode_to_vec();
            channel.send(&content, &[], SendMode::Blocking)?;
            channel.send(b"\xff\xff", &[], SendMode::Blocking)?;
            // One that ends with a request unread has ended, and nothing else.
            answering(channel.into_socket(), |_| None)
        },
    ];
    for hostile in hostile_ones {
        let (mut reader, reports) = reader(&one_after_the_other(vec![hostile, HONEST]));
        let failed = match reader.open(1, this_program()) {
            Ok(opened) => {
                assert!(opened.weight <= 128 << 20);
                assert!(opened.damage.is_none_or(|damage| damage.len() < 2000));
                reader.find(1, &addresses(), None, TURN).map(|_| ())
            }
            Err(failed) => Err(failed),
        };
        let failed = failed.unwrap_err();
        assert!(
            matches!(failed, ReadError::Reader(ReaderFailure::Invalid(_))),
            "{failed:?}"
        );
        assert_eq!(*reports.lock().unwrap(), ["invalid_answer"]);
        reads_on(&mut reader);
    }
}

/// Another reader takes over.
fn reads_on(reader: &mut Reader) {
    reader.open(1, this_program()).unwrap();
    assert_eq!(names(reader, 1), NAMES);
}

#[test]
fn all_executables_are_open_again_after_a_reader_ended() {
    // It opens, and ends with the first question.
    let weak: Serve = |socket| {
        answering(socket, |request| match request {
            RequestKind::Open(_) => Some(ResponseKind::Opened(WireOpened::default())),
            _ => None,
        })
    };
    let (mut reader, reports) = reader(&one_after_the_other(vec![weak, HONEST]));
    for key in [1, 2] {
        reader.open(key, this_program()).unwrap();
    }
    let failed = reader.find(1, &addresses(), None, TURN).unwrap_err();
    let ended = ReaderFailure::Ended(Some(Exit::Code(0)));
    assert_eq!(failed, ReadError::Reader(ended));
    assert_eq!(*reports.lock().unwrap(), ["exited"]);
    for key in [2, 1] {
        assert_eq!(names(&mut reader, key), NAMES);
    }
}

#[test]
fn a_reader_that_ended_while_idle_costs_nothing() {
    static HAS_ENDED: AtomicBool = AtomicBool::new(false);
    // It ends after its first answer.
    let brief: Serve = |socket| {
        let mut channel = Channel::new(socket);
        for answer in [
            ResponseKind::Ready(Ready::default()),
            ResponseKind::Opened(WireOpened::default()),
        ] {
            channel.send(
                &Response::from(answer).encode_to_vec(),
                &[],
                SendMode::Blocking,
            )?;
        }
        channel.wait(None)?;
        let received = channel.receive().map(drop);
        drop(channel);
        HAS_ENDED.store(true, Ordering::SeqCst);
        received
    };
    let (mut reader, reports) = reader(&one_after_the_other(vec![brief, HONEST]));
    // The answer came before the question, so it may be taken for one to no question.
    while reader.open(1, this_program()).is_err() {}
    while !HAS_ENDED.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    assert_eq!(names(&mut reader, 1), NAMES);
    assert_eq!(reports.lock().unwrap().len(), 1);
}

#[test]
fn a_reader_that_hangs_is_given_up() {
    let hanging: Serve = |socket| {
        let mut channel = Channel::new(socket);
        let content = Response::from(ResponseKind::Ready(Ready::default())).encode_to_vec();
        channel.send(&content, &[], SendMode::Blocking)?;
        while !matches!(channel.receive()?, Received::Closed) {
            channel.wait(None)?;
        }
        Ok(())
    };
    let (mut reader, reports) = reader(&one_after_the_other(vec![hanging, HONEST]));
    let failed = reader.open(1, this_program()).map(|_| ()).unwrap_err();
    assert!(
        matches!(failed, ReadError::Reader(ReaderFailure::Deadline(_))),
        "{failed:?}"
    );
    assert_eq!(*reports.lock().unwrap(), ["deadline"]);
    reads_on(&mut reader);
}

#[test]
fn without_a_process_this_one_reads() {
    let none: Serve = |_| Ok(());
    let (mut reader, _) = reader(&one_after_the_other(vec![none]));
    reader.open(1, this_program()).unwrap();
    assert!(!reader.uses_process());
    assert_eq!(names(&mut reader, 1), NAMES);
}

#[test]
fn after_the_stop_nothing_is_read() {
    for readers in [Readers::default(), in_threads()] {
        let limits = Limits::new(64 << 20, false);
        let mut reader = Reader::new(&readers, limits, Rc::new(|| false), |_| {});
        let stopped = reader.open(1, this_program()).map(|_| ());
        assert_eq!(stopped, Err(ReadError::Stopped));
    }
}

#[test]
fn reads_fail_after_the_stop() {
    let keep_going = Rc::new(std::cell::Cell::new(true));
    let asked = Rc::clone(&keep_going);
    let file = UntilStop {
        source: b"code".to_vec(),
        keep_going: Rc::new(move || asked.get()),
    };
    let mut read = [0; 2];
    file.read_at(&mut read, 1).unwrap();
    assert_eq!(&read, b"od");
    keep_going.set(false);
    assert!(file.read_at(&mut read, 1).is_err());
}

#[test]
fn a_reader_gets_companion_files_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    let stripped = stripped(directory.path());
    let executable = OpenExecutable {
        file: Arc::new(File::open(&stripped).unwrap()),
        ..with_companions(Rc::new(OneFile(File::open(&own).ok())))
    };
    let (mut reader, _) = reader(&in_threads());
    reader.open(1, executable).unwrap();
    assert_eq!(names(&mut reader, 1), NAMES);

    let secret = directory.path().join("secret");
    std::fs::write(&secret, "password").unwrap();
    let on_host = OnHost::new(vec!["/".into()], own, Vec::new(), || true);
    let secret_package = directory.path().join("secret.dwp");
    std::fs::write(secret_package, "password").unwrap();
    assert!(
        on_host
            .split(directory.path(), Path::new("secret"))
            .is_none()
    );
    assert!(on_host.split(Path::new("/"), &secret).is_none());
    let on_host = OnHost::new(vec!["/".into()], secret, Vec::new(), || true);
    assert!(CompanionFiles::package(&on_host).is_none());
}
