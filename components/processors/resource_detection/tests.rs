//! Local servers in place of EC2, GCP, Azure and Docker, also silent and broken ones, and handmade files of a host.

use profcol_component::testkit::{context, load, wait_until};
use profcol_profile::KeyValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::shared::testkit::{Keep, batch_of, resource_after};
use profcol_metadata::otel_resource_attributes::parse;

/// Answers each request with the first row whose words it contains, then closes the connection.
async fn serve(rows: Vec<(&'static str, &'static str)>) -> Service {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && socket.read(&mut byte).await.unwrap_or(0) > 0 {
                request.push(byte[0]);
            }
            let request = String::from_utf8(request).unwrap().to_ascii_lowercase();
            let rest = request.split_once(' ').unwrap().1;
            let has = |wanted: &str| wanted.split(' ').all(|part| request.contains(part));
            let found = rows
                .iter()
                .find(|(wanted, _)| has(&wanted.to_ascii_lowercase()));
            let (status, answer) = match found {
                Some((_, "hang")) => {
                    tokio::time::sleep(Duration::from_secs(3600)).await;
                    continue;
                }
                Some((_, "refuse")) => ("401 Unauthorized", ""),
                Some((_, answer)) => ("200 OK", *answer),
                None => ("404 Not Found", "nothing here"),
            };
            let is_google = rest.starts_with("/computemetadata/") && !answer.contains("<html>");
            let flavor = if is_google {
                "Metadata-Flavor: Google\r\n"
            } else {
                ""
            };
            let length = answer.len();
            let answer =
                format!("HTTP/1.1 {status}\r\n{flavor}Content-Length: {length}\r\n\r\n{answer}");
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    Service {
        endpoint: format!("http://{address}"),
        _serving: serving,
    }
}

/// Stops when dropped.
struct Service {
    endpoint: String,
    _serving: JoinSet<()>,
}

async fn processor(options: &str, endpoint: &str) -> ResourceDetectionProcessor {
    let endpoints = Endpoints {
        docker: endpoint.to_owned(),
        ec2: endpoint.to_owned(),
        gcp: endpoint.to_owned(),
        azure: endpoint.to_owned(),
    };
    let options = load(options).unwrap();
    let processor =
        ResourceDetectionProcessor::new(&options, endpoints, &context("resource_detection"));
    processor.start().await.unwrap();
    processor
}

fn pairs(attributes: &Attributes) -> Vec<(String, String)> {
    let text = |it: &KeyValue| {
        profcol_labels::text(&it.value)
            .unwrap_or_default()
            .into_owned()
    };
    attributes
        .iter()
        .map(|it| (it.key.to_string(), text(it)))
        .collect()
}

fn expect(found: &Attributes, expected: &[(&str, &str)]) {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let expected: Vec<_> = expected.iter().map(owned).collect();
    assert_eq!(pairs(found), expected);
}

const DOCUMENT: &str = r#"{"accountId":"123456789012","architecture":"x86_64","availabilityZone":"us-west-2b",
"billingProducts":null,"imageId":"ami-5fb8c835","instanceId":"i-1234567890abcdef0","instanceType":"t2.micro",
"privateIp":"10.158.112.84","region":"us-west-2","version":"2017-09-30"}"#;

const EC2: &[(&str, &str)] = &[
    ("cloud.provider", "aws"),
    ("cloud.platform", "aws_ec2"),
    ("cloud.account.id", "123456789012"),
    ("cloud.region", "us-west-2"),
    ("cloud.availability_zone", "us-west-2b"),
    ("host.id", "i-1234567890abcdef0"),
    ("host.image.id", "ami-5fb8c835"),
    ("host.name", "ip-10-0-0-1.ec2.internal"),
    ("host.type", "t2.micro"),
];

