//! Runs the commands of the guides, in page order, each page in its own directory, except for those that need a cluster
//! (`deployments.rs`).

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use profcol_test_harness::TIMEOUT;
use profcol_test_harness::backend::wait_until;
use profcol_test_harness::support::{root, run, skip};

use crate::page::{Page, guides_and_readme};

/// A busy replacement for the third-party programs in the guides.
const SHORT: &str = "#!/bin/sh\ni=0; while [ $i -lt 300000 ]; do i=$((i+1)); done\n";
const ENDLESS: &str = "#!/bin/sh\nwhile :; do :; done\n";

#[test]
fn commands_work_as_described() {
    let doctor = run(&["doctor"]);
    if doctor.code != Some(0) {
        skip("profcol may not profile this host");
        return;
    }
    let of_page = |page: &Page| -> Vec<String> {
        let blocks = page.blocks("console");
        blocks.iter().flat_map(|it| commands_of(it)).collect()
    };
    let pages = guides_and_readme();
    let pages: Vec<_> = pages.iter().map(|page| (page, of_page(page))).collect();
    let count: usize = pages.iter().map(|(_, commands)| commands.len()).sum();
    assert!(count > 15, "{count}");
    // They mostly wait.
    thread::scope(|scope| {
        for (page, commands) in pages.iter().filter(|(_, commands)| !commands.is_empty()) {
            scope.spawn(|| Stage::new(page).run(commands));
        }
    });
}

fn commands_of(block: &str) -> Vec<String> {
    let lines = block.lines().filter(|line| !line.is_empty());
    let commands = lines.map(|line| {
        let command = line.strip_prefix("$ ").or(line.strip_prefix("# "));
        command
            .unwrap_or_else(|| panic!("not a command: {line}"))
            .replace("target/release/", "")
    });
    // Build commands have run before the tests. There is no cluster.
    let is_run = |it: &String| {
        !["cargo ", "kubectl "]
            .iter()
            .any(|other| it.starts_with(other))
    };
    commands.filter(is_run).collect()
}

/// The environment in which a page runs.
struct Stage<'a> {
    page: &'a Page,
    directory: tempfile::TempDir,
    address: String,
    busy: Option<Child>,
    agents: Vec<(String, Child)>,
}

impl<'a> Stage<'a> {
    fn new(page: &'a Page) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_profcol"), at("bin/profcol")).unwrap();
        symlink(root().join("config-examples"), at("config-examples")).unwrap();
        for (program, script) in [("bin/make", SHORT), ("bench", SHORT), ("postgres", ENDLESS)] {
            fs::write(at(program), script).unwrap();
            fs::set_permissions(at(program), fs::Permissions::from_mode(0o755)).unwrap();
        }
        // The results of earlier runs of the same commands.
        fs::create_dir(at("recordings")).unwrap();
        for profile in ["before.pb.gz", "after.pb.gz"] {
            fs::write(at(profile), "main;work 100\nmain;rest 50\n").unwrap();
        }
        for configuration in page
            .blocks("yaml")
            .iter()
            .filter(|it| it.contains("\nservice:"))
        {
            fs::write(at("profcol.yaml"), inside(configuration)).unwrap();
        }
        // Only for pages that need a busy process, since the pages share the CPUs.
        let is_watched = ["4711", "profcol record -d", "profcol top"];
        let is_watched = is_watched.iter().any(|it| page.text.contains(it));
        let busy = is_watched.then(|| Command::new(at("postgres")).spawn().unwrap());
        let free = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        Self {
            page,
            directory,
            address: free.to_string(),
            busy,
            agents: Vec::new(),
        }
    }

    /// The adapted command: shorter, with an existing process, and without network access.
    fn adapted(&self, command: &str) -> String {
        let pid = self.busy.as_ref().map(|it| it.id().to_string());
        let adapted = inside(command)
            .replace("-d 10s", "-d 1s")
            .replace("-d 30s", "-d 1s")
            .replace("4711", &pid.unwrap_or_default())
            .replace("127.0.0.1:7071", &self.address)
            .replace("'*/nginx.service'", "'*'");
        match command.starts_with("profcol upload") && !command.contains("--dry-run") {
            true => adapted + " --dry-run",
            false => adapted,
        }
    }

