//! h2spec on each HTTP/2 listener.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;

use profcol_test_harness::peers::{free_address, h2spec, profcol};

/// Failing cases, and why that is acceptable.
struct Exceptions {
    cases: &'static [&'static str],
    on: &'static [Listener],
    /// Otherwise the result depends on timing.
    always: bool,
    why: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Listener {
    OtlpGrpc,
    ParcaGrpc,
    OtlpHttp,
    OtlpHttps,
}

use Listener::{OtlpGrpc, OtlpHttp, OtlpHttps, ParcaGrpc};

const EXCEPTIONS: &[Exceptions] = &[
    Exceptions {
        cases: &["generic/2/2", "generic/2/3"],
        on: &[OtlpGrpc, ParcaGrpc],
        always: true,
        why: "h2spec waits for DATA; a request that is not gRPC is refused with headers only",
    },
    Exceptions {
        cases: &[
            "http2/6.5.3/1",
            "http2/6.9.1/1",
            "http2/6.9.2/1",
            "http2/6.9.2/2",
        ],
        on: &[OtlpGrpc, ParcaGrpc],
        always: true,
        why: "h2spec skips flow control cases if responses have no body",
    },
    Exceptions {
        cases: &["http2/4.2/3"],
        on: &[OtlpGrpc, ParcaGrpc],
        always: true,
        why: "its HEADERS frame exceeds the minimum frame size limit, 16 KiB, but not the larger one that we announce",
    },
    Exceptions {
        cases: &["http2/5.1.2/1"],
        on: &[OtlpGrpc, ParcaGrpc],
        always: false,
        why: "it keeps streams open with a zero window, which a response without body does not need",
    },
    Exceptions {
        cases: &[
            "http2/5.1/8",
            "http2/5.1/9",
            "http2/6.9/2",
            "http2/6.9.1/3",
            "http2/8.1/1",
            "http2/8.1.2.1/3",
            "http2/8.1.2.6/1",
            "http2/8.1.2.6/2",
        ],
        on: &[OtlpGrpc, ParcaGrpc, OtlpHttp, OtlpHttps],
        always: false,
        why: "the first HEADERS frame already refuses the request; hyper resets the stream, and h2 ignores later frames on it",
    },
    Exceptions {
        cases: &["http2/3.5/2"],
        on: &[OtlpHttp, OtlpHttps],
        always: true,
        why: "a connection without the HTTP/2 preface is treated as HTTP/1.1, and refused as such",
    },
];

/// The number of cases in h2spec.
const CASES: usize = 146;

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn listeners_conform_to_http2() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(at("cert.pem"), pair.cert.pem()).unwrap();
    std::fs::write(at("key.pem"), pair.signing_key.serialize_pem()).unwrap();
    let [grpc, parca, http, https] = [(); 4].map(|()| free_address());
    let config = format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: '{grpc}'}}, http: {{endpoint: '{http}'}}}}}}
  otlp/tls: {{protocols: {{http: {{endpoint: '{https}', tls: {{cert_file: {}, key_file: {}}}}}}}}}
  parca: {{endpoint: '{parca}'}}
exporters: {{nop: }}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{profiles: {{receivers: [otlp, otlp/tls, parca], exporters: [nop]}}}}
",
        at("cert.pem"),
        at("key.pem"),
    );
    let mut profcol = profcol(&config);
    profcol.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    let call = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
    let write = "/parca.profilestore.v1alpha1.ProfileStoreService/Write";
    let path = "/v1development/profiles";
    let problems: Vec<String> = thread::scope(|scope| {
        let all = [
            (OtlpGrpc, grpc, call),
            (ParcaGrpc, parca, write),
            (OtlpHttp, http, path),
            (OtlpHttps, https, path),
        ];
        let all = all.map(|(listener, address, path)| {
            scope.spawn(move || problems(listener, address, path))
        });
        all.into_iter()
            .flat_map(|one| one.join().unwrap())
            .collect()
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let (status, output) = profcol.stop();
    assert!(status.success(), "{output}");
}

fn problems(listener: Listener, address: SocketAddr, path: &str) -> Vec<String> {
    // Cases with exceptions wait this long for a frame that does not arrive.
    let mut arguments = vec!["-timeout", "4s", "-path", path];
    if listener == OtlpHttps {
        arguments.push("-tls");
    }
    let output = h2spec(address, &arguments);
    let outcomes: BTreeMap<&str, &str> = output
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .collect();
    let passed = |case: &str| outcomes[case].starts_with("passed\t");
    let of_this = || EXCEPTIONS.iter().filter(|it| it.on.contains(&listener));
    let is_known = |case: &str| of_this().any(|it| it.cases.contains(&case));
    let mut problems = Vec::new();
    for (case, outcome) in &outcomes {
        if !passed(case) && !is_known(case) {
            problems.push(format!("{listener:?}: {case} {outcome}"));
        }
    }
    for exceptions in of_this().filter(|it| it.always) {
        for case in exceptions.cases.iter().filter(|case| passed(case)) {
            let why = exceptions.why;
            problems.push(format!(
                "{listener:?}: {case} passes, and it was output that {why}"
            ));
        }
    }
    if outcomes.len() != CASES {
        problems.push(format!("{listener:?}: {} cases", outcomes.len()));
    }
    problems
}