#[tokio::test]
async fn ec2_uses_a_token() {
    let endpoint = serve(vec![
        (
            "put /latest/api/token x-aws-ec2-metadata-token-ttl-seconds:",
            "SECRET",
        ),
        (
            "get /latest/dynamic/instance-identity/document token:\u{20}secret",
            DOCUMENT,
        ),
        (
            "get /latest/meta-data/hostname secret",
            "ip-10-0-0-1.ec2.internal",
        ),
        ("get /latest/meta-data/tags/instance/team secret", "shop"),
        (
            "get /latest/meta-data/tags/instance secret",
            "team\nbilling",
        ),
    ])
    .await;
    let found = processor("detectors: [ec2]", &endpoint.endpoint)
        .await
        .merged();
    expect(&found, EC2);
    let options = "{detectors: [ec2], ec2: {tags: ['^te'], tags_from_imds: true}}";
    let found = processor(options, &endpoint.endpoint).await.merged();
    expect(&found, &[EC2, &[("ec2.tag.team", "shop")]].concat());
}

#[tokio::test]
async fn ec2_supports_imdsv1() {
    let endpoint = serve(vec![
        ("get /latest/dynamic/instance-identity/document", DOCUMENT),
        ("get /latest/meta-data/hostname", "ip-10-0-0-1.ec2.internal"),
    ])
    .await;
    let found = processor("detectors: [ec2]", &endpoint.endpoint)
        .await
        .merged();
    expect(&found, EC2);
}

#[tokio::test]
async fn gcp_sends_its_header() {
    let rows = vec![
        ("metadata-flavor:\u{20}google /project/project-id", "shop-1"),
        ("metadata-flavor: /instance/id", "4520031799277581759"),
        ("metadata-flavor: /instance/name", "web-1"),
        (
            "metadata-flavor: /instance/hostname",
            "web-1.c.shop-1.internal",
        ),
        (
            "metadata-flavor: /instance/zone",
            "projects/7/zones/europe-west1-b",
        ),
        (
            "metadata-flavor: /instance/machine-type",
            "projects/7/machineTypes/n1-standard-1",
        ),
        (
            "metadata-flavor: /instance/attributes/created-by",
            "projects/7/zones/europe-west1-b/instanceGroupManagers/web",
        ),
    ];
    let machine = [
        ("cloud.provider", "gcp"),
        ("cloud.platform", "gcp_compute_engine"),
        ("cloud.account.id", "shop-1"),
        ("cloud.region", "europe-west1"),
        ("cloud.availability_zone", "europe-west1-b"),
        ("host.id", "4520031799277581759"),
        ("host.name", "web-1"),
        ("host.type", "n1-standard-1"),
        ("gcp.gce.instance_group_manager.name", "web"),
        ("gcp.gce.instance_group_manager.zone", "europe-west1-b"),
    ];
    let endpoint = serve(rows.clone()).await;
    expect(
        &processor("detectors: [gcp]", &endpoint.endpoint)
            .await
            .merged(),
        &machine,
    );
    let cluster = ("metadata-flavor: /instance/attributes/cluster-name", "prod");
    let endpoint = serve([vec![cluster], rows].concat()).await;
    let found = processor("detectors: [gcp]", &endpoint.endpoint)
        .await
        .merged();
    let found = pairs(&found);
    for expected in [
        ("cloud.platform", "gcp_kubernetes_engine"),
        ("k8s.cluster.name", "prod"),
    ] {
        assert!(
            found
                .iter()
                .any(|(key, value)| (&**key, &**value) == expected),
            "{found:?}"
        );
    }
}

#[tokio::test]
async fn azure_sends_its_header_and_applies_switches() {
    let endpoint = serve(vec![(
        "get /metadata/instance/compute?api-version= metadata:\u{20}true",
        r#"{"location":"westus","name":"vm-1","vmId":"02aab8a4","vmSize":"Standard_A1","subscriptionId":"8d10da13",
        "resourceGroupName":"shop","vmScaleSetName":"","zone":"2","tagsList":[{"name":"team","value":"web"},{"name":"x","value":"y"}]}"#,
    )])
    .await;
    let options = "{detectors: [azure], azure: {tags: [^team$], resource_attributes: {
        cloud.availability_zone: {enabled: true}, azure.vm.name: {enabled: false}, host.name: {enabled: true}}}}";
    let found = processor(options, &endpoint.endpoint).await.merged();
    expect(
        &found,
        &[
            ("cloud.provider", "azure"),
            ("cloud.platform", "azure_vm"),
            ("cloud.account.id", "8d10da13"),
            ("cloud.region", "westus"),
            ("cloud.availability_zone", "2"),
            ("host.id", "02aab8a4"),
            ("host.name", "vm-1"),
            ("azure.vm.size", "Standard_A1"),
            ("azure.resourcegroup.name", "shop"),
            ("azure.tag.team", "web"),
        ],
    );
}