    fn run(mut self, commands: &[String]) {
        for command in commands {
            let adapted = self.adapted(command);
            match is_agent(command) {
                true => self.start(command, &adapted),
                false => self.complete(command, &adapted),
            }
        }
        for file in written(commands) {
            let written = fs::metadata(self.directory.path().join(&file));
            assert!(
                written.is_ok_and(|it| it.len() > 0),
                "{}: no {file}",
                self.page.name()
            );
        }
        self.end();
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        let path = std::env::var("PATH").unwrap_or_default();
        shell
            .args(["-c", command])
            .env(
                "PATH",
                format!("{}:{path}", self.directory.path().join("bin").display()),
            )
            .env("RECORDINGS", "recordings")
            .current_dir(&self.directory)
            .stdin(Stdio::null());
        shell
    }

    fn complete(&self, command: &str, adapted: &str) {
        let output = self.shell(adapted).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code();
        // Two runs of a short command may differ by this much.
        let may_differ = command.contains("--fail-over") && code == Some(1);
        assert!(
            code == Some(0) || may_differ,
            "{}: {command}: {stderr}",
            self.page.name()
        );
    }

    /// Starts a command that runs in the background of the next ones.
    fn start(&mut self, command: &str, adapted: &str) {
        let has_page = command == "profcol";
        let own_page = format!("--set exporters.live_view.endpoint={}", self.address);
        // There is no backend, so shutdown gives up early.
        let soon = "--set service.shutdown_timeout=3s";
        let adapted = format!(
            "exec env {adapted} {}",
            if has_page { &own_page } else { soon }
        );
        let log = fs::File::create(self.directory.path().join("log")).unwrap();
        let child = self
            .shell(&adapted)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.agents.push((command.to_owned(), child));
        wait_until(&format!("{command} to be ready"), || match has_page {
            // Its own configuration logs warnings only.
            true => self.shows_profiles(),
            false => self.log().contains("Everything is ready"),
        });
    }

    /// Whether the page has profiles for the commands that follow.
    fn shows_profiles(&self) -> bool {
        let ask = || -> io::Result<String> {
            let mut page = TcpStream::connect(&self.address)?;
            let request =
                "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            page.write_all(request.as_bytes())?;
            let mut answer = String::new();
            page.read_to_string(&mut answer)?;
            Ok(answer)
        };
        // Each type of profile has one.
        ask().is_ok_and(|answer| answer.contains("\"unit\":"))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Stops the background commands.
    fn end(&mut self) {
        for (command, mut agent) in std::mem::take(&mut self.agents) {
            let ended = agent.try_wait().unwrap();
            assert_eq!(ended, None, "{command} ended by itself: {}", self.log());
            let killed = Command::new("kill")
                .args(["-s", "INT", &agent.id().to_string()])
                .status();
            assert!(killed.unwrap().success());
            let until = Instant::now() + TIMEOUT;
            let status = loop {
                if let Some(status) = agent.try_wait().unwrap() {
                    break status;
                }
                if Instant::now() > until {
                    let _ = agent.kill();
                    panic!("{command} does not end: {}", self.log());
                }
                thread::sleep(Duration::from_millis(20));
            };
            // Undelivered data gives exit code 1.
            let has_backend = ["BACKEND=", "PARCA=", "profcol.yaml"];
            let has_backend = has_backend.iter().any(|it| command.contains(it));
            let expected: &[i32] = if has_backend { &[0, 1] } else { &[0] };
            assert!(
                status.code().is_some_and(|code| expected.contains(&code)),
                "{command}: {status}: {}",
                self.log()
            );
        }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        for child in self
            .agents
            .iter_mut()
            .map(|(_, child)| child)
            .chain(&mut self.busy)
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Replaces paths and hosts outside the environment.
fn inside(text: &str) -> String {
    text.replace("/var/lib/profcol/recordings", "recordings")
        .replace("/var/lib/profcol", "profiles")
        .replace("parca.example.com:443", "127.0.0.1:9")
        .replace("collector.example.com:4317", "127.0.0.1:9")
        .replace("collector.example:4317", "127.0.0.1:9")
}

/// Whether it is the service, not one of its commands.
fn is_agent(command: &str) -> bool {
    let words = command.split(' ').skip_while(|word| word.contains('='));
    let mut words = words.skip_while(|word| *word != "profcol").skip(1);
    command.contains("profcol") && words.next().is_none_or(|word| word == "--config")
}

/// The output files of the commands.
fn written(commands: &[String]) -> Vec<String> {
    let outputs = commands.iter().filter_map(|command| {
        let of_option = command.split_once(" -o ").map(|(_, rest)| rest);
        let of_convert = command
            .strip_prefix("profcol convert ")
            .and_then(|it| it.split_once(' '));
        of_option.or(of_convert.map(|(_, to)| to))
    });
    let first = |text: &str| {
        Path::new(text.split(' ').next().unwrap_or(text))
            .display()
            .to_string()
    };
    outputs.map(first).collect()
}