#[tokio::test]
async fn docker_reports_its_host_and_own_container() {
    let endpoint = serve(vec![
        ("get /info", r#"{"Name":"web-1","OSType":"linux","NCPU":2}"#),
        (
            "get /containers/7f/json",
            r#"{"Name":"/shop","Image":"sha256:12","Config":{"Image":"registry:5000/shop:2"}}"#,
        ),
    ])
    .await;
    let host = [("host.name", "web-1"), ("os.type", "linux")];
    let found = processor("detectors: [docker]", &endpoint.endpoint).await;
    expect(&found.merged(), &host);
    let options = "{docker: {resource_attributes: {
        container.name: {enabled: true}, container.image.name: {enabled: true}, container.image.tags: {enabled: true}}}}";
    let options: ResourceDetectionConfig = load(options).unwrap();
    let switches = &options.docker.resource_attributes;
    let found = docker::detect(switches, &endpoint.endpoint, Some("7f")).await;
    let container = [
        ("container.name", "shop"),
        ("container.image.name", "registry:5000/shop"),
        ("container.image.tags", "2"),
    ];
    expect(&found.unwrap(), &[&host[..], &container].concat());
    let found = docker::detect(switches, &endpoint.endpoint, None).await;
    expect(&found.unwrap(), &host);
}

#[test]
fn finds_its_own_container_by_cgroup_or_mounts() {
    let id = "0123456789abcdef".repeat(4);
    let docker = "718 700 254:0 /var/lib/docker/containers/ID/hostname /etc/hostname rw,relatime - ext4 /dev/vda rw";
    let podman = "718 700 0:43 /containers/storage/overlay-containers/ID/userdata/hosts /etc/hosts rw - tmpfs tmpfs rw";
    let elsewhere =
        "718 700 254:0 /var/lib/docker/containers/ID /data rw,relatime - ext4 /dev/vda rw";
    for (cgroup, mounts, is_pod, expected) in [
        (
            "0::/system.slice/docker-ID.scope",
            "",
            false,
            Some(Some("docker")),
        ),
        ("0::/kubepods/besteffort/pod1/ID", docker, true, Some(None)),
        ("0::/", docker, false, Some(Some("docker"))),
        ("0::/", podman, false, Some(Some("podman"))),
        ("0::/", docker, true, None),
        ("0::/", elsewhere, false, None),
        ("0::/", "rubbish\n\n1 2 3", false, None),
        ("", "", false, None),
    ] {
        let (cgroup, mounts) = (cgroup.replace("ID", &id), mounts.replace("ID", &id));
        let found = own_container::OwnContainer::parse(&cgroup, &mounts, is_pod);
        let found = found.map(|own| {
            assert_eq!(own.id, id);
            own.runtime
        });
        assert_eq!(found, expected, "{cgroup} {mounts}");
    }
}

#[test]
fn reports_interfaces_that_are_up() {
    let directory = tempfile::tempdir().unwrap();
    let interface = |name: &str, files: &[(&str, &str)]| {
        let directory = directory.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        for (file, text) in files {
            std::fs::write(directory.join(file), format!("{text}\n")).unwrap();
        }
    };
    let up = ("flags", "0x1003");
    let mac = |mac| ("address", mac);
    interface(
        "lo",
        &[("flags", "0x9"), ("ifindex", "1"), mac("00:00:00:00:00:00")],
    );
    interface("wg0", &[up, ("ifindex", "7"), mac("")]);
    interface("eth0", &[up, ("ifindex", "2"), mac("02:fc:00:ab:00:05")]);
    interface(
        "eth1",
        &[
            ("flags", "0x1002"),
            ("ifindex", "3"),
            mac("02:fc:00:00:00:06"),
        ],
    );
    interface("bonding_masters", &[]);
    let own = [
        ("127.0.0.1", "lo"),
        ("10.0.0.9", "wg0"),
        ("192.0.2.2", "eth0"),
        ("192.0.2.3", "eth1"),
        ("fe80::1", "eth0"),
    ];
    let own = own.map(|(address, name)| (address.parse().unwrap(), name.to_owned()));
    let found = network::Network::read_in(directory.path(), own.to_vec());
    expect(
        &found.attributes(),
        &[
            ("host.ip", "192.0.2.2 fe80::1 10.0.0.9"),
            ("host.mac", "02-FC-00-AB-00-05"),
            ("host.interface", "eth0 wg0"),
        ],
    );
    let nothing = network::Network::read_in(&directory.path().join("absent"), own.to_vec());
    assert_eq!(nothing.attributes(), []);
}

#[test]
fn l2_cache_size_is_in_bytes() {
    let directory = tempfile::tempdir().unwrap();
    for (name, level, size) in [("index0", "1", "32K"), ("index2", "2", "1024K")] {
        let directory = directory.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("level"), level).unwrap();
        std::fs::write(directory.join("size"), size).unwrap();
    }
    assert_eq!(system::second_cache(directory.path()), Some(1 << 20));
    assert_eq!(system::second_cache(&directory.path().join("index0")), None);
}

#[tokio::test]
async fn missing_hanging_and_broken_services_fail_no_start() {
    let absent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let absent = format!("http://{}", absent.local_addr().unwrap());
    let long: &'static str = "x".repeat(100_000).leak();
    let services = [
        serve(vec![("", "hang")]).await,
        serve(vec![("", "refuse")]).await,
        serve(vec![("", "{rubbish")]).await,
        serve(vec![("", "{}")]).await,
        serve(vec![("", "\u{7}\n")]).await,
        serve(vec![("", long)]).await,
        serve(vec![]).await,
    ];
    let served = services.iter().map(|it| it.endpoint.as_str());
    for endpoint in served.chain([absent.as_str(), "http://127.0.0.1:1", "nonsense"]) {
        let options = "{detectors: [docker, ec2, azure, system], timeout: 300ms, system: {hostname_sources: [os]}}";
        let processor = processor(options, endpoint).await;
        let found = pairs(&processor.merged());
        assert_eq!(processor.failed.get(), 3, "{endpoint}: {found:?}");
        assert!(found.iter().any(|(key, _)| key == "host.name"), "{found:?}");
    }
    // A captive portal answers everything, but is not Google's server.
    let portal = serve(vec![("", "<html>log in")]).await;
    let processor = processor("detectors: [gcp]", &portal.endpoint).await;
    assert_eq!((processor.failed.get(), processor.merged().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn retries_failed_detectors_and_keeps_previous_results() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let options = "{detectors: [azure], refresh_interval: 10s}";
    let processor = Arc::new(processor(options, &format!("http://{address}")).await);
    assert!(processor.merged().is_empty());
    let stop = Stop::new();
    let next = Arc::new(Keep::default());
    let mut running = JoinSet::new();
    running.spawn(Arc::clone(&processor).run(next, stop.clone()));
    let listener = TcpListener::bind(address).await.unwrap();
    let (mut socket, _) = listener.accept().await.unwrap();
    let body = r#"{"vmId":"1","name":"vm"}"#;
    let _ = socket.read(&mut [0; 1000]).await.unwrap();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(answer.as_bytes()).await.unwrap();
    wait_until("attributes", async || !processor.merged().is_empty()).await;
    // The next connection is closed at once.
    drop(listener.accept().await.unwrap());
    let failed = processor.failed.get();
    wait_until("a failure", async || processor.failed.get() > failed).await;
    assert!(!processor.merged().is_empty());
    stop.cancel();
    running.join_next().await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn override_decides_whether_existing_attributes_are_replaced() {
    let system = "system: {hostname_sources: [os], resource_attributes: {os.kernel.release: {enabled: true}}}";
    for (options, replaced) in [("", true), ("override: false,", false)] {
        let processor =
            processor(&format!("{{detectors: [system], {options} {system}}}"), "").await;
        let before = vec![KeyValue::new("os.type", "mine"), KeyValue::new("a", "b")];
        let found = pairs(&resource_after(&processor, batch_of(before)).await);
        let os = if replaced { "linux" } else { "mine" };
        assert_eq!(
            found[..2],
            [("os.type".into(), os.into()), ("a".into(), "b".into())]
        );
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let release = ("os.kernel.release".to_owned(), release.trim().to_owned());
        assert!(found.contains(&release), "{found:?}");
        assert!(
            !found.iter().any(|(key, _)| key == "host.arch"),
            "it is off: {found:?}"
        );
    }
}

#[test]
fn parses_environment_attributes_like_the_sdks() {
    for (text, expected) in [
        ("", Ok(vec![])),
        ("a=b", Ok(vec![("a", "b")])),
        (" a = b , c=d=e, ", Ok(vec![("a", "b"), ("c", "d=e")])),
        ("a=1,a=2", Ok(vec![("a", "2")])),
        ("a=x%2Cy%20z", Ok(vec![("a", "x,y z")])),
        ("a=", Ok(vec![("a", "")])),
        ("a", Err("\"a\" is not key=value")),
        ("a=b,=c", Err("\"=c\" is not key=value")),
        ("a=%2", Err("has a %")),
        ("a=%+1", Err("has a %")),
        ("a=%é", Err("has a %")),
    ] {
        match (parse(text), expected) {
            (Ok(found), Ok(expected)) => expect(&found, &expected),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (found, expected) => panic!("{text:?}: {found:?} instead of {expected:?}"),
        }
    }
}

#[test]
fn finds_the_full_name_in_hosts() {
    let hosts = "127.0.0.1 localhost\n127.0.1.1 web.example.org web # me\n::1 localhost\nrubbish web\n10.0.0.1\tdb.example.org db";
    for (name, expected) in [
        ("web", Some("web.example.org")),
        ("db", Some("db.example.org")),
        ("localhost", None),
        ("other", None),
    ] {
        assert_eq!(system::in_hosts(hosts, name).as_deref(), expected, "{name}");
    }
}

#[test]
fn reads_processors_of_both_architectures() {
    let check = |text: &str, expected: &[&str]| {
        let found = system::processor(text);
        let found: Vec<String> = found
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(found, expected);
    };
    check(
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R)\nstepping\t: 7\n\nvendor_id : x",
        &[
            "host.cpu.vendor.id=GenuineIntel",
            "host.cpu.family=6",
            "host.cpu.model.id=85",
            "host.cpu.model.name=Intel(R) Xeon(R)",
            "host.cpu.stepping=7",
        ],
    );
    check(
        "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\nCPU revision\t: 1\n",
        &[
            "host.cpu.vendor.id=0x41",
            "host.cpu.family=8",
            "host.cpu.model.id=0xd0c",
            "host.cpu.stepping=1",
        ],
    );
    check("", &[]);
}

#[test]
fn validates_the_options() {
    for (options, expected) in [
        (
            "detectors: [ec3]",
            "detectors::0: invalid detector key: \"ec3\"",
        ),
        (
            "timeout: 0s",
            "timeout: must be positive: startup never waits forever",
        ),
        (
            "system: {resource_attributes: {host.size: {enabled: true}}}",
            "system::resource_attributes::host.size: is not detected here; supported: host.name, os.type",
        ),
        (
            "ec2: {tags: [a]}",
            "ec2::tags: Amazon's API is not queried for tags",
        ),
        (
            "azure: {tags: ['(']}",
            "azure::tags::0: invalid regular expression \"(\"",
        ),
        (
            "fail_on_missing_metadata: true",
            "fail_on_missing_metadata: is not supported",
        ),
    ] {
        let error = load::<ResourceDetectionConfig>(options).unwrap_err();
        assert!(error.contains(expected), "{options}: {error}");
    }
}
